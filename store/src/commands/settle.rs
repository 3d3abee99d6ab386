//! Every way in which a command ends. It ends once: what comes later changes nothing. Each end is an event in the outbox and a
//! wake-up of the node's controller, in the same transaction.

use schema::{
    command::{CommandEvent, CommandState, KINDS, Reason, kind::UNKNOWN_KIND_TIMEOUT},
    digest::Digest,
    id::{CommandId, NodeId},
};
use serde_json::json;

use super::{Command, read};
use crate::{Db, DbError, Txn, audit, batches, convert, outbox, poke::Poke, queue};

/// How a command ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// What happened.
    pub event: CommandEvent,
    /// Why.
    pub reason: Option<Reason>,
    /// Why, for people.
    pub message: Option<String>,
    /// What came out, canonical JSON.
    pub result: Option<String>,
    /// The node's own word for it; kept for kinds whose results are attested.
    pub evidence: Option<Evidence>,
}

impl Ending {
    /// An end with a reason and nothing else.
    #[must_use]
    pub const fn because(event: CommandEvent, reason: Reason) -> Self {
        Self { event, reason: Some(reason), message: None, result: None, evidence: None }
    }
}

/// A last word that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The exact bytes.
    pub payload: Vec<u8>,
    /// The node's signature over them.
    pub signature: Vec<u8>,
    /// The key that verified it.
    pub key: Vec<u8>,
}

/// What became of an attempt to end a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It ended now.
    Moved(CommandState),
    /// It had ended before; nothing changed.
    Final {
        /// How.
        state: CommandState,
        /// Why.
        reason: Option<String>,
    },
    /// It cannot end like that from where it is; nothing changed.
    Illegal(CommandState),
    /// There is no such command of this node.
    Unknown,
}

/// Locks commands of a node, all at once and in their order, before the first of several is ended: ending one also locks the
/// node's work row, which comes after commands.
///
/// # Errors
/// When the statement fails.
pub async fn lock(txn: &mut Txn, node: NodeId, ids: &[CommandId]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    sqlx::query!(
        "SELECT id FROM commands WHERE id = ANY ($1) AND node_id = $2 ORDER BY id FOR NO KEY UPDATE",
        &ids,
        node.as_uuid()
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(())
}

/// Locks nodes and then commands, each in the order of their ids: for who is about to queue commands for some of the nodes and to
/// change commands of others in one transaction, as a step of a batch does.
///
/// # Errors
/// When a statement fails.
pub async fn lock_all(txn: &mut Txn, nodes: &[NodeId], ids: &[CommandId]) -> Result<(), DbError> {
    let nodes: Vec<uuid::Uuid> = nodes.iter().map(|id| id.as_uuid()).collect();
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    if !nodes.is_empty() {
        sqlx::query!("SELECT id FROM nodes WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE", &nodes)
            .fetch_all(txn.conn())
            .await?;
    }
    if !ids.is_empty() {
        sqlx::query!("SELECT id FROM commands WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE", &ids)
            .fetch_all(txn.conn())
            .await?;
    }
    Ok(())
}

/// Ends a command of a node. Who ends several in one transaction locks them first with [`lock`]. With its end it loses its mark, and
/// one that no gateway ever had its signature as well: setting its state back sends nothing.
///
/// # Errors
/// When a statement fails.
pub async fn settle(txn: &mut Txn, node: NodeId, id: CommandId, ending: &Ending) -> Result<Settled, DbError> {
    let row = sqlx::query!(
        "SELECT kind, state, reason, owner, batch_id, dispatched_at FROM commands WHERE id = $1 AND node_id = $2 FOR NO KEY UPDATE",
        id.as_uuid(),
        node.as_uuid()
    )
    .fetch_optional(txn.conn())
    .await?;
    let Some(row) = row else { return Ok(Settled::Unknown) };
    let from: CommandState = convert::word("command state", &row.state)?;
    if from.is_terminal() {
        return Ok(Settled::Final { state: from, reason: row.reason });
    }
    // A gateway said that it waits again, and the node signed that it ended: the node knows.
    let sent = from == CommandState::Pending && row.dispatched_at.is_some() && ending.evidence.is_some();
    let at = if sent { CommandState::Dispatched } else { from };
    let to = match at.transition(ending.event) {
        Ok(to) if to.is_terminal() => to,
        Ok(_) | Err(_) => return Ok(Settled::Illegal(from)),
    };
    let reason = ending.reason.as_ref().map(Reason::as_str);
    // What people agreed to is receipted, too.
    let attested = row.batch_id.is_some() || super::kind(&row.kind).is_ok_and(|kind| kind.row().attested);
    let (payload, signature, key) = match ending.evidence.as_ref().filter(|_| attested) {
        Some(evidence) => (Some(&*evidence.payload), Some(&*evidence.signature), Some(&*evidence.key)),
        None => (None, None, None),
    };
    sqlx::query!(
        r#"UPDATE commands
           SET state = $2, reason = $3, message = $4, result = $5, evidence = $6, evidence_signature = $7, evidence_key = $8,
               settled_at = compute_now(), mark = NULL,
               signature = CASE WHEN dispatched_at IS NOT NULL THEN signature END,
               signed_at = CASE WHEN dispatched_at IS NOT NULL THEN signed_at END
           WHERE id = $1"#,
        id.as_uuid(),
        to.as_str(),
        reason,
        ending.message.as_deref(),
        ending.result.as_deref(),
        payload,
        signature,
        key,
    )
    .execute(txn.conn())
    .await?;
    let end = End {
        id: id.as_uuid(),
        node_id: node.as_uuid(),
        kind: row.kind,
        state: to.to_string(),
        reason: reason.map(str::to_owned),
        owner: row.owner,
    };
    announce(txn, &[end], ending.evidence.as_ref()).await?;
    Ok(Settled::Moved(to))
}

/// What a node said about a command that had ended: kept beside it, the first time. `false` when something was kept before.
///
/// # Errors
/// When a statement fails.
pub async fn record_late(
    txn: &mut Txn,
    node: NodeId,
    id: CommandId,
    state: CommandState,
    reason: Option<&Reason>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"UPDATE commands
           SET late_state = $3, late_reason = $4, late_at = compute_now()
           WHERE id = $1 AND node_id = $2 AND settled_at IS NOT NULL AND late_at IS NULL"#,
        id.as_uuid(),
        node.as_uuid(),
        state.as_str(),
        reason.map(Reason::as_str),
    )
    .execute(txn.conn())
    .await?;
    let fresh = done.rows_affected() == 1;
    if fresh {
        let doc = json!({ "commandId": id, "nodeId": node, "state": state, "reason": reason });
        outbox::append(txn, &[outbox::NewEvent::new(outbox::COMMAND_LATE, node, doc)]).await?;
    }
    Ok(fresh)
}

