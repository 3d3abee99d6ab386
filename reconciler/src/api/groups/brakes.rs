//! `fleet`, what people stop by hand: a commit in quarantine, the way back to a revision, parts that stand still; and
//! everything that is held, by whom, why and until when.

mod over;

use schema::{
    digest::Digest,
    fleet::brake::{self, Brake, BrakeKind, Scope},
    id::RollbackId,
    node::{Hold, HoldSource},
    object::{Kind, ObjectRef},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    Txn,
    fleet_holds::{self, FleetHold},
    node_holds, nodes,
    poke::Poke,
    quarantine, revisions,
    rollbacks::{self, NewRollback},
    sources::{self, AdvanceError, Source},
    suspensions,
};

use super::{At, Nothing};
use crate::{
    api::{ApiError, App, Code, auth::Caller, table::Mutation},
    apply::brake_by_hand,
    plan::GateWord,
    source::FLEET,
    why::Gate,
};

pub(super) use over::over;

/// How many holds and how many quarantined commits are answered.
const MANY: usize = 1_000;

/// A commit to keep from coming into force.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Quarantine {
    /// The whole id of the commit.
    commit: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// A commit to let go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Release {
    /// The whole id of the commit.
    commit: String,
}

/// A commit that was put in quarantine or let go.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CommitAnswer {
    /// The commit.
    commit: String,
}

/// The way back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Rollback {
    /// Where to: `rev_…`, or a commit or its beginning of at least 7 digits.
    revision: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
    /// The digest of the plan that was shown, for effects that are bound to one.
    plan: Option<String>,
    /// The commit that the plan compared with; CONFLICT when another one is in force by now.
    from: Option<String>,
}

/// A rollback that the source will carry out.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Requested {
    /// Its id.
    id: String,
    /// The revision that it goes back to.
    revision: String,
    /// The commit of that revision.
    commit: String,
    /// The commits that are in quarantine from now on: the one in force, and the tip when it is a newer one.
    quarantined: Vec<String>,
}

/// A part of the fleet that should stand still.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Suspend {
    /// `fleet`, or `kind/name` of a site, a pool or a node.
    scope: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
    /// When it ends by itself, RFC 3339; somebody must lift it when it is absent.
    #[schemars(with = "Option<String>")]
    until: Option<Timestamp>,
    /// Also when somebody else suspends it by hand; theirs is over then.
    #[serde(default)]
    replace: bool,
}

/// A part of the fleet that goes on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Resume {
    /// `fleet`, or `kind/name` of a site, a pool or a node.
    scope: String,
}

/// A part of the fleet.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct ScopeAnswer {
    /// The scope.
    scope: String,
}

/// A part of the fleet that stands still.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Suspended {
    /// The scope.
    scope: String,
    /// What it took the place of.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<Replaced>,
}

/// A hold that another one took the place of.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Replaced {
    /// Who answered for it.
    owner: String,
    /// Why it was.
    reason: String,
    /// When it would have ended by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<At>,
}

impl Replaced {
    /// What a hold by `owner` takes the place of. Of somebody else's that is only done when it is said.
    pub(super) fn by(
        owner: &str,
        replace: bool,
        present: Option<(&str, &str, Option<Timestamp>)>,
        holds: impl FnOnce(&str) -> String,
    ) -> Result<Option<Self>, ApiError> {
        let Some((other, reason, until)) = present else { return Ok(None) };
        if other == owner || replace {
            return Ok(Some(Self { owner: other.to_owned(), reason: reason.to_owned(), until: until.map(At) }));
        }
        let end = until.map_or_else(|| "no end".to_owned(), |until| format!("until {}", whole(until)));
        Err(ApiError::new(Code::InvalidState, holds(other))
            .why(format!("{reason}, {end}; leave it, lift it first, or say that this one replaces it")))
    }
}

/// A moment without what nobody reads.
fn whole(at: Timestamp) -> Timestamp {
    at.round(jiff::Unit::Second).unwrap_or(at)
}

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
}

