//! The head of a batch: what one digest binds.

use std::collections::BTreeSet;

use schema::{
    digest::{Digest, Running},
    name::Name,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    signed::push_field,
    trust::{
        object::ObjectId,
        statement::{FleetId, Under},
    },
};

/// What people approve. Its canonical JSON is what is stored and sent; its digest is taken over fields behind their lengths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchHeader {
    /// The fleet's trust domain.
    pub trust_domain: String,
    /// The fleet.
    pub fleet: FleetId,
    /// The batch's name; used once and never again.
    pub name: Name,
    /// The tier of its heaviest kind.
    pub tier: Name,
    /// Who proposed it, when the document or the proposal says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer: Option<Name>,
    /// Whose approval does not count besides: the first-parent signers of the commits that added or changed its document.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded: BTreeSet<Name>,
    /// Nothing of it begins before. Whole seconds.
    pub not_before: Timestamp,
    /// Nothing of it begins after. Whole seconds.
    pub expires: Timestamp,
    /// The commit that introduced its text.
    pub plan_commit: ObjectId,
    /// That commit's tree.
    pub plan_tree: ObjectId,
    /// The policy under which it is approved.
    pub under: Under,
    /// Why.
    pub reason: String,
    /// Machines at a time.
    pub max_in_flight: u32,
    /// Failures that it tolerates.
    pub max_failures: u32,
    /// The label whose values are failure domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
    /// How many leaves it has.
    pub leaves: u32,
    /// The root over them.
    pub root: Digest,
}

impl BatchHeader {
    /// What approvals name: `SHA-256("bc/batch/v1\0" ‖ fields)`, each field behind its length.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        let mut field = |field: &[u8]| push_field(&mut bytes, field);
        field(self.trust_domain.as_bytes());
        field(self.fleet.to_string().as_bytes());
        field(self.name.as_bytes());
        field(self.tier.as_bytes());
        field(self.proposer.as_ref().map_or("", Name::as_str).as_bytes());
        field(&(self.excluded.len() as u64).to_be_bytes());
        self.excluded.iter().for_each(|name| field(name.as_bytes()));
        field(self.not_before.to_string().as_bytes());
        field(self.expires.to_string().as_bytes());
        field(self.plan_commit.as_bytes());
        field(self.plan_tree.as_bytes());
        field(&self.under.epoch.to_be_bytes());
        field(self.under.digest.as_bytes());
        field(self.reason.as_bytes());
        field(&self.max_in_flight.to_be_bytes());
        field(&self.max_failures.to_be_bytes());
        field(self.spread.as_deref().unwrap_or_default().as_bytes());
        field(&self.leaves.to_be_bytes());
        field(self.root.as_bytes());
        let mut running = Running::default();
        running.add(b"bc/batch/v1\0");
        running.add(&bytes);
        running.finish()
    }

    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("a header holds no fractions")
    }

    /// Reads canonical bytes; nothing else is a header.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|header: &Self| header.to_bytes() == bytes)
    }

    /// Everybody whose approval does not count.
    pub fn does_not_count(&self) -> impl Iterator<Item = &Name> {
        self.excluded.iter().chain(&self.proposer)
    }
}
