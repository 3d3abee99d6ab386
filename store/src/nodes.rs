//! Nodes: one row per machine, its axes, its desired state and what it observed.
//!
//! [`lock`] first, decide, then change one axis per function. Functions that move a node for a person or a document also
//! move its `version`; what a session or a report writes does not, so that an optimistic change is not in conflict with a
//! heartbeat.

mod axes;
mod declare;
mod desired;
mod insert;
mod read;

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::{Generation, IdentityGeneration, Version},
    id::NodeId,
    inventory::InventorySection,
    name::Name,
    node::{
        Condition, ConditionStatus, Connectivity, NoScheduleReason, Power, ProvisionState, Role, Trust,
        provision::IllegalMove,
    },
    time::Timestamp,
};

use crate::DbError;

pub use axes::{
    adopt, bump_identity, change_no_schedule, delete, set_conditions, set_inventory_wanted, set_maintenance, set_power,
    set_provision, set_trust,
};
pub use declare::{Declared, DeclaredView, Place, awaiting_boot, declare, declared_view, places};
pub use desired::{
    Assignment, NewSpec, SpecError, SpecFrom, StoredSpec, assign, confirm_spec, find_spec, find_specs, observe,
    resign_spec, set_spec, set_targets,
};
pub use insert::{InsertError, NewNode, insert};
pub use read::{
    Filter, bucket, find, find_by_hardware_key, find_by_name, get, ids_in_shards, list, lock, names, of_pool,
};

/// One machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its id, for life.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Its site; `None` while it has no pool.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// The tenant that owns it; `None` for the platform's.
    pub owner_tenant: Option<String>,
    /// What it is to the platform.
    pub role: Role,
    /// Who controls it.
    pub trust: Trust,
    /// How the control plane reaches it.
    pub adapter: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A `node` document names it.
    pub declared: bool,
    /// SHA-256 over its normalised identifiers.
    pub hardware_key: Option<Digest>,
    /// At least two independent identifiers survived.
    pub hardware_key_trusted: bool,
    /// How far it is.
    pub provision: ProvisionState,
    /// Where it failed, while it is failed.
    pub failed_from: Option<ProvisionState>,
    /// Work on it failed, or a person stopped it.
    pub maintenance: bool,
    /// Why.
    pub maintenance_reason: Option<String>,
    /// Any hold exists.
    pub cordoned: bool,
    /// Whether it has power, as its BMC says.
    pub power: Power,
    /// Whether its session is there.
    pub connectivity: Connectivity,
    /// Since when.
    pub connectivity_since: Timestamp,
    /// Typed facts.
    pub conditions: Vec<Condition>,
    /// Every reason not to place work on it.
    pub no_schedule: Vec<NoScheduleReason>,
    /// Inventory sections that the node named and the database lacks; the gateway asks for them.
    pub inventory_wanted: Vec<InventorySection>,
    /// Counts its distinct desired states.
    pub generation: Generation,
    /// The highest generation of which every section ended, by its own signature.
    pub observed: Generation,
    /// The highest generation that it verified, persisted and attempted.
    pub applied: Generation,
    /// Counts the replacements of its identity.
    pub identity_generation: IdentityGeneration,
    /// Moves with every change a person or a document makes.
    pub version: Version,
    /// Its shard.
    pub shard: u16,
    /// The digest of its stored spec.
    pub spec_digest: Option<Digest>,
    /// When the stored spec was last signed.
    pub spec_signed_at: Option<Timestamp>,
    /// When the spec last changed.
    pub spec_changed_at: Option<Timestamp>,
    /// What it was last composed from.
    pub spec_from: Option<SpecFrom>,
    /// What it should be.
    pub target: Option<Digest>,
    /// The node document's own words that go with `target`, canonical JSON.
    pub target_overlay: String,
    /// What it was last assigned; its spec is composed from this.
    pub assigned: Option<Digest>,
    /// The words that go with `assigned`.
    pub assigned_overlay: String,
    /// The name that goes with `assigned`, while it is not its own: it was renamed and not assigned anew yet.
    pub assigned_name: Option<Name>,
    /// When it joined.
    pub created_at: Timestamp,
    /// When it was adopted.
    pub adopted_at: Option<Timestamp>,
}

impl Node {
    /// What the node is assigned, as a spec's origin; `None` before the first assignment.
    #[must_use]
    pub fn assignment(&self) -> Option<SpecFrom> {
        self.assigned.map(|target| SpecFrom { target, overlay: self.assigned_overlay.clone() })
    }

    /// Whether this condition holds; one that is not known does not.
    #[must_use]
    pub fn has_condition(&self, kind: &str) -> bool {
        self.conditions.iter().any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
    }

    /// Refuses when the caller read another version of the node.
    ///
    /// # Errors
    /// [`ChangeError::Conflict`].
    pub fn expect_version(&self, expected: Option<Version>) -> Result<(), ChangeError> {
        match expected {
            Some(expected) if expected != self.version => Err(ChangeError::Conflict { expected, found: self.version }),
            _ => Ok(()),
        }
    }
}

/// There is no such node.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No row.
    #[error("there is no node {0}")]
    Missing(String),
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Why a node was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No row.
    #[error("there is no node {0}")]
    Missing(NodeId),
    /// The node changed since it was read.
    #[error("the node is at version {found}, not {expected}")]
    Conflict {
        /// What the caller read.
        expected: Version,
        /// What is stored.
        found: Version,
    },
    /// The state table has no such move.
    #[error(transparent)]
    Illegal(#[from] IllegalMove),
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}
