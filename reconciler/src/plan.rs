//! The plan: what a commit would change, computed and never guessed.
//!
//! [`plan`] is a pure function of a [`Fleet`], of what is [`Observed`] and of the time: no database, no clock, no
//! network, and the same input gives the same bytes. The offline `plan --base A --head B` and the live one differ in
//! nothing but where [`Observed`] comes from. Only `schema::fleet::load` makes a [`Fleet`], and only for a tree without
//! an error, so a broken tree cannot be planned, let alone be read as "those objects are gone".
//!
//! A plan is always whole: what may not go yet is in it, marked with what it waits for. Removals wait for protection,
//! limits and dependents, machines for brakes, waves and for having been shown; a later plan finds what was held and lets
//! it go when nothing holds it any more. Every limit is that of the documents in force, not of those that come.
//!
//! A [`Plan`] is what people and machines look at. [`Planned`] carries with it the exact rows that `apply` writes, so
//! that what is done is what was shown.

mod batches;
mod bind;
mod brakes;
mod delta;
mod diff;
mod effects;
mod gates;
mod identity;
mod in_order;
mod inputs;
mod machines;
mod markdown;
mod objects;
mod observed;
mod places;
mod policy;
mod pools;
mod render;
mod types;
mod waves;

#[cfg(test)]
mod tests;

pub use delta::{Delta, HoldRow, NodeRow, ObjectRow, ObjectStanding, PoolRow, TargetRow};
pub use diff::{FieldChange, diff};
pub(crate) use machines::cordon;
pub use markdown::{MARKDOWN_BYTES, mark, markdown, markdown_of_findings};
pub use observed::{
    Machines, Observed, ObservedHold, ObservedNode, ObservedObject, ObservedPool, ObservedTarget, Shown,
};
pub use render::{RenderOptions, render, render_against};
pub use types::{
    BatchPool, Bind, CapacityImpact, Change, Counts, Gate, GateWord, Held, HoldChange, Inputs, MoveReason, MovedChange,
    NodeMove, ObjectChange, ObservedFrom, Plan, PlanBatch, PlanBrake, PoolPlan, ReservationImpact, TargetChange,
    TenantImpact, Verification, Wait, Warning, Wave,
};

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    canonical,
    diagnostic::Diagnostic,
    digest::Digest,
    effect::EffectClass,
    fleet::{Fleet, ObjectEntry},
    name::Name,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use brakes::{Brakes, Lifted};
use gates::Case;
use identity::Identity;
use machines::Scene;
use policy::{Memory, Policy};
use pools::Templates;

/// A plan and the rows that carry it out. Only [`plan`] makes one.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What is shown.
    pub plan: Plan,
    pub(crate) delta: Delta,
}

impl Planned {
    /// Names the commit that the plan leads to.
    #[must_use]
    pub fn at_commit(mut self, commit: &str) -> Self {
        self.plan.commit = Some(commit.to_owned());
        self
    }

    /// Whether carrying it out would write nothing but the commit itself.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.delta.is_empty()
    }
}

impl Plan {
    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("a plan holds no fractions and serialises")
    }

    /// The digest of what the plan was made of: two plans of the same trees and facts have the same, whatever the commits
    /// are called.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical::digest(&self.inputs).expect("inputs serialise")
    }
}

