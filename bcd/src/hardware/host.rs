//! The real machine: firmware tables, `/proc`, `/sys`, and the driver's tools in children with a deadline.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use pki::hardware::IdentifierKind;
use schema::inventory::{Cpu, Disk, Dmi, Gpu, Link, Memory, Nic, Os};

use super::{
    Hardware, Machine, Programs, gpus,
    health::{GpuHealth, Health, OnBus, Reboot, Silence, Undone, User},
    smi,
    xid::Xid,
};
use crate::process;

mod driver;

/// Reads the machine under a root, `/` but in tests.
#[derive(Debug, Clone)]
pub struct HostReader {
    root: PathBuf,
    probe: Option<PathBuf>,
    programs: Programs,
    tools: bool,
}

impl HostReader {
    /// This machine. `probe` is the program that answers `probe nvml`, usually this one.
    #[must_use]
    pub fn live(probe: Option<PathBuf>) -> Self {
        Self { root: PathBuf::from("/"), probe, programs: Programs::default(), tools: true }
    }

    /// A machine under another root with programs of its own.
    #[cfg(test)]
    pub(crate) fn of(root: &Path, probe: Option<PathBuf>, programs: Programs) -> Self {
        Self { root: root.to_owned(), probe, programs, tools: true }
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    fn names(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.root.join(path)).ok()?;
        let mut names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }

    fn dmi(&self) -> Option<Dmi> {
        let id = |name: &str| self.text(&format!("sys/class/dmi/id/{name}"));
        if !self.root.join("sys/class/dmi/id").is_dir() {
            return self.device_tree();
        }
        Some(Dmi {
            vendor: id("sys_vendor"),
            product: id("product_name"),
            serial: id("product_serial"),
            uuid: id("product_uuid"),
            board_serial: id("board_serial"),
            chassis_serial: id("chassis_serial"),
            firmware: id("bios_version"),
        })
    }

    /// A machine without firmware tables says its model in the device tree; one with neither has told us so.
    fn device_tree(&self) -> Option<Dmi> {
        let clean = |text: String| text.trim_end_matches('\0').to_owned();
        let read = |name: &str| self.text(&format!("proc/device-tree/{name}")).map(clean);
        self.root.join("sys").is_dir().then(|| Dmi {
            product: read("model"),
            serial: read("serial-number"),
            ..Dmi::default()
        })
    }

