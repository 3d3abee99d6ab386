//! Machines: what each should be, and which of them move.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    effect::EffectClass,
    fleet::{Fleet, HostTemplate, Node, NodeOverlay, Pool, Strategy},
    name::Name,
    node::{Hold, HoldSource, PoolClass, Role},
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::{
    Delta, HoldChange, Machines, MoveReason, NodeMove, NodeRow, Observed, ObservedNode, PoolPlan, PoolRow,
    TargetChange, TargetRow, Warning,
    diff::diff,
    gates::Removals,
    observed::{document, text},
};

/// The host templates of a fleet, each made once.
pub(super) struct Templates<'f> {
    fleet: &'f Fleet,
    digests: BTreeMap<(Name, Name), Option<Digest>>,
    templates: BTreeMap<Digest, HostTemplate>,
}

impl<'f> Templates<'f> {
    pub(super) const fn new(fleet: &'f Fleet) -> Self {
        Self { fleet, digests: BTreeMap::new(), templates: BTreeMap::new() }
    }

    /// What the hosts of a pool under a profile should be; `None` when there is no such profile.
    pub(super) fn digest(&mut self, pool: &Pool, profile: &Name) -> Option<Digest> {
        let key = (pool.name.clone(), profile.clone());
        if let Some(known) = self.digests.get(&key) {
            return *known;
        }
        let template = self.fleet.host_template(&pool.name, profile);
        let digest = template.as_ref().map(HostTemplate::digest);
        if let (Some(digest), Some(template)) = (digest, template) {
            self.templates.insert(digest, template);
        }
        self.digests.insert(key, digest);
        digest
    }

