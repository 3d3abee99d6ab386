//! What a section of a spec means on a host: a pure compilation into wanted items.
//!
//! [`compile`] knows the spec, the [`Facts`] and the time, touches nothing, and never stops at the first mistake: an item
//! that cannot be is *held* (left exactly as it is, neither written nor undone) and named in the problems, the rest goes
//! on. [`crate::converge`] makes the host agree with the result.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    spec::{NodeSpec, Section},
    time::Timestamp,
};

use crate::{path::HostPath, vault::Written};

mod access;
mod accounts;
mod facts;
mod host;
mod item;
mod shared;
mod unit;

pub use accounts::Accounts;
pub use facts::Facts;
pub use item::{Action, Key, Named, Want};
pub use shared::{Block, Shared, Style};

/// The largest file that a spec may hold.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;

/// A section as wanted items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// What has to be, by place.
    pub wants: BTreeMap<Key, Want>,
    /// Places that are wanted and cannot be had, or may be otherwise: they stay as they are.
    pub held: BTreeSet<Key>,
    /// What the language calls the places, held ones included.
    pub names: BTreeMap<Key, Named>,
    /// Units that start again, if they run, after a file changed.
    pub restarts: BTreeMap<HostPath, BTreeSet<String>>,
    /// What is written to files with secrets, as it is remembered.
    pub secrets: BTreeMap<HostPath, Written>,
    /// Why not everything can be had, for people.
    pub problems: Vec<String>,
    /// What works only after the next boot, for people.
    pub staged: Vec<String>,
    /// When the same section compiles to something else by itself.
    pub until: Option<Timestamp>,
}

impl Desired {
    fn want(&mut self, key: Key, want: Want, name: Named) {
        self.names.entry(key.clone()).or_insert(name);
        if self.wants.contains_key(&key) || self.held.contains(&key) {
            self.problems.push(format!("{key} is wanted twice"));
            self.wants.remove(&key);
            self.held.insert(key);
        } else {
            self.wants.insert(key, want);
        }
    }

    fn hold(&mut self, key: Key, problem: String) {
        self.wants.remove(&key);
        self.held.insert(key);
        self.problems.push(problem);
    }
}

/// Compiles one section.
#[must_use]
pub fn compile(section: Section, spec: &NodeSpec, facts: &Facts, now: Timestamp) -> Desired {
    match section {
        Section::Host => host::compile(&spec.host, facts),
        Section::Access => access::compile(&spec.access, facts, now),
    }
}
