//! What a gateway writes: it takes pending commands for its sessions and says what it heard in between.
//!
//! Every write names the session's epoch. A claim and a step hold the session's row until the commit, so no other session
//! begins in between; a release compares the epoch of the command itself, which a later session has moved. None of them ends a
//! command. When a command moved is written by a trigger, not by whoever moves it.

use schema::{
    command::{CommandKind, Lane},
    generation::Epoch,
    id::{CommandId, NodeId},
};

use super::{known_kinds, updates};
use crate::{Db, DbError, Dedicated, convert};

/// How many commands of each lane a session has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: NodeId,
    /// The session's epoch.
    pub epoch: Epoch,
    /// Counts the claims of its gateway. One that [`in_flight`] has made void takes nothing.
    pub number: u64,
    /// Room per lane, in the order of [`Lane::ALL`].
    pub room: [u32; Lane::ALL.len()],
}

/// A command to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// Which.
    pub id: CommandId,
    /// Counts the node's commands.
    pub seq: u64,
    /// Its lane.
    pub lane: Lane,
    /// Its kind.
    pub kind: CommandKind,
    /// The exact bytes that were signed.
    pub body: Vec<u8>,
    /// The signature, an encoded wire message.
    pub signature: Vec<u8>,
    /// The proof that people agreed; empty where nobody has to.
    pub approval: Vec<u8>,
    /// Somebody wants it to be cancelled.
    pub cancel: bool,
}

pub(super) struct DispatchRow {
    pub(super) id: uuid::Uuid,
    pub(super) node_id: uuid::Uuid,
    pub(super) seq: i64,
    pub(super) lane: String,
    pub(super) kind: String,
    pub(super) body: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) approval: Option<Vec<u8>>,
    pub(super) cancel: bool,
}

impl DispatchRow {
    pub(super) fn read(self) -> Result<Dispatch, DbError> {
        Ok(Dispatch {
            id: CommandId::from_uuid(self.id),
            seq: super::seq(self.seq),
            lane: convert::word("lane", &self.lane)?,
            kind: super::kind(&self.kind)?,
            body: self.body,
            signature: self.signature,
            approval: self.approval.unwrap_or_default(),
            cancel: self.cancel,
        })
    }
}

/// By node, each list in the order of the numbers. A command that cannot be read is left to its deadline.
pub(super) fn by_node(mut rows: Vec<DispatchRow>) -> Vec<(NodeId, Vec<Dispatch>)> {
    rows.sort_unstable_by_key(|row| (row.node_id, row.seq));
    let mut nodes: Vec<(NodeId, Vec<Dispatch>)> = Vec::new();
    for row in rows {
        let node = NodeId::from_uuid(row.node_id);
        let Ok(dispatch) = row.read() else { continue };
        match nodes.last_mut() {
            Some((last, list)) if *last == node => list.push(dispatch),
            _ => nodes.push((node, vec![dispatch])),
        }
    }
    nodes
}

