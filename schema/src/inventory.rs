//! Inventory: what a machine is made of, in sections with a digest each.
//!
//! A value that could not be read is absent, never zero. Written by `bcd`; held against a pool's expected hardware by the
//! `node` controller.

use serde::{Deserialize, Serialize};

use crate::node::words;

words! {
    /// The sections of an inventory. All eight make it complete.
    InventorySection {
        /// Firmware tables: vendor, product, serials.
        Dmi = "dmi",
        /// Processors.
        Cpu = "cpu",
        /// Memory.
        Memory = "memory",
        /// GPUs.
        Gpus = "gpus",
        /// Links between GPUs.
        Links = "links",
        /// Network interfaces.
        Nics = "nics",
        /// Disks.
        Disks = "disks",
        /// Operating system.
        Os = "os",
    }
}

/// Firmware tables. Placeholders that vendors leave are kept as read; whoever derives identity drops them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dmi {
    /// System manufacturer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Product name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// System serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// System UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Base board serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board_serial: Option<String>,
    /// Chassis serial number; blades share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis_serial: Option<String>,
    /// Firmware version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
}

/// Processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Physical cores in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Hardware threads in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<u32>,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// All of it, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_mib: Option<u64>,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    /// The driver's unique id, `GPU-…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Product name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// PCI address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Board serial; not unique on every product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Which sources saw it: `nvml`, `nvidia-smi`, `pci`, `described`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<String>,
}

/// A link between two GPUs of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    /// One end, by GPU UUID.
    pub a: String,
    /// The other end.
    pub b: String,
    /// As the driver writes it, for example `NV18` or `SYS`.
    pub kind: String,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// Interface name.
    pub name: String,
    /// Permanent hardware address, lower case with colons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Speed in Mbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u32>,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Kernel name.
    pub name: String,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Size in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_mib: Option<u64>,
}

/// The operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Os {
    /// Pretty name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kernel release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Machine architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}
