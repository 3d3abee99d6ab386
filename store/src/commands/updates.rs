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
const AT_ONCE: i64 = 50;
/// Of a node of which so many wait no more are stored until they were read.
const MOST: i64 = 200;

/// Stores last words whose session is the node's latest one, closed or not, and wakes the `command` reconciler. A repeated one is
/// kept once.
///
/// # Errors
/// When a statement fails.
pub async fn store_updates(db: &Db, updates: &[RawUpdate]) -> Result<(), DbError> {
    if updates.is_empty() {
        return Ok(());
    }
    let ids: Vec<uuid::Uuid> = updates.iter().map(|update| update.node.as_uuid()).collect();
    let epochs: Vec<i64> = updates.iter().map(|update| update.epoch.to_i64()).collect();
    let commands: Vec<uuid::Uuid> = updates.iter().map(|update| update.id.as_uuid()).collect();
    let payloads: Vec<Vec<u8>> = updates.iter().map(|update| update.payload.clone()).collect();
    let signatures: Vec<Vec<u8>> = updates.iter().map(|update| update.signature.clone()).collect();
    let mut txn = db.begin().await?;
    let stored = sqlx::query_scalar!(
        r#"WITH said AS MATERIALIZED (
               SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::uuid[], $4::bytea[], $5::bytea[])
                    AS u (node_id, epoch, command_id, payload, signature)
           ), session AS MATERIALIZED (
               SELECT s.node_id, s.epoch
               FROM sessions s
               WHERE (s.node_id, s.epoch) IN (SELECT node_id, epoch FROM said)
               ORDER BY s.node_id
               FOR SHARE OF s
           )
           INSERT INTO command_updates (node_id, epoch, command_id, payload, signature)
           SELECT u.node_id, u.epoch, u.command_id, u.payload, u.signature
           FROM said u
           JOIN session s ON s.node_id = u.node_id AND s.epoch = u.epoch
           WHERE (SELECT count(*) FROM command_updates w WHERE w.node_id = u.node_id) < $6
           ON CONFLICT (node_id, command_id, epoch) DO NOTHING
           RETURNING node_id"#,
        &ids,
        &epochs,
        &commands,
        &payloads,
        &signatures,
        MOST,
    )
    .fetch_all(txn.conn())
    .await?;
    let nodes: BTreeSet<NodeId> = stored.into_iter().map(NodeId::from_uuid).collect();
    queue::enqueue(&mut txn, &queue::COMMAND, nodes).await?;
    txn.commit().await
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
        AT_ONCE,
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
