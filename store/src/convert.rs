//! Column values to words of `schema` and back.

use jiff_sqlx::{Timestamp as Column, ToSqlx};
use schema::{digest::Digest, time::Timestamp};

use crate::DbError;

pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, DbError> {
    <[u8; 32]>::try_from(bytes).map(Digest::from_bytes).map_err(|e| DbError::corrupt("digest", e))
}

pub(crate) fn maybe_digest(bytes: Option<Vec<u8>>) -> Result<Option<Digest>, DbError> {
    bytes.map(|bytes| digest(&bytes)).transpose()
}

pub(crate) fn digest_column(digest: &Digest) -> Vec<u8> {
    digest.as_bytes().to_vec()
}

pub(crate) fn time(column: Option<Column>) -> Option<Timestamp> {
    column.map(Column::to_jiff)
}

pub(crate) fn time_column(time: Option<Timestamp>) -> Option<Column> {
    time.map(ToSqlx::to_sqlx)
}

/// Reads a word of a closed set.
pub(crate) fn word<T>(what: &str, text: &str) -> Result<T, DbError>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.parse().map_err(|e: T::Err| DbError::corrupt(what, e))
}

/// Whether a text is JSON, as it was written.
pub(crate) fn json(what: &str, text: &str) -> Result<serde_json::Value, DbError> {
    serde_json::from_str(text).map_err(|e| DbError::corrupt(what, e))
}

/// Milliseconds for an interval parameter.
pub(crate) fn millis(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// A count for an integer column.
pub(crate) fn int(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// A count from an integer column, which is never negative.
pub(crate) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
