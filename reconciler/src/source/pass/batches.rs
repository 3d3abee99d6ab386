//! Batches: what documents of the fleet in force and proposals of services ask for is resolved once and stored. What asks for a
//! batch and is none is stored beside them with the reason. Approvals are another's business ([`crate::batch`]).

mod proposals;

pub(super) use proposals::Refused;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
    time::Duration,
};

use pki::trust::{object::ObjectId, policy::Policy};
use schema::{canonical, digest::Digest, fleet::Fleet, name::Name, object::Kind};
use store::{
    batches::{self, Ask, BatchState, NewAsk, Origin, Put},
    leases::Lease,
};

use super::{Pass, PassError};
use crate::{
    batch::{
        history::{self, Untraceable},
        resolve::{Asked, Trust, resolve},
        standing,
    },
    source::{GitError, Repo, fetch::Look},
};

/// How long following the history of new batches may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// The policy that people trust is not known here yet.
const NO_POLICY: &str = "batch-policy";
/// The history is not at hand.
const NO_HISTORY: &str = "batch-history";
/// The name was used before.
const NAME_USED: &str = "name-used";
/// The name is one that emergencies have.
const NAME_RESERVED: &str = "name-reserved";
/// It covers no machine.
const NO_MACHINE: &str = "no-machine";
/// How the names of emergencies begin.
const EMERGENCIES: &str = "breakglass";

/// Where the fleet in force is read from.
#[derive(Debug)]
pub(super) struct At {
    pub(super) repo: Repo,
    pub(super) path: String,
    pub(super) tip: String,
}

impl At {
    /// The tip that was looked at.
    pub(super) fn of(seen: &Look) -> Self {
        Self { repo: seen.repo.again(), path: seen.path.clone(), tip: seen.tip.clone() }
    }

    pub(super) fn again(&self) -> Self {
        Self { repo: self.repo.again(), path: self.path.clone(), tip: self.tip.clone() }
    }
}

