//! Two specs in, everything that the daemon does out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AfterWrite, Effect, EffectAction as Action, EffectClass as Class, Effects, after_write,
    managed::{self, FileState, Files},
};
use crate::spec::{AccessKey, AccessSection, DriftRule, HostSection, Hugepages, KernelModule, NodeSpec, Unit};

/// What happens to a host that is as `before` says when it is told to be as `after` says.
#[must_use]
pub fn classify(before: &NodeSpec, after: &NodeSpec) -> Effects {
    if before == after {
        return Effects::default();
    }
    // Every member of a spec is named here, so that a new one cannot be forgotten.
    let NodeSpec { host: old, access: old_access } = before;
    let NodeSpec { host: new, access: new_access } = after;
    let HostSection { sysctl, modules, kernel_args, hugepages, files, units, packages, drift } = new;
    let mut found = Found { old, new, items: BTreeMap::new() };
    found.sysctl(&old.sysctl, sysctl);
    found.modules(&old.modules, modules);
    found.hugepages(&old.hugepages, hugepages);
    if old.kernel_args != *kernel_args {
        found.note(Class::Reboot, "kernel arguments".to_owned(), Action::Stage);
    }
    for (name, (old, new)) in pairs(&old.packages, packages, |pin| pin.name.as_str()) {
        if old.map(|pin| &pin.version) != new.map(|pin| &pin.version) {
            let action = if new.is_some() { Action::Pin } else { Action::Unpin };
            found.note(Class::Live, format!("package {name}"), action);
        }
    }
    for (name, (old, new)) in pairs(&old.units, units, |unit| unit.name.as_str()) {
        found.unit(name, old, new);
    }
    found.drift(&old.drift, drift);
    found.access(old_access, new_access);
    found.files(managed::files(before), managed::files(after));
    for (path, (old, new)) in pairs(&old.files, files, |file| file.path.as_str()) {
        if let (Some(old), Some(new)) = (old, new)
            && old.restart != new.restart
        {
            found.note(Class::None, format!("file {path}"), Action::Set);
        }
    }
    found.finish()
}

/// The items that differ of two lists, side by side, by their name.
fn pairs<'s, T: PartialEq>(
    before: &'s [T],
    after: &'s [T],
    name: impl Fn(&T) -> &str,
) -> BTreeMap<&'s str, (Option<&'s T>, Option<&'s T>)> {
    let mut both: BTreeMap<&str, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for item in before {
        both.entry(name(item)).or_default().0 = Some(item);
    }
    for item in after {
        both.entry(name(item)).or_default().1 = Some(item);
    }
    both.retain(|_, (old, new)| old != new);
    both
}

/// What was found so far: class and causes by what is done to what.
struct Found<'s> {
    old: &'s HostSection,
    new: &'s HostSection,
    items: BTreeMap<(String, Action), (Class, BTreeSet<String>)>,
}

