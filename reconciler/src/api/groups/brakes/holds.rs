//! Everything that is held or will be: freezes, pins, suspensions, cordons, what gates hold, and commits in quarantine.

use schema::{
    fleet::brake::{self, Brake, BrakeKind, Scope},
    node::{Hold, HoldSource},
    object::Kind,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::Serialize;
use store::{
    Txn,
    fleet_holds::{self, FleetHold},
    node_holds, nodes, quarantine, revisions, suspensions,
};

use crate::{
    api::{
        ApiError, App,
        groups::{At, Nothing, UnreadableView, readable},
    },
    apply::brake_by_hand,
    plan::GateWord,
    source::FLEET,
    why::Gate,
};

/// How many holds and how many quarantined commits are answered.
const MANY: usize = 1_000;

/// Something that is held, or that will be.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct HoldView {
    /// What is held: `fleet`, or `kind/name`.
    subject: String,
    /// What holds: `freeze`, `pin`, `suspend`, `cordon`, `protected`, `prune`, `dependents`, `rollout` or `bind`.
    gate: String,
    /// Which one: `freeze/year-end`, `pool/h100`.
    by: String,
    /// `git`, `api` or `health`.
    source: String,
    /// Who answers for it.
    owner: String,
    /// Why.
    reason: String,
    /// The file and line that say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// When it begins; absent when it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<At>,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<At>,
    /// When it begins or lets go next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<At>,
    /// Since when something waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<At>,
    /// Whether it holds now.
    active: bool,
    /// The machines that it speaks of.
    machines: usize,
}

impl HoldView {
    fn into_gate(self) -> Gate {
        let source = self.source.parse().unwrap_or(HoldSource::Git);
        Gate {
            gate: self.gate,
            by: self.by,
            by_hand: source == HoldSource::Api,
            hold: Hold {
                source,
                owner: self.owner,
                reason: self.reason,
                until: self.until.or(self.next).map(|At(at)| at),
                place: self.place,
            },
            since: self.since.map(|At(at)| at),
        }
    }
}

/// A commit in quarantine.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct QuarantinedView {
    /// The commit.
    commit: String,
    /// Who answers for it.
    owner: String,
    /// Why.
    reason: String,
    /// Since when.
    at: At,
}

/// Everything that is held.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Holds {
    /// Freezes, pins, suspensions, cordons, and what gates hold; at most a thousand.
    items: Vec<HoldView>,
    /// Commits in quarantine, newest first; at most a thousand.
    quarantined: Vec<QuarantinedView>,
    /// Rows that belong here and cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
}

pub(in crate::api) async fn holds(app: &App, _: Nothing) -> Result<Holds, ApiError> {
    let mut unreadable = Vec::new();
    let held = held(app, &mut unreadable).await?;
    Ok(Holds { unreadable, ..held })
}

/// The same for a look at the whole, which tells of what cannot be read itself.
pub(in crate::api::groups) async fn held(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Holds, ApiError> {
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let stored = readable(fleet_holds::list_in(&mut txn).await?, unreadable);
    let brakes = brakes(&mut txn, unreadable).await?;
    let places = match brakes.is_empty() {
        true => Vec::new(),
        false => nodes::places(&mut txn, &named(&brakes)).await?,
    };
    let cordons = readable(node_holds::list_all(&mut txn).await?, unreadable);
    drop(txn);
    let mut items = Vec::new();
    for (brake, source) in brakes {
        let machines = covered(&brake, &places);
        items.extend(brake_view(brake, source, now, &stored, machines));
    }
    for hold in stored.iter().filter(|hold| !is_brake(hold)) {
        items.push(view(&hold.subject, &hold.gate, &hold.hold, hold.created_at, 0));
    }
    for (name, hold) in &cordons {
        items.push(view(&format!("node/{name}"), "cordon", &hold.hold, hold.created_at, 1));
    }
    items.truncate(MANY);
    let quarantined = quarantine::list(&app.db, FLEET, u32::try_from(MANY).unwrap_or(u32::MAX)).await?;
    Ok(Holds {
        items,
        unreadable: Vec::new(),
        quarantined: readable(quarantined, unreadable)
            .into_iter()
            .map(|held| QuarantinedView {
                commit: held.commit,
                owner: held.owner,
                reason: held.reason,
                at: At(held.created_at),
            })
            .collect(),
    })
}

/// What keeps a machine from its target; nothing when it is assigned to it.
pub(in crate::api::groups) async fn of_node(app: &App, node: &nodes::Node) -> Result<Vec<HoldView>, ApiError> {
    let is_assigned = node.target == node.assigned && node.target_overlay == node.assigned_overlay;
    if is_assigned && node.assigned_name.is_none() {
        return Ok(Vec::new());
    }
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let mut unreadable = Vec::new();
    let stored = readable(fleet_holds::list_in(&mut txn).await?, &mut unreadable);
    let brakes = brakes(&mut txn, &mut unreadable).await?;
    drop(txn);
    let own = format!("node/{}", node.name);
    let pool = node.pool.as_ref().map(|pool| format!("pool/{pool}"));
    let of_gates = stored
        .iter()
        .filter(|hold| !is_brake(hold) && (hold.subject == own || Some(&hold.subject) == pool.as_ref()))
        .map(|hold| view(&hold.subject, &hold.gate, &hold.hold, hold.created_at, 1));
    Ok(covering(&brakes, node, now, &stored).chain(of_gates).collect())
}

/// For each of these machines what stands over it now, whether or not anything waits for that.
pub(in crate::api::groups) async fn over(app: &App, nodes: &[nodes::Node]) -> Result<Vec<Vec<HoldView>>, ApiError> {
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let mut unreadable = Vec::new();
    let stored = readable(fleet_holds::list_in(&mut txn).await?, &mut unreadable);
    let mut standing = brakes(&mut txn, &mut unreadable).await?;
    // A pin says which revision, not that a machine is left alone.
    standing.retain(|(brake, _)| matches!(brake.kind, BrakeKind::Freeze | BrakeKind::Suspend));
    let cordons = readable(node_holds::list_all(&mut txn).await?, &mut unreadable);
    drop(txn);
    let over = |node: &nodes::Node| {
        let own = cordons.iter().filter(|(name, _)| *name == node.name.as_str());
        let own = own.map(|(name, held)| view(&format!("node/{name}"), "cordon", &held.hold, held.created_at, 1));
        covering(&standing, node, now, &stored).chain(own).collect()
    };
    Ok(nodes.iter().map(over).collect())
}

/// Those of the brakes that hold this machine now.
fn covering<'a>(
    brakes: &'a [(Brake, HoldSource)],
    node: &'a nodes::Node,
    now: Timestamp,
    stored: &'a [FleetHold],
) -> impl Iterator<Item = HoldView> + 'a {
    brakes
        .iter()
        .filter(|(brake, _)| brake.covers(&node.name, node.pool.as_deref(), node.site.as_deref()))
        .filter_map(move |(brake, source)| brake_view(brake.clone(), *source, now, stored, 1))
        .filter(|hold| hold.active)
}

