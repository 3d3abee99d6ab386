//! The history walk: what the trust policy concludes about each first-parent commit since the anchor, and why.
//!
//! ```text
//! anchor ── c1 ── c2 ── c3 … tip      every commit is judged by the policy at its parent, never by its own
//! ```
//!
//! Forward only, along first parents. What a merge brings in from its other parents is the business of whoever signed the
//! merge: that signature answers for the whole difference to the first parent. A commit that is refused stops the history
//! there; what comes behind it is judged all the same, for people to see, and does not count.
//!
//! A walk begins at the anchor, or goes on from what an earlier one reached, and remembers what it learnt of keys ([`Memory`]).
//! When a policy says that a key was compromised before, all of it is judged again; when the history was rewritten, it begins
//! where people of the `reseal` rule say.
//!
//! Pure: commits, trees and statements come through [`History`]. The only times are when a statement was first seen and when a
//! commit is, which ends what people limited; a date in a commit is never looked at.

mod ahead;
mod answer;
mod chain;
mod gone;
mod judge;
mod last;
mod refusal;
mod reseal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use answer::{Accepted, Ended, Epoch, Judged, Memory, Sealed, Signer, Stuck, Verified, Walked};
pub use gone::Declared;
pub use last::last_policy;
pub use refusal::Refusal;

use schema::{digest::Digest, time::Timestamp};

use self::{
    chain::{Chain, back, from_first_policy, tree_of},
    gone::Gone,
    judge::{Begin, Walker},
    reseal::reseals,
};
use super::{
    object::{ObjectFormat, ObjectId},
    policy::Policy,
    spoken::{Heard, Statements},
    statement::FleetId,
};

/// How far back a chain is walked.
pub const MOST_COMMITS: usize = 100_000;
/// Bytes of the commits of a chain together.
const MOST_BYTES: usize = 256 << 20;

/// What the walk reads. All paths are below the fleet's root.
pub trait History {
    /// Why something could not be read.
    type Error;

    /// How the repository names its objects.
    fn format(&self) -> ObjectFormat;

    /// The raw bytes of a commit; `None` when it was left out of the repository (a shallow clone). Of one that is larger than any commit may
    /// be ([`MAX_COMMIT_BYTES`](super::commit::MAX_COMMIT_BYTES)) the beginning is enough, as long as it is too large itself.
    ///
    /// # Errors
    /// When it is damaged.
    fn commit(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Self::Error>;

    /// The trust domain that the fleet file of a tree names.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn trust_domain(&self, tree: ObjectId) -> Result<Option<String>, Self::Error>;

    /// The files that differ between two trees.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn changes(&self, before: ObjectId, after: ObjectId) -> Result<Vec<FileChange>, Self::Error>;

    /// What is in the folder of trust.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn trust(&self, tree: ObjectId) -> Result<TrustFolder, Self::Error>;

    /// The bytes of a file; `None` when there are more than a fleet file may have.
    ///
    /// # Errors
    /// When it is missing or damaged.
    fn file(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Hears which trees are compared soon, each with the one before it: all but the first are of commits that somebody of the policy signed.
    /// What cannot be read is for later.
    fn ahead(&self, _trees: &[ObjectId]) {}

    /// What is wrong with a commit's files, when an error says that of them and not that something is missing or damaged: such a
    /// commit is refused, and what came before it stands.
    fn unfit(error: &Self::Error) -> Option<String>;

    /// What is missing or damaged of a commit's files, when an error says that: such a commit does not count before it is there, and
    /// what came before it stands.
    fn lacking(error: &Self::Error) -> Option<String>;
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Where it is, below the fleet's root.
    pub path: String,
    /// What it was; `None` when it was not there, or was no file.
    pub before: Option<ObjectId>,
    /// What it is; `None` when it is not there, or is no file.
    pub after: Option<ObjectId>,
}

/// What is in the folder of trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustFolder {
    /// The policy's bytes, when it is a plain file that is not too large.
    pub policy: Option<Vec<u8>>,
    /// Whatever else lies there.
    pub others: Vec<String>,
}

/// What is walked.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// The branch, as statements name it.
    pub branch: &'a str,
    /// The commit to end at.
    pub tip: ObjectId,
    /// The commit to begin at. Without one it is the first that holds a policy, and nobody has confirmed it.
    pub anchor: Option<ObjectId>,
    /// How far an earlier walk got: this one goes on from there.
    pub after: Option<&'a Verified>,
    /// What is known otherwise of a history whose anchor people confirmed.
    pub known: Option<&'a Known>,
    /// Raw commits that may be statements.
    pub statements: &'a [Heard],
    /// The time, for commits that nobody judged before: what people said until an earlier time does not count for them.
    pub now: Option<Timestamp>,
    /// How many commits are judged behind the first that is refused, for people to see.
    pub beyond: usize,
}

