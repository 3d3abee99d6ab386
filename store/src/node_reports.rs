//! Node-signed bytes that nobody has verified yet, and how far they have been taken over.
//!
//! The gateway inserts, conditional on its session's epoch; the `node` controller lists, verifies and removes.

use std::collections::BTreeSet;

use schema::{
    generation::Epoch,
    id::{JournalId, NodeId},
    report::ReportKind,
    time::Timestamp,
};

use crate::{Db, DbError, Txn, convert};

/// A report as a gateway received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReport {
    /// The node whose session it came through.
    pub node_id: NodeId,
    /// The session's epoch.
    pub epoch: Epoch,
    /// What it is.
    pub kind: ReportKind,
    /// Its number in the node's journal.
    pub seq: u64,
    /// The exact bytes that the node signed.
    pub payload: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// A report that waits to be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its row; pass it to [`remove`].
    pub id: i64,
    /// What came.
    pub report: NewReport,
    /// When.
    pub received_at: Timestamp,
}

/// How far the reports of one kind were taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The kind.
    pub kind: ReportKind,
    /// The journal of the newest report.
    pub journal: JournalId,
    /// Its number there.
    pub seq: u64,
}

/// So many reports of one node are read at a time.
pub const AT_ONCE: usize = 100;
/// A node of which so many wait is not listened to until they are taken over.
const MOST: i64 = 200;

/// What became of reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inserted {
    /// The nodes whose reports are stored.
    pub stored: Vec<NodeId>,
    /// The nodes of which too many wait already: nothing of theirs was stored.
    pub full: Vec<NodeId>,
}

/// Stores reports whose session is the node's latest one, closed or not. A repeated report is kept once. The session's
/// row is held until the commit, so no other session begins in between.
///
/// # Errors
/// When a statement fails.
pub async fn insert(txn: &mut Txn, reports: &[NewReport]) -> Result<Inserted, DbError> {
    let mut sessions: Vec<(uuid::Uuid, i64)> =
        reports.iter().map(|r| (r.node_id.as_uuid(), r.epoch.to_i64())).collect();
    sessions.sort_unstable();
    sessions.dedup();
    let (ids, epochs): (Vec<uuid::Uuid>, Vec<i64>) = sessions.into_iter().unzip();
    let current = sqlx::query!(
        r#"SELECT s.node_id, s.epoch
           FROM sessions s
           JOIN UNNEST($1::uuid[], $2::bigint[]) AS r (node_id, epoch) ON r.node_id = s.node_id AND r.epoch = s.epoch
           ORDER BY s.node_id
           FOR SHARE OF s"#,
        &ids,
        &epochs,
    )
    .fetch_all(txn.conn())
    .await?;
    let current: BTreeSet<(NodeId, Epoch)> =
        current.into_iter().map(|row| (NodeId::from_uuid(row.node_id), Epoch::from_i64(row.epoch))).collect();
    let full = sqlx::query_scalar!(
        "SELECT node_id FROM node_reports WHERE node_id = ANY($1) GROUP BY node_id HAVING count(*) >= $2",
        &ids,
        MOST,
    )
    .fetch_all(txn.conn())
    .await?;
    let full: BTreeSet<NodeId> = full.into_iter().map(NodeId::from_uuid).collect();
    let (full, current): (BTreeSet<_>, BTreeSet<_>) = current.into_iter().partition(|(id, _)| full.contains(id));
    let kept: Vec<&NewReport> = reports.iter().filter(|r| current.contains(&(r.node_id, r.epoch))).collect();
    let ids: Vec<uuid::Uuid> = kept.iter().map(|r| r.node_id.as_uuid()).collect();
    let epochs: Vec<i64> = kept.iter().map(|r| r.epoch.to_i64()).collect();
    let kinds: Vec<String> = kept.iter().map(|r| r.kind.to_string()).collect();
    let seqs: Vec<i64> = kept.iter().map(|r| i64::try_from(r.seq).unwrap_or(i64::MAX)).collect();
    let payloads: Vec<Vec<u8>> = kept.iter().map(|r| r.payload.clone()).collect();
    let signatures: Vec<Vec<u8>> = kept.iter().map(|r| r.signature.clone()).collect();
    sqlx::query!(
        r#"INSERT INTO node_reports (node_id, epoch, kind, seq, payload, signature)
           SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::bytea[], $6::bytea[])
           ON CONFLICT (node_id, kind, epoch, seq) DO NOTHING"#,
        &ids,
        &epochs,
        &kinds,
        &seqs,
        &payloads,
        &signatures,
    )
    .execute(txn.conn())
    .await?;
    let ids = |sessions: BTreeSet<(NodeId, Epoch)>| sessions.into_iter().map(|(id, _)| id).collect();
    Ok(Inserted { stored: ids(current), full: ids(full) })
}

/// The oldest reports of one node that wait, [`AT_ONCE`] at most, oldest first.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, id: NodeId) -> Result<Vec<Report>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, epoch, kind, seq, payload, signature, received_at
           FROM node_reports
           WHERE node_id = $1
           ORDER BY epoch, id
           LIMIT $2"#,
        id.as_uuid(),
        i64::try_from(AT_ONCE).unwrap_or(i64::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Report {
                id: row.id,
                report: NewReport {
                    node_id: id,
                    epoch: Epoch::from_i64(row.epoch),
                    kind: convert::word("report kind", &row.kind)?,
                    seq: u64::try_from(row.seq).unwrap_or(0),
                    payload: row.payload,
                    signature: row.signature,
                },
                received_at: row.received_at.to_jiff(),
            })
        })
        .collect()
}

/// Removes reports that were taken over or refused.
///
/// # Errors
/// When the statement fails.
pub async fn remove(txn: &mut Txn, rows: &[i64]) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM node_reports WHERE id = ANY($1)", rows).execute(txn.conn()).await?;
    Ok(())
}

/// How far the reports of one node were taken over.
///
/// # Errors
/// When the statement fails.
pub async fn marks(db: &Db, id: NodeId) -> Result<Vec<Mark>, DbError> {
    let rows = sqlx::query!("SELECT kind, journal_id, seq FROM node_report_marks WHERE node_id = $1", id.as_uuid())
        .fetch_all(db.pool())
        .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Mark {
                kind: convert::word("report kind", &row.kind)?,
                journal: JournalId::from_uuid(row.journal_id),
                seq: u64::try_from(row.seq).unwrap_or(0),
            })
        })
        .collect()
}

/// Moves a mark forward. `false`, and nothing changes, when a report of the same journal with this number or a higher one
/// was taken over before.
///
/// # Errors
/// When the statement fails.
pub async fn set_mark(txn: &mut Txn, id: NodeId, mark: &Mark) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"INSERT INTO node_report_marks AS m (node_id, kind, journal_id, seq)
           VALUES ($1, $2, $3, $4)
           ON CONFLICT (node_id, kind) DO UPDATE
           SET journal_id = EXCLUDED.journal_id, seq = EXCLUDED.seq
           WHERE m.journal_id <> EXCLUDED.journal_id OR m.seq < EXCLUDED.seq"#,
        id.as_uuid(),
        mark.kind.as_str(),
        mark.journal.as_uuid(),
        i64::try_from(mark.seq).unwrap_or(i64::MAX),
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}
