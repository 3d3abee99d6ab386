//! A batch as it is shown.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::batch::{Leaf as SignedLeaf, RefusedVote, Tally};
use schema::{canonical, command::CommandKind, id::NodeId, name::Name};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use store::{
    batches::{self, Ask, Batch, Leaf, LeafState},
    node_certs, outcomes,
};

use super::super::At;
use crate::{
    api::{ApiError, App},
    batch::{resolve, standing::Standing},
};

/// A batch of destructive commands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct BatchView {
    /// Its id.
    batch_id: String,
    /// Its name; used once.
    name: Name,
    /// `proposed`, `approved`, `dispatching`, or how it ended: `done`, `expired`, `void`, `rejected`, `cancelled`.
    state: String,
    /// Why it is there, a stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Why it is there, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What it waits for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<WaitsFor>,
    /// Where it comes from: `document`, `proposal`, `api`, `breakglass`.
    origin: String,
    /// People have to approve it; without that it is written down for audit only, and goes at once.
    needs_approval: bool,
    /// What is done.
    kind: String,
    /// Why it is asked for.
    why: String,
    /// Its document, canonical.
    document: Value,
    /// Where that is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// The commit that introduced its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_commit: Option<String>,
    /// The class of destructive work.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    /// What people sign the digest of, canonical.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Value>,
    /// That digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// What people said; absent where nobody has to, and once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<Approvals>,
    /// Who proposes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposer: Option<String>,
    /// Who wrote it down.
    created_by: String,
    /// Nothing of it begins before.
    not_before: At,
    /// Nothing of it begins from here on.
    expires: At,
    /// Machines at a time.
    max_in_flight: u32,
    /// Failures that it tolerates.
    max_failures: u32,
    /// The label whose values are failure domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<String>,
    /// Its machines in numbers.
    counts: Counts,
    /// When it was first written down.
    created_at: At,
    /// When its machines were last resolved.
    resolved_at: At,
    /// When people's approvals were enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<At>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<At>,
    /// It was an emergency, and nobody looked at it yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    to_review: bool,
    /// Who looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reviewed: Option<Reviewed>,
}

/// What it waits for.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct WaitsFor {
    /// The stable word.
    pub(in crate::api) reason: String,
    /// For people.
    pub(in crate::api) message: String,
    /// Since when.
    pub(in crate::api) since: At,
}

/// Machines in numbers.
#[derive(Debug, Default, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Counts {
    /// All of them.
    pub(in crate::api) machines: usize,
    /// Nothing was sent.
    waiting: usize,
    /// Their command has not ended.
    sent: usize,
    /// Done.
    succeeded: usize,
    /// Ended otherwise.
    failed: usize,
    /// They never began, and never will.
    left: usize,
}

/// What people said.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approvals {
    /// Enough of them approve.
    approved: bool,
    /// Who approves.
    yes: Vec<Name>,
    /// Who rejects.
    no: Vec<Name>,
    /// Who took it back.
    withdrawn: Vec<Name>,
    /// What is still needed.
    missing: Vec<String>,
    /// Who could still approve.
    may: Vec<Name>,
    /// Too few are left who could: nobody can give what is still needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    out_of_reach: bool,
    /// Keys that count no more, by name, as far as the control plane heard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revoked: Vec<String>,
    /// Statements that do not count, with the reason and its stable word.
    refused: Vec<String>,
    /// The epoch of the policy under which it is approved.
    trust_epoch: u64,
    /// The policy of that epoch is not in force any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
}

/// Who looked at an emergency.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reviewed {
    /// When.
    at: At,
    /// Who.
    by: String,
    /// What they found.
    note: String,
}

/// One machine of a batch.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct LeafView {
    /// Its place.
    index: u32,
    /// The id of the machine.
    subject: String,
    /// Its name when the batch was resolved.
    node: Name,
    /// What is done.
    kind: String,
    /// What the command is told, defaults filled in.
    payload: Value,
    /// SHA-256 of that, canonical, in hexadecimal digits.
    payload_sha256: String,
    /// `waiting`, `sent`, `succeeded`, `failed` or `left`.
    state: String,
    /// Why, a stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// The leaf of the tree that people sign, canonical.
    #[serde(skip_serializing_if = "Option::is_none")]
    leaf: Option<Value>,
    /// The machine's pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Name>,
    /// Whether its session is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    connectivity: Option<String>,
    /// Nothing new is placed on it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cordoned: bool,
    /// Something waits for a boot on it, and comes with one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    staged: bool,
    /// Why it is not the machine that was resolved any more, so that it does not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
    /// When its command was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    began_at: Option<At>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<At>,
    /// What it said about itself last.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
}

