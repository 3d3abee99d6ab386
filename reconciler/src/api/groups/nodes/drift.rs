//! `nodes.drift`: what something else than the daemon changed on machines.

use schema::{
    fleet::{Content, HostTemplate, host_path::canonical},
    name::Name,
    report::DriftEntry,
    spec::NodeSpec,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{node_drift, nodes, pools};

use crate::api::{
    ApiError, App,
    groups::{self, PageOf, UnreadableView},
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
    /// At this path, or part of it, such as `files./etc/motd`. Observed values are whole then; in a list that names
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
    /// For the text of a file, when a path is named and everybody on the host may read it: the whole text that it should
    /// have.
    #[serde(skip_serializing_if = "Option::is_none")]
    desired_text: Option<String>,
    /// With it: the template that makes that text, which therefore nobody can take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
}

pub(in crate::api) async fn drift(app: &App, input: WhichDrift) -> Result<PageOf<DriftView>, ApiError> {
    let node = match &input.node {
        Some(node) => Some(super::find(app, node).await?.id),
        None => None,
    };
    let chars = input.path.is_none().then_some(SHORT);
    let filter = node_drift::Filter { node, pool: input.pool, path: input.path.as_deref().map(canonical) };
    let most = if chars.is_some() { u32::MAX } else { WHOLE };
    let limit = groups::limit(input.limit)?.min(most);
    let page = node_drift::list(&app.db, &filter, chars, input.after.as_deref(), limit).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for node_drift::NodeDrift { node, pool, entry } in page.items {
        let text = if chars.is_none() { text_of(app, &node, &entry).await? } else { Text::default() };
        let Text { desired: desired_text, template } = text;
        items.push(DriftView { node: node.to_string(), pool, entry, desired_text, template });
    }
    Ok(PageOf { items, next: page.next, unreadable: UnreadableView::all(page.unreadable) })
}

/// What a file's text should be, and what makes it.
#[derive(Default)]
struct Text {
    desired: Option<String>,
    template: Option<String>,
}

/// Of a text that everybody on the host may read, as it is and as it should be: only then its observed text is known.
async fn text_of(app: &App, node: &Name, entry: &DriftEntry) -> Result<Text, ApiError> {
    let path = entry.path.strip_prefix("files.").and_then(|path| path.strip_suffix(".content"));
    let (Some(path), Some(_)) = (path, &entry.observed) else { return Ok(Text::default()) };
    let Some(node) = nodes::find_by_name(&app.db, node).await? else { return Ok(Text::default()) };
    let spec = nodes::find_spec(&app.db, node.id).await?;
    let spec = spec.and_then(|spec| serde_json::from_slice::<NodeSpec>(&spec.bytes).ok());
    let file = spec.and_then(|spec| spec.host.files.into_iter().find(|file| file.path == path));
    let mut txn = app.db.snapshot().await?;
    let target = pools::find_targets(&mut txn, &node.assigned.into_iter().collect::<Vec<_>>()).await?.pop();
    let target = target.and_then(|target| serde_json::from_str(&target.doc).ok());
    let made = target.and_then(|target| HostTemplate::from_value(target).ok());
    let made = made.and_then(|made| made.files.into_iter().find(|file| file.path == path));
    Ok(Text {
        desired: file.filter(|file| file.secret.is_none()).map(|file| file.content),
        template: made.and_then(|file| match file.content {
            Content::Template(name) => Some(name),
            Content::Text(_) | Content::Secret(_) => None,
        }),
    })
}

/// The drift of one node, for its detail: shortened, and no more than a report has.
pub(super) async fn of_node(app: &App, id: schema::id::NodeId) -> Result<Vec<DriftEntry>, ApiError> {
    let filter = node_drift::Filter { node: Some(id), ..node_drift::Filter::default() };
    let page = node_drift::list(&app.db, &filter, Some(SHORT), None, store::page::MAX_LIMIT).await?;
    Ok(page.items.into_iter().map(|drift| drift.entry).collect())
}
