//! `nodes.drift`: what something else than the daemon changed on machines.

use schema::report::DriftEntry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::node_drift;

use crate::api::{
    ApiError, App,
    groups::{self, PageOf},
};

/// How much of an observed value a list shows.
const SHORT: u32 = 200;
/// How many whole values a page has.
const WHOLE: u32 = 50;

/// Which drift.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct WhichDrift {
    /// Of this node: its id or its name.
    node: Option<String>,
    /// Of nodes of this pool.
    pool: Option<String>,
    /// At this path, or part of it, such as `host.files./etc/motd`. Observed values are whole then; in a list that names
    /// no path they end after 200 characters.
    path: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How many items.
    limit: Option<u32>,
}

/// One field of one node that something else changed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct DriftView {
    /// The node's name.
    node: String,
    /// Its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The field.
    #[serde(flatten)]
    entry: DriftEntry,
}

pub(in crate::api) async fn drift(app: &App, input: WhichDrift) -> Result<PageOf<DriftView>, ApiError> {
    let node = match &input.node {
        Some(node) => Some(super::find(app, node).await?.id),
        None => None,
    };
    let chars = input.path.is_none().then_some(SHORT);
    let filter = node_drift::Filter { node, pool: input.pool, path: input.path };
    let most = if chars.is_some() { u32::MAX } else { WHOLE };
    let limit = groups::limit(input.limit)?.min(most);
    let page = node_drift::list(&app.db, &filter, chars, input.after.as_deref(), limit).await?;
    let view =
        |drift: node_drift::NodeDrift| DriftView { node: drift.node.to_string(), pool: drift.pool, entry: drift.entry };
    Ok(PageOf { items: page.items.into_iter().map(view).collect(), next: page.next })
}

/// The drift of one node, for its detail: shortened, and no more than a report has.
pub(super) async fn of_node(app: &App, id: schema::id::NodeId) -> Result<Vec<DriftEntry>, ApiError> {
    let filter = node_drift::Filter { node: Some(id), ..node_drift::Filter::default() };
    let page = node_drift::list(&app.db, &filter, Some(SHORT), None, store::page::MAX_LIMIT).await?;
    Ok(page.items.into_iter().map(|drift| drift.entry).collect())
}
