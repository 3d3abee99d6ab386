//! One pass over a spec, section by section. Runs off the loop, for it may wait for disks and programs.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use schema::{
    digest::Digest,
    id::BootId,
    node::{Condition, ConditionStatus, condition::REBOOT_REQUIRED},
    report::{DriftCause, SectionState, SectionStatus},
    spec::{NodeSpec, SecretVersion, Section},
    time::Timestamp,
};

use crate::{
    converge::{self, Books, Host, Keep, Memory},
    drift::{Ledger, Moment},
    hardware::boot,
    path::HostPath,
    process::{Live, Runner, Staged},
    session::Settled,
    state::{Desired, Memories, StateDir, StateError},
    tree::Tree,
    vault::{Released, Vault},
};

/// Converges the host.
#[derive(Debug)]
pub struct Converger {
    tree: Tree,
    runner: Box<dyn Runner>,
    state: StateDir,
    state_dir: Option<HostPath>,
    boot: BootId,
    /// The root of a machine that is described, and boots when it starts for the first time.
    described: Option<PathBuf>,
    /// The host was looked at by this very daemon.
    looked: bool,
    /// None before there is a key.
    vault: Option<Vault>,
    knows_time: bool,
}

/// How a pass ended.
#[derive(Debug, Clone)]
pub struct Pass {
    /// For the report.
    pub settled: Settled,
    /// When something ends by itself.
    pub until: Option<Timestamp>,
    /// What was done, for the log.
    pub done: Vec<String>,
}

#[derive(Debug)]
struct KeepSection<'a> {
    state: &'a StateDir,
    memories: &'a mut Memories,
    section: Section,
}

impl Keep for KeepSection<'_> {
    fn keep(&mut self, memory: &Memory) -> io::Result<()> {
        self.memories.insert(self.section, memory.clone());
        self.state.keep_memories(self.memories).map_err(io::Error::other)
    }

    fn keep_ledger(&mut self, ledger: &Ledger) -> io::Result<()> {
        self.state.keep_ledger(ledger).map_err(io::Error::other)
    }
}

