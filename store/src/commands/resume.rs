//! What a reconnect means for what is in flight.
//!
//! A gateway replays what may run again. What the reconnect proves (a new boot of a command that ends the daemon, a new
//! journal where running twice would do harm) it leaves alone: that is settled by the `command` reconciler, once the node has
//! named its boot and its journal in a status report of its own signature. A gateway's word ends no command.

use jiff_sqlx::ToSqlx;
use schema::{
    command::{CommandState, KindRow},
    generation::Epoch,
    id::{BootId, CommandId, JournalId, NodeId},
    time::Timestamp,
};

use super::dispatch::{Dispatch, DispatchRow};
use crate::{Db, DbError, Txn, convert, queue};

/// What becomes of a command in flight when its node is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// It is sent once more: the journal answers with its result, attaches to it, or runs it.
    Replay,
    /// It ended the daemon, and the machine is back with a new boot: it succeeded.
    Rebooted,
    /// The journal that knew of it is gone, and running it twice would do harm: it failed.
    JournalLost,
}

/// What becomes of a command of this kind (`None`: unknown here, so nothing is known to be safe); `None` when it is not in
/// flight, and then a reconnect means nothing to it. A journal that is still there and has acknowledged the command knows
/// best, even after a boot; one that never did might run it on the wrong boot.
#[must_use]
pub fn on_reconnect(state: CommandState, kind: Option<&KindRow>, new_boot: bool, new_journal: bool) -> Option<Resume> {
    if !state.is_in_flight() {
        return None;
    }
    let is_known = !new_journal && state != CommandState::Dispatched;
    Some(if new_boot && !is_known && kind.is_some_and(|kind| kind.self_terminating) {
        Resume::Rebooted
    } else if new_journal && !kind.is_some_and(|kind| kind.retry_safe) {
        Resume::JournalLost
    } else {
        Resume::Replay
    })
}

fn row_of(kind: &str) -> Option<&'static KindRow> {
    super::kind(kind).ok().map(|kind| kind.row())
}

/// What a session that has just opened sends again, in the order of the numbers, under its own epoch from now on. For the
/// transaction of [`crate::sessions::open`].
///
/// # Errors
/// When a statement fails.
pub async fn resume(
    txn: &mut Txn,
    node: NodeId,
    epoch: Epoch,
    boot: BootId,
    journal: JournalId,
) -> Result<Vec<Dispatch>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, kind, state, boot_id, journal_id
           FROM commands
           WHERE node_id = $1 AND state IN ('dispatched', 'acked', 'running')
           ORDER BY id
           FOR NO KEY UPDATE"#,
        node.as_uuid(),
    )
    .fetch_all(txn.conn())
    .await?;
    let (mut again, mut proven) = (Vec::new(), false);
    for row in rows {
        let kind = row_of(&row.kind);
        let state = convert::word("command state", &row.state)?;
        let (new_boot, new_journal) = (row.boot_id != Some(boot.as_uuid()), row.journal_id != Some(journal.as_uuid()));
        match on_reconnect(state, kind, new_boot, new_journal) {
            Some(Resume::Replay) if kind.is_some() => again.push(row.id),
            // A kind that is unknown here is left to its deadline.
            Some(Resume::Replay) | None => {}
            Some(Resume::Rebooted | Resume::JournalLost) => proven = true,
        }
    }
    if proven {
        queue::enqueue(txn, &queue::COMMAND, [node]).await?;
    }
    if again.is_empty() {
        return Ok(Vec::new());
    }
    // What a lost journal acknowledged is acknowledged no more.
    let mut rows = sqlx::query_as!(
        DispatchRow,
        r#"UPDATE commands
           SET epoch = $2,
               boot_id = $3,
               journal_id = $4,
               state = CASE WHEN journal_id = $4 THEN state ELSE 'dispatched' END
           WHERE id = ANY ($1) AND signature IS NOT NULL
           RETURNING id, node_id, seq, lane, kind, body, signature AS "signature!""#,
        &again,
        epoch.to_i64(),
        boot.as_uuid(),
        journal.as_uuid(),
    )
    .fetch_all(txn.conn())
    .await?;
    rows.sort_unstable_by_key(|row| row.seq);
    rows.into_iter().map(DispatchRow::read).collect()
}

