//! Who did what. Append only, and chained by one writer ([`extend`]): what a line says cannot change without every later one.

use schema::{id::AuditId, time::Timestamp};

use crate::{Db, DbError, Txn, convert};

mod chain;

pub use chain::{
    Chained, Checkpoint, KeyVouch, Standing, chained, chained_of, checkpoint_over, checkpoints, extend, head,
    last_checkpoint, links, put_checkpoint, standing, tail, vouch, vouches,
};

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: AuditId,
    /// Its place in the order of writing.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who: a token, `source`, a controller.
    pub actor: String,
    /// Did what, for example `nodes.cordon`.
    pub action: String,
    /// To what, for example a node's id.
    pub subject: String,
    /// The rest.
    pub detail: serde_json::Value,
}

/// Appends a line in the transaction of the deed.
///
/// # Errors
/// When the statement fails.
pub async fn append(
    txn: &mut Txn,
    actor: &str,
    action: &str,
    subject: &str,
    detail: &serde_json::Value,
) -> Result<AuditId, DbError> {
    let id = AuditId::generate();
    sqlx::query!(
        "INSERT INTO audit (id, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)",
        id.as_uuid(),
        actor,
        action,
        subject,
        detail
    )
    .execute(txn.conn())
    .await?;
    Ok(id)
}

/// A line to write.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// Who.
    pub actor: String,
    /// Did what.
    pub action: String,
    /// To what.
    pub subject: String,
    /// The rest.
    pub detail: serde_json::Value,
}

/// Appends lines in the transaction of the deeds, in one statement.
///
/// # Errors
/// When the statement fails.
pub async fn append_all(txn: &mut Txn, entries: &[NewEntry]) -> Result<(), DbError> {
    if entries.is_empty() {
        return Ok(());
    }
    let ids: Vec<uuid::Uuid> = entries.iter().map(|_| AuditId::generate().as_uuid()).collect();
    let column = |of: fn(&NewEntry) -> &String| entries.iter().map(|entry| of(entry).clone()).collect::<Vec<String>>();
    let details: Vec<serde_json::Value> = entries.iter().map(|entry| entry.detail.clone()).collect();
    sqlx::query!(
        r#"INSERT INTO audit (id, actor, action, subject, detail)
           SELECT * FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[])"#,
        &ids,
        &column(|entry| &entry.actor),
        &column(|entry| &entry.action),
        &column(|entry| &entry.subject),
        &details,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Which lines are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this subject.
    pub subject: Option<String>,
    /// Of this actor, or of all whose names begin so and go on with `/`.
    pub actor: Option<String>,
    /// Of this action, or of all that begin so and go on with a point.
    pub action: Option<String>,
    /// Not before that.
    pub since: Option<Timestamp>,
    /// Written before the line with this number.
    pub before: Option<u64>,
}

/// Lines, newest first; of one subject, or of all.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, subject: Option<&str>, before: Option<u64>, limit: u32) -> Result<Vec<Entry>, DbError> {
    search(db, &Filter { subject: subject.map(str::to_owned), before, ..Filter::default() }, limit).await
}

/// Lines, newest first.
///
/// # Errors
/// When the statement fails.
pub async fn search(db: &Db, filter: &Filter, limit: u32) -> Result<Vec<Entry>, DbError> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, seq, at, actor, action, subject, detail
           FROM audit
           WHERE ($1::text IS NULL OR subject = $1)
             AND ($2::text IS NULL OR actor = $2 OR starts_with(actor, $2 || '/'))
             AND ($3::text IS NULL OR action = $3 OR starts_with(action, $3 || '.'))
             AND ($4::timestamptz IS NULL OR at >= $4)
             AND ($5::bigint IS NULL OR seq < $5)
           ORDER BY seq DESC
           LIMIT $6"#,
        filter.subject,
        filter.actor,
        filter.action,
        convert::time_column(filter.since) as _,
        filter.before.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX)),
        i64::from(limit.clamp(1, crate::page::MAX_LIMIT)),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

struct Row {
    id: uuid::Uuid,
    seq: i64,
    at: jiff_sqlx::Timestamp,
    actor: String,
    action: String,
    subject: String,
    detail: serde_json::Value,
}

impl Row {
    fn read(self) -> Entry {
        Entry {
            id: AuditId::from_uuid(self.id),
            seq: u64::try_from(self.seq).unwrap_or(0),
            at: self.at.to_jiff(),
            actor: self.actor,
            action: self.action,
            subject: self.subject,
            detail: self.detail,
        }
    }
}