    fn unreadable(&self) -> Vec<IdentifierKind> {
        let files = [
            (IdentifierKind::SystemSerial, "product_serial"),
            (IdentifierKind::SystemUuid, "product_uuid"),
            (IdentifierKind::BoardSerial, "board_serial"),
            (IdentifierKind::ChassisSerial, "chassis_serial"),
        ];
        let denied = |name: &str| {
            let read = fs::read(self.root.join("sys/class/dmi/id").join(name));
            read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        files.into_iter().filter(|(_, name)| denied(name)).map(|(kind, _)| kind).collect()
    }

    fn cpu(&self) -> Option<Cpu> {
        let info = self.text("proc/cpuinfo")?;
        let field = |wanted: &str| {
            let wanted = wanted.to_owned();
            info.lines().filter_map(move |line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == wanted).then(|| value.trim().to_owned())
            })
        };
        let count = |number: usize| u32::try_from(number).ok().filter(|number| *number > 0);
        let sockets: BTreeSet<String> = field("physical id").collect();
        let cores: BTreeSet<(String, String)> = field("physical id").zip(field("core id")).collect();
        let numa = self.names("sys/devices/system/node").map(|names| {
            names.iter().filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok())).count()
        });
        Some(Cpu {
            model: field("model name").next(),
            sockets: count(sockets.len()),
            cores: count(cores.len()),
            threads: count(field("processor").count()),
            numa_nodes: numa.and_then(count),
        })
    }

    fn memory(&self) -> Option<Memory> {
        let info = self.text("proc/meminfo")?;
        let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(Memory { total_mib: Some(kib / 1024) })
    }

    fn nics(&self) -> Option<Vec<Nic>> {
        let names = self.names("sys/class/net")?;
        let physical = names.into_iter().filter(|name| self.root.join(format!("sys/class/net/{name}/device")).exists());
        let nic = |name: String| {
            let read = |file: &str| self.text(&format!("sys/class/net/{name}/{file}"));
            let mac = read("address").map(|mac| mac.to_ascii_lowercase());
            let speed =
                read("speed").and_then(|speed| speed.parse::<i64>().ok()).and_then(|speed| u32::try_from(speed).ok());
            Nic { mac, speed_mbps: speed.filter(|speed| *speed > 0), name }
        };
        Some(physical.map(nic).collect())
    }

    fn disks(&self) -> Option<Vec<Disk>> {
        let names = self.names("sys/block")?;
        let physical = names.into_iter().filter(|name| self.root.join(format!("sys/block/{name}/device")).exists());
        let disk = |name: String| {
            let path = |file: &str| format!("sys/block/{name}/{file}");
            let sectors: Option<u64> = self.number(&path("size"));
            Disk {
                model: self.text(&path("device/model")),
                serial: self.text(&path("device/serial")),
                size_mib: sectors.map(|sectors| sectors / 2048),
                name,
            }
        };
        Some(physical.map(disk).collect())
    }

    fn os(&self) -> Option<Os> {
        let release = self.text("etc/os-release").or_else(|| self.text("usr/lib/os-release"));
        let name = release.as_deref().and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .map(|name| name.trim_matches('"').to_owned())
        });
        let kernel = self.text("proc/sys/kernel/osrelease");
        let hostname = self.text("proc/sys/kernel/hostname").or_else(|| self.text("etc/hostname"));
        let known = name.is_some() || kernel.is_some() || hostname.is_some();
        known.then(|| Os { name, kernel, arch: Some(std::env::consts::ARCH.to_owned()), hostname })
    }

    fn nvml(&self) -> Option<Vec<Gpu>> {
        let output = process::run(self.probe.as_deref()?, &["probe", "nvml"], self.programs.answer).ok()?;
        output.success.then(|| serde_json::from_slice(&output.stdout).ok()).flatten()
    }

    fn smi(&self, args: &[&str]) -> Option<String> {
        let output = process::run(&self.programs.smi, args, self.programs.answer).ok()?;
        // It ends badly when one GPU is ill, and still says what it knows of the others.
        String::from_utf8(output.stdout).ok().filter(|text| !text.trim().is_empty())
    }

    fn gpus_and_links(&self) -> (Option<Vec<Gpu>>, Option<Vec<Link>>) {
        let bus = gpus::on_the_bus(&self.root.join("sys"));
        let has_driver = self.root.join("proc/driver/nvidia").exists();
        if !self.tools || !has_driver {
            let links = bus.as_ref().filter(|gpus| gpus.is_empty()).map(|_| Vec::new());
            return (gpus::merge([None, None, bus]), links);
        }
        let smi = self.smi(&["-q", "-x"]).map(|xml| smi::gpus(&xml));
        // The tool numbers GPUs in the order in which it lists them.
        let uuids: Vec<_> = smi.iter().flatten().map(|gpu| gpu.uuid.clone()).collect();
        let links = match uuids.len() {
            0 => None,
            1 => Some(Vec::new()),
            _ => self.smi(&["topo", "-m"]).and_then(|matrix| smi::links(&matrix, &uuids)),
        };
        (gpus::merge([self.nvml(), smi, bus]), links)
    }
}

impl Hardware for HostReader {
    fn is_described(&self) -> bool {
        false
    }

    fn read(&self) -> Machine {
        let (gpus, links) = self.gpus_and_links();
        Machine {
            dmi: self.dmi(),
            cpu: self.cpu(),
            memory: self.memory(),
            gpus,
            links,
            nics: self.nics(),
            disks: self.disks(),
            os: self.os(),
            unreadable: self.unreadable(),
        }
    }

    fn health(&self) -> Result<Health, Silence> {
        self.health_of_driver()
    }

    fn bus(&self) -> Option<Vec<OnBus>> {
        self.seen_on_bus()
    }

