//! What an effect leaves behind on a host, in words that have nothing to do with those of the classifier.

use std::collections::BTreeSet;

use schema::{
    effect::{Effect, EffectAction, EffectClass},
    spec::NodeSpec,
};

use super::{
    generate,
    host::{Job, Measured},
};

/// What must be found afterwards.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) paths: BTreeSet<String>,
    pub(super) programs: BTreeSet<String>,
    pub(super) class: EffectClass,
}

/// What the effects of a plan must leave behind. An effect that needs something of the host (a unit that runs) and does
/// not find it there leaves nothing.
pub(super) fn of(effects: &[Effect], job: &Job, host: &Measured) -> Expected {
    let mut all = Expected { paths: BTreeSet::new(), programs: BTreeSet::new(), class: EffectClass::None };
    for effect in effects {
        let (what, name) = effect.subject.split_once(' ').unwrap_or((&effect.subject, ""));
        let (paths, programs): (Vec<String>, Vec<String>) = match (what, effect.action) {
            (_, EffectAction::Set) if effect.class == EffectClass::None => continue,
            ("file", _) => (vec![name.to_owned()], vec![]),
            ("sysctl", _) => (vec![format!("/proc/sys/{}", name.replace('.', "/"))], vec![]),
            ("huge", _) => (vec![pages(name)], vec![]),
            ("module", EffectAction::Load) => (vec![], vec![format!("modprobe -- {name}")]),
            // A unit that is linked or not any more has its own line, which looks whether there is a link to change.
            ("systemd", _) if effect.cause.as_deref().is_some_and(|cause| cause.starts_with("unit ")) => continue,
            ("systemd", _) => (vec![], vec!["systemctl daemon-reload".to_owned()]),
            ("boot", _) => (vec![], vec!["update-grub".to_owned()]),
            ("unit", EffectAction::Reload) => (vec![], vec![format!("systemctl try-reload-or-restart -- {name}")]),
            ("unit", EffectAction::Restart) => {
                // What the spec lets go is first made what it once was.
                let let_go = active(&job.before, name).is_some() && active(&job.after, name).is_none();
                if !(if let_go { generate::PACKAGED.contains(&name) } else { host.running.contains(name) }) {
                    continue;
                }
                (vec![], vec![format!("systemctl restart -- {name}")])
            }
            ("unit", EffectAction::Start | EffectAction::Stop) => {
                let wanted = active(&job.after, name).unwrap_or_else(|| generate::PACKAGED.contains(&name));
                if wanted == host.running.contains(name) {
                    continue;
                }
                (vec![], vec![format!("systemctl {} -- {name}", if wanted { "start" } else { "stop" })])
            }
            ("unit", EffectAction::Enable | EffectAction::Disable | EffectAction::Unset) => {
                let link = format!("/etc/systemd/system/multi-user.target.wants/{name}");
                let wanted = enabled(&job.after, name).unwrap_or_else(|| generate::PACKAGED.contains(&name));
                if wanted == host.there.contains(&link) {
                    continue;
                }
                (vec![link], vec!["systemctl daemon-reload".to_owned()])
            }
            ("module" | "kernel" | "package" | "key" | "drift", _) => (vec![], vec![]),
            other => unreachable!("nobody knows what {other:?} does"),
        };
        all.paths.extend(paths);
        all.programs.extend(programs);
        all.class = all.class.max(effect.class);
    }
    all
}

/// How hard it was, judged by what was found alone.
pub(super) fn class(measured: &Measured, job: &Job) -> EffectClass {
    let touched = |start: &str| measured.changed.keys().any(|path| path.starts_with(start));
    let lines = |path: &str| {
        measured
            .changed
            .get(path)
            .map_or_else(Default::default, |(before, after)| (lines(before.as_ref()), lines(after.as_ref())))
    };
    let (loaded, loads) = lines("/etc/modules-load.d/60-better-compute.conf");
    // A module that goes stays loaded, and one that is loaded keeps its options; one that may come again is loaded now.
    let (old, new) = lines("/etc/modprobe.d/60-better-compute.conf");
    let stays = |line: &&String| {
        line.strip_prefix("blacklist ").is_none_or(|name| !measured.ran.contains(&format!("modprobe -- {name}")))
    };
    let modules = loaded.difference(&loads).next().is_some() || old.symmetric_difference(&new).any(|line| stays(&line));
    if modules || touched("/etc/default/grub.d") || touched("/sys/kernel/mm/hugepages/hugepages-1048576kB") {
        return EffectClass::Reboot;
    }
    let disturbed: Vec<&str> = measured
        .ran
        .iter()
        .filter_map(|line| {
            line.strip_prefix("systemctl restart -- ").or_else(|| line.strip_prefix("systemctl stop -- "))
        })
        .collect();
    let drains = |unit: &&str| {
        [&job.before, &job.after]
            .iter()
            .any(|spec| spec.host.units.iter().any(|known| known.name == *unit && known.drain))
    };
    if disturbed.iter().any(drains) {
        return EffectClass::Drain;
    }
    if !disturbed.is_empty() {
        return EffectClass::ServiceRestart;
    }
    if measured.changed.is_empty() && measured.ran.is_empty() { EffectClass::None } else { EffectClass::Live }
}

/// The lines of a file as it was looked at, without the comments and what is said about the file.
fn lines(file: Option<&String>) -> BTreeSet<String> {
    let text = file.map(String::as_str).unwrap_or_default();
    text.lines().skip(1).filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn pages(name: &str) -> String {
    let size = if name.ends_with("1GiB") { 1_048_576 } else { 2048 };
    format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages")
}

fn active(spec: &NodeSpec, unit: &str) -> Option<bool> {
    spec.host.units.iter().find(|known| known.name == unit)?.active
}

fn enabled(spec: &NodeSpec, unit: &str) -> Option<bool> {
    spec.host.units.iter().find(|known| known.name == unit)?.enabled
}
