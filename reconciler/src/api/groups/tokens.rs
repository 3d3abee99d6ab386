//! `tokens`: join tokens, which let machines in, and API tokens, which let people and programs call this API.

use pki::token::{Token, TokenKind};
use schema::{
    command::CommandKind,
    id::{ApiTokenId, JoinTokenId},
    time::Duration,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{api_tokens, control_plane, join_tokens, pools};

use super::{At, ById, Nothing, PageOf, UnreadableView};
use crate::{
    api::{ApiError, App, Code, auth, table::Mutation, text},
    join::rules::Expect,
};

const DAY: Duration = Duration::from_secs(86_400);
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// What a join token is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct NewJoin {
    /// The pool that machines join.
    pool: String,
    /// How many machines it lets in; 1 when it is absent.
    uses: Option<u32>,
    /// How long it is good for, such as `24h`; a day when it is absent, 30 days at most.
    expires: Option<Duration>,
    /// What a machine must show to use it; anything goes when it is absent.
    #[serde(default)]
    expect: Expect,
    /// A machine that is known by its hardware, or by its document, takes its old node back in place.
    #[serde(default)]
    reclaim: bool,
    /// The kinds of commands that the machines accept for as long as they have the identity that they get by it, such as
    /// `inventory.refresh`; every kind when it is absent.
    #[serde(default)]
    kinds: Vec<String>,
}

/// A new join token.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CreatedJoin {
    /// Its id.
    id: String,
    /// The token. It is shown once: null when the call was a repeat.
    token: Option<String>,
    /// The pool.
    pool: String,
    /// How many machines it lets in.
    uses: u32,
    /// Until when.
    expires_at: At,
    /// Where machines dial.
    gateways: Vec<String>,
    /// What they hold the control plane against.
    pin: String,
    /// The control plane admits machines that a file describes.
    dev: bool,
    /// The line to run on the machine, with the token in `BCD_JOIN_TOKEN`.
    command: String,
}

/// A join token without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct JoinTokenView {
    /// Its id.
    id: String,
    /// The pool.
    pool: String,
    /// How many machines it lets in.
    uses: u32,
    /// How many more.
    uses_left: u32,
    /// Until when.
    expires_at: At,
    /// What a machine must show.
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Value>,
    /// A known machine takes its old node back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reclaim: bool,
    /// The kinds of commands that machines accept which join by it; absent for every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<Vec<String>>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<At>,
    /// Who made it.
    created_by: String,
    /// When.
    created_at: At,
}

/// What an API token is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct NewApi {
    /// What it is for, for people.
    name: String,
    /// What it may do, such as `nodes:read`; no more than the caller may.
    scopes: Vec<String>,
    /// How long it is good for, such as `7d`; until it is revoked when it is absent.
    expires: Option<Duration>,
}

/// A new API token.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct CreatedApi {
    /// Its id.
    id: String,
    /// The token. It is shown once: null when the call was a repeat.
    token: Option<String>,
    /// What it is for.
    name: String,
    /// What it may do.
    scopes: Vec<String>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<At>,
}

/// An API token without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct ApiTokenView {
    /// Its id.
    id: String,
    /// What it is for.
    name: String,
    /// What it may do.
    scopes: Vec<String>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<At>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<At>,
    /// When it was last used, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used_at: Option<At>,
    /// Who made it.
    created_by: String,
    /// When.
    created_at: At,
}

/// What was revoked.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Revoked {
    /// Its id.
    id: String,
}

pub(in crate::api) async fn create(mutation: Mutation<'_>, input: NewJoin) -> Result<CreatedJoin, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let uses = input.uses.unwrap_or(1);
    if !(1..=10_000).contains(&uses) {
        return Err(ApiError::field("uses", "a token lets 1 to 10000 machines in"));
    }
    let expires = input.expires.unwrap_or(DAY);
    if expires == Duration::ZERO {
        return Err(ApiError::field("expires", "a token that has ended when it is made lets nobody in; say 1s to 30d"));
    }
    if expires > LONGEST {
        return Err(ApiError::field("expires", "a join token is good for at most 30d"));
    }
    if let Some((field, why)) = input.expect.mistake() {
        return Err(ApiError::field(format!("expect.{field}"), why));
    }
    for (index, word) in input.kinds.iter().enumerate() {
        super::parse::<CommandKind>(&format!("kinds[{index}]"), word)?;
    }
    let known = pools::list(&app.db).await?.items;
    let Some(pool) = known.iter().find(|pool| pool.name.as_str() == input.pool) else {
        let error = ApiError::not_found(format!("pool {}", input.pool));
        let names = known.iter().map(|pool| pool.name.as_str());
        return Err(match text::closest(&input.pool, names) {
            Some(closest) => error.why(format!("did you mean {closest}?")),
            None => error.why("no applied revision has it"),
        });
    };
    let id = JoinTokenId::generate();
    let token = Token::mint(TokenKind::Join, bare(&id.to_string(), JoinTokenId::PREFIX));
    let expires_at = expires.after(txn.now().await?);
    let new = join_tokens::NewJoinToken {
        id,
        hash: token.hash(),
        pool: pool.name.clone(),
        uses,
        expires_at,
        expect: serde_json::to_value(&input.expect).map_err(ApiError::internal)?,
        reclaim: input.reclaim,
        kinds: Some(input.kinds).filter(|kinds| !kinds.is_empty()),
        created_by: caller.identity.clone(),
    };
    join_tokens::create(txn, &new).await?;
    let gateway = app.gateways.first().map_or("https://GATEWAY", String::as_str);
    let dev = control_plane::find(&app.db).await?.is_some_and(|plane| plane.dev);
    let described = if dev { " --root DIR --hardware FILE" } else { "" };
    Ok(CreatedJoin {
        id: id.to_string(),
        token: Some(token.reveal().to_string()),
        pool: input.pool,
        uses,
        expires_at: At(expires_at),
        gateways: app.gateways.clone(),
        pin: app.pin.to_string(),
        dev,
        command: format!("bcd join {gateway} --pin {}{described}", app.pin),
    })
}

