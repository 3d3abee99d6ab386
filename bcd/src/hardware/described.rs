//! A machine that is described by a file: for tests, simulation and demonstrations. It says so wherever it appears.
//!
//! The format is TOML. `{seed}` in a text stands for the seed, and identifiers that the file leaves out are derived from
//! it, so that one file describes any number of distinct machines: `--hardware-seed node-2`. What ails its GPUs comes and
//! goes on a schedule that the file has too.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use schema::{
    command::Reason,
    digest::Digest,
    id::BootId,
    inventory::{Cpu, Disk, Dmi, Gpu, Link, Memory, Nic, Os},
};
use serde::Deserialize;

use super::{
    Hardware, Machine,
    boot::next,
    health::{GpuHealth, Health, OnBus, Reboot, Silence, Undone, User},
    xid::Xid,
};
use faults::{FaultWords, Faults, Kind};

mod boot;
mod deeds;
mod faults;

/// Why a file describes no machine.
#[derive(Debug, thiserror::Error)]
pub enum BadDescription {
    /// It is not TOML.
    #[error("the hardware file is not TOML")]
    Syntax(#[source] toml::de::Error),
    /// It says something that a description does not have.
    #[error("the hardware file does not describe a machine")]
    Shape(#[source] toml::de::Error),
    /// An override is not `KEY=VALUE`, or its key leads nowhere.
    #[error("{0:?} is not KEY=VALUE with a key such as serial or gpus.count")]
    Override(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    seed: Option<String>,
    #[serde(default)]
    dmi: DmiWords,
    cpu: CpuWords,
    memory: MemoryWords,
    gpus: Option<GpuWords>,
    links: Option<LinkWords>,
    #[serde(default)]
    nics: Vec<NicWords>,
    #[serde(default)]
    disks: Vec<DiskWords>,
    os: OsWords,
    #[serde(default)]
    faults: Vec<FaultWords>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct DmiWords {
    vendor: Option<String>,
    product: Option<String>,
    serial: Option<String>,
    uuid: Option<String>,
    board_serial: Option<String>,
    chassis_serial: Option<String>,
    firmware: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CpuWords {
    model: String,
    sockets: u32,
    cores: u32,
    threads: u32,
    numa_nodes: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct MemoryWords {
    total_mib: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GpuWords {
    count: u8,
    model: String,
    memory_mib: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct LinkWords {
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct NicWords {
    name: String,
    mac: Option<String>,
    speed_mbps: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DiskWords {
    name: String,
    model: Option<String>,
    serial: Option<String>,
    size_mib: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct OsWords {
    name: String,
    kernel: String,
    arch: String,
    hostname: Option<String>,
}

/// A described machine.
#[derive(Debug, Clone)]
pub struct Described {
    machine: Machine,
    faults: Arc<Faults>,
    /// Where the machine keeps what was done to it.
    root: Option<PathBuf>,
}

impl Described {
    /// Reads a description. `seed` tells machines of one file apart; `overrides` are `KEY=VALUE`, where a key is a path
    /// such as `gpus.count`, or just `serial` for `dmi.serial`.
    ///
    /// # Errors
    /// When the file or an override makes no sense.
    pub fn parse(text: &str, seed: Option<&str>, overrides: &[String]) -> Result<Self, BadDescription> {
        let mut table: toml::Table = text.parse().map_err(BadDescription::Syntax)?;
        for text in overrides {
            set(&mut table, text)?;
        }
        let mut document: Document = table.try_into().map_err(BadDescription::Shape)?;
        let seed = seed.or(document.seed.as_deref()).unwrap_or("sample").to_owned();
        let faults = Arc::new(Faults::new(std::mem::take(&mut document.faults)));
        Ok(Self { machine: machine(document, &seed), faults, root: None })
    }

    /// The same with a root of its own, under which the machine keeps what is done to it.
    #[must_use]
    pub fn under(mut self, root: &Path) -> Self {
        // What stands under the real root is the real machine's.
        self.root = (root != Path::new("/")).then(|| root.to_owned());
        self
    }

    fn keep(&self, did: &str, to: &str) -> Result<(), Undone> {
        let failed = |error: std::io::Error| Undone { reason: Reason::FAILED, why: error.to_string() };
        self.root.as_deref().map_or(Ok(()), |root| deeds::keep(root, did, to).map_err(failed))
    }

    fn gpus(&self) -> &[Gpu] {
        self.machine.gpus.as_deref().unwrap_or_default()
    }

    fn index(&self, gpu: &GpuHealth) -> Option<usize> {
        self.gpus().iter().position(|own| own.pci == gpu.pci)
    }
}

impl Hardware for Described {
    fn is_described(&self) -> bool {
        true
    }

    fn read(&self) -> Machine {
        let mut machine = self.machine.clone();
        for (index, gpu) in machine.gpus.iter_mut().flatten().enumerate() {
            if self.faults.has(index, Kind::Missing) {
                let (pci, numa_node) = (gpu.pci.take(), gpu.numa_node);
                *gpu = Gpu { pci, numa_node, seen_by: vec!["described".to_owned()], ..Gpu::default() };
            }
        }
        machine
    }

    fn health(&self) -> Result<Health, Silence> {
        self.faults.health(self.gpus())
    }

    fn bus(&self) -> Option<Vec<OnBus>> {
        Some(Faults::bus(self.gpus()))
    }

    fn xids(&self) -> Option<Vec<Xid>> {
        Some(self.faults.xids(self.gpus()))
    }

    fn holders(&self, gpus: &[&GpuHealth]) -> Result<Vec<Vec<User>>, String> {
        let users = |gpu: &&GpuHealth| self.index(gpu).map(|index| self.faults.users(index)).unwrap_or_default();
        Ok(gpus.iter().map(users).collect())
    }

    fn reset(&self, gpu: &GpuHealth) -> Result<(), Undone> {
        let unknown = || Undone { reason: Reason::GPU_UNKNOWN, why: "no such GPU is described".to_owned() };
        let index = self.index(gpu).ok_or_else(unknown)?;
        self.keep("reset", gpu.pci.as_deref().unwrap_or_else(|| gpu.name()))?;
        self.faults.reset(index)
    }

    fn rescan(&self) -> Result<(), Undone> {
        Ok(())
    }

    fn reboot(&self, root: &Path, why: Option<&str>) -> Result<Reboot, Undone> {
        let failed = |error: std::io::Error| Undone { reason: Reason::FAILED, why: error.to_string() };
        self.keep("reboot", why.unwrap_or_default())?;
        boots(root).map_err(failed)?;
        self.faults.booted(self.gpus().len());
        Ok(Reboot::Done)
    }
}

/// The kernel of a described machine's first boot, with what the machine was set up with until then; `false` when one runs.
pub(super) fn first_kernel(root: &Path) -> std::io::Result<bool> {
    if root == Path::new("/") || root.join("proc/cmdline").exists() {
        return Ok(false);
    }
    boot::take_up(root).map(|()| true)
}

/// The described machine under a root boots: with what is staged there, and under another boot id from then on.
pub(super) fn boots(root: &Path) -> std::io::Result<BootId> {
    // What stands under the real root is the real machine's.
    if root != Path::new("/") {
        boot::take_up(root)?;
    }
    next(root)
}

fn set(table: &mut toml::Table, text: &str) -> Result<(), BadDescription> {
    let refuse = || BadDescription::Override(text.to_owned());
    let (key, value) = text.split_once('=').ok_or_else(refuse)?;
    let path = if key.contains('.') || key == "seed" { key.to_owned() } else { format!("dmi.{key}") };
    // Serials are texts, however they look.
    let number = value.parse::<i64>().ok().filter(|_| !path.starts_with("dmi."));
    let value = number.map_or_else(|| toml::Value::String(value.to_owned()), toml::Value::Integer);
    match path.split_once('.') {
        None => {
            table.insert(path, value);
        }
        Some((section, key)) => {
            let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            section.as_table_mut().ok_or_else(refuse)?.insert(key.to_owned(), value);
        }
    }
    Ok(())
}

fn machine(document: Document, seed: &str) -> Machine {
    let fill = |text: String| text.replace("{seed}", seed);
    let dmi = document.dmi;
    let serial = fill(dmi.serial.unwrap_or_else(|| format!("BC-{}", hex::encode_upper(&derive(seed, "serial")[..6]))));
    let gpus: Vec<Gpu> = document.gpus.iter().flat_map(|words| gpus(words, seed, document.cpu.numa_nodes)).collect();
    let links = document.links.map_or_else(Vec::new, |words| links(&gpus, &words.kind));
    let hostname = document.os.hostname.map_or_else(|| seed.to_owned(), fill);
    Machine {
        dmi: Some(Dmi {
            vendor: dmi.vendor.map(fill),
            product: dmi.product.map(fill),
            uuid: Some(dmi.uuid.map_or_else(|| uuid(seed, "dmi"), fill)),
            board_serial: Some(
                dmi.board_serial.map_or_else(|| format!("B-{}", hex::encode(&derive(seed, "board")[..6])), fill),
            ),
            chassis_serial: dmi.chassis_serial.map(fill).or_else(|| Some(serial.clone())),
            serial: Some(serial),
            firmware: dmi.firmware.map(fill),
        }),
        cpu: Some(Cpu {
            model: Some(document.cpu.model),
            sockets: Some(document.cpu.sockets),
            cores: Some(document.cpu.cores),
            threads: Some(document.cpu.threads),
            numa_nodes: Some(document.cpu.numa_nodes),
        }),
        memory: Some(Memory { total_mib: Some(document.memory.total_mib) }),
        gpus: Some(gpus),
        links: Some(links),
        nics: Some(document.nics.into_iter().map(|nic| self::nic(nic, seed)).collect()),
        disks: Some(document.disks.into_iter().map(|disk| self::disk(disk, seed)).collect()),
        os: Some(Os {
            name: Some(document.os.name),
            kernel: Some(document.os.kernel),
            arch: Some(document.os.arch),
            hostname: Some(hostname),
        }),
        unreadable: Vec::new(),
    }
}

fn gpus(words: &GpuWords, seed: &str, numa_nodes: u32) -> Vec<Gpu> {
    let count = u32::from(words.count);
    (0..count)
        .map(|index| Gpu {
            uuid: Some(format!("GPU-{}", uuid(seed, &format!("gpu-{index}")))),
            model: Some(words.model.clone()),
            pci: Some(format!("0000:{:02x}:00.0", 0x18 + index * 0x11)),
            serial: Some(decimal(seed, &format!("gpu-serial-{index}"))),
            memory_mib: Some(words.memory_mib),
            numa_node: Some(index * numa_nodes.max(1) / count),
            seen_by: vec!["described".to_owned()],
        })
        .collect()
}

fn links(gpus: &[Gpu], kind: &str) -> Vec<Link> {
    let ids: Vec<&String> = gpus.iter().filter_map(|gpu| gpu.uuid.as_ref()).collect();
    let pairs = ids.iter().enumerate().flat_map(|(index, a)| ids[index + 1..].iter().map(move |b| (*a, *b)));
    pairs.map(|(a, b)| Link { a: a.clone(), b: b.clone(), kind: kind.to_owned() }).collect()
}

fn nic(words: NicWords, seed: &str) -> Nic {
    let mac = words.mac.unwrap_or_else(|| {
        let bytes = derive(seed, &format!("nic-{}", words.name));
        // A locally administered address: it belongs to no vendor.
        format!("02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4])
    });
    Nic { name: words.name, mac: Some(mac), speed_mbps: words.speed_mbps }
}

fn disk(words: DiskWords, seed: &str) -> Disk {
    let serial = words.serial.unwrap_or_else(|| hex::encode_upper(&derive(seed, &format!("disk-{}", words.name))[..8]));
    Disk { name: words.name, model: words.model, serial: Some(serial), size_mib: words.size_mib }
}

fn derive(seed: &str, what: &str) -> [u8; 32] {
    *Digest::of(format!("described machine\0{seed}\0{what}")).as_bytes()
}

fn uuid(seed: &str, what: &str) -> String {
    let bytes: [u8; 16] = derive(seed, what)[..16].try_into().expect("sixteen of thirty-two");
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

fn decimal(seed: &str, what: &str) -> String {
    let bytes: [u8; 8] = derive(seed, what)[..8].try_into().expect("eight of thirty-two");
    format!("{:013}", u64::from_be_bytes(bytes) % 10_000_000_000_000)
}

/// A description that comes with the daemon: eight H100 on one board.
pub const SAMPLE_8XH100: &str = include_str!("../../hardware/8xh100.toml");

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seed: &str, overrides: &[&str]) -> Machine {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        Described::parse(SAMPLE_8XH100, Some(seed), &overrides).expect("the sample is good").read()
    }

    #[test]
    fn the_sample_is_a_complete_machine_with_eight_gpus() {
        let machine = sample("a", &[]);
        assert_eq!(machine.inventory().sections.len(), 8);
        assert_eq!(machine.gpus.expect("gpus").len(), 8);
        assert_eq!(machine.links.expect("links").len(), 28);
    }

    #[test]
    fn two_seeds_are_two_machines_and_one_seed_is_one() {
        assert_eq!(sample("a", &[]), sample("a", &[]));
        let (a, b) = (sample("a", &[]), sample("b", &[]));
        assert_ne!(a.claims().hardware_key(), b.claims().hardware_key());
        let ids = |machine: &Machine| machine.gpus.iter().flatten().map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>();
        assert!(ids(&a).iter().all(|id| !ids(&b).contains(id)));
    }

    #[test]
    fn overrides_reach_where_they_name() {
        let machine = sample("a", &["serial=X1", "gpus.count=7", "chassis-serial=0042"]);
        let dmi = machine.dmi.expect("dmi");
        assert_eq!((dmi.serial.as_deref(), machine.gpus.expect("gpus").len()), (Some("X1"), 7));
        assert_eq!(dmi.chassis_serial.as_deref(), Some("0042"));
        assert!(Described::parse(SAMPLE_8XH100, None, &["nonsense".into()]).is_err());
        assert!(Described::parse(SAMPLE_8XH100, None, &["gpus.colour=red".into()]).is_err());
    }
}
