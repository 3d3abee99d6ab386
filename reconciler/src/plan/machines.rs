//! Machines: what each should be, which of them move, how hard that is for them, and what keeps them.
//!
//! A machine that a gate holds is written its target and not assigned it: it keeps what it runs, and a later plan finds
//! it behind and lets it go when the gate is open. A change of its pool is not written either while it is held, so that a
//! frozen pool loses nobody. A machine that is told for the first time what it should be always goes: leaving it bare
//! protects nothing that runs on it. A move that leaves the spec as it is, such as that of a pool that has another name, is
//! no change of the machine, and nothing holds it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use schema::{
    digest::Digest,
    effect::{EffectClass, Effects},
    fleet::{Fleet, Labels, Node, NodeOverlay, Pool, Strategy},
    name::Name,
    node::{Hold, HoldSource, Role},
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::{
    Delta, GateWord, Held, HoldChange, HoldRow, Machines, MoveReason, NodeMove, NodeRow, Observed, ObservedNode,
    PoolPlan, Warning, bind,
    brakes::{Brakes, Covered, machines as counted},
    effects::{Change, Classifier, Told},
    gates::Removals,
    identity::Identity,
    in_order::InOrder,
    observed::text,
    pools::{Templates, class},
};

/// A document's cordon, unless it has ended.
pub(crate) fn cordon(node: &Node, now: Option<Timestamp>) -> Option<Hold> {
    let cordon = node.cordon.as_ref()?;
    let hold = Hold {
        source: HoldSource::Git,
        owner: cordon.value.owner.value.clone(),
        reason: cordon.value.reason.value.clone(),
        until: cordon.value.until.as_ref().map(|until| until.value),
        place: Some(format!("{}:{}", cordon.at.file, cordon.at.line())),
    };
    now.is_none_or(|now| hold.holds(now)).then_some(hold)
}

/// What was found.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) moves: Vec<NodeMove>,
    pub(super) holds: Vec<HoldChange>,
    pub(super) pools: Vec<PoolPlan>,
    pub(super) effects: Vec<Effects>,
    pub(super) warnings: Vec<Warning>,
    /// What cannot be composed, and for which machines.
    trouble: BTreeMap<String, Vec<Name>>,
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

/// What a machine should be.
struct Wanted<'f> {
    pool: Option<&'f Name>,
    declared_pool: Option<&'f Pool>,
    declared: bool,
    overlay: Cow<'f, NodeOverlay>,
    target: Option<Digest>,
    hold: Option<Cow<'f, Hold>>,
}

/// A machine whose row or assignment may change.
struct Candidate<'a> {
    node: &'a ObservedNode,
    wanted: Wanted<'a>,
    why: Vec<MoveReason>,
    /// Whether it is assigned something else.
    assigns: bool,
    /// The brakes that hold now and cover it.
    brakes: Vec<usize>,
    /// What it is called in force.
    former: Option<&'a Name>,
    /// A brake that ends with this commit keeps it: its row stays as it is, so that it waits for the next one.
    kept: bool,
    /// Something is staged on it already and waits for a boot.
    awaits_boot: bool,
}

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
        let wanted = wanted(scene, node, documents.find(&node.name), templates);
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
        candidates.extend(candidate(scene, node, wanted, brakes));
    }
    let mut classifier = Classifier::new(observed, templates.all());
    let told: Vec<(Option<Told<'_>>, Option<Told<'_>>)> = candidates.iter().map(Candidate::told).collect();
    let changes = classifier.all(&told);
    out.effects = classifier.into_effects();
    let mut waiting = Waiting::default();
    for (candidate, change) in candidates.iter().zip(changes) {
        let held = held(scene, candidate, &change, brakes, &mut out);
        waiting.note(candidate, &held);
        finish(candidate, change, held, &mut members, &mut out, delta);
    }
    out.rows = waiting.rows(scene);
    out.pools = members.into_values().collect();
    expired(fleet, scene.now, &mut out);
    for (message, names) in std::mem::take(&mut out.trouble) {
        let Some(first) = names.first() else { continue };
        let others = names.len() - 1;
        let message = if others == 0 { message } else { format!("{message} (and {} more)", counted(others)) };
        out.warnings.push(Warning {
            object: ObjectRef::new(Kind::Node, first.clone()),
            message,
            place: None,
            note: false,
        });
    }
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

