//! Sessions: who holds a node's stream, under which epoch, and when the node was last heard.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, CommandId, GatewayId, JournalId, NodeId},
    inventory::InventorySection,
    node::{Connectivity, connectivity::UNREACHABLE_AFTER},
    time::{Duration, Timestamp},
};

use crate::{Db, DbError, Txn, convert};

/// What a gateway knows when a session opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpen {
    /// The node, as its certificate says.
    pub node_id: NodeId,
    /// The gateway.
    pub gateway_id: GatewayId,
    /// The boot, as Hello says.
    pub boot_id: BootId,
    /// The journal, as Hello says.
    pub journal_id: JournalId,
    /// The serial number of the certificate, big endian.
    pub serial: Vec<u8>,
    /// The daemon's version.
    pub version: String,
    /// The machine is described by a file.
    pub described: bool,
    /// The daemon runs commands.
    pub commands: bool,
}

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The epoch that every write of this session names.
    pub epoch: Epoch,
    /// The node's generation; when Hello is behind, the spec is sent.
    pub generation: Generation,
    /// The identity of the certificate.
    pub identity_generation: IdentityGeneration,
    /// The kinds of commands that the certificate's identity accepts; `None` for every kind.
    pub allowed_kinds: Option<Vec<String>>,
    /// Digests of the stored inventory.
    pub inventory: BTreeMap<InventorySection, Digest>,
    /// Another gateway had an open session of this node.
    pub taken_over: bool,
}

