//! Who signed the commits that come next, as long as somebody of the policy did: what is known of that lets a history read what these
//! change in the order that suits it, and signatures are verified on all processors. Nothing is concluded here.

use std::{num::NonZero, thread};

use super::{History, chain::Chain};
use crate::trust::{
    commit::Commit,
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    policy::Policy,
    signature::signer,
};

/// Commits at once: few at first, because a policy that comes into force voids what was found.
const FEWEST: usize = 16;
const MOST: usize = 4096;
/// Threads at once.
const MOST_THREADS: usize = 8;

/// Signers of commits by their place in the chain, under one policy.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Those of the commits from a place on, without a gap.
    signers: Vec<TrustKey>,
    from: usize,
    /// How many were looked at together.
    run: usize,
}

/// A commit that somebody of the policy signed.
type Signed<'k> = (ObjectId, &'k TrustKey);

impl Ahead {
    /// Looks on from a place whose commit follows the tree `before`, unless it was looked at.
    pub(super) fn look<H: History>(
        &mut self,
        history: &H,
        chain: &Chain,
        at: usize,
        before: Option<ObjectId>,
        policy: &Policy,
    ) {
        if self.run > 0 && at < self.from + self.run {
            return;
        }
        let run = (2 * self.run).clamp(FEWEST, MOST);
        let commits = &chain[at.min(chain.len())..chain.len().min(at + run)];
        let signed = signers(history.format(), commits, policy);
        let trees: Vec<ObjectId> = before.into_iter().chain(signed.iter().map(|(tree, _)| *tree)).collect();
        let signers = signed.into_iter().map(|(_, key)| key.clone()).collect();
        *self = Self { signers, from: at, run };
        history.ahead(&trees);
    }

    /// Who signed the commit at a place, when that is known.
    pub(super) fn signer(&self, at: usize) -> Option<&TrustKey> {
        self.signers.get(at.checked_sub(self.from)?)
    }
}

/// The trees and the signers of commits, up to the first that nobody of the policy signed, or that is not what it is called.
fn signers<'k>(format: ObjectFormat, commits: &[(ObjectId, Vec<u8>)], policy: &'k Policy) -> Vec<Signed<'k>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let part = commits.len().div_ceil(threads).max(FEWEST);
    thread::scope(|scope| {
        let verify = |commits| thread::Builder::new().spawn_scoped(scope, move || verified(format, commits, policy));
        let running: Vec<_> = commits.chunks(part).map(|commits| (commits.len(), verify(commits))).collect();
        let mut signed = Vec::with_capacity(commits.len());
        for (count, thread) in running {
            let before = signed.len();
            signed.extend(thread.ok().and_then(|thread| thread.join().ok()).into_iter().flatten());
            if signed.len() < before + count {
                break;
            }
        }
        signed
    })
}

fn verified<'k>(format: ObjectFormat, commits: &[(ObjectId, Vec<u8>)], policy: &'k Policy) -> Vec<Signed<'k>> {
    let one = |(id, raw): &(ObjectId, Vec<u8>)| {
        let commit = Commit::split(format, raw).ok().filter(|commit| commit.id() == *id)?;
        Some((commit.tree(), signer(&commit, policy.keys()).ok()?))
    };
    commits.iter().map_while(one).collect()
}
