//! Carries steps out. A step that fails does not keep the others from being tried, but a memory that cannot be kept
//! ends the pass: nothing is changed that could not be undone.

use std::collections::BTreeSet;

use super::{Host, Keep, Memory, Step, observe::normal};
use crate::{
    path::HostPath,
    section::{Action, Key},
    tree::Entry,
};

/// What carrying out came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why something is not as wanted.
    pub problems: Vec<String>,
    /// What was changed, for the log.
    pub done: Vec<String>,
    /// Places that are now as desired.
    pub made: BTreeSet<Key>,
}

/// Carries out the steps in order.
pub fn carry_out(host: Host<'_>, steps: &[Step], memory: &mut Memory, keep: &mut dyn Keep) -> Outcome {
    let mut outcome = Outcome::default();
    let mut failed: BTreeSet<Key> = BTreeSet::new();
    let mut ran: Vec<Action> = Vec::new();
    for step in steps {
        match step {
            Step::Remember { items, dirs, owed, restarts, secrets } => {
                memory.items.extend(items.iter().cloned());
                memory.dirs.extend(dirs.iter().cloned());
                memory.owed.extend(owed.iter().cloned());
                memory.restarts.extend(restarts.iter().cloned());
                memory.restarts.retain(|_, units| !units.is_empty());
                for (path, written) in secrets {
                    match written {
                        Some(written) => memory.secrets.insert(path.clone(), written.clone()),
                        None => memory.secrets.remove(path),
                    };
                }
                if let Err(error) = keep.keep(memory) {
                    outcome.problems.push(format!("nothing was changed, for the memory cannot be kept: {error}"));
                    return outcome;
                }
            }
            Step::Forget { items, dirs } => {
                let gone = |key: &Key| items.contains(key) && !failed.contains(key);
                memory.items.retain(|key, _| !gone(key));
                memory.restarts.retain(|path, _| !gone(&Key::Path(path.clone())));
                memory.secrets.retain(|path, _| !gone(&Key::Path(path.clone())));
                memory.dirs.retain(|dir| !dirs.contains(dir));
                finish(memory, keep, &mut ran, &mut outcome);
            }
            Step::Run(action) if is_own(action) && !taken_off(action, memory, keep, &mut ran, &mut outcome) => {}
            Step::Run(action) => match run(host, action) {
                Ok(really) => {
                    ran.push(action.clone());
                    outcome.done.extend(really.then(|| action.to_string()));
                }
                Err(problem) => outcome.problems.push(format!("{action}: {problem}")),
            },
            _ => match one(host, step) {
                Ok(text) => {
                    outcome.made.extend(key_of(step).filter(|_| has_taken(host, step)));
                    outcome.done.extend(text);
                }
                Err(problem) => {
                    failed.extend(key_of(step));
                    outcome.problems.push(problem);
                }
            },
        }
    }
    if !ran.is_empty() {
        finish(memory, keep, &mut ran, &mut outcome);
    }
    outcome
}

fn finish(memory: &mut Memory, keep: &mut dyn Keep, ran: &mut Vec<Action>, outcome: &mut Outcome) {
    memory.owed.retain(|action| !ran.contains(action));
    ran.clear();
    if let Err(error) = keep.keep(memory) {
        outcome.problems.push(format!("the memory cannot be kept: {error}"));
    }
}

/// Whether an action ends the daemon that runs it.
fn is_own(action: &Action) -> bool {
    matches!(action, Action::Restart(unit) if schema::unit::refused(unit).is_some())
}

/// Takes what ends the daemon off what is owed before it is run, so that the next one does not find it: it runs once at
/// most. Whether that is kept.
fn taken_off(
    action: &Action,
    memory: &mut Memory,
    keep: &mut dyn Keep,
    ran: &mut Vec<Action>,
    outcome: &mut Outcome,
) -> bool {
    memory.owed.retain(|owed| owed != action && !ran.contains(owed));
    ran.clear();
    match keep.keep(memory) {
        Ok(()) => true,
        Err(error) => {
            memory.owed.insert(action.clone());
            outcome.problems.push(format!("{action}: not run, for the memory cannot be kept: {error}"));
            false
        }
    }
}

