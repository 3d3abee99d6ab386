//! The canonical bytes of a policy: every field behind its length, every set sorted, one text for one meaning.

use std::collections::BTreeSet;

use schema::{digest::Digest, fleet::trust::PrincipalKind, name::Name};

use super::{KeyState, Policy, Rule, Tier};
use crate::signed::push_field;

impl Policy {
    /// The bytes under the digest.
    pub(super) fn canonical(&self) -> Vec<u8> {
        let mut out = Canonical(Vec::new());
        out.number(self.epoch);
        out.field(self.prev.as_ref().map_or(&[][..], |digest| digest.as_bytes()));
        out.number(self.unbatched_destructive_per_hour.into());
        out.list(&self.principals, |out, (name, principal)| {
            out.field(name.as_bytes());
            out.field(match principal.kind {
                PrincipalKind::Human => b"human",
                PrincipalKind::Service => b"service",
                PrincipalKind::Forge => b"forge",
            });
            out.names(&principal.roles);
            out.names(&principal.groups);
            let keys: BTreeSet<Vec<u8>> = principal.keys.iter().map(|key| key.fields()).collect();
            out.list(&keys, |out, key| out.field(key));
        });
        out.list(&self.paths, |out, rule| {
            out.field(rule.pattern.as_bytes());
            out.names(&rule.roles);
            out.field(rule.changes.map(u32::to_be_bytes).as_ref().map_or(&[][..], |number| number));
        });
        out.list(&self.tiers, Canonical::tier);
        out.rule(&self.trust);
        for rule in [&self.change, &self.reseal, &self.revoke, &self.releases] {
            out.list(rule, Canonical::rule);
        }
        out.list(&self.breakglass, Canonical::tier);
        out.list(&self.revoked, |out, (key, state)| {
            out.field(key.as_bytes());
            match state {
                KeyState::Good => out.field(b"good"),
                KeyState::Retired => out.field(b"retired"),
                KeyState::Compromised { since } => {
                    out.field(b"compromised");
                    out.field(since.as_ref().map_or(&[][..], |commit| commit.as_bytes()));
                }
            }
        });
        out.0
    }

    pub(super) fn digest_of(&self) -> Digest {
        Digest::of([&b"bc/trust/v1\0"[..], &self.canonical()].concat())
    }
}

struct Canonical(Vec<u8>);

impl Canonical {
    fn field(&mut self, bytes: &[u8]) {
        push_field(&mut self.0, bytes);
    }

    fn number(&mut self, number: u64) {
        self.field(&number.to_be_bytes());
    }

    /// How many there are, then each. What is given is sorted, or has an order that means something.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, each: impl Fn(&mut Self, T)) {
        let items: Vec<T> = items.into_iter().collect();
        self.number(items.len() as u64);
        items.into_iter().for_each(|item| each(self, item));
    }

    fn names(&mut self, names: &BTreeSet<Name>) {
        self.list(names, |out, name| out.field(name.as_bytes()));
    }

    fn rule(&mut self, rule: &Rule) {
        self.names(&rule.roles);
        self.number(rule.threshold.into());
    }

    fn tier(&mut self, tier: &Tier) {
        self.field(tier.name.as_bytes());
        self.list(&tier.commands, |out, command| out.field(command.as_bytes()));
        self.rule(&tier.rule);
        self.list(&tier.groups, |out, (group, slots)| {
            out.field(group.as_bytes());
            out.number((*slots).into());
        });
        self.names(&tier.exclude);
        self.list(&tier.keys, |out, class| out.field(class.as_bytes()));
        self.number(tier.max_nodes.into());
        self.number(tier.max_ttl.to_std().as_secs());
    }
}
