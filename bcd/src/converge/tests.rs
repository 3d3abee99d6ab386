//! Facts about convergence, on real files in a temporary root, with power cuts at every step.

mod secrets;
mod units;

use std::{collections::BTreeMap, fs, io, os::unix::fs::PermissionsExt as _, path::Path, sync::Mutex};

use proptest::prelude::*;
use schema::{
    report::DriftCause,
    spec::{HostFile, KernelModule, PackagePin, Unit},
};

use super::*;

/// A host in a temporary directory, with a memory that survives a power cut as far as it was kept.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    tree: Tree,
    kept: Memory,
    machine: Machine,
    pub(crate) ledger: Ledger,
    pub(crate) now: Timestamp,
    pub(crate) done: Vec<String>,
    /// How often something was kept.
    pub(crate) writes: usize,
    pub(crate) vault: Option<Vault>,
}

/// Programs that are only written down.
#[derive(Debug, Default)]
struct Machine {
    systemd: bool,
    ran: Mutex<Vec<String>>,
}

impl Machine {
    fn host<'a>(&'a self, tree: &'a Tree, vault: Option<&'a Vault>) -> Host<'a> {
        Host { tree, runner: self, state_dir: None, vault, knows_time: true }
    }
}

impl Runner for Machine {
    fn is_systemd(&self) -> bool {
        self.systemd
    }

    fn is_active(&self, unit: &str) -> Option<bool> {
        self.systemd.then(|| unit != "idle.service")
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        self.ran.lock().expect("whole").push(format!("{program} {}", args.join(" ")));
        Ok(())
    }
}

#[derive(Debug)]
struct Disk<'a> {
    tree: &'a Tree,
    kept: &'a mut Memory,
    ledger: &'a mut Ledger,
    writes: &'a mut usize,
}

impl Keep for Disk<'_> {
    fn keep(&mut self, memory: &Memory) -> io::Result<()> {
        let cut = || self.tree.fault.point();
        cut()?;
        *self.kept = memory.clone();
        *self.writes += 1;
        cut()
    }

    fn keep_ledger(&mut self, ledger: &Ledger) -> io::Result<()> {
        let cut = || self.tree.fault.point();
        cut()?;
        *self.ledger = ledger.clone();
        *self.writes += 1;
        cut()
    }
}

pub(crate) type Picture = BTreeMap<String, (String, u32, Vec<u8>)>;

impl World {
    pub(crate) fn new(initial: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (path, content) in initial {
            let at = dir.path().join(&path[1..]);
            fs::create_dir_all(at.parent().expect("a parent")).expect("made");
            fs::write(&at, content).expect("written");
            fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).expect("set");
        }
        let tree = Tree::open(dir.path()).expect("opens");
        let (kept, ledger) = (Memory::default(), Ledger::default());
        Self {
            dir,
            tree,
            kept,
            ledger,
            machine: Machine::default(),
            now: now(),
            done: Vec::new(),
            writes: 0,
            vault: None,
        }
    }

    pub(crate) fn converge(&mut self, section: Section, spec: &NodeSpec) -> Ended {
        let host = self.machine.host(&self.tree, self.vault.as_ref());
        let (mut memory, mut ledger) = (self.kept.clone(), self.ledger.clone());
        let mut disk =
            Disk { tree: &self.tree, kept: &mut self.kept, ledger: &mut self.ledger, writes: &mut self.writes };
        let mut books = Books { memory: &mut memory, ledger: &mut ledger, keep: &mut disk };
        let moment = Moment { now: self.now, cause: DriftCause::WhileRunning };
        let ended = converge(host, section, spec, &mut books, moment);
        self.done.clone_from(&ended.done);
        ended
    }

    pub(crate) fn host(&mut self, spec: &NodeSpec) -> Ended {
        self.converge(Section::Host, spec)
    }

    pub(crate) fn steps(&self, spec: &NodeSpec) -> Planned {
        let host = self.machine.host(&self.tree, self.vault.as_ref());
        plan(host, Section::Host, spec, &self.kept, &self.ledger, self.now).0
    }

    /// The power goes off at the `n`-th point and comes back. Whether it went off at all.
    pub(crate) fn interrupted(&mut self, spec: &NodeSpec, n: u32) -> bool {
        self.tree.fault.cut_at(n);
        self.host(spec);
        let tripped = self.tree.fault.tripped();
        self.tree.fault.cut_at(0);
        tripped
    }

    fn ran(&self) -> Vec<String> {
        std::mem::take(&mut *self.machine.ran.lock().expect("whole"))
    }

    pub(crate) fn picture(&self) -> Picture {
        let mut picture = Picture::new();
        walk(self.dir.path(), self.dir.path(), &mut picture);
        picture
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join(&path[1..])).ok()
    }
}

