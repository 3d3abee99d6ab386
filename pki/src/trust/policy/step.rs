//! From one policy to the next: what agrees to it, and who proves to hold its keys. Needs no repository, so that a node judges the
//! chain of policies as the control plane does.

use std::collections::BTreeSet;

use schema::{digest::Digest, fleet::trust::Unknown, name::Name};

use super::{KeyState, Policy, Rule, read};
use crate::trust::{
    key::TrustKey,
    revoked::Revocations,
    spoken::Statements,
    statement::{Body, FleetId, Step},
    walk::Refusal,
};

/// The first policy of a fleet: the one whose digest was confirmed.
///
/// # Errors
/// When it is no first policy, or another one.
pub fn first(bytes: &[u8], pinned: Digest) -> Result<Policy, Refusal> {
    let policy = follows(bytes, None, Unknown::Kept)?;
    if policy.digest() == pinned { Ok(policy) } else { Err(Refusal::NotPinned { pinned, found: policy.digest() }) }
}

/// The policy that follows another one: its epoch is the next, it names the one before and forgets nothing, and statements by
/// the thresholds of the old one and of its own agree to it and prove every key that it adds. `statements` are raw commits, and
/// `revoked` the keys that were revoked before.
///
/// # Errors
/// With the first reason against it.
pub fn step(
    old: &Policy,
    next: &[u8],
    statements: &[Vec<u8>],
    trust_domain: &str,
    fleet: FleetId,
    revoked: &Revocations,
) -> Result<Policy, Refusal> {
    let new = follows(next, Some(old), Unknown::Kept)?;
    let statements = Statements::read(statements.iter().map(Vec::as_slice), trust_domain, fleet);
    agreed(old, &new, &statements, |key, policy, rule| !revoked.denies_vote(key, policy, rule))?;
    Ok(new)
}

/// A policy that has its place behind another one, whoever agrees to it.
pub(in crate::trust) fn follows(bytes: &[u8], before: Option<&Policy>, unknown: Unknown) -> Result<Policy, Refusal> {
    let (later_format, checked) = read(bytes, unknown);
    if let Some(format) = later_format {
        return Err(Refusal::TooNew { format });
    }
    let Some(policy) = checked.policy else { return Err(Refusal::PolicyInvalid(checked.diagnostics)) };
    let expected = before.map_or(1, |before| before.epoch.saturating_add(1));
    if policy.epoch != expected {
        return Err(Refusal::Epoch { expected, found: policy.epoch });
    }
    let digest = before.map(Policy::digest);
    if policy.prev != digest {
        return Err(Refusal::Prev { expected: digest });
    }
    match before.and_then(|before| before.forgotten_by(&policy)) {
        Some(what) => Err(Refusal::Forgets(what)),
        None => Ok(policy),
    }
}

/// Who agrees to a policy that follows another one, when it is enough: by the old one and by the new one, with every new key
/// proven. What a key says for which `counts` is false is not heard.
pub(in crate::trust) fn agreed(
    old: &Policy,
    new: &Policy,
    statements: &Statements<'_>,
    counts: impl Fn(&TrustKey, &Policy, &Rule) -> bool,
) -> Result<BTreeSet<Name>, Refusal> {
    let step = Step { prev: old.digest, next: new.digest, epoch: new.epoch };
    let agrees = |body: &Body| *body == Body::Trust(step);
    let mut by = BTreeSet::new();
    let sides: [(&str, &Policy, &Rule); 2] = [("the old", old, &old.trust), ("the new", new, &new.trust)];
    for (whose, policy, rule) in sides {
        let people = statements.people(policy, rule, agrees, |key| counts(key, policy, rule));
        let needed = rule.threshold;
        if people.len() < needed as usize {
            return Err(Refusal::TrustThreshold { whose, needed, by: people.into_iter().collect(), step });
        }
        by.extend(people);
    }
    let known: BTreeSet<_> = old.keys().map(TrustKey::raw).collect();
    let added = new.keys().filter(|key| !known.contains(&key.raw()) && new.state(key) == KeyState::Good);
    let unproven: Vec<String> = added
        .filter(|key| !statements.proves(new, key, step))
        .map(|key| new.holder(key).map_or_else(|| key.name(), |(name, _)| format!("{name} {}", key.name())))
        .collect();
    if unproven.is_empty() { Ok(by) } else { Err(Refusal::NotProven { keys: unproven, step }) }
}
