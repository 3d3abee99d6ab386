//! `revisions`: what was in force, when, and what each brought.

use std::collections::BTreeSet;

use schema::object::ObjectRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{
    Listed, quarantine, revision_files,
    revisions::{self, Revision},
};

use super::{At, PageOf, UnreadableView};
use crate::{
    api::{ApiError, App, Code},
    source::FLEET,
};

/// How many files of a revision are named.
const FILES: u32 = 1_000;
/// How many quarantined commits are looked at.
const QUARANTINED: u32 = 1_000;

/// Which revisions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// Those that changed this object, `kind/name`.
    object: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// How many items.
    limit: Option<u32>,
}

/// Which revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Which {
    /// `rev_…`, or a commit or its beginning of at least 7 digits: the newest revision of it.
    revision: String,
}

/// A revision.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct RevisionView {
    /// Its id.
    id: String,
    /// Its place in the order.
    seq: u64,
    /// Its commit.
    commit: String,
    /// The branch.
    branch: String,
    /// Who wrote the commit, as the commit says.
    author: String,
    /// The first line of its message.
    subject: String,
    /// When it was committed, as the commit says.
    committed_at: At,
    /// When it came into force.
    applied_at: At,
    /// `source`, or who asked for the rollback that it is.
    applied_by: String,
    /// The plan that it carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<String>,
    /// What it changed, in numbers.
    counts: Value,
    /// Objects that got another name, as pairs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<Value>,
    /// For a rollback: the revision that it went back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollback_of: Option<String>,
    /// For a rollback: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Its commit is in quarantine.
    quarantined: bool,
    /// Its files are kept, so that it can be gone back to.
    restorable: bool,
}

impl RevisionView {
    fn of(revision: &Revision, quarantined: &BTreeSet<String>) -> Self {
        let row = &revision.revision;
        let rollback = &row.summary["rollback"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            id: row.id.to_string(),
            seq: revision.seq,
            commit: row.commit.clone(),
            branch: row.branch.clone(),
            author: row.author.clone(),
            subject: row.subject.clone(),
            committed_at: At(row.committed_at),
            applied_at: At(revision.applied_at),
            applied_by: row.applied_by.clone(),
            plan_id: row.plan.map(|id| id.to_string()),
            counts: row.summary["counts"].clone(),
            moved: row.summary["moved"].as_array().cloned().unwrap_or_default(),
            rollback_of: text(&rollback["to"]),
            reason: text(&rollback["reason"]),
            quarantined: quarantined.contains(&row.commit),
            restorable: revision.tree_digest.is_some(),
        }
    }
}

/// An object that a revision changed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ObjectView {
    /// Its address.
    object: String,
    /// What it is since then: `declared`, `retained`, `removed` or `moved`.
    change: String,
    /// Its file.
    file: String,
    /// The line there.
    line: u32,
}

/// A file that a revision changed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FileView {
    /// Its path below the fleet's root.
    path: String,
    /// `added`, `changed` or `removed`.
    change: String,
}

/// A revision and what it changed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct RevisionDetail {
    /// The revision.
    revision: RevisionView,
    /// The objects that it changed.
    objects: Vec<ObjectView>,
    /// The files that it changed, at most a thousand.
    files: Vec<FileView>,
    /// The commits since the revision before, newest first.
    commits: Vec<Value>,
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<RevisionView>, ApiError> {
    let limit = super::limit(input.limit)?;
    let before = input.after.map(|after| super::parse::<u64>("after", &after)).transpose()?;
    let found = match input.object {
        Some(object) => {
            let object: ObjectRef = super::parse("object", &object)?;
            revisions::list_of(&app.db, &object, before, limit).await?
        }
        None => revisions::list(&app.db, before, limit).await?,
    };
    let held = held(app).await?;
    let Listed { items, unreadable } = found;
    let full = items.len() + unreadable.len() == limit as usize;
    let next = items.last().filter(|_| full).map(|revision| revision.seq.to_string());
    let items = items.iter().map(|revision| RevisionView::of(revision, &held)).collect();
    Ok(PageOf { items, next, unreadable: UnreadableView::all(unreadable) })
}

pub(in crate::api) async fn get(app: &App, input: Which) -> Result<RevisionDetail, ApiError> {
    let revision = find(app, &input.revision).await?;
    let objects = revisions::changes(&app.db, revision.revision.id).await?;
    let files = revision_files::changes(&app.db, revision.seq, FILES).await?;
    Ok(RevisionDetail {
        objects: objects
            .whole()?
            .into_iter()
            .map(|object| ObjectView {
                object: object.object.to_string(),
                change: object.state.as_str().to_owned(),
                file: object.file,
                line: object.line,
            })
            .collect(),
        files: files
            .into_iter()
            .map(|file| {
                let change = match (file.before, file.after) {
                    (true, true) => "changed",
                    (true, false) => "removed",
                    (false, _) => "added",
                };
                FileView { path: file.path, change: change.to_owned() }
            })
            .collect(),
        commits: revision.revision.summary["since"].as_array().cloned().unwrap_or_default(),
        revision: RevisionView::of(&revision, &held(app).await?),
    })
}

async fn held(app: &App) -> Result<BTreeSet<String>, ApiError> {
    Ok(quarantine::list(&app.db, FLEET, QUARANTINED).await?.items.into_iter().map(|held| held.commit).collect())
}

/// The revision of an id or of a commit's beginning.
pub(super) async fn find(app: &App, text: &str) -> Result<Revision, ApiError> {
    let missing = || {
        ApiError::not_found(format!("revision {}", text.chars().take(80).collect::<String>()))
            .why("revisions.list names those that were in force")
    };
    if text.starts_with("rev_") {
        return revisions::find(&app.db, super::parse("revision", text)?).await?.ok_or_else(missing);
    }
    if text.len() < 7 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ApiError::field("revision", "it is rev_… or at least 7 digits of a commit"));
    }
    let mut found = revisions::find_by_commit(&app.db, FLEET, text).await?;
    if found.len() > 1 {
        return Err(ApiError::field("revision", format!("several commits begin with {text}; give more of it")));
    }
    found.pop().ok_or_else(missing)
}

/// Nothing is left to go back to.
pub(super) fn without_files(revision: &Revision) -> ApiError {
    let id = revision.revision.id;
    ApiError::new(Code::InvalidState, format!("the files of {id} were not kept"))
        .why("it is older than this control plane's memory of files; revert it in the repository instead")
}