/// The same for `why`.
pub(in crate::api::groups) async fn gates_of_node(app: &App, node: &nodes::Node) -> Result<Vec<Gate>, ApiError> {
    let held = of_node(app, node).await?;
    Ok(held.into_iter().map(HoldView::into_gate).collect())
}

/// The machines that brakes name.
fn named(brakes: &[(Brake, HoldSource)]) -> Vec<String> {
    let objects = brakes.iter().filter_map(|(brake, _)| match &brake.scope {
        Scope::Objects(objects) => Some(objects),
        Scope::Fleet => None,
    });
    let machines = objects.flatten().filter(|object| object.kind == Kind::Node);
    machines.map(|object| object.name.to_string()).collect()
}

/// How many machines a brake covers, of those that are where `places` says.
fn covered(brake: &Brake, places: &[nodes::Place]) -> usize {
    let one = |place: &nodes::Place| {
        let whole = brake.covers("", place.pool.as_deref(), place.site.as_deref());
        let named = || place.named.iter().filter(|name| brake.covers(name, None, None)).count();
        if whole { usize::try_from(place.machines).unwrap_or(usize::MAX) } else { named() }
    };
    places.iter().map(one).sum()
}

/// A brake for people; `None` when it is over.
fn brake_view(
    brake: Brake,
    source: HoldSource,
    now: Timestamp,
    stored: &[FleetHold],
    machines: usize,
) -> Option<HoldView> {
    let standing = brake.standing(now);
    if !standing.holds && standing.next_edge.is_none() {
        return None;
    }
    let gate = brake.kind.as_str();
    let since = stored.iter().find(|hold| hold.gate == gate && hold.subject == brake.name);
    Some(HoldView {
        subject: match &brake.scope {
            Scope::Fleet => "fleet".to_owned(),
            Scope::Objects(objects) => objects.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        },
        gate: gate.to_owned(),
        source: source.as_str().to_owned(),
        from: brake.from.filter(|from| *from > now).map(At),
        until: brake.until.map(At),
        next: standing.next_edge.map(At),
        since: since.map(|hold| At(hold.created_at)),
        active: standing.holds,
        machines,
        by: brake.name,
        owner: brake.owner,
        reason: brake.reason,
        place: brake.place,
    })
}

/// Whether a stored hold is the work of a brake, which is told by itself.
fn is_brake(hold: &FleetHold) -> bool {
    [GateWord::Freeze, GateWord::Pin, GateWord::Suspend].iter().any(|gate| gate.as_str() == hold.gate)
}

fn view(subject: &str, gate: &str, hold: &Hold, since: Timestamp, machines: usize) -> HoldView {
    HoldView {
        subject: subject.to_owned(),
        gate: gate.to_owned(),
        by: subject.to_owned(),
        source: hold.source.as_str().to_owned(),
        owner: hold.owner.clone(),
        reason: hold.reason.clone(),
        place: hold.place.clone(),
        from: None,
        until: hold.until.map(At),
        next: None,
        since: Some(At(since)),
        active: true,
        machines,
    }
}

/// Every brake in force, with the place where it is written, and those by hand.
async fn brakes(txn: &mut Txn, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<(Brake, HoldSource)>, ApiError> {
    let objects = readable(revisions::braking(txn).await?, unreadable);
    let mut found = Vec::new();
    for object in &objects {
        let Ok(document) = serde_json::from_str(&object.doc) else { continue };
        let place = Some(format!("{}:{}", object.file, object.line));
        let said = brake::of_document(object.object.kind, &object.object.name, &document);
        found.extend(said.into_iter().map(|brake| (Brake { place: place.clone(), ..brake }, HoldSource::Git)));
    }
    let fleet = objects.iter().find(|object| object.object.kind == Kind::Fleet);
    let by_hand = readable(suspensions::list_in(txn).await?, unreadable).into_iter();
    let by_hand = by_hand.filter_map(|one| brake_by_hand(one, fleet.map(|fleet| &fleet.object)));
    found.extend(by_hand.map(|brake| (brake, HoldSource::Api)));
    Ok(found)
}