/// What a batch's history came to.
enum Traced {
    Plan {
        commit: ObjectId,
        tree: ObjectId,
        excluded: BTreeSet<Name>,
    },
    /// It never will.
    Lost(String),
    /// Another pass tries again: for what, and why.
    Later(&'static str, String),
}

impl Pass {
    /// Brings stored batches in line with the documents in force: new ones are resolved, changed ones resolved anew while nothing
    /// of them was sent, and those whose document is gone are cancelled.
    pub(super) async fn batches(&mut self, lease: &Lease, fleet: &Fleet, at: Option<At>) -> Result<(), PassError> {
        if let Some(copy) = at.as_ref().map(At::again) {
            self.proposals(lease, copy).await?;
        }
        let known = batches::in_force(&self.db).await?.items;
        let before = batches::asks(&self.db).await?.items;
        let texts: BTreeMap<&Name, String> = fleet
            .objects()
            .filter(|entry| entry.object.kind == Kind::Batch)
            .map(|entry| (&entry.object.name, text(&entry.doc)))
            .collect();
        let place = |name: &Name| fleet.batches.get(name).map(|batch| format!("{}:{}", batch.at.file, batch.at.line()));
        let ask = |name: &Name, code: &str, message: String| NewAsk {
            name: name.to_string(),
            code: code.to_owned(),
            message,
            waits: ![NAME_USED, NAME_RESERVED, NO_MACHINE].contains(&code),
            commit: None,
            place: place(name),
            looked: texts.get(name).map_or_else(String::new, |text| Digest::of(text.as_bytes()).to_string()),
        };
        let (mut fresh, mut asks): (Vec<&Name>, Vec<NewAsk>) = (Vec::new(), Vec::new());
        for (&name, text) in &texts {
            let digest = Digest::of(text.as_bytes());
            match known.iter().find(|(known, ..)| known == name) {
                Some((_, _, document, ..)) if *document == digest => {}
                Some((_, Origin::Document, _, _, false)) => fresh.push(name),
                Some((_, origin, _, _, ended)) => asks.push(ask(name, NAME_USED, used(name, *origin, *ended))),
                None => {
                    let same = |ask: &&Ask| {
                        (ask.origin, ask.new.waits) == (Origin::Document, false)
                            && ask.new.name == name.as_str()
                            && ask.new.looked == digest.to_string()
                    };
                    match before.iter().find(same) {
                        Some(known) => asks.push(known.new.clone()),
                        None => fresh.push(name),
                    }
                }
            }
        }
        let gone: Vec<&Name> = known
            .iter()
            .filter(|(name, origin, _, _, ended)| !ended && *origin == Origin::Document && !texts.contains_key(name))
            .map(|(name, ..)| name)
            .collect();
        if fresh.is_empty() && gone.is_empty() {
            return self.asked(lease, Origin::Document, &before, asks).await;
        }
        let trust = standing::trust(&self.db, &self.pinned, &fleet.document.trust_domain.value).await?;
        let mut traced = match &trust {
            Some(trust) => self.trace(at, fresh.iter().copied().cloned().collect(), trust.clone()).await,
            None => BTreeMap::new(),
        };
        let now = self.db.now().await?;
        let mut txn = self.begin(lease).await?;
        let machines = batches::machines(&mut txn).await?.items;
        for name in fresh {
            let Some(batch) = fleet.batches.get(name) else { continue };
            let (plan, excluded, lost) = match traced.remove(name) {
                None => (None, BTreeSet::new(), None),
                Some(Traced::Plan { commit, tree, excluded }) => (Some((commit, tree)), excluded, None),
                Some(Traced::Lost(why)) => (None, BTreeSet::new(), Some(why)),
                Some(Traced::Later(code, why)) => {
                    asks.push(ask(name, code, why));
                    continue;
                }
            };
            let asked = Asked {
                batch,
                doc: texts.get(name).cloned().unwrap_or_default(),
                origin: Origin::Document,
                plan,
                excluded,
                proposer: None,
                created_by: "source",
            };
            if let Some((code, why)) = put(&mut txn, &asked, &machines, trust.as_ref(), now, lost).await? {
                asks.push(ask(name, code, why));
            }
        }
        for name in gone {
            if let Some(batch) = batches::find_for_update(&mut txn, name.as_str()).await? {
                let why = Some("its document is gone: what had not begun never does");
                batches::move_to(&mut txn, &batch, BatchState::Cancelled, Some("document-gone"), why, "source").await?;
                batches::wake(&mut txn, [name]).await?;
            }
        }
        txn.commit().await?;
        self.asked(lease, Origin::Document, &before, asks).await
    }

