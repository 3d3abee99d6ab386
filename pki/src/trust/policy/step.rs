//! From one policy to the next: what agrees to it, and who proves to hold its keys. Needs no repository, so that a node judges the
//! chain of policies as the control plane does.

use std::collections::BTreeSet;

use schema::{digest::Digest, fleet::trust::Unknown, name::Name};

use super::{KeyState, Policy, Rule, read};
use crate::trust::{
    key::TrustKey,
    revoked::Revocations,
    spoken::Statements,
    statement::{Body, FleetId, MAX_STATEMENT_BYTES, Step},
    walk::Refusal,
};

/// The largest policy that comes into force: machines keep all of them.
pub const MAX_BYTES: usize = 512 << 10;
/// The most statements that agree to one and prove its keys.
pub const MAX_STATEMENTS: usize = 128;

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
/// `revoked` the keys that were revoked before, of which a policy that follows takes back what a key said that it calls compromised.
///
/// The control plane and every machine come to the same policies because this is all that either of them asks.
///
/// # Errors
/// With the first reason against it. Then nothing is taken back.
pub fn step(
    old: &Policy,
    next: &[u8],
    statements: &[Vec<u8>],
    trust_domain: &str,
    fleet: FleetId,
    revoked: &mut Revocations,
) -> Result<Policy, Refusal> {
    let new = follows(next, Some(old), Unknown::Kept)?;
    if statements.len() > MAX_STATEMENTS || statements.iter().any(|raw| raw.len() > MAX_STATEMENT_BYTES) {
        return Err(Refusal::TooLarge);
    }
    let statements = Statements::read(statements.iter().map(Vec::as_slice), trust_domain, fleet);
    let before = revoked.clone();
    let without = |gone: Option<&str>| {
        let counts = |key: &TrustKey, policy: &Policy, rule: &Rule| {
            gone.is_none_or(|gone| key.name() != gone) && !before.denies_vote(key, policy, rule)
        };
        agreed(old, &new, &statements, counts)
    };
    without(None)?;
    revoked.disarm(&new, |key| without(Some(key)).is_ok());
    Ok(new)
}

/// A policy that has its place behind another one, whoever agrees to it.
pub(in crate::trust) fn follows(bytes: &[u8], before: Option<&Policy>, unknown: Unknown) -> Result<Policy, Refusal> {
    if bytes.len() > MAX_BYTES {
        return Err(Refusal::TooLarge);
    }
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
    let unproven: Vec<String> = added(old, new)
        .filter(|key| !statements.proves(new, key, step))
        .map(|key| new.holder(key).map_or_else(|| key.name(), |(name, _)| format!("{name} {}", key.name())))
        .collect();
    if unproven.is_empty() { Ok(by) } else { Err(Refusal::NotProven { keys: unproven, step }) }
}

/// The keys that a policy adds to another one, which somebody has to hold.
pub(in crate::trust) fn added<'p>(old: &Policy, new: &'p Policy) -> impl Iterator<Item = &'p TrustKey> {
    let known: BTreeSet<_> = old.keys().map(TrustKey::raw).collect();
    new.keys().filter(move |key| !known.contains(&key.raw()) && new.state(key) == KeyState::Good)
}
