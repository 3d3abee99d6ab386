//! `fleet`, what people stop by hand: parts that stand still, [`commits`] that do not come into force, and [`holds`]:
//! everything that is held, by whom, why and until when.

mod commits;
mod holds;

use schema::{
    fleet::brake::{self, BrakeKind},
    object::{Kind, ObjectRef},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Txn, nodes, poke::Poke, revisions, suspensions};

use super::At;
use crate::{
    api::{ApiError, App, Code, auth::Caller, table::Mutation},
    source::FLEET,
};

pub(in crate::api) use commits::{quarantine, release, rollback};
pub(super) use holds::{HoldView, gates_of_node, held, of_node, over};
pub(in crate::api) use holds::{Holds, holds};

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

pub(in crate::api) async fn suspend(mutation: Mutation<'_>, input: Suspend) -> Result<Suspended, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let (owner, reason) = said(caller, input.owner, &input.reason)?;
    if passed(txn, input.until).await? {
        return Err(ApiError::field("until", "this time has passed"));
    }
    exists(app, &input.scope).await?;
    let present = suspensions::list_in(txn).await?.items.into_iter().find(|present| present.scope == input.scope);
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

fn suspends(object: &revisions::StoredObject) -> bool {
    let document = serde_json::from_str(&object.doc).unwrap_or_default();
    let said = brake::of_document(object.object.kind, &object.object.name, &document);
    said.iter().any(|brake| brake.kind == BrakeKind::Suspend)
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
