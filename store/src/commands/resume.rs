//! What a reconnect means for what is in flight.
//!
//! A gateway replays what may run again. What the reconnect proves (a new boot of a command that ends the daemon, a new
//! journal where running twice would do harm) it leaves alone: that is settled by the `command` reconciler, once the node has
//! named its boot and its journal in a status report of its own signature. A gateway's word ends no command.

use std::collections::{BTreeSet, HashMap};

use jiff_sqlx::ToSqlx;
use schema::{
    command::{CommandState, KindRow},
    generation::Epoch,
    id::{BootId, CommandId, JournalId, NodeId},
    time::Timestamp,
};

use super::dispatch::{Dispatch, DispatchRow, by_node};
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
/// best, even after a boot; one that never did might run it on the wrong boot. What is safe to run twice is asked about again:
/// a daemon that is back in another version says so itself.
#[must_use]
pub fn on_reconnect(state: CommandState, kind: Option<&KindRow>, new_boot: bool, new_journal: bool) -> Option<Resume> {
    if !state.is_in_flight() {
        return None;
    }
    let is_known = !new_journal && state != CommandState::Dispatched;
    Some(if new_boot && !is_known && kind.is_some_and(|kind| kind.self_terminating && !kind.retry_safe) {
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

/// A session that has just opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Back {
    /// The node.
    pub node: NodeId,
    /// The session's epoch.
    pub epoch: Epoch,
    /// The boot that it opened with.
    pub boot: BootId,
    /// The journal that it opened with.
    pub journal: JournalId,
}

/// One session of [`resume_all`].
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
    let mut all = resume_all(txn, &[Back { node, epoch, boot, journal }]).await?;
    Ok(all.pop().map(|(_, again)| again).unwrap_or_default())
}

/// What sessions that have just opened send again, in the order of the numbers, each under its own epoch from now on. For the
/// transaction of [`crate::sessions::open_all`]. Who has nothing in flight is not in the answer.
///
/// # Errors
/// When a statement fails.
pub async fn resume_all(txn: &mut Txn, back: &[Back]) -> Result<Vec<(NodeId, Vec<Dispatch>)>, DbError> {
    let back: HashMap<uuid::Uuid, &Back> = back.iter().map(|back| (back.node.as_uuid(), back)).collect();
    let nodes: Vec<uuid::Uuid> = back.keys().copied().collect();
    // Node by node and then row by row: however many are in flight, none but these are looked at.
    let rows = sqlx::query!(
        r#"SELECT c.id AS "id!", c.node_id AS "node_id!", c.kind AS "kind!", c.state AS "state!", c.boot_id, c.journal_id
           FROM (
               SELECT f.id
               FROM UNNEST($1::uuid[]) AS w (node_id)
               CROSS JOIN LATERAL (
                   SELECT id FROM commands WHERE node_id = w.node_id AND state IN ('dispatched', 'acked', 'running') OFFSET 0
               ) AS f
               ORDER BY f.id
           ) AS f
           CROSS JOIN LATERAL (
               SELECT id, node_id, kind, state, boot_id, journal_id FROM commands WHERE id = f.id LIMIT 1 FOR NO KEY UPDATE
           ) AS c
           WHERE c.state IN ('dispatched', 'acked', 'running')"#,
        &nodes,
    )
    .fetch_all(txn.conn())
    .await?;
    let (mut again, mut proven) = (Vec::new(), BTreeSet::new());
    for row in rows {
        let Some(back) = back.get(&row.node_id) else { continue };
        let kind = row_of(&row.kind);
        let state = convert::word("command state", &row.state)?;
        let new_boot = row.boot_id != Some(back.boot.as_uuid());
        let new_journal = row.journal_id != Some(back.journal.as_uuid());
        match on_reconnect(state, kind, new_boot, new_journal) {
            Some(Resume::Replay) if kind.is_some() => again.push((row.id, *back)),
            // A kind that is unknown here is left to its deadline.
            Some(Resume::Replay) | None => {}
            Some(Resume::Rebooted | Resume::JournalLost) => _ = proven.insert(back.node),
        }
    }
    queue::enqueue(txn, &queue::COMMAND, proven).await?;
    if again.is_empty() {
        return Ok(Vec::new());
    }
    let column = |of: fn(&Back) -> uuid::Uuid| again.iter().map(|(_, back)| of(back)).collect::<Vec<_>>();
    // What a lost journal acknowledged is acknowledged no more.
    let rows = sqlx::query_as!(
        DispatchRow,
        r#"UPDATE commands c
           SET epoch = r.epoch,
               boot_id = r.boot_id,
               journal_id = r.journal_id,
               state = CASE WHEN c.journal_id = r.journal_id THEN c.state ELSE 'dispatched' END
           FROM UNNEST($1::uuid[], $2::bigint[], $3::uuid[], $4::uuid[]) AS r (id, epoch, boot_id, journal_id)
           WHERE c.id = r.id AND c.signature IS NOT NULL
           RETURNING c.id, c.node_id, c.seq, c.lane, c.kind, c.body, c.signature AS "signature!", c.approval,
                     c.cancel_requested_at IS NOT NULL AS "cancel!""#,
        &again.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        &again.iter().map(|(_, back)| back.epoch.to_i64()).collect::<Vec<_>>(),
        &column(|back| back.boot.as_uuid()),
        &column(|back| back.journal.as_uuid()),
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(by_node(rows))
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

/// Remembers the boot and the journal of a verified status report, and wakes the `command` reconciler when they are new: what was
/// signed for another journal and never sent is signed anew. A
/// report that was said before the one that is remembered changes nothing. The time is the node's own word, which may be wrong
/// for once: it is believed no further than the time here, so that the right one comes after it.
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
           VALUES ($1, $2, $3, LEAST($4, compute_now() + interval '5 minutes'))
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
        super::sign::unsign_others(txn, node, journal).await?;
        queue::enqueue(txn, &queue::COMMAND, [node]).await?;
    }
    Ok(())
}

/// Remembers that a machine, as it signed, refuses what is for another journal: from then on what may not run twice is for one. A
/// machine that was heard to say so is not believed to have forgotten it, because a gateway can keep a daemon from saying it.
///
/// # Errors
/// When the statement fails.
pub async fn binds(txn: &mut Txn, node: NodeId) -> Result<(), DbError> {
    sqlx::query!("UPDATE node_boots SET binds = true WHERE node_id = $1 AND NOT binds", node.as_uuid())
        .execute(txn.conn())
        .await?;
    Ok(())
}
