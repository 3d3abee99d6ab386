//! The machines of batches: reading them, and writing down how far they are.

use schema::id::{BatchId, CommandId, NodeId};

use super::{Leaf, LeafState, time};
use crate::{DbError, Txn, convert, queue};

/// The machines of a batch, in their order, each with what is known of it now.
///
/// # Errors
/// When the statement fails.
pub async fn leaves(txn: &mut Txn, batch: BatchId) -> Result<Vec<Leaf>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT l.index, l.node_id, l.node, l.leaf, l.payload, l.state, l.reason, l.command_id, l.attempt, l.began_at, l.ended_at,
                  n.name AS "name?", n.pool, n.site, n.labels AS "labels?", n.identity_generation AS "identity?", n.hardware_key,
                  b.journal_id AS "journal?", n.applied_generation AS "applied?", n.connectivity AS "connectivity?",
                  n.cordoned AS "cordoned?", n.provision_state AS "provision?",
                  COALESCE(n.conditions @> '[{"type": "RebootRequired", "status": "true"}]', false) AS "staged!",
                  c.state AS "command_state?", c.reason AS "command_reason?"
           FROM batch_leaves l
           LEFT JOIN nodes n ON n.id = l.node_id AND n.provision_state <> 'retired'
           LEFT JOIN node_boots b ON b.node_id = n.id
           LEFT JOIN commands c ON c.id = l.command_id
           WHERE l.batch_id = $1
           ORDER BY l.index"#,
        batch.as_uuid()
    )
    .fetch_all(txn.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let machine = match (
                row.name,
                row.labels,
                row.identity,
                row.applied,
                row.connectivity,
                row.cordoned,
                row.provision,
            ) {
                (
                    Some(name),
                    Some(labels),
                    Some(identity),
                    Some(applied),
                    Some(connectivity),
                    Some(cordoned),
                    Some(provision),
                ) => Some(super::machine(
                    row.node_id,
                    &name,
                    row.pool,
                    row.site,
                    labels,
                    identity,
                    row.hardware_key,
                    row.journal,
                    applied,
                    &connectivity,
                    cordoned,
                    row.staged,
                    &provision,
                )?),
                _ => None,
            };
            Ok(Leaf {
                index: convert::count(row.index),
                node_id: NodeId::from_uuid(row.node_id),
                node: convert::word("node name", &row.node)?,
                leaf: row.leaf,
                payload: row.payload,
                state: convert::word("state of a machine in a batch", &row.state)?,
                reason: row.reason,
                command: row.command_id.map(CommandId::from_uuid),
                attempt: convert::count(row.attempt),
                began_at: row.began_at.map(time),
                ended_at: row.ended_at.map(time),
                machine,
                command_state: row.command_state.map(|state| (state, row.command_reason)),
            })
        })
        .collect()
}

/// Writes down where a machine of a batch is. With a command its attempts are counted.
///
/// # Errors
/// When the statement fails.
pub async fn set_leaf(
    txn: &mut Txn,
    batch: BatchId,
    index: u32,
    state: LeafState,
    reason: Option<&str>,
    command: Option<CommandId>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE batch_leaves
           SET state = $3, reason = $4,
               attempt = attempt + (COALESCE($5 <> command_id, $5 IS NOT NULL))::int,
               command_id = COALESCE($5, command_id),
               began_at = CASE WHEN $3 = 'sent' THEN COALESCE(began_at, compute_now()) ELSE began_at END,
               ended_at = CASE WHEN $3 IN ('succeeded', 'failed', 'left') THEN compute_now() END
           WHERE batch_id = $1 AND index = $2"#,
        batch.as_uuid(),
        convert::int(index),
        state.as_str(),
        reason,
        command.map(CommandId::as_uuid),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The batch and the place of a command in it.
///
/// # Errors
/// When the statement fails.
pub async fn leaf_of_command(txn: &mut Txn, command: CommandId) -> Result<Option<(BatchId, u32)>, DbError> {
    let row = sqlx::query!("SELECT batch_id, index FROM batch_leaves WHERE command_id = $1", command.as_uuid())
        .fetch_optional(txn.conn())
        .await?;
    Ok(row.map(|row| (BatchId::from_uuid(row.batch_id), convert::count(row.index))))
}

/// Wakes the batches of commands that ended.
///
/// # Errors
/// When a statement fails.
pub async fn wake_of_commands(txn: &mut Txn, commands: &[uuid::Uuid]) -> Result<(), DbError> {
    if commands.is_empty() {
        return Ok(());
    }
    let names = sqlx::query_scalar!(
        r#"SELECT DISTINCT b.name FROM batch_leaves l JOIN batches b ON b.id = l.batch_id WHERE l.command_id = ANY ($1)"#,
        commands
    )
    .fetch_all(txn.conn())
    .await?;
    queue::enqueue(txn, &queue::BATCH, names).await
}
