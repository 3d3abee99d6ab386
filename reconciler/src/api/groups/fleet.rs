//! `fleet`: one look at everything, and the way out of a rewritten history.

use std::collections::BTreeMap;

use schema::{id::NodeId, node::Connectivity, time::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{
    clock::Apart,
    control_plane,
    joins::JoinState,
    key_holders,
    node_certs::{self, Revocation},
    node_drift, nodes, outbox, outcomes, queue, revisions,
    rollbacks::{self, Rollback, RollbackState},
    sessions, sources,
    trust::Following,
};

use super::{
    At, Nothing, UnreadableView,
    batches::{AskView, BatchView},
    brakes::{self, Holds},
    joins::{self, JoinView},
    pools::{self, PoolView},
};
use crate::{
    api::{ApiError, App, error::Code, table::Mutation},
    source::{self, AcceptError},
    why,
};

/// How many problems and joins a status shows.
const WORST: u32 = 50;
/// How many retained objects it names.
const RETAINED: u32 = 10;
/// How long it says that the database was restored.
const RESTORED_LATELY: Duration = Duration::from_secs(86_400);
/// How many refused joins it shows.
const REFUSED: u32 = 10;

/// A commit, and when it was reached.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CommitView {
    /// The commit.
    commit: String,
    /// When.
    at: At,
}

impl CommitView {
    fn of(at: &sources::At) -> Self {
        Self { commit: at.commit.clone(), at: At(at.at) }
    }
}

/// A source, and how far it was followed. A commit that is null was never reached.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SourceView {
    /// Its name.
    name: String,
    /// Where it is.
    url: String,
    /// The branch that is followed.
    branch: String,
    /// The folder in it.
    path: String,
    /// What it does or why it stands.
    state: String,
    /// Why, for people.
    reason: Option<String>,
    /// What is wrong with the files, when that is why.
    diagnostics: Option<Value>,
    /// Since when.
    since: At,
    /// When it was last asked.
    checked_at: Option<At>,
    /// The newest commit that was seen.
    remote: Option<CommitView>,
    /// The newest that passed verification.
    verified: Option<CommitView>,
    /// The newest that was planned.
    planned: Option<CommitView>,
    /// The one in force.
    applied: Option<CommitView>,
    /// After a rollback: the commit that was in force before.
    #[serde(skip_serializing_if = "Option::is_none")]
    rolled_back_from: Option<String>,
    /// The rollback that waits, that was refused last, or that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollback: Option<RollbackView>,
}

/// A rollback.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RollbackView {
    /// Its id.
    id: String,
    /// The revision that it goes back to.
    revision: String,
    /// `requested`, `done` or `refused`.
    state: String,
    /// Why it was refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// Who answers for it.
    owner: String,
    /// Why it was asked for.
    reason: String,
    /// When it was asked for.
    requested_at: At,
}

impl SourceView {
    fn of(source: &sources::Source, rollback: Option<Rollback>) -> Self {
        let says = |rollback: &Rollback| match rollback.state {
            RollbackState::Done => source.rolled_back_from.is_some(),
            RollbackState::Withdrawn => false,
            RollbackState::Requested | RollbackState::Refused => true,
        };
        let commit = |at: &Option<sources::At>| at.as_ref().map(CommitView::of);
        Self {
            name: source.name.clone(),
            url: source.url.clone(),
            branch: source.branch.clone(),
            path: source.path.clone(),
            state: source.state.clone(),
            reason: source.reason.clone(),
            diagnostics: source.detail.clone(),
            since: At(source.since),
            checked_at: source.checked_at.map(At),
            remote: commit(&source.remote),
            verified: commit(&source.verified),
            planned: commit(&source.planned),
            applied: commit(&source.applied),
            rolled_back_from: source.rolled_back_from.clone(),
            rollback: rollback.filter(says).map(|rollback| RollbackView {
                id: rollback.new.id.to_string(),
                revision: rollback.new.revision.to_string(),
                state: rollback.state.as_str().to_owned(),
                message: rollback.message,
                owner: rollback.new.owner,
                reason: rollback.new.reason,
                requested_at: At(rollback.requested_at),
            }),
        }
    }
}

