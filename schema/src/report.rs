//! What a node says about itself, in canonical bytes that it signs with its own key.
//!
//! The gateway passes these bytes on as they are; the `node` controller checks the signature and only then believes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    generation::Generation,
    id::{BootId, JournalId, NodeId},
    inventory::InventorySection,
    node::{Condition, words},
    spec::Section,
    time::Timestamp,
};

words! {
    /// How a section of the spec ended.
    SectionState {
        /// The host is as the section says, or the rest is staged for a boot.
        Converged = "converged",
        /// It cannot be, and trying again will not help; the reason says why.
        Failed = "failed",
    }
}

words! {
    /// The kinds of node-signed reports.
    ReportKind {
        /// Generations, sections and conditions.
        Status = "status",
        /// Hardware and operating system.
        Inventory = "inventory",
    }
}

/// How one section ended at one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SectionStatus {
    /// Digest of the section that was attempted.
    pub digest: Digest,
    /// How it ended.
    pub state: SectionState,
    /// Why it failed, for people; empty when converged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Generations, sections and conditions of one node. The highest `seq` of a journal is the newest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusReport {
    /// Who says it.
    pub node_id: NodeId,
    /// The life of the journal that counts `seq`.
    pub journal_id: JournalId,
    /// The boot that it was said in.
    pub boot_id: BootId,
    /// Counts this journal's reports from 1.
    pub seq: u64,
    /// When, by the node's clock corrected with signed server time.
    pub at: Timestamp,
    /// The latest spec that was verified, persisted and attempted.
    pub applied: Generation,
    /// The latest spec of which every section has ended.
    pub observed: Generation,
    /// How each section ended.
    pub sections: BTreeMap<Section, SectionStatus>,
    /// The node's own conditions.
    pub conditions: Vec<Condition>,
}

/// Changed sections of a node's inventory, with the digests of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InventoryReport {
    /// Who says it.
    pub node_id: NodeId,
    /// The life of the journal that counts `seq`.
    pub journal_id: JournalId,
    /// Counts this journal's reports from 1.
    pub seq: u64,
    /// When, by the node's clock corrected with signed server time.
    pub at: Timestamp,
    /// The machine is described by a file and not real.
    pub described: bool,
    /// The digest of every section's canonical document. A section that could not be read is absent.
    pub digests: BTreeMap<InventorySection, Digest>,
    /// The documents that changed since the control plane last had them.
    pub sections: BTreeMap<InventorySection, serde_json::Value>,
}