pub(in crate::api) async fn quarantine(mutation: Mutation<'_>, input: Quarantine) -> Result<CommitAnswer, ApiError> {
    let Mutation { txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    whole_commit(&input.commit)?;
    lock(txn).await?;
    quarantine::place(txn, FLEET, &input.commit, &owner, &reason, &caller.identity).await?;
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(CommitAnswer { commit: input.commit })
}

pub(in crate::api) async fn release(mutation: Mutation<'_>, input: Release) -> Result<CommitAnswer, ApiError> {
    let Mutation { txn, .. } = mutation;
    whole_commit(&input.commit)?;
    lock(txn).await?;
    if !quarantine::lift(txn, FLEET, &input.commit).await? {
        return Err(ApiError::not_found(format!("quarantine of commit {}", input.commit))
            .why("fleet.holds names the commits that are in quarantine"));
    }
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(CommitAnswer { commit: input.commit })
}

pub(in crate::api) async fn rollback(mutation: Mutation<'_>, input: Rollback) -> Result<Requested, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    let plan = input.plan.map(|plan| super::parse::<Digest>("plan", &plan)).transpose()?;
    let revision = super::revisions::find(app, &input.revision).await?;
    if revision.tree_digest.is_none() {
        return Err(super::revisions::without_files(&revision));
    }
    let commit = revision.revision.commit.clone();
    // From here on nothing comes into force until this is stored.
    let source = lock(txn).await?;
    let Some(in_force) = source.applied.as_ref().map(|at| at.commit.clone()) else {
        return Err(ApiError::new(Code::InvalidState, "nothing is in force yet"));
    };
    if input.from.as_ref().is_some_and(|from| *from != in_force) {
        return Err(ApiError::new(Code::Conflict, format!("commit {in_force} is in force by now"))
            .why("look at the plan again: it compared with another commit"));
    }
    if in_force == commit {
        let id = revision.revision.id;
        return Err(ApiError::new(Code::InvalidState, format!("{id} is of the commit in force"))
            .why("go back to an earlier revision; revisions.list names them"));
    }
    if let Some(held) = quarantine::find_in(txn, FLEET, &commit).await? {
        return Err(ApiError::new(Code::InvalidState, format!("commit {commit} is in quarantine"))
            .why(format!("{}: {}; release it first (fleet.release)", held.owner, held.reason)));
    }
    let tip = source.remote.map(|at| at.commit).filter(|tip| *tip != commit && *tip != in_force);
    let quarantined: Vec<String> = [Some(in_force.clone()), tip].into_iter().flatten().collect();
    let mut placed = Vec::new();
    for bad in &quarantined {
        if quarantine::find_in(txn, FLEET, bad).await?.is_none() {
            let why = format!("rolled back: {reason}");
            quarantine::place(txn, FLEET, bad, &owner, &why, &caller.identity).await?;
            placed.push(bad.clone());
        }
    }
    let new = NewRollback {
        id: RollbackId::generate(),
        source: FLEET.to_owned(),
        revision: revision.revision.id,
        from_commit: in_force,
        plan,
        owner,
        reason,
        requested_by: caller.identity.clone(),
        quarantined: placed,
    };
    rollbacks::request(txn, &new).await?;
    Ok(Requested { id: new.id.to_string(), revision: new.revision.to_string(), commit, quarantined })
}

pub(in crate::api) async fn suspend(mutation: Mutation<'_>, input: Suspend) -> Result<Suspended, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    if passed(txn, input.until).await? {
        return Err(ApiError::field("until", "this time has passed"));
    }
    exists(app, &input.scope).await?;
    let present = suspensions::list_in(txn).await?.into_iter().find(|present| present.scope == input.scope);
    let present = present.as_ref().map(|one| (one.owner.as_str(), one.reason.as_str(), one.until));
    let suspends = |other: &str| format!("{other} suspends {} already", input.scope);
    let replaced = Replaced::by(&owner, input.replace, present, suspends)?;
    suspensions::place(txn, &input.scope, &owner, &reason, input.until, &caller.identity).await?;
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(Suspended { scope: input.scope, replaced })
}

pub(in crate::api) async fn resume(mutation: Mutation<'_>, input: Resume) -> Result<ScopeAnswer, ApiError> {
    let Mutation { app, txn, .. } = mutation;
    if !suspensions::lift(txn, &input.scope).await? {
        let written = revisions::objects(&app.db).await?.into_iter().find(|object| {
            let named = object.object.to_string() == input.scope
                || (input.scope == "fleet" && object.object.kind == Kind::Fleet);
            named && object.state != revisions::ObjectState::Removed && suspends(object)
        });
        return Err(match written {
            Some(object) => ApiError::new(Code::InvalidState, format!("{} is suspended by its document", input.scope))
                .why(format!("take `suspend` out of {}:{}", object.file, object.line)),
            None => ApiError::not_found(format!("suspension of {} by hand", input.scope))
                .why("fleet.holds names what is suspended"),
        });
    }
    txn.poke(Poke::Source(FLEET.to_owned()));
    Ok(ScopeAnswer { scope: input.scope })
}