/// Takes a command back: at once while it waits; in flight its node is asked, and keeps the last word; one that has ended
/// stays as it is. Answers the command as it is afterwards; `None` when there is none.
///
/// # Errors
/// When a statement fails.
pub async fn cancel(txn: &mut Txn, id: CommandId) -> Result<Option<Command>, DbError> {
    let row = sqlx::query!(
        "SELECT node_id, kind, state, cancel_requested_at FROM commands WHERE id = $1 FOR NO KEY UPDATE",
        id.as_uuid()
    )
    .fetch_optional(txn.conn())
    .await?;
    let Some(row) = row else { return Ok(None) };
    let node = NodeId::from_uuid(row.node_id);
    let state: CommandState = convert::word("command state", &row.state)?;
    if !state.is_terminal() && row.cancel_requested_at.is_none() {
        sqlx::query!("UPDATE commands SET cancel_requested_at = compute_now() WHERE id = $1", id.as_uuid())
            .execute(txn.conn())
            .await?;
        let shown = if state == CommandState::Pending { CommandState::Cancelled } else { state };
        let doc = json!({ "commandId": id, "nodeId": node, "kind": row.kind, "state": shown });
        outbox::append(txn, &[outbox::NewEvent::new(outbox::COMMAND_CANCEL_REQUESTED, node, doc)]).await?;
    }
    if state == CommandState::Pending {
        settle(txn, node, id, &Ending::because(CommandEvent::Cancel, Reason::CANCELLED)).await?;
    } else if state.is_in_flight() {
        txn.poke(Poke::Node(node));
    }
    read::in_txn(txn, id).await
}

/// Ends everything for a machine that is its node no more: what waits is cancelled, and what is in flight fails, because what
/// a machine says later is not its node's word. The node's row and its session's are held until the commit, so nothing is queued or
/// claimed behind it.
///
/// # Errors
/// When a statement fails.
pub async fn end_open_of(txn: &mut Txn, node: NodeId, reason: &Reason) -> Result<(), DbError> {
    sqlx::query!("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", node.as_uuid()).fetch_optional(txn.conn()).await?;
    sqlx::query!("SELECT node_id FROM sessions WHERE node_id = $1 FOR UPDATE", node.as_uuid())
        .fetch_optional(txn.conn())
        .await?;
    let open = sqlx::query!(
        r#"SELECT id, state = 'pending' AS "waits!"
           FROM commands
           WHERE node_id = $1 AND state IN ('pending', 'dispatched', 'acked', 'running')
           ORDER BY id
           FOR NO KEY UPDATE"#,
        node.as_uuid(),
    )
    .fetch_all(txn.conn())
    .await?;
    let ends: Vec<_> = open
        .into_iter()
        .map(|row| (row.id, if row.waits { CommandState::Cancelled } else { CommandState::Failed }, reason.clone()))
        .collect();
    end(txn, &ends).await
}

