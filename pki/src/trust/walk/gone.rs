//! Keys that a policy calls compromised since a commit: what they signed after it does not count, although it was verified once.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::Chain;
use crate::trust::{key::TrustKey, object::ObjectId};

/// What policies that came into force say of keys: compromised, and the last commit that each signed for its owner.
pub type Declared = BTreeSet<(String, Option<ObjectId>)>;

/// What that amounts to in a chain.
#[derive(Debug, Clone, Default)]
pub(super) struct Gone(BTreeMap<String, GoneKey>);

#[derive(Debug, Clone, Copy)]
pub(super) struct GoneKey {
    /// The place in the chain of the first commit that does not count.
    from: usize,
    pub(super) since: Option<ObjectId>,
}

impl Gone {
    pub(super) fn of(chain: &Chain, declared: &Declared) -> Self {
        let mut keys: BTreeMap<String, GoneKey> = BTreeMap::new();
        let wanted: BTreeSet<ObjectId> = declared.iter().filter_map(|(_, since)| *since).collect();
        let places: BTreeMap<ObjectId, usize> =
            chain.iter().enumerate().map(|(at, (id, _))| (*id, at)).filter(|(id, _)| wanted.contains(id)).collect();
        for (key, since) in declared {
            // A last good commit that is not of this history says nothing good of any.
            let from = since.and_then(|since| places.get(&since)).map_or(0, |at| at + 1);
            let known = keys.entry(key.clone()).or_insert(GoneKey { from, since: *since });
            if from < known.from {
                *known = GoneKey { from, since: *since };
            }
        }
        Self(keys)
    }

    /// What is known against a key at a place of the chain.
    pub(super) fn at(&self, key: &TrustKey, at: usize) -> Option<GoneKey> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key.name()).copied().filter(|gone| gone.from <= at)
    }
}
