//! Keys that one person revoked, or that their owners gave up.
//!
//! A revocation only takes away, so one person is enough, and works forward only: nothing that was verified before it was heard is
//! taken back by it. (What reaches back is a policy that says since when a key is compromised.) It is judged once, when it is heard,
//! under the newest policy that was verified.
//!
//! One stolen key must not take everything away. It revokes at most [`MOST_REVOKED`] keys of others, over all policies; and where
//! people agree to another policy, or to a rewritten history, a revocation counts only while those who are left, without whoever
//! revoked, are enough for it: so the others can always outvote the thief.

use std::collections::BTreeSet;

use schema::{digest::Digest, fleet::trust::PrincipalKind, name::Name};
use serde::{Deserialize, Serialize};

use super::{
    key::TrustKey,
    object::ObjectId,
    policy::{KeyState, Policy, Rule},
    spoken::Said,
    statement::{Body, FleetId},
};

/// Keys of others that one person revokes.
pub const MOST_REVOKED: usize = 3;

/// A revocation that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Revocation {
    /// The key that does not count any more.
    pub key: String,
    /// Whose it is.
    pub holder: Name,
    /// Who said so.
    pub by: Name,
    /// By which key.
    pub by_key: String,
    /// The statement.
    pub statement: Digest,
    /// The commit that was verified when it was heard: what comes behind it is denied.
    pub place: Option<ObjectId>,
    /// The epoch of the policy under which it was heard; 0 where that was not noted.
    #[serde(default)]
    pub epoch: u64,
}

/// The revocations that count, in the order in which they were heard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revocations(Vec<Revocation>);

impl Revocations {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Revocation> {
        self.0.iter()
    }

    /// The names of the keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|one| one.key.as_str())
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key does not count any more.
    #[must_use]
    pub fn denies(&self, key: &TrustKey) -> bool {
        !self.0.is_empty() && self.by(key).is_some()
    }

    /// The revocation of a key.
    #[must_use]
    pub fn by(&self, key: &TrustKey) -> Option<&Revocation> {
        let name = key.name();
        self.0.iter().find(|one| one.key == name)
    }

    /// Whether a key does not count where people agree under a rule to another policy, or to a rewritten history.
    #[must_use]
    pub fn denies_vote(&self, key: &TrustKey, policy: &Policy, rule: &Rule) -> bool {
        if !self.denies(key) {
            return false;
        }
        // Names of keys are digests: each is made once.
        let people = policy.eligible(rule).map(|(name, held)| {
            let good = held.keys.iter().filter(|key| policy.state(key) == KeyState::Good);
            (name, good.map(TrustKey::name).collect())
        });
        let people: Vec<(&Name, Vec<String>)> = people.collect();
        let mut gone: BTreeSet<&str> = BTreeSet::new();
        for one in &self.0 {
            let left = |without: Option<&Name>| {
                let stays = |key: &String| *key != one.key && !gone.contains(key.as_str());
                people.iter().filter(|(name, keys)| Some(*name) != without && keys.iter().any(stays)).count()
            };
            let needed = rule.threshold as usize;
            // A key that gives itself up is gone; of any other, also one of the same person, it may be a thief who says so.
            if one.by_key == one.key || left(Some(&one.by)) >= needed || (needed == 1 && left(None) >= 1) {
                gone.insert(&one.key);
            }
        }
        gone.contains(key.name().as_str())
    }

    /// Hears raw commits, and keeps those that are revocations which count under the newest policy that was verified; `place` is the
    /// last commit that was. Answers whether there was any.
    pub fn hear<'a>(
        &mut self,
        raw: impl IntoIterator<Item = &'a [u8]>,
        trust_domain: &str,
        fleet: FleetId,
        newest: &Policy,
        place: Option<ObjectId>,
    ) -> bool {
        let before = self.len();
        for said in raw.into_iter().filter_map(|raw| Said::of_fleet(raw, trust_domain, fleet)) {
            self.take(&said, newest, place);
        }
        self.len() > before
    }

    pub(super) fn take(&mut self, said: &Said<'_>, newest: &Policy, place: Option<ObjectId>) {
        let statement = &said.statement;
        let Body::Revoke { key, trust_epoch, .. } = &statement.body else { return };
        if *trust_epoch > newest.epoch() || self.0.iter().any(|one| one.key == *key) {
            return;
        }
        let Some(by) = said.key(newest).filter(|by| !self.denies(by)) else { return };
        let Some(target) = newest.keys().find(|held| held.name() == *key) else { return };
        let holder = |key| newest.holder(key).expect("a key of a policy has a holder");
        let ((name, principal), (owner, _)) = (holder(by), holder(target));
        if principal.kind != PrincipalKind::Human {
            return;
        }
        let of_others = self.0.iter().filter(|one| one.by == *name && one.holder != *name).count();
        let may = newest.revoke().is_some_and(|rule| rule.names(principal)) && of_others < MOST_REVOKED;
        if owner == name || may {
            let (holder, by_key, statement) = (owner.clone(), by.name(), statement.digest());
            let (by, epoch) = (name.clone(), newest.epoch());
            self.0.push(Revocation { key: key.clone(), holder, by, by_key, statement, place, epoch });
        }
    }

    /// Takes over one that was heard before.
    pub(super) fn recall(&mut self, one: Revocation) {
        self.0.push(one);
    }

    /// Forgets what a key said that a policy calls compromised, where `agreed` says that the policy stands without the key that it
    /// revoked: who was revoked does not undo it.
    pub(super) fn disarm(&mut self, policy: &Policy, agreed_without: impl Fn(&str) -> bool) {
        let lost: BTreeSet<String> = policy.compromised().map(|(key, _)| key.to_owned()).collect();
        self.0.retain(|one| !lost.contains(&one.by_key) || !agreed_without(&one.key));
    }
}
