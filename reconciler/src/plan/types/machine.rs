//! Pools and machines in a plan.

use schema::{digest::Digest, effect::EffectClass, id::NodeId, name::Name, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Held;

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
    /// Those of them that are held.
    #[serde(default)]
    pub held: usize,
    /// The hardest effect on one of them.
    #[serde(default = "none")]
    pub effect: EffectClass,
    /// The order in which they go; absent when they go all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<Vec<Wave>>,
}

/// Machines that go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// Its place in the order, from 1.
    pub index: usize,
    /// Its machines; at most fifty are named.
    pub machines: Vec<Name>,
    /// How many there are.
    pub count: usize,
    /// The hardest effect on one of them.
    pub effect: EffectClass,
    /// How long it is watched before the next one, as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<String>,
    /// What has to be so before the next one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// Before this time it does not begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub earliest: Option<Timestamp>,
}

const fn none() -> EffectClass {
    EffectClass::None
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
    /// It comes to another site, with its pool or to another one.
    Site {
        /// The site it leaves.
        from: Option<Name>,
        /// The site it comes to.
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
    /// How hard that is for the machine.
    #[serde(default = "none")]
    pub effect: EffectClass,
    /// Everything that it does to the machine: an index into the plan's `effects`; absent when nothing is done, or when that
    /// cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<u32>,
    /// The digest of what the machine is told now; absent when it was told nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_spec: Option<Digest>,
    /// The digest of what it is told afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_spec: Option<Digest>,
    /// It waits for a boot already, for something that was staged before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_boot: bool,
    /// Why it does not go yet; every reason. One that goes has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
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