/// How long the end of a command waits for a last word of its node that came and was not read yet, in milliseconds.
const UNREAD: f64 = 5.0 * 60_000.0;

/// What a sweep ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Waited past their deadline.
    pub expired: usize,
    /// Took longer than their kind may.
    pub timed_out: usize,
    /// Taken back while in flight, and not begun by the node.
    pub cancelled: usize,
    /// There may be more.
    pub more: bool,
}

/// Whether there is something to sweep. Reads only.
///
/// # Errors
/// When the statement fails.
pub async fn is_sweep_due(db: &Db) -> Result<bool, DbError> {
    let (kinds, timeouts) = timeouts();
    let due = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM commands WHERE state = 'pending' AND cancel_requested_at IS NOT NULL)
               OR EXISTS (
                   SELECT FROM commands c
                   LEFT JOIN UNNEST($1::text[], $2::float8[]) AS k (kind, timeout) ON k.kind = c.kind
                   WHERE c.settled_at IS NULL AND c.not_after <= compute_now()
                     AND (c.state = 'pending' OR c.not_after + COALESCE(k.timeout, $3) * interval '1 millisecond' <= compute_now())
                     AND (NOT EXISTS (SELECT FROM command_updates u WHERE u.node_id = c.node_id AND u.command_id = c.id)
                          OR c.not_after + $4 * interval '1 millisecond'
                             + CASE WHEN c.state = 'pending' THEN 0 ELSE COALESCE(k.timeout, $3) END * interval '1 millisecond'
                             <= compute_now())
               ) AS "due!""#,
        &kinds,
        &timeouts,
        convert::millis(UNKNOWN_KIND_TIMEOUT.to_std()),
        UNREAD,
    );
    Ok(due.fetch_one(db.pool()).await?)
}

/// The timeout in milliseconds of every kind.
fn timeouts() -> (Vec<String>, Vec<f64>) {
    KINDS.iter().map(|row| (row.kind.to_string(), convert::millis(row.timeout.to_std()))).unzip()
}

/// Ends what waited past its deadline, what takes longer than its deadline plus its kind's timeout, and what was taken back and
/// came back unbegun, `limit` of each at most. A kind that is unknown here gets 15 minutes. A last word that came and was not
/// read yet is waited for, five minutes at most.
///
/// # Errors
/// When a statement fails.
pub async fn sweep(txn: &mut Txn, limit: u32) -> Result<Swept, DbError> {
    let most = i64::from(limit);
    let cancelled = sqlx::query_scalar!(
        r#"SELECT id FROM commands
           WHERE state = 'pending' AND cancel_requested_at IS NOT NULL
           ORDER BY id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED"#,
        most,
    )
    .fetch_all(txn.conn())
    .await?;
    let expired = sqlx::query_scalar!(
        r#"SELECT id FROM commands
           WHERE state = 'pending' AND settled_at IS NULL AND not_after <= compute_now() AND cancel_requested_at IS NULL
             AND (not_after + $2 * interval '1 millisecond' <= compute_now()
                  OR NOT EXISTS (SELECT FROM command_updates u WHERE u.node_id = commands.node_id AND u.command_id = commands.id))
           ORDER BY id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED"#,
        most,
        UNREAD,
    )
    .fetch_all(txn.conn())
    .await?;
    let (kinds, timeouts) = timeouts();
    let timed_out = sqlx::query_scalar!(
        r#"SELECT c.id
           FROM commands c
           LEFT JOIN UNNEST($2::text[], $3::float8[]) AS k (kind, timeout) ON k.kind = c.kind
           WHERE c.state IN ('dispatched', 'acked', 'running') AND c.settled_at IS NULL AND c.not_after <= compute_now()
             AND c.not_after + COALESCE(k.timeout, $4) * interval '1 millisecond' <= compute_now()
             AND (c.not_after + (COALESCE(k.timeout, $4) + $5) * interval '1 millisecond' <= compute_now()
                  OR NOT EXISTS (SELECT FROM command_updates u WHERE u.node_id = c.node_id AND u.command_id = c.id))
           ORDER BY c.id LIMIT $1 FOR NO KEY UPDATE OF c SKIP LOCKED"#,
        most,
        &kinds,
        &timeouts,
        convert::millis(UNKNOWN_KIND_TIMEOUT.to_std()),
        UNREAD,
    )
    .fetch_all(txn.conn())
    .await?;
    let swept = Swept {
        expired: expired.len(),
        timed_out: timed_out.len(),
        cancelled: cancelled.len(),
        more: [&cancelled, &expired, &timed_out].iter().any(|ended| ended.len() >= limit as usize),
    };
    let ends: Vec<_> = [
        (cancelled, CommandState::Cancelled, Reason::CANCELLED),
        (expired, CommandState::Expired, Reason::NOT_AFTER),
        (timed_out, CommandState::Failed, Reason::TIMEOUT),
    ]
    .into_iter()
    .flat_map(|(ids, state, reason)| ids.into_iter().map(move |id| (id, state, reason.clone())))
    .collect();
    end(txn, &ends).await?;
    Ok(swept)
}

