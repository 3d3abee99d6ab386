//! Sessions: who holds a node's stream, under which epoch, and when the node was last heard.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    generation::Epoch,
    id::{BootId, GatewayId, JournalId, NodeId},
    node::{Connectivity, connectivity::UNREACHABLE_AFTER},
    time::{Duration, Timestamp},
};

use crate::{
    Db, DbError, Txn, convert,
    rows::{self, Stored},
};

mod facts;
mod open;

pub use facts::{News, SessionFacts, check, news};
pub use open::{OpenError, Opened, SessionOpen, open, open_all};

/// Closes sessions, each under its own epoch only, and answers those that were closed by this call.
///
/// # Errors
/// When a statement fails.
pub async fn close(txn: &mut Txn, sessions: &[(NodeId, Epoch)]) -> Result<Vec<NodeId>, DbError> {
    let (ids, epochs) = columns(sessions);
    // Nodes first, as `open` does: the same order of locks.
    sqlx::query!("SELECT id FROM nodes WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", &ids)
        .fetch_all(txn.conn())
        .await?;
    let closed = sqlx::query_scalar!(
        r#"WITH c AS MATERIALIZED (
               SELECT s.node_id
               FROM sessions s
               JOIN UNNEST($1::uuid[], $2::bigint[]) AS c (node_id, epoch) ON s.node_id = c.node_id AND s.epoch = c.epoch
               WHERE s.disconnected_at IS NULL
               ORDER BY s.node_id
               FOR NO KEY UPDATE OF s
           )
           UPDATE sessions s
           SET disconnected_at = compute_now()
           FROM c
           WHERE s.node_id = c.node_id
           RETURNING s.node_id"#,
        &ids,
        &epochs,
    )
    .fetch_all(txn.conn())
    .await?;
    sqlx::query!(
        "UPDATE nodes SET connectivity = 'disconnected', connectivity_since = compute_now() WHERE id = ANY($1) AND connectivity = 'connected'",
        &closed,
    )
    .execute(txn.conn())
    .await?;
    Ok(closed.into_iter().map(NodeId::from_uuid).collect())
}

/// How many sessions one statement says were heard. Whoever claims commands for one of them waits for it.
const BEATS_PER_STATEMENT: usize = 256;

/// Notes that nodes were heard, many in one statement, and answers those whose session is still this one. The others were
/// taken over.
///
/// # Errors
/// When a statement fails. Those before it were noted.
pub async fn beat(db: &Db, sessions: &[(NodeId, Epoch)]) -> Result<Vec<NodeId>, DbError> {
    let mut others = BTreeSet::new();
    for some in sessions.chunks(BEATS_PER_STATEMENT) {
        others.extend(beat_some(db, some).await?);
    }
    Ok(sessions.iter().map(|(node, _)| *node).filter(|node| !others.contains(node)).collect())
}

/// Answers those whose session is another one now: almost all are heard, so they are what travels.
async fn beat_some(db: &Db, sessions: &[(NodeId, Epoch)]) -> Result<impl Iterator<Item = NodeId>, DbError> {
    let (ids, epochs) = columns(sessions);
    // The commit does not wait for the disk: what a crash takes back was heard again before anybody is missed.
    let others = sqlx::query_scalar!(
        r#"WITH quick AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'off', true)
           ), b AS MATERIALIZED (
               SELECT b.* FROM quick, UNNEST($1::uuid[], $2::bigint[]) AS b (node_id, epoch)
           ), held AS MATERIALIZED (
               SELECT s.node_id
               FROM sessions s
               JOIN b ON s.node_id = b.node_id AND s.epoch = b.epoch
               WHERE s.disconnected_at IS NULL
               ORDER BY s.node_id
               FOR NO KEY UPDATE OF s
           ), heard AS (
               UPDATE sessions s
               SET last_seen = compute_now()
               FROM held
               WHERE s.node_id = held.node_id
               RETURNING s.node_id
           )
           SELECT b.node_id AS "node_id!"
           FROM b
           WHERE NOT EXISTS (SELECT FROM heard WHERE heard.node_id = b.node_id)"#,
        &ids,
        &epochs,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(others.into_iter().map(NodeId::from_uuid))
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The node.
    pub node_id: NodeId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The gateway that holds or held it.
    pub gateway_id: GatewayId,
    /// The boot.
    pub boot_id: BootId,
    /// The journal.
    pub journal_id: JournalId,
    /// The daemon's version.
    pub version: String,
    /// The machine is described by a file.
    pub described: bool,
    /// The daemon runs commands.
    pub commands: bool,
    /// When it opened.
    pub connected_at: Timestamp,
    /// When it closed; `None` while it is open.
    pub disconnected_at: Option<Timestamp>,
    /// When the node was last heard.
    pub last_seen: Timestamp,
}

/// The latest session of a node; `None` when it never had one.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: NodeId) -> Result<Option<Session>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT node_id, epoch, gateway_id, boot_id, journal_id, version, described, commands, connected_at, disconnected_at, last_seen
           FROM sessions
           WHERE node_id = $1"#,
        id.as_uuid(),
    );
    rows::find(db.pool(), statement).await
}

