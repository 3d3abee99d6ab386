//! `joins`: machines that asked to come in and are not in.

use std::collections::BTreeMap;

use pki::hardware::JoinClaims;
use schema::{attested::Attested, id::NodeId, name::Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Txn, joins, nodes};

use super::{At, ById, PageOf, UnreadableView};
use crate::{
    api::{ApiError, App, Code, table::Mutation},
    join::admission,
};

/// Which joins.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// `waiting`, `held`, `refused` or `admitted`; all when it is absent.
    state: Option<String>,
    /// How many.
    limit: Option<u32>,
}

/// One machine that asked to come in.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct JoinView {
    /// Its id.
    id: String,
    /// `join`, or `renewal` for a machine that was away for too long.
    kind: String,
    /// `waiting`, `held`, `refused` or `admitted`.
    state: String,
    /// Why, stable.
    reason: String,
    /// Why, for people.
    message: String,
    /// The pool that its token names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The node it became or asks to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The name of that node.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    /// The node that it collides with.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict_with: Option<String>,
    /// The hardware key that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    hardware_key: Option<String>,
    /// What it proved to be, such as `tpm:sha256:…`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attested: Vec<Attested>,
    /// Who let its next try through.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_by: Option<String>,
    /// Where it called from.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    /// How often it asked.
    attempts: u32,
    /// When it asked first.
    created_at: At,
    /// When it asked last.
    updated_at: At,
}

/// One join, with what would end it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct JoinDetail {
    /// The join.
    join: JoinView,
    /// What the machine claims to be.
    claims: Value,
    /// The document that would admit it, ready to commit; absent when a document would not, as after a token that was for
    /// another machine, or when it has nothing to be recognised by.
    #[serde(skip_serializing_if = "Option::is_none")]
    admit: Option<String>,
}

async fn views(app: &App, found: &[joins::Join]) -> Result<Vec<JoinView>, ApiError> {
    let ids: Vec<NodeId> = found.iter().filter_map(|join| join.join.node_id).collect();
    let names = nodes::names(&app.db, &ids).await?;
    Ok(found.iter().map(|join| view(join, &names)).collect())
}

fn view(join: &joins::Join, names: &BTreeMap<NodeId, Name>) -> JoinView {
    JoinView {
        id: join.id.to_string(),
        kind: join.join.kind.as_str().to_owned(),
        state: join.join.state.as_str().to_owned(),
        reason: join.join.reason.clone(),
        message: join.join.message.clone(),
        pool: join.join.pool.clone(),
        node: join.join.node_id.map(|id| id.to_string()),
        node_name: join.join.node_id.and_then(|id| names.get(&id)).map(ToString::to_string),
        conflict_with: join.join.conflict_with.map(|id| id.to_string()),
        hardware_key: join.join.hardware_key.map(|key| key.to_string()),
        attested: join.join.attested.clone(),
        approved_by: join.approval.as_ref().map(|approval| approval.by.clone()),
        peer: join.join.peer.clone(),
        attempts: join.attempts,
        created_at: At(join.created_at),
        updated_at: At(join.updated_at),
    }
}

/// The joins in one of these states, the latest first.
pub(super) async fn latest(
    app: &App,
    states: &[joins::JoinState],
    limit: u32,
    unreadable: &mut Vec<UnreadableView>,
) -> Result<Vec<JoinView>, ApiError> {
    let mut found = Vec::new();
    for state in states {
        found.extend(super::readable(joins::list(&app.db, Some(*state), limit).await?, unreadable));
    }
    found.sort_by_key(|join| std::cmp::Reverse(join.updated_at));
    views(app, &found).await
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<JoinView>, ApiError> {
    let state = input.state.map(|state| super::parse("state", &state)).transpose()?;
    let found = joins::list(&app.db, state, super::limit(input.limit)?).await?;
    Ok(PageOf { items: views(app, &found.items).await?, next: None, unreadable: UnreadableView::all(found.unreadable) })
}

pub(in crate::api) async fn get(app: &App, input: ById) -> Result<JoinDetail, ApiError> {
    let join = find(app, &input.id).await?;
    let waits = join.join.state != joins::JoinState::Admitted && join.join.kind == joins::JoinKind::Join;
    let admit = if waits && BY_DOCUMENT.contains(&join.join.reason.as_str()) { admit(app, &join).await? } else { None };
    let names = nodes::names(&app.db, join.join.node_id.as_slice()).await?;
    Ok(JoinDetail { join: view(&join, &names), claims: join.join.claims.clone(), admit })
}

/// The reasons that a document settles: what a token refuses, no document allows.
const BY_DOCUMENT: &[&str] = &["attestation-disagrees", "attestation-unknown", "needs-document", "weak-hardware-key"];
/// The reasons that one word of a person settles.
const APPROVABLE: &[&str] = &["needs-document", "renewal-too-late", "weak-hardware-key"];
/// The reasons that need to know which node the machine is.
const WHICH_NODE: &[&str] = &[
    "attested-elsewhere",
    "duplicate-hardware",
    "name-taken",
    "reclaim-busy",
    "reclaim-connected",
    "reclaim-not-lost",
    "reclaim-other-pool",
];

pub(in crate::api) async fn approve(mutation: Mutation<'_>, input: ById) -> Result<JoinView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let join = find(app, &input.id).await?;
    let reason = join.join.reason.as_str();
    if !APPROVABLE.contains(&reason) {
        let error = ApiError::new(Code::InvalidState, format!("join {} is not one that waits for a yes", input.id));
        return Err(error.why(if WHICH_NODE.contains(&reason) {
            "say which node the machine is: better-compute node rebind NODE --join JOIN".to_owned()
        } else {
            format!("it is {}: {}", join.join.state, join.join.message)
        }));
    }
    approved(txn, &join, &caller.name, None).await?;
    let names = nodes::names(&app.db, join.join.node_id.as_slice()).await?;
    Ok(JoinView { approved_by: Some(caller.name.clone()), ..view(&join, &names) })
}

/// Lets the next try of a join through.
pub(super) async fn approved(
    txn: &mut Txn,
    join: &joins::Join,
    by: &str,
    as_node: Option<NodeId>,
) -> Result<(), ApiError> {
    if joins::approve(txn, join.id, by, as_node).await? {
        return Ok(());
    }
    let error = ApiError::new(Code::InvalidState, format!("join {} neither waits nor is held", join.id));
    Err(error.why(format!("it is {}", join.join.state)))
}

pub(super) async fn find(app: &App, id: &str) -> Result<joins::Join, ApiError> {
    let join = joins::find(&app.db, super::parse("id", id)?).await?;
    join.ok_or_else(|| ApiError::not_found(format!("join {id}")))
}

async fn admit(app: &App, join: &joins::Join) -> Result<Option<String>, ApiError> {
    let Ok(claims) = serde_json::from_value::<JoinClaims>(join.join.claims.clone()) else { return Ok(None) };
    let pool = join.join.pool.as_deref().unwrap_or("POOL");
    let known = match join.join.node_id {
        Some(id) => nodes::find(&app.db, id).await?.map(|node| node.name.to_string()),
        None => None,
    };
    let short = || claims.hardware_key().short().unwrap_or_else(|| "new".to_owned());
    let name = known.unwrap_or_else(|| format!("{}-{}", join.join.pool.as_deref().unwrap_or("node"), short()));
    Ok(admission::document(&name, pool, &join.join.attested, &claims))
}
