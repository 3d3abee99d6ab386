//! What of the fleet's `removed` lines may not take effect yet: what is protected, what a brake covers, what something
//! that stays still needs, and more at once than the limits allow.
//!
//! A gate compares identities, never counts of what is left, and it holds removals and nothing else of a revision. What
//! is held stays in force, the hold is stored, and a later plan lets it go when the gate opens.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    fleet::{Fleet, ObjectEntry, Removed, refers},
    name::Name,
    object::{Kind, ObjectRef},
};

use super::{
    Gate, GateWord, HoldRow, Observed, Wait, Warning,
    brakes::Brakes,
    policy::{Memory, Policy},
    types::share_of,
};

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
                until: match wait {
                    Wait::Brake { until, .. } => *until,
                    _ => None,
                },
                place: Some(format!("{}:{}", removed.at.file, removed.at.line())),
            })
            .collect()
    }
}

/// What a judgement is made of.
pub(super) struct Case<'a> {
    pub(super) observed: &'a Observed,
    /// The objects of the new tree.
    pub(super) declared: &'a BTreeMap<&'a ObjectRef, &'a ObjectEntry>,
    pub(super) policy: &'a Policy,
    /// What the commit did when it was planned before.
    pub(super) memory: &'a Memory,
    pub(super) brakes: &'a Brakes,
}

/// Decides what of the fleet's `removed` lines may take effect. `stuck` are machines that a gate keeps in their pool or
/// site, whatever their documents say.
pub(super) fn judge<'f>(fleet: &'f Fleet, case: &Case<'_>, stuck: &BTreeSet<(Name, ObjectRef)>) -> Removals<'f> {
    let Case { observed, declared, .. } = case;
    let mut granted: BTreeMap<ObjectRef, &Removed> = fleet
        .removed
        .iter()
        .filter(|removed| observed.objects.contains_key(&removed.name) && !declared.contains_key(&removed.name))
        .map(|removed| (removed.name.clone(), removed))
        .collect();
    let mut held: BTreeMap<ObjectRef, (&Removed, Wait)> = BTreeMap::new();
    if granted.is_empty() {
        return Removals::default();
    }
    granted.retain(|object, removed| match protected(observed, object).or_else(|| braked(case, object)) {
        Some(wait) => {
            held.insert(object.clone(), (*removed, wait));
            false
        }
        None => true,
    });

    // What is held stays, and so it needs what it refers to: look again until nothing more is held.
    loop {
        let needed = needed_by(fleet, case, &granted, stuck);
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
    let asked: Vec<&ObjectRef> = granted.keys().chain(held.keys()).collect();
    if let Some(wait) = limits(case, &asked) {
        held.extend(
            std::mem::take(&mut granted).into_iter().map(|(object, removed)| (object, (removed, wait.clone()))),
        );
    }
    let mut gates: Vec<Gate> = Vec::new();
    for (object, (_, wait)) in &held {
        match gates.iter_mut().find(|gate| gate.wait == *wait && wait.gate() != GateWord::Dependents) {
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
        note: false,
    })
}

/// The protection of the object in force: what the tree says of it now, or no more, does not count.
fn protected(observed: &Observed, object: &ObjectRef) -> Option<Wait> {
    let reason = observed.objects.get(object)?.doc.get("protect")?.as_str()?;
    Some(Wait::Protected { reason: reason.to_owned() })
}

/// A brake on an object, or on the pool or the site that it belongs to.
fn braked(case: &Case<'_>, object: &ObjectRef) -> Option<Wait> {
    let observed = case.observed;
    let of = |kind: Kind, name: &Name| {
        let doc = &observed.objects.get(&ObjectRef::new(kind, name.clone()))?.doc;
        Name::new(doc.get("site")?.as_str()?).ok()
    };
    let mut covered = vec![object.clone()];
    match object.kind {
        Kind::Pool => {
            covered.extend(of(Kind::Pool, &object.name).map(|site| ObjectRef::new(Kind::Site, site)));
        }
        Kind::Node => {
            let node = observed.nodes.iter().find(|node| node.name == object.name);
            let pool = node.and_then(|node| node.pool.clone());
            covered.extend(node.and_then(|node| node.site.clone()).map(|site| ObjectRef::new(Kind::Site, site)));
            covered.extend(pool.map(|pool| ObjectRef::new(Kind::Pool, pool)));
        }
        _ => {}
    }
    case.brakes.on_removal(&covered, object.kind == Kind::Freeze)
}

/// What the revision asks for counts, whatever else holds a part of it, and what it removed already: or it would remove more
/// than the limit by and by.
fn limits(case: &Case<'_>, objects: &[&ObjectRef]) -> Option<Wait> {
    let Case { observed, memory, .. } = case;
    let prune = &case.policy.prune;
    let asked = objects.len() + memory.removed_objects;
    if let Some(limit) = &prune.max_objects
        && asked > limit.value as usize
    {
        return Some(Wait::PruneObjects { limit: limit.value, asked });
    }
    let limit = prune.max_nodes_percent.as_ref()?.value.as_percent();
    let machines: BTreeSet<&str> = observed.nodes.iter().map(|node| node.name.as_str()).collect();
    let lose = objects.iter().filter(|object| object.kind == Kind::Node && machines.contains(object.name.as_str()));
    let asked = lose.count() + memory.removed_nodes;
    (asked > share_of(limit, machines.len())).then_some(Wait::PruneNodes { limit, asked, of: machines.len() })
}

/// Who needs each object that should go: objects that stay, and machines that are in a pool or have a profile.
fn needed_by(
    fleet: &Fleet,
    case: &Case<'_>,
    granted: &BTreeMap<ObjectRef, &Removed>,
    stuck: &BTreeSet<(Name, ObjectRef)>,
) -> BTreeMap<ObjectRef, BTreeSet<ObjectRef>> {
    let Case { observed, declared, .. } = case;
    let mut needed: BTreeMap<ObjectRef, BTreeSet<ObjectRef>> = BTreeMap::new();
    let mut note = |wanted: ObjectRef, by: &ObjectRef| {
        if granted.contains_key(&wanted) {
            needed.entry(wanted).or_default().insert(by.clone());
        }
    };
    for (object, held) in &observed.objects {
        if !declared.contains_key(object) && !granted.contains_key(object) {
            refers(object.kind, &held.doc).into_iter().for_each(|wanted| note(wanted, object));
        }
    }
    for (object, entry) in *declared {
        refers(object.kind, &entry.doc).into_iter().for_each(|wanted| note(wanted, object));
    }
    for (node, object) in stuck {
        note(object.clone(), &ObjectRef::new(Kind::Node, node.clone()));
    }
    let may_need = |kind: Kind| granted.keys().any(|object| object.kind == kind);
    if !may_need(Kind::Pool) && !may_need(Kind::Profile) {
        return needed;
    }
    for node in &observed.nodes {
        let by = || ObjectRef::new(Kind::Node, node.name.clone());
        let document = fleet.nodes.get(&node.name);
        let declared_pool = document.and_then(|node| node.pool.as_ref()).map(|pool| &pool.value);
        if let Some(pool) = declared_pool.or(node.pool.as_ref()) {
            note(ObjectRef::new(Kind::Pool, pool.clone()), &by());
        }
        // A machine whose document is gone keeps the profile that it had of its own.
        if document.is_none()
            && node.declared
            && !granted.contains_key(&by())
            && let Some(profile) = &node.target_overlay.profile
        {
            note(ObjectRef::new(Kind::Profile, profile.clone()), &by());
        }
    }
    needed
}