fn wanted<'f>(
    scene: &Scene<'f>,
    node: &'f ObservedNode,
    document: Option<&'f Node>,
    templates: &mut Templates<'_>,
) -> Wanted<'f> {
    let Scene { fleet, removals, now, .. } = *scene;
    let gone = || removals.granted.contains_key(&ObjectRef::new(Kind::Node, node.name.clone()));
    let (declared, overlay, hold) = match document {
        Some(document) => (true, overlay(node, document), hold(node, document, now)),
        None if !node.declared || gone() => (false, Cow::Owned(NodeOverlay::default()), None),
        // Its document is retained: it keeps its words, and a cordon that has ended is over.
        None => {
            let hold = node.hold.as_ref().filter(|hold| hold.holds(now));
            (true, Cow::Borrowed(&node.target_overlay), hold.map(Cow::Borrowed))
        }
    };
    let pool = document.and_then(|document| document.pool.as_ref()).map(|pool| &pool.value).or(node.pool.as_ref());
    let declared_pool = pool.and_then(|pool| fleet.pools.get(pool));
    // A pool or a profile that is retained has no template in this fleet: what was in force stays.
    let target = declared_pool.map_or(node.target, |pool| {
        templates.digest(pool, overlay.profile.as_ref().unwrap_or(&pool.profile.value)).or(node.target)
    });
    Wanted { pool, declared_pool, declared, overlay, target, hold }
}

/// The words of a document; those that the machine has already, when they are the same.
fn overlay<'f>(node: &'f ObservedNode, document: &Node) -> Cow<'f, NodeOverlay> {
    let known = &node.target_overlay;
    let profile = document.profile.as_ref().map(|profile| &profile.value);
    if known.profile.as_ref() == profile && known.labels.are_of(document) {
        Cow::Borrowed(known)
    } else {
        Cow::Owned(NodeOverlay::of(document))
    }
}

/// The cordon of a document, in the same way.
fn hold<'f>(node: &'f ObservedNode, document: &Node, now: Timestamp) -> Option<Cow<'f, Hold>> {
    let cordon = document.cordon.as_ref()?;
    let words = &cordon.value;
    let same = |known: &&Hold| {
        let place = known.place.as_deref().and_then(|place| place.rsplit_once(':'));
        known.source == HoldSource::Git
            && known.owner == words.owner.value
            && known.reason == words.reason.value
            && known.until == words.until.as_ref().map(|until| until.value)
            && place.is_some_and(|(file, line)| file == &*cordon.at.file && line.parse() == Ok(cordon.at.line()))
    };
    match node.hold.as_ref().filter(same) {
        Some(known) => known.holds(now).then_some(Cow::Borrowed(known)),
        None => self::cordon(document, Some(now)).map(Cow::Owned),
    }
}

impl Wanted<'_> {
    /// Whether the cordon is the one that is in force.
    fn keeps_its_hold(&self, node: &ObservedNode) -> bool {
        match (&node.hold, &self.hold) {
            // What was taken over is the same, and is not read again.
            (Some(_), Some(Cow::Borrowed(_))) => true,
            (before, after) => before.as_ref() == after.as_deref(),
        }
    }

    fn site<'a>(&'a self, node: &'a ObservedNode) -> Option<&'a Name> {
        self.declared_pool.map_or(node.site.as_ref(), |pool| Some(&pool.site.value))
    }
}