pub(in crate::api) async fn holds(app: &App, _: Nothing) -> Result<Holds, ApiError> {
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let stored = fleet_holds::list_in(&mut txn).await?;
    let brakes = brakes(&mut txn).await?;
    let places = match brakes.is_empty() {
        true => Vec::new(),
        false => nodes::places(&mut txn, &named(&brakes)).await?,
    };
    let cordons = node_holds::list_all(&mut txn).await?;
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
        quarantined: quarantined
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
pub(super) async fn of_node(app: &App, node: &nodes::Node) -> Result<Vec<HoldView>, ApiError> {
    let is_assigned = node.target == node.assigned && node.target_overlay == node.assigned_overlay;
    if is_assigned && node.assigned_name.is_none() {
        return Ok(Vec::new());
    }
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let stored = fleet_holds::list_in(&mut txn).await?;
    let brakes = brakes(&mut txn).await?;
    drop(txn);
    let own = format!("node/{}", node.name);
    let pool = node.pool.as_ref().map(|pool| format!("pool/{pool}"));
    let of_gates = stored
        .iter()
        .filter(|hold| !is_brake(hold) && (hold.subject == own || Some(&hold.subject) == pool.as_ref()))
        .map(|hold| view(&hold.subject, &hold.gate, &hold.hold, hold.created_at, 1));
    Ok(covering(&brakes, node, now, &stored).chain(of_gates).collect())
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
pub(super) async fn gates_of_node(app: &App, node: &nodes::Node) -> Result<Vec<Gate>, ApiError> {
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
async fn brakes(txn: &mut Txn) -> Result<Vec<(Brake, HoldSource)>, ApiError> {
    let objects = revisions::braking(txn).await?;
    let mut found = Vec::new();
    for object in &objects {
        let Ok(document) = serde_json::from_str(&object.doc) else { continue };
        let place = Some(format!("{}:{}", object.file, object.line));
        let said = brake::of_document(object.object.kind, &object.object.name, &document);
        found.extend(said.into_iter().map(|brake| (Brake { place: place.clone(), ..brake }, HoldSource::Git)));
    }
    let fleet = objects.iter().find(|object| object.object.kind == Kind::Fleet);
    let by_hand = suspensions::list_in(txn).await?.into_iter();
    let by_hand = by_hand.filter_map(|one| brake_by_hand(one, fleet.map(|fleet| &fleet.object)));
    found.extend(by_hand.map(|brake| (brake, HoldSource::Api)));
    Ok(found)
}

fn suspends(object: &revisions::StoredObject) -> bool {
    let document = serde_json::from_str(&object.doc).unwrap_or_default();
    let said = brake::of_document(object.object.kind, &object.object.name, &document);
    said.iter().any(|brake| brake.kind == BrakeKind::Suspend)
}

/// The fleet repository's row; an apply waits for it.
async fn lock(txn: &mut Txn) -> Result<Source, ApiError> {
    sources::lock(txn, FLEET).await.map_err(|error| match error {
        AdvanceError::Db(error) => error.into(),
        AdvanceError::Missing(_) | AdvanceError::Moved { .. } => ApiError::not_found("a fleet repository"),
    })
}

/// Who answers for it, and why.
pub(super) fn said(caller: &Caller, owner: Option<String>, reason: &str) -> Result<(String, String), ApiError> {
    if reason.trim().is_empty() || reason.len() > 500 {
        return Err(ApiError::field("reason", "say why, in 1 to 500 bytes"));
    }
    Ok((self::owner(caller, owner)?, reason.to_owned()))
}

/// Who answers for it: as named, else the name of the token.
pub(super) fn owner(caller: &Caller, named: Option<String>) -> Result<String, ApiError> {
    let owner = named.unwrap_or_else(|| caller.name.clone());
    let fits = !owner.trim().is_empty() && owner.len() <= 200;
    fits.then_some(owner).ok_or_else(|| ApiError::field("owner", "say who answers for it, in 1 to 200 bytes"))
}

fn whole_commit(text: &str) -> Result<(), ApiError> {
    let whole = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if whole { Ok(()) } else { Err(ApiError::field("commit", "it is the whole id of a commit, in lower case")) }
}

async fn passed(txn: &mut Txn, until: Option<Timestamp>) -> Result<bool, ApiError> {
    let now = txn.now().await?;
    Ok(until.is_some_and(|until| until <= now))
}

/// Refuses a scope that names nothing.
async fn exists(app: &App, scope: &str) -> Result<(), ApiError> {
    if scope == "fleet" {
        return Ok(());
    }
    let object: ObjectRef = super::parse("scope", scope)?;
    let there = match object.kind {
        Kind::Node => nodes::find_by_name(&app.db, &object.name).await?.is_some(),
        Kind::Site | Kind::Pool => revisions::find_object(&app.db, &object)
            .await?
            .is_some_and(|stored| stored.state != revisions::ObjectState::Removed),
        _ => return Err(ApiError::field("scope", "it is fleet, or kind/name of a site, a pool or a node")),
    };
    if there { Ok(()) } else { Err(ApiError::not_found(scope)) }
}