/// A command in flight whose fate the node's reconnect has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proved {
    /// Which.
    pub id: CommandId,
    /// How: never [`Resume::Replay`].
    pub how: Resume,
}

/// What the present session of a node proves: its boot and journal are those that the node signed, and it began to name
/// them after the command was signed, by its own clock and by the one here. That they are others than the command was sent
/// to is a gateway's word, and so only narrows it.
///
/// # Errors
/// When the statement fails.
pub async fn proved(db: &Db, node: NodeId) -> Result<Vec<Proved>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT c.id, c.kind, c.state,
                  COALESCE(c.boot_id <> b.boot_id AND LEAST(b.boot_said, b.boot_seen) > c.signed_at, false) AS "new_boot!",
                  COALESCE(c.journal_id <> b.journal_id AND LEAST(b.journal_said, b.journal_seen) > c.signed_at, false)
                      AS "new_journal!"
           FROM commands c
           JOIN sessions s ON s.node_id = c.node_id AND s.epoch > c.epoch
           JOIN node_boots b ON b.node_id = c.node_id AND b.boot_id = s.boot_id AND b.journal_id = s.journal_id
           WHERE c.node_id = $1 AND c.state IN ('dispatched', 'acked', 'running')
             AND (c.boot_id <> b.boot_id OR c.journal_id <> b.journal_id)
           ORDER BY c.seq"#,
        node.as_uuid(),
    )
    .fetch_all(db.pool())
    .await?;
    let mut proved = Vec::new();
    for row in rows {
        let state = convert::word("command state", &row.state)?;
        match on_reconnect(state, row_of(&row.kind), row.new_boot, row.new_journal) {
            Some(how @ (Resume::Rebooted | Resume::JournalLost)) => {
                proved.push(Proved { id: CommandId::from_uuid(row.id), how });
            }
            Some(Resume::Replay) | None => {}
        }
    }
    Ok(proved)
}

/// Remembers the boot and the journal of a verified status report, and wakes the `command` reconciler when they are new. A
/// report that was said before the one that is remembered changes nothing.
///
/// # Errors
/// When a statement fails.
pub async fn witness(
    txn: &mut Txn,
    node: NodeId,
    boot: BootId,
    journal: JournalId,
    at: Timestamp,
) -> Result<(), DbError> {
    let done = sqlx::query!(
        r#"INSERT INTO node_boots AS b (node_id, boot_id, journal_id, said_at)
           VALUES ($1, $2, $3, $4)
           ON CONFLICT (node_id) DO UPDATE
           SET boot_said = CASE WHEN b.boot_id <> EXCLUDED.boot_id THEN EXCLUDED.said_at ELSE b.boot_said END,
               boot_seen = CASE WHEN b.boot_id <> EXCLUDED.boot_id THEN compute_now() ELSE b.boot_seen END,
               journal_said = CASE WHEN b.journal_id <> EXCLUDED.journal_id THEN EXCLUDED.said_at ELSE b.journal_said END,
               journal_seen = CASE WHEN b.journal_id <> EXCLUDED.journal_id THEN compute_now() ELSE b.journal_seen END,
               boot_id = EXCLUDED.boot_id,
               journal_id = EXCLUDED.journal_id,
               said_at = EXCLUDED.said_at
           WHERE (b.boot_id, b.journal_id) IS DISTINCT FROM (EXCLUDED.boot_id, EXCLUDED.journal_id)
             AND b.said_at < EXCLUDED.said_at"#,
        node.as_uuid(),
        boot.as_uuid(),
        journal.as_uuid(),
        at.to_sqlx() as _,
    )
    .execute(txn.conn())
    .await?;
    if done.rows_affected() == 1 {
        queue::enqueue(txn, &queue::COMMAND, [node]).await?;
    }
    Ok(())
}