/// Compares one machine; `None` when nothing of it changes.
fn candidate<'a>(
    scene: &Scene<'a>,
    node: &'a ObservedNode,
    wanted: Wanted<'a>,
    brakes: &mut Brakes,
) -> Option<Candidate<'a>> {
    let mut why = Vec::new();
    if node.pool.as_ref() != wanted.pool {
        why.push(MoveReason::Membership { from: node.pool.clone(), to: wanted.pool.cloned() });
    }
    let before = &node.target_overlay;
    if !scene.identity.is_same_profile(before.profile.as_ref(), wanted.overlay.profile.as_ref()) {
        why.push(MoveReason::Profile { from: before.profile.clone(), to: wanted.overlay.profile.clone() });
    }
    let same_words = matches!(wanted.overlay, Cow::Borrowed(_));
    if (!same_words && before.labels != wanted.overlay.labels) || node.labels != wanted.overlay.labels {
        why.push(MoveReason::Labels);
    }
    if node.declared != wanted.declared {
        why.push(MoveReason::Declaration { declared: wanted.declared });
    }
    if node.target != wanted.target {
        why.push(if node.target.is_none() { MoveReason::First } else { MoveReason::Target });
    }
    let renamed = || scene.identity.former(&ObjectRef::new(Kind::Node, node.name.clone())).map(|former| &former.name);
    let former = node.assigned_name.as_ref().or_else(renamed).filter(|former| **former != node.name);
    let assigns = node.assigned != wanted.target || node.assigned_overlay != *wanted.overlay || former.is_some();
    let site = wanted.site(node);
    if node.site.is_some() && site != node.site.as_ref() {
        why.push(MoveReason::Site { from: node.site.clone(), to: site.cloned() });
    }
    if why.is_empty() && former.is_some() {
        why.push(MoveReason::Target);
    }
    if why.is_empty() && assigns {
        why.push(MoveReason::Behind);
    }
    let role = wanted.declared_pool.map_or(node.role, |pool| class(pool).role());
    let covered =
        Covered { node: &node.name, pools: [node.pool.as_ref(), wanted.pool], sites: [node.site.as_ref(), site] };
    let mut holding = brakes.look(&covered);
    let behind = || {
        node.target == wanted.target
            && (same_words || node.target_overlay == *wanted.overlay)
            && node.pool.as_ref() == wanted.pool
            && site == node.site.as_ref()
            && former.is_none()
    };
    if holding.iter().any(|index| brakes.ends(*index)) && behind() {
        holding.retain(|index| !brakes.ends(*index));
    }
    let kept = holding.iter().any(|index| brakes.ends(*index));
    let row_changes = !wanted.keeps_its_hold(node) || site != node.site.as_ref() || role != node.role;
    if why.is_empty() && !row_changes {
        return None;
    }
    why.sort();
    let awaits_boot = scene.observed.boots.as_ref().is_some_and(|boots| boots.contains(&node.name));
    Some(Candidate { node, wanted, why, assigns, brakes: holding, former, kept, awaits_boot })
}

impl<'a> Candidate<'a> {
    /// What the machine is composed from now and afterwards.
    fn told(&self) -> (Option<Told<'_>>, Option<Told<'_>>) {
        if !self.assigns && self.former.is_none() {
            return (None, None);
        }
        let Self { node, wanted, former, .. } = self;
        let told = |template: Option<Digest>, overlay, name| template.map(|template| Told { template, overlay, name });
        (
            told(node.assigned, &node.assigned_overlay, former.unwrap_or(&node.name)),
            told(wanted.target, &wanted.overlay, &node.name),
        )
    }

    fn leaves_its_pool(&self) -> bool {
        self.node.pool.is_some() && self.node.pool.as_ref() != self.wanted.pool
    }

    fn leaves_its_site(&self) -> bool {
        self.node.site.is_some() && self.node.site.as_ref() != self.wanted.site(self.node)
    }
}

