//! Weighing: which differences are drift, and what is done about each. Pure.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    report::{DriftKind, DriftMode},
    time::Timestamp,
};

use super::{
    Ledger,
    look::{Found, Look, Part, look},
};
use crate::{
    converge::Observed,
    section::{Accounts, Desired, Key, Named, Want},
};

/// One field that drifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of change it is.
    pub kind: DriftKind,
    /// What the rules say.
    pub mode: DriftMode,
    /// It is put right in this pass; otherwise it is left alone.
    pub correct: bool,
    /// The place that holds the field.
    pub key: Key,
    /// What is there; `None` when nothing is.
    pub observed: Option<Vec<u8>>,
    /// What should be there.
    pub desired: String,
    /// Everybody on the host may read both.
    pub public: bool,
}

/// What weighing comes to.
#[derive(Debug, Clone, Default)]
pub struct Weighed {
    /// What is to be made: what was desired, without what is left alone.
    pub desired: Desired,
    /// What drifted, by path.
    pub findings: BTreeMap<String, Finding>,
    /// Every path that was looked at.
    pub(super) looked: BTreeSet<String>,
    /// Paths that could not be looked at, with all below them.
    pub(super) unseen: BTreeSet<String>,
    /// Places that could not be looked at, with all their fields.
    pub(super) unseen_places: BTreeSet<String>,
    /// Fields that are as wished.
    pub(super) settled: BTreeMap<String, Digest>,
    /// Fields that are as wished once their place was made so.
    pub(super) pending: Vec<(Key, String, Digest)>,
    /// Fields that are left alone: what they were when they were as wished stays known.
    pub(super) left: BTreeMap<String, Digest>,
}

/// Weighs what is desired against what is there.
#[must_use]
pub fn weigh(
    desired: Desired,
    observed: &Observed,
    accounts: &Accounts,
    ledger: &Ledger,
    mode: impl Fn(&str) -> DriftMode,
    now: Timestamp,
) -> Weighed {
    let mut weighed = Weighed::default();
    let mut left: Vec<(Key, Vec<Part>)> = Vec::new();
    for (key, name) in &desired.names {
        let looks = desired.wants.get(key).and_then(|want| look(key, want, name, observed, accounts));
        let Some(looks) = looks else {
            weighed.unseen.insert(name.path().to_owned());
            weighed.unseen_places.insert(key.to_string());
            continue;
        };
        let mut parts = Vec::new();
        for look in looks {
            parts.extend(weighed.take(key, look, ledger, &mode, now));
        }
        if !parts.is_empty() {
            left.push((key.clone(), parts));
        }
    }
    weighed.desired = desired;
    for (key, parts) in left {
        leave(&mut weighed.desired, &key, &parts, observed);
    }
    weighed
}

impl Weighed {
    /// Takes one field. The part of its place that is left alone, if it is.
    fn take(
        &mut self,
        key: &Key,
        look: Look,
        ledger: &Ledger,
        mode: &impl Fn(&str) -> DriftMode,
        now: Timestamp,
    ) -> Option<Part> {
        self.looked.insert(look.path.clone());
        let wishes = std::iter::once((look.place.clone(), look.wish)).chain(look.also);
        let Some(found) = look.found else {
            self.settled.extend(wishes);
            return None;
        };
        if !ledger.was_settled(&look.place, &look.wish) {
            self.pending.extend(wishes.map(|(place, wish)| (key.clone(), place, wish)));
            return None;
        }
        let mode = mode(&look.path);
        let correct = mode == DriftMode::Enforce && !ledger.holds_off(&look.path, now);
        if correct {
            self.pending.extend(wishes.map(|(place, wish)| (key.clone(), place, wish)));
        } else {
            self.left.extend(wishes);
        }
        let Found { kind, bytes, desired, public } = found;
        let finding = Finding { kind, mode, correct, key: key.clone(), observed: bytes, desired, public };
        // A setting has two places, in the kernel and in a file: what the kernel has is what the machine does.
        if kind == DriftKind::Value || !self.findings.contains_key(&look.path) {
            self.findings.insert(look.path, finding);
        }
        (!correct).then_some(look.part)
    }
}

/// Takes out of what is desired what is left alone of one place.
fn leave(desired: &mut Desired, key: &Key, parts: &[Part], observed: &Observed) {
    use crate::{converge::Seen, tree::Entry};
    let seen = match observed.seen.get(key) {
        Some(Seen::Entry(Entry::File(file))) => Some(file),
        _ => None,
    };
    let whole = parts.contains(&Part::Whole);
    let (Some(Want::File(want)), Some(seen), false) = (desired.wants.get_mut(key), seen, whole) else {
        desired.wants.remove(key);
        desired.held.insert(key.clone());
        return;
    };
    for part in parts {
        match part {
            Part::Content => want.content.clone_from(&seen.content),
            Part::Mode => want.mode = seen.mode,
            Part::Owner => want.uid = seen.uid,
            Part::Group => want.gid = seen.gid,
            Part::Whole | Part::Block(_) => {}
        }
    }
    if let Some(Named::Shared(shared)) = desired.names.get(key) {
        let there = shared.style.split(&String::from_utf8_lossy(&seen.content));
        let find = |key: &str| there.iter().find(|(other, _)| other == key).map(|(_, text)| text.as_str());
        let texts = shared.blocks.iter().enumerate().filter_map(|(index, block)| {
            if parts.contains(&Part::Block(index)) { find(&block.key) } else { Some(block.text.as_str()) }
        });
        want.content = shared.content_with(texts).into_bytes();
    }
}
