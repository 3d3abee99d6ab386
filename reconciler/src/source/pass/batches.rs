//! Batches: what documents of the fleet in force and proposals of services ask for is resolved once and stored. Approvals are
//! another's business ([`crate::batch`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use pki::trust::{commit::Commit, object::ObjectId, policy::Policy, walk::History as _};
use schema::{
    canonical,
    fleet::{Fleet, trust::PrincipalKind},
    name::Name,
    object::Kind,
};
use store::{
    batches::{self, BatchState, Origin, Put},
    control_plane,
    leases::Lease,
};

use super::{Pass, PassError};
use crate::{
    batch::{
        history::{self, Untraceable},
        resolve::{Asked, Trust, resolve},
        standing,
    },
    source::{
        GitError, Repo,
        fetch::Look,
        read::{Remembered, load},
        tree::{Brake, read_tree_until},
    },
};

/// How long following the history of new batches may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Where services push proposals to.
const PROPOSALS: &str = "refs/heads/bc/proposals/";
/// Proposals that are looked at in one pass.
const MOST_PROPOSALS: usize = 256;
/// Commits behind the tip among which the parent of a proposal is looked for.
const MOST_BEHIND: usize = 20_000;

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

    fn again(&self) -> Self {
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
    /// Another pass tries again.
    Later(String),
}

/// A proposal that holds.
struct Proposal {
    fleet: Fleet,
    name: Name,
    by: Name,
    commit: ObjectId,
    tree: ObjectId,
}

