//! What may not go yet: removals beyond the fleet's prune limits, and removals of what is still needed.
//!
//! A gate holds removals and nothing else of a revision. What is held stays in force, and the hold is stored.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    fleet::{Fleet, Removed},
    name::Name,
    object::{Kind, ObjectRef},
};
use serde_json::Value;

use super::{Gate, GateWord, HoldRow, Observed, Wait, Warning};

/// What was asked to go, and what of it may.
#[derive(Debug, Default)]
pub(super) struct Removals<'a> {
    /// Those that go.
    pub(super) granted: BTreeMap<ObjectRef, &'a Removed>,
    /// Those that are held.
    pub(super) held: BTreeMap<ObjectRef, (&'a Removed, Wait)>,
    /// The same for people.
    pub(super) gates: Vec<Gate>,
}

impl Removals<'_> {
    pub(super) fn holds(&self) -> Vec<HoldRow> {
        self.held
            .iter()
            .map(|(subject, (removed, wait))| HoldRow {
                subject: subject.clone(),
                gate: wait.gate(),
                owner: "source".to_owned(),
                reason: wait.to_string(),
                until: None,
                place: Some(format!("{}:{}", removed.at.file, removed.at.line())),
            })
            .collect()
    }
}

/// Decides what of the fleet's `removed` lines may take effect.
pub(super) fn judge<'a>(fleet: &'a Fleet, observed: &Observed) -> Removals<'a> {
    let mut granted: BTreeMap<ObjectRef, &Removed> = fleet
        .removed
        .iter()
        .filter(|removed| observed.objects.contains_key(&removed.name))
        .map(|removed| (removed.name.clone(), removed))
        .collect();
    let mut held = BTreeMap::new();
    let declared: BTreeSet<ObjectRef> = fleet.objects().map(|entry| entry.object).collect();
    granted.retain(|object, _| !declared.contains(object));

    // What is held stays, and so it needs what it refers to: look again until nothing more is held.
    loop {
        let needed = needed_by(fleet, observed, &declared, &granted);
        let vetoed: Vec<ObjectRef> = granted.keys().filter(|object| needed.contains_key(*object)).cloned().collect();
        if vetoed.is_empty() {
            break;
        }
        for object in vetoed {
            let (Some(removed), Some(dependents)) = (granted.remove(&object), needed.get(&object)) else { continue };
            let wait =
                Wait::Dependents { needed_by: dependents.iter().take(10).cloned().collect(), count: dependents.len() };
            held.insert(object, (removed, wait));
        }
    }
    if let Some(wait) = limits(fleet, observed, &granted) {
        held.extend(
            std::mem::take(&mut granted).into_iter().map(|(object, removed)| (object, (removed, wait.clone()))),
        );
    }
    let mut gates: Vec<Gate> = Vec::new();
    for (object, (_, wait)) in &held {
        match gates.iter_mut().find(|gate| gate.wait == *wait && wait.gate() == GateWord::Prune) {
            Some(gate) => gate.objects.push(object.clone()),
            None => gates.push(Gate { objects: vec![object.clone()], wait: wait.clone() }),
        }
    }
    Removals { granted, held, gates }
}

/// `removed` lines that name nothing: done long ago, or misspelt.
pub(super) fn without_effect(fleet: &Fleet, observed: &Observed) -> impl Iterator<Item = Warning> {
    let idle = fleet.removed.iter().filter(|removed| !observed.objects.contains_key(&removed.name));
    idle.map(|removed| Warning {
        object: removed.name.clone(),
        message: "nothing of this name is in force, so that its `removed` does nothing and can be deleted".to_owned(),
        place: Some(format!("{}:{}", removed.at.file, removed.at.line())),
    })
}

fn limits(fleet: &Fleet, observed: &Observed, granted: &BTreeMap<ObjectRef, &Removed>) -> Option<Wait> {
    let prune = &fleet.document.prune;
    if let Some(limit) = &prune.max_objects
        && granted.len() > limit.value as usize
    {
        return Some(Wait::PruneObjects { limit: limit.value, asked: granted.len() });
    }
    let limit = prune.max_nodes_percent.as_ref()?.value;
    let machines: BTreeSet<&str> = observed.nodes.iter().map(|node| node.name.as_str()).collect();
    let asked =
        granted.keys().filter(|object| object.kind == Kind::Node && machines.contains(object.name.as_str())).count();
    (asked as u64 > limit.of(machines.len() as u64)).then_some(Wait::PruneNodes {
        limit: limit.as_percent(),
        asked,
        of: machines.len(),
    })
}

/// Who needs each object that should go: objects that stay, and machines that are in a pool or have a profile.
fn needed_by(
    fleet: &Fleet,
    observed: &Observed,
    declared: &BTreeSet<ObjectRef>,
    granted: &BTreeMap<ObjectRef, &Removed>,
) -> BTreeMap<ObjectRef, BTreeSet<ObjectRef>> {
    let mut needed: BTreeMap<ObjectRef, BTreeSet<ObjectRef>> = BTreeMap::new();
    let mut note = |wanted: ObjectRef, by: &ObjectRef| {
        if granted.contains_key(&wanted) {
            needed.entry(wanted).or_default().insert(by.clone());
        }
    };
    for (object, held) in &observed.objects {
        if !declared.contains(object) && !granted.contains_key(object) {
            references(object.kind, &held.doc).into_iter().for_each(|wanted| note(wanted, object));
        }
    }
    for entry in fleet.objects() {
        references(entry.object.kind, &entry.doc).into_iter().for_each(|wanted| note(wanted, &entry.object));
    }
    for node in &observed.nodes {
        let document = fleet.nodes.get(&node.name);
        let pool =
            document.and_then(|node| node.pool.as_ref()).map(|pool| pool.value.clone()).or_else(|| node.pool.clone());
        if let Some(pool) = pool {
            note(ObjectRef::new(Kind::Pool, pool), &ObjectRef::new(Kind::Node, node.name.clone()));
        }
    }
    needed
}

/// The objects that a document refers to.
fn references(kind: Kind, doc: &Value) -> Vec<ObjectRef> {
    let fields: &[(&str, Kind)] = match kind {
        Kind::Fleet => &[("rollout", Kind::Rollout)],
        Kind::Pool => &[("site", Kind::Site), ("profile", Kind::Profile), ("rollout", Kind::Rollout)],
        Kind::Profile => &[("extends", Kind::Profile), ("image", Kind::Image)],
        Kind::Node => &[("pool", Kind::Pool), ("profile", Kind::Profile)],
        _ => &[],
    };
    fields
        .iter()
        .filter_map(|(field, kind)| Some(ObjectRef::new(*kind, Name::new(doc.get(field)?.as_str()?).ok()?)))
        .collect()
}