/// What is known of a fleet without its history: policies follow each other by statements alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The trust domain.
    pub trust_domain: String,
    /// The fleet.
    pub fleet: FleetId,
    /// Its policies, by epoch.
    pub policies: BTreeMap<u64, Policy>,
    /// The digest of every policy that machines may have, by epoch: none of them ever goes back, so there is no other one of its number.
    pub handed_out: BTreeMap<u64, Digest>,
    /// What was learnt, where that is known.
    pub memory: Option<Memory>,
}

/// Walks a history.
///
/// # Errors
/// When a commit on the way to the tip is missing or damaged, or what says where the history begins. What the history itself is refused
/// for is in the answer, and so is what a commit lacks.
pub fn walk<H: History>(history: &H, walk: &Walk<'_>) -> Result<Result<Walked, Stuck>, H::Error> {
    let Some(after) = walk.after else {
        return whole(history, walk, walk.known.and_then(|known| known.memory.clone()));
    };
    let statements = Statements::heard(walk.statements, &after.trust_domain, after.fleet, walk.now);
    let mut memory = after.memory.clone();
    if let Some(newest) = after.policy() {
        // Judged once, before anything that is new is looked at.
        for (said, _) in statements.revoking() {
            memory.revoked.take(said, newest, Some(after.commit));
        }
    }
    let seal = |id| reseals(&statements, walk.branch, Some(after.commit), id, &after.policies, &memory);
    let ends = |id| id == after.commit || seal(id).is_some();
    let (chain, ended) = match back(history, walk.tip, ends)? {
        Ok(found) => found,
        Err(stuck) => return Ok(Err(stuck)),
    };
    let Some(&(first, _)) = chain.first().filter(|_| ended) else {
        return Ok(Err(Stuck::HistoryDiverged { anchor: after.commit, tip: walk.tip }));
    };
    let begin = seal(first).filter(|_| first != after.commit).map_or(Begin::Behind, |(_, by)| Begin::Sealed(by));
    if let (Begin::Sealed(_), Some(newest)) = (&begin, after.policy()) {
        memory.sealed.push(Sealed { old: after.commit, new: first, epoch: newest.epoch() });
    }
    let of = Of { domain: &after.trust_domain, fleet: after.fleet, policies: &after.policies, heard: true };
    let along = Along { history, walk, chain: &chain, statements: &statements, of };
    let (walked, declared) = along.pass(&memory, &begin)?;
    if declared.is_subset(&memory.declared) || walk.anchor.is_none() {
        return Ok(Ok(walked));
    }
    // A policy reaches back: what was verified is judged again, knowing what it says.
    memory.declared.extend(declared);
    let again = whole(history, walk, Some(memory))?;
    // What counted once is not taken back because it cannot be read.
    if let Some((judged, Refusal::Lacking(what))) = again.as_ref().ok().and_then(Walked::refused)
        && !walked.commits.iter().any(|new| new.id == judged.id)
    {
        return Ok(Err(Stuck::Lacking { commit: judged.id, what: what.clone() }));
    }
    Ok(again)
}

/// Walks from the anchor, or from the last commit that begins a history which people accepted in place of another one.
fn whole<H: History>(history: &H, walk: &Walk<'_>, memory: Option<Memory>) -> Result<Result<Walked, Stuck>, H::Error> {
    let heard = memory.is_some();
    let mut memory = memory.unwrap_or_default();
    if let Some(known) = walk.known {
        let statements = Statements::heard(walk.statements, &known.trust_domain, known.fleet, None);
        let seal = |id: ObjectId| sealed(&statements, walk.branch, id, known, &memory);
        // What would be refused there ends no chain.
        let fits = |raw: &[u8], epoch: u64| -> Result<bool, H::Error> {
            let Some(tree) = tree_of(history.format(), raw) else { return Ok(false) };
            let held = match history.trust(tree) {
                Err(error) if H::unfit(&error).is_some() => return Ok(false),
                held => held?,
            };
            let policy = held.policy.as_deref().and_then(|bytes| super::policy::check(bytes).policy);
            Ok(policy.map(|policy| policy.digest()) == known.policies.get(&epoch).map(Policy::digest))
        };
        let ends = |id| walk.anchor == Some(id) || seal(id).is_some();
        let (chain, ended) = match back(history, walk.tip, ends)? {
            Ok(found) => found,
            Err(stuck) => return Ok(Err(stuck)),
        };
        let first = chain.first().filter(|_| ended);
        if let Some((raw, (epoch, by))) = first.and_then(|(first, raw)| Some((raw, seal(*first)?)))
            && fits(raw, epoch)?
        {
            let policies = known.policies.range(..=epoch).map(|(epoch, policy)| (*epoch, policy.clone())).collect();
            let of = Of { domain: &known.trust_domain, fleet: known.fleet, policies: &policies, heard };
            let along = Along { history, walk, chain: &chain, statements: &statements, of };
            return along.run(memory, &Begin::Sealed(by)).map(Ok);
        }
    }
    let (mut chain, ended) = match back(history, walk.tip, |id| walk.anchor == Some(id))? {
        Ok(found) => found,
        Err(stuck) => return Ok(Err(stuck)),
    };
    match walk.anchor {
        Some(anchor) if !ended => return Ok(Err(Stuck::HistoryDiverged { anchor, tip: walk.tip })),
        Some(_) => {}
        None => chain = from_first_policy(history, chain)?,
    }
    let Some((anchor, raw)) = chain.first() else { return Ok(Err(Stuck::NoPolicy)) };
    let domain = match tree_of(history.format(), raw).map(|tree| history.trust_domain(tree)) {
        Some(Err(error)) if H::unfit(&error).is_none() => return Err(error),
        Some(Ok(Some(domain))) => domain,
        _ => return Ok(Err(Stuck::NoTrustDomain(*anchor))),
    };
    if let Some(known) = walk.known.filter(|known| known.trust_domain != domain) {
        let expected = known.trust_domain.clone();
        return Ok(Err(Stuck::OtherTrustDomain { commit: *anchor, found: domain, expected }));
    }
    let fleet = FleetId::of(&domain, anchor);
    let statements = Statements::heard(walk.statements, &domain, fleet, None);
    memory.sealed.retain(|seal| chain.iter().any(|(id, _)| *id == seal.new));
    let of = Of { domain: &domain, fleet, policies: &BTreeMap::new(), heard };
    let along = Along { history, walk, chain: &chain, statements: &statements, of };
    along.run(memory, &Begin::Anchor).map(Ok)
}

