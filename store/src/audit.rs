//! Who did what. Append only, and chained by one writer ([`extend`]): what a line says cannot change without every later one.

use schema::{id::AuditId, time::Timestamp};

use crate::{Db, DbError, Txn, convert};

// The lines of a statement that goes on behind `audit a`. Who writes into the database writes times and details that this program
// has no words for: such a line is a line all the same, and keeps nobody from reading the others.
macro_rules! lines {
    ($as:ident, $more:literal, $tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            $as,
            r#"SELECT a.id, a.seq, LEAST(GREATEST(a.at, '0001-01-01 00:00Z'), '9999-12-30 00:00Z') AS "at!: jiff_sqlx::Timestamp",
                      a.actor, a.action, a.subject, a.detail::text AS "detail!" "# + $more + " FROM audit a " + $tail
            $(, $arg)*
        )
    };
}

mod aside;
mod chain;

pub use aside::{Looked, Outside, glance, lock, outside, set_aside, set_outside_aside, were_set_aside};
pub use chain::{
    Chained, Checkpoint, KeyVouch, Standing, chained, chained_of, checkpoint_over, checkpoints, checkpoints_back,
    extend, put_checkpoint, standing, tail, vouch, vouches,
};

/// The member of a line's detail that names the people whose signed words it follows from, as they were judged.
pub const PEOPLE: &str = "people";

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: AuditId,
    /// Its place in the order of writing.
    pub seq: i64,
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
    /// Of this actor, of all whose names begin so and go on with `/`, or of what people stand behind, this one among them.
    pub actor: Option<String>,
    /// Of this action, or of all that begin so and go on with a point.
    pub action: Option<String>,
    /// Not before that.
    pub since: Option<Timestamp>,
    /// Written before the line with this number.
    pub before: Option<i64>,
}

/// Lines, newest first; of one subject, or of all.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, subject: Option<&str>, before: Option<i64>, limit: u32) -> Result<Vec<Entry>, DbError> {
    search(db, &Filter { subject: subject.map(str::to_owned), before, ..Filter::default() }, limit).await
}

/// Lines, newest first.
///
/// # Errors
/// When the statement fails.
pub async fn search(db: &Db, filter: &Filter, limit: u32) -> Result<Vec<Entry>, DbError> {
    let rows = lines!(
        Row,
        "",
        r#"WHERE ($1::text IS NULL OR actor = $1 OR starts_with(actor, $1 || '/') OR detail -> 'people' @> to_jsonb($1::text))
             AND ($2::text IS NULL OR subject = $2)
             AND ($3::text IS NULL OR action = $3 OR starts_with(action, $3 || '.'))
             AND ($4::timestamptz IS NULL OR at >= $4)
             AND ($5::bigint IS NULL OR seq < $5)
           ORDER BY seq DESC
           LIMIT $6"#,
        filter.actor,
        filter.subject,
        filter.action,
        convert::time_column(filter.since) as _,
        filter.before,
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
    detail: String,
}

impl Row {
    fn read(self) -> Entry {
        Entry {
            id: AuditId::from_uuid(self.id),
            seq: self.seq,
            at: self.at.to_jiff(),
            actor: self.actor,
            action: self.action,
            subject: self.subject,
            detail: serde_json::from_str(&self.detail).unwrap_or(serde_json::Value::String(self.detail)),
        }
    }
}
