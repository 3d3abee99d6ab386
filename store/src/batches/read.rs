//! Reading batches.

use jiff_sqlx::ToSqlx;
use schema::{digest::Digest, id::BatchId, name::Name, time::Timestamp};

use super::{Batch, BatchState, Closed, NewBatch, Origin, Signed, time};
use sqlx::{Row as _, postgres::PgRow};

use crate::{
    Db, DbError, Listed, Page, Txn, convert, page,
    rows::{self, Stored},
};

// The columns of a Row, once; `$tail` is the rest of the statement.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, name, origin, state, reason, message, quorum, kind, doc, document, place, why, tier, plan_commit, plan_tree, header,
                      digest, trust_epoch, proposer, evidence, created_by, leaf_count, not_before, expires, max_in_flight, max_failures,
                      spread, created_at, resolved_at, decided_at, ended_at, closed_at, closed_by, closed_note, mark
               FROM batches "# + $tail
            $(, $arg)*
        )
    };
}

/// The batch of a name.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, name: &str) -> Result<Option<Batch>, DbError> {
    rows::find(db.pool(), select!("WHERE name = $1", name)).await
}

/// The batch of an id.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_id(db: &Db, id: BatchId) -> Result<Option<Batch>, DbError> {
    rows::find(db.pool(), select!("WHERE id = $1", id.as_uuid())).await
}

/// The batch of a name, held until the commit.
///
/// # Errors
/// When the statement fails.
pub async fn find_for_update(txn: &mut Txn, name: &str) -> Result<Option<Batch>, DbError> {
    rows::find(txn.conn(), select!("WHERE name = $1 FOR UPDATE", name)).await
}

/// Those that have not ended, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list_open(db: &Db) -> Result<Listed<Batch>, DbError> {
    rows::list(db.pool(), select!("WHERE ended_at IS NULL ORDER BY name")).await
}

/// The names of those that have not ended.
///
/// # Errors
/// When the statement fails.
pub async fn open_names(db: &Db) -> Result<Vec<String>, DbError> {
    Ok(sqlx::query_scalar!("SELECT name FROM batches WHERE ended_at IS NULL ORDER BY name")
        .fetch_all(db.pool())
        .await?)
}

/// Emergencies that nobody looked at afterwards, oldest first.
///
/// # Errors
/// When the statement fails.
pub async fn to_review(db: &Db) -> Result<Listed<Batch>, DbError> {
    rows::list(db.pool(), select!("WHERE origin = 'breakglass' AND closed_at IS NULL ORDER BY created_at")).await
}

/// What documents and proposals that were resolved say: the name, the digest of the text, the plan commit, and whether the
/// batch has ended.
///
/// # Errors
/// When the statement fails.
pub async fn in_force(db: &Db) -> Result<Listed<(Name, Origin, Digest, Option<String>, bool)>, DbError> {
    let statement = sqlx::query_as!(
        Said,
        r#"SELECT name, origin, document, plan_commit, ended_at IS NOT NULL AS "ended!" FROM batches
           WHERE origin IN ('document', 'proposal') ORDER BY name"#
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Said {
    name: String,
    origin: String,
    document: Vec<u8>,
    plan_commit: Option<String>,
    #[sqlx(rename = "ended!")]
    ended: bool,
}

impl Stored for Said {
    type Item = (Name, Origin, Digest, Option<String>, bool);
    const TABLE: &'static str = "batches";
    const KEY: &'static [&'static str] = &["name"];

    fn read(self) -> Result<(Name, Origin, Digest, Option<String>, bool), DbError> {
        Ok((
            convert::word("batch name", &self.name)?,
            convert::word("origin of a batch", &self.origin)?,
            convert::digest(&self.document)?,
            self.plan_commit,
            self.ended,
        ))
    }
}

/// What a list is narrowed to; every `None` is "any".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Where the batch is.
    pub state: Option<BatchState>,
    /// Only those that have not ended.
    pub open: bool,
}