impl Pass {
    /// Brings stored batches in line with the documents in force: new ones are resolved, changed ones resolved anew while nothing
    /// of them was sent, and those whose document is gone are cancelled.
    pub(super) async fn batches(&mut self, lease: &Lease, fleet: &Fleet, at: Option<At>) -> Result<(), PassError> {
        let copy = at.as_ref().map(At::again);
        if let Some(copy) = copy {
            self.proposals(lease, copy).await?;
        }
        let known = batches::in_force(&self.db).await?;
        let texts: BTreeMap<&Name, String> = fleet
            .objects()
            .filter(|entry| entry.object.kind == Kind::Batch)
            .map(|entry| (&entry.object.name, text(&entry.doc)))
            .collect();
        let stored = |name: &Name| known.iter().find(|(known, ..)| known == name);
        let fresh: Vec<&Name> = texts
            .iter()
            .filter(|(name, text)| match stored(name) {
                None => true,
                Some((_, _, document, _, ended)) => !ended && *document != schema::digest::Digest::of(text.as_bytes()),
            })
            .map(|(name, _)| *name)
            .collect();
        let gone: Vec<&Name> = known
            .iter()
            .filter(|(name, origin, _, _, ended)| !ended && *origin == Origin::Document && !texts.contains_key(name))
            .map(|(name, ..)| name)
            .collect();
        if fresh.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let trust = standing::trust(&self.db, &self.pinned, &fleet.document.trust_domain.value).await?;
        let mut traced = match (&trust, at) {
            // Whom people trust is not known here yet: another pass tries again.
            (Some(trust), Some(at)) if trust.present().is_some() && !fresh.is_empty() => {
                self.trace(at, fresh.iter().copied().cloned().collect(), trust.clone()).await?
            }
            _ => BTreeMap::new(),
        };
        let now = self.db.now().await?;
        let mut txn = self.begin(lease).await?;
        let machines = batches::machines(&mut txn).await?;
        for name in fresh {
            let Some(batch) = fleet.batches.get(name) else { continue };
            let (plan, excluded, lost) = match (&trust, traced.remove(name)) {
                (None, _) => (None, BTreeSet::new(), None),
                (Some(_), Some(Traced::Plan { commit, tree, excluded })) => (Some((commit, tree)), excluded, None),
                (Some(_), Some(Traced::Lost(why))) => (None, BTreeSet::new(), Some(why)),
                (Some(_), Some(Traced::Later(why))) => {
                    tracing::warn!(batch = %name, why, "where a batch comes from is not known yet");
                    continue;
                }
                (Some(_), None) => continue,
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
            put(&mut txn, &asked, &machines, trust.as_ref(), now, lost).await?;
        }
        for name in gone {
            if let Some(batch) = batches::find_for_update(&mut txn, name.as_str()).await? {
                let why = Some("its document is gone: what had not begun never does");
                batches::move_to(&mut txn, &batch, BatchState::Cancelled, Some("document-gone"), why, "source").await?;
                batches::wake(&mut txn, [name]).await?;
            }
        }
        txn.commit().await?;
        Ok(())
    }

    async fn trace(&self, at: At, names: Vec<Name>, trust: Trust) -> Result<BTreeMap<Name, Traced>, PassError> {
        let anchor = self.pinned.get().map(|pin| pin.commit);
        let work = move |_: &AtomicBool| {
            let history = at.repo.trust_history(&at.path);
            let policies: Vec<&Policy> = trust.policies.values().collect();
            let one = |name: &Name| -> Result<Traced, Untraceable<GitError>> {
                let Some(tip) = object(&at.tip) else { return Ok(Traced::Later("the tip has no name".to_owned())) };
                let origin = history::trace(&history, tip, anchor, name)?;
                let excluded = history::signers(&history, &origin.commits, &policies)?;
                Ok(Traced::Plan { commit: origin.plan, tree: origin.tree, excluded })
            };
            let all = names.iter().map(|name| {
                let traced = one(name).unwrap_or_else(|error| match error {
                    Untraceable::Repository(_) | Untraceable::Incomplete(_) => Traced::Later(error.to_string()),
                    other => Traced::Lost(other.to_string()),
                });
                (name.clone(), traced)
            });
            Ok(all.collect())
        };
        match self.blocking(DEADLINE, work).await {
            Ok(traced) => Ok(traced),
            Err(error) => {
                tracing::warn!(%error, "where batches come from is not known yet");
                Ok(BTreeMap::new())
            }
        }
    }

    /// What services propose: commits of one batch each, beside the branch.
    pub(super) async fn proposals(&mut self, lease: &Lease, at: At) -> Result<(), PassError> {
        if self.pinned.get().is_none() {
            return Ok(());
        }
        let known = batches::in_force(&self.db).await?;
        let taken: BTreeSet<&str> = known.iter().filter_map(|(_, _, _, plan, _)| plan.as_deref()).collect();
        let tips: Vec<String> = at
            .repo
            .tips(PROPOSALS)
            .into_iter()
            .filter(|tip| !taken.contains(tip.as_str()) && !self.refused.contains(tip))
            .take(MOST_PROPOSALS)
            .collect();
        if tips.is_empty() {
            return Ok(());
        }
        let domain = control_plane::find(&self.db).await?.and_then(|row| row.trust_domain).unwrap_or_default();
        let Some(trust) = standing::trust(&self.db, &self.pinned, &domain).await? else { return Ok(()) };
        let Some(policy) = trust.present().cloned() else { return Ok(()) };
        let (copy, path, main) = (at.repo.again(), at.path.clone(), at.tip.clone());
        let work = move |stop: &AtomicBool| {
            let brake = Brake { stop, deadline: Instant::now().checked_add(DEADLINE) };
            let read = |tip: &String| (tip.clone(), proposal(&copy, &path, &main, tip, &policy, &brake));
            Ok(tips.iter().map(read).collect::<Vec<_>>())
        };
        let found = match self.blocking(DEADLINE, work).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "proposals of batches were not read");
                return Ok(());
            }
        };
        let now = self.db.now().await?;
        for (tip, proposal) in found {
            let proposal = match proposal {
                Ok(proposal) => proposal,
                Err(why) => {
                    tracing::warn!(commit = tip, why, "a proposal of a batch does not count");
                    self.refused.insert(tip);
                    continue;
                }
            };
            let Some(batch) = proposal.fleet.batches.get(&proposal.name) else { continue };
            let entry = proposal
                .fleet
                .objects()
                .find(|entry| entry.object.kind == Kind::Batch && entry.object.name == proposal.name);
            let asked = Asked {
                batch,
                doc: entry.map(|entry| text(&entry.doc)).unwrap_or_default(),
                origin: Origin::Proposal,
                plan: Some((proposal.commit, proposal.tree)),
                excluded: BTreeSet::from([proposal.by.clone()]),
                proposer: Some(proposal.by.clone()),
                created_by: "source",
            };
            let mut txn = self.begin(lease).await?;
            let machines = batches::machines(&mut txn).await?;
            if !put(&mut txn, &asked, &machines, Some(&trust), now, None).await? {
                self.refused.insert(tip);
            }
            txn.commit().await?;
        }
        Ok(())
    }
}

