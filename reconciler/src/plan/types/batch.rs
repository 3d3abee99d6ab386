//! Batches in a plan.

use schema::{name::Name, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Change;

/// Destructive commands that this commit asks for, or takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanBatch {
    /// Its name.
    pub name: Name,
    /// What becomes of its document. A changed one needs every approval anew; of one that goes, what has not begun never does.
    pub change: Change,
    /// What is done.
    pub command: String,
    /// Why.
    pub reason: String,
    /// Its machines, by name.
    pub nodes: Vec<Name>,
    /// The same by pool.
    pub pools: Vec<BatchPool>,
    /// Machines that it boots and that get what waits for a boot on them besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub staged: Vec<Name>,
    /// Machines of it that are cordoned: they are waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cordoned: Vec<Name>,
    /// When it may begin; absent: as soon as it is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When nothing of it begins any more.
    pub expires: Timestamp,
    /// Machines at a time.
    pub max_in_flight: u32,
    /// Failures that it tolerates.
    pub max_failures: u32,
    /// The label whose values are failure domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<String>,
}

/// How much of a pool a batch disturbs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchPool {
    /// The pool; absent for machines without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// Its machines in the batch.
    pub nodes: usize,
    /// All its machines.
    pub machines: usize,
    /// How many it allows to be disturbed at once, as its document says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
}