/// Judges silence for the whole fleet in one statement, as [`Connectivity::judge`] does for one node, and answers those
/// that changed. A node that is silent for too long also must not be scheduled on; one that an open session hears again
/// comes back. Nothing is written when nothing changes. `graces` are per pool, `default` is for the others.
///
/// # Errors
/// When the statement fails.
pub async fn judge(
    txn: &mut Txn,
    graces: &BTreeMap<String, Duration>,
    default: Duration,
) -> Result<Vec<(NodeId, Connectivity)>, DbError> {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::from(i32::MAX)) as f64;
    let pools: Vec<String> = graces.keys().cloned().collect();
    let lengths: Vec<f64> = graces.values().map(|grace| seconds(*grace)).collect();
    let rows = sqlx::query!(
        r#"WITH facts AS (
               SELECT n.id, n.connectivity, n.connectivity_since, s.last_seen,
                      s.node_id IS NOT NULL AND s.disconnected_at IS NULL AS open,
                      EXTRACT(EPOCH FROM compute_now())::float8
                          - EXTRACT(EPOCH FROM COALESCE(s.last_seen, n.connectivity_since))::float8 AS silent,
                      COALESCE(g.grace, $3) AS grace
               FROM nodes n
               LEFT JOIN sessions s ON s.node_id = n.id
               LEFT JOIN UNNEST($1::text[], $2::float8[]) AS g (pool, grace) ON g.pool = n.pool
               WHERE n.provision_state <> 'retired'
           ), judged AS (
               SELECT *,
                      CASE WHEN open AND silent < $4 THEN 'connected'
                           WHEN connectivity = 'lost' OR silent >= $4 + grace THEN 'lost'
                           WHEN connectivity = 'unreachable' OR silent >= $4 THEN 'unreachable'
                           ELSE connectivity END AS verdict
               FROM facts
           ), moving AS (
               SELECT n.id, j.verdict
               FROM judged j
               JOIN nodes n ON n.id = j.id
               WHERE j.verdict <> j.connectivity AND n.connectivity = j.connectivity
               ORDER BY n.id
               FOR NO KEY UPDATE OF n
           )
           UPDATE nodes n
           SET connectivity = m.verdict,
               connectivity_since = compute_now(),
               no_schedule_reasons = CASE
                   WHEN m.verdict IN ('unreachable', 'lost') AND NOT 'unreachable' = ANY (n.no_schedule_reasons)
                       THEN array_append(n.no_schedule_reasons, 'unreachable')
                   WHEN m.verdict = 'connected' THEN array_remove(n.no_schedule_reasons, 'unreachable')
                   ELSE n.no_schedule_reasons END
           FROM moving m
           WHERE n.id = m.id
           RETURNING n.id, n.connectivity"#,
        &pools,
        &lengths,
        seconds(default),
        seconds(UNREACHABLE_AFTER),
    )
    .fetch_all(txn.conn())
    .await?;
    rows.into_iter()
        .map(|row| Ok((NodeId::from_uuid(row.id), convert::word("connectivity", &row.connectivity)?)))
        .collect()
}

/// How many nodes are in each state of connectivity, retired ones left out.
///
/// # Errors
/// When the statement fails.
pub async fn count_by_connectivity(db: &Db) -> Result<BTreeMap<Connectivity, u64>, DbError> {
    let rows = sqlx::query!(r#"SELECT connectivity, count(*) AS "count!" FROM nodes WHERE provision_state <> 'retired' GROUP BY connectivity"#)
        .fetch_all(db.pool())
        .await?;
    // A machine that has another word is told of where its row is read.
    let counts = rows
        .into_iter()
        .filter_map(|row| Some((row.connectivity.parse().ok()?, u64::try_from(row.count).unwrap_or(0))));
    Ok(counts.collect())
}

fn columns(sessions: &[(NodeId, Epoch)]) -> (Vec<uuid::Uuid>, Vec<i64>) {
    sessions.iter().map(|(id, epoch)| (id.as_uuid(), epoch.to_i64())).unzip()
}

#[derive(sqlx::FromRow)]
struct Row {
    node_id: uuid::Uuid,
    epoch: i64,
    gateway_id: uuid::Uuid,
    boot_id: uuid::Uuid,
    journal_id: uuid::Uuid,
    version: String,
    described: bool,
    commands: bool,
    connected_at: jiff_sqlx::Timestamp,
    disconnected_at: Option<jiff_sqlx::Timestamp>,
    last_seen: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Session;
    const TABLE: &'static str = "sessions";
    const KEY: &'static [&'static str] = &["node_id"];

    fn read(self) -> Result<Session, DbError> {
        Ok(Session {
            node_id: NodeId::from_uuid(self.node_id),
            epoch: Epoch::from_i64(self.epoch),
            gateway_id: GatewayId::from_uuid(self.gateway_id),
            boot_id: BootId::from_uuid(self.boot_id),
            journal_id: JournalId::from_uuid(self.journal_id),
            version: self.version,
            described: self.described,
            commands: self.commands,
            connected_at: self.connected_at.to_jiff(),
            disconnected_at: convert::time(self.disconnected_at),
            last_seen: self.last_seen.to_jiff(),
        })
    }
}
