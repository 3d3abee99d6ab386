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
    /// When the first chained line was written that no checkpoint stands by.
    pub unsigned_since: Option<Timestamp>,
}

fn number(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Lines that are not chained yet, in the order of their numbers; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn tail(db: &Db, limit: u32) -> Result<Vec<Entry>, DbError> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, seq, at, actor, action, subject, detail
           FROM audit WHERE seq IN (SELECT seq FROM audit_tail ORDER BY seq LIMIT $1) ORDER BY seq"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

/// The last place and its link; `None` while nothing is chained.
///
/// # Errors
/// When the statement fails.
pub async fn head(db: &Db) -> Result<Option<(u64, Digest)>, DbError> {
    let row =
        sqlx::query!("SELECT pos, link FROM audit_chain ORDER BY pos DESC LIMIT 1").fetch_optional(db.pool()).await?;
    row.map(|row| Ok((number(row.pos), convert::digest(&row.link)?))).transpose()
}

/// Puts lines at the end of the chain, the first of them at `from`. A writer that did not see what another one did writes
/// nothing: places and lines are taken once.
///
/// # Errors
/// When the statement fails.
pub async fn extend(txn: &mut Txn, from: u64, links: &[(u64, Digest)]) -> Result<(), DbError> {
    let seqs: Vec<i64> = links.iter().map(|(seq, _)| column(*seq)).collect();
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

/// Chained lines from a place on; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn chained(db: &Db, from: u64, limit: u32) -> Result<Vec<Chained>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT c.pos, c.link, a.id, a.seq, a.at, a.actor, a.action, a.subject, a.detail
           FROM audit_chain c JOIN audit a ON a.seq = c.seq
           WHERE c.pos >= $1 ORDER BY c.pos LIMIT $2"#,
        column(from),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            let line = Row {
                id: row.id,
                seq: row.seq,
                at: row.at,
                actor: row.actor,
                action: row.action,
                subject: row.subject,
                detail: row.detail,
            };
            Ok(Chained { pos: number(row.pos), link: convert::digest(&row.link)?, entry: line.read() })
        })
        .collect()
}

/// Every chained line of a subject, oldest first; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn chained_of(db: &Db, subject: &str, limit: u32) -> Result<Vec<Chained>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT c.pos, c.link, a.id, a.seq, a.at, a.actor, a.action, a.subject, a.detail
           FROM audit a JOIN audit_chain c ON c.seq = a.seq
           WHERE a.subject = $1 ORDER BY c.pos LIMIT $2"#,
        subject,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            let line = Row {
                id: row.id,
                seq: row.seq,
                at: row.at,
                actor: row.actor,
                action: row.action,
                subject: row.subject,
                detail: row.detail,
            };
            Ok(Chained { pos: number(row.pos), link: convert::digest(&row.link)?, entry: line.read() })
        })
        .collect()
}

/// The links of the places from `from` to before `until`.
///
/// # Errors
/// When the statement fails.
pub async fn links(db: &Db, from: u64, until: u64) -> Result<Vec<Digest>, DbError> {
    let links = sqlx::query_scalar!(
        "SELECT link FROM audit_chain WHERE pos >= $1 AND pos < $2 ORDER BY pos",
        column(from),
        column(until),
    )
    .fetch_all(db.pool())
    .await?;
    links.iter().map(|link| convert::digest(link)).collect()
}

/// How far the chain is.
///
/// # Errors
/// When the statement fails.
pub async fn standing(db: &Db) -> Result<Standing, DbError> {
    let row = sqlx::query!(
        r#"WITH c AS (SELECT COALESCE((SELECT rows FROM audit_checkpoints ORDER BY n DESC LIMIT 1), 0) AS signed)
           SELECT COALESCE((SELECT pos + 1 FROM audit_chain ORDER BY pos DESC LIMIT 1), 0) AS "chained!",
                  c.signed AS "signed!",
                  (SELECT count(*) FROM audit_tail) AS "tail!",
                  (SELECT a.at FROM audit_chain l JOIN audit a ON a.seq = l.seq WHERE l.pos = c.signed) AS "unsigned_since?: jiff_sqlx::Timestamp"
           FROM c"#
    )
    .fetch_one(db.pool())
    .await?;
    Ok(Standing {
        chained: number(row.chained),
        signed: number(row.signed),
        tail: number(row.tail),
        unsigned_since: convert::time(row.unsigned_since),
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

/// The latest checkpoint.
///
/// # Errors
/// When the statement fails.
pub async fn last_checkpoint(db: &Db) -> Result<Option<Checkpoint>, DbError> {
    let row = sqlx::query_as!(
        CheckpointRow,
        "SELECT n, rows, body, signature, at FROM audit_checkpoints ORDER BY n DESC LIMIT 1"
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(CheckpointRow::read))
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
