//! What a gateway compares its open sessions with: the facts of some, and whose facts changed.

use jiff_sqlx::ToSqlx;
use schema::{
    generation::{Epoch, Generation, IdentityGeneration},
    id::{CommandId, NodeId},
    inventory::InventorySection,
    time::Timestamp,
};

use crate::{Db, DbError, convert};

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
    /// Nobody has the node's identity: it was revoked, and no machine came in for it since.
    pub vacant: bool,
    /// The machine goes by another name than the node has.
    pub renamed: bool,
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
        r#"SELECT n.id, s.epoch, n.generation,
                  CASE WHEN n.spec_signed_at BETWEEN '0001-01-01 00:00Z' AND '9999-12-30 00:00Z' THEN n.spec_signed_at END AS spec_signed_at,
                  n.identity_generation, n.inventory_wanted,
                  (c.serial IS NULL OR c.revoked_at IS NOT NULL OR c.identity_generation <> n.identity_generation
                   OR n.provision_state = 'retired') AS "revoked!",
                  (c.revoked_at IS NOT NULL AND NOT EXISTS (SELECT FROM node_certs l
                                                            WHERE l.node_id = n.id AND l.identity_generation = n.identity_generation
                                                            OFFSET 0)) AS "vacant!",
                  COALESCE(c.node_name <> n.name, false) AS "renamed!",
                  EXISTS (SELECT FROM commands p
                          WHERE p.node_id = n.id AND p.state = 'pending' AND p.signature IS NOT NULL
                            AND p.not_before <= compute_now() AND p.not_after > compute_now()
                            AND p.cancel_requested_at IS NULL
                          OFFSET 0) AS "commands_waiting!",
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
                vacant: row.vacant,
                renamed: row.renamed,
                inventory_wanted: row.inventory_wanted.iter().filter_map(|text| text.parse().ok()).collect(),
                commands_waiting: row.commands_waiting,
                cancels: row.cancels.into_iter().map(CommandId::from_uuid).collect(),
            })
        })
        .collect()
}

/// Whose facts may be others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// When this was asked: what to ask since the next time.
    pub at: Timestamp,
    /// Nodes of the whole fleet.
    pub nodes: Vec<NodeId>,
}

/// A change is news for this long after it was asked for, because its transaction may commit later than its time says.
const LATE_COMMIT: f64 = 10_000.0;

/// The nodes that have work for their session, a newer spec, or an identity that ended, `since` then; `None`: ever. Its cost
/// is that of what changed, and not of how many nodes there are. What it does not see is that a node is gone.
///
/// # Errors
/// When the statement fails.
pub async fn news(db: &Db, since: Option<Timestamp>) -> Result<News, DbError> {
    let since = since.unwrap_or(Timestamp::UNIX_EPOCH);
    // With an end on both sides the planner takes it for a few rows, which it is.
    let row = sqlx::query!(
        r#"SELECT compute_now() AS "at!",
                  ARRAY(SELECT node_id FROM commands
                        WHERE state = 'pending' AND signature IS NOT NULL AND cancel_requested_at IS NULL
                          AND not_before <= compute_now() AND not_after > compute_now()
                        UNION
                        SELECT node_id FROM commands
                        WHERE state IN ('dispatched', 'acked', 'running') AND cancel_requested_at IS NOT NULL
                        UNION
                        SELECT id FROM nodes WHERE inventory_wanted <> '{}'
                        UNION
                        SELECT id FROM nodes
                        WHERE spec_signed_at > $1::timestamptz - $2 * interval '1 millisecond' AND spec_signed_at < 'infinity'
                        UNION
                        SELECT node_id FROM node_certs
                        WHERE revoked_at > $1::timestamptz - $2 * interval '1 millisecond' AND revoked_at < 'infinity') AS "nodes!""#,
        since.to_sqlx() as _,
        LATE_COMMIT,
    )
    .fetch_one(db.pool())
    .await?;
    Ok(News { at: row.at.to_jiff(), nodes: row.nodes.into_iter().map(NodeId::from_uuid).collect() })
}
