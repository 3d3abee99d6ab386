//! `plans`: what was shown before it happened.

mod preview;

use schema::id::PlanId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::plans;

use super::{At, PageOf, UnreadableView};
use crate::{
    api::{ApiError, App},
    source::FLEET,
};

pub(in crate::api) use preview::{Preview, Previewed, preview};

/// Which plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Which {
    /// The plan's id.
    id: Option<String>,
    /// The commit it was made for; the newest plan of it is meant.
    commit: Option<String>,
    /// The digest of what it was made of; the newest such plan is meant, also a preview.
    digest: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Before {
    /// The `next` of the page before.
    after: Option<String>,
    /// How many items.
    limit: Option<u32>,
    /// Those in this state: `open`, `applied`, `superseded`, or `shown` for previews; no previews when it is absent.
    state: Option<String>,
}

/// A plan without its document.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PlanView {
    /// Its id.
    id: String,
    /// The source.
    source: String,
    /// The commit it leads to; absent for a preview of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// The commit it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_commit: Option<String>,
    /// The digest of what it was made of, for the trailer of a commit.
    digest: String,
    /// `open`, `applied`, `superseded`, or `shown` for a preview.
    state: String,
    /// When it was made.
    created_at: At,
}

/// A plan.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct PlanDetail {
    /// The plan.
    plan: PlanView,
    /// Everything it would do.
    document: Value,
}

fn view(plan: &plans::Plan) -> PlanView {
    PlanView {
        id: plan.id.to_string(),
        source: plan.source.clone(),
        commit: plan.commit.clone(),
        base_commit: plan.base_commit.clone(),
        digest: plan.digest.to_string(),
        state: plan.state.as_str().to_owned(),
        created_at: At(plan.created_at),
    }
}

pub(in crate::api) async fn list(app: &App, input: Before) -> Result<PageOf<PlanView>, ApiError> {
    let limit = super::limit(input.limit)?;
    let before = input.after.map(|after| super::parse::<PlanId>("after", &after)).transpose()?;
    let state = input.state.map(|state| plans::PlanState::read(&state)).transpose();
    let state = state.map_err(|error| ApiError::field("state", error.to_string()))?;
    let plans = plans::list(&app.db, state, before, limit).await?;
    let full = plans.items.len() + plans.unreadable.len() == limit as usize;
    let next = plans.items.last().filter(|_| full).map(|plan| plan.id.to_string());
    let unreadable = UnreadableView::all(plans.unreadable);
    Ok(PageOf { items: plans.items.iter().map(view).collect(), next, unreadable })
}

pub(in crate::api) async fn get(app: &App, input: Which) -> Result<PlanDetail, ApiError> {
    let (plan, what) = match (input.id, input.commit, input.digest) {
        (Some(id), None, None) => (plans::find(&app.db, super::parse("id", &id)?).await?, format!("plan {id}")),
        (None, Some(commit), None) => {
            (plans::find_by_commit(&app.db, FLEET, &commit).await?, format!("plan of commit {commit}"))
        }
        (None, None, Some(digest)) => {
            let wanted = super::parse("digest", &digest)?;
            (plans::find_by_digest(&app.db, FLEET, &wanted).await?, format!("plan {digest}"))
        }
        _ => return Err(ApiError::field("id", "name the plan by its id, its commit or its digest, one of the three")),
    };
    let plan = plan.ok_or_else(|| ApiError::not_found(what))?;
    Ok(PlanDetail { document: serde_json::from_str(&plan.doc).map_err(ApiError::internal)?, plan: view(&plan) })
}
