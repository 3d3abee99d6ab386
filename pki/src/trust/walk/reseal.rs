//! Who accepts a rewritten history.

use std::collections::{BTreeMap, BTreeSet};

use schema::name::Name;

use super::Memory;
use crate::trust::{key::TrustKey, object::ObjectId, policy::Policy, spoken::Statements, statement::Body};

/// Who accepts a commit in place of another one, when it is enough, and under which policy they said so. It is the newest policy
/// that says whose word counts. `old` is the commit that it takes the place of, where that is known: then they say it under the
/// newest policy, too.
pub(super) fn reseals(
    statements: &Statements<'_>,
    branch: &str,
    old: Option<ObjectId>,
    new: ObjectId,
    policies: &BTreeMap<u64, Policy>,
    memory: &Memory,
) -> Option<(u64, Vec<Name>)> {
    let olds: BTreeSet<ObjectId> =
        statements.replaced_by(branch, new).filter(|was| old.is_none_or(|old| old == *was)).collect();
    let newest = policies.values().next_back().filter(|_| !olds.is_empty())?;
    let rule = newest.reseal()?;
    let counts = |key: &TrustKey| {
        let declared = memory.declared.iter().any(|(name, _)| *name == key.name());
        !declared && !memory.revoked.denies_vote(key, newest, rule)
    };
    for (epoch, policy) in policies.iter().rev().take(if old.is_some() { 1 } else { policies.len() }) {
        for was in &olds {
            let says = |body: &Body| match body {
                Body::Reseal { branch: of, old, new: by, under, .. } => {
                    of == branch && old == was && *by == new && (under.epoch, under.digest) == (*epoch, policy.digest())
                }
                _ => false,
            };
            let people = statements.people(newest, rule, says, counts);
            if people.len() >= rule.threshold as usize {
                return Some((*epoch, people.into_iter().collect()));
            }
        }
    }
    None
}