/// Nodes by connectivity.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeCounts {
    total: u64,
    connected: u64,
    disconnected: u64,
    unreachable: u64,
    lost: u64,
}

impl NodeCounts {
    fn of(counts: &BTreeMap<Connectivity, u64>) -> Self {
        let count = |state| counts.get(&state).copied().unwrap_or(0);
        Self {
            total: counts.values().sum(),
            connected: count(Connectivity::Connected),
            disconnected: count(Connectivity::Disconnected),
            unreachable: count(Connectivity::Unreachable),
            lost: count(Connectivity::Lost),
        }
    }
}

/// Machines that are not as they should be, or not yet.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DriftCounts {
    /// Machines where something else changed a value that is not as desired now.
    drifted: u64,
    /// Other machines where such a value was put right within the last hour; `nodes.drift` has those of a day.
    corrected: u64,
    /// Machines where something is staged for a boot.
    reboot_required: u64,
}

impl DriftCounts {
    const fn of(counts: node_drift::Counts) -> Self {
        let node_drift::Counts { drifted, corrected, reboot_required } = counts;
        Self { drifted, corrected, reboot_required }
    }
}

/// Keys that wait for a reconciler or run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct QueueView {
    /// The reconciler.
    reconciler: String,
    /// How many keys.
    waiting: u64,
}

/// What is not done, why, since when, and where the code said so.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Problem {
    /// Who says so.
    reconciler: String,
    /// About what.
    key: String,
    /// The node's name, when it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// `wait`, `again` or `error`.
    state: String,
    /// Why, stable.
    reason: String,
    /// Why, for people.
    message: String,
    /// Since when.
    since: At,
    /// The place in the code.
    place: String,
}

impl Problem {
    pub(super) fn of(outcome: &outcomes::Outcome) -> Self {
        Self {
            reconciler: outcome.kind.clone(),
            key: outcome.key.clone(),
            node: None,
            state: outcome.state.clone(),
            reason: outcome.reason.clone(),
            message: outcome.message.clone(),
            since: At(outcome.since),
            place: outcome.place.clone(),
        }
    }

    /// The clock of a process's host, when it is another than the database's.
    fn of_clock(holder: &key_holders::Holder) -> Option<Self> {
        let apart = Apart::of(holder.clock_off).filter(|_| !holder.is_gateway)?;
        Some(Self {
            reconciler: "clock".to_owned(),
            key: holder.name.clone(),
            node: None,
            state: "wait".to_owned(),
            reason: Apart::CODE.to_owned(),
            message: apart.to_string(),
            since: At(holder.seen_at),
            place: file!().to_owned(),
        })
    }

    /// A gateway that gets in no more.
    fn of_gateway(holder: &key_holders::Holder) -> Self {
        Self {
            reconciler: "gateway".to_owned(),
            key: holder.name.clone(),
            node: None,
            state: "wait".to_owned(),
            reason: why::OUTSIDE.to_owned(),
            message: why::outside(&holder.name),
            since: At(holder.seen_at),
            place: file!().to_owned(),
        }
    }

    /// What is refused of a machine whose identity was revoked is refused for that.
    pub(super) fn of_node(outcome: &outcomes::Outcome, revoked: Option<&Revocation>) -> Self {
        let problem = Self::of(outcome);
        match revoked.filter(|_| outcome.kind == "session") {
            Some(revoked) => {
                Self { reason: "revoked".to_owned(), message: why::revoked(revoked), since: At(revoked.at), ..problem }
            }
            None => problem,
        }
    }
}

/// Machines that are not in, the latest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Joins {
    /// Those that wait for somebody.
    waiting: Vec<JoinView>,
    /// Those that were turned away.
    refused: Vec<JoinView>,
}

