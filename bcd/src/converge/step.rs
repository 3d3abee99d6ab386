//! `steps(desired, observed, memory)`: what to do, in order. Pure.
//!
//! The order: remember, undo what is no longer wanted, make what is wanted, run what is owed, forget what was undone.
//! No step depends on how far an earlier run came; a host that is as wanted gives no steps.

use std::collections::{BTreeMap, BTreeSet};

use super::{Memory, Observed, Origin, Seen, observe::normal};
use crate::{
    path::HostPath,
    section::{Action, Desired, Key, Want},
    tree::Entry,
    vault::Written,
};

/// One idempotent step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Keep on disk what is needed to undo, and what will be owed, before anything changes.
    Remember {
        /// Places that become managed, with what they hold.
        items: Vec<(Key, Origin)>,
        /// Directories that will be made.
        dirs: Vec<HostPath>,
        /// Programs that will have to run.
        owed: Vec<Action>,
        /// Units that start again after a file changed; none any more when the list is empty.
        restarts: Vec<(HostPath, BTreeSet<String>)>,
        /// What files with secrets will hold; no secret any more when there is nothing.
        secrets: Vec<(HostPath, Option<Written>)>,
    },
    /// Remove what an interrupted write left beside a place.
    Sweep(HostPath),
    /// Make a directory.
    MakeDir(HostPath),
    /// Make a path hold this.
    Put(HostPath, Entry),
    /// Make the kernel hold this value.
    SetValue(HostPath, String),
    /// Load a module.
    Load(String),
    /// Start or stop a unit.
    Activate(String, bool),
    /// Remove a directory that we made, if it is empty.
    RemoveDir(HostPath),
    /// Run a program that is owed.
    Run(Action),
    /// Forget what was undone, in the memory on disk.
    Forget {
        /// Places that are no longer managed.
        items: Vec<Key>,
        /// Directories that are gone, or not ours any more.
        dirs: Vec<HostPath>,
    },
}

/// Steps, and what cannot be done at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Planned {
    /// In order.
    pub steps: Vec<Step>,
    /// For people.
    pub problems: Vec<String>,
}

/// What to do so that the host is as desired.
#[must_use]
pub fn steps(desired: &Desired, observed: &Observed, memory: &Memory) -> Planned {
    let mut planner = Planner { desired, observed, memory, problems: Vec::new() };
    let undo = planner.undo();
    let make = planner.make();
    planner.assemble(undo, make)
}

fn owed_after(step: &Step, restarts: &BTreeMap<HostPath, BTreeSet<String>>) -> Vec<Action> {
    let Step::Put(path, entry) = step else { return Vec::new() };
    let own = |action: &Action| matches!(entry, Entry::File(_)) || !matches!(action, Action::Restart(_));
    let named = restarts.get(path).into_iter().flatten().cloned().map(Action::Restart);
    Action::after(path).into_iter().filter(own).chain(named).collect()
}

struct Planner<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    memory: &'a Memory,
    problems: Vec<String>,
}

#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    forget: Vec<Key>,
}

#[derive(Default)]
struct Make {
    remember: Vec<(Key, Origin)>,
    dirs: BTreeSet<HostPath>,
    early: Vec<Step>,
    late: Vec<Step>,
}

