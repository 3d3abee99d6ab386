//! The last outcome per reconciler and key: why something is not done yet, since when, and where the code said so.
//!
//! Written only when it changes, so an idle fleet writes nothing.

use std::time::Duration;

use schema::time::Timestamp;

use crate::{
    Db, DbError, Listed, Txn, queue,
    rows::{self, Stored},
};

/// How one run of a reconciler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing left to do.
    Done,
    /// Look again after a while, without a wake-up.
    Again {
        /// How long to rest.
        after: Duration,
        /// Why, kebab-case and stable.
        reason: String,
    },
    /// Something else must happen first, and whoever does it wakes the key.
    Wait {
        /// For what, kebab-case and stable.
        reason: String,
        /// For people.
        message: String,
        /// Look again after this long in any case; `None` trusts the wake-up and the resync.
        again: Option<Duration>,
    },
    /// The run failed; the key backs off.
    Failed {
        /// What kind of failure, kebab-case and stable.
        reason: String,
        /// For people.
        message: String,
    },
}

impl Verdict {
    /// How long the key rests before it is due again; `None` when it leaves the queue.
    #[must_use]
    pub fn rest(&self, attempts: u32) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Again { after, .. } => Some(*after),
            Self::Wait { again, .. } => *again,
            Self::Failed { .. } => Some(queue::backoff(attempts)),
        }
    }

    const fn state(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Again { .. } => "again",
            Self::Wait { .. } => "wait",
            Self::Failed { .. } => "error",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Again { reason, .. } | Self::Wait { reason, .. } | Self::Failed { reason, .. } => reason,
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::Done | Self::Again { .. } => "",
            Self::Wait { message, .. } | Self::Failed { message, .. } => message,
        }
    }
}

/// So many characters of a reason, of a message and of a place are stored, as the table has it (`outcomes_lengths_check`).
const REASON: usize = 200;
const MESSAGE: usize = 4_000;
const PLACE: usize = 400;

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most - 1) {
        Some((last, of)) if last + of.len_utf8() < text.len() => format!("{}…", &text[..last]),
        _ => text.to_owned(),
    }
}

/// An outcome to store.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The reconciler.
    pub kind: &'a str,
    /// The key.
    pub key: &'a str,
    /// How the run ended.
    pub verdict: &'a Verdict,
    /// The place in the code that decided, `file:line`.
    pub place: &'a str,
}

/// A stored outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The reconciler.
    pub kind: String,
    /// The key.
    pub key: String,
    /// `done`, `again`, `wait` or `error`.
    pub state: String,
    /// Why, kebab-case; empty when done.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The place in the code that decided.
    pub place: String,
    /// Since when state and reason are what they are.
    pub since: Timestamp,
}

/// Stores outcomes, those that differ from what is stored; a text that is too long is cut. For runs outside the queue; [`queue::settle`] does it for
/// claims.
///
/// # Errors
/// When the statement fails.
pub async fn record(txn: &mut Txn, records: &[Record<'_>]) -> Result<(), DbError> {
    if records.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&Record<'_>) -> String| records.iter().map(of).collect::<Vec<String>>();
    sqlx::query!(
        r#"INSERT INTO outcomes AS o (kind, key, state, reason, message, place)
           SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
           ON CONFLICT (kind, key) DO UPDATE
           SET state = EXCLUDED.state,
               reason = EXCLUDED.reason,
               message = EXCLUDED.message,
               place = EXCLUDED.place,
               since = CASE WHEN (o.state, o.reason) = (EXCLUDED.state, EXCLUDED.reason) THEN o.since ELSE EXCLUDED.since END
           WHERE (o.state, o.reason, o.message, o.place)
                 IS DISTINCT FROM (EXCLUDED.state, EXCLUDED.reason, EXCLUDED.message, EXCLUDED.place)"#,
        &column(|r| r.kind.to_owned()),
        &column(|r| r.key.to_owned()),
        &column(|r| r.verdict.state().to_owned()),
        &column(|r| cut(r.verdict.reason(), REASON)),
        &column(|r| cut(r.verdict.message(), MESSAGE)),
        &column(|r| cut(r.place, PLACE)),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Notes of keys that whatever stood against them is over. Where nothing did, nothing is written.
///
/// # Errors
/// When the statement fails.
pub async fn clear(txn: &mut Txn, records: &[Record<'_>]) -> Result<(), DbError> {
    if records.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&Record<'_>) -> String| records.iter().map(of).collect::<Vec<String>>();
    sqlx::query!(
        r#"WITH over AS MATERIALIZED (
               SELECT o.kind, o.key, r.place
               FROM UNNEST($1::text[], $2::text[], $3::text[]) AS r (kind, key, place)
               JOIN outcomes o ON o.kind = r.kind AND o.key = r.key
               WHERE o.state <> 'done'
               ORDER BY o.kind, o.key
               FOR NO KEY UPDATE OF o
           )
           UPDATE outcomes o
           SET state = 'done', reason = '', message = '', place = over.place, since = compute_now()
           FROM over
           WHERE o.kind = over.kind AND o.key = over.key"#,
        &column(|r| r.kind.to_owned()),
        &column(|r| r.key.to_owned()),
        &column(|r| r.place.to_owned()),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The last outcome of one key.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, kind: &str, key: &str) -> Result<Option<Outcome>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT kind, key, state, reason, message, place, since FROM outcomes WHERE kind = $1 AND key = $2",
        kind,
        key
    );
    rows::find(db.pool(), statement).await
}

/// Every outcome of one key, of all reconcilers: what `why` prints.
///
/// # Errors
/// When the statement fails.
pub async fn of_key(db: &Db, key: &str) -> Result<Listed<Outcome>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT kind, key, state, reason, message, place, since FROM outcomes WHERE key = $1 ORDER BY kind",
        key
    );
    rows::list(db.pool(), statement).await
}

/// The worst of what is not done: errors before waits, those that last longest first.
///
/// # Errors
/// When the statement fails.
pub async fn list_open(db: &Db, limit: u32) -> Result<Listed<Outcome>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT kind, key, state, reason, message, place, since
           FROM outcomes
           WHERE state <> 'done'
           ORDER BY state <> 'error', since, kind, key
           LIMIT $1"#,
        i64::from(limit),
    );
    rows::list(db.pool(), statement).await
}

/// Forgets the outcomes of a key that is gone.
///
/// # Errors
/// When the statement fails.
pub async fn forget(txn: &mut Txn, key: &str) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM outcomes WHERE key = $1", key).execute(txn.conn()).await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    kind: String,
    key: String,
    state: String,
    reason: String,
    message: String,
    place: String,
    since: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Outcome;
    const TABLE: &'static str = "outcomes";
    const KEY: &'static [&'static str] = &["kind", "key"];

    fn read(self) -> Result<Outcome, DbError> {
        let Self { kind, key, state, reason, message, place, since } = self;
        Ok(Outcome { kind, key, state, reason, message, place, since: since.to_jiff() })
    }
}
