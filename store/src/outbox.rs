//! The outbox: what happened, for whoever follows, written in the transaction of the cause.
//!
//! Rows are read in the order of (life, transaction, row), and only those that no transaction that still runs can precede: a
//! reader that continues after the last row it saw misses nothing, however long another transaction took to commit. A
//! database that was restored counts its transactions anew, and begins another life ([`begin_life`]).

use std::{fmt, str::FromStr};

use schema::time::Timestamp;
use serde_json::Value;

use sqlx::{Executor as _, Row as _, postgres::PgRow};

use crate::{
    Db, DbError, Listed, Txn,
    rows::{self, Stored},
    secrets,
};

/// A command was queued.
pub const COMMAND_QUEUED: &str = "node.command.queued";
/// A command ended.
pub const COMMAND_SETTLED: &str = "command.settled";
/// Somebody wants a command to be cancelled.
pub const COMMAND_CANCEL_REQUESTED: &str = "node.command.cancel-requested";
/// A node said something about a command that had ended.
pub const COMMAND_LATE: &str = "node.command.late";

/// A batch is there, or moved.
pub const BATCH_MOVED: &str = "batch.moved";
/// An emergency was used.
pub const BREAKGLASS: &str = "breakglass.used";

/// An event to write.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// What kind of event.
    pub kind: &'static str,
    /// What it is about.
    pub subject: String,
    /// The rest.
    pub doc: Value,
}

impl NewEvent {
    /// An event.
    #[must_use]
    pub fn new(kind: &'static str, subject: impl fmt::Display, doc: Value) -> Self {
        Self { kind, subject: subject.to_string(), doc }
    }
}

/// The place of an event in the order of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    life: i32,
    xid: u64,
    id: i64,
}

/// The text is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in the order of events")]
pub struct ParseCursorError(String);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.life, self.xid, self.id)
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseCursorError(text.chars().take(80).collect());
        let parts: Vec<&str> = text.split('-').collect();
        let [life, xid, id] = parts.as_slice() else { return Err(refuse()) };
        let read = || Some(Self { life: life.parse().ok()?, xid: xid.parse().ok()?, id: id.parse().ok()? });
        read().ok_or_else(refuse)
    }
}

/// A stored event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its place; pass it as `after` to go on.
    pub cursor: Cursor,
    /// What kind of event.
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// The rest.
    pub doc: Value,
    /// When.
    pub at: Timestamp,
}

/// Events that follow a place.
#[derive(Debug, Clone)]
pub struct Followed {
    /// The events.
    pub events: Listed<Event>,
    /// The place of the last of them, readable or not; `None` when there are none.
    pub last: Option<Cursor>,
    /// There may be more.
    pub is_full: bool,
}

impl Followed {
    /// Nothing was looked for.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { events: Listed { items: Vec::new(), unreadable: Vec::new() }, last: None, is_full: false }
    }
}

/// Writes events in the transaction of the cause.
///
/// # Errors
/// When the statement fails.
pub async fn append(txn: &mut Txn, events: &[NewEvent]) -> Result<(), DbError> {
    if events.is_empty() {
        return Ok(());
    }
    let kinds: Vec<String> = events.iter().map(|event| event.kind.to_owned()).collect();
    let subjects: Vec<String> = events.iter().map(|event| event.subject.clone()).collect();
    let docs: Vec<String> = events.iter().map(|event| event.doc.to_string()).collect();
    sqlx::query!(
        "INSERT INTO outbox (kind, subject, doc) SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[])",
        &kinds,
        &subjects,
        &docs,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The events after a place, of these kinds (none: all), `limit` at most.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, after: Cursor, kinds: &[String], limit: u32) -> Result<Followed, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT life, xid::text AS "xid!", id, kind, subject, doc, at
           FROM outbox
           WHERE (life, xid, id) > ($5, $1::text::xid8, $2)
             AND (xid < pg_snapshot_xmin(pg_current_snapshot()) OR life < (SELECT outbox_life()))
             AND (cardinality($3::text[]) = 0 OR kind = ANY ($3))
           ORDER BY life, xid, id
           LIMIT $4"#,
        after.xid.to_string(),
        after.id,
        kinds,
        i64::from(limit),
        after.life,
    );
    let found = db.pool().fetch_all(statement).await?;
    let place = |row: &PgRow| {
        let xid: String = row.try_get("xid!")?;
        cursor(row.try_get("life")?, &xid, row.try_get("id")?)
    };
    let last = found.last().map(place).transpose()?;
    let is_full = found.len() >= limit as usize;
    Ok(Followed { events: rows::read_all::<Row>(&found), last, is_full })
}