/// Batches, newest first. `before` is the `next` of the page before.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, filter: &Filter, before: Option<Timestamp>, limit: u32) -> Result<Page<Batch>, DbError> {
    let (limit, rows) = page::rows(limit);
    let statement = select!(
        "WHERE ($1::text IS NULL OR state = $1) AND (NOT $2 OR ended_at IS NULL) AND ($3::timestamptz IS NULL OR created_at < $3) ORDER BY created_at DESC LIMIT $4",
        filter.state.map(BatchState::as_str),
        filter.open,
        before.map(ToSqlx::to_sqlx) as _,
        rows,
    );
    page::read(db.pool(), statement, limit, written).await
}

/// When a batch was written down, for the order of a list. A time that cannot be read stands where the database sorts it.
fn written(row: &PgRow) -> Result<String, sqlx::Error> {
    let at = row.try_get::<jiff_sqlx::Timestamp, _>("created_at").map(jiff_sqlx::Timestamp::to_jiff);
    let end = || {
        let micros: i64 = row.try_get_unchecked("created_at")?;
        Ok::<_, sqlx::Error>(if micros > 0 { Timestamp::MAX } else { Timestamp::MIN })
    };
    at.or_else(|_| end()).map(|at| at.to_string())
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    name: String,
    origin: String,
    state: String,
    reason: Option<String>,
    message: Option<String>,
    quorum: bool,
    kind: String,
    doc: String,
    document: Vec<u8>,
    place: Option<String>,
    why: String,
    tier: Option<String>,
    plan_commit: Option<String>,
    plan_tree: Option<String>,
    header: Option<Vec<u8>>,
    digest: Option<Vec<u8>>,
    trust_epoch: Option<i64>,
    proposer: Option<String>,
    evidence: Option<Vec<u8>>,
    created_by: String,
    leaf_count: i32,
    not_before: jiff_sqlx::Timestamp,
    expires: jiff_sqlx::Timestamp,
    max_in_flight: i32,
    max_failures: i32,
    spread: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    resolved_at: jiff_sqlx::Timestamp,
    decided_at: Option<jiff_sqlx::Timestamp>,
    ended_at: Option<jiff_sqlx::Timestamp>,
    closed_at: Option<jiff_sqlx::Timestamp>,
    closed_by: Option<String>,
    closed_note: Option<String>,
    mark: Option<Vec<u8>>,
}

impl Stored for Row {
    type Item = Batch;
    const TABLE: &'static str = "batches";
    const KEY: &'static [&'static str] = &["name", "id"];

    fn read(self) -> Result<Batch, DbError> {
        let signed = match (self.header, self.digest, self.tier, self.trust_epoch) {
            (Some(header), Some(digest), Some(tier), Some(epoch)) => Some(Signed {
                header,
                digest: convert::digest(&digest)?,
                tier: convert::word("tier", &tier)?,
                trust_epoch: u64::try_from(epoch).unwrap_or(0),
            }),
            _ => None,
        };
        convert::json("document of a batch", &self.doc)?;
        Ok(Batch {
            id: BatchId::from_uuid(self.id),
            new: NewBatch {
                name: convert::word("batch name", &self.name)?,
                origin: convert::word("origin of a batch", &self.origin)?,
                quorum: self.quorum,
                kind: self.kind,
                doc: self.doc,
                place: self.place,
                why: self.why,
                plan: self.plan_commit.zip(self.plan_tree),
                signed,
                proposer: self.proposer,
                evidence: self.evidence,
                created_by: self.created_by,
                not_before: time(self.not_before),
                expires: time(self.expires),
                max_in_flight: convert::count(self.max_in_flight),
                max_failures: convert::count(self.max_failures),
                spread: self.spread,
            },
            document: convert::digest(&self.document)?,
            state: convert::word("state of a batch", &self.state)?,
            reason: self.reason,
            message: self.message,
            leaves: convert::count(self.leaf_count),
            created_at: time(self.created_at),
            resolved_at: time(self.resolved_at),
            decided_at: self.decided_at.map(time),
            ended_at: self.ended_at.map(time),
            closed: match (self.closed_at, self.closed_by, self.closed_note) {
                (Some(at), Some(by), note) => Some(Closed { at: time(at), by, note: note.unwrap_or_default() }),
                _ => None,
            },
            mark: self.mark,
        })
    }
}