/// Why a session was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such node.
    #[error("there is no node {0}")]
    Unknown(NodeId),
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// There is no record of the certificate.
    #[error("the certificate is not on record")]
    Uncertified,
    /// The certificate was revoked.
    #[error("the certificate is revoked")]
    CertificateRevoked,
    /// The certificate belongs to an identity that was replaced.
    #[error("the node's identity was replaced: the certificate is of generation {presented}, the node is at {current}")]
    Replaced {
        /// Of the certificate.
        presented: IdentityGeneration,
        /// Of the node.
        current: IdentityGeneration,
    },
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Opens a session in one statement: the certificate is judged, the epoch rises, the node is connected, and a session that
/// was open elsewhere writes nothing more. What the session before had in flight is for [`crate::commands::resume`], in the
/// same transaction.
///
/// # Errors
/// [`OpenError`] says why the node may not have one.
pub async fn open(txn: &mut Txn, session: &SessionOpen) -> Result<Opened, OpenError> {
    let row = sqlx::query!(
        r#"WITH node AS MATERIALIZED (
               SELECT id, identity_generation, provision_state, generation
               FROM nodes
               WHERE id = $1
               FOR NO KEY UPDATE
           ), judged AS MATERIALIZED (
               SELECT n.id, n.generation, n.identity_generation AS current, c.identity_generation AS presented, c.allowed_kinds,
                      p.gateway_id <> $3 AND p.disconnected_at IS NULL AS taken_over,
                      CASE WHEN n.provision_state = 'retired' THEN 'retired'
                           WHEN c.serial IS NULL THEN 'uncertified'
                           WHEN c.identity_generation <> n.identity_generation THEN 'replaced'
                           WHEN c.revoked_at IS NOT NULL THEN 'revoked'
                           ELSE 'open' END AS verdict
               FROM node n
               LEFT JOIN node_certs c ON c.serial = $2 AND c.node_id = n.id
               LEFT JOIN sessions p ON p.node_id = n.id
           ), opened AS (
               INSERT INTO sessions AS s (node_id, epoch, gateway_id, boot_id, journal_id, identity_generation, version, described, commands)
               SELECT id, 1, $3, $4, $5, current, $6, $7, $8
               FROM judged
               WHERE verdict = 'open'
               ON CONFLICT (node_id) DO UPDATE
               SET epoch = s.epoch + 1,
                   gateway_id = EXCLUDED.gateway_id,
                   boot_id = EXCLUDED.boot_id,
                   journal_id = EXCLUDED.journal_id,
                   identity_generation = EXCLUDED.identity_generation,
                   version = EXCLUDED.version,
                   described = EXCLUDED.described,
                   commands = EXCLUDED.commands,
                   connected_at = compute_now(),
                   disconnected_at = NULL,
                   last_seen = compute_now()
               RETURNING node_id, epoch
           ), connected AS (
               UPDATE nodes n
               SET connectivity = 'connected',
                   connectivity_since = compute_now(),
                   no_schedule_reasons = array_remove(no_schedule_reasons, 'unreachable')
               FROM opened o
               WHERE n.id = o.node_id AND n.connectivity <> 'connected'
           )
           SELECT j.verdict AS "verdict!", j.generation AS "generation!", j.current AS "current!", j.presented AS "presented?", j.allowed_kinds, j.taken_over,
                  o.epoch AS "epoch?",
                  ARRAY(SELECT i.section FROM node_inventory i WHERE i.node_id = $1 ORDER BY i.section) AS "sections!",
                  ARRAY(SELECT i.digest FROM node_inventory i WHERE i.node_id = $1 ORDER BY i.section) AS "digests!"
           FROM judged j
           LEFT JOIN opened o ON true"#,
        session.node_id.as_uuid(),
        session.serial,
        session.gateway_id.as_uuid(),
        session.boot_id.as_uuid(),
        session.journal_id.as_uuid(),
        session.version,
        session.described,
        session.commands,
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?
    .ok_or(OpenError::Unknown(session.node_id))?;
    let current = IdentityGeneration::from_i64(row.current);
    let epoch = match (row.verdict.as_str(), row.epoch) {
        ("open", Some(epoch)) => Epoch::from_i64(epoch),
        ("retired", _) => return Err(OpenError::Retired),
        ("revoked", _) => return Err(OpenError::CertificateRevoked),
        ("replaced", _) => {
            let presented = row.presented.map_or(IdentityGeneration::NONE, IdentityGeneration::from_i64);
            return Err(OpenError::Replaced { presented, current });
        }
        _ => return Err(OpenError::Uncertified),
    };
    let inventory = row
        .sections
        .iter()
        .zip(&row.digests)
        .map(|(section, digest)| Ok((convert::word("inventory section", section)?, convert::digest(digest)?)));
    Ok(Opened {
        epoch,
        generation: Generation::from_i64(row.generation),
        identity_generation: current,
        allowed_kinds: row.allowed_kinds,
        inventory: inventory.collect::<Result<_, DbError>>()?,
        taken_over: row.taken_over.unwrap_or(false),
    })
}

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

/// Notes that nodes were heard, in one statement, and answers those whose session is still this one. The others were
/// taken over.
///
/// # Errors
/// When the statement fails.
pub async fn beat(db: &Db, sessions: &[(NodeId, Epoch)]) -> Result<Vec<NodeId>, DbError> {
    let (ids, epochs) = columns(sessions);
    // Almost all are heard, so the others are what travels.
    let others = sqlx::query_scalar!(
        r#"WITH b AS MATERIALIZED (
               SELECT * FROM UNNEST($1::uuid[], $2::bigint[]) AS b (node_id, epoch)
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
    let others: BTreeSet<NodeId> = others.into_iter().map(NodeId::from_uuid).collect();
    Ok(sessions.iter().map(|(node, _)| *node).filter(|node| !others.contains(node)).collect())
}

/// What a gateway compares an open session with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The node.
    pub node_id: NodeId,
    /// The epoch of the node's present session.
    pub epoch: Epoch,
    /// The node's generation.
    pub generation: Generation,
    /// When its spec was last signed.
    pub spec_signed_at: Option<Timestamp>,
    /// The node's identity generation.
    pub identity_generation: IdentityGeneration,
    /// The session's certificate was revoked, or is of an identity that was replaced.
    pub revoked: bool,
    /// Inventory sections to ask for.
    pub inventory_wanted: Vec<InventorySection>,
    /// Commands wait to be claimed.
    pub commands_waiting: bool,
    /// Commands in flight that somebody wants to be cancelled.
    pub cancels: Vec<CommandId>,
}