/// Who accepts a commit as the beginning of a history, and under which epoch: as it is remembered, else by the newest policy.
fn sealed(
    statements: &Statements<'_>,
    branch: &str,
    id: ObjectId,
    known: &Known,
    memory: &Memory,
) -> Option<(u64, Vec<schema::name::Name>)> {
    match memory.sealed.iter().rfind(|seal| seal.new == id) {
        Some(seal) => Some((seal.epoch, Vec::new())),
        None => reseals(statements, branch, None, id, &known.policies, memory),
    }
}

/// What a chain belongs to.
struct Of<'a> {
    domain: &'a str,
    fleet: FleetId,
    /// The policies before it.
    policies: &'a BTreeMap<u64, Policy>,
    /// Whether all revocations were heard before, and are in the memory.
    heard: bool,
}

/// A chain that is judged.
struct Along<'a, H> {
    history: &'a H,
    walk: &'a Walk<'a>,
    chain: &'a Chain,
    statements: &'a Statements<'a>,
    of: Of<'a>,
}

impl<H: History> Along<'_, H> {
    /// Judges it, and once more when a policy on the way says that a key was compromised before.
    fn run(&self, mut memory: Memory, begin: &Begin) -> Result<Walked, H::Error> {
        let (walked, declared) = self.pass(&memory, begin)?;
        if declared.is_subset(&memory.declared) {
            return Ok(walked);
        }
        memory.declared.extend(declared);
        // What a commit says that does not count by then stays said: enough people agreed to it where it stood.
        self.pass(&memory, begin).map(|(walked, _)| walked)
    }

    /// Judges it, and answers what policies that came into force say of keys.
    fn pass(&self, memory: &Memory, begin: &Begin) -> Result<(Walked, Declared), H::Error> {
        let Of { domain, fleet, policies, heard } = self.of;
        let gone = Gone::of(self.chain, &memory.declared);
        let mut walker = Walker::new(self.history, self.walk.branch, self.statements, (domain, fleet), policies, gone);
        walker.remember(self.chain, memory, heard);
        walker.handed_out = self.walk.known.map(|known| &known.handed_out);
        let commits = walker.pass(self.chain, begin, self.walk.beyond)?;
        let counts = || commits.iter().take_while(|commit| commit.verdict.is_ok());
        let last = counts().last().map(|judged| judged.id);
        let commit = match begin {
            Begin::Behind => last.or_else(|| self.chain.first().map(|(id, _)| *id)),
            Begin::Anchor | Begin::Sealed(_) => last,
        };
        let brought: Vec<u64> = counts().filter_map(Judged::brings).collect();
        let (revoked, mut known, epochs) = walker.into_learnt();
        let most = brought.last().or_else(|| policies.keys().next_back()).copied();
        known.retain(|epoch, _| most.is_some_and(|most| *epoch <= most));
        let said = known.values().flat_map(Policy::compromised).map(|(key, since)| (key.to_owned(), since));
        let declared: Declared = said.collect();
        let memory = Memory { revoked, ..memory.clone() };
        let trust_domain = domain.to_owned();
        let reached = commit.map(|commit| Verified {
            trust_domain: trust_domain.clone(),
            fleet,
            commit,
            policies: known,
            memory,
        });
        let policy = reached.as_ref().and_then(Verified::policy).cloned();
        let epochs = epochs.into_iter().filter(|epoch| brought.contains(&epoch.epoch)).collect();
        Ok((Walked { trust_domain, fleet, policy, commits, reached, epochs }, declared))
    }
}
