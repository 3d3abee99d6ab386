//! What the machine is made of: read from the real one, or described by a file.
//!
//! A section that could not be read is absent, and so is a value: nothing is ever guessed or zero for want of an answer.

use std::collections::BTreeMap;

use pki::hardware::{IdentifierKind, JoinClaims};
use schema::inventory::{Cpu, Disk, Dmi, Gpu, InventorySection, Link, Memory, Nic, Os};
use serde_json::Value;

use crate::session::Inventory;

mod described;
mod gpus;
mod host;
pub mod nvml;
mod smi;

pub use described::{BadDescription, Described, SAMPLE_8XH100};
pub use host::HostReader;

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
}
