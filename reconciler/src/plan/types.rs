//! What a plan says. Everything here serialises, with words that do not change: it is stored, sent and compared.

use schema::{digest::Digest, id::NodeId, name::Name, object::ObjectRef, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diff::FieldChange;

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
    /// Whether people's signatures vouch for the commit.
    pub verification: Verification,
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
    /// What is worth knowing before this goes.
    pub warnings: Vec<Warning>,
}

/// Whether people's signatures vouch for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verification {
    /// The repository has no trust policy.
    Unverified,
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
    /// For a retained one, the line that lets it go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
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

/// How a pool's changes travel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolPlan {
    /// The pool.
    pub pool: Name,
    /// The strategy; `immediate`.
    pub strategy: String,
    /// The rollout that says so; absent when neither the pool nor the fleet names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Name>,
    /// Its machines.
    pub machines: usize,
    /// Those that move.
    pub moves: usize,
}

/// Why a machine moves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum MoveReason {
    /// What its pool's hosts should be changes.
    Target,
    /// It changes its pool.
    Membership {
        /// The pool it leaves.
        from: Option<Name>,
        /// The pool it comes to.
        to: Option<Name>,
    },
    /// It gets another profile of its own, or none.
    Profile {
        /// The profile of its own before.
        from: Option<Name>,
        /// The profile of its own after.
        to: Option<Name>,
    },
    /// Its own words (labels) change.
    Labels,
    /// It is told for the first time what it should be.
    First,
    /// It is behind what it should be already.
    Behind,
    /// A document names it now, or does so no more.
    Declaration {
        /// Whether a document names it afterwards.
        declared: bool,
    },
}

/// A machine that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeMove {
    /// Its name.
    pub node: Name,
    /// Its id; absent in an offline plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<NodeId>,
    /// The pool it is in afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// The profile it has afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// Why, every reason.
    pub why: Vec<MoveReason>,
    /// What it is assigned now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// What it is assigned afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
}

/// A cordon that begins, changes or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldChange {
    /// The machine.
    pub node: Name,
    /// `false` when the cordon ends.
    pub holds: bool,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// Where it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// Something that does not go with the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// What is held.
    pub objects: Vec<ObjectRef>,
    /// What it waits for.
    pub wait: Wait,
}

/// What something waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "for")]
pub enum Wait {
    /// One revision removes more objects than `prune { max-objects }` allows.
    PruneObjects {
        /// How many may go.
        limit: u32,
        /// How many should go.
        asked: usize,
    },
    /// One revision removes more machines' documents than `prune { max-nodes-percent }` allows.
    PruneNodes {
        /// The share that may go, in percent.
        limit: u8,
        /// How many should go.
        asked: usize,
        /// How many machines there are.
        of: usize,
    },
    /// Something that stays still needs it.
    Dependents {
        /// What needs it: objects, or machines as `node/NAME`. At most ten are named.
        needed_by: Vec<ObjectRef>,
        /// How many there are.
        count: usize,
    },
}

impl Wait {
    /// Every gate's stored word.
    pub const GATES: [&'static str; 2] = ["prune", "dependents"];

    /// The gate's stored word.
    #[must_use]
    pub const fn gate(&self) -> &'static str {
        match self {
            Self::PruneObjects { .. } | Self::PruneNodes { .. } => "prune",
            Self::Dependents { .. } => "dependents",
        }
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PruneObjects { limit, asked } => {
                write!(
                    f,
                    "{asked} objects would go and fleet.prune.max-objects allows {limit}; remove fewer at a time or raise the limit"
                )
            }
            Self::PruneNodes { limit, asked, of } => {
                write!(
                    f,
                    "{asked} of {of} machines would lose their document and fleet.prune.max-nodes-percent allows {limit}%; remove fewer at a time or raise the limit"
                )
            }
            Self::Dependents { needed_by, count } => {
                let names: Vec<String> = needed_by.iter().take(3).map(ToString::to_string).collect();
                let more = count.saturating_sub(names.len());
                write!(f, "{} still need{} it", names.join(", "), if *count == 1 { "s" } else { "" })?;
                if more > 0 { write!(f, " (and {more} more)") } else { Ok(()) }
            }
        }
    }
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
}