fn walk(root: &Path, at: &Path, picture: &mut Picture) {
    for entry in fs::read_dir(at).expect("readable") {
        let path = entry.expect("an entry").path();
        let meta = path.symlink_metadata().expect("there");
        let name = path.strip_prefix(root).expect("inside").display().to_string();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_dir() {
            picture.insert(name, ("dir".into(), mode, Vec::new()));
            walk(root, &path, picture);
        } else if meta.is_symlink() {
            let target = fs::read_link(&path).expect("a link").display().to_string();
            picture.insert(name, ("link".into(), 0, target.into_bytes()));
        } else {
            picture.insert(name, ("file".into(), mode, fs::read(&path).expect("readable")));
        }
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub(crate) fn file(path: &str, content: &str, mode: &str) -> HostFile {
    HostFile {
        path: path.into(),
        content: content.into(),
        mode: mode.into(),
        owner: "root".into(),
        group: "root".into(),
        ..HostFile::default()
    }
}

pub(crate) fn files(files: Vec<HostFile>) -> NodeSpec {
    let mut spec = NodeSpec::default();
    spec.host.files = files;
    spec
}

/// One of everything.
pub(crate) fn rich() -> NodeSpec {
    let mut spec = files(vec![file("/etc/motd", "hello\n", "0644"), file("/opt/a/b/run", "#!/bin/sh\n", "0755")]);
    spec.host.sysctl.insert("vm.swappiness".into(), "1".into());
    spec.host.sysctl.insert("net.core.rmem_max".into(), "1".into());
    spec.host.modules = vec![
        KernelModule { name: "nvidia".into(), options: "NVreg_X=1".into(), blacklist: false },
        KernelModule { name: "nouveau".into(), options: String::new(), blacklist: true },
    ];
    spec.host.kernel_args = vec!["iommu=pt".into()];
    spec.host.units = vec![Unit {
        name: "x.service".into(),
        content: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n".into(),
        enabled: Some(true),
        active: Some(true),
        ..Unit::default()
    }];
    spec.host.packages = vec![PackagePin { name: "cuda-*".into(), version: "12.4*".into() }];
    spec
}

const INITIAL: [(&str, &str); 3] = [
    ("/etc/motd", "before\n"),
    ("/proc/sys/vm/swappiness", "60\n"),
    ("/etc/modprobe.d/60-better-compute.conf", "old\n"),
];

pub(crate) fn ends_well(ended: &Ended) {
    assert_eq!((ended.state, ended.reason.as_str()), (SectionState::Converged, ""));
}

#[test]
fn a_rich_spec_becomes_real() {
    let mut world = World::new(&INITIAL);
    let ended = world.host(&rich());
    ends_well(&ended);
    assert_eq!(ended.staged, ["kernel arguments iommu=pt"]);
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
    assert_eq!(world.text("/proc/sys/vm/swappiness").as_deref(), Some("1\n"));
    assert!(world.text("/etc/sysctl.d/60-better-compute.conf").expect("there").contains("vm.swappiness = 1\n"));
    assert!(world.text("/etc/modprobe.d/60-better-compute.conf").expect("there").contains("blacklist nouveau\n"));
    assert!(world.text("/etc/apt/preferences.d/60-better-compute").expect("there").contains("Pin: version 12.4*\n"));
    let link = fs::read_link(world.dir.path().join("etc/systemd/system/multi-user.target.wants/x.service"));
    assert_eq!(link.expect("a link"), Path::new("/etc/systemd/system/x.service"));
    assert_eq!(world.steps(&rich()), Planned::default(), "a second pass has nothing to do");
}

#[test]
fn what_leaves_the_spec_is_undone_bit_for_bit() {
    let mut world = World::new(&INITIAL);
    let before = world.picture();
    ends_well(&world.host(&rich()));
    ends_well(&world.host(&files(vec![file("/opt/a/other", "x", "0600")])));
    assert_eq!(world.text("/opt/a/b/run"), None);
    assert!(world.dir.path().join("opt/a").is_dir(), "still needed");
    ends_well(&world.host(&NodeSpec::default()));
    assert_eq!(world.picture(), before);
    assert_eq!(world.kept, Memory::default());
}

#[test]
fn a_directory_that_somebody_else_uses_stays() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&files(vec![file("/opt/a/x", "x", "0600")])));
    fs::write(world.dir.path().join("opt/a/theirs"), "keep").expect("written");
    ends_well(&world.host(&NodeSpec::default()));
    assert_eq!(world.text("/opt/a/theirs").as_deref(), Some("keep"));
    assert_eq!(world.kept, Memory::default());
}