/// Takes the commands that are due for these sessions, as far as their room goes, in one statement. Within a lane nothing
/// overtakes: a command that is not signed yet, or for another journal than the session's, or rests after the node was busy, holds
/// those after it. One that was sent before is left to its machine, which says that it is for another journal. What waits for
/// approvals, was taken back, is past its deadline or is not for the node's identity holds nothing and is not taken. A node of which
/// many last words wait to be read gets nothing until they were: it would have more to say than is stored.
///
/// # Errors
/// When the statement fails. When its answer is lost, [`in_flight`] has what it took, and it takes nothing later.
pub async fn claim(db: &Dedicated, claims: &[Claim]) -> Result<Vec<(NodeId, Vec<Dispatch>)>, DbError> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<uuid::Uuid> = claims.iter().map(|claim| claim.node.as_uuid()).collect();
    let epochs: Vec<i64> = claims.iter().map(|claim| claim.epoch.to_i64()).collect();
    let numbers: Vec<i64> = claims.iter().map(|claim| number(claim.number)).collect();
    let room = |lane: Lane| claims.iter().map(|claim| convert::int(claim.room[lane.index()])).collect::<Vec<i32>>();
    let mut taken = db.take().await?;
    let rows = sqlx::query_as!(
        DispatchRow,
        // Each step looks up by node or by id what the one before found. Left to joins, the database would read all that waits in
        // the fleet for each session, because it believes that nothing ever waits.
        r#"WITH session AS MATERIALIZED (
               SELECT s.node_id, s.epoch, s.boot_id, s.journal_id, w.control, w.provision, w.bulk
               FROM UNNEST($1::uuid[], $2::bigint[], $3::int[], $4::int[], $5::int[], $7::bigint[])
                    AS w (node_id, epoch, control, provision, bulk, number)
               CROSS JOIN LATERAL (SELECT FROM commands WHERE node_id = w.node_id AND state = 'pending' LIMIT 1) AS waits
               JOIN sessions s ON s.node_id = w.node_id AND s.epoch = w.epoch
               WHERE s.disconnected_at IS NULL AND s.claims_void < w.number
                 AND NOT EXISTS (SELECT FROM command_updates u WHERE u.node_id = w.node_id OFFSET $8)
               ORDER BY s.node_id
               FOR SHARE OF s
           ), lane AS MATERIALIZED (
               SELECT s.node_id, s.epoch, s.boot_id, s.journal_id, l.name, l.room, a.allowed
               FROM session s
               CROSS JOIN LATERAL (SELECT node_allowed_kinds(s.node_id) AS allowed OFFSET 0) AS a
               CROSS JOIN LATERAL (VALUES ('control', s.control), ('provision', s.provision), ('bulk', s.bulk)) AS l (name, room)
               WHERE l.room > 0
           ), picked AS MATERIALIZED (
               SELECT f.id, l.epoch, l.boot_id, l.journal_id
               FROM lane l
               CROSS JOIN LATERAL (
                   SELECT p.id, bool_and(p.ready) OVER (ORDER BY p.seq) AS clear
                   FROM (
                       SELECT c.id, c.seq,
                              c.signature IS NOT NULL AND c.not_before <= compute_now()
                              AND (c.for_journal IS NULL OR c.for_journal = l.journal_id OR c.dispatched_at IS NOT NULL) AS ready
                       FROM commands c
                       WHERE c.node_id = l.node_id AND c.lane = l.name AND c.state = 'pending'
                         AND c.not_before IS NOT NULL AND c.not_after > compute_now() AND c.cancel_requested_at IS NULL
                         AND c.kind = ANY ($6) AND (l.allowed IS NULL OR c.kind = ANY (l.allowed))
                       ORDER BY c.seq
                       LIMIT l.room
                   ) AS p
               ) AS f
               WHERE f.clear
               ORDER BY f.id
           ), locked AS MATERIALIZED (
               SELECT c.id, p.epoch, p.boot_id, p.journal_id
               FROM picked p
               CROSS JOIN LATERAL (
                   SELECT id, state, not_after, cancel_requested_at FROM commands WHERE id = p.id LIMIT 1 FOR NO KEY UPDATE
               ) AS c
               WHERE c.state = 'pending' AND c.not_after > compute_now() AND c.cancel_requested_at IS NULL
           )
           UPDATE commands c
           SET state = 'dispatched',
               epoch = l.epoch,
               boot_id = l.boot_id,
               journal_id = l.journal_id
           FROM locked l
           WHERE c.id = l.id
           RETURNING c.id, c.node_id, c.seq, c.lane, c.kind, c.body, c.signature AS "signature!", c.approval, false AS "cancel!""#,
        &ids,
        &epochs,
        &room(Lane::Control),
        &room(Lane::Provision),
        &room(Lane::Bulk),
        &known_kinds(),
        &numbers,
        updates::MANY - 1,
    )
    .fetch_all(taken.conn())
    .await?;
    taken.done();
    Ok(by_node(rows))
}

/// What these sessions have in flight by their own epoch and have said no last word about. Claims of theirs up to `number` that
/// are still on their way are void, and one that runs is waited for: what it takes is in the answer.
///
/// # Errors
/// When a statement fails.
pub async fn in_flight(
    db: &Db,
    sessions: &[(NodeId, Epoch)],
    number: u64,
) -> Result<Vec<(NodeId, Vec<Dispatch>)>, DbError> {
    let (ids, epochs): (Vec<uuid::Uuid>, Vec<i64>) =
        sessions.iter().map(|(id, epoch)| (id.as_uuid(), epoch.to_i64())).unzip();
    let mut txn = db.begin().await?;
    sqlx::query!(
        r#"WITH held AS MATERIALIZED (
               SELECT s.node_id
               FROM UNNEST($1::uuid[], $2::bigint[]) AS w (node_id, epoch)
               JOIN sessions s ON s.node_id = w.node_id AND s.epoch = w.epoch
               ORDER BY s.node_id
               FOR NO KEY UPDATE OF s
           )
           UPDATE sessions s SET claims_void = $3 FROM held WHERE s.node_id = held.node_id AND s.claims_void < $3"#,
        &ids,
        &epochs,
        self::number(number),
    )
    .execute(txn.conn())
    .await?;
    let rows = sqlx::query_as!(
        DispatchRow,
        r#"SELECT c.id, c.node_id, c.seq, c.lane, c.kind, c.body, c.signature AS "signature!", c.approval,
                  c.cancel_requested_at IS NOT NULL AS "cancel!"
           FROM UNNEST($1::uuid[], $2::bigint[]) AS s (node_id, epoch)
           JOIN commands c ON c.node_id = s.node_id AND c.epoch = s.epoch
           WHERE c.state IN ('dispatched', 'acked', 'running') AND c.signature IS NOT NULL AND c.kind = ANY ($3)
             AND NOT EXISTS (SELECT FROM command_updates u WHERE u.node_id = c.node_id AND u.command_id = c.id)"#,
        &ids,
        &epochs,
        &known_kinds(),
    )
    .fetch_all(txn.conn())
    .await?;
    txn.commit().await?;
    Ok(by_node(rows))
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a node said in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is in the node's journal.
    Acked,
    /// The node began.
    Running,
    /// The node has no room in the lane.
    Busy,
    /// The node's journal has no room.
    JournalFull,
    /// The node's journal cannot be written.
    JournalUnusable,
}

