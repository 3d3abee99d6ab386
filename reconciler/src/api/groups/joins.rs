//! `joins`: machines that asked to come in and are not in.

use pki::hardware::JoinClaims;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{joins, nodes};

use super::{At, ById, PageOf};
use crate::{
    api::{ApiError, App},
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
    /// The node that it collides with.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict_with: Option<String>,
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
    /// The document that would admit it, ready to commit; absent when it is in, or has nothing to be recognised by.
    #[serde(skip_serializing_if = "Option::is_none")]
    admit: Option<String>,
}

fn view(join: &joins::Join) -> JoinView {
    JoinView {
        id: join.id.to_string(),
        state: join.join.state.as_str().to_owned(),
        reason: join.join.reason.clone(),
        message: join.join.message.clone(),
        pool: join.join.pool.clone(),
        node: join.join.node_id.map(|id| id.to_string()),
        conflict_with: join.join.conflict_with.map(|id| id.to_string()),
        peer: join.join.peer.clone(),
        attempts: join.attempts,
        created_at: At(join.created_at),
        updated_at: At(join.updated_at),
    }
}

/// The joins in one of these states, the latest first.
pub(super) async fn latest(app: &App, states: &[joins::JoinState], limit: u32) -> Result<Vec<JoinView>, ApiError> {
    let mut found = Vec::new();
    for state in states {
        found.extend(joins::list(&app.db, Some(*state), limit).await?);
    }
    found.sort_by_key(|join| std::cmp::Reverse(join.updated_at));
    Ok(found.iter().map(view).collect())
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<JoinView>, ApiError> {
    let state = input.state.map(|state| super::parse("state", &state)).transpose()?;
    let found = joins::list(&app.db, state, super::limit(input.limit)?).await?;
    Ok(PageOf { items: found.iter().map(view).collect(), next: None })
}

pub(in crate::api) async fn get(app: &App, input: ById) -> Result<JoinDetail, ApiError> {
    let join = joins::find(&app.db, super::parse("id", &input.id)?).await?;
    let join = join.ok_or_else(|| ApiError::not_found(format!("join {}", input.id)))?;
    let admit = if join.join.state == joins::JoinState::Admitted { None } else { admit(app, &join).await? };
    Ok(JoinDetail { join: view(&join), claims: join.join.claims.clone(), admit })
}

async fn admit(app: &App, join: &joins::Join) -> Result<Option<String>, ApiError> {
    let Ok(claims) = serde_json::from_value::<JoinClaims>(join.join.claims.clone()) else { return Ok(None) };
    let pool = join.join.pool.as_deref().unwrap_or("POOL");
    let known = match join.join.node_id {
        Some(id) => nodes::find(&app.db, id).await?.map(|node| node.name.to_string()),
        None => None,
    };
    let short = || claims.hardware_key().short().unwrap_or_else(|| "new".to_owned());
    let name = known.unwrap_or_else(|| format!("{pool}-{}", short()));
    Ok(admission::document(&name, pool, &claims))
}