#[test]
fn a_power_cut_anywhere_is_finished_by_the_next_pass() {
    let mut whole = World::new(&INITIAL);
    let before = whole.picture();
    ends_well(&whole.host(&rich()));
    let mut points = 0;
    for n in 1.. {
        let mut world = World::new(&INITIAL);
        if !world.interrupted(&rich(), n) {
            break;
        }
        points = n;
        ends_well(&world.host(&rich()));
        assert_eq!(world.picture(), whole.picture(), "cut at {n}");
        assert_eq!(world.kept, whole.kept, "cut at {n}");
    }
    assert!(points > 40, "{points} points only");

    for n in 1..=points {
        let mut world = World::new(&INITIAL);
        assert!(world.interrupted(&rich(), n));
        ends_well(&world.host(&NodeSpec::default()));
        assert_eq!(world.picture(), before, "cut at {n}, then undone");
        assert_eq!(world.kept, Memory::default(), "cut at {n}, then undone");
    }
}

#[test]
fn a_power_cut_while_undoing_is_finished_by_the_next_pass() {
    let before = World::new(&INITIAL).picture();
    for n in 1.. {
        let mut world = World::new(&INITIAL);
        ends_well(&world.host(&rich()));
        if !world.interrupted(&NodeSpec::default(), n) {
            assert!(n > 15, "{n} points only");
            break;
        }
        ends_well(&world.host(&NodeSpec::default()));
        assert_eq!(world.picture(), before, "cut at {n}");
        assert_eq!(world.kept, Memory::default(), "cut at {n}");
    }
}

#[test]
fn nothing_changes_when_the_memory_cannot_be_kept() {
    let mut world = World::new(&INITIAL);
    let before = world.picture();
    world.interrupted(&rich(), 1);
    assert_eq!(world.picture(), before);
}

#[test]
fn drift_is_put_right_and_the_first_origin_stays() {
    let mut world = World::new(&[("/etc/motd", "before\n")]);
    let spec = files(vec![file("/etc/motd", "hello\n", "0644")]);
    ends_well(&world.host(&spec));
    fs::write(world.dir.path().join("etc/motd"), "drifted").expect("written");
    ends_well(&world.host(&spec));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
    ends_well(&world.host(&NodeSpec::default()));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("before\n"));
}

#[test]
fn one_bad_item_fails_the_section_and_the_rest_goes_on() {
    let mut world = World::new(&[]);
    let mut bad = file("/etc/b", "x", "0644");
    bad.owner = "nobody-here".into();
    let ended = world.host(&files(vec![file("/etc/a", "x", "0644"), bad]));
    assert_eq!(ended.state, SectionState::Failed);
    assert_eq!(ended.reason, "file /etc/b: there is no user \"nobody-here\" here");
    assert_eq!(world.text("/etc/a").as_deref(), Some("x"));
}

#[test]
fn a_managed_file_that_turns_bad_stays_as_it_was() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&files(vec![file("/etc/a", "good", "0644")])));
    let ended = world.host(&files(vec![file("/etc/a", "worse", "rw-r--r--")]));
    assert_eq!(ended.state, SectionState::Failed);
    assert_eq!(world.text("/etc/a").as_deref(), Some("good"));
}

#[test]
fn hostile_specs_fail_and_touch_nothing() {
    let big = "x".repeat(10 * 1024 * 1024);
    let cases = [
        file("/../../etc/passwd", "x", "0644"),
        file("etc/passwd", "x", "0644"),
        file("/etc/../etc/passwd", "x", "0644"),
        file("/etc/a\0b", "x", "0644"),
        file("/proc/sys/kernel/core_pattern", "|/evil", "0644"),
        file("/var/lib/bcd/memory.json", "{}", "0644"),
        file("/etc/ssh/better-compute/authorized_keys.d/root", "x", "0644"),
        file("/etc/a", "x", "99999"),
        file("/etc/a", "x", "0888"),
        file("/etc/a", "x", ""),
        file("/etc/a", &big, "0644"),
    ];
    for case in cases {
        let mut world = World::new(&[]);
        let path = case.path.clone();
        let ended = world.host(&files(vec![case]));
        assert_eq!(ended.state, SectionState::Failed, "{path:?}");
        assert!(world.picture().is_empty(), "{path:?}");
    }
}