    /// The same for a pool's own profile and for those that declared machines of it have instead.
    pub(super) fn of_pool(&mut self, pool: &Pool) -> BTreeMap<Name, Digest> {
        let fleet = self.fleet;
        let overrides =
            fleet.nodes.values().filter(|node| node.pool.as_ref().is_none_or(|named| named.value == pool.name));
        let mut profiles: BTreeSet<&Name> = overrides.filter_map(|node| Some(&node.profile.as_ref()?.value)).collect();
        profiles.insert(&pool.profile.value);
        profiles.into_iter().filter_map(|profile| Some((profile.clone(), self.digest(pool, profile)?))).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (Digest, &HostTemplate)> {
        self.templates.iter().map(|(digest, template)| (*digest, template))
    }
}

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

#[derive(Default)]
pub(super) struct Moves {
    pub(super) moves: Vec<NodeMove>,
    pub(super) holds: Vec<HoldChange>,
    pub(super) targets: Vec<TargetChange>,
    pub(super) pools: Vec<PoolPlan>,
    pub(super) warnings: Vec<Warning>,
    pub(super) total: usize,
    pub(super) undeclared: usize,
    pub(super) awaited: usize,
}

pub(super) fn compare(
    fleet: &Fleet,
    observed: &Observed,
    removals: &Removals<'_>,
    now: Timestamp,
    delta: &mut Delta,
) -> Moves {
    let mut templates = Templates::new(fleet);
    let mut out = Moves::default();
    pools(fleet, observed, &mut templates, &mut out, delta);
    delta.removed_pools =
        removals.granted.keys().filter(|object| object.kind == Kind::Pool).map(|object| object.name.clone()).collect();

    let known: BTreeSet<&Name> = observed.nodes.iter().map(|node| &node.name).collect();
    let unknown: Vec<&Node> = fleet.nodes.values().filter(|node| !known.contains(&node.name)).collect();
    let mut machines: Vec<ObservedNode> = Vec::new();
    match observed.machines {
        Machines::Joined => out.awaited = unknown.len(),
        Machines::Declared => machines.extend(unknown.into_iter().map(|node| newcomer(&node.name))),
    }
    let mut all: Vec<&ObservedNode> = observed.nodes.iter().chain(&machines).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let mut members: BTreeMap<Name, (usize, usize)> = BTreeMap::new();
    for node in all {
        let wanted = wanted(fleet, removals, node, now, &mut templates);
        if observed.machines == Machines::Declared && node.declared && !wanted.declared {
            // Offline, a machine is its document: it goes with it.
            continue;
        }
        out.total += 1;
        out.undeclared += usize::from(!wanted.declared);
        let moved = one(node, &wanted, &mut out, delta);
        if let Some(pool) = &wanted.pool {
            let (total, moves) = members.entry(pool.clone()).or_default();
            *total += 1;
            *moves += usize::from(moved);
        }
    }
    for pool in fleet.pools.values() {
        let (machines, moves) = members.get(&pool.name).copied().unwrap_or_default();
        let (strategy, rollout) = match fleet.strategy(pool) {
            Strategy::Immediate { rollout } => ("immediate", rollout),
            Strategy::Waves { rollout } => ("waves", Some(rollout)),
        };
        out.pools.push(PoolPlan {
            pool: pool.name.clone(),
            strategy: strategy.to_owned(),
            rollout,
            machines,
            moves,
            held: 0,
            effect: EffectClass::None,
            waves: None,
        });
    }
    for (digest, template) in templates.all().filter(|(digest, _)| !observed.targets.contains_key(digest)) {
        let row = TargetRow { pool: template.pool.clone(), profile: template.profile.clone(), doc: text(template) };
        delta.targets.insert(digest, row);
    }
    expired(fleet, now, &mut out);
    out
}

fn pools(fleet: &Fleet, observed: &Observed, templates: &mut Templates<'_>, out: &mut Moves, delta: &mut Delta) {
    let documents: BTreeMap<ObjectRef, (Digest, serde_json::Value)> = fleet
        .objects()
        .filter(|entry| entry.object.kind == Kind::Pool)
        .map(|entry| (entry.object, (entry.digest, entry.doc)))
        .collect();
    for pool in fleet.pools.values() {
        let profile_targets = templates.of_pool(pool);
        let Some(target) = profile_targets.get(&pool.profile.value).copied() else { continue };
        let held = observed.pools.get(&pool.name);
        for (profile, after) in &profile_targets {
            let before = held.and_then(|held| {
                held.profile_targets
                    .get(profile)
                    .copied()
                    .or_else(|| held.target.filter(|_| *profile == pool.profile.value))
            });
            if before == Some(*after) {
                continue;
            }
            let old = before.and_then(|before| observed.targets.get(&before));
            let new = templates.templates.get(after).map(document);
            let fields = match (old, new) {
                (Some(old), Some(new)) => diff(&old.doc, &new),
                _ => Vec::new(),
            };
            out.targets.push(TargetChange {
                pool: pool.name.clone(),
                profile: profile.clone(),
                before,
                after: *after,
                fields,
            });
        }
        let object = ObjectRef::new(Kind::Pool, pool.name.clone());
        let Some((digest, doc)) = documents.get(&object) else { continue };
        let same_document = observed.objects.get(&object).is_some_and(|object| object.digest == *digest);
        let same_targets =
            held.is_some_and(|held| held.target == Some(target) && held.profile_targets == profile_targets);
        if !(same_document && same_targets) {
            delta.pools.push(PoolRow {
                document_changes: !same_document,
                name: pool.name.clone(),
                site: pool.site.value.clone(),
                class: class(pool),
                policy: doc.clone(),
                target,
                profile_targets,
            });
        }
    }
}

pub(super) fn class(pool: &Pool) -> PoolClass {
    pool.class.as_ref().map_or(PoolClass::MetalHost, |class| class.value)
}

fn newcomer(name: &Name) -> ObservedNode {
    ObservedNode {
        id: None,
        name: name.clone(),
        site: None,
        pool: None,
        role: Role::Unassigned,
        declared: false,
        labels: BTreeMap::new(),
        target: None,
        target_overlay: NodeOverlay::default(),
        assigned: None,
        assigned_overlay: NodeOverlay::default(),
        hold: None,
    }
}

/// What a machine should be.
struct Wanted<'f> {
    pool: Option<Name>,
    declared_pool: Option<&'f Pool>,
    declared: bool,
    overlay: NodeOverlay,
    target: Option<Digest>,
    hold: Option<Hold>,
}

