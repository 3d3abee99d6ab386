//! The machines of batches: reading them, and writing down how far they are.

use std::collections::BTreeMap;

use schema::id::{BatchId, CommandId, NodeId};

use super::{Leaf, LeafState, machines::Row, time};
use crate::{Db, DbError, Txn, convert, queue};

/// The machines of a batch, in their order, each with what is known of it now.
///
/// # Errors
/// When the statement fails.
pub async fn leaves(txn: &mut Txn, batch: BatchId) -> Result<Vec<Leaf>, DbError> {
    some_leaves(txn, batch, None, None).await
}

/// Some of them: those behind a place, so many at most.
///
/// # Errors
/// When the statement fails.
pub async fn some_leaves(
    txn: &mut Txn,
    batch: BatchId,
    after: Option<u32>,
    limit: Option<u32>,
) -> Result<Vec<Leaf>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT l.index, l.node_id, l.node, l.leaf, l.payload, l.state, l.reason, l.command_id, l.attempt, l.began_at, l.ended_at,
                  n.name AS "name?", n.pool, n.site, n.labels AS "labels?", n.identity_generation AS "identity?", n.hardware_key,
                  b.journal_id AS "journal?", b.boot_id AS "boot?", n.applied_generation AS "applied?", n.connectivity AS "connectivity?",
                  n.cordoned AS "cordoned?", n.provision_state AS "provision?",
                  COALESCE(n.conditions @> '[{"type": "RebootRequired", "status": "true"}]', false) AS "staged!",
                  c.state AS "command_state?", c.reason AS "command_reason?", c.dispatched_at IS NOT NULL AS "handed_over!"
           FROM batch_leaves l
           LEFT JOIN nodes n ON n.id = l.node_id AND n.provision_state <> 'retired'
           LEFT JOIN node_boots b ON b.node_id = n.id
           LEFT JOIN commands c ON c.id = l.command_id
           WHERE l.batch_id = $1 AND l.index > $2
           ORDER BY l.index
           LIMIT $3"#,
        batch.as_uuid(),
        after.map_or(-1, convert::int),
        limit.map(i64::from),
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
                ) => {
                    let columns = Row {
                        id: row.node_id,
                        name,
                        pool: row.pool,
                        site: row.site,
                        labels,
                        identity_generation: identity,
                        hardware_key: row.hardware_key,
                        journal_id: row.journal,
                        boot_id: row.boot,
                        applied_generation: applied,
                        connectivity,
                        cordoned,
                        staged: row.staged,
                        provision_state: provision,
                    };
                    Some(columns.read()?)
                }
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
                handed_over: row.handed_over,
            })
        })
        .collect()
}

/// How many machines of a batch are in each state.
///
/// # Errors
/// When the statement fails.
pub async fn count_leaves(db: &Db, batch: BatchId) -> Result<BTreeMap<LeafState, usize>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT state, count(*) AS "count!" FROM batch_leaves WHERE batch_id = $1 GROUP BY state"#,
        batch.as_uuid()
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            let state = convert::word("state of a machine in a batch", &row.state)?;
            Ok((state, usize::try_from(row.count).unwrap_or(usize::MAX)))
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
