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

/// A site that is in force.
fn stands(object: &revisions::StoredObject) -> bool {
    object.state != revisions::ObjectState::Removed
}

fn view(object: &revisions::StoredObject, pools: &[pools::Pool]) -> Result<SiteView, ApiError> {
    let name = object.object.name.to_string();
    let pools = pools.iter().filter(|pool| pool.site.as_str() == name).map(|pool| pool.name.to_string()).collect();
    Ok(SiteView { name, pools, document: DocumentView::of(object)? })
}

pub(in crate::api) async fn list(app: &App, _: Nothing) -> Result<PageOf<SiteView>, ApiError> {
    let mut unreadable = Vec::new();
    let pools = super::readable(pools::list(&app.db).await?, &mut unreadable);
    let sites = super::readable(revisions::objects_of(&app.db, Kind::Site).await?, &mut unreadable);
    let items =
        sites.iter().filter(|object| stands(object)).map(|object| view(object, &pools)).collect::<Result<_, _>>()?;
    Ok(PageOf { items, next: None, unreadable })
}

pub(in crate::api) async fn get(app: &App, input: Named) -> Result<SiteView, ApiError> {
    let object = ObjectRef::new(Kind::Site, super::parse("name", &input.name)?);
    let stored = revisions::find_object(&app.db, &object).await?.filter(stands);
    let stored = stored.ok_or_else(|| ApiError::not_found(format!("site {}", input.name)))?;
    view(&stored, &pools::list(&app.db).await?.items)
}