/// The facts of many sessions in one statement, by node and the serial of the session's certificate. A node that is
/// missing in the answer is gone.
///
/// # Errors
/// When the statement fails.
pub async fn check(db: &Db, sessions: &[(NodeId, Vec<u8>)]) -> Result<Vec<SessionFacts>, DbError> {
    let ids: Vec<uuid::Uuid> = sessions.iter().map(|(id, _)| id.as_uuid()).collect();
    let serials: Vec<Vec<u8>> = sessions.iter().map(|(_, serial)| serial.clone()).collect();
    let rows = sqlx::query!(
        r#"SELECT n.id, s.epoch, n.generation, n.spec_signed_at, n.identity_generation, n.inventory_wanted,
                  (c.serial IS NULL OR c.revoked_at IS NOT NULL OR c.identity_generation <> n.identity_generation
                   OR n.provision_state = 'retired') AS "revoked!",
                  EXISTS (SELECT FROM commands p
                          WHERE p.node_id = n.id AND p.state = 'pending' AND p.signature IS NOT NULL
                            AND p.not_before <= compute_now() AND p.not_after > compute_now()
                            AND p.cancel_requested_at IS NULL) AS "commands_waiting!",
                  ARRAY(SELECT f.id FROM commands f
                        WHERE f.node_id = n.id AND f.state IN ('dispatched', 'acked', 'running')
                          AND f.cancel_requested_at IS NOT NULL
                        ORDER BY f.seq) AS "cancels!"
           FROM UNNEST($1::uuid[], $2::bytea[]) AS w (node_id, serial)
           JOIN nodes n ON n.id = w.node_id
           JOIN sessions s ON s.node_id = n.id
           LEFT JOIN node_certs c ON c.serial = w.serial AND c.node_id = n.id"#,
        &ids,
        &serials,
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(SessionFacts {
                node_id: NodeId::from_uuid(row.id),
                epoch: Epoch::from_i64(row.epoch),
                generation: Generation::from_i64(row.generation),
                spec_signed_at: convert::time(row.spec_signed_at),
                identity_generation: IdentityGeneration::from_i64(row.identity_generation),
                revoked: row.revoked,
                inventory_wanted: row
                    .inventory_wanted
                    .iter()
                    .map(|text| convert::word("inventory section", text))
                    .collect::<Result<_, _>>()?,
                commands_waiting: row.commands_waiting,
                cancels: row.cancels.into_iter().map(CommandId::from_uuid).collect(),
            })
        })
        .collect()
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
    let row = sqlx::query!(
        r#"SELECT node_id, epoch, gateway_id, boot_id, journal_id, version, described, commands, connected_at, disconnected_at, last_seen
           FROM sessions
           WHERE node_id = $1"#,
        id.as_uuid(),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| Session {
        node_id: NodeId::from_uuid(row.node_id),
        epoch: Epoch::from_i64(row.epoch),
        gateway_id: GatewayId::from_uuid(row.gateway_id),
        boot_id: BootId::from_uuid(row.boot_id),
        journal_id: JournalId::from_uuid(row.journal_id),
        version: row.version,
        described: row.described,
        commands: row.commands,
        connected_at: row.connected_at.to_jiff(),
        disconnected_at: convert::time(row.disconnected_at),
        last_seen: row.last_seen.to_jiff(),
    }))
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
                      EXTRACT(EPOCH FROM compute_now() - COALESCE(s.last_seen, n.connectivity_since))::float8 AS silent,
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
    rows.into_iter()
        .map(|row| Ok((convert::word("connectivity", &row.connectivity)?, u64::try_from(row.count).unwrap_or(0))))
        .collect()
}

fn columns(sessions: &[(NodeId, Epoch)]) -> (Vec<uuid::Uuid>, Vec<i64>) {
    sessions.iter().map(|(id, epoch)| (id.as_uuid(), epoch.to_i64())).unzip()
}