#[derive(sqlx::FromRow)]
struct Row {
    life: i32,
    #[sqlx(rename = "xid!")]
    xid: String,
    id: i64,
    kind: String,
    subject: String,
    doc: String,
    at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Event;
    const TABLE: &'static str = "outbox";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<Event, DbError> {
        Ok(Event {
            cursor: cursor(self.life, &self.xid, self.id)?,
            kind: self.kind,
            subject: self.subject,
            doc: serde_json::from_str(&self.doc).map_err(|e| DbError::corrupt("event", e))?,
            at: self.at.to_jiff(),
        })
    }
}

/// The place of the newest event that can be read: whoever begins there hears only what is new.
///
/// # Errors
/// When the statement fails.
pub async fn newest(db: &Db) -> Result<Cursor, DbError> {
    let row = sqlx::query!(
        r#"SELECT life, xid::text AS "xid!", id
           FROM outbox
           WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) OR life < (SELECT outbox_life())
           ORDER BY life DESC, xid DESC, id DESC
           LIMIT 1"#
    )
    .fetch_optional(db.pool())
    .await?;
    let Some(row) = row else { return Ok(Cursor::default()) };
    cursor(row.life, &row.xid, row.id)
}

fn cursor(life: i32, xid: &str, id: i64) -> Result<Cursor, DbError> {
    Ok(Cursor { life, xid: xid.parse().map_err(|e| DbError::corrupt("event", e))?, id })
}

/// Notes where this database is (the server, its timeline, and the ids that a restore gives the database and a table of it), and
/// begins another life when that is not where it was before: it was restored. Whether it did. Called once at the start of a
/// process, before anything is written.
///
/// A life is numbered by the second in which it began: the number after the last one would come again when the same dump is
/// restored again.
///
/// # Errors
/// When a statement fails.
pub async fn begin_life(db: &Db) -> Result<bool, DbError> {
    let mut txn = db.begin().await?;
    let server = sqlx::query_scalar!(
        r#"SELECT concat_ws('/', s.system_identifier, c.timeline_id, d.oid, 'outbox_lives'::regclass::oid) AS "server!"
           FROM pg_control_system() s, pg_control_checkpoint() c, pg_database d
           WHERE d.datname = current_database()"#
    )
    .fetch_one(txn.conn())
    .await?;
    let last = sqlx::query!("SELECT life, server FROM outbox_lives ORDER BY life DESC LIMIT 1 FOR UPDATE")
        .fetch_one(txn.conn())
        .await?;
    // What was noted before ids were is the beginning of the same place.
    let goes_on = |before: &String| *before == server || server.starts_with(&format!("{before}/"));
    let begins = last.server.as_ref().is_some_and(|before| !goes_on(before));
    if begins {
        sqlx::query!(
            // A clock that is decades ahead leaves room for the lives after it.
            r#"INSERT INTO outbox_lives (life, server)
               VALUES (greatest($1, least(extract(epoch FROM compute_now() - timestamptz '2026-01-01 00:00Z'), 2e9)::integer), $2)"#,
            last.life + 1,
            server,
        )
        .execute(txn.conn())
        .await?;
        secrets::skip_versions(&mut txn).await?;
    } else if last.server.as_ref() != Some(&server) {
        sqlx::query!("UPDATE outbox_lives SET server = $2 WHERE life = $1", last.life, server)
            .execute(txn.conn())
            .await?;
    }
    txn.commit().await?;
    Ok(begins)
}

/// When this database was restored last, as far as anybody noticed.
///
/// # Errors
/// When the statement fails.
pub async fn restored_at(db: &Db) -> Result<Option<Timestamp>, DbError> {
    let at = sqlx::query_scalar!(
        r#"SELECT began_at AS "at: jiff_sqlx::Timestamp" FROM outbox_lives WHERE life > 0 ORDER BY life DESC LIMIT 1"#
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(at.map(jiff_sqlx::Timestamp::to_jiff))
}

/// Forgets events that are a week old.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done =
        sqlx::query!("DELETE FROM outbox WHERE at < compute_now() - interval '7 days'").execute(db.pool()).await?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_from_its_text() {
        let cursor = Cursor { life: 1, xid: 12, id: 7 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "12", "0-1", "0-a-1", "0-1-", "0--1-1", "0-1-2-3"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
