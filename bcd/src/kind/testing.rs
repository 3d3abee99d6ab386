//! A machine of scripts: a directory as its root, and programs that do what a test says.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use schema::{
    command::{CommandBody, CommandKind, Reason},
    id::{CommandId, NodeId},
};
use serde_json::Value;

use super::Machine;
use crate::{
    command::{Context, Outcome, Run as _},
    hardware::{Described, Hardware, HostReader, Programs, SAMPLE_8XH100},
    state::StateDir,
};

/// A machine under test.
pub(super) struct Lab {
    pub(super) dir: tempfile::TempDir,
    programs: Programs,
    probe: Option<PathBuf>,
}

impl Lab {
    /// A machine without programs.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let nowhere = |name: &str| dir.path().join("bin").join(name);
        let programs = Programs {
            smi: nowhere("nvidia-smi"),
            journalctl: nowhere("journalctl"),
            systemctl: nowhere("systemctl"),
            dcgmi: nowhere("dcgmi"),
            answer: Duration::from_secs(90),
            reset: Duration::from_secs(90),
        };
        fs::create_dir_all(dir.path().join("bin")).expect("made");
        fs::create_dir_all(dir.path().join("root/proc")).expect("made");
        Self { dir, programs, probe: None }
    }

    /// A machine with an NVIDIA driver and these GPUs on its bus.
    pub(super) fn with_gpus(addresses: &[&str]) -> Self {
        let lab = Self::new();
        lab.file("proc/driver/nvidia/version", "NVRM version\n");
        for pci in addresses {
            lab.file(&format!("sys/bus/pci/devices/{pci}/vendor"), "0x10de\n");
            lab.file(&format!("sys/bus/pci/devices/{pci}/class"), "0x030200\n");
            lab.driver(pci, "nvidia");
        }
        lab.file("dev/kmsg", "");
        lab
    }

    pub(super) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(super) fn file(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// The kernel driver that has a device.
    pub(super) fn driver(&self, pci: &str, name: &str) {
        let link = self.root().join(format!("sys/bus/pci/devices/{pci}/driver"));
        fs::remove_file(&link).ok();
        symlink(format!("../../../bus/pci/drivers/{name}"), link).expect("linked");
    }

    /// A process that holds a device open.
    pub(super) fn holder(&self, pid: u32, name: &str, device: &str) {
        self.file(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        fs::create_dir_all(self.root().join(format!("proc/{pid}/fd"))).expect("made");
        symlink(device, self.root().join(format!("proc/{pid}/fd/3"))).expect("linked");
    }

    /// Puts a program there: the body of a shell script. `$LAB` is the machine's directory.
    pub(super) fn program(&self, name: &str, script: &str) {
        let path = self.dir.path().join("bin").join(name);
        // Under another name first: a file that is open for writing cannot be run.
        let temporary = path.with_extension("new");
        fs::write(&temporary, format!("#!/bin/sh\nLAB='{}'\n{script}\n", self.dir.path().display())).expect("written");
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).expect("made executable");
        fs::rename(temporary, path).expect("in place");
    }

    /// A pipe between a program and the test: whoever opens one end waits for the other.
    pub(super) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        mkfifo(&path, Mode::S_IRWXU).expect("made");
        path
    }

    /// Answers `nvidia-smi -q -x` with a document, and other words with a script.
    pub(super) fn smi(&self, xml: &str, others: &str) {
        fs::write(self.dir.path().join("smi.xml"), xml).expect("written");
        self.program("nvidia-smi", &format!("if [ \"$1\" = -q ]; then cat $LAB/smi.xml; exit 0; fi\n{others}"));
    }

    /// How long a question may take.
    pub(super) fn patience(&mut self, answer: Duration) {
        self.programs.answer = answer;
        self.programs.reset = answer;
    }

    /// How long a reset may take, and nothing else.
    pub(super) const fn resets_within(&mut self, time: Duration) {
        self.programs.reset = time;
    }

    /// A program that is asked like the library's probe.
    pub(super) fn probe(&mut self, script: &str) {
        self.program("probe", script);
        self.probe = Some(self.dir.path().join("bin/probe"));
    }

    /// What a program wrote into the machine's directory.
    pub(super) fn said(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    pub(super) fn state(&self) -> StateDir {
        StateDir::open(&self.dir.path().join("state")).expect("made")
    }

    pub(super) fn hardware(&self) -> HostReader {
        HostReader::of(&self.root(), self.probe.clone(), self.programs.clone())
    }

    /// The machine as a daemon sees it that is its own.
    pub(super) fn machine(&self) -> Machine {
        let hardware: Arc<dyn Hardware> = Arc::new(self.hardware());
        Machine { root: self.root(), live: true, state: self.state(), hardware, programs: self.programs.clone() }
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, kind: CommandKind, payload: Value) -> Outcome {
        run(&self.machine(), kind, payload)
    }
}

pub(super) fn body(kind: CommandKind, payload: Value) -> CommandBody {
    CommandBody {
        id: CommandId::generate(),
        node_id: NodeId::generate(),
        kind,
        seq: 1,
        payload: kind.check_payload(&payload).expect("a payload"),
        not_after: crate::testing::now(),
        min_generation: None,
        batch: None,
        secrets: Vec::new(),
        journal: None,
    }
}

pub(super) fn run(machine: &Machine, kind: CommandKind, payload: Value) -> Outcome {
    let (context, _handle) = Context::for_test(body(kind, payload));
    machine.run(&context)
}

/// The described sample with faults, as TOML.
pub(super) fn described(dir: &Path, faults: &str) -> Machine {
    let text = format!("{SAMPLE_8XH100}\n{faults}");
    let hardware = Described::parse(&text, Some("one"), &[]).expect("a description");
    let state = StateDir::open(&dir.join("state")).expect("made");
    Machine::new(dir, &state, Arc::new(hardware))
}

/// A failure's reason, message and result.
pub(super) fn failure(outcome: Outcome) -> (Reason, String, Option<Value>) {
    match outcome {
        Outcome::Failed { reason, message, result } => (reason, message, result),
        other => panic!("not a failure: {other:?}"),
    }
}

/// A success's result, which its kind's type can hold.
pub(super) fn success(kind: CommandKind, outcome: Outcome) -> Value {
    match outcome {
        Outcome::Succeeded(result) => {
            assert_eq!(kind.row().result.check(&result).expect("of its kind"), result_without_nulls(&result));
            result
        }
        other => panic!("not a success: {other:?}"),
    }
}

fn result_without_nulls(result: &Value) -> Value {
    let bytes = schema::canonical::to_vec(result).expect("canonical");
    serde_json::from_slice(&bytes).expect("JSON")
}
