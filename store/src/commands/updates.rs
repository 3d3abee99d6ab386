//! The last words of nodes as gateways received them. A gateway puts them down unread; only the `command` reconciler, which
//! checks the node's signature, acts on them.

use std::collections::BTreeSet;

use schema::{
    generation::Epoch,
    id::{CommandId, NodeId},
    time::Timestamp,
};

use crate::{Db, DbError, Txn, queue};

/// A last word as a gateway received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawUpdate {
    /// The node whose session it came through.
    pub node: NodeId,
    /// The session's epoch.
    pub epoch: Epoch,
    /// The command that it is said to be about.
    pub id: CommandId,
    /// The exact bytes that the node signed.
    pub payload: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// A last word that waits to be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredUpdate {
    /// Its row; pass it to [`remove_updates`].
    pub row: i64,
    /// What came.
    pub update: RawUpdate,
    /// When.
    pub received_at: Timestamp,
}

/// So many of one node are read at a time.
pub const UPDATES_AT_ONCE: usize = 50;
/// Of a node of which so many wait no more are stored until they were read.
const MOST: i64 = 200;
/// A node of which so many wait is given nothing new: what it has in flight and on the way still fits.
pub(super) const MANY: i64 = 100;

/// Stores last words whose session is the node's latest one, closed or not, and wakes the `command` reconciler. A repeated one is
/// kept once. Answers the nodes of which too many wait already: nothing of theirs was stored.
///
/// # Errors
/// When a statement fails.
pub async fn store_updates(db: &Db, updates: &[RawUpdate]) -> Result<Vec<NodeId>, DbError> {
    if updates.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<uuid::Uuid> = updates.iter().map(|update| update.node.as_uuid()).collect();
    let epochs: Vec<i64> = updates.iter().map(|update| update.epoch.to_i64()).collect();
    let commands: Vec<uuid::Uuid> = updates.iter().map(|update| update.id.as_uuid()).collect();
    let payloads: Vec<Vec<u8>> = updates.iter().map(|update| update.payload.clone()).collect();
    let signatures: Vec<Vec<u8>> = updates.iter().map(|update| update.signature.clone()).collect();
    let mut txn = db.begin().await?;
    let rows = sqlx::query!(
        r#"WITH said AS MATERIALIZED (
               SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::bytea[])
                    AS u (node_id, epoch, command_id, payload, signature)
           ), session AS MATERIALIZED (
               SELECT s.node_id, s.epoch
               FROM sessions s
               WHERE (s.node_id, s.epoch) IN (SELECT node_id, epoch FROM said)
               ORDER BY s.node_id
               FOR SHARE OF s
           ), room AS MATERIALIZED (
               SELECT s.node_id, s.epoch, (SELECT count(*) FROM command_updates w WHERE w.node_id = s.node_id) < $6 AS is_left
               FROM session s
           ), stored AS (
               INSERT INTO command_updates (node_id, epoch, command_id, payload, signature)
               SELECT u.node_id, u.epoch, u.command_id, u.payload, u.signature
               FROM said u
               JOIN room r ON r.node_id = u.node_id AND r.epoch = u.epoch AND r.is_left
               ON CONFLICT (node_id, command_id, epoch) DO NOTHING
               RETURNING node_id
           )
           SELECT node_id AS "node_id!", true AS "is_stored!" FROM stored
           UNION ALL
           SELECT node_id, false FROM room WHERE NOT is_left"#,
        &ids,
        &epochs,
        &commands,
        &payloads,
        &signatures,
        MOST,
    )
    .fetch_all(txn.conn())
    .await?;
    let (stored, full): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_stored);
    let nodes: BTreeSet<NodeId> = stored.into_iter().map(|row| NodeId::from_uuid(row.node_id)).collect();
    queue::enqueue(&mut txn, &queue::COMMAND, nodes).await?;
    txn.commit().await?;
    Ok(full.into_iter().map(|row| NodeId::from_uuid(row.node_id)).collect())
}

/// The oldest last words of one node that wait.
///
/// # Errors
/// When the statement fails.
pub async fn updates(db: &Db, node: NodeId) -> Result<Vec<StoredUpdate>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, epoch, command_id, payload, signature, received_at
           FROM command_updates
           WHERE node_id = $1
           ORDER BY id
           LIMIT $2"#,
        node.as_uuid(),
        i64::try_from(UPDATES_AT_ONCE).unwrap_or(i64::MAX),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| StoredUpdate {
            row: row.id,
            update: RawUpdate {
                node,
                epoch: Epoch::from_i64(row.epoch),
                id: CommandId::from_uuid(row.command_id),
                payload: row.payload,
                signature: row.signature,
            },
            received_at: row.received_at.to_jiff(),
        })
        .collect())
}

/// Removes last words that were acted on or do not count.
///
/// # Errors
/// When the statement fails.
pub async fn remove_updates(txn: &mut Txn, rows: &[i64]) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM command_updates WHERE id = ANY ($1)", rows).execute(txn.conn()).await?;
    Ok(())
}
