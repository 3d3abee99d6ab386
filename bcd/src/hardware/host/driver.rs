//! What is asked of the GPUs' driver and told to it, always through a child that can be killed.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use schema::command::Reason;

use super::HostReader;
use crate::{
    hardware::{
        gpus,
        health::{GpuHealth, Health, OnBus, Reboot, Silence, Undone, User},
        smi,
        xid::{self, Xid},
    },
    process::{self, Output},
};

/// Keeps the driver loaded and makes way for a reset by itself. The kernel cuts names at fifteen bytes.
const PERSISTENCE: &str = "nvidia-persiste";

pub(super) fn undone(reason: Reason, why: impl Into<String>) -> Undone {
    Undone { reason, why: why.into() }
}

/// What a program said, on either side, in one line.
fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let lines = out.lines().chain(output.stderr.lines()).map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ").chars().filter(|letter| !letter.is_control()).take(600).collect()
}

impl HostReader {
    /// Runs a program for at most so long.
    pub(super) fn run(&self, program: &Path, args: &[&str], deadline: Duration) -> Result<Output, Undone> {
        process::run(program, args, deadline).map_err(|error| undone(error.reason(), error.to_string()))
    }

    pub(super) fn health_of_driver(&self) -> Result<Health, Silence> {
        let silent = |hung, why: String| Silence { hung, why };
        if !self.tools || !self.root.join("proc/driver/nvidia").exists() {
            return Err(silent(false, "no NVIDIA driver is loaded".to_owned()));
        }
        let library = match self.ask_library() {
            Ok(health) => return Ok(health),
            Err(silence) => silence,
        };
        self.ask_tool().map_err(|tool| {
            silent(library.hung || tool.hung, format!("nvml: {}; nvidia-smi: {}", library.why, tool.why))
        })
    }

    fn ask_library(&self) -> Result<Health, Silence> {
        let Some(probe) = self.probe.as_deref() else {
            return Err(Silence { hung: false, why: "not asked".to_owned() });
        };
        let output = self.run(probe, &["probe", "health"], self.programs.answer).map_err(silence)?;
        let no = |why: String| Silence { hung: false, why };
        if !output.success {
            return Err(no(said(&output)));
        }
        serde_json::from_slice(&output.stdout).map_err(|_| no("the probe's answer makes no sense".to_owned()))
    }

    fn ask_tool(&self) -> Result<Health, Silence> {
        let output = self.run(&self.programs.smi, &["-q", "-x"], self.programs.answer).map_err(silence)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let complaints = format!("{text}\n{}", output.stderr);
        // It ends badly when one GPU is ill, and still says what it knows of the others.
        let mut health = match smi::health::health(&text) {
            Some(health) => health,
            None if smi::health::none_found(&complaints) => {
                Health { source: "nvidia-smi".to_owned(), driver: None, gpus: Vec::new() }
            }
            None => {
                let mut why = said(&output);
                if why.is_empty() {
                    why.push_str("it said nothing");
                }
                return Err(Silence { hung: false, why });
            }
        };
        for gpu in smi::health::unreachable(&complaints) {
            match health.gpus.iter_mut().find(|known| known.pci == gpu.pci) {
                Some(known) => known.lost = known.lost.take().or(gpu.lost),
                None => health.gpus.push(gpu),
            }
        }
        Ok(health)
    }

    pub(super) fn seen_on_bus(&self) -> Option<Vec<OnBus>> {
        let sys = self.root.join("sys");
        let driver = |pci: &str| {
            let link = fs::read_link(sys.join("bus/pci/devices").join(pci).join("driver")).ok()?;
            Some(link.file_name()?.to_str()?.to_owned())
        };
        let gpus = gpus::on_the_bus(&sys)?;
        Some(gpus.into_iter().filter_map(|gpu| gpu.pci).map(|pci| OnBus { driver: driver(&pci), pci }).collect())
    }

