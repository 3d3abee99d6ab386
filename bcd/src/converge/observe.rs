//! What the host is like at every place that matters: wanted ones and managed ones.

use std::collections::{BTreeMap, BTreeSet};

use super::{Host, Memory};
use crate::{
    path::HostPath,
    section::{Desired, Key, Want},
    tree::Entry,
};

/// What was seen at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// At a path.
    Entry(Entry),
    /// A value that the kernel shows; `None` when it has no such value.
    Value(Option<String>),
    /// Whether a module is loaded.
    Loaded(bool),
    /// Whether a unit runs; `None` when nobody can say.
    Active(Option<bool>),
    /// The place could not be looked at, for people.
    Unreachable(String),
}

/// Everything that was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// By place.
    pub seen: BTreeMap<Key, Seen>,
    /// Places beside which an interrupted write left something.
    pub strays: BTreeSet<HostPath>,
    /// Places that hold something else than is wanted, and that not everybody on the host may read.
    pub private: BTreeSet<Key>,
    /// Directories that are missing on the way to wanted places.
    pub missing_dirs: BTreeMap<HostPath, Vec<HostPath>>,
}

/// Looks at every place. Changes nothing.
#[must_use]
pub fn observe(host: Host<'_>, desired: &Desired, memory: &Memory) -> Observed {
    let mut observed = Observed::default();
    let keys: BTreeSet<&Key> = desired.wants.keys().chain(memory.items.keys()).collect();
    for key in keys {
        let seen = match key {
            Key::Path(path) => path_seen(host, path, &mut observed),
            Key::Value(path) => Seen::Value(host.tree.text(path).map(|text| normal(&text))),
            Key::Module(name) => Seen::Loaded(module_is_loaded(host, name)),
            Key::Active(name) => Seen::Active(host.runner.is_active(name)),
        };
        if is_private(host, key, desired.wants.get(key), &seen) {
            observed.private.insert(key.clone());
        }
        observed.seen.insert(key.clone(), seen);
    }
    observed
}

/// Asked only of what differs: what is as wanted is told to nobody.
fn is_private(host: Host<'_>, key: &Key, want: Option<&Want>, seen: &Seen) -> bool {
    match (key, want, seen) {
        (Key::Path(path), Some(Want::File(want)), Seen::Entry(seen)) => {
            let as_wanted = matches!(seen, Entry::File(seen) if seen.content == want.content);
            !as_wanted && !host.tree.is_public(path)
        }
        (Key::Value(path), Some(Want::Value(want)), Seen::Value(Some(seen))) => {
            normal(want) != *seen && !host.tree.is_public(path)
        }
        _ => false,
    }
}

fn path_seen(host: Host<'_>, path: &HostPath, observed: &mut Observed) -> Seen {
    let look = || {
        let entry = host.tree.read(path)?;
        Ok::<_, crate::tree::TreeError>((entry, host.tree.has_stray(path)?, host.tree.missing_parents(path)?))
    };
    match look() {
        Ok((entry, stray, missing)) => {
            if stray {
                observed.strays.insert(path.clone());
            }
            if !missing.is_empty() {
                observed.missing_dirs.insert(path.clone(), missing);
            }
            Seen::Entry(entry)
        }
        Err(error) => Seen::Unreachable(error.to_string()),
    }
}

fn module_is_loaded(host: Host<'_>, name: &str) -> bool {
    let path: Option<HostPath> = format!("/sys/module/{}", name.replace('-', "_")).parse().ok();
    path.is_some_and(|path| host.tree.exists(&path))
}

/// The kernel separates the fields of a value by tabs; people by spaces.
pub(crate) fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}