/// A machine's report with its serial numbers, as it signed it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Identity {
    /// The exact bytes, base64.
    payload: String,
    /// The signature, base64.
    signature: String,
    /// The keys of the machine's certificates, base64: one of them signed it.
    keys: Vec<String>,
}

impl BatchView {
    pub(in crate::api) async fn of(app: &App, batch: &Batch, standing: Option<&Standing>) -> Result<Self, ApiError> {
        let counts = Counts::of(&batches::count_leaves(&app.db, batch.id).await?);
        let ended = batch.state.is_terminal();
        let waits_for = if ended { None } else { waits_for(app, batch.new.name.as_str()).await? };
        Self::with(batch, standing, counts, waits_for)
    }

    fn with(
        batch: &Batch,
        standing: Option<&Standing>,
        counts: Counts,
        waits_for: Option<WaitsFor>,
    ) -> Result<Self, ApiError> {
        let new = &batch.new;
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).map_err(ApiError::internal);
        Ok(Self {
            batch_id: batch.id.to_string(),
            name: new.name.clone(),
            state: batch.state.to_string(),
            reason: batch.reason.clone(),
            message: batch.message.clone(),
            waits_for,
            origin: new.origin.to_string(),
            needs_approval: new.quorum,
            kind: new.kind.clone(),
            why: new.why.clone(),
            document: json(new.doc.as_bytes())?,
            place: new.place.clone(),
            plan_commit: new.plan.as_ref().map(|(commit, _)| commit.clone()),
            tier: new.signed.as_ref().map(|signed| signed.tier.to_string()),
            header: new.signed.as_ref().map(|signed| json(&signed.header)).transpose()?,
            digest: new.signed.as_ref().map(|signed| signed.digest.to_string()),
            approvals: standing.map(Approvals::of),
            proposer: new.proposer.clone(),
            created_by: new.created_by.clone(),
            not_before: At(new.not_before),
            expires: At(new.expires),
            max_in_flight: new.max_in_flight,
            max_failures: new.max_failures,
            spread: new.spread.clone(),
            counts,
            created_at: At(batch.created_at),
            resolved_at: At(batch.resolved_at),
            decided_at: batch.decided_at.map(At),
            ended_at: batch.ended_at.map(At),
            to_review: new.origin == batches::Origin::Breakglass && batch.closed.is_none(),
            reviewed: batch.closed.as_ref().map(|closed| Reviewed {
                at: At(closed.at),
                by: closed.by.clone(),
                note: closed.note.clone(),
            }),
        })
    }
}

impl BatchView {
    /// One that the transaction of this call has just written, so that nobody else sees it yet.
    pub(in crate::api) fn fresh(batch: &Batch, machines: usize) -> Result<Self, ApiError> {
        let counts = Counts { machines, waiting: machines, ..Counts::default() };
        Self::with(batch, None, counts, None)
    }
}

/// What the reconciler said last.
pub(super) async fn waits_for(app: &App, name: &str) -> Result<Option<WaitsFor>, ApiError> {
    let outcome = outcomes::find(&app.db, store::queue::BATCH.name, name).await?;
    Ok(outcome.filter(|outcome| matches!(outcome.state.as_str(), "wait" | "error")).map(|outcome| WaitsFor {
        reason: outcome.reason,
        message: outcome.message,
        since: At(outcome.since),
    }))
}

impl Counts {
    fn of(leaves: &BTreeMap<LeafState, usize>) -> Self {
        let of = |state: LeafState| leaves.get(&state).copied().unwrap_or(0);
        Self {
            machines: leaves.values().sum(),
            waiting: of(LeafState::Waiting),
            sent: of(LeafState::Sent),
            succeeded: of(LeafState::Succeeded),
            failed: of(LeafState::Failed),
            left: of(LeafState::Left),
        }
    }
}

