//! `nodes`: the machines, what each is doing, and what keeps it from more.

mod drift;
mod identity;
mod view;

use schema::{
    generation::Version,
    id::NodeId,
    node::{Hold, HoldSource},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    node_holds,
    nodes::{self, ChangeError},
    queue,
};

use super::{PageOf, UnreadableView, brakes::Replaced};
use crate::api::{ApiError, App, Code, table::Mutation};

pub(in crate::api) use drift::drift;
pub(in crate::api) use identity::{adopt, delete, rebind, revoke_identity, vouch};
pub(in crate::api) use view::{NodeDetail, NodeView};

/// Which nodes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// Of this pool.
    pool: Option<String>,
    /// Of this site.
    site: Option<String>,
    /// `connected`, `disconnected`, `unreachable` or `lost`.
    connectivity: Option<String>,
    /// A provision state, such as `adopted`.
    provision: Option<String>,
    /// Held or not.
    cordoned: Option<bool>,
    /// With a name that begins so.
    prefix: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How many items.
    limit: Option<u32>,
}

/// Which node.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Which {
    /// Its id or its name.
    node: String,
}

/// A hold to place.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Cordon {
    /// The node's id or name.
    node: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
    /// When it ends by itself, RFC 3339; somebody must lift it when it is absent.
    #[schemars(with = "Option<String>")]
    until: Option<Timestamp>,
    /// Also when somebody else holds it by hand; theirs is over then.
    #[serde(default)]
    replace: bool,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// A node that is held.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Cordoned {
    /// The node.
    #[serde(flatten)]
    node: NodeView,
    /// What it took the place of.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<Replaced>,
}

/// Which node, as it was read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct AsRead {
    /// The node's id or name.
    node: String,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<NodeView>, ApiError> {
    let filter = nodes::Filter {
        pool: input.pool,
        site: input.site,
        provision: input.provision.map(|text| super::parse("provision", &text)).transpose()?,
        connectivity: input.connectivity.map(|text| super::parse("connectivity", &text)).transpose()?,
        cordoned: input.cordoned,
        name_prefix: input.prefix,
    };
    let page = nodes::list(&app.db, &filter, input.after.as_deref(), super::limit(input.limit)?).await?;
    let unreadable = UnreadableView::all(page.unreadable);
    Ok(PageOf { items: page.items.iter().map(NodeView::of).collect(), next: page.next, unreadable })
}

pub(in crate::api) async fn get(app: &App, input: Which) -> Result<NodeDetail, ApiError> {
    let node = find(app, &input.node).await?;
    view::detail(app, &node).await
}

pub(in crate::api) async fn cordon(mutation: Mutation<'_>, input: Cordon) -> Result<Cordoned, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    if input.reason.trim().is_empty() || input.reason.len() > 500 {
        return Err(ApiError::field("reason", "say why, in 1 to 500 bytes"));
    }
    let now = txn.now().await?;
    if input.until.is_some_and(|until| until <= now) {
        return Err(ApiError::field("until", "this time has passed"));
    }
    let id = find(app, &input.node).await?.id;
    let node = lock(txn, id, input.version).await?;
    let owner = input.owner.unwrap_or_else(|| caller.name.clone());
    let holds = node_holds::list_locked(txn, id).await?;
    let present = holds.iter().map(|stored| &stored.hold).find(|hold| hold.source == HoldSource::Api);
    let present = present.filter(|hold| hold.until.is_none_or(|until| until > now));
    let present = present.map(|hold| (hold.owner.as_str(), hold.reason.as_str(), hold.until));
    let cordons = |other: &str| format!("{other} cordons node {} already", node.name);
    let replaced = Replaced::by(&owner, input.replace, present, cordons)?;
    let hold = Hold { source: HoldSource::Api, owner, reason: input.reason, until: input.until, place: None };
    node_holds::place(txn, node.id, &hold).await?;
    Ok(Cordoned { node: changed(txn, id).await?, replaced })
}

pub(in crate::api) async fn uncordon(mutation: Mutation<'_>, input: AsRead) -> Result<NodeView, ApiError> {
    let Mutation { app, txn, .. } = mutation;
    let id = find(app, &input.node).await?.id;
    let node = lock(txn, id, input.version).await?;
    if !node_holds::lift(txn, id, HoldSource::Api).await? {
        let holds = node_holds::list_locked(txn, id).await?;
        return Err(not_ours(&node, holds.iter().map(|stored| &stored.hold)));
    }
    changed(txn, id).await
}

/// The API lifts only what it placed; everything else says where it is lifted.
fn not_ours<'a>(node: &nodes::Node, holds: impl Iterator<Item = &'a Hold>) -> ApiError {
    let reasons: Vec<String> = holds
        .map(|hold| match (hold.source, &hold.place) {
            (HoldSource::Git, Some(place)) => {
                format!("{place} holds it ({}, {}): take it out there", hold.reason, hold.owner)
            }
            (source, _) => format!("{source} holds it ({}, {})", hold.reason, hold.owner),
        })
        .collect();
    let error = ApiError::new(Code::InvalidState, format!("the API holds nothing on node {}", node.name));
    if reasons.is_empty() { error.why("the node is not cordoned") } else { error.why(reasons.join("; ")) }
}

pub(super) async fn find(app: &App, node: &str) -> Result<nodes::Node, ApiError> {
    let found = match node.parse::<NodeId>() {
        Ok(id) => nodes::find(&app.db, id).await?,
        Err(_) => nodes::find_by_name(&app.db, node).await?,
    };
    found.ok_or_else(|| ApiError::not_found(format!("node {}", node.chars().take(100).collect::<String>())))
}

async fn lock(txn: &mut store::Txn, id: NodeId, version: Option<Version>) -> Result<nodes::Node, ApiError> {
    let node = nodes::lock(txn, id).await?.ok_or_else(|| ApiError::not_found(format!("node {id}")))?;
    match node.expect_version(version) {
        Ok(()) => Ok(node),
        Err(error @ ChangeError::Conflict { .. }) => {
            Err(ApiError::new(Code::Conflict, error.to_string()).why("read it again and decide again"))
        }
        Err(error) => Err(ApiError::internal(error)),
    }
}

async fn changed(txn: &mut store::Txn, id: NodeId) -> Result<NodeView, ApiError> {
    queue::enqueue(txn, &queue::NODE, [id]).await?;
    let node = nodes::lock(txn, id).await?.ok_or_else(|| ApiError::not_found(format!("node {id}")))?;
    Ok(NodeView::of(&node))
}
