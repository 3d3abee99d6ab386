//! `pool`: machines that are alike and are booked together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::SourceRef,
    fleet::{ByteSize, Located},
    name::Name,
    node::{PoolClass, words},
    time::Duration,
};

words! {
    /// How bookings are laid out.
    Placement {
        /// Fill machines up.
        Pack = "pack",
        /// Use many machines.
        Spread = "spread",
    }
}

words! {
    /// How a GPU is divided among bookings.
    GpuSharing {
        /// Not at all.
        None = "none",
        /// Into MIG instances.
        Mig = "mig",
        /// By time slices.
        Timeslice = "timeslice",
        /// By the multi-process service.
        Mps = "mps",
    }
}

/// GPUs that every machine of a pool has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Gpus {
    /// How many.
    pub count: Located<u32>,
    /// The model as the driver names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Located<String>>,
    /// The memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

/// Processors that every machine of a pool has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cpu {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Located<String>>,
    /// How many sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Located<u32>>,
    /// How many cores in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Located<u32>>,
}

/// What a pool's machines have: inventory is held against it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Hardware {
    /// GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Located<Gpus>>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Located<Cpu>>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

/// What the host keeps for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct HostReserve {
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Located<u32>>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

/// How a pool is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Policy {
    /// How many machines may be disturbed at once: a number or a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<Located<String>>,
    /// How bookings are laid out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Located<Placement>>,
    /// How a GPU is divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<Located<GpuSharing>>,
    /// What the host keeps for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_reserve: Option<Located<HostReserve>>,
    /// How long an unreachable machine is waited for before it counts as lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Located<Duration>>,
}

/// A pool's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The site its machines stand in.
    pub site: Located<Name>,
    /// What its machines are to the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Located<PoolClass>>,
    /// What its hosts look like.
    pub profile: Located<Name>,
    /// How a change travels; the fleet's default when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Located<Name>>,
    /// Free words, which templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// What its machines have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Located<Hardware>>,
    /// How it is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Located<Policy>>,
}