impl Approvals {
    fn of(standing: &Standing) -> Self {
        let tally = standing.tally.as_ref();
        let names = |of: fn(&Tally) -> &BTreeSet<Name>| tally.into_iter().flat_map(of).cloned().collect();
        let refused = |refused: &RefusedVote| match &refused.who {
            Some(who) => format!("{who}: {} ({})", refused.why, refused.why.code()),
            None => format!("{} ({})", refused.why, refused.why.code()),
        };
        Self {
            approved: tally.is_some_and(|tally| tally.approved),
            yes: names(|tally| &tally.yes),
            no: names(|tally| &tally.no),
            withdrawn: names(|tally| &tally.withdrawn),
            missing: tally.map_or_else(Vec::new, |tally| tally.missing.clone()),
            may: standing.candidates.iter().cloned().collect(),
            out_of_reach: tally.is_some_and(|tally| !tally.approved) && !standing.attainable,
            revoked: standing.revoked.iter().cloned().collect(),
            refused: tally.map_or(&standing.lapsed, |tally| &tally.refused).iter().map(refused).collect(),
            trust_epoch: standing.header.under.epoch,
            stale: tally.is_none(),
        }
    }
}

pub(super) async fn leaves(
    app: &App,
    batch: &Batch,
    leaves: &[Leaf],
    identities: bool,
) -> Result<Vec<LeafView>, ApiError> {
    let ids: Vec<NodeId> = leaves.iter().map(|leaf| leaf.node_id).collect();
    let mut signed = if identities { batches::signed_identity(&app.db, &ids).await? } else { Default::default() };
    let mut all = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        let payload: Value = serde_json::from_str(&leaf.payload).map_err(ApiError::internal)?;
        let identity = match signed.remove(&leaf.node_id) {
            Some((bytes, signature)) => Some(Identity {
                payload: STANDARD.encode(bytes),
                signature: STANDARD.encode(signature),
                keys: node_certs::keys(&app.db, leaf.node_id).await?.iter().map(|key| STANDARD.encode(key)).collect(),
            }),
            None => None,
        };
        let machine = leaf.machine.as_ref();
        let shown = batch.new.kind.parse::<CommandKind>().map_or_else(|_| payload.clone(), |kind| kind.shown(&payload));
        all.push(LeafView {
            index: leaf.index,
            subject: leaf.node_id.to_string(),
            node: leaf.node.clone(),
            kind: batch.new.kind.clone(),
            payload: shown,
            payload_sha256: hex::encode(canonical::digest(&payload).map_err(ApiError::internal)?.as_bytes()),
            state: leaf.state.to_string(),
            reason: leaf.reason.clone(),
            command: leaf.command.map(|id| id.to_string()),
            leaf: leaf.leaf.as_deref().map(serde_json::from_slice).transpose().map_err(ApiError::internal)?,
            pool: machine.and_then(|machine| machine.pool.clone()),
            connectivity: machine.map(|machine| machine.connectivity.to_string()),
            cordoned: machine.is_some_and(|machine| machine.cordoned),
            staged: machine.is_some_and(|machine| machine.staged),
            changed: changed(leaf),
            began_at: leaf.began_at.map(At),
            ended_at: leaf.ended_at.map(At),
            identity,
        });
    }
    Ok(all)
}

fn changed(leaf: &Leaf) -> Option<String> {
    let (signed, machine) = (leaf.leaf.as_deref().and_then(SignedLeaf::read)?, leaf.machine.as_ref()?);
    let differs = resolve::differs(&signed, machine).filter(|_| leaf.state == LeafState::Waiting);
    differs.map(|differs| format!("{differs} ({})", differs.code()))
}

/// What asks for a batch and is none.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct AskView {
    /// The name that it asks for, or the branch of a proposal below `bc/proposals/`.
    name: String,
    /// `document` or `proposal`.
    origin: String,
    /// `waiting`: it is tried again by itself. `refused`: somebody has to do something.
    state: String,
    /// Why, a stable word.
    reason: String,
    /// Why, for people.
    message: String,
    /// Where it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    /// The commit of a proposal.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// Since when.
    since: At,
}

impl AskView {
    pub(super) fn of(ask: Ask) -> Self {
        Self {
            state: if ask.new.waits { "waiting" } else { "refused" }.to_owned(),
            origin: ask.origin.to_string(),
            name: ask.new.name,
            reason: ask.new.code,
            message: ask.new.message,
            place: ask.new.place,
            commit: ask.new.commit,
            since: At(ask.since),
        }
    }
}
