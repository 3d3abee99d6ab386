//! What a plan says. Everything here serialises, with words that do not change: it is stored, sent and compared.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    effect::{EffectClass, Effects},
    name::Name,
    object::ObjectRef,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diff::FieldChange;

mod batch;
mod gate;
mod impact;
mod input;
mod machine;

pub use batch::{BatchPool, PlanBatch};
pub(super) use gate::share_of;
pub use gate::{Bind, Gate, GateWord, Held, PlanBrake, Wait};
pub use impact::{CapacityImpact, ReservationImpact, TenantImpact};
pub use input::{Inputs, ObservedFrom};
pub use machine::{HoldChange, MoveReason, NodeMove, PoolPlan, Wave};

/// A whole plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The version of this document; 1.
    pub format: u32,
    /// The commit in force; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The commit that the plan leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What the plan was made of; its digest is the plan's.
    #[serde(default)]
    pub inputs: Inputs,
    /// Whether people's signatures vouch for the commit.
    pub verification: Verification,
    /// What was concluded about signatures, for people, by whoever made the plan; absent where nothing more is to be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signatures: Option<String>,
    /// What there is, in numbers.
    pub counts: Counts,
    /// Every object that changes, is retained or is held, by address.
    pub objects: Vec<ObjectChange>,
    /// What hosts should be, where that changes, by pool and profile.
    pub targets: Vec<TargetChange>,
    /// Every declared pool: how its changes travel and how many machines move.
    pub pools: Vec<PoolPlan>,
    /// Every machine that moves, by name.
    pub nodes: Vec<NodeMove>,
    /// Cordons that begin, change or end, by machine.
    pub holds: Vec<HoldChange>,
    /// What does not go with the rest, and what it waits for.
    pub gates: Vec<Gate>,
    /// Batches of destructive commands that come, change or go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<PlanBatch>,
    /// Objects that keep their identity under another name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedChange>,
    /// What a change does to a machine, each distinct list once; machines name theirs by its index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effects>,
    /// Machines that move, by how hard it is for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<EffectClass, usize>,
    /// Freezes, pins and suspensions, whether they hold now or later, and what goes on when they end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brakes: Vec<PlanBrake>,
    /// Whether harder effects go only as they were shown; absent when the fleet in force does not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind>,
    /// Bookings that the plan touches; absent where nobody books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<ReservationImpact>>,
    /// Tenants that it touches; absent where nobody books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<TenantImpact>>,
    /// What can be booked before and after, per pool; absent where nobody books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Vec<CapacityImpact>>,
    /// What is worth knowing before this goes.
    pub warnings: Vec<Warning>,
}

/// An object that keeps its identity under another name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedChange {
    /// What it was called.
    pub from: ObjectRef,
    /// What it is called afterwards.
    pub to: ObjectRef,
    /// The machines that come along: those of a pool or site, those that have a profile, or the machine itself.
    pub machines: usize,
    /// Where that is written, as `file:line`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// Whether people's signatures vouch for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verification {
    /// No control plane verified it: the fleet is pinned to no anchor, there is no history to look at, or the plan was made offline.
    Unverified,
    /// The trust policy in force grants it.
    Verified,
}

/// A plan in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Objects that are new.
    pub create: usize,
    /// Objects whose document changes.
    pub update: usize,
    /// Retained objects whose document is back.
    pub restore: usize,
    /// Objects that go.
    pub remove: usize,
    /// Objects whose document is gone without `removed`.
    pub retain: usize,
    /// Objects whose removal is held.
    pub held: usize,
    /// Objects that stay as they are.
    pub unchanged: usize,
    /// Machines that were looked at.
    pub machines: usize,
    /// Machines that move.
    pub moves: usize,
    /// Machines that no document names.
    pub undeclared: usize,
    /// Declared machines that have not joined.
    pub awaited: usize,
    /// Machines that should move and are held.
    #[serde(default)]
    pub waiting: usize,
    /// Objects that get another name.
    #[serde(default)]
    pub moved: usize,
    /// Machines that wait for a boot already, whatever this plan does; absent when that is not known, as offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaiting_boot: Option<usize>,
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is new.
    Create,
    /// Its document changes.
    Update,
    /// It was retained, and its document is back.
    Restore,
    /// It goes.
    Remove,
    /// Its document is gone without `removed`: the last text stays in force.
    Retain,
    /// It should go, and a gate holds that.
    Hold,
}

/// An object that does not simply stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    /// Its address.
    pub object: ObjectRef,
    /// What becomes of it.
    pub change: Change,
    /// Where it is written; for one that goes, where that is said; for a retained one, where it was.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// For an update, what differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// For one that goes or is held, why it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a retained one, the line that lets it go, or that says under which name it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
    /// For a retained one, a new object that is like it: probably the same under another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_to: Option<ObjectRef>,
}

/// What the hosts of a pool under one profile should be, when that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetChange {
    /// The pool.
    pub pool: Name,
    /// The profile.
    pub profile: Name,
    /// The digest in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The digest that comes.
    pub after: Digest,
    /// What differs on a host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// Something worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// What it is about.
    pub object: ObjectRef,
    /// What to know.
    pub message: String,
    /// Where, as `file:line`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// `check` says it of these files, whatever changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub note: bool,
}