#[test]
fn a_directory_in_the_place_of_a_file_is_left_alone() {
    let mut world = World::new(&[("/etc/motd/x", "x")]);
    let ended = world.host(&files(vec![file("/etc/motd", "hello\n", "0644")]));
    assert_eq!(ended.reason, "/etc/motd: it is a directory");
    assert_eq!(world.text("/etc/motd/x").as_deref(), Some("x"));
}

#[test]
fn a_link_out_of_the_root_fails_the_section() {
    let mut world = World::new(&[]);
    std::os::unix::fs::symlink("../../../../../../../tmp", world.dir.path().join("out")).expect("link");
    let ended = world.host(&files(vec![file("/out/evil", "x", "0644")]));
    assert_eq!(ended.reason, "/out/evil: a link on the way leaves the root");
}

#[test]
fn a_break_glass_key_ends_by_itself() {
    let mut world = World::new(&[]);
    let spec = break_glass();
    let ended = world.converge(Section::Access, &spec);
    ends_well(&ended);
    assert_eq!(ended.until, spec.access.keys[0].until);
    let path = "/etc/ssh/better-compute/authorized_keys.d/root";
    assert!(world.text(path).is_some());

    world.now = "2026-03-01T13:00:00Z".parse().expect("a time");
    ends_well(&world.converge(Section::Access, &spec));
    assert!(world.picture().is_empty());
}

#[test]
fn break_glass_keys_add_to_what_the_hosts_ssh_server_reads() {
    let mut world = World::new(&[
        ("/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile .ssh/late\n"),
        ("/etc/ssh/sshd_config.d/50-site.conf", "AuthorizedKeysFile /etc/keys/%u\n"),
    ]);
    ends_well(&world.converge(Section::Access, &break_glass()));
    let drop_in = world.text("/etc/ssh/sshd_config.d/00-better-compute.conf").expect("there");
    assert!(drop_in.contains("AuthorizedKeysFile /etc/keys/%u /etc/ssh/better-compute/"), "{drop_in}");

    let mut world = World::new(&[("/etc/ssh/sshd_config", "PermitRootLogin no\n")]);
    let ended = world.converge(Section::Access, &break_glass());
    assert_eq!(ended.reason, "/etc/ssh/sshd_config does not include /etc/ssh/sshd_config.d/*.conf");
}

fn break_glass() -> NodeSpec {
    let mut spec = NodeSpec::default();
    spec.access.keys.push(schema::spec::AccessKey {
        principal: "ada".into(),
        account: "root".into(),
        key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f".into(),
        until: Some("2026-03-01T13:00:00Z".parse().expect("a time")),
    });
    spec
}

fn some_files() -> impl Strategy<Value = NodeSpec> {
    let path = prop::sample::select(vec!["/etc/a", "/etc/b", "/etc/d/c", "/opt/e/f/g", "/opt/e/h"]);
    let mode = prop::sample::select(vec!["0644", "0600", "4755"]);
    let entries = prop::collection::btree_map(path, ("[a-c\n]{0,4}", mode), 0..5);
    let values = prop::collection::btree_map(prop::sample::select(vec!["vm.x", "vm.y", "net.z"]), "[0-9]{1,3}", 0..3);
    (entries, values).prop_map(|(entries, values)| {
        let mut spec = files(entries.into_iter().map(|(path, (content, mode))| file(path, &content, mode)).collect());
        spec.host.sysctl = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_walk_through_specs_ends_where_it_began(
        walk in prop::collection::vec((some_files(), prop::option::of(1u32..30)), 1..5),
    ) {
        let initial = [("/etc/a", "one"), ("/opt/e/h", "two"), ("/proc/sys/vm/x", "7\n"), ("/proc/sys/net/z", "9\n")];
        let mut world = World::new(&initial);
        let before = world.picture();
        for (spec, cut) in &walk {
            if let Some(n) = cut {
                world.interrupted(spec, *n);
            }
            ends_well(&world.host(spec));
            prop_assert_eq!(world.steps(spec), Planned::default());
            for file in &spec.host.files {
                let text = world.text(&file.path);
                prop_assert_eq!(text.as_deref(), Some(file.content.as_str()));
            }
        }
        ends_well(&world.host(&NodeSpec::default()));
        prop_assert_eq!(world.picture(), before);
        prop_assert_eq!(&world.kept, &Memory::default());
    }
}