/// Computes what has to change so that the fleet is in force. `now` decides which holds have ended.
#[must_use]
pub fn plan(fleet: &Fleet, observed: &Observed, now: Timestamp) -> Planned {
    let declared: BTreeMap<&ObjectRef, &ObjectEntry> = fleet.objects().map(|entry| (&entry.object, entry)).collect();
    let policy = Policy::in_force(fleet, observed);
    let identity = Identity::of(fleet, observed);
    let view: &Observed = &identity.view;
    let bind_place = policy.bind_place(fleet, observed);
    let mut templates = Templates::new(fleet);
    let targets = templates.of_pools();

    // A machine that a gate keeps in its pool keeps the pool, and that is known only after the machines were looked at.
    let mut stuck: BTreeSet<(Name, ObjectRef)> = BTreeSet::new();
    // A freeze is lifted by a removal that is granted, and that is known only after it was judged with the freeze standing.
    let mut lifted: BTreeSet<ObjectRef> = BTreeSet::new();
    let mut memory = Memory::of(observed);
    let (brakes, removals, machines, objects, mut delta) = loop {
        let mut delta = Delta::default();
        let may_lift = Lifted { granted: &lifted, before: &memory.ends };
        let mut brakes = Brakes::of(fleet, view, &identity, &declared, &may_lift, now);
        let case = Case { observed: view, declared: &declared, policy: &policy, memory: &memory, brakes: &brakes };
        let removals = gates::judge(fleet, &case, &stuck);
        let freezes = removals.granted.keys().filter(|object| object.kind == Kind::Freeze && !lifted.contains(object));
        let freezes: Vec<ObjectRef> = freezes.cloned().collect();
        if !freezes.is_empty() {
            lifted.extend(freezes);
            continue;
        }
        let scene = Scene {
            fleet,
            observed: view,
            identity: &identity,
            removals: &removals,
            bind: policy.bind(),
            bind_place: bind_place.as_deref(),
            now,
        };
        let machines = machines::compare(&scene, &mut templates, &mut brakes, &mut delta);
        if !machines.stuck.iter().any(|(_, object)| removals.granted.contains_key(object)) {
            let objects = objects::compare(&scene, &declared, &mut delta);
            break (brakes, removals, machines, objects, delta);
        }
        stuck.extend(machines.stuck);
    };
    memory.ends = brakes.ending();
    memory.removed_objects += removals.granted.len();
    memory.removed_nodes += removals.granted.keys().filter(|object| object.kind == Kind::Node).count();
    delta.policy = Policy::words(observed, &memory);
    let targets = pools::compare(fleet, view, &declared, &templates, targets, &mut delta);
    pools::unstored(view, &templates, &mut delta);
    delta.removed_pools =
        removals.granted.keys().filter(|object| object.kind == Kind::Pool).map(|object| object.name.clone()).collect();
    delta.moved.clone_from(&identity.renames);
    delta.holds = removals.holds();
    delta.holds.extend(brakes.holds());
    delta.holds.extend(machines.rows);
    delta.holds.sort();
    // One row per subject and gate is stored.
    delta.holds.dedup_by(|b, a| (&b.subject, b.gate) == (&a.subject, a.gate));
    delta.holds_change = !delta.holds.iter().map(held_words).eq(view.holds.iter().map(stored_words));
    delta.next_edge = [brakes.next_edge(), machines.next_edge].into_iter().flatten().min();

    let mut warnings = machines.warnings;
    warnings.extend(policy.warnings(fleet));
    warnings.extend(gates::without_effect(fleet, view));
    warnings.extend(identity.warnings.iter().cloned());
    warnings.extend(notes(fleet, &declared));
    warnings.sort();
    warnings.dedup();
    let count = |change: Change| objects.changes.iter().filter(|object| object.change == change).count();
    let mut classes: BTreeMap<EffectClass, usize> = BTreeMap::new();
    for node in &machines.moves {
        *classes.entry(node.effect).or_default() += 1;
    }
    let counts = Counts {
        create: count(Change::Create),
        update: count(Change::Update),
        restore: count(Change::Restore),
        remove: count(Change::Remove),
        retain: count(Change::Retain),
        held: count(Change::Hold),
        unchanged: objects.unchanged,
        machines: machines.total,
        moves: machines.moves.len(),
        undeclared: machines.undeclared,
        awaited: machines.awaited,
        waiting: machines.moves.iter().filter(|node| !node.held.is_empty()).count(),
        moved: identity.renames.len(),
        awaiting_boot: view.boots.as_ref().map(BTreeSet::len),
    };
    let batches = batches::of(fleet, view, &objects.changes);
    let mut plan = Plan {
        format: 1,
        base: observed.commit.clone(),
        commit: None,
        inputs: Inputs::default(),
        verification: Verification::Unverified,
        signatures: None,
        counts,
        objects: objects.changes,
        targets,
        pools: machines.pools,
        nodes: machines.moves,
        holds: machines.holds,
        gates: removals.gates,
        batches,
        moved: Vec::new(),
        effects: machines.effects,
        classes,
        brakes: Vec::new(),
        bind: None,
        reservations: None,
        tenants: None,
        capacity: None,
        warnings,
    };
    waves::foresee(fleet, view, now, &mut plan);
    plan.inputs = inputs::of(fleet, view, &policy, &plan);
    plan.brakes = brakes.into_plan();
    plan.bind = policy.bind().map(|class| Bind {
        class,
        shown: observed.shown.last().map(|shown| shown.digest),
        held: machines.unshown,
        trailer: format!("bc-plan: {}", plan.digest()),
    });
    plan.moved = identity.counted(fleet);
    Planned { plan, delta }
}

type HoldWords<'h> = (&'h ObjectRef, &'h str, &'h str, Option<Timestamp>);

fn held_words(hold: &HoldRow) -> HoldWords<'_> {
    (&hold.subject, hold.gate.as_str(), &hold.reason, hold.until)
}

fn stored_words(hold: &ObservedHold) -> HoldWords<'_> {
    (&hold.subject, &hold.gate, &hold.reason, hold.until)
}

/// What the language has to say about a fleet that is valid, each about the object that is written there.
fn notes(fleet: &Fleet, declared: &BTreeMap<&ObjectRef, &ObjectEntry>) -> Vec<Warning> {
    if fleet.notes.is_empty() {
        return Vec::new();
    }
    let mut places: BTreeMap<(&str, u32), &ObjectRef> = BTreeMap::new();
    for (object, entry) in declared {
        places.insert((&entry.at.file, entry.at.line()), object);
    }
    let own = ObjectRef::new(Kind::Fleet, fleet.document.name.clone());
    let about = |file: &str, line: u32| {
        let above = places.range((file, 0)..=(file, line)).next_back();
        above.map_or_else(|| own.clone(), |(_, object)| (*object).clone())
    };
    let note = |note: &Diagnostic| Warning {
        object: about(&note.file, note.span.line),
        message: note.message.clone(),
        place: Some(format!("{}:{}", note.file, note.span.line)),
        note: true,
    };
    fleet.notes.iter().map(note).collect()
}
