//! The handlers, one file per group, and the words that they share.

pub(super) mod audit;
pub(super) mod batches;
pub(super) mod brakes;
pub(super) mod commands;
pub(super) mod events;
pub(super) mod fleet;
pub(super) mod joins;
pub(super) mod keys;
pub(super) mod nodes;
pub(super) mod plans;
pub(super) mod pools;
pub(super) mod revisions;
pub(super) mod secrets;
pub(super) mod sites;
pub(super) mod tokens;
pub(super) mod why;

use schema::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{DbError, Listed, Unreadable, rows};

use super::ApiError;

/// Nothing is asked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Nothing {}

/// An object by its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Named {
    /// The name.
    pub(super) name: String,
}

/// A thing by its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ById {
    /// The id.
    pub(super) id: String,
}

/// An instant, RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct At(#[schemars(with = "String")] pub(super) Timestamp);

/// A page.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageOf<T> {
    /// The items.
    pub(super) items: Vec<T>,
    /// Pass it as `after` for the next page, as `before` where the newest come first; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// Rows that belong here and cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unreadable: Vec<UnreadableView>,
}

/// A row of the database that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnreadableView {
    /// `row-unreadable`.
    code: String,
    /// The table.
    table: String,
    /// What the row is found by there.
    key: String,
    /// What is wrong with it.
    why: String,
}

impl UnreadableView {
    fn of(row: Unreadable) -> Self {
        let Unreadable { table, key, why } = row;
        Self { code: rows::UNREADABLE.to_owned(), table: table.to_owned(), key, why }
    }

    fn all(rows: Vec<Unreadable>) -> Vec<Self> {
        rows.into_iter().map(Self::of).collect()
    }
}

/// Takes what can be read out of a list, and puts the rest to what cannot.
fn readable<T>(listed: Listed<T>, unreadable: &mut Vec<UnreadableView>) -> Vec<T> {
    unreadable.extend(UnreadableView::all(listed.unreadable));
    listed.items
}

/// A document of the fleet repository, as it was applied.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DocumentView {
    /// The file.
    pub(super) file: String,
    /// The line in it.
    pub(super) line: u32,
    /// `declared`, or `retained` when the repository no longer has it and nothing removed it.
    pub(super) state: String,
    /// The document, canonical.
    pub(super) document: Value,
}

impl DocumentView {
    fn of(object: &store::revisions::StoredObject) -> Result<Self, ApiError> {
        Ok(Self {
            file: object.file.clone(),
            line: object.line,
            state: object.state.as_str().to_owned(),
            document: serde_json::from_str(&object.doc).map_err(ApiError::internal)?,
        })
    }
}

/// How many items a page has when nobody says.
const PAGE: u32 = 100;

/// What was looked for, unless its row is put to what cannot be read.
fn one<T>(found: Result<Option<T>, DbError>, unreadable: &mut Vec<UnreadableView>) -> Result<Option<T>, ApiError> {
    found.or_else(|error| {
        let row = error.unreadable().cloned().ok_or(error)?;
        unreadable.push(UnreadableView::of(row));
        Ok(None)
    })
}

fn limit(asked: Option<u32>) -> Result<u32, ApiError> {
    limit_up_to(1_000, asked)
}

fn limit_up_to(most: u32, asked: Option<u32>) -> Result<u32, ApiError> {
    let limit = asked.unwrap_or(PAGE);
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    Err(ApiError::field("limit", format!("a page has 1 to {most} items")))
}

fn parse<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, ApiError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e: T::Err| ApiError::field(field, e.to_string()))
}