    fn xids(&self) -> Option<Vec<Xid>> {
        self.xids_of_boot()
    }

    fn holders(&self, gpus: &[&GpuHealth]) -> Result<Vec<Vec<User>>, String> {
        self.holders_of(gpus)
    }

    fn reset(&self, gpu: &GpuHealth) -> Result<(), Undone> {
        self.reset_by_tool(gpu)
    }

    fn rescan(&self) -> Result<(), Undone> {
        self.rescan_bus()
    }

    fn reboot(&self, _: &Path, reason: Option<&str>) -> Result<Reboot, Undone> {
        self.reboot_by_systemd(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, content).expect("written");
        }
        let machine = HostReader { tools: false, ..HostReader::of(dir.path(), None, Programs::default()) }.read();
        (dir, machine)
    }

    #[test]
    fn an_empty_root_knows_nothing() {
        let (_dir, machine) = machine(&[]);
        assert_eq!(machine.inventory().sections.len(), 0, "{machine:?}");
    }

    #[test]
    fn a_host_is_read() {
        let cpu = "processor : 0\nmodel name : Xeon\nphysical id : 0\ncore id : 0\n\
                   processor : 1\nmodel name : Xeon\nphysical id : 0\ncore id : 0\n\
                   processor : 2\nmodel name : Xeon\nphysical id : 1\ncore id : 0\n";
        let (_dir, machine) = machine(&[
            ("sys/class/dmi/id/product_serial", "A5M2DG769504\n"),
            ("sys/class/dmi/id/chassis_serial", "Default string\n"),
            ("proc/cpuinfo", cpu),
            ("proc/meminfo", "MemTotal:       2113929216 kB\n"),
            ("sys/class/net/eno1/device/x", ""),
            ("sys/class/net/eno1/address", "B8:CE:F6:00:00:01\n"),
            ("sys/class/net/eno1/speed", "-1\n"),
            ("sys/class/net/lo/address", "00:00:00:00:00:00\n"),
            ("sys/block/nvme0n1/device/model", "SAMSUNG\n"),
            ("sys/block/nvme0n1/size", "2048000\n"),
            ("sys/block/loop0/size", "8\n"),
            ("sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:18:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:18:00.0/numa_node", "1\n"),
            ("sys/bus/pci/devices/0000:19:00.0/vendor", "0x8086\n"),
            ("sys/bus/pci/devices/0000:19:00.0/class", "0x030000\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian 12\"\n"),
        ]);
        let dmi = machine.dmi.expect("dmi");
        assert_eq!(dmi.serial.as_deref(), Some("A5M2DG769504"));
        assert_eq!(dmi.chassis_serial.as_deref(), Some("Default string"), "placeholders are kept as read");
        let cpu = machine.cpu.expect("cpu");
        assert_eq!((cpu.sockets, cpu.cores, cpu.threads), (Some(2), Some(2), Some(3)));
        assert_eq!(machine.memory.expect("memory").total_mib, Some(2_064_384));
        let nics = machine.nics.expect("nics");
        assert_eq!((nics.len(), nics[0].mac.as_deref(), nics[0].speed_mbps), (1, Some("b8:ce:f6:00:00:01"), None));
        let disks = machine.disks.expect("disks");
        assert_eq!((disks.len(), disks[0].size_mib, disks[0].serial.as_deref()), (1, Some(1000), None));
        let gpus = machine.gpus.expect("gpus");
        assert_eq!((gpus.len(), gpus[0].numa_node, gpus[0].pci.as_deref()), (1, Some(1), Some("0000:18:00.0")));
        assert_eq!(machine.links, None, "GPUs without a driver have unknown links");
        assert_eq!(machine.os.expect("os").name.as_deref(), Some("Debian 12"));
    }

    #[test]
    fn a_machine_without_firmware_tables_says_its_model() {
        let (_dir, machine) = machine(&[("proc/device-tree/model", "NVIDIA Jetson\0"), ("sys/x", "")]);
        assert_eq!(machine.dmi.expect("dmi").product.as_deref(), Some("NVIDIA Jetson"));
    }
}