/// Everything that keeps a machine from moving; what is told nothing new, or for the first time, goes. A machine whose spec
/// cannot be made is held like one that is told: it would be told as soon as the spec can be made.
fn held(
    scene: &Scene<'_>,
    candidate: &Candidate<'_>,
    change: &Change,
    brakes: &mut Brakes,
    out: &mut Moves,
) -> Vec<Held> {
    let Candidate { node, wanted, .. } = candidate;
    let is_told = change.is_told();
    if node.assigned.is_none() || !(is_told || candidate.leaves_its_pool() || candidate.leaves_its_site()) {
        return Vec::new();
    }
    let class = change.class();
    let mut held: Vec<Held> = candidate.brakes.iter().map(|index| brakes.hold(*index, class)).collect();
    // One that is narrowed holds as it was and as it comes.
    held.sort();
    held.dedup();
    if !is_told {
        return held;
    }
    if let Some(Strategy::Waves { rollout }) = wanted.declared_pool.map(|pool| scene.fleet.strategy(pool)) {
        held.push(Held { gate: GateWord::Rollout, by: format!("rollout/{rollout}"), until: None });
    }
    let one = bind::Move {
        node: &node.name,
        pool: wanted.pool,
        declared: wanted.declared,
        behind: node.target == wanted.target && node.target_overlay == *wanted.overlay,
        before: node.assigned,
        after: wanted.target,
        before_spec: change.before,
        after_spec: change.after,
        effect: class,
        unknown: change.failed.is_some() || change.blind.is_some(),
    };
    if let Some(unshown) =
        scene.bind.and_then(|class| bind::judge(class, &scene.observed.shown, &scene.observed.missing, &one))
    {
        out.unshown += 1;
        held.push(unshown);
    }
    held.sort();
    held
}

/// Writes a machine's row and shows its move.
fn finish(
    candidate: &Candidate<'_>,
    change: Change,
    held: Vec<Held>,
    members: &mut BTreeMap<Name, PoolPlan>,
    out: &mut Moves,
    delta: &mut Delta,
) {
    let Candidate { node, wanted, why, .. } = candidate;
    let hold_changes = node.hold.as_ref() != wanted.hold.as_deref();
    if words(node.hold.as_ref()) != words(wanted.hold.as_deref()) {
        hold_change(node, wanted.hold.as_deref(), out);
    }
    let goes = held.is_empty();
    if !goes {
        let stuck = |kind, name: Option<&Name>| Some((node.name.clone(), ObjectRef::new(kind, name?.clone())));
        out.stuck.extend(stuck(Kind::Pool, node.pool.as_ref().filter(|_| candidate.leaves_its_pool())));
        out.stuck.extend(stuck(Kind::Site, node.site.as_ref().filter(|_| candidate.leaves_its_site())));
    }
    delta.nodes.extend(row(candidate, goes, hold_changes));
    if why.is_empty() {
        return;
    }
    let effect = change.class();
    if let Some(pool) = wanted.pool.and_then(|pool| members.get_mut(pool)) {
        pool.moves += 1;
        pool.held += usize::from(!goes);
        pool.effect = pool.effect.max(effect);
    }
    let object = || ObjectRef::new(Kind::Node, node.name.clone());
    if let Some(message) = change.failed {
        let message = format!("its spec cannot be made, so that the last good one stays in force: {message}");
        out.warnings.push(Warning { object: object(), message, place: None, note: false });
    }
    if let Some(message) = change.blind {
        let message =
            format!("what it is told now cannot be made again, so that only what comes is counted: {message}");
        out.warnings.push(Warning { object: object(), message, place: None, note: false });
    }
    let profile =
        wanted.overlay.profile.clone().or_else(|| wanted.declared_pool.map(|pool| pool.profile.value.clone()));
    out.moves.push(NodeMove {
        node: node.name.clone(),
        id: node.id,
        pool: wanted.pool.cloned(),
        profile,
        why: why.clone(),
        before: node.assigned,
        after: wanted.target,
        effect,
        effects: change.effects,
        before_spec: change.before,
        after_spec: change.after,
        awaits_boot: candidate.awaits_boot,
        held,
    });
}

