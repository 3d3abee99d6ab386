//! What services propose: commits of one batch each, beside the branch.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use pki::trust::{
    commit::Commit,
    key::TrustKey,
    object::ObjectId,
    policy::{KeyState, Policy},
    signature::signer,
    walk::History as _,
};
use schema::{
    fleet::{Fleet, trust::PrincipalKind},
    name::Name,
    object::Kind,
};
use store::{
    batches::{self, NewAsk, Origin},
    control_plane,
    leases::Lease,
};

use super::{At, NO_HISTORY, NO_POLICY, Pass, PassError, object, put, text};
use crate::{
    batch::{resolve::Asked, standing},
    source::{
        Blobs, GitError, Repo, TrustHistory,
        read::{Remembered, load},
        tree::{Brake, read_tree_until},
    },
};

/// How long reading proposals may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Where services push proposals to.
const BRANCHES: &str = "refs/heads/bc/proposals/";
/// Proposals that are looked at in one pass, and those of which it is said why they are no batch.
const MOST: usize = 256;
/// A branch with a longer name is no proposal.
const LONGEST: usize = 200;
/// Commits behind the tip among which the parent of a proposal is looked for.
const MOST_BEHIND: usize = 20_000;

/// A branch below [`BRANCHES`], and the commit that it names.
type Tip = (String, String);

/// Why proposals that were judged are no batches.
pub(in crate::source::pass) type Refused = BTreeMap<Tip, NewAsk>;

/// A proposal that holds.
struct Proposal {
    fleet: Fleet,
    name: Name,
    by: Name,
    commit: ObjectId,
    tree: ObjectId,
}

/// Why a proposal is no batch.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    /// It is no commit on another one.
    #[error("{0}")]
    Malformed(String),
    /// Nobody that is known signed it.
    #[error("no key of the trust policy that counts signed it")]
    Unsigned,
    /// A forge signed it.
    #[error("{0} is a forge, and forges propose nothing")]
    Forge(Name),
    /// It is something else than one new file with one batch.
    #[error("{0}")]
    Content(String),
    /// Whoever signed it may not write there.
    #[error("{by} may not propose {path}")]
    Path {
        /// Who signed it.
        by: Name,
        /// What it adds.
        path: String,
    },
    /// It stands on another branch, or on a commit that is not there yet.
    #[error("its parent {0} is not on the branch")]
    OffBranch(ObjectId),
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] GitError),
}

impl Unfit {
    const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "proposal-malformed",
            Self::Unsigned => "proposal-unsigned",
            Self::Forge(_) => "proposal-forge",
            Self::Content(_) => "proposal-content",
            Self::Path { .. } => "proposal-path",
            Self::OffBranch(_) => "proposal-off-branch",
            Self::Unread(_) => "batch-history",
        }
    }
}