impl Found<'_> {
    fn note(&mut self, class: Class, subject: String, action: Action) {
        let item = self.items.entry((subject, action)).or_insert((class, BTreeSet::new()));
        item.0 = item.0.max(class);
    }

    fn caused(&mut self, class: Class, subject: String, action: Action, cause: String) {
        let item = self.items.entry((subject, action)).or_insert((class, BTreeSet::new()));
        item.0 = item.0.max(class);
        item.1.insert(cause);
    }

    fn sysctl(&mut self, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) {
        // The kernel sees words, however they are spaced.
        let words = |value: &String| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let subject = || format!("sysctl {name}");
            match (old.get(name), new.get(name)) {
                (Some(_), None) => self.note(Class::Live, subject(), Action::Unset),
                (old, Some(new)) if old.map(words) != Some(words(new)) => {
                    self.note(Class::Live, subject(), Action::Set);
                }
                _ => {}
            }
        }
    }

    /// A module is loaded at once. What changes for one that may be loaded by now (its options, that it should not be
    /// there) works only after a boot.
    fn modules(&mut self, old: &[KernelModule], new: &[KernelModule]) {
        for (name, (old, new)) in pairs(old, new, |module| module.name.as_str()) {
            let subject = || format!("module {name}");
            let was_loaded = old.is_some_and(|module| !module.blacklist);
            let options = |module: Option<&KernelModule>| {
                module.filter(|module| !module.blacklist).map(|module| module.options.clone()).unwrap_or_default()
            };
            match new {
                Some(module) if !module.blacklist => {
                    if !was_loaded {
                        self.note(Class::Live, subject(), Action::Load);
                    }
                    if options(old) != module.options {
                        self.note(Class::Reboot, subject(), Action::Stage);
                    }
                }
                Some(_) if old.is_some_and(|module| module.blacklist) => {}
                Some(_) => self.note(Class::Reboot, subject(), Action::Unload),
                None if was_loaded => self.note(Class::Reboot, subject(), Action::Unload),
                None => self.note(Class::Reboot, subject(), Action::Stage),
            }
        }
    }

    fn hugepages(&mut self, old: &[Hugepages], new: &[Hugepages]) {
        let count = |pages: &[Hugepages], size: u32| {
            pages.iter().filter(|pages| pages.size_kib == size).map(|pages| pages.count).collect::<Vec<_>>()
        };
        for size in old.iter().chain(new).map(|pages| pages.size_kib).collect::<BTreeSet<_>>() {
            let (before, after) = (count(old, size), count(new, size));
            if before == after {
                continue;
            }
            match size {
                2048 => {
                    let action = if after.is_empty() { Action::Unset } else { Action::Set };
                    self.note(Class::Live, "huge pages 2MiB".to_owned(), action);
                }
                1_048_576 => self.note(Class::Reboot, "huge pages 1GiB".to_owned(), Action::Stage),
                // The daemon knows no others and leaves them.
                _ => self.note(Class::None, format!("huge pages {size}KiB"), Action::Set),
            }
        }
    }

    fn unit(&mut self, name: &str, old: Option<&Unit>, new: Option<&Unit>) {
        let subject = || format!("unit {name}");
        let links = |unit: Option<&Unit>| unit.map(managed::enable_links).unwrap_or_default();
        let enabled = |unit: Option<&Unit>| unit.and_then(|unit| unit.enabled);
        let linked = match (enabled(old), enabled(new)) {
            (Some(true), Some(true)) if links(old) != links(new) => Some(Action::Enable),
            (before, after) if before == after => None,
            (_, Some(true)) => Some(Action::Enable),
            (_, Some(false)) | (Some(true), None) => Some(Action::Disable),
            (_, None) => Some(Action::Unset),
        };
        if let Some(action) = linked {
            self.note(Class::Live, subject(), action);
            self.caused(Class::Live, "systemd".to_owned(), Action::Reload, subject());
        }
        let active = |unit: Option<&Unit>| unit.and_then(|unit| unit.active);
        match (active(old), active(new)) {
            (before, after) if before == after => {}
            // What was stopped by the spec may come back when the spec lets it go.
            (_, Some(true)) | (Some(false), None) => self.note(Class::Live, subject(), Action::Start),
            (_, Some(false) | None) => self.note(self.disturbance(name), subject(), Action::Stop),
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.drain != new.drain
        {
            self.note(Class::None, subject(), Action::Set);
        }
    }

    /// How hard it is when a unit stops or starts again; a word that is just being deleted still counts.
    fn disturbance(&self, unit: &str) -> Class {
        let drains = self.old.units.iter().chain(&self.new.units).any(|known| known.name == unit && known.drain);
        if drains { Class::Drain } else { Class::ServiceRestart }
    }

    /// A value that may differ no more is brought in line when it does.
    fn drift(&mut self, old: &[DriftRule], new: &[DriftRule]) {
        for (path, (old, new)) in pairs(old, new, |rule| rule.path.as_str()) {
            match (old, new) {
                (Some(_), None) => self.note(Class::Live, format!("drift {path}"), Action::Unset),
                (Some(old), Some(new)) if old.mode == new.mode => {}
                _ => self.note(Class::None, format!("drift {path}"), Action::Set),
            }
        }
    }

    fn access(&mut self, old: &AccessSection, new: &AccessSection) {
        let AccessSection { keys } = new;
        let known = |keys: &[AccessKey], key: &AccessKey, until: bool| {
            keys.iter().any(|other| {
                (&other.account, &other.principal, &other.key) == (&key.account, &key.principal, &key.key)
                    && (!until || other.until == key.until)
            })
        };
        let subject = |key: &AccessKey| format!("key {} for {}", key.principal, key.account);
        for key in keys.iter().filter(|key| !known(&old.keys, key, true)) {
            self.note(Class::Live, subject(key), Action::Grant);
        }
        for key in old.keys.iter().filter(|key| !known(keys, key, false)) {
            self.note(Class::Live, subject(key), Action::Revoke);
        }
    }

    /// Every file that the daemon writes or takes away, and what follows from that.
    fn files(&mut self, old: Files, new: Files) {
        for path in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (old.get(path), new.get(path));
            if before.map(|file| &file.state) == after.map(|file| &file.state) {
                continue;
            }
            let subject = format!("file {path}");
            let file = after.or(before).expect("a path is of one of the two");
            let action = if after.is_some() { Action::Write } else { Action::Remove };
            if file.causes.is_empty() {
                self.note(Class::Live, subject.clone(), action);
            }
            let differs = |cause: &&String| self.items.keys().any(|(subject, _)| subject == *cause);
            let mut causes: Vec<String> = file.causes.iter().filter(differs).cloned().collect();
            if causes.is_empty() {
                causes.clone_from(&file.causes);
            }
            for cause in causes {
                self.caused(Class::Live, subject.clone(), action, cause);
            }
            for next in after_write(path) {
                match next {
                    AfterWrite::ReloadSystemd => {
                        self.caused(Class::Live, "systemd".to_owned(), Action::Reload, subject.clone());
                    }
                    AfterWrite::ReloadSshd => {
                        self.caused(Class::Live, "unit ssh.service".to_owned(), Action::Reload, subject.clone());
                    }
                    AfterWrite::UpdateGrub => {
                        self.caused(Class::Reboot, "boot loader".to_owned(), Action::Stage, subject.clone());
                    }
                    AfterWrite::Restart(unit) => {
                        if after.is_some_and(|after| !self.is_new(&unit, before, after)) {
                            self.restart(&unit, &subject);
                        }
                    }
                }
            }
            // What reads a file that goes reads what was there before.
            for unit in &file.restart {
                self.restart(unit, &subject);
            }
        }
    }

    /// A unit that the spec brings itself, and that it did not know before, does not run yet.
    fn is_new(&self, unit: &str, before: Option<&FileState>, after: &FileState) -> bool {
        before.is_none() && after.of_unit && !self.old.units.iter().any(|known| known.name == unit)
    }

    fn restart(&mut self, unit: &str, cause: &str) {
        let active = |host: &HostSection| host.units.iter().find(|known| known.name == unit)?.active;
        // What was stopped by the spec and is let go starts first, if it ran once, and then starts again.
        let stands_still = active(self.old) == Some(false) && active(self.new).is_some();
        if !stands_still {
            self.caused(self.disturbance(unit), format!("unit {unit}"), Action::Restart, cause.to_owned());
        }
    }

    fn finish(self) -> Effects {
        let mut items: Vec<Effect> = self
            .items
            .into_iter()
            .map(|((subject, action), (class, causes))| Effect { class, subject, action, cause: join(&causes) })
            .collect();
        if items.is_empty() {
            // The words differ and the host does not: an order, a space.
            items.push(Effect { class: Class::None, subject: "spec".to_owned(), action: Action::Set, cause: None });
        }
        Effects::new(items)
    }
}

fn join(causes: &BTreeSet<String>) -> Option<String> {
    const NAMED: usize = 3;
    let named: Vec<&str> = causes.iter().take(NAMED).map(String::as_str).collect();
    let more = causes.len() - named.len();
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{} and {more} more", named.join(", "))),
    }
}