impl Converger {
    /// A converger for a root directory, `/` for this machine.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub fn open(root: &Path, state: &StateDir, boot: BootId) -> io::Result<Self> {
        let tree = Tree::open(root)?;
        let runner: Box<dyn Runner> = if tree.is_live() { Box::new(Live) } else { Box::new(Staged) };
        let root = root.canonicalize()?;
        let state_dir = state.path().canonicalize().ok().and_then(|inside| {
            let relative = inside.strip_prefix(root).ok()?;
            format!("/{}", relative.to_str()?).parse().ok()
        });
        let vault = state.key().ok().flatten().map(|key| Vault::new(key.marks()));
        Ok(Self {
            tree,
            runner,
            state: state.clone(),
            state_dir,
            boot,
            described: None,
            looked: false,
            vault,
            knows_time: true,
        })
    }

    /// The same for a machine that is described.
    #[must_use]
    pub fn of_described(mut self, root: &Path) -> Self {
        self.described = Some(root.to_owned());
        self
    }

    /// Whether the time that passes go by is proven.
    pub const fn knows_time(&mut self, proven: bool) {
        self.knows_time = proven;
    }

    /// The host that is worked on.
    #[must_use]
    pub fn host(&self) -> Host<'_> {
        Host {
            tree: &self.tree,
            runner: self.runner.as_ref(),
            state_dir: self.state_dir.as_ref(),
            vault: self.vault.as_ref(),
            knows_time: self.knows_time,
        }
    }

    /// The values of secrets that a pass would need and nobody here has.
    #[must_use]
    pub fn missing(&self, desired: &Desired) -> Vec<SecretVersion> {
        let (Some(vault), Ok(spec)) = (&self.vault, NodeSpec::from_bytes(desired.spec.as_bytes())) else {
            return Vec::new();
        };
        let memories = self.state.memories().unwrap_or_default();
        vault.missing(&self.tree, &spec, &memories.get(&Section::Host).cloned().unwrap_or_default())
    }

    /// Takes in what the broker said, for the next pass.
    pub fn fill(&mut self, answer: Released) {
        if let Some(vault) = &mut self.vault {
            vault.fill(answer);
        }
    }

    /// Forgets the values that a pass has used.
    pub fn forget_values(&mut self) {
        if let Some(vault) = &mut self.vault {
            vault.clear();
        }
    }

    /// Converges what moved since `before`; everything with `all`, which also finds drift and interrupted work.
    #[must_use]
    pub fn pass(
        &mut self,
        desired: &Desired,
        before: &BTreeMap<Section, SectionStatus>,
        all: bool,
        now: Timestamp,
    ) -> Pass {
        let mut pass = Pass {
            settled: Settled {
                generation: desired.generation,
                sections: BTreeMap::new(),
                conditions: Vec::new(),
                drift: Vec::new(),
            },
            until: None,
            done: Vec::new(),
        };
        let spec = match NodeSpec::from_bytes(desired.spec.as_bytes()) {
            Ok(spec) => spec,
            Err(error) => return pass.fail(attempted(&desired.spec), &error.to_string()),
        };
        let mut memories = match self.state.memories() {
            Ok(memories) => memories,
            Err(error) => {
                return pass.fail(
                    spec.section_digests(),
                    &format!("nothing was changed, for it could not be undone: {error}"),
                );
            }
        };
        let mut ledger = self.state.ledger();
        let moment = Moment { now, cause: self.cause(&ledger) };
        let other_boot = ledger.boot.replace(self.boot) != Some(self.boot);
        self.looked = true;
        let mut staged = Vec::new();
        for (section, digest) in spec.section_digests() {
            let same = before.get(&section).filter(|status| status.digest == digest && !all);
            let ended = match same {
                Some(status) if status.state == SectionState::Converged => {
                    converge::standing(self.host(), section, &spec, now)
                }
                _ => self.section(section, &spec, &mut memories, &mut ledger, moment),
            };
            pass.until = [pass.until, ended.until].into_iter().flatten().min();
            pass.done.extend(ended.done);
            staged.extend(ended.staged);
            let status = SectionStatus { digest, state: ended.state, reason: ended.reason };
            pass.settled.sections.insert(section, status);
        }
        if !staged.is_empty() && self.boots_first() {
            let standing = |section: &Section| converge::standing(self.host(), *section, &spec, now).staged;
            staged = spec.section_digests().keys().flat_map(standing).collect();
        }
        if other_boot && let Err(error) = self.state.keep_ledger(&ledger) {
            tracing::warn!("{error}");
        }
        pass.settled.conditions.extend(self.reboot_required(&staged, now));
        pass.settled.conditions.extend(ledger.conditions(now));
        pass.settled.drift = ledger.report();
        pass
    }

    /// What a change that is found now is put down to.
    fn cause(&self, ledger: &Ledger) -> DriftCause {
        match ledger.boot {
            _ if self.looked => DriftCause::WhileRunning,
            Some(boot) if boot == self.boot => DriftCause::WhileStopped,
            Some(_) => DriftCause::AfterBoot,
            None => DriftCause::Unknown,
        }
    }

    /// A described machine that starts for the first time boots with what it was just set up with.
    fn boots_first(&self) -> bool {
        let booted = self.described.as_deref().map_or(Ok(false), boot::first_kernel);
        booted.unwrap_or_else(|error| {
            tracing::warn!("the described machine does not boot: {error}");
            false
        })
    }

    /// What is staged needs a boot. Where no kernel can be seen, nobody can say what the next one will have.
    fn reboot_required(&self, staged: &[String], now: Timestamp) -> Option<Condition> {
        let sees_kernel = self.tree.text(&HostPath::known("/proc/cmdline")).is_some();
        let (status, reason) =
            if sees_kernel { (ConditionStatus::True, "Staged") } else { (ConditionStatus::Unknown, "NoKernel") };
        (!staged.is_empty()).then(|| Condition {
            kind: REBOOT_REQUIRED.to_owned(),
            status,
            reason: reason.to_owned(),
            message: format!("staged for a boot: {}", staged.join("; ")),
            since: now,
        })
    }

    fn section(
        &self,
        section: Section,
        spec: &NodeSpec,
        memories: &mut Memories,
        ledger: &mut Ledger,
        moment: Moment,
    ) -> converge::Ended {
        let mut memory = memories.get(&section).cloned().unwrap_or_default();
        let mut keep = KeepSection { state: &self.state, memories, section };
        let mut books = Books { memory: &mut memory, ledger, keep: &mut keep };
        converge::converge(self.host(), section, spec, &mut books, moment)
    }

    /// What the kept memories are, for `bcd diff`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn memories(&self) -> Result<Memories, StateError> {
        self.state.memories()
    }
}

