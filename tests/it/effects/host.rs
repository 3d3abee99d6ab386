//! A host: a directory that becomes the root of a process, in which the daemon's own code brings a machine from one spec to
//! another. What changed is found by looking at every file before and after, and by writing down every program that ran.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{MetadataExt as _, chroot},
    path::Path,
    sync::Mutex,
};

use bcd::{
    converge::{Books, Host, Keep, Memory, converge},
    drift::{Ledger, Moment},
    process::Runner,
    tree::Tree,
};
use schema::{
    report::DriftCause,
    spec::{NodeSpec, Section},
};
use serde::{Deserialize, Serialize};

use super::generate;

const JOB: &str = "job.json";
const RESULT: &str = "result.json";
/// What the kernel shows of its own accord.
const KERNEL: [&str; 1] = ["/sys/module"];

/// What a machine was, and what it should become.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) before: NodeSpec,
    pub(super) after: NodeSpec,
}

/// What happened.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Files, links and kernel values that differ: what they were and what they are.
    pub(super) changed: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Programs that ran, with their arguments.
    pub(super) ran: Vec<String>,
    /// Units that ran before.
    pub(super) running: BTreeSet<String>,
    /// Links and files that there were before.
    pub(super) there: BTreeSet<String>,
    /// What failed.
    pub(super) problems: Vec<String>,
}

impl Measured {
    pub(super) fn read(root: &Path) -> Self {
        serde_json::from_slice(&fs::read(root.join(RESULT)).expect("a result")).expect("reads")
    }

    pub(super) fn paths(&self) -> BTreeSet<String> {
        self.changed.keys().cloned().collect()
    }

    pub(super) fn programs(&self) -> BTreeSet<String> {
        self.ran.iter().cloned().collect()
    }
}

impl Job {
    pub(super) fn write(&self, root: &Path) {
        fs::write(root.join(JOB), serde_json::to_vec(self).expect("serialises")).expect("written");
    }
}

/// Becomes the host of a root, does its job there and writes down what happened.
pub(super) fn be(root: &Path) {
    chroot(root).expect("a root of its own");
    std::env::set_current_dir("/").expect("enters it");
    let job: Job = serde_json::from_slice(&fs::read(Path::new("/").join(JOB)).expect("a job")).expect("reads");
    let programs = Programs::new();
    let mut kept = Kept::default();
    let mut problems = run(&job.before, &programs, &mut kept);

    let before = look();
    let running = programs.running.lock().expect("whole").clone();
    programs.ran.lock().expect("whole").clear();
    problems.extend(run(&job.after, &programs, &mut kept));
    let after = look();

    let mut changed = BTreeMap::new();
    for path in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (before.get(path), after.get(path));
        if old != new {
            changed.insert(path.clone(), (old.cloned(), new.cloned()));
        }
    }
    let ran = programs.ran.lock().expect("whole").clone();
    let measured = Measured { changed, ran, running, there: before.into_keys().collect(), problems };
    fs::write(Path::new("/").join(RESULT), serde_json::to_vec(&measured).expect("serialises")).expect("written");
}

/// What the daemon keeps between two runs.
#[derive(Default)]
struct Kept {
    memories: BTreeMap<Section, Memory>,
    ledger: Ledger,
}

fn run(spec: &NodeSpec, programs: &Programs, kept: &mut Kept) -> Vec<String> {
    let tree = Tree::open(Path::new("/")).expect("opens");
    let host = Host { tree: &tree, runner: programs, state_dir: None, vault: None, knows_time: true };
    let mut problems = Vec::new();
    for section in Section::ALL {
        let memory = kept.memories.entry(*section).or_default();
        let mut books = Books { memory, ledger: &mut kept.ledger, keep: &mut InMemory };
        let moment = Moment { now: generate::now(), cause: DriftCause::Unknown };
        let ended = converge(host, *section, spec, &mut books, moment);
        problems.extend((!ended.reason.is_empty()).then_some(ended.reason));
    }
    problems
}

/// Everything there is, by path.
fn look() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(format!("{directory}/")).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = format!("{directory}/{}", entry.file_name().to_str().expect("a name"));
            if KERNEL.contains(&path.as_str()) || [JOB, RESULT].contains(&&path[1..]) {
                continue;
            }
            let about = fs::symlink_metadata(&path).expect("is there");
            if about.is_dir() {
                open.push(path);
            } else if about.is_symlink() {
                found.insert(path.clone(), format!("-> {}", fs::read_link(&path).expect("a link").display()));
            } else {
                let text = String::from_utf8_lossy(&fs::read(&path).expect("a file")).trim_end().to_owned();
                let (mode, owner, group) = (about.mode() & 0o7777, about.uid(), about.gid());
                found.insert(path, format!("{mode:04o} {owner}:{group}\n{text}"));
            }
        }
    }
    found
}

#[derive(Debug)]
struct InMemory;

impl Keep for InMemory {
    fn keep(&mut self, _: &Memory) -> io::Result<()> {
        Ok(())
    }

    fn keep_ledger(&mut self, _: &Ledger) -> io::Result<()> {
        Ok(())
    }
}

/// The host's programs: written down, and carried out as far as others see it.
#[derive(Debug)]
struct Programs {
    ran: Mutex<Vec<String>>,
    running: Mutex<BTreeSet<String>>,
}

impl Programs {
    fn new() -> Self {
        let running = generate::PACKAGED.iter().map(|unit| (*unit).to_owned()).collect();
        Self { ran: Mutex::default(), running: Mutex::new(running) }
    }
}

impl Runner for Programs {
    fn is_systemd(&self) -> bool {
        true
    }

    fn is_active(&self, unit: &str) -> Option<bool> {
        Some(self.running.lock().expect("whole").contains(unit))
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        self.ran.lock().expect("whole").push(format!("{program} {}", args.join(" ")).trim_end().to_owned());
        let mut running = self.running.lock().expect("whole");
        match (program, args) {
            ("systemctl", ["start" | "restart", "--", unit]) => {
                running.insert((*unit).to_owned());
            }
            ("systemctl", ["stop", "--", unit]) => {
                running.remove(*unit);
            }
            ("modprobe", ["--", module]) => {
                fs::create_dir_all(format!("/sys/module/{module}")).map_err(|error| error.to_string())?
            }
            _ => {}
        }
        Ok(())
    }
}
