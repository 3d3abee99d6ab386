//! Who says what: statements of one fleet, and the different people among those who signed them.

use std::collections::{BTreeMap, BTreeSet};

use schema::{fleet::trust::PrincipalKind, name::Name};

use super::{MOST_STATEMENTS, ObjectFormat};
use crate::trust::{
    commit::Commit,
    key::TrustKey,
    object::ObjectId,
    policy::{KeyState, Policy, Rule},
    signature::signer,
    statement::{Body, FleetId, Statement, Step},
};

/// A statement and the commit that carries it.
#[derive(Debug, Clone)]
pub(super) struct Spoken<'a> {
    commit: Commit<'a>,
    statement: Statement,
}

impl<'a> Spoken<'a> {
    /// Reads a commit as a statement for a fleet. What is none, or for another fleet, is nothing.
    pub(super) fn read(format: ObjectFormat, raw: &'a [u8], trust_domain: &str, fleet: FleetId) -> Option<Self> {
        let commit = Commit::split(format, raw).ok()?;
        let statement = Statement::parse(&commit).ok()?;
        let ours = statement.trust_domain == trust_domain && statement.fleet == fleet;
        ours.then_some(Self { commit, statement })
    }

    /// The key of a policy that signed it, when it is the key of whoever it says to be from.
    fn key<'p>(&self, policy: &'p Policy) -> Option<&'p TrustKey> {
        let key = signer(&self.commit, policy.keys()).ok()?;
        let (holder, _) = policy.holder(key)?;
        (*holder == self.statement.principal && policy.state(key) == KeyState::Good).then_some(key)
    }
}

/// All statements of one fleet that were found. One may be wrapped in many commits, and only one of them be signed: whoever
/// counts, counts people.
#[derive(Debug, Clone)]
pub(super) struct Statements<'a>(Vec<Spoken<'a>>);

impl<'a> Statements<'a> {
    pub(super) fn of(format: ObjectFormat, raw: &'a [Vec<u8>], trust_domain: &str, fleet: FleetId) -> Self {
        let read = |raw: &'a Vec<u8>| Spoken::read(format, raw, trust_domain, fleet);
        Self(raw.iter().take(MOST_STATEMENTS).filter_map(read).collect())
    }

    /// These and one more.
    pub(super) fn with(&self, more: Option<&Spoken<'a>>) -> Self {
        Self(self.0.iter().chain(more).cloned().collect())
    }

    /// The different people who say it by a key that still counts, of those whom a rule of a policy names.
    pub(super) fn people(
        &self,
        policy: &Policy,
        rule: &Rule,
        says: impl Fn(&Body) -> bool,
        counts: impl Fn(&TrustKey) -> bool,
    ) -> BTreeSet<Name> {
        let may = |spoken: &&Spoken<'a>| {
            let principal = policy.principals().get(&spoken.statement.principal);
            principal.is_some_and(|principal| principal.kind == PrincipalKind::Human && rule.names(principal))
        };
        let said = self.0.iter().filter(|spoken| says(&spoken.statement.body)).filter(may);
        let signed = said.filter(|spoken| spoken.key(policy).is_some_and(&counts));
        signed.map(|spoken| spoken.statement.principal.clone()).collect()
    }

    /// Whether somebody has shown to hold a key that a policy adds.
    pub(super) fn proves(&self, policy: &Policy, key: &TrustKey, step: Step) -> bool {
        let said = self.0.iter().filter(|spoken| spoken.statement.body == Body::Possess(step));
        let mut signed = said.filter_map(|spoken| spoken.key(policy));
        signed.any(|by| by == key)
    }

    /// The keys that people who may have revoked, each under the policy that the statement names. A key that the newest policy
    /// calls compromised says nothing of others any more: who has it would revoke them all.
    pub(super) fn revocations<'p>(
        &'p self,
        policies: &'p BTreeMap<u64, Policy>,
    ) -> impl Iterator<Item = (String, Option<ObjectId>)> + 'p {
        let newest = policies.values().next_back();
        let lost = move |key: &TrustKey| {
            newest.is_some_and(|newest| matches!(newest.state(key), KeyState::Compromised { .. }))
        };
        self.0.iter().filter_map(move |spoken| {
            let Body::Revoke { key, last_good, trust_epoch, .. } = &spoken.statement.body else { return None };
            let policy = policies.get(trust_epoch)?;
            let by = spoken.key(policy)?;
            let (_, principal) = policy.holder(by)?;
            let may =
                policy.revoke().is_some_and(|rule| rule.names(principal)) && principal.kind == PrincipalKind::Human;
            // Whoever holds a key may always give it up.
            let own = principal.keys.iter().any(|held| held.name() == *key);
            let counts = if lost(by) { by.name() == *key } else { may || own };
            counts.then(|| (key.clone(), Some(*last_good)))
        })
    }
}