/// The digests of the sections of a spec that this version cannot read: the control plane holds them against its own.
fn attempted(spec: &str) -> BTreeMap<Section, Digest> {
    let mut digests = NodeSpec::default().section_digests();
    let spec: serde_json::Value = serde_json::from_str(spec).unwrap_or_default();
    for (section, digest) in &mut digests {
        let said = spec.get(section.as_str()).and_then(|said| schema::canonical::digest(said).ok());
        *digest = said.unwrap_or(*digest);
    }
    digests
}

impl Pass {
    fn fail(mut self, digests: BTreeMap<Section, Digest>, reason: &str) -> Self {
        let failed = |digest| SectionStatus { digest, state: SectionState::Failed, reason: reason.to_owned() };
        self.settled.sections = digests.into_iter().map(|(section, digest)| (section, failed(digest))).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use schema::generation::Generation;

    use super::*;

    fn desired(generation: u64, spec: &str) -> Desired {
        let signature = [String::new(), String::new(), String::new()];
        Desired { generation: Generation(generation), spec: spec.to_owned(), signature }
    }

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().expect("a time")
    }

    struct World {
        dir: tempfile::TempDir,
        converger: Converger,
    }

    fn world() -> World {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(&dir.path().join("var/lib/bcd")).expect("made");
        let converger = Converger::open(dir.path(), &state, BootId::generate()).expect("opens");
        World { dir, converger }
    }

    const MOTD: &str = r#"{"host":{"files":[{"content":"hi","group":"root","mode":"0644","owner":"root","path":"/etc/motd"}],"kernelArgs":["iommu=pt"]}}"#;

    #[test]
    fn a_pass_converges_and_says_what_waits_for_a_boot() {
        let mut world = world();
        let first = world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        assert_eq!(first.settled.conditions[0].status, ConditionStatus::Unknown, "no kernel can be seen");
        std::fs::create_dir_all(world.dir.path().join("proc")).expect("made");
        std::fs::write(world.dir.path().join("proc/cmdline"), "quiet\n").expect("written");
        let pass = world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        assert!(pass.settled.sections.values().all(|status| status.state == SectionState::Converged));
        let condition = &pass.settled.conditions[0];
        assert_eq!((condition.kind.as_str(), condition.status), (REBOOT_REQUIRED, ConditionStatus::True));
        assert_eq!(std::fs::read_to_string(world.dir.path().join("etc/motd")).expect("there"), "hi");
    }

    #[test]
    fn a_described_machine_starts_with_what_it_was_set_up_with_and_waits_for_a_boot_when_that_changes() {
        let World { dir, converger } = world();
        let mut converger = converger.of_described(dir.path());
        let mut status = |spec: &str| {
            let pass = converger.pass(&desired(1, spec), &BTreeMap::new(), true, now());
            assert!(pass.settled.sections.values().all(|status| status.state == SectionState::Converged));
            pass.settled.conditions.iter().map(|condition| condition.status).collect::<Vec<_>>()
        };
        assert_eq!(status(MOTD), []);
        let cmdline = std::fs::read_to_string(dir.path().join("proc/cmdline")).expect("a kernel runs");
        assert!(cmdline.contains("iommu=pt"), "{cmdline}");
        assert_eq!(status(&MOTD.replace("iommu=pt", "quiet")), [ConditionStatus::True]);
        assert_eq!(status(MOTD), [], "what runs is wanted again");
    }