    pub(super) fn xids_of_boot(&self) -> Option<Vec<Xid>> {
        let ring = xid::kernel_log(&self.root.join("dev/kmsg")).map(|log| xid::of_kmsg(&log));
        let wanted = ["--dmesg", "--boot", "--output=json", "--no-pager", "--grep=NVRM: Xid"];
        let kept = self.tools.then(|| process::run(&self.programs.journalctl, &wanted, self.programs.answer).ok());
        let kept = kept.flatten().filter(|output| output.success || output.stderr.is_empty());
        let kept = kept.map(|output| xid::of_journal(&String::from_utf8_lossy(&output.stdout)));
        // The ring forgets its oldest lines and the journal does not; neither stamps a line quite as the other does.
        match (ring, kept) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(one.into_iter().collect()),
            (Some(ring), Some(kept)) => {
                let first = ring.first().map_or(u64::MAX, |event| event.at.saturating_sub(1_000_000));
                let forgotten: BTreeSet<Xid> = kept.into_iter().filter(|event| event.at < first).collect();
                Some(forgotten.into_iter().chain(ring).collect())
            }
        }
    }

    /// One look at all processes: the holders of each GPU's device node, in the order of the GPUs.
    pub(super) fn holders_of(&self, gpus: &[&GpuHealth]) -> Result<Vec<Vec<User>>, String> {
        let mut nodes = Vec::new();
        for gpu in gpus {
            let minor = gpu.minor.or_else(|| self.minor(gpu.pci.as_deref()?));
            let minor = minor.ok_or_else(|| format!("{} has no device node that is known", gpu.name()))?;
            nodes.push(PathBuf::from(format!("/dev/nvidia{minor}")));
        }
        let mut holders = vec![Vec::new(); nodes.len()];
        let processes = fs::read_dir(self.root.join("proc")).map_err(|error| format!("/proc: {error}"))?;
        for process in processes.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let held = match held(&process.path().join("fd"), &nodes) {
                Ok(held) if held.is_empty() => continue,
                Ok(held) => held,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("what process {pid} holds: {error}")),
            };
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default().trim().to_owned();
            if name != PERSISTENCE {
                held.into_iter().for_each(|place| holders[place].push(User { pid, name: name.clone() }));
            }
        }
        Ok(holders)
    }

    fn minor(&self, pci: &str) -> Option<u32> {
        let text = self.text(&format!("proc/driver/nvidia/gpus/{pci}/information"))?;
        text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?.trim().parse().ok()
    }

    pub(super) fn reset_by_tool(&self, gpu: &GpuHealth) -> Result<(), Undone> {
        let target = gpu.uuid.as_deref().or(gpu.pci.as_deref());
        let target = target.ok_or_else(|| undone(Reason::GPU_UNKNOWN, "the GPU has no name"))?;
        let output = self.run(&self.programs.smi, &["--gpu-reset", "-i", target], self.programs.reset)?;
        if output.success { Ok(()) } else { Err(undone(Reason::PROGRAM_FAILED, said(&output))) }
    }

    pub(super) fn rescan_bus(&self) -> Result<(), Undone> {
        let place = self.root.join("sys/bus/pci/rescan");
        let place = place.to_str().ok_or_else(|| undone(Reason::FAILED, "the place is no text"))?;
        // A driver that is made to look at a device may hang.
        let args = ["-c", "echo 1 > \"$1\"", "sh", place];
        let output = self.run(Path::new("/bin/sh"), &args, self.programs.answer)?;
        if output.success { Ok(()) } else { Err(undone(Reason::PROGRAM_FAILED, said(&output))) }
    }

    pub(super) fn reboot_by_systemd(&self, reason: Option<&str>) -> Result<Reboot, Undone> {
        let message = reason.map(|reason| format!("--message={reason}"));
        let args: Vec<&str> = ["reboot"].into_iter().chain(message.as_deref()).collect();
        match self.run(&self.programs.systemctl, &args, self.programs.answer) {
            Ok(output) if output.success => Ok(Reboot::Begun),
            Ok(output) => Err(undone(Reason::PROGRAM_FAILED, format!("systemctl reboot: {}", said(&output)))),
            // Whether it was heard, only the next boot tells.
            Err(error) if error.reason == Reason::PROGRAM_HUNG => Ok(Reboot::Begun),
            Err(error) => Err(error),
        }
    }
}

fn silence(error: Undone) -> Silence {
    Silence { hung: error.reason == Reason::PROGRAM_HUNG, why: error.why }
}

/// The places of those device nodes that are among the descriptors in a directory of them.
fn held(descriptors: &Path, nodes: &[PathBuf]) -> io::Result<BTreeSet<usize>> {
    let mut held = BTreeSet::new();
    for descriptor in fs::read_dir(descriptors)? {
        match fs::read_link(descriptor?.path()) {
            Ok(target) => held.extend(nodes.iter().position(|node| *node == target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests;
