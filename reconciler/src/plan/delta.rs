//! The rows that carry a plan out, in the words of the database.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    id::NodeId,
    name::Name,
    node::{Hold, PoolClass, Role},
    object::ObjectRef,
    time::Timestamp,
};

use super::GateWord;

/// Everything that `apply` writes, beside the revision itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Objects that are new, changed, moved in their file, retained or removed.
    pub objects: Vec<ObjectRow>,
    /// Host templates that are new, by digest.
    pub targets: BTreeMap<Digest, TargetRow>,
    /// Pools that are new or changed.
    pub pools: Vec<PoolRow>,
    /// Pools that go.
    pub removed_pools: Vec<Name>,
    /// Machines whose row changes.
    pub nodes: Vec<NodeRow>,
    /// Objects, pools and machines that get another name, old and new; carried out before the rest, in this order, as one
    /// step: names may be swapped.
    pub moved: Vec<(ObjectRef, ObjectRef)>,
    /// Everything that a gate holds; the whole set, not a difference.
    pub holds: Vec<HoldRow>,
    /// Whether `holds` differs from what is stored.
    pub holds_change: bool,
    /// What the commit is held to when it is planned again; stored with it, and no change by itself.
    pub policy: Option<serde_json::Value>,
    /// When a freeze, a pin or a suspension begins or ends next, so that the plan changes by itself.
    pub next_edge: Option<Timestamp>,
}

impl Delta {
    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.pools.is_empty()
            && self.removed_pools.is_empty()
            && self.nodes.is_empty()
            && self.moved.is_empty()
            && !self.holds_change
    }
}

/// Whether an object is in force, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectStanding {
    /// A document says so.
    Declared,
    /// The document is gone; the last text stays in force.
    Retained,
    /// It went.
    Removed,
}

/// An object as it is afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectRow {
    /// Its address.
    pub object: ObjectRef,
    /// The digest of its document.
    pub digest: Digest,
    /// Its canonical document; for one that is retained or went, the last one.
    pub doc: String,
    /// Where it is written, or was.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// What it is afterwards.
    pub standing: ObjectStanding,
}

/// A host template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRow {
    /// The pool.
    pub pool: Name,
    /// The profile.
    pub profile: Name,
    /// The canonical document.
    pub doc: String,
}

/// A pool as it is afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolRow {
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Name,
    /// What its machines are booked as.
    pub class: PoolClass,
    /// Its document.
    pub policy: serde_json::Value,
    /// What its hosts should be.
    pub target: Digest,
    /// The same per profile, for the pool's own and for those that declared machines have instead.
    pub profile_targets: BTreeMap<Name, Digest>,
    /// Whether its document changes, and not only what it refers to.
    pub document_changes: bool,
}

/// A machine as it is afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The machine.
    pub id: NodeId,
    /// Its site.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// What it is to the platform.
    pub role: Role,
    /// A document names it.
    pub declared: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it should be.
    pub target: Option<Digest>,
    /// Its own words that go with `target`, canonical JSON.
    pub overlay: String,
    /// Whether it is assigned that at once.
    pub assign: bool,
    /// Its cordon by document; `None` lifts it.
    pub hold: Option<Hold>,
    /// Whether `hold` differs from what is stored.
    pub hold_changes: bool,
}

/// Something that a gate holds: a removal, or the machines that one gate keeps from moving.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldRow {
    /// What is held: the object that should go, or what holds machines (`freeze/year-end`, `pool/h100`).
    pub subject: ObjectRef,
    /// The gate's word.
    pub gate: GateWord,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    /// Where it is written, as `file:line`.
    pub place: Option<String>,
}
