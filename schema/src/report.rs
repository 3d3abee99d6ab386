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
    /// What something else than the daemon changed, by path. Absent when there is nothing to say, so that a control plane
    /// that does not know the word can read the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftEntry>,
    /// The version of the trust bundle that the node believes. Absent unless the control plane said that it reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_version: Option<u64>,
    /// The trust policy that the node believes. Absent unless the control plane said that it reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyHeld>,
    /// The node refuses a command that is for another journal. Absent unless the control plane said that it reads it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub binds: bool,
}

/// The trust policy that a node believes: whom it asks before it does harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyHeld {
    /// Its epoch; 0 where there is none.
    pub epoch: u64,
    /// Its digest; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Why it does not take the one that was brought last; empty when it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refused: String,
}

words! {
    /// What is done about a change that nobody asked for.
    DriftMode {
        /// It is put right, and reported.
        Enforce = "enforce",
        /// It is left alone, and reported.
        Warn = "warn",
        /// It is left alone, and reported so that the fleet repository can take it over.
        Adopt = "adopt",
    }
}

words! {
    /// What kind of change it is.
    DriftKind {
        /// The content, or what is at the place at all, is another.
        Changed = "changed",
        /// It is gone.
        Removed = "removed",
        /// Owner, group or permission bits.
        Metadata = "metadata",
        /// A value that the kernel or systemd holds.
        Value = "value",
    }
}

words! {
    /// When it happened, as far as the daemon can know. Who did it, it cannot.
    DriftCause {
        /// Between two looks of a daemon that was running.
        WhileRunning = "while-running",
        /// While no daemon ran, in the same boot.
        WhileStopped = "while-stopped",
        /// It was there at the first look after a boot: something set it while the machine started, or before.
        AfterBoot = "after-boot",
        /// The daemon has no word of its last look.
        Unknown = "unknown",
    }
}

/// One field of the machine that something else than the daemon changed after it had been as desired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriftEntry {
    /// The field, as `explain` names it: `files./etc/motd.content`, `sysctl.vm.swappiness`.
    pub path: String,
    /// What is done about it.
    pub mode: DriftMode,
    /// What kind of change it is.
    pub kind: DriftKind,
    /// When it happened.
    pub cause: DriftCause,
    /// What was found. Absent when it is no text, is too long, or is not for everybody on that machine to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// The digest of what was found; absent when nothing is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_digest: Option<Digest>,
    /// Its length in bytes; absent when nothing is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_bytes: Option<u64>,
    /// The beginning of what is desired, for people; absent when it is not for everybody to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<String>,
    /// When the field was first found changed; the beginning of a row of corrections.
    #[schemars(with = "String")]
    pub first_seen: Timestamp,
    /// When a change of it was last found. Looking again at one that was left alone does not count.
    #[schemars(with = "String")]
    pub last_seen: Timestamp,
    /// Whether it is as desired again, by the daemon's hand.
    pub corrected: bool,
    /// How many changes were found.
    pub times: u32,
}

/// The most entries that a report has.
pub const MAX_DRIFT: usize = 100;
/// The longest observed value that is reported, in bytes.
pub const MAX_DRIFT_VALUE: usize = 64 * 1024;
/// The most that all entries of a report take, in bytes of their JSON.
pub const MAX_DRIFT_BYTES: usize = 256 * 1024;
/// The word by which a gateway says that its control plane reads [`StatusReport::drift`].
pub const DRIFT_CAPABILITY: &str = "drift";
/// The word by which a gateway says that its control plane reads [`StatusReport::trust_version`].
pub const TRUST_CAPABILITY: &str = "trust";
/// The word by which a gateway says that its control plane reads [`StatusReport::policy`].
pub const POLICY_CAPABILITY: &str = "policy";
/// The word by which a gateway says that its control plane reads [`StatusReport::binds`].
pub const BINDS_CAPABILITY: &str = "binds";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_drift_reads_and_writes_as_before_there_was_any() {
        let text = r#"{"applied":3,"at":"2026-03-01T12:00:00Z","bootId":"boot_0000000000e008000000000000","conditions":[],"journalId":"journal_0000000000e008000000000000","nodeId":"node_0000000000e008000000000000","observed":3,"sections":{},"seq":1}"#;
        let report: StatusReport = serde_json::from_str(text).expect("an old report");
        assert!(report.drift.is_empty());
        assert_eq!(crate::canonical::to_vec(&report).expect("serialises"), text.as_bytes());
    }
}
