//! Who signed the commits that come next, as long as somebody of the policy did: what is known of that lets a history read what these
//! change in the order that suits it. Nothing is concluded here.

use std::collections::BTreeMap;

use super::{History, chain::Chain};
use crate::trust::{commit::Commit, key::TrustKey, object::ObjectId, policy::Policy, signature::signer};

/// Commits at once: few at first, because a policy that comes into force voids what was found.
const FEWEST: usize = 16;
const MOST: usize = 4096;

/// Signers of commits by their place in the chain, under one policy.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    signers: BTreeMap<usize, TrustKey>,
    /// How many were looked at together, and the place behind them.
    run: usize,
    until: usize,
}

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
        if at < self.until {
            return;
        }
        let run = (2 * self.run).clamp(FEWEST, MOST);
        *self = Self { run, until: at + run, signers: BTreeMap::new() };
        let mut trees: Vec<ObjectId> = before.into_iter().collect();
        for (place, (id, raw)) in chain.iter().enumerate().skip(at).take(run) {
            let Ok(commit) = Commit::split(history.format(), raw) else { break };
            let Some(key) = signer(&commit, policy.keys()).ok().filter(|_| commit.id() == *id) else { break };
            self.signers.insert(place, key.clone());
            trees.push(commit.tree());
        }
        history.ahead(&trees);
    }

    /// Who signed the commit at a place, when that is known.
    pub(super) fn signer(&self, at: usize) -> Option<&TrustKey> {
        self.signers.get(&at)
    }
}
