//! Keys of which something that they signed does not count, and from which commit on.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::Chain;
use crate::trust::{key::TrustKey, object::ObjectId, policy::Policy};

/// What is said against keys, by people and by policies: a key, and the last commit that it signed for its owner.
pub type Revoked = BTreeSet<(String, Option<ObjectId>)>;

/// What that amounts to in a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gone {
    said: Revoked,
    keys: BTreeMap<String, GoneKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoneKey {
    /// The place in the chain of the first commit that does not count.
    from: usize,
    pub(super) since: Option<ObjectId>,
}

impl Gone {
    pub(super) fn of(chain: &Chain, said: &Revoked) -> Self {
        Self::default().and(chain, said.iter().cloned())
    }

    /// These and what people and policies say of others.
    pub(super) fn with(
        self,
        chain: &Chain,
        revoked: impl Iterator<Item = (String, Option<ObjectId>)>,
        policies: &BTreeMap<u64, Policy>,
    ) -> Self {
        let declared = policies.values().flat_map(Policy::compromised).map(|(key, since)| (key.to_owned(), since));
        self.and(chain, revoked.chain(declared))
    }

    fn and(mut self, chain: &Chain, said: impl Iterator<Item = (String, Option<ObjectId>)>) -> Self {
        for (key, since) in said {
            if !self.said.insert((key.clone(), since)) {
                continue;
            }
            let last_good = since.and_then(|since| chain.iter().position(|(id, _)| *id == since));
            // A last good commit that is not of this history says nothing good of any.
            let from = last_good.map_or(0, |index| index + 1);
            let known = self.keys.entry(key).or_insert(GoneKey { from, since });
            if from < known.from {
                *known = GoneKey { from, since };
            }
        }
        self
    }

    /// What is known against a key at a place of the chain.
    pub(super) fn at(&self, key: &TrustKey, at: usize) -> Option<GoneKey> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&key.name()).copied().filter(|gone| gone.from <= at)
    }

    /// What was said.
    pub(super) const fn said(&self) -> &Revoked {
        &self.said
    }
}
