//! How well the GPUs are, as the driver's management interface says, and who uses them.
//!
//! A value has three ways of not being there: the hardware has no such thing, the driver does not say, or nobody answered.
//! None of them is zero.

use schema::command::payload::GpuName;
use serde::{Deserialize, Serialize};

/// One value of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// It is this.
    Known(T),
    /// This GPU has no such value.
    #[default]
    NotSupported,
    /// The driver said this instead.
    Unknown(String),
}

impl<T> Reading<T> {
    /// The value, when it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::NotSupported | Self::Unknown(_) => None,
        }
    }
}

/// A process that uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    /// Its process id.
    pub pid: u32,
    /// Its name, when it is known.
    pub name: String,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuHealth {
    /// PCI address, as the kernel writes it.
    pub pci: Option<String>,
    /// The driver's id.
    pub uuid: Option<String>,
    /// The number of its device node.
    pub minor: Option<u32>,
    /// What the driver says instead of the GPU's values, when it has lost it.
    pub lost: Option<String>,
    /// Uncorrectable memory errors since the driver was loaded.
    pub ecc_uncorrectable: Reading<u64>,
    /// A row (or, on older GPUs, a page) waits for a reset to be replaced.
    pub remap_pending: Reading<bool>,
    /// A row could not be replaced.
    pub remap_failure: Reading<bool>,
    /// Lanes of the PCI link now.
    pub link_width: Reading<u32>,
    /// Lanes that it could have.
    pub link_max: Reading<u32>,
    /// Processes that the driver knows to use it.
    pub users: Vec<User>,
}

impl GpuHealth {
    /// How people find it: its id, or its address.
    #[must_use]
    pub fn name(&self) -> &str {
        self.uuid.as_deref().or(self.pci.as_deref()).unwrap_or("a GPU without a name")
    }

    /// Whether a command means this one.
    #[must_use]
    pub fn is(&self, name: &GpuName) -> bool {
        let same = |own: &Option<String>| own.as_deref() == Some(name.as_str());
        same(&self.uuid) || self.pci.is_some() && self.pci == super::smi::pci(name.as_str())
    }
}

/// What the management interface answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Who answered: `nvml`, `nvidia-smi` or `described`.
    pub source: String,
    /// The driver's version.
    pub driver: Option<String>,
    /// The GPUs that it knows.
    pub gpus: Vec<GpuHealth>,
}

/// Why the management interface gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Silence {
    /// It did not answer in time, so that nobody knows.
    pub hung: bool,
    /// What happened, for people.
    pub why: String,
}

/// A GPU on the bus, whether a driver knows it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnBus {
    /// PCI address.
    pub pci: String,
    /// The kernel driver that has it.
    pub driver: Option<String>,
}

/// How a reboot was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// The machine goes down.
    Begun,
    /// A described machine has another boot already.
    Done,
}

/// Why something could not be done to a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Undone {
    /// The stable word.
    pub reason: schema::command::Reason,
    /// What happened, for people.
    pub why: String,
}