/// Stores what a document comes to; a batch that can come to nothing is void at once. `false` when its name was used.
async fn put(
    txn: &mut store::Txn,
    asked: &Asked<'_>,
    machines: &[batches::Machine],
    trust: Option<&Trust>,
    now: schema::time::Timestamp,
    lost: Option<String>,
) -> Result<bool, PassError> {
    let mut resolved = resolve(asked, machines, trust, now);
    if let Some(why) = lost {
        resolved.flaw = Some(("untraceable", why));
    }
    let left: Vec<String> = resolved.left_out.iter().map(|(name, why)| format!("{name} ({why})")).collect();
    let message = (!left.is_empty()).then(|| format!("left out: {}", left.join(", ")));
    let name = &resolved.batch.name;
    match batches::put(txn, &resolved.batch, &resolved.leaves, message.as_deref()).await? {
        Put::Fresh(id) | Put::Again(id) => {
            tracing::info!(batch = %name, %id, machines = resolved.leaves.len(), "a batch was resolved");
        }
        Put::Same(_) => return Ok(true),
        Put::Used { state: BatchState::Dispatching, .. } => {
            if let Some(batch) = batches::find_for_update(txn, name.as_str()).await? {
                let why = Some(
                    "its document changed after it had begun: what had not begun never does; ask for it under another name",
                );
                batches::move_to(txn, &batch, BatchState::Cancelled, Some("text-changed"), why, "source").await?;
                batches::wake(txn, [name]).await?;
            }
            return Ok(false);
        }
        Put::Used { state, .. } => {
            tracing::warn!(batch = %name, %state, "the name of a batch was used before; its document needs another one");
            return Ok(false);
        }
    }
    if let Some((reason, why)) = &resolved.flaw
        && let Some(batch) = batches::find_for_update(txn, name.as_str()).await?
    {
        batches::move_to(txn, &batch, BatchState::Void, Some(reason), Some(why), "source").await?;
    }
    Ok(true)
}

fn text(doc: &serde_json::Value) -> String {
    let bytes = canonical::to_vec(doc).expect("a document holds no fractions");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

fn object(id: &str) -> Option<ObjectId> {
    id.parse().ok()
}

/// Reads a proposal, or says why it is none: one commit on a commit of the branch, signed by a service or a person who may
/// change that path, which adds one file with one batch and nothing else.
fn proposal(
    repo: &Repo,
    path: &str,
    main: &str,
    tip: &str,
    policy: &Policy,
    brake: &Brake<'_>,
) -> Result<Proposal, String> {
    let history = repo.trust_history(path);
    let said = |error: GitError| error.to_string();
    let id = object(tip).ok_or("its name is none")?;
    let raw = history.commit(id).map_err(said)?.ok_or("it is not in the repository")?;
    let commit = Commit::split(history.format(), &raw).map_err(|error| error.to_string())?;
    let &[parent] = commit.parents() else { return Err("it has another number of parents than one".to_owned()) };
    let (by, principal) = policy.signer_of(&commit).ok_or("no key of the trust policy signed it")?;
    if principal.kind == PrincipalKind::Forge {
        return Err(format!("{by} is a forge, and forges propose nothing"));
    }
    let before = history.commit(parent).map_err(said)?.ok_or("its parent is not in the repository")?;
    let before = Commit::split(history.format(), &before).map_err(|error| error.to_string())?.tree();
    let changes = history.changes(before, commit.tree()).map_err(said)?;
    let [change] = changes.as_slice() else { return Err(format!("it changes {} files instead of one", changes.len())) };
    if change.before.is_some() || change.after.is_none() {
        return Err(format!("it changes {} instead of adding a file", change.path));
    }
    if !policy.grants(principal, &change.path) {
        return Err(format!("{by} may not change {}", change.path));
    }
    // The longest way is the last one: nobody without a key makes anybody go it.
    if !on_branch(&history, object(main).ok_or("the branch has no tip")?, parent).map_err(said)? {
        return Err("its parent is not on the branch".to_owned());
    }
    let sources = read_tree_until(repo, tip, path, &mut crate::source::Blobs::default(), brake).map_err(said)?;
    let loaded = load(&sources, &mut Remembered::default(), brake).map_err(said)?;
    let fleet = loaded.fleet.ok_or("its tree is no fleet")?;
    let inside: Vec<_> =
        fleet.objects().filter(|entry| *entry.at.file == *change.path).map(|entry| entry.object.clone()).collect();
    let [one] = inside.as_slice() else { return Err(format!("its file holds {} objects", inside.len())) };
    if one.kind != Kind::Batch {
        return Err(format!("it adds {one}"));
    }
    Ok(Proposal { name: one.name.clone(), by: by.clone(), commit: id, tree: commit.tree(), fleet })
}

fn on_branch(history: &crate::source::TrustHistory<'_>, tip: ObjectId, wanted: ObjectId) -> Result<bool, GitError> {
    let mut at = Some(tip);
    for _ in 0..MOST_BEHIND {
        let Some(id) = at else { return Ok(false) };
        if id == wanted {
            return Ok(true);
        }
        let Some(raw) = history.commit(id)? else { return Ok(false) };
        at = Commit::split(history.format(), &raw).ok().and_then(|commit| commit.parents().first().copied());
    }
    Ok(false)
}
