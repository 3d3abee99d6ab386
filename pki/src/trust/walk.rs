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
//! A walk begins at the anchor, or goes on from what an earlier one reached. When a key turns out to be revoked meanwhile, or the
//! history was rewritten, it goes back to the anchor, or begins where people of the `reseal` rule say.
//!
//! Pure: commits, trees and statements come through [`History`]. The only time is when a statement was first seen, which ends
//! what people limited; a date in a commit is never looked at.

mod answer;
mod chain;
mod gone;
mod judge;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use answer::{Accepted, Epoch, Judged, Signer, Stuck, Verified, Walked};
pub use gone::Revoked;
pub use refusal::Refusal;

use self::{
    chain::{Chain, back, from_first_policy, tree_of},
    gone::Gone,
    judge::{Begin, Walker, reseals},
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

    /// The raw bytes of a commit; `None` when it was left out of the repository (a shallow clone).
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
    /// What was said against keys.
    pub revoked: Revoked,
}

/// Walks a history.
///
/// # Errors
/// When an object that is needed is damaged. What the history itself is refused for is in the answer.
pub fn walk<H: History>(history: &H, walk: &Walk<'_>) -> Result<Result<Walked, Stuck>, H::Error> {
    if let Some(after) = walk.after {
        let (domain, fleet) = (after.trust_domain.as_str(), after.fleet);
        let statements = Statements::heard(walk.statements, domain, fleet);
        let ends = |id| id == after.commit || statements.reseals_to(walk.branch, after.commit, id);
        let (chain, ended) = match back(history, walk.tip, ends)? {
            Ok(found) => found,
            Err(stuck) => return Ok(Err(stuck)),
        };
        let Some(&(first, _)) = chain.first().filter(|_| ended) else {
            return Ok(Err(Stuck::HistoryDiverged { anchor: after.commit, tip: walk.tip }));
        };
        let begin = if first == after.commit {
            Begin::Behind
        } else {
            let revoked = against(&statements, &after.policies, &after.revoked);
            match reseals(&statements, walk.branch, Some(after.commit), first, &after.policies, &revoked) {
                Some((_, by)) => Begin::Sealed(by),
                None => return Ok(Err(Stuck::HistoryDiverged { anchor: after.commit, tip: walk.tip })),
            }
        };
        let from = From { domain, fleet, policies: &after.policies, revoked: &after.revoked };
        let walked = along(history, walk, &chain, &statements, &from, begin)?;
        // What was verified stands as long as nobody learns of a key that was revoked: then all of it is judged again.
        let learnt = walked.as_ref().is_ok_and(|(_, revoked)| *revoked != after.revoked);
        if !learnt || walk.anchor.is_none() {
            return Ok(walked.map(|(walked, _)| walked));
        }
    }
    whole(history, walk)
}

/// What is said against keys, before any commit is looked at.
fn against(statements: &Statements<'_>, policies: &BTreeMap<u64, Policy>, known: &Revoked) -> Revoked {
    known.iter().cloned().chain(statements.revocations(policies)).collect()
}

/// What a walk along a chain begins with.
struct From<'a> {
    domain: &'a str,
    fleet: FleetId,
    policies: &'a BTreeMap<u64, Policy>,
    revoked: &'a Revoked,
}

/// Walks from the anchor, or from the last commit that begins a history which people accept in place of another one.
fn whole<H: History>(history: &H, walk: &Walk<'_>) -> Result<Result<Walked, Stuck>, H::Error> {
    let none = (BTreeMap::new(), Revoked::new());
    let revoked = walk.after.map(|after| &after.revoked).or(walk.known.map(|known| &known.revoked)).unwrap_or(&none.1);
    if let Some(known) = walk.known {
        let (domain, fleet) = (known.trust_domain.as_str(), known.fleet);
        let statements = Statements::heard(walk.statements, domain, fleet);
        let lost = against(&statements, &known.policies, revoked);
        let sealed = |id| reseals(&statements, walk.branch, None, id, &known.policies, &lost);
        let ends = |id| walk.anchor == Some(id) || sealed(id).is_some();
        let (chain, ended) = match back(history, walk.tip, ends)? {
            Ok(found) => found,
            Err(stuck) => return Ok(Err(stuck)),
        };
        if let Some((epoch, by)) = chain.first().filter(|_| ended).and_then(|(first, _)| sealed(*first)) {
            let policies = known.policies.range(..=epoch).map(|(epoch, policy)| (*epoch, policy.clone())).collect();
            let from = From { domain, fleet, policies: &policies, revoked };
            let walked = along(history, walk, &chain, &statements, &from, Begin::Sealed(by))?;
            return Ok(walked.map(|(walked, _)| walked));
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
    let tree = tree_of(history.format(), raw);
    let Some(domain) = tree.map_or(Ok(None), |tree| history.trust_domain(tree))? else {
        return Ok(Err(Stuck::NoTrustDomain(*anchor)));
    };
    if let Some(known) = walk.known.filter(|known| known.trust_domain != domain) {
        let expected = known.trust_domain.clone();
        return Ok(Err(Stuck::OtherTrustDomain { commit: *anchor, found: domain, expected }));
    }
    let fleet = FleetId::of(&domain, anchor);
    let statements = Statements::heard(walk.statements, &domain, fleet);
    let from = From { domain: &domain, fleet, policies: &none.0, revoked };
    let walked = along(history, walk, &chain, &statements, &from, Begin::Anchor)?;
    Ok(walked.map(|(walked, _)| walked))
}

/// Judges a chain, and answers what is known against keys in the end.
fn along<H: History>(
    history: &H,
    walk: &Walk<'_>,
    chain: &Chain,
    statements: &Statements<'_>,
    from: &From<'_>,
    begin: Begin,
) -> Result<Result<(Walked, Revoked), Stuck>, H::Error> {
    // What a key signed may stop to count by something that is said later: then the walk begins again, knowing it. Each
    // time more is said, so it ends.
    let mut gone = Gone::of(chain, from.revoked);
    loop {
        let mut walker = Walker::new(history, walk.branch, statements, (from.domain, from.fleet), from.policies, gone);
        let commits = walker.pass(chain, &begin)?;
        let revoked = statements.revocations(walker.policies());
        let known = walker.gone().clone().with(chain, revoked.into_iter(), walker.policies());
        if known != *walker.gone() {
            gone = known;
            continue;
        }
        let counts = commits.iter().take_while(|commit| commit.verdict.is_ok());
        let last = counts.clone().last().map(|judged| judged.id);
        let brought: Vec<u64> = counts.filter_map(Judged::brings).collect();
        let commit = match begin {
            Begin::Behind => last.or_else(|| chain.first().map(|(id, _)| *id)),
            Begin::Anchor | Begin::Sealed(_) => last,
        };
        let said = known.said().clone();
        let (mut policies, epochs) = walker.into_epochs();
        let most = brought.last().copied().or_else(|| from.policies.keys().next_back().copied());
        policies.retain(|epoch, _| most.is_some_and(|most| *epoch <= most));
        let reached = commit.map(|commit| Verified {
            trust_domain: from.domain.to_owned(),
            fleet: from.fleet,
            commit,
            policies,
            revoked: said.clone(),
        });
        let policy = reached.as_ref().and_then(Verified::policy).cloned();
        let epochs = epochs.into_iter().filter(|epoch| brought.contains(&epoch.epoch)).collect();
        let trust_domain = from.domain.to_owned();
        return Ok(Ok((Walked { trust_domain, fleet: from.fleet, policy, commits, reached, epochs }, said)));
    }
}
