//! `pools`: machines that are alike, and how far they are.

use schema::object::{Kind, ObjectRef};
use schemars::JsonSchema;
use serde::Serialize;
use store::{pools, revisions};

use super::{DocumentView, Named, Nothing, PageOf, UnreadableView};
use crate::api::{ApiError, App};

/// A pool and how far its machines are.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PoolView {
    /// Its name.
    pub(super) name: String,
    /// Its site; absent when machines name a pool that is in no applied revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    /// What its machines are booked as.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// The digest of what its hosts should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Its machines.
    total: u64,
    /// Those with a session.
    connected: u64,
    /// Those that were assigned what they should be.
    assigned: u64,
    /// Those that observed the spec of what they should be with every section converged.
    converged: u64,
    /// Those whose identity was revoked: they do not come back by themselves.
    revoked: u64,
    /// Those on which new work may be placed.
    schedulable: u64,
}

/// A pool with its document.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PoolDetail {
    /// The pool.
    pool: PoolView,
    /// Its document.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentView>,
}

pub(super) async fn all(app: &App, unreadable: &mut Vec<UnreadableView>) -> Result<Vec<PoolView>, ApiError> {
    let known = super::readable(pools::list(&app.db).await?, unreadable);
    let progress = super::readable(pools::progress(&app.db).await?, unreadable);
    Ok(progress
        .into_iter()
        .map(|progress| {
            let pool = known.iter().find(|pool| pool.name == progress.pool);
            PoolView {
                name: progress.pool.to_string(),
                site: pool.map(|pool| pool.site.to_string()),
                class: pool.map(|pool| pool.class.to_string()),
                target: pool.and_then(|pool| pool.target.as_ref()).map(ToString::to_string),
                total: progress.total,
                connected: progress.connected,
                assigned: progress.assigned,
                converged: progress.converged,
                revoked: progress.revoked,
                schedulable: progress.schedulable,
            }
        })
        .collect())
}

pub(in crate::api) async fn list(app: &App, _: Nothing) -> Result<PageOf<PoolView>, ApiError> {
    let mut unreadable = Vec::new();
    Ok(PageOf { items: all(app, &mut unreadable).await?, next: None, unreadable })
}

pub(in crate::api) async fn get(app: &App, input: Named) -> Result<PoolDetail, ApiError> {
    let pool = all(app, &mut Vec::new()).await?.into_iter().find(|pool| pool.name == input.name);
    let pool = pool.ok_or_else(|| ApiError::not_found(format!("pool {}", input.name)))?;
    let object = ObjectRef::new(Kind::Pool, super::parse("name", &input.name)?);
    let document = revisions::find_object(&app.db, &object).await?;
    Ok(PoolDetail { pool, document: document.as_ref().map(DocumentView::of).transpose()? })
}