    /// Stores what asks in one way and is no batch, when that differs from what is stored.
    async fn asked(
        &self,
        lease: &Lease,
        origin: Origin,
        before: &[Ask],
        mut asks: Vec<NewAsk>,
    ) -> Result<(), PassError> {
        asks.sort_by(|a, b| a.name.cmp(&b.name));
        let known: Vec<&NewAsk> = before.iter().filter(|ask| ask.origin == origin).map(|ask| &ask.new).collect();
        if known.iter().copied().eq(&asks) {
            return Ok(());
        }
        for ask in asks.iter().filter(|ask| !known.contains(ask)) {
            tracing::warn!(%origin, name = ask.name, code = ask.code, why = ask.message, "what asks for a batch is none");
        }
        let mut txn = self.begin(lease).await?;
        batches::set_asks(&mut txn, origin, &asks).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Where some batches come from, in a fleet whose anchor is pinned.
    async fn trace(&self, at: Option<At>, names: Vec<Name>, trust: Trust) -> BTreeMap<Name, Traced> {
        let later = |names: Vec<Name>, code, why: &str| {
            names.into_iter().map(|name| (name, Traced::Later(code, why.to_owned()))).collect()
        };
        if trust.present().is_none() {
            return later(names, NO_POLICY, "the trust policy under which people approve is not known here yet");
        }
        let Some(at) = at else { return later(names, NO_HISTORY, "the fleet repository is not at hand") };
        let anchor = self.pinned.get().map(|pin| pin.commit);
        let all = names.clone();
        let work = move |_: &AtomicBool| {
            let history = at.repo.trust_history(&at.path);
            let policies: Vec<&Policy> = trust.policies.values().collect();
            let one = |name: &Name| -> Result<Traced, Untraceable<GitError>> {
                let Some(tip) = object(&at.tip) else {
                    return Ok(Traced::Later(NO_HISTORY, "the tip has no name".to_owned()));
                };
                let origin = history::trace(&history, tip, anchor, name)?;
                let excluded = history::signers(&history, &origin.commits, &policies)?;
                Ok(Traced::Plan { commit: origin.plan, tree: origin.tree, excluded })
            };
            let traced = names.iter().map(|name| {
                let traced = one(name).unwrap_or_else(|error| match error {
                    Untraceable::Repository(_) | Untraceable::Incomplete(_) => {
                        Traced::Later(NO_HISTORY, error.to_string())
                    }
                    other => Traced::Lost(other.to_string()),
                });
                (name.clone(), traced)
            });
            Ok(traced.collect())
        };
        match self.blocking(DEADLINE, work).await {
            Ok(traced) => traced,
            Err(error) => later(all, NO_HISTORY, &error.to_string()),
        }
    }
}

/// Why a text is no batch of its name.
fn used(name: &Name, origin: Origin, ended: bool) -> String {
    let (whose, state) = (whose(origin), if ended { "has ended" } else { "has not ended" });
    format!("batch/{name} is {whose} and {state}, and a name is used once: this text needs another one")
}

const fn whose(origin: Origin) -> &'static str {
    match origin {
        Origin::Document => "an earlier text of a document",
        Origin::Proposal => "one that was proposed beside the branch",
        Origin::Api => "one that a call wrote down",
        Origin::Breakglass => "an emergency",
    }
}

/// Stores what a document comes to; a batch that can come to nothing is void at once. Answers why it is none when it cannot
/// have its name, or covers no machine: that uses no name up, and nothing goes later because a machine joins.
async fn put(
    txn: &mut store::Txn,
    asked: &Asked<'_>,
    machines: &[batches::Machine],
    trust: Option<&Trust>,
    now: schema::time::Timestamp,
    lost: Option<String>,
) -> Result<Option<(&'static str, String)>, PassError> {
    let name = &asked.batch.name;
    if name.starts_with(EMERGENCIES) {
        return Ok(Some((NAME_RESERVED, format!("batch/{name} is called as emergencies are: choose another name"))));
    }
    let mut resolved = resolve(asked, machines, trust, now);
    if let Some(why) = lost {
        resolved.flaw = Some(("untraceable", why));
    }
    if let Some((NO_MACHINE, why)) = &resolved.flaw
        && batches::find_for_update(txn, name.as_str()).await?.is_none()
    {
        let then = "commit it with another text once its machines are there: the name is free, and this text does nothing by itself";
        return Ok(Some((NO_MACHINE, format!("{why}; {then}"))));
    }
    let left: Vec<String> = resolved.left_out.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    let message = (!left.is_empty()).then(|| format!("left out: {}", left.join(", ")));
    match batches::put(txn, &resolved.batch, &resolved.leaves, message.as_deref()).await? {
        Put::Fresh(id) | Put::Again(id) => {
            tracing::info!(batch = %name, %id, machines = resolved.leaves.len(), "a batch was resolved");
        }
        Put::Same(_) => return Ok(None),
        Put::Used { origin, state, .. } => {
            // Only the document itself takes a batch back that has begun: a name is nobody else's.
            let begun = (origin, asked.origin, state) == (Origin::Document, Origin::Document, BatchState::Dispatching);
            if begun && let Some(batch) = batches::find_for_update(txn, name.as_str()).await? {
                let why = Some(
                    "its document changed after it had begun: what had not begun never does; ask for it under another name",
                );
                batches::move_to(txn, &batch, BatchState::Cancelled, Some("text-changed"), why, "source").await?;
                batches::wake(txn, [name]).await?;
            }
            return Ok(Some((NAME_USED, used(name, origin, begun || state.is_terminal()))));
        }
    }
    if let Some((reason, why)) = &resolved.flaw
        && let Some(batch) = batches::find_for_update(txn, name.as_str()).await?
    {
        batches::move_to(txn, &batch, BatchState::Void, Some(reason), Some(why), "source").await?;
    }
    Ok(None)
}

fn text(doc: &serde_json::Value) -> String {
    let bytes = canonical::to_vec(doc).expect("a document holds no fractions");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

fn object(id: &str) -> Option<ObjectId> {
    id.parse().ok()
}