    #[test]
    fn a_section_that_did_not_move_is_not_touched_but_drift_is_found() {
        let mut world = world();
        let first = world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        let motd = world.dir.path().join("etc/motd");
        std::fs::write(&motd, "drift").expect("written");
        let moved = MOTD.replace("{\"host\"", "{\"access\":{\"keys\":[]},\"host\"");
        let second = world.converger.pass(&desired(2, &moved), &first.settled.sections, false, now());
        assert_eq!(second.settled.conditions.len(), 1, "what is staged is still said");
        assert_eq!(std::fs::read_to_string(&motd).expect("there"), "drift");
        let third = world.converger.pass(&desired(2, &moved), &second.settled.sections, true, now());
        assert_eq!(third.done[1..], ["wrote /etc/motd"]);
        assert_eq!(third.settled.drift[0].cause, DriftCause::WhileRunning);
        assert_eq!(std::fs::read_to_string(&motd).expect("there"), "hi");
    }

    #[test]
    fn a_change_is_put_down_to_what_can_be_known() {
        let mut world = world();
        let motd = world.dir.path().join("etc/motd");
        let pass = |world: &mut World| world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        pass(&mut world);
        let state = StateDir::open(&world.dir.path().join("var/lib/bcd")).expect("there");
        let boot = world.converger.boot;
        for (boot, cause) in [(boot, DriftCause::WhileStopped), (BootId::generate(), DriftCause::AfterBoot)] {
            world.converger = Converger::open(world.dir.path(), &state, boot).expect("opens");
            std::fs::write(&motd, cause.as_str()).expect("written");
            assert_eq!(pass(&mut world).settled.drift[0].cause, cause);
        }
        // What was found is told by the next daemon, too, and with its own age.
        world.converger = Converger::open(world.dir.path(), &state, boot).expect("opens");
        let drift = pass(&mut world).settled.drift;
        assert_eq!((drift.len(), drift[0].times, drift[0].first_seen), (1, 2, now()));
    }

    #[test]
    fn a_ledger_that_cannot_be_read_begins_anew() {
        let mut world = world();
        let _ = world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        std::fs::write(world.dir.path().join("var/lib/bcd/drift.json"), "{").expect("written");
        let pass = world.converger.pass(&desired(1, MOTD), &BTreeMap::new(), true, now());
        assert!(pass.settled.sections.values().all(|status| status.state == SectionState::Converged));
    }

    #[test]
    fn a_spec_of_a_later_version_fails_every_section() {
        let mut world = world();
        let later = MOTD.replace("{\"host\"", "{\"devices\":{},\"host\"");
        let pass = world.converger.pass(&desired(1, &later), &BTreeMap::new(), true, now());
        assert_eq!(pass.settled.sections.len(), Section::ALL.len());
        assert!(pass.settled.sections.values().all(|status| status.state == SectionState::Failed));
        // It says what it was asked for all the same.
        let digests = NodeSpec::from_bytes(MOTD.as_bytes()).expect("a spec").section_digests();
        assert!(pass.settled.sections.iter().all(|(section, status)| digests[section] == status.digest));
    }

    #[test]
    fn the_daemons_own_state_is_not_a_place_for_files() {
        let mut world = world();
        let evil = MOTD.replace("/etc/motd", "/var/lib/bcd/memory.json");
        let pass = world.converger.pass(&desired(1, &evil), &BTreeMap::new(), true, now());
        assert_eq!(pass.settled.sections[&Section::Host].state, SectionState::Failed);
    }
}
