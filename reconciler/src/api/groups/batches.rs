//! `commandBatches`: destructive commands for some machines, what people say about them, and how far they are.

mod create;
mod view;

use schema::{id::BatchId, name::Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    batches::{self, Batch, BatchState},
    control_plane::{self, ControlPlane},
    outcomes,
};

use super::UnreadableView;
use crate::{
    api::{ApiError, App, Code, table::Mutation},
    batch::{
        resolve::Trust,
        standing::{self, Standing},
    },
    source,
};

pub(in crate::api) use create::create;
pub(in crate::api) use view::{AskView, BatchView, LeafView};

/// The most machines on one page.
const MOST_LEAVES: u32 = 200;
const MOST: u32 = 200;
/// So many are told of in a look at the whole.
const OPEN: usize = 20;

/// Which batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Which {
    /// Its name, `batch/NAME`, or its id (`batch_…`).
    batch: String,
}

/// Which batches.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// In this state, such as `proposed` or `done`.
    state: Option<String>,
    /// Only those that have not ended.
    #[serde(default)]
    open: bool,
    /// The `next` of the page before.
    before: Option<String>,
    /// How many items, 1 to 200; 100 when it is absent.
    limit: Option<u32>,
}

/// A page of the machines of a batch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct ScopeOf {
    /// Its name, `batch/NAME`, or its id (`batch_…`).
    batch: String,
    /// The `next` of the page before.
    after: Option<String>,
    /// How many machines, 1 to 200; 100 when it is absent.
    limit: Option<u32>,
    /// With what each machine said about itself last, as it signed it.
    #[serde(default)]
    identities: bool,
}

/// What is taken back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Cancel {
    /// Its name, `batch/NAME`, or its id (`batch_…`).
    batch: String,
    /// Why.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// Who looked at an emergency.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Close {
    /// Its name, `batch/NAME`, or its id (`batch_…`).
    batch: String,
    /// What was found.
    note: String,
    /// Who looked; the token's name when it is absent.
    owner: Option<String>,
}

/// A page of batches.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Listed {
    /// The batches.
    items: Vec<BatchView>,
    /// Pass it as `before` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// What asks for a batch and is none, or none yet, with the reason. On the first page of all batches only.
    asks: Vec<AskView>,
    /// What lies where people say things and is heard by nobody, whoever signed it; absent when there is nothing. On the first page of all
    /// batches only.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlooked: Option<String>,
    /// Rows that belong here and cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
}

/// A page of machines, and what the batch is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Scope {
    /// Its name.
    name: Name,
    /// The machines, by their place in the batch.
    items: Vec<LeafView>,
    /// Pass it as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Rows that belong here and cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
}

pub(in crate::api) async fn find(app: &App, said: &str) -> Result<Batch, ApiError> {
    let found = match said.parse::<BatchId>() {
        Ok(id) => batches::find_by_id(&app.db, id).await?,
        Err(_) => batches::find(&app.db, said.strip_prefix("batch/").unwrap_or(said)).await?,
    };
    found.ok_or_else(|| {
        let said: String = said.chars().take(80).collect();
        ApiError::not_found(format!("batch {said}"))
    })
}

pub(in crate::api) async fn trust(app: &App) -> Result<Option<Trust>, ApiError> {
    trust_of(app, control_plane::find(&app.db).await?).await
}

async fn trust_of(app: &App, row: Option<ControlPlane>) -> Result<Option<Trust>, ApiError> {
    let domain = row.and_then(|row| row.trust_domain).unwrap_or_default();
    Ok(standing::trust(&app.db, &app.pinned, &domain).await?)
}

pub(in crate::api) async fn standing_of(app: &App, batch: &Batch) -> Result<Option<Standing>, ApiError> {
    let Some(trust) = trust(app).await? else { return Ok(None) };
    let now = app.db.now().await?;
    Ok(standing::standing(&app.db, &trust, batch, now).await?)
}

