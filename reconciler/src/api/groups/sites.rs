//! `sites`: places with machines.

use schema::object::{Kind, ObjectRef};
use schemars::JsonSchema;
use serde::Serialize;
use store::{pools, revisions};

use super::{DocumentView, Named, Nothing, PageOf};
use crate::api::{ApiError, App};

/// A site and the pools in it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct SiteView {
    /// Its name.
    name: String,
    /// Its pools, by name.
    pools: Vec<String>,
    /// Its document.
    document: DocumentView,
}

async fn view(app: &App, object: &revisions::StoredObject) -> Result<SiteView, ApiError> {
    let pools = pools::list(&app.db).await?;
    let name = object.object.name.to_string();
    let pools = pools.iter().filter(|pool| pool.site.as_str() == name).map(|pool| pool.name.to_string()).collect();
    Ok(SiteView { name, pools, document: DocumentView::of(object)? })
}

pub(in crate::api) async fn list(app: &App, _: Nothing) -> Result<PageOf<SiteView>, ApiError> {
    let mut items = Vec::new();
    for object in revisions::objects_of(&app.db, Kind::Site).await? {
        items.push(view(app, &object).await?);
    }
    Ok(PageOf { items, next: None })
}

pub(in crate::api) async fn get(app: &App, input: Named) -> Result<SiteView, ApiError> {
    let object = ObjectRef::new(Kind::Site, super::parse("name", &input.name)?);
    let stored = revisions::find_object(&app.db, &object).await?;
    let stored = stored.filter(|stored| stored.state != revisions::ObjectState::Removed);
    view(app, &stored.ok_or_else(|| ApiError::not_found(format!("site {}", input.name)))?).await
}
