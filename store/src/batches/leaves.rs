//! The machines of batches: reading them, and writing down how far they are.

use std::collections::BTreeMap;

use schema::id::{BatchId, CommandId, NodeId};

use super::{Leaf, LeafState, machines, time};
use sqlx::{Row as _, postgres::PgRow};

use crate::{
    Db, DbError, Page, Txn, convert, page, queue,
    rows::{self, Stored},
};

// The machines of a batch behind a place, so many at most.
macro_rules! select {
    ($batch:expr, $after:expr, $rows:expr) => {
        sqlx::query_as!(
            Row,
            r#"SELECT l.index, l.node_id, l.node, l.leaf, l.payload, l.state, l.reason, l.command_id, l.attempt, l.began_at, l.ended_at,
                      n.name AS "name?", n.pool, n.site, n.labels AS "labels?", n.identity_generation AS "identity?", n.hardware_key,
                      b.journal_id AS "journal?", b.boot_id AS "boot?", n.applied_generation AS "applied?", n.connectivity AS "connectivity?",
                      n.cordoned AS "cordoned?", n.provision_state AS "provision?", n.placement,
                      COALESCE(n.conditions @> '[{"type": "RebootRequired", "status": "true"}]', false) AS "staged!",
                      COALESCE(s.node_name <> n.name, false) AS "renamed!",
                      c.state AS "command_state?", c.reason AS "command_reason?", c.dispatched_at IS NOT NULL AS "handed_over!",
                      COALESCE(c.evidence IS NOT NULL AND c.started_at IS NULL AND c.result IS NULL, false) AS "unbegun!"
               FROM batch_leaves l
               LEFT JOIN nodes n ON n.id = l.node_id AND n.provision_state <> 'retired'
               LEFT JOIN node_boots b ON b.node_id = n.id
               LEFT JOIN sessions s ON s.node_id = n.id
               LEFT JOIN commands c ON c.id = l.command_id
               WHERE l.batch_id = $1 AND l.index > $2
               ORDER BY l.index
               LIMIT $3"#,
            $batch.as_uuid(),
            Option::<u32>::map_or($after, -1, convert::int),
            $rows as Option<i64>,
        )
    };
}

/// The machines of a batch, in their order, each with what is known of it now.
///
/// # Errors
/// When the statement fails, and when one of them cannot be read: people said yes to all of them.
pub async fn leaves(txn: &mut Txn, batch: BatchId) -> Result<Vec<Leaf>, DbError> {
    let mut leaves: Vec<Leaf> = rows::list(txn.conn(), select!(batch, None, None)).await?.whole()?;
    leaves.iter_mut().filter_map(|leaf| leaf.machine.as_mut()).for_each(|machine| machine.judge(txn));
    Ok(leaves)
}

/// A page of them: those behind a place.
///
/// # Errors
/// When the statement fails.
pub async fn some_leaves(txn: &mut Txn, batch: BatchId, after: Option<u32>, limit: u32) -> Result<Page<Leaf>, DbError> {
    let (limit, rows) = page::rows(limit);
    let place = |row: &PgRow| row.try_get::<i32, _>("index").map(|index| index.to_string());
    let mut page: Page<Leaf> = page::read(txn.conn(), select!(batch, after, Some(rows)), limit, place).await?;
    page.items.iter_mut().filter_map(|leaf| leaf.machine.as_mut()).for_each(|machine| machine.judge(txn));
    Ok(page)
}

#[derive(sqlx::FromRow)]
struct Row {
    index: i32,
    node_id: uuid::Uuid,
    node: String,
    leaf: Option<Vec<u8>>,
    payload: String,
    state: String,
    reason: Option<String>,
    command_id: Option<uuid::Uuid>,
    attempt: i32,
    began_at: Option<jiff_sqlx::Timestamp>,
    ended_at: Option<jiff_sqlx::Timestamp>,
    #[sqlx(rename = "name?")]
    name: Option<String>,
    pool: Option<String>,
    site: Option<String>,
    #[sqlx(rename = "labels?")]
    labels: Option<serde_json::Value>,
    #[sqlx(rename = "identity?")]
    identity: Option<i64>,
    hardware_key: Option<Vec<u8>>,
    #[sqlx(rename = "journal?")]
    journal: Option<uuid::Uuid>,
    #[sqlx(rename = "boot?")]
    boot: Option<uuid::Uuid>,
    #[sqlx(rename = "applied?")]
    applied: Option<i64>,
    #[sqlx(rename = "connectivity?")]
    connectivity: Option<String>,
    #[sqlx(rename = "cordoned?")]
    cordoned: Option<bool>,
    #[sqlx(rename = "provision?")]
    provision: Option<String>,
    placement: Option<Vec<u8>>,
    #[sqlx(rename = "staged!")]
    staged: bool,
    #[sqlx(rename = "renamed!")]
    renamed: bool,
    #[sqlx(rename = "command_state?")]
    command_state: Option<String>,
    #[sqlx(rename = "command_reason?")]
    command_reason: Option<String>,
    #[sqlx(rename = "handed_over!")]
    handed_over: bool,
    #[sqlx(rename = "unbegun!")]
    unbegun: bool,
}

impl Stored for Row {
    type Item = Leaf;
    const TABLE: &'static str = "batch_leaves";
    const KEY: &'static [&'static str] = &["node", "index"];

    fn read(self) -> Result<Leaf, DbError> {
        let machine = match (
            self.name,
            self.labels,
            self.identity,
            self.applied,
            self.connectivity,
            self.cordoned,
            self.provision,
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
                let columns = machines::Row {
                    id: self.node_id,
                    name,
                    pool: self.pool,
                    site: self.site,
                    labels,
                    identity_generation: identity,
                    hardware_key: self.hardware_key,
                    journal_id: self.journal,
                    boot_id: self.boot,
                    applied_generation: applied,
                    connectivity,
                    cordoned,
                    staged: self.staged,
                    renamed: self.renamed,
                    provision_state: provision,
                    placement: self.placement,
                };
                Some(columns.read()?)
            }
            _ => None,
        };
        Ok(Leaf {
            index: convert::count(self.index),
            node_id: NodeId::from_uuid(self.node_id),
            node: convert::word("node name", &self.node)?,
            leaf: self.leaf,
            payload: self.payload,
            state: convert::word("state of a machine in a batch", &self.state)?,
            reason: self.reason,
            command: self.command_id.map(CommandId::from_uuid),
            attempt: convert::count(self.attempt),
            began_at: self.began_at.map(time),
            ended_at: self.ended_at.map(time),
            machine,
            command_state: self.command_state.map(|state| (state, self.command_reason)),
            handed_over: self.handed_over,
            unbegun: self.unbegun,
        })
    }
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