impl Pass {
    /// Takes over what services propose, and says why the rest is no batch.
    pub(in crate::source::pass) async fn proposals(&mut self, lease: &Lease, at: At) -> Result<(), PassError> {
        if self.pinned.get().is_none() {
            return Ok(());
        }
        let known = batches::in_force(&self.db).await?.items;
        let taken: BTreeSet<&str> = known.iter().filter_map(|(_, _, _, plan, _)| plan.as_deref()).collect();
        let before = batches::asks(&self.db).await?.items;
        let is_open = |(name, tip): &Tip| name.len() <= LONGEST && !taken.contains(tip.as_str());
        let tips: BTreeSet<Tip> = at.repo.tips(BRANCHES).into_iter().filter(is_open).collect();
        if tips.is_empty() {
            return self.asked(lease, Origin::Proposal, &before, Vec::new()).await;
        }
        let domain = control_plane::find(&self.db).await?.and_then(|row| row.trust_domain).unwrap_or_default();
        let trust = standing::trust(&self.db, &self.pinned, &domain).await?;
        let policy = trust.as_ref().and_then(|trust| trust.present().cloned());
        let (Some(trust), Some(policy)) = (trust, policy) else {
            let why = "the trust policy is not known here yet";
            let asks = tips.iter().map(|tip| ask(tip, NO_POLICY, why.to_owned(), String::new()));
            return self.asked(lease, Origin::Proposal, &before, shown(asks)).await;
        };
        // What was judged by this policy is not judged again, and what stood beside the branch not before the branch moves.
        let (by_policy, by_tip) = (policy.digest().to_string(), format!("{} {}", policy.digest(), at.tip));
        for one in before.iter().filter(|ask| ask.origin == Origin::Proposal) {
            let tip = one.new.commit.clone().map(|commit| (one.new.name.clone(), commit));
            self.refused.extend(tip.map(|tip| (tip, one.new.clone())));
        }
        let holds = |ask: &NewAsk| [&by_policy, &by_tip].contains(&&ask.looked);
        self.refused.retain(|tip, ask| tips.contains(tip) && holds(ask));
        // By lot: whoever may push keeps nobody's proposal out by many others.
        let lot = RandomState::new();
        let mut open: Vec<Tip> = tips.into_iter().filter(|tip| !self.refused.contains_key(tip)).collect();
        open.sort_by_cached_key(|tip| lot.hash_one(tip));
        open.truncate(MOST);
        let (copy, path, main, commits) = (at.repo.again(), at.path.clone(), at.tip.clone(), open.clone());
        let (reader, revoked) = (policy.clone(), trust.revoked.clone());
        let work = move |stop: &AtomicBool| {
            let brake = Brake { stop, deadline: Instant::now().checked_add(DEADLINE) };
            let read = |(_, tip): &Tip| proposal(&copy, (&path, &main, tip), (&reader, &revoked), &brake);
            Ok(commits.iter().map(read).collect::<Vec<_>>())
        };
        let found = match self.blocking(DEADLINE, work).await {
            Ok(found) => found,
            Err(error) => {
                let why = error.to_string();
                let unread = open.iter().map(|tip| ask(tip, NO_HISTORY, why.clone(), String::new()));
                let asks = shown(self.refused.values().cloned().chain(unread));
                return self.asked(lease, Origin::Proposal, &before, asks).await;
            }
        };
        let now = self.db.now().await?;
        for (tip, proposal) in open.iter().zip(found) {
            let proposal = match proposal {
                Ok(proposal) => proposal,
                Err(unfit) => {
                    let looked = match unfit {
                        Unfit::Unread(_) => String::new(),
                        Unfit::OffBranch(_) => by_tip.clone(),
                        _ => by_policy.clone(),
                    };
                    self.refused.insert(tip.clone(), ask(tip, unfit.code(), unfit.to_string(), looked));
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
            let machines = batches::machines(&mut txn).await?.items;
            if let Some((code, why)) = put(&mut txn, &asked, &machines, Some(&trust), now, None).await? {
                self.refused.insert(tip.clone(), ask(tip, code, why, by_policy.clone()));
            }
            txn.commit().await?;
        }
        let asks = shown(self.refused.values().cloned());
        self.asked(lease, Origin::Proposal, &before, asks).await
    }
}

/// Those of which people are told: first what somebody signed.
fn shown(asks: impl IntoIterator<Item = NewAsk>) -> Vec<NewAsk> {
    let mut asks: Vec<NewAsk> = asks.into_iter().collect();
    asks.sort_by_key(|ask| ["proposal-unsigned", "proposal-malformed"].contains(&ask.code.as_str()));
    asks.truncate(MOST);
    asks
}

/// A proposal that is no batch.
fn ask((name, tip): &Tip, code: &str, message: String, looked: String) -> NewAsk {
    NewAsk {
        name: name.clone(),
        code: code.to_owned(),
        message,
        waits: looked.is_empty(),
        commit: Some(tip.clone()),
        place: Some(format!("bc/proposals/{name}")),
        looked,
    }
}

/// Reads a proposal, or says why it is none: one commit on a commit of the branch, signed by a service or a person who may
/// change that path, which adds one file with one batch and nothing else.
fn proposal(
    repo: &Repo,
    (path, main, tip): (&str, &str, &str),
    (policy, revoked): (&Policy, &BTreeSet<String>),
    brake: &Brake<'_>,
) -> Result<Proposal, Unfit> {
    let history = repo.trust_history(path);
    let malformed = |why: &str| Unfit::Malformed(why.to_owned());
    let id = object(tip).ok_or_else(|| malformed("its name is none"))?;
    if history.is_other_than_commit(id) {
        return Err(malformed("it is no commit"));
    }
    let raw = history.commit(id)?.ok_or_else(|| malformed("it is no commit"))?;
    let commit = Commit::split(history.format(), &raw).map_err(|error| Unfit::Malformed(error.to_string()))?;
    let &[parent] = commit.parents() else { return Err(malformed("it has another number of parents than one")) };
    let counts = |key: &&TrustKey| policy.state(key) == KeyState::Good && !revoked.contains(&key.name());
    let key = signer(&commit, policy.keys()).ok().filter(counts);
    let (by, principal) = key.and_then(|key| policy.holder(key)).ok_or(Unfit::Unsigned)?;
    if principal.kind == PrincipalKind::Forge {
        return Err(Unfit::Forge(by.clone()));
    }
    let before = history.commit(parent)?.ok_or(Unfit::OffBranch(parent))?;
    let before = Commit::split(history.format(), &before).map_err(|error| Unfit::Malformed(error.to_string()))?.tree();
    let changes = history.changes(before, commit.tree())?;
    let [change] = changes.as_slice() else {
        return Err(Unfit::Content(format!("it changes {} files instead of one", changes.len())));
    };
    if change.before.is_some() || change.after.is_none() {
        return Err(Unfit::Content(format!("it changes {} instead of adding a file", change.path)));
    }
    if !policy.lets_propose(principal, &change.path) {
        return Err(Unfit::Path { by: by.clone(), path: change.path.clone() });
    }
    // The longest way is the last one: nobody without a key makes anybody go it.
    if !on_branch(&history, object(main), parent)? {
        return Err(Unfit::OffBranch(parent));
    }
    let sources = read_tree_until(repo, tip, path, &mut Blobs::default(), brake)?;
    let loaded = load(&sources, &mut Remembered::default(), brake)?;
    let fleet = loaded.fleet.ok_or_else(|| Unfit::Content("its tree is no fleet".to_owned()))?;
    let inside: Vec<_> =
        fleet.objects().filter(|entry| *entry.at.file == *change.path).map(|entry| entry.object.clone()).collect();
    let [one] = inside.as_slice() else {
        return Err(Unfit::Content(format!("its file holds {} objects instead of one batch", inside.len())));
    };
    if one.kind != Kind::Batch {
        return Err(Unfit::Content(format!("it adds {one} instead of a batch")));
    }
    Ok(Proposal { name: one.name.clone(), by: by.clone(), commit: id, tree: commit.tree(), fleet })
}

fn on_branch(history: &TrustHistory<'_>, tip: Option<ObjectId>, wanted: ObjectId) -> Result<bool, GitError> {
    let mut at = tip;
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
