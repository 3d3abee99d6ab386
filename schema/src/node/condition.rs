//! Conditions: typed facts about a machine, and the reasons not to schedule on it that follow.

use std::{fmt, str::FromStr};

use super::{UnknownWord, words};
use crate::time::Timestamp;

words! {
    /// Whether a condition holds.
    ConditionStatus {
        /// It holds.
        True = "true",
        /// It does not.
        False = "false",
        /// Nobody can tell.
        Unknown = "unknown",
    }
}

/// One typed fact about a machine, for example `RebootRequired`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// What it is about, in upper camel case.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in upper camel case; stable.
    pub reason: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when the status is what it is.
    #[schemars(with = "String")]
    pub since: Timestamp,
}

/// Staged settings wait for a boot.
pub const REBOOT_REQUIRED: &str = "RebootRequired";
/// The machine has another number of GPUs than its pool expects.
pub const GPU_COUNT_MISMATCH: &str = "GpuCountMismatch";
/// The machine has GPUs of another model than its pool expects.
pub const GPU_MODEL_MISMATCH: &str = "GpuModelMismatch";
/// A section of the spec could not be converged.
pub const SECTION_FAILED: &str = "SectionFailed";
/// The node reports a generation that this database never wrote, as after a restore.
pub const GENERATION_AHEAD: &str = "GenerationAhead";

/// Something on the machine changes a value back again and again; corrections of it are made more seldom.
pub const DRIFT_FIGHT: &str = "DriftFight";
/// More has drifted than a report may name.
pub const DRIFT_UNREPORTED: &str = "DriftUnreported";

/// Why a machine must not receive new work. Each writer updates it in the transaction of its cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoScheduleReason {
    /// An operator's taint, by key.
    Taint(String),
    /// A condition that blocks, by type.
    Condition(String),
    /// The machine is unreachable or lost.
    Unreachable,
    /// The machine is being emptied.
    Draining,
}

impl fmt::Display for NoScheduleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint(key) => write!(f, "taint:{key}"),
            Self::Condition(kind) => f.write_str(kind),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Draining => f.write_str("draining"),
        }
    }
}

impl FromStr for NoScheduleReason {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "unreachable" => Ok(Self::Unreachable),
            "draining" => Ok(Self::Draining),
            _ => match text.strip_prefix("taint:") {
                Some(key) if !key.is_empty() => Ok(Self::Taint(key.to_owned())),
                None if text.starts_with(|c: char| c.is_ascii_uppercase()) => Ok(Self::Condition(text.to_owned())),
                _ => Err(UnknownWord { of: "NoScheduleReason", text: text.chars().take(80).collect() }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_survive_text() {
        for reason in [
            NoScheduleReason::Taint("gpu".into()),
            NoScheduleReason::Condition(GPU_COUNT_MISMATCH.into()),
            NoScheduleReason::Unreachable,
            NoScheduleReason::Draining,
        ] {
            assert_eq!(reason.to_string().parse(), Ok(reason));
        }
    }
}