/// Where the fleet stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Status {
    /// The fleet; null while the row that says so cannot be read.
    fleet_id: Option<String>,
    /// Its trust domain; null until a fleet was loaded, and while the row cannot be read.
    trust_domain: Option<String>,
    /// The control plane admits described hardware; null while the row cannot be read.
    dev: Option<bool>,
    /// How commits are verified: `unverified` until somebody pins an anchor, `pinned` while nothing is verified from it yet, and
    /// `verified` when only what people signed comes into force.
    verification: String,
    /// What the fleet is pinned to, and how far it was verified from there.
    trust: Option<TrustView>,
    /// The control plane's version.
    version: String,
    /// When the database was restored from a backup; absent when that was not within the last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    restored_at: Option<At>,
    /// The database's time.
    now: At,
    /// Where machines dial.
    gateways: Vec<String>,
    /// What they hold the control plane against.
    pin: String,
    /// The sources.
    sources: Vec<SourceView>,
    /// The pools.
    pools: Vec<PoolView>,
    /// The nodes.
    nodes: NodeCounts,
    /// What the nodes say about drift and boots.
    drift: DriftCounts,
    /// The work queue.
    queue: Vec<QueueView>,
    /// Machines that are not in.
    joins: Joins,
    /// What is not done, the longest first: errors, then what waits.
    problems: Vec<Problem>,
    /// Everything that is held, and the commits in quarantine.
    held: Holds,
    /// Batches of destructive commands that have not ended, and emergencies that nobody looked at, newest first.
    batches: Vec<BatchView>,
    /// What asks for a batch and is none, or none yet, with the reason.
    batch_asks: Vec<AskView>,
    /// Rows of the database that belong to any of this and cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
    /// Objects that no file declares any more and that nobody removed: their last texts are in force.
    retained: Retained,
}

/// Objects that are retained.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Retained {
    /// How many.
    count: u64,
    /// The first of them, as `kind/name`.
    first: Vec<String>,
}

pub(in crate::api) async fn status(app: &App, _: Nothing) -> Result<Status, ApiError> {
    let db = &app.db;
    let mut unreadable = Vec::new();
    let plane = super::one(control_plane::find(db).await, &mut unreadable)?;
    if plane.is_none() && unreadable.is_empty() {
        return Err(ApiError::internal("the database has no control plane row"));
    }
    let trust = trust(app).await?;
    let depth = queue::depth(db).await?;
    let now = db.now().await?;
    let restored = outbox::restored_at(db).await?.filter(|at| RESTORED_LATELY.after(*at) > now);
    let (retained, first) = revisions::retained(db, RETAINED).await?;
    let status = Status {
        fleet_id: plane.as_ref().map(|plane| plane.fleet_id.to_string()),
        dev: plane.as_ref().map(|plane| plane.dev),
        trust_domain: plane.and_then(|plane| plane.trust_domain),
        verification: trust.as_ref().map_or("unverified", TrustView::word).to_owned(),
        trust,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        restored_at: restored.map(At),
        now: At(now),
        gateways: app.gateways.clone(),
        pin: app.pin.to_string(),
        sources: sources(app, &mut unreadable).await?,
        pools: pools::all(app, &mut unreadable).await?,
        nodes: NodeCounts::of(&sessions::count_by_connectivity(db).await?),
        drift: DriftCounts::of(node_drift::counts(db).await?),
        queue: depth.into_iter().map(|(reconciler, waiting)| QueueView { reconciler, waiting }).collect(),
        joins: Joins {
            waiting: joins::latest(app, &[JoinState::Waiting, JoinState::Held], WORST, &mut unreadable).await?,
            refused: joins::latest(app, &[JoinState::Refused], REFUSED, &mut unreadable).await?,
        },
        problems: problems(app, &mut unreadable).await?,
        held: brakes::held(app, &mut unreadable).await?,
        batches: super::batches::open(app, &mut unreadable).await?,
        batch_asks: super::batches::asks(app, &mut unreadable).await?,
        retained: Retained { count: retained, first },
        unreadable: Vec::new(),
    };
    unreadable.dedup();
    Ok(Status { unreadable, ..status })
}