pub(in crate::api) async fn list(app: &App, _: Nothing) -> Result<PageOf<JoinTokenView>, ApiError> {
    let found = join_tokens::list(&app.db).await?;
    let items = found.items.into_iter().map(|stored| JoinTokenView {
        id: stored.token.id.to_string(),
        pool: stored.token.pool.to_string(),
        uses: stored.token.uses,
        uses_left: stored.uses_left,
        expires_at: At(stored.token.expires_at),
        expect: Some(stored.token.expect).filter(|expect| *expect != serde_json::json!({})),
        reclaim: stored.token.reclaim,
        kinds: stored.token.kinds,
        revoked_at: stored.revoked_at.map(At),
        created_by: stored.token.created_by,
        created_at: At(stored.created_at),
    });
    Ok(PageOf { items: items.collect(), next: None, unreadable: UnreadableView::all(found.unreadable) })
}

pub(in crate::api) async fn revoke(mutation: Mutation<'_>, input: ById) -> Result<Revoked, ApiError> {
    let id: JoinTokenId = super::parse("id", &input.id)?;
    revoked(join_tokens::revoke(mutation.txn, id).await?, "join token", input.id)
}

pub(in crate::api) async fn create_api(mutation: Mutation<'_>, input: NewApi) -> Result<CreatedApi, ApiError> {
    let Mutation { txn, caller, .. } = mutation;
    if input.name.is_empty() || input.name.len() > 100 {
        return Err(ApiError::field("name", "a name has 1 to 100 bytes"));
    }
    if input.scopes.is_empty() {
        return Err(ApiError::field("scopes", "a token without a scope is good for nothing"));
    }
    for (index, scope) in input.scopes.iter().enumerate() {
        if !auth::is_scope(scope) {
            return Err(ApiError::field(
                format!("scopes[{index}]"),
                "a scope is *, GROUP:*, GROUP:read or GROUP:write",
            ));
        }
        auth::authorize(caller, scope, &format!("a token with the scope {scope}"))?;
    }
    let expires_at = match input.expires {
        Some(expires) => Some(expires.after(txn.now().await?)),
        None => None,
    };
    let new = crate::api::tokens::mint(input.name, input.scopes, expires_at, &caller.identity);
    api_tokens::create(txn, &new.row).await?;
    Ok(CreatedApi {
        id: new.row.id.to_string(),
        token: Some(new.text.to_string()),
        name: new.row.name,
        scopes: new.row.scopes,
        expires_at: expires_at.map(At),
    })
}

pub(in crate::api) async fn list_api(app: &App, _: Nothing) -> Result<PageOf<ApiTokenView>, ApiError> {
    let found = api_tokens::list(&app.db).await?;
    let items = found.items.into_iter().map(|stored| ApiTokenView {
        id: stored.token.id.to_string(),
        name: stored.token.name,
        scopes: stored.token.scopes,
        expires_at: stored.token.expires_at.map(At),
        revoked_at: stored.revoked_at.map(At),
        last_used_at: stored.last_used_at.map(At),
        created_by: stored.token.created_by,
        created_at: At(stored.created_at),
    });
    Ok(PageOf { items: items.collect(), next: None, unreadable: UnreadableView::all(found.unreadable) })
}

pub(in crate::api) async fn revoke_api(mutation: Mutation<'_>, input: ById) -> Result<Revoked, ApiError> {
    let id: ApiTokenId = super::parse("id", &input.id)?;
    revoked(api_tokens::revoke(mutation.txn, id).await?, "API token", input.id)
}

fn revoked(done: bool, what: &str, id: String) -> Result<Revoked, ApiError> {
    if done {
        Ok(Revoked { id })
    } else {
        Err(ApiError::new(Code::NotFound, format!("there is no {what} {id} to revoke")))
    }
}

/// An id's text without its prefix, as it stands in a token.
pub(in crate::api) fn bare<'a>(id: &'a str, prefix: &str) -> &'a str {
    id.strip_prefix(prefix).unwrap_or(id)
}