/// A step of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Which command.
    pub id: CommandId,
    /// Who said it.
    pub node: NodeId,
    /// The session's epoch.
    pub epoch: Epoch,
    /// What.
    pub step: Step,
}

/// Writes steps down in one statement, each under the epoch in which its command was sent, and never backwards. A command that
/// the node had no room for waits again, 1 to 30 seconds, doubling.
///
/// # Errors
/// When the statement fails.
pub async fn progress(db: &Db, steps: &[Progress]) -> Result<(), DbError> {
    if steps.is_empty() {
        return Ok(());
    }
    // Of several steps of one command only the furthest counts; busy says that there was none.
    let mut furthest: std::collections::BTreeMap<CommandId, Progress> = std::collections::BTreeMap::new();
    for step in steps {
        let known = furthest.entry(step.id).or_insert(*step);
        if rank(step.step) > rank(known.step) {
            *known = *step;
        }
    }
    let ids: Vec<uuid::Uuid> = furthest.keys().map(|id| id.as_uuid()).collect();
    let nodes: Vec<uuid::Uuid> = furthest.values().map(|step| step.node.as_uuid()).collect();
    let epochs: Vec<i64> = furthest.values().map(|step| step.epoch.to_i64()).collect();
    let words: Vec<String> = furthest.values().map(|step| word(step.step).to_owned()).collect();
    sqlx::query!(
        r#"WITH said AS MATERIALIZED (
               SELECT * FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) AS p (id, node_id, epoch, word)
           ), session AS MATERIALIZED (
               SELECT s.node_id, s.epoch
               FROM sessions s
               WHERE (s.node_id, s.epoch) IN (SELECT node_id, epoch FROM said)
               ORDER BY s.node_id
               FOR SHARE OF s
           ), locked AS MATERIALIZED (
               SELECT c.id, p.word
               FROM commands c
               JOIN said p ON p.id = c.id AND p.node_id = c.node_id AND p.epoch = c.epoch
               JOIN session s ON s.node_id = p.node_id AND s.epoch = p.epoch
               WHERE (p.word = 'acked' AND c.state = 'dispatched')
                  OR (p.word = 'running' AND c.state IN ('dispatched', 'acked'))
                  OR (p.word IN ('pending', 'journal-full', 'journal-unusable') AND c.state = 'dispatched' AND (c.acked_at IS NULL OR c.retry_safe))
               ORDER BY c.id
               FOR NO KEY UPDATE OF c
           )
           UPDATE commands c
           SET state = CASE WHEN l.word IN ('acked', 'running') THEN l.word ELSE 'pending' END,
               not_before = CASE WHEN l.word IN ('acked', 'running') THEN c.not_before
                                 ELSE compute_now() + LEAST(30, 2 ^ LEAST(c.busy_count, 5)) * interval '1 second' END,
               busy_count = CASE WHEN l.word IN ('acked', 'running') THEN c.busy_count ELSE c.busy_count + 1 END,
               busy_reason = CASE WHEN l.word IN ('journal-full', 'journal-unusable') THEN l.word END
           FROM locked l
           WHERE c.id = l.id"#,
        &ids,
        &nodes,
        &epochs,
        &words,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

const fn rank(step: Step) -> u8 {
    match step {
        Step::Busy | Step::JournalFull | Step::JournalUnusable => 0,
        Step::Acked => 1,
        Step::Running => 2,
    }
}

const fn word(step: Step) -> &'static str {
    match step {
        Step::Busy => "pending",
        Step::JournalFull => "journal-full",
        Step::JournalUnusable => "journal-unusable",
        Step::Acked => "acked",
        Step::Running => "running",
    }
}

/// Gives back what was taken and never sent: it waits again, at once.
///
/// # Errors
/// When the statement fails.
pub async fn release(db: &Db, never_sent: &[(CommandId, NodeId, Epoch)]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = never_sent.iter().map(|(id, ..)| id.as_uuid()).collect();
    let nodes: Vec<uuid::Uuid> = never_sent.iter().map(|(_, node, _)| node.as_uuid()).collect();
    let epochs: Vec<i64> = never_sent.iter().map(|(.., epoch)| epoch.to_i64()).collect();
    sqlx::query!(
        r#"WITH locked AS MATERIALIZED (
               SELECT c.id
               FROM commands c
               JOIN UNNEST($1::uuid[], $2::uuid[], $3::bigint[]) AS r (id, node_id, epoch)
                    ON r.id = c.id AND r.node_id = c.node_id AND r.epoch = c.epoch
               WHERE c.state = 'dispatched' AND (c.acked_at IS NULL OR c.retry_safe)
               ORDER BY c.id
               FOR NO KEY UPDATE OF c
           )
           UPDATE commands c SET state = 'pending' FROM locked l WHERE c.id = l.id"#,
        &ids,
        &nodes,
        &epochs,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}