/// What a fleet is pinned to.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TrustView {
    /// The commit that authority begins with.
    anchor: String,
    /// The fleet that statements name.
    fleet: String,
    /// The digest of the first policy.
    digest: String,
    /// The epoch of the policy in force; null while nothing is verified.
    epoch: Option<u64>,
    /// The last commit that is verified; null while none is.
    verified: Option<String>,
    /// The machines that believe another policy than the newest.
    machines: FollowingView,
}

/// Machines that are not retired and believe another policy than the newest.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FollowingView {
    /// None, or they have not said so.
    without: u64,
    /// An earlier one.
    behind: u64,
    /// One that is not of this control plane: they follow no later one.
    apart: u64,
}

impl TrustView {
    const fn word(&self) -> &'static str {
        if self.verified.is_some() { "verified" } else { "pinned" }
    }
}

async fn trust(app: &App) -> Result<Option<TrustView>, ApiError> {
    let Some(pin) = app.pinned.get() else { return Ok(None) };
    let reached = store::trust::checkpoint(&app.db, source::FLEET).await?;
    let Following { without, behind, apart } = store::trust::following(&app.db).await?;
    Ok(Some(TrustView {
        anchor: pin.commit.to_string(),
        fleet: pin.fleet.to_string(),
        digest: pin.digest.to_string(),
        epoch: reached.as_ref().map(|reached| reached.epoch),
        verified: reached.map(|reached| reached.commit),
        machines: FollowingView { without, behind, apart },
    }))
}

async fn sources(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<SourceView>, ApiError> {
    let mut views = Vec::new();
    for source in super::readable(sources::list(&app.db).await?, unreadable) {
        let rollback = super::one(rollbacks::latest(&app.db, &source.name).await, unreadable)?;
        views.push(SourceView::of(&source, rollback));
    }
    Ok(views)
}

async fn problems(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<Problem>, ApiError> {
    let mut problems = Vec::new();
    let open = super::readable(outcomes::list_open(&app.db, WORST).await?, unreadable);
    // What a batch waits for is told beside it.
    for outcome in open.iter().filter(|outcome| outcome.kind != queue::BATCH.name) {
        let same = open.iter().filter(|other| other.key == outcome.key).map(|other| other.reason.as_str());
        if why::is_echo(&outcome.reason, same) {
            continue;
        }
        let Some(id) = outcome.key.parse::<NodeId>().ok() else {
            problems.push(Problem::of(outcome));
            continue;
        };
        let node = super::one(nodes::find(&app.db, id).await, unreadable)?.map(|node| node.name.to_string());
        let revoked = super::one(node_certs::revocation(&app.db, id).await, unreadable)?;
        problems.push(Problem { node, ..Problem::of_node(outcome, revoked.as_ref()) });
    }
    let holders = super::readable(key_holders::list(&app.db).await?, unreadable);
    problems.extend(holders.iter().filter_map(Problem::of_clock));
    let now = app.db.now().await?;
    problems.extend(holders.iter().filter(|holder| app.is_outside(holder, now)).map(Problem::of_gateway));
    Ok(problems)
}

/// A rewritten history to accept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Accept {
    /// The whole id of the commit that the branch names.
    commit: String,
}

/// What was accepted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Accepted {
    /// The commit; it comes into force when it is a fleet.
    commit: String,
}

pub(in crate::api) async fn accept(mutation: Mutation<'_>, input: Accept) -> Result<Accepted, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    source::accept(&app.db, txn, &app.pinned, source::FLEET, &input.commit, &caller.name).await.map_err(|error| {
        match error {
            AcceptError::Missing(_) => ApiError::not_found("a fleet repository"),
            AcceptError::NotDiverged(_) | AcceptError::Pinned => ApiError::new(Code::InvalidState, error.to_string()),
            AcceptError::NotTheTip { .. } => ApiError::new(Code::Conflict, error.to_string()),
            AcceptError::Db(error) => error.into(),
        }
    })?;
    Ok(Accepted { commit: input.commit })
}