/// The row as it is afterwards; `None` when it is so already. A machine that is held stays where it is, or what covers it
/// there would cover it no more in the next plan.
fn row(candidate: &Candidate<'_>, goes: bool, hold_changes: bool) -> Option<NodeRow> {
    let Candidate { node, wanted, assigns, .. } = candidate;
    let id = node.id?;
    let assign = goes && *assigns;
    let (site, role) = if goes {
        (wanted.site(node).cloned(), wanted.declared_pool.map_or(node.role, |pool| class(pool).role()))
    } else {
        (node.site.clone(), node.role)
    };
    let stays = !goes && (candidate.kept || candidate.leaves_its_pool());
    let (pool, target, overlay, labels) = if stays {
        (node.pool.clone(), node.target, &node.target_overlay, &node.labels)
    } else {
        (wanted.pool.cloned(), wanted.target, &*wanted.overlay, &wanted.overlay.labels)
    };
    let same = pool == node.pool
        && site == node.site
        && role == node.role
        && target == node.target
        && *overlay == node.target_overlay
        && *labels == node.labels
        && wanted.declared == node.declared;
    if same && !assign && !hold_changes {
        return None;
    }
    Some(NodeRow {
        id,
        site,
        pool,
        role,
        declared: wanted.declared,
        labels: (**labels).clone(),
        target,
        overlay: text(overlay),
        assign,
        hold: wanted.hold.as_deref().cloned(),
        hold_changes,
    })
}

/// What a hold says, wherever it is written.
fn words(hold: Option<&Hold>) -> Option<(&str, &str, Option<Timestamp>)> {
    hold.map(|hold| (hold.owner.as_str(), hold.reason.as_str(), hold.until))
}

fn hold_change(node: &ObservedNode, after: Option<&Hold>, out: &mut Moves) {
    if let Some(hold) = after.or(node.hold.as_ref()) {
        out.holds.push(HoldChange {
            node: node.name.clone(),
            holds: after.is_some(),
            owner: hold.owner.clone(),
            reason: hold.reason.clone(),
            until: hold.until,
            place: hold.place.clone(),
        });
    }
}

/// Machines that rollouts and binding hold, for each pool: one stored hold for each gate and pool.
#[derive(Default)]
struct Waiting {
    pools: BTreeMap<(Name, GateWord), (usize, String)>,
}

impl Waiting {
    fn note(&mut self, candidate: &Candidate<'_>, held: &[Held]) {
        let Some(pool) = candidate.wanted.pool.or(candidate.node.pool.as_ref()) else { return };
        for held in held.iter().filter(|held| matches!(held.gate, GateWord::Rollout | GateWord::Bind)) {
            let waiting = self.pools.entry((pool.clone(), held.gate)).or_insert_with(|| (0, held.by.clone()));
            waiting.0 += 1;
        }
    }

    fn rows(self, scene: &Scene<'_>) -> Vec<HoldRow> {
        let place = |pool: &Name| {
            let at = &scene.fleet.pools.get(pool)?.at;
            Some(format!("{}:{}", at.file, at.line()))
        };
        self.pools
            .into_iter()
            .map(|((pool, gate), (count, by))| {
                let reason = match gate {
                    GateWord::Rollout => format!("{by} goes in waves ({} waiting)", counted(count)),
                    _ => {
                        let class = scene.bind.unwrap_or(EffectClass::None);
                        format!(
                            "{class} and harder goes only as a plan that the commit names shows it ({} waiting)",
                            counted(count)
                        )
                    }
                };
                let place = match gate {
                    GateWord::Bind => scene.bind_place.map(str::to_owned),
                    _ => place(&pool),
                };
                let subject = ObjectRef::new(Kind::Pool, pool);
                HoldRow { subject, gate, owner: "source".to_owned(), reason, until: None, place }
            })
            .collect()
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