fn key_of(step: &Step) -> Option<Key> {
    match step {
        Step::Put(path, _) => Some(Key::Path(path.clone())),
        Step::SetValue(path, _) => Some(Key::Value(path.clone())),
        Step::Load(name) => Some(Key::Module(name.clone())),
        Step::Activate(unit, _) => Some(Key::Active(unit.clone())),
        _ => None,
    }
}

fn one(host: Host<'_>, step: &Step) -> Result<Option<String>, String> {
    let tree = host.tree;
    let said = |result: Result<(), crate::tree::TreeError>| result.map_err(|error| error.to_string());
    match step {
        Step::Sweep(path) => said(tree.remove_stray(path)).map(|()| None),
        Step::MakeDir(path) => said(tree.make_dir(path)).map(|()| None),
        Step::RemoveDir(path) => tree.remove_dir(path).map(|_| None).map_err(|error| error.to_string()),
        Step::Put(path, Entry::File(file)) => said(tree.write_file(path, file)).map(|()| Some(format!("wrote {path}"))),
        Step::Put(path, Entry::Link(target)) => {
            said(tree.write_link(path, target)).map(|()| Some(format!("linked {path}")))
        }
        Step::Put(path, Entry::Absent) => said(tree.remove(path)).map(|()| Some(format!("removed {path}"))),
        Step::Put(path, Entry::Other(what)) => Err(format!("{path}: {what} cannot be made")),
        Step::SetValue(path, value) => set_value(host, path, value).map(|()| Some(format!("set {path} to {value}"))),
        Step::Load(name) => {
            host.runner.run("modprobe", &["--", name])?;
            Ok(Some(format!("loaded module {name}")))
        }
        Step::Activate(unit, wanted) => {
            let verb = if *wanted { "start" } else { "stop" };
            host.runner.run("systemctl", &[verb, "--", unit])?;
            Ok(Some(format!("{verb} {unit}")))
        }
        Step::Remember { .. } | Step::Forget { .. } | Step::Run(_) => Ok(None),
    }
}

fn set_value(host: Host<'_>, path: &HostPath, value: &str) -> Result<(), String> {
    host.tree.write_value(path, value).map_err(|error| error.to_string())?;
    let read = host.tree.text(path).map(|text| normal(&text));
    // The kernel reserves as many huge pages as it finds; the rest is staged for a boot.
    let partial = path.is_under("/sys/kernel/mm/hugepages");
    if partial || read.as_deref() == Some(&normal(value)) {
        Ok(())
    } else {
        Err(format!("{path}: the kernel made {} of {value}", read.as_deref().unwrap_or("nothing")))
    }
}

/// Whether the kernel has all that it was given: of huge pages it may find fewer.
fn has_taken(host: Host<'_>, step: &Step) -> bool {
    match step {
        Step::SetValue(path, value) => host.tree.text(path).is_some_and(|text| normal(&text) == normal(value)),
        _ => true,
    }
}

/// Runs what is owed. Whether there was anything to run: a directory that stands for a root has no programs.
fn run(host: Host<'_>, action: &Action) -> Result<bool, String> {
    let runner = host.runner;
    let systemctl = |args: &[&str]| runner.run("systemctl", args).map(|()| true);
    match action {
        Action::UpdateGrub => {
            let there = host.tree.is_live() && host.tree.exists(&HostPath::known("/usr/sbin/update-grub"));
            if there { runner.run("update-grub", &[]).map(|()| true) } else { Ok(false) }
        }
        _ if !runner.is_systemd() => Ok(false),
        Action::ReloadSystemd => systemctl(&["daemon-reload"]),
        Action::Restart(unit) if runner.is_active(unit) == Some(true) => systemctl(&["restart", "--", unit]),
        Action::Restart(_) => Ok(false),
        // Debian calls it one way, others the other.
        Action::ReloadSshd => systemctl(&["try-reload-or-restart", "--", "ssh.service"])
            .or_else(|_| systemctl(&["try-reload-or-restart", "--", "sshd.service"])),
    }
}