/// Forgets commands that ended 90 days ago.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done = sqlx::query!("DELETE FROM commands WHERE settled_at < compute_now() - interval '90 days'")
        .execute(db.pool())
        .await?;
    Ok(done.rows_affected())
}

struct End {
    id: uuid::Uuid,
    node_id: uuid::Uuid,
    kind: String,
    state: String,
    reason: Option<String>,
    owner: Option<String>,
}

/// Ends commands that are locked, all at once.
async fn end(txn: &mut Txn, ends: &[(uuid::Uuid, CommandState, Reason)]) -> Result<(), DbError> {
    if ends.is_empty() {
        return Ok(());
    }
    let ids: Vec<uuid::Uuid> = ends.iter().map(|(id, ..)| *id).collect();
    let states: Vec<String> = ends.iter().map(|(_, state, _)| state.to_string()).collect();
    let reasons: Vec<String> = ends.iter().map(|(.., reason)| reason.to_string()).collect();
    let ended = sqlx::query_as!(
        End,
        r#"UPDATE commands c
           SET state = e.state, reason = e.reason, settled_at = compute_now(), mark = NULL,
               signature = CASE WHEN c.dispatched_at IS NOT NULL THEN c.signature END,
               signed_at = CASE WHEN c.dispatched_at IS NOT NULL THEN c.signed_at END
           FROM UNNEST($1::uuid[], $2::text[], $3::text[]) AS e (id, state, reason)
           WHERE c.id = e.id
           RETURNING c.id, c.node_id, c.kind, c.state, c.reason, c.owner"#,
        &ids,
        &states,
        &reasons,
    )
    .fetch_all(txn.conn())
    .await?;
    announce(txn, &ended, None).await
}

/// Says that commands ended: in the outbox, in the audit log, and to whoever waits. `word` is what the node signed.
async fn announce(txn: &mut Txn, ended: &[End], word: Option<&Evidence>) -> Result<(), DbError> {
    let lines: Vec<audit::NewEntry> = ended
        .iter()
        .map(|end| {
            let node = NodeId::from_uuid(end.node_id).to_string();
            let detail = json!({
                "node": node, "kind": end.kind, "reason": end.reason, "word": word.map(|word| Digest::of(&word.payload)),
            });
            audit::NewEntry {
                actor: if word.is_some() { node } else { "commands".to_owned() },
                action: format!("commands.{}", end.state),
                subject: CommandId::from_uuid(end.id).to_string(),
                detail,
            }
        })
        .collect();
    audit::append_all(txn, &lines).await?;
    let events: Vec<outbox::NewEvent> = ended
        .iter()
        .map(|end| {
            let node = NodeId::from_uuid(end.node_id);
            let mut doc = json!({
                "commandId": CommandId::from_uuid(end.id), "nodeId": node, "kind": end.kind, "state": end.state, "reason": end.reason,
            });
            if let Some(owner) = &end.owner {
                doc["owner"] = owner.as_str().into();
            }
            outbox::NewEvent::new(outbox::COMMAND_SETTLED, node, doc)
        })
        .collect();
    outbox::append(txn, &events).await?;
    // Only what does harm is part of a batch.
    let harm = |end: &&End| super::kind(&end.kind).is_ok_and(|kind| kind.row().destructive);
    batches::wake_of_commands(txn, &ended.iter().filter(harm).map(|end| end.id).collect::<Vec<_>>()).await?;
    queue::enqueue(txn, &queue::NODE, ended.iter().map(|end| NodeId::from_uuid(end.node_id))).await
}