pub(in crate::api) async fn get(app: &App, input: Which) -> Result<BatchView, ApiError> {
    let batch = find(app, &input.batch).await?;
    let standing = standing_of(app, &batch).await?;
    BatchView::of(app, &batch, standing.as_ref()).await
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<Listed, ApiError> {
    let limit = super::limit_up_to(MOST, input.limit)?;
    let before = input.before.as_deref().map(|text| super::parse("before", text)).transpose()?;
    let state: Option<BatchState> = input.state.as_deref().map(|text| super::parse("state", text)).transpose()?;
    let page = batches::list(&app.db, &batches::Filter { state, open: input.open }, before, limit).await?;
    let mut unreadable = Vec::new();
    let row = super::one(control_plane::find(&app.db).await, &mut unreadable)?;
    // Who this control plane is says what people's words are about.
    let trust = if unreadable.is_empty() { trust_of(app, row).await? } else { None };
    let now = app.db.now().await?;
    let mut items = Vec::with_capacity(page.items.len());
    for batch in &page.items {
        let standing = match &trust {
            Some(trust) if !batch.state.is_terminal() => standing::standing(&app.db, trust, batch, now).await?,
            _ => None,
        };
        items.push(BatchView::of(app, batch, standing.as_ref()).await?);
    }
    unreadable.extend(UnreadableView::all(page.unreadable));
    let whole = before.is_none() && state.is_none();
    let asks = if whole { asks(app, &mut unreadable).await? } else { Vec::new() };
    let overlooked = if whole { overlooked(app, &mut unreadable).await? } else { None };
    Ok(Listed { items, next: page.next, asks, overlooked, unreadable })
}

/// What people said in a way that nobody hears.
async fn overlooked(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Option<String>, ApiError> {
    let key = source::overlooked_key(source::FLEET);
    let said = super::one(outcomes::find(&app.db, source::STATEMENTS, &key).await, unreadable)?;
    Ok(said.filter(|said| said.state != "done").map(|said| said.message))
}

/// What asks for a batch and is none.
pub(in crate::api) async fn asks(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<AskView>, ApiError> {
    Ok(super::readable(batches::asks(&app.db).await?, unreadable).into_iter().map(AskView::of).collect())
}

/// Those that have not ended, and emergencies that nobody looked at.
pub(in crate::api) async fn open(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<BatchView>, ApiError> {
    let mut all = super::readable(batches::list_open(&app.db).await?, unreadable);
    let review = super::readable(batches::to_review(&app.db).await?, unreadable);
    all.extend(review.into_iter().filter(|batch| batch.ended_at.is_some()));
    all.sort_by_key(|batch| std::cmp::Reverse(batch.created_at));
    let mut views = Vec::new();
    for batch in all.iter().take(OPEN) {
        views.push(BatchView::of(app, batch, None).await?);
    }
    Ok(views)
}

pub(in crate::api) async fn scope(app: &App, input: ScopeOf) -> Result<Scope, ApiError> {
    let limit = super::limit_up_to(MOST_LEAVES, input.limit)?;
    let after: Option<u32> = input.after.as_deref().map(|text| super::parse("after", text)).transpose()?;
    let batch = find(app, &input.batch).await?;
    let mut txn = app.db.snapshot().await?;
    let page = batches::some_leaves(&mut txn, batch.id, after, limit).await?;
    drop(txn);
    let items = view::leaves(app, &batch, &page.items, input.identities).await?;
    Ok(Scope { name: batch.new.name, items, next: page.next, unreadable: UnreadableView::all(page.unreadable) })
}

pub(in crate::api) async fn cancel(mutation: Mutation<'_>, input: Cancel) -> Result<BatchView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let owner = super::brakes::owner(caller, input.owner)?;
    let reason = line("reason", &input.reason)?;
    let found = find(app, &input.batch).await?;
    let batch = batches::find_for_update(txn, found.new.name.as_str()).await?;
    let Some(mut batch) = batch.filter(|batch| !batch.state.is_terminal()) else {
        let message = format!("batch/{} has ended: {}", found.new.name, found.state);
        return Err(ApiError::new(Code::InvalidState, message).why("batch-ended: what has ended cannot be taken back"));
    };
    let message = format!("{owner} took it back: {reason}");
    batches::move_to(txn, &batch, BatchState::Cancelled, Some("taken-back"), Some(&message), caller.identity.as_str())
        .await?;
    batches::wake(txn, [&batch.new.name]).await?;
    batch.state = BatchState::Cancelled;
    batch.reason = Some("taken-back".to_owned());
    batch.message = Some(message);
    batch.ended_at = Some(txn.now().await?);
    BatchView::of(app, &batch, None).await
}

pub(in crate::api) async fn close(mutation: Mutation<'_>, input: Close) -> Result<BatchView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let owner = super::brakes::owner(caller, input.owner)?;
    let note = line("note", &input.note)?;
    let mut batch = find(app, &input.batch).await?;
    if !batches::close(txn, batch.new.name.as_str(), &owner, &note).await? {
        return Err(ApiError::new(Code::InvalidState, format!("batch/{} is no emergency to look at", batch.new.name))
            .why("not-to-review: only an emergency that has ended and that nobody looked at yet is closed"));
    }
    let subject = format!("batch/{}", batch.new.name);
    let detail = serde_json::json!({ "note": note, "owner": owner });
    store::audit::append(txn, &caller.identity, "batches.closed", &subject, &detail).await?;
    batch.closed = Some(batches::Closed { at: txn.now().await?, by: owner, note });
    BatchView::of(app, &batch, None).await
}

/// A text on one line.
fn line(field: &str, text: &str) -> Result<String, ApiError> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > 500 || text.chars().any(char::is_control) {
        return Err(ApiError::field(field, "a text on one line, 500 characters at most"));
    }
    Ok(text.to_owned())
}
