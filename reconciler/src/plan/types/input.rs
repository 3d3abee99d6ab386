//! What a plan was made of.

use schema::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the facts came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObservedFrom {
    /// Another tree, taken to be in force.
    #[default]
    Offline,
    /// The control plane.
    Live,
}

/// Everything that decides what a plan says. Commit ids are not among it: the merge of the same trees has the same plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// Where the facts came from.
    pub observed: ObservedFrom,
    /// The files in force; absent when nothing is, or when they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_tree: Option<Digest>,
    /// The files that the plan leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Digest>,
    /// The limits and the binding in force.
    pub policy: Digest,
    /// What rendered and classified.
    pub renderer: String,
    /// The objects, pools, machines and brakes that were looked at.
    pub facts: Digest,
}

impl Default for Inputs {
    fn default() -> Self {
        Self {
            observed: ObservedFrom::default(),
            base_tree: None,
            tree: None,
            policy: Digest::of([]),
            renderer: String::new(),
            facts: Digest::of([]),
        }
    }
}