fn wanted<'f>(
    fleet: &'f Fleet,
    removals: &Removals<'_>,
    node: &ObservedNode,
    now: Timestamp,
    templates: &mut Templates<'f>,
) -> Wanted<'f> {
    let document = fleet.nodes.get(&node.name);
    let gone = removals.granted.contains_key(&ObjectRef::new(Kind::Node, node.name.clone()));
    let (declared, overlay, hold) = match document {
        Some(document) => (true, NodeOverlay::of(document), cordon(document, Some(now))),
        None if gone || !node.declared => (false, NodeOverlay::default(), None),
        // Its document is retained: it keeps its words, and a cordon that has ended is over.
        None => (true, node.target_overlay.clone(), node.hold.clone().filter(|hold| hold.holds(now))),
    };
    let pool = document
        .and_then(|document| document.pool.as_ref())
        .map(|pool| pool.value.clone())
        .or_else(|| node.pool.clone());
    let declared_pool = pool.as_ref().and_then(|pool| fleet.pools.get(pool));
    // A pool or a profile that is retained has no template in this fleet: what was in force stays.
    let target = declared_pool.map_or(node.target, |pool| {
        templates.digest(pool, overlay.profile.as_ref().unwrap_or(&pool.profile.value)).or(node.target)
    });
    Wanted { pool, declared_pool, declared, overlay, target, hold }
}

/// Compares one machine; answers whether what it is assigned changes.
fn one(node: &ObservedNode, wanted: &Wanted<'_>, out: &mut Moves, delta: &mut Delta) -> bool {
    let mut why = Vec::new();
    if node.pool != wanted.pool {
        why.push(MoveReason::Membership { from: node.pool.clone(), to: wanted.pool.clone() });
    }
    let before = &node.target_overlay;
    if before.profile != wanted.overlay.profile {
        why.push(MoveReason::Profile { from: before.profile.clone(), to: wanted.overlay.profile.clone() });
    }
    if before.labels != wanted.overlay.labels || node.labels != wanted.overlay.labels {
        why.push(MoveReason::Labels);
    }
    if node.declared != wanted.declared {
        why.push(MoveReason::Declaration { declared: wanted.declared });
    }
    if node.target != wanted.target {
        why.push(if node.target.is_none() { MoveReason::First } else { MoveReason::Target });
    }
    let assigned_changes = node.assigned != wanted.target || node.assigned_overlay != wanted.overlay;
    if assigned_changes && why.is_empty() {
        why.push(MoveReason::Behind);
    }
    let hold_changes = node.hold != wanted.hold;
    if words(node.hold.as_ref()) != words(wanted.hold.as_ref()) {
        hold_change(node, wanted.hold.as_ref(), out);
    }
    let site = wanted.declared_pool.map_or_else(|| node.site.clone(), |pool| Some(pool.site.value.clone()));
    let role = wanted.declared_pool.map_or(node.role, |pool| class(pool).role());
    if (!why.is_empty() || hold_changes || site != node.site || role != node.role)
        && let Some(id) = node.id
    {
        delta.nodes.push(NodeRow {
            id,
            site,
            pool: wanted.pool.clone(),
            role,
            declared: wanted.declared,
            labels: wanted.overlay.labels.clone(),
            target: wanted.target,
            overlay: text(&wanted.overlay),
            assign: assigned_changes,
            hold: wanted.hold.clone(),
            hold_changes,
        });
    }
    if why.is_empty() {
        return false;
    }
    why.sort();
    let profile =
        wanted.overlay.profile.clone().or_else(|| wanted.declared_pool.map(|pool| pool.profile.value.clone()));
    out.moves.push(NodeMove {
        node: node.name.clone(),
        id: node.id,
        pool: wanted.pool.clone(),
        profile,
        why,
        before: node.assigned,
        after: wanted.target,
        effect: EffectClass::None,
        effects: None,
        before_spec: None,
        after_spec: None,
        held: Vec::new(),
    });
    true
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

fn expired(fleet: &Fleet, now: Timestamp, out: &mut Moves) {
    for node in fleet.nodes.values() {
        if let Some(hold) = cordon(node, None).filter(|hold| !hold.holds(now)) {
            out.warnings.push(Warning {
                object: ObjectRef::new(Kind::Node, node.name.clone()),
                message: "its cordon has ended and can be deleted".to_owned(),
                place: hold.place,
            });
        }
    }
    out.warnings.sort();
}
