//! Machines: what each should be, which of them move, how hard that is for them, and what keeps them.
//!
//! A machine that a gate holds is written its target and not assigned it: it keeps what it runs, and a later plan finds
//! it behind and lets it go when the gate is open. A change of its pool is not written either while it is held, so that a
//! frozen pool loses nobody. A machine that is told for the first time what it should be always goes: leaving it bare
//! protects nothing that runs on it. A move that leaves the spec as it is, such as that of a pool that has another name, is
//! no change of the machine, and nothing holds it.

mod candidate;
mod finish;
mod held;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    effect::{EffectClass, Effects},
    fleet::{Fleet, Labels, NodeOverlay, Pool, Strategy},
    name::Name,
    node::Role,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::{
    Delta, HoldChange, HoldRow, Machines, NodeMove, Observed, ObservedNode, PoolPlan, Warning,
    brakes::Brakes,
    effects::{Classifier, Told},
    gates::Removals,
    identity::Identity,
    in_order::InOrder,
    pools::Templates,
};
use candidate::Candidate;
use held::Waiting;
use wanted::Wanted;

pub(crate) use wanted::cordon;

/// What was found.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) moves: Vec<NodeMove>,
    pub(super) holds: Vec<HoldChange>,
    pub(super) pools: Vec<PoolPlan>,
    pub(super) effects: Vec<Effects>,
    pub(super) warnings: Vec<Warning>,
    /// What rollouts and binding hold, for each pool.
    pub(super) rows: Vec<HoldRow>,
    /// Machines that stay in a pool or a site that they should have left.
    pub(super) stuck: BTreeSet<(Name, ObjectRef)>,
    /// When a cordon ends next.
    pub(super) next_edge: Option<Timestamp>,
    pub(super) total: usize,
    pub(super) undeclared: usize,
    pub(super) awaited: usize,
    pub(super) unshown: usize,
}

/// What the comparison is made of.
pub(super) struct Scene<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) observed: &'a Observed,
    pub(super) identity: &'a Identity<'a>,
    pub(super) removals: &'a Removals<'a>,
    /// From which class on effects go only as they were shown.
    pub(super) bind: Option<EffectClass>,
    /// Where that is written, as `file:line`.
    pub(super) bind_place: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// Compares every machine, shows what moves, and writes what `delta` stores of it.
pub(super) fn compare(
    scene: &Scene<'_>,
    templates: &mut Templates<'_>,
    brakes: &mut Brakes,
    delta: &mut Delta,
) -> Moves {
    let Scene { fleet, observed, .. } = scene;
    let mut out = Moves::default();
    let mut known: Vec<&Name> = observed.nodes.iter().map(|node| &node.name).collect();
    known.sort_unstable();
    let mut known = InOrder::new(known.into_iter().map(|name| (name, ())));
    let unknown: Vec<&Name> = fleet.nodes.keys().filter(|name| known.find(name).is_none()).collect();
    let mut newcomers: Vec<ObservedNode> = Vec::new();
    match observed.machines {
        Machines::Joined => out.awaited = unknown.len(),
        Machines::Declared => newcomers.extend(unknown.into_iter().map(newcomer)),
    }
    let mut all: Vec<&ObservedNode> = observed.nodes.iter().chain(&newcomers).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));

    let mut members: BTreeMap<Name, PoolPlan> =
        fleet.pools.values().map(|pool| (pool.name.clone(), pool_plan(fleet, pool))).collect();
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    let mut documents = InOrder::new(fleet.nodes.iter().map(|(name, node)| (name, &**node)));
    for node in all {
        let wanted = Wanted::of(scene, node, documents.find(&node.name), templates);
        if observed.machines == Machines::Declared && node.declared && !wanted.declared {
            // Offline, a machine is its document: it goes with it.
            continue;
        }
        out.next_edge = [out.next_edge, wanted.hold.as_ref().and_then(|hold| hold.until)].into_iter().flatten().min();
        out.total += 1;
        out.undeclared += usize::from(!wanted.declared);
        if let Some(pool) = wanted.pool.and_then(|pool| members.get_mut(pool)) {
            pool.machines += 1;
        }
        candidates.extend(Candidate::of(scene, node, wanted, brakes));
    }
    let mut classifier = Classifier::new(observed, templates.all());
    let told: Vec<(Option<Told<'_>>, Option<Told<'_>>)> = candidates.iter().map(Candidate::told).collect();
    let changes = classifier.all(&told);
    out.effects = classifier.into_effects();
    let mut waiting = Waiting::default();
    for (candidate, change) in candidates.iter().zip(changes) {
        let held = held::held(scene, candidate, &change, brakes, &mut out);
        waiting.note(candidate, &held);
        finish::finish(candidate, change, held, &mut members, &mut out, delta);
    }
    out.rows = waiting.rows(scene);
    out.pools = members.into_values().collect();
    expired(fleet, scene.now, &mut out);
    out
}

fn pool_plan(fleet: &Fleet, pool: &Pool) -> PoolPlan {
    let (strategy, rollout) = match fleet.strategy(pool) {
        Strategy::Immediate { rollout } => ("immediate", rollout),
        Strategy::Waves { rollout } => ("waves", Some(rollout)),
    };
    PoolPlan {
        pool: pool.name.clone(),
        strategy: strategy.to_owned(),
        rollout,
        machines: 0,
        moves: 0,
        held: 0,
        effect: EffectClass::None,
        waves: None,
    }
}

fn newcomer(name: &Name) -> ObservedNode {
    ObservedNode {
        id: None,
        name: name.clone(),
        site: None,
        pool: None,
        role: Role::Unassigned,
        declared: false,
        labels: Labels::default(),
        target: None,
        target_overlay: NodeOverlay::default(),
        assigned: None,
        assigned_overlay: NodeOverlay::default(),
        assigned_name: None,
        hold: None,
    }
}

fn expired(fleet: &Fleet, now: Timestamp, out: &mut Moves) {
    for node in fleet.nodes.values() {
        let ended = node.cordon.as_ref().and_then(|cordon| cordon.value.until.as_ref());
        if ended.is_some_and(|until| until.value <= now)
            && let Some(hold) = cordon(node, None).filter(|hold| !hold.holds(now))
        {
            out.warnings.push(Warning {
                object: ObjectRef::new(Kind::Node, node.name.clone()),
                message: "its cordon has ended and can be deleted".to_owned(),
                place: hold.place,
                note: false,
            });
        }
    }
}
