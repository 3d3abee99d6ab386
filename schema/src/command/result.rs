//! What each kind answers when it ran. A value that could not be read is absent, never zero.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::payload::GpuName;
use crate::{digest::Digest, id::BootId, inventory::InventorySection, node::words};

/// Result of `inventory.refresh`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InventoryRefreshed {
    /// The digest of every section that could be read.
    pub digests: BTreeMap<InventorySection, Digest>,
    /// The sections that were sent whether they had changed or not. Those that had changed are sent in any case.
    pub sent: Vec<InventorySection>,
    /// The sections that could not be read, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<InventorySection, String>,
    /// Whether the PCI bus was looked at again.
    pub rescanned: bool,
}

words! {
    /// How a check came out.
    CheckStatus {
        /// As it should be.
        Pass = "pass",
        /// Not as it should be.
        Fail = "fail",
        /// It could not be made, or did not answer in time.
        Unknown = "unknown",
        /// The hardware has no such thing to check.
        NotSupported = "not-supported",
    }
}

/// One check of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// What was checked, such as `row-remap.pending`.
    pub name: String,
    /// Of which GPU; absent: of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// How it came out.
    pub status: CheckStatus,
    /// Why it did not pass; never absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Result of `diag.nvml` and `diag.dcgm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Diagnosis {
    /// Every check passed, or had nothing to check.
    pub passed: bool,
    /// Who answered: `nvml`, `nvidia-smi`, `described`, `dcgmi`; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The driver's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Each check.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// A diagnosis of these checks.
    #[must_use]
    pub fn of(source: Option<String>, driver: Option<String>, checks: Vec<Check>) -> Self {
        let passed = checks.iter().all(|check| matches!(check.status, CheckStatus::Pass | CheckStatus::NotSupported));
        Self { passed, source, driver, checks }
    }

    /// Whether any check came out so.
    #[must_use]
    pub fn any(&self, status: CheckStatus) -> bool {
        self.checks.iter().any(|check| check.status == status)
    }
}

/// One part of a bundle of logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogPart {
    /// Its name in the bundle.
    pub name: String,
    /// How much of it is in the bundle, in bytes.
    pub bytes: u64,
    /// How much of it, the oldest, was left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Why it is not whole, or not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Result of `logs.collect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogBundle {
    /// How long the bundle is.
    pub bytes: u64,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The oldest was left out to stay within the limit.
    pub truncated: bool,
    /// What is in it.
    pub parts: Vec<LogPart>,
    /// Where it is on the node; absent when it was uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// It was uploaded.
    pub uploaded: bool,
    /// What it is called where it was uploaded to, `s3://bucket/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// Result of `node.reboot`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rebooted {
    /// The node came back with another boot.
    pub rebooted: bool,
    /// Which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<BootId>,
}

/// What became of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuResetOutcome {
    /// Which GPU, as the command named it.
    pub gpu: GpuName,
    /// The reset worked.
    pub reset: bool,
    /// A fresh reading shows it healthy; absent when it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Result of `gpu.reset`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuResets {
    /// Each GPU that the command named.
    pub gpus: Vec<GpuResetOutcome>,
}

/// Result of `daemon.upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DaemonUpgraded {
    /// The version that runs now.
    pub version: String,
}
