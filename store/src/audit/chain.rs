//! The chain over the lines, and the checkpoints that stand by it. What links and checkpoints say is the caller's business.

use schema::{digest::Digest, time::Timestamp};

use super::{Entry, Row};
use crate::{Db, DbError, Txn, convert};

/// A line at its place in the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Chained {
    /// Its place, counted from zero.
    pub pos: u64,
    /// What binds it and everything before it.
    pub link: Digest,
    /// The line.
    pub entry: Entry,
}

/// A signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number, counted from zero.
    pub n: u64,
    /// How many lines it stands by.
    pub rows: u64,
    /// What was signed.
    pub body: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
    /// When it was stored.
    pub at: Timestamp,
}

/// A worker's word for a key that signs checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyVouch {
    /// The key.
    pub key: Vec<u8>,
    /// The encoded signature.
    pub vouch: Vec<u8>,
}

/// How far the chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Chained lines.
    pub chained: u64,
    /// Lines that a checkpoint stands by.
    pub signed: u64,
    /// Lines that are not chained yet.
    pub tail: u64,
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Lines that are not chained yet, in the order of their numbers; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn tail(db: &Db, limit: u32) -> Result<Vec<Entry>, DbError> {
    let rows = lines!(
        Row,
        "",
        r#"JOIN audit_tail t ON t.seq = a.seq
           WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = a.seq)
           ORDER BY a.seq LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// Puts lines at the end of the chain, the first of them at `from`. A writer that did not see what another one did writes
/// nothing: places and lines are taken once.
///
/// # Errors
/// When the statement fails.
pub async fn extend(txn: &mut Txn, from: u64, links: &[(i64, Digest)]) -> Result<(), DbError> {
    let seqs: Vec<i64> = links.iter().map(|(seq, _)| *seq).collect();
    let positions: Vec<i64> = (from..).take(links.len()).map(column).collect();
    let links: Vec<Vec<u8>> = links.iter().map(|(_, link)| convert::digest_column(link)).collect();
    sqlx::query!(
        "INSERT INTO audit_chain (pos, seq, link) SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::bytea[])",
        &positions,
        &seqs,
        &links,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!("DELETE FROM audit_tail WHERE seq = ANY($1)", &seqs).execute(txn.conn()).await?;
    Ok(())
}

struct ChainedRow {
    pos: i64,
    link: Vec<u8>,
    id: uuid::Uuid,
    seq: i64,
    at: jiff_sqlx::Timestamp,
    actor: String,
    action: String,
    subject: String,
    detail: String,
}

impl ChainedRow {
    fn read(self) -> Result<Chained, DbError> {
        let Self { pos, link, id, seq, at, actor, action, subject, detail } = self;
        let entry = Row { id, seq, at, actor, action, subject, detail }.read();
        Ok(Chained { pos: number(pos), link: convert::digest(&link)?, entry })
    }
}

/// Chained lines from a place on; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn chained(db: &Db, from: u64, limit: u32) -> Result<Vec<Chained>, DbError> {
    let rows = lines!(
        ChainedRow,
        ", c.pos, c.link",
        "JOIN audit_chain c ON c.seq = a.seq WHERE c.pos >= $1 ORDER BY c.pos LIMIT $2",
        column(from),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter().map(ChainedRow::read).collect()
}

/// Every chained line of a subject, oldest first; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn chained_of(db: &Db, subject: &str, limit: u32) -> Result<Vec<Chained>, DbError> {
    let rows = lines!(
        ChainedRow,
        ", c.pos, c.link",
        "JOIN audit_chain c ON c.seq = a.seq WHERE a.subject = $1 ORDER BY c.pos LIMIT $2",
        subject,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter().map(ChainedRow::read).collect()
}

/// How far the chain is.
///
/// # Errors
/// When the statement fails.
pub async fn standing(db: &Db) -> Result<Standing, DbError> {
    let row = sqlx::query!(
        r#"SELECT (SELECT pos FROM audit_chain ORDER BY pos DESC LIMIT 1) AS last,
                  COALESCE((SELECT rows FROM audit_checkpoints ORDER BY n DESC LIMIT 1), 0) AS "signed!",
                  (SELECT count(*) FROM audit_tail t JOIN audit a ON a.seq = t.seq
                   WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = t.seq)) AS "tail!""#
    )
    .fetch_one(db.pool())
    .await?;
    Ok(Standing {
        chained: row.last.map_or(0, |last| number(last) + 1),
        signed: number(row.signed),
        tail: number(row.tail),
    })
}

struct CheckpointRow {
    n: i64,
    rows: i64,
    body: Vec<u8>,
    signature: Vec<u8>,
    at: jiff_sqlx::Timestamp,
}

impl CheckpointRow {
    fn read(self) -> Checkpoint {
        Checkpoint {
            n: number(self.n),
            rows: number(self.rows),
            body: self.body,
            signature: self.signature,
            at: self.at.to_jiff(),
        }
    }
}

/// Checkpoints before a number, the latest first; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn checkpoints_back(db: &Db, before: Option<u64>, limit: u32) -> Result<Vec<Checkpoint>, DbError> {
    let rows = sqlx::query_as!(
        CheckpointRow,
        r#"SELECT n, rows, body, signature, at FROM audit_checkpoints
           WHERE $1::bigint IS NULL OR n < $1 ORDER BY n DESC LIMIT $2"#,
        before.map(column),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(CheckpointRow::read).collect())
}

/// The first checkpoint that stands by the line at a place.
///
/// # Errors
/// When the statement fails.
pub async fn checkpoint_over(db: &Db, pos: u64) -> Result<Option<Checkpoint>, DbError> {
    let row = sqlx::query_as!(
        CheckpointRow,
        "SELECT n, rows, body, signature, at FROM audit_checkpoints WHERE rows > $1 ORDER BY n LIMIT 1",
        column(pos),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(CheckpointRow::read))
}

/// Checkpoints from a number on; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn checkpoints(db: &Db, from: u64, limit: u32) -> Result<Vec<Checkpoint>, DbError> {
    let rows = sqlx::query_as!(
        CheckpointRow,
        "SELECT n, rows, body, signature, at FROM audit_checkpoints WHERE n >= $1 ORDER BY n LIMIT $2",
        column(from),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(CheckpointRow::read).collect())
}

/// Stores a checkpoint. A number is taken once.
///
/// # Errors
/// When the statement fails.
pub async fn put_checkpoint(txn: &mut Txn, n: u64, rows: u64, body: &[u8], signature: &[u8]) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO audit_checkpoints (n, rows, body, signature) VALUES ($1, $2, $3, $4)",
        column(n),
        column(rows),
        body,
        signature,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Stores a worker's word for a key.
///
/// # Errors
/// When the statement fails.
pub async fn vouch(txn: &mut Txn, key: &[u8; 32], vouch: &[u8]) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO audit_keys (key, vouch) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET vouch = EXCLUDED.vouch, at = compute_now()",
        &key[..],
        vouch,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Every key that workers vouched for.
///
/// # Errors
/// When the statement fails.
pub async fn vouches(db: &Db) -> Result<Vec<KeyVouch>, DbError> {
    Ok(sqlx::query_as!(KeyVouch, "SELECT key, vouch FROM audit_keys ORDER BY at").fetch_all(db.pool()).await?)
}
