//! Profiles in a chain: what a layer leaves out is there, and what is left can stand on one host together.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    diagnostic::{Diagnostic, SourceRef, codes, shown},
    fleet::{Fleet, Layer, Located, Profile, ResolvedProfile, suggest::similar},
};

/// Checks every profile.
pub(super) fn check(fleet: &Fleet, found: &mut Vec<Diagnostic>) {
    for profile in fleet.profiles.values().filter(|profile| !profile.without.is_empty()) {
        let parent = profile.extends.as_ref().map(|parent| fleet.resolved.get(&parent.value));
        // A chain that is broken was reported.
        if parent != Some(None) {
            without(profile, parent.flatten(), found);
        }
    }
    for profile in fleet.resolved.values() {
        together(profile, found);
    }
}

fn without(profile: &Profile, parent: Option<&ResolvedProfile>, found: &mut Vec<Diagnostic>) {
    let mut leave = Leave { profile, parent, found };
    let names = &profile.without;
    leave.out("sysctl", &names.sysctl, |below| keys(&below.sysctl), places(&profile.sysctl));
    leave.out("module", &names.module, |below| keys(&below.modules), places(&profile.kernel.module));
    leave.out("hugepages", &names.hugepages, |below| keys(&below.hugepages), places(&profile.hugepages));
    leave.out("file", &names.file, |below| keys(&below.files), places(&profile.file));
    leave.out("unit", &names.unit, |below| keys(&below.units), places(&profile.unit));
    leave.out("package", &names.package, |below| keys(&below.packages), places(&profile.package));
    leave.out("key", &names.key, |below| keys(&below.access), places(&profile.access.key));
    let drift = profile.drift.warn.iter().chain(&profile.drift.adopt);
    let drift = drift.map(|path| (path.value.as_str(), &path.at)).collect();
    leave.out("drift", &names.drift, |below| keys(&below.drift), drift);
    let args = profile.kernel.args.iter().map(|arg| (arg.value.as_str(), &arg.at)).collect();
    leave.out(
        "args",
        &names.args,
        |below| below.kernel_args.iter().map(|arg| arg.value.value.as_str()).collect(),
        args,
    );
}

fn keys<T>(table: &BTreeMap<String, Layer<T>>) -> Vec<&str> {
    table.keys().map(String::as_str).collect()
}

fn places<T>(table: &BTreeMap<String, Located<T>>) -> BTreeMap<&str, &SourceRef> {
    table.iter().map(|(name, value)| (name.as_str(), &value.at)).collect()
}

struct Leave<'c> {
    profile: &'c Profile,
    parent: Option<&'c ResolvedProfile>,
    found: &'c mut Vec<Diagnostic>,
}

impl<'c> Leave<'c> {
    fn out(
        &mut self,
        what: &str,
        names: &[Located<String>],
        below: impl Fn(&'c ResolvedProfile) -> Vec<&'c str>,
        own: BTreeMap<&str, &SourceRef>,
    ) {
        let inherited: BTreeSet<&str> = self.parent.map(below).unwrap_or_default().into_iter().collect();
        for name in names {
            let shown = shown(name);
            if let Some(at) = own.get(name.value.as_str()) {
                let message = format!("{what} {shown:?} is left out and said by the same profile");
                let diagnostic = Diagnostic::new(codes::CONFLICT, &name.at, message).also(at, "said here");
                self.found.push(
                    diagnostic.help("what a layer says takes the place of what is below it: delete one of the two"),
                );
            } else if !inherited.contains(name.value.as_str()) {
                // A look at every name, for as many findings as anybody reads.
                let names = inherited.iter().copied().take(if self.found.len() < 200 { usize::MAX } else { 0 });
                let near = similar(name, names).map(|near| format!("did you mean {near:?}?"));
                let message = match &self.profile.extends {
                    Some(parent) => format!("profile/{} says nothing about {what} {shown:?}", parent.value),
                    None => format!("profile/{} extends no other, so nothing is inherited", self.profile.name),
                };
                self.found.push(Diagnostic::new(codes::NOT_INHERITED, &name.at, message).maybe_help(near));
            }
        }
    }
}

/// One path is one thing: a unit's file and a file at its place, or a file and what is below it, exclude each other.
fn together(profile: &ResolvedProfile, found: &mut Vec<Diagnostic>) {
    for (name, unit) in &profile.units {
        let own = unit.value.content.is_some() || unit.value.template.is_some();
        if let Some(file) = profile.files.get(&format!("/etc/systemd/system/{name}")).filter(|_| own) {
            let message = format!("the file is also written by unit {name:?}");
            let diagnostic = Diagnostic::new(codes::BAD_HOST, &file.value.at, message).also(&unit.value.at, "the unit");
            found.push(diagnostic.help("write the unit's text in one of the two"));
        }
    }
    for (path, file) in &profile.files {
        let above = path.match_indices('/').skip(1).find_map(|(end, _)| profile.files.get_key_value(&path[..end]));
        if let Some((folder, above)) = above {
            let message = format!("{folder:?} is a file, so nothing can be below it");
            found.push(Diagnostic::new(codes::BAD_HOST, &file.value.at, message).also(&above.value.at, "the file"));
        }
    }
}
