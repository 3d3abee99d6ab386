//! What the machine is made of: read from the real one, or described by a file.
//!
//! A section that could not be read is absent, and so is a value: nothing is ever guessed or zero for want of an answer.

use std::{collections::BTreeMap, path::Path};

use pki::hardware::{IdentifierKind, JoinClaims};
use schema::inventory::{Cpu, Disk, Dmi, Gpu, InventorySection, Link, Memory, Nic, Os};
use serde_json::Value;

use crate::session::Inventory;

pub mod boot;
mod described;
mod gpus;
pub mod health;
mod host;
pub mod nvml;
mod programs;
mod smi;
pub mod xid;

use health::{GpuHealth, Health, OnBus, Reboot, Silence, Undone, User};
use xid::Xid;

pub use boot::boot_id;
pub use described::{BadDescription, Described, SAMPLE_8XH100};
pub use host::HostReader;
pub use programs::Programs;
pub(crate) use smi::pci;

/// A machine, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Firmware tables.
    pub dmi: Option<Dmi>,
    /// Processors.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// GPUs.
    pub gpus: Option<Vec<Gpu>>,
    /// Links between GPUs.
    pub links: Option<Vec<Link>>,
    /// Network interfaces.
    pub nics: Option<Vec<Nic>>,
    /// Disks.
    pub disks: Option<Vec<Disk>>,
    /// Operating system.
    pub os: Option<Os>,
    /// Identifiers that are there and may not be read by this process.
    pub unreadable: Vec<IdentifierKind>,
}

impl Machine {
    /// The sections that could be read, as documents.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        let document =
            |value: Option<serde_json::Result<Value>>| value.map(|value| value.expect("inventory serialises"));
        let all = [
            (InventorySection::Dmi, document(self.dmi.as_ref().map(serde_json::to_value))),
            (InventorySection::Cpu, document(self.cpu.as_ref().map(serde_json::to_value))),
            (InventorySection::Memory, document(self.memory.as_ref().map(serde_json::to_value))),
            (InventorySection::Gpus, document(self.gpus.as_ref().map(serde_json::to_value))),
            (InventorySection::Links, document(self.links.as_ref().map(serde_json::to_value))),
            (InventorySection::Nics, document(self.nics.as_ref().map(serde_json::to_value))),
            (InventorySection::Disks, document(self.disks.as_ref().map(serde_json::to_value))),
            (InventorySection::Os, document(self.os.as_ref().map(serde_json::to_value))),
        ];
        let sections: BTreeMap<_, _> =
            all.into_iter().filter_map(|(section, document)| Some((section, document?))).collect();
        Inventory { sections }
    }

    /// What the machine says about itself when it joins.
    #[must_use]
    pub fn claims(&self) -> JoinClaims {
        JoinClaims {
            dmi: self.dmi.clone().unwrap_or_default(),
            nics: self.nics.clone().unwrap_or_default(),
            gpus: self.gpus.clone().unwrap_or_default(),
            unreadable: self.unreadable.clone(),
        }
    }
}

/// A source of truth about a machine. Reading may take long and is done off the daemon's loop.
pub trait Hardware: Send + Sync + std::fmt::Debug {
    /// Whether a file describes the machine.
    fn is_described(&self) -> bool;

    /// Reads the machine.
    fn read(&self) -> Machine;

    /// What the driver's management interface says about the GPUs.
    ///
    /// # Errors
    /// When it gives no answer.
    fn health(&self) -> Result<Health, Silence>;

    /// The GPUs on the bus; `None` when it cannot be seen.
    fn bus(&self) -> Option<Vec<OnBus>>;

    /// What the driver told the kernel's log in this boot, in its order; `None` when that cannot be read.
    fn xids(&self) -> Option<Vec<Xid>>;

    /// The processes that hold each GPU's device open, in the order of the GPUs.
    ///
    /// # Errors
    /// When that cannot be told, with the reason.
    fn holders(&self, gpus: &[&GpuHealth]) -> Result<Vec<Vec<User>>, String>;

    /// Resets a GPU.
    ///
    /// # Errors
    /// When it was not reset.
    fn reset(&self, gpu: &GpuHealth) -> Result<(), Undone>;

    /// Looks for devices on the bus again.
    ///
    /// # Errors
    /// When that could not be begun.
    fn rescan(&self) -> Result<(), Undone>;

    /// Reboots the machine. `root` is where the daemon works.
    ///
    /// # Errors
    /// When it stays up.
    fn reboot(&self, root: &Path, reason: Option<&str>) -> Result<Reboot, Undone>;
}