impl Planner<'_> {
    fn undo(&mut self) -> Undo {
        let mut undo = Undo::default();
        for (key, origin) in self.memory.items.iter().rev() {
            if self.desired.wants.contains_key(key) || self.desired.held.contains(key) {
                continue;
            }
            match self.undo_one(key, origin) {
                Ok(step) => {
                    undo.steps.extend(step);
                    undo.forget.push(key.clone());
                }
                Err(problem) => self.problems.push(format!("{key}: cannot be undone: {problem}")),
            }
        }
        undo
    }

    fn undo_one(&self, key: &Key, origin: &Origin) -> Result<Option<Step>, String> {
        match (key, origin, self.observed.seen.get(key)) {
            (_, _, Some(Seen::Unreachable(why))) => Err(why.clone()),
            (Key::Path(path), origin, Some(Seen::Entry(seen))) => {
                let Some(entry) = origin.entry() else { return Ok(None) };
                match seen {
                    Entry::Other(what) => Err(format!("it is {what}")),
                    seen if *seen == entry => Ok(None),
                    _ => Ok(Some(Step::Put(path.clone(), entry))),
                }
            }
            (Key::Value(path), Origin::Value(before), Some(Seen::Value(Some(seen)))) => {
                Ok((seen != before).then(|| Step::SetValue(path.clone(), before.clone())))
            }
            // Nobody undoes what would end the daemon, or start a shutdown.
            (Key::Active(unit), ..) if schema::unit::refused(unit).is_some() => Ok(None),
            (Key::Active(unit), Origin::Active(before), Some(Seen::Active(Some(seen)))) => {
                Ok((seen != before).then(|| Step::Activate(unit.clone(), *before)))
            }
            // The kernel has no such value any more, nobody can ask systemd, or a module stays loaded.
            _ => Ok(None),
        }
    }

    fn make(&mut self) -> Make {
        let mut make = Make::default();
        for (key, want) in &self.desired.wants {
            let Some(seen) = self.observed.seen.get(key) else { continue };
            match (key, want, seen) {
                (_, _, Seen::Unreachable(why)) => self.problems.push(why.clone()),
                (Key::Path(path), want, Seen::Entry(seen)) => self.make_path(path, want, seen, &mut make),
                (Key::Value(path), Want::Value(value), Seen::Value(Some(seen))) => {
                    self.remember(&mut make, key, || Origin::Value(seen.clone()));
                    if normal(value) != *seen {
                        make.early.push(Step::SetValue(path.clone(), value.clone()));
                    }
                }
                (Key::Module(name), Want::Loaded, Seen::Loaded(false)) => make.late.push(Step::Load(name.clone())),
                (Key::Active(name), Want::Active(wanted), Seen::Active(seen)) => {
                    self.remember(&mut make, key, || Origin::Active(seen.unwrap_or(false)));
                    if *seen != Some(*wanted) {
                        make.late.push(Step::Activate(name.clone(), *wanted));
                    }
                }
                _ => {}
            }
        }
        make
    }

    fn make_path(&mut self, path: &HostPath, want: &Want, seen: &Entry, make: &mut Make) {
        let origin = match seen {
            Entry::Other(what) => return self.problems.push(format!("{path}: it is {what}")),
            Entry::Absent => Origin::Absent,
            // What was there in place of a secret may be one: it is not kept, and not brought back.
            Entry::File(_) if self.desired.secrets.contains_key(path) => Origin::Absent,
            Entry::File(file) => Origin::File(file.clone()),
            Entry::Link(target) => Origin::Link(target.clone()),
        };
        let entry = match want {
            Want::File(file) => Entry::File(file.clone()),
            Want::Link(target) => Entry::Link(target.clone()),
            _ => Entry::Absent,
        };
        self.remember(make, &Key::Path(path.clone()), || origin);
        if *seen == entry {
            return;
        }
        if entry != Entry::Absent {
            let missing = self.observed.missing_dirs.get(path);
            make.dirs.extend(missing.into_iter().flatten().cloned());
        }
        make.early.push(Step::Put(path.clone(), entry));
    }

    fn remember(&self, make: &mut Make, key: &Key, origin: impl FnOnce() -> Origin) {
        if !self.memory.items.contains_key(key) {
            make.remember.push((key.clone(), origin()));
        }
    }

    fn assemble(self, undo: Undo, make: Make) -> Planned {
        let (undone, made) = (undo.steps.iter(), make.early.iter());
        let mut owed: BTreeSet<Action> = undone.flat_map(|step| owed_after(step, &self.memory.restarts)).collect();
        owed.extend(made.flat_map(|step| owed_after(step, &self.desired.restarts)));
        owed.extend(self.memory.owed.iter().cloned());

        let mut steps = Vec::new();
        let new_owed: Vec<_> = owed.difference(&self.memory.owed).cloned().collect();
        let new_dirs: Vec<_> = make.dirs.difference(&self.memory.dirs).cloned().collect();
        let (restarts, secrets) = (self.restarts(), self.secrets());
        let nothing = make.remember.is_empty() && new_dirs.is_empty() && new_owed.is_empty();
        if !(nothing && restarts.is_empty() && secrets.is_empty()) {
            steps.push(Step::Remember { items: make.remember, dirs: new_dirs, owed: new_owed, restarts, secrets });
        }
        steps.extend(self.observed.strays.iter().cloned().map(Step::Sweep));
        steps.extend(undo.steps);
        let gone: Vec<HostPath> = self.memory.dirs.iter().rev().filter(|dir| !self.is_needed(dir)).cloned().collect();
        steps.extend(gone.iter().cloned().map(Step::RemoveDir));
        steps.extend(make.dirs.into_iter().map(Step::MakeDir));
        steps.extend(make.early);
        steps.extend(owed.into_iter().map(Step::Run));
        steps.extend(make.late);
        if !(undo.forget.is_empty() && gone.is_empty()) {
            steps.push(Step::Forget { items: undo.forget, dirs: gone });
        }
        Planned { steps, problems: self.problems }
    }

    /// What has to be remembered of the units that files restart. What leaves the spec is needed until it is undone.
    fn restarts(&self) -> Vec<(HostPath, BTreeSet<String>)> {
        let (desired, memory) = (&self.desired.restarts, &self.memory.restarts);
        let is_wanted = |path: &HostPath| {
            let key = Key::Path(path.clone());
            self.desired.wants.contains_key(&key) || self.desired.held.contains(&key)
        };
        let gone = memory.keys().filter(|path| is_wanted(path) && !desired.contains_key(*path));
        let gone = gone.map(|path| (path.clone(), BTreeSet::new()));
        let other = desired.iter().filter(|(path, units)| memory.get(*path) != Some(*units));
        gone.chain(other.map(|(path, units)| (path.clone(), units.clone()))).collect()
    }

    /// What has to be remembered of files with secrets. What leaves the spec is known as one until it is undone.
    fn secrets(&self) -> Vec<(HostPath, Option<Written>)> {
        let (desired, memory) = (&self.desired.secrets, &self.memory.secrets);
        let is_other = |path: &&HostPath| {
            self.desired.wants.contains_key(&Key::Path((*path).clone())) && !desired.contains_key(*path)
        };
        let gone = memory.keys().filter(is_other).map(|path| (path.clone(), None));
        let new = desired.iter().filter(|(path, written)| memory.get(*path) != Some(*written));
        gone.chain(new.map(|(path, written)| (path.clone(), Some(written.clone())))).collect()
    }

    fn is_needed(&self, dir: &HostPath) -> bool {
        let wanted = self.desired.wants.iter().filter(|(_, want)| **want != Want::Absent).map(|(key, _)| key);
        wanted.chain(&self.desired.held).any(|key| matches!(key, Key::Path(path) if path.is_under(dir.as_str())))
    }
}
