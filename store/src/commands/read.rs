//! Reading commands.

use schema::{
    command::CommandState,
    generation::{Epoch, Generation},
    id::{BatchId, BootId, CommandId, JournalId, NodeId},
};

use sqlx::{Row as _, postgres::PgRow};

use super::{Command, Evidence, Late, SentIn};
use crate::{
    Db, DbError, Listed, Page, Txn, convert, page,
    rows::{self, Stored},
};

// The columns of a Row, once; `$tail` is the rest of the statement.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT c.id, c.node_id, n.name AS "node?", c.seq, c.kind, c.lane, c.payload, c.idempotency_key, c.state, c.reason, c.message,
                      c.not_before, c.not_after, c.min_generation, c.batch_id, c.signed_at, c.epoch, c.boot_id, c.journal_id,
                      c.busy_count, c.busy_reason, c.result, c.evidence IS NOT NULL AS "has_evidence!", c.late_state, c.late_reason, c.late_at,
                      c.cancel_requested_at, c.owner, c.created_by, c.created_at, c.dispatched_at, c.acked_at, c.started_at, c.settled_at
               FROM commands c
               LEFT JOIN nodes n ON n.id = c.node_id "# + $tail
            $(, $arg)*
        )
    };
}

/// One command; `None` when there is none.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: CommandId) -> Result<Option<Command>, DbError> {
    rows::find(db.pool(), select!("WHERE c.id = $1", id.as_uuid())).await
}

pub(super) async fn in_txn(txn: &mut Txn, id: CommandId) -> Result<Option<Command>, DbError> {
    rows::find(txn.conn(), select!("WHERE c.id = $1", id.as_uuid())).await
}

/// The commands with these ids that there are, in the order of their ids.
///
/// # Errors
/// When the statement fails.
pub async fn find_many(db: &Db, ids: &[CommandId]) -> Result<Listed<Command>, DbError> {
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    rows::list(db.pool(), select!("WHERE c.id = ANY ($1) ORDER BY c.id", &ids)).await
}

/// The command that has a key.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_key(db: &Db, node: NodeId, key: &str) -> Result<Option<Command>, DbError> {
    rows::find(db.pool(), select!("WHERE c.node_id = $1 AND c.idempotency_key = $2", node.as_uuid(), key)).await
}

/// What a list is narrowed to; every `None` is "any".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The node.
    pub node: Option<NodeId>,
    /// Where the command is.
    pub state: Option<CommandState>,
    /// The word of its kind.
    pub kind: Option<String>,
}

/// Commands, newest first: by number for one node, by id for all. `before` is the `next` of the page before.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, filter: &Filter, before: Option<CommandId>, limit: u32) -> Result<Page<Command>, DbError> {
    let (limit, rows) = page::rows(limit);
    let state = filter.state.map(CommandState::as_str);
    let (kind, before) = (filter.kind.as_deref(), before.map(CommandId::as_uuid));
    let place = |row: &PgRow| row.try_get("id").map(|id| CommandId::from_uuid(id).to_string());
    match filter.node {
        Some(node) => {
            let statement = select!(
                r#"WHERE c.node_id = $1
                     AND ($2::text IS NULL OR c.state = $2)
                     AND ($3::text IS NULL OR c.kind = $3)
                     AND ($4::uuid IS NULL OR c.seq < (SELECT seq FROM commands WHERE id = $4))
                   ORDER BY c.seq DESC
                   LIMIT $5"#,
                node.as_uuid(),
                state,
                kind,
                before,
                rows,
            );
            page::read(db.pool(), statement, limit, place).await
        }
        None => {
            let statement = select!(
                r#"WHERE ($1::text IS NULL OR c.state = $1)
                     AND ($2::text IS NULL OR c.kind = $2)
                     AND ($3::uuid IS NULL OR c.id < $3)
                   ORDER BY c.id DESC
                   LIMIT $4"#,
                state,
                kind,
                before,
                rows,
            );
            page::read(db.pool(), statement, limit, place).await
        }
    }
}

/// How many commands of a node have not ended.
///
/// # Errors
/// When the statement fails.
pub async fn count_open(db: &Db, node: NodeId) -> Result<usize, DbError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM commands
           WHERE node_id = $1 AND state IN ('pending', 'dispatched', 'acked', 'running')"#,
        node.as_uuid()
    )
    .fetch_one(db.pool())
    .await?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// What stands before a command: what its node has of its lane in flight, and what waits there with a lower number.
///
/// # Errors
/// When the statement fails.
pub async fn ahead(db: &Db, command: &Command) -> Result<Vec<CommandId>, DbError> {
    let rows = sqlx::query_scalar!(
        r#"SELECT id FROM commands
           WHERE node_id = $1 AND lane = $2 AND id <> $4
             AND (state IN ('dispatched', 'acked', 'running') OR (state = 'pending' AND seq < $3 AND not_before IS NOT NULL))
           ORDER BY seq"#,
        command.node_id.as_uuid(),
        command.lane.as_str(),
        i64::try_from(command.seq).unwrap_or(i64::MAX),
        command.id.as_uuid(),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(CommandId::from_uuid).collect())
}

/// The node's own word for how an attested command ended.
///
/// # Errors
/// When the statement fails.
pub async fn evidence(db: &Db, id: CommandId) -> Result<Option<Evidence>, DbError> {
    let row = sqlx::query!(
        r#"SELECT evidence AS "payload!", evidence_signature AS "signature!", evidence_key AS "key!"
           FROM commands WHERE id = $1 AND evidence IS NOT NULL"#,
        id.as_uuid()
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| Evidence { payload: row.payload, signature: row.signature, key: row.key }))
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    node_id: uuid::Uuid,
    #[sqlx(rename = "node?")]
    node: Option<String>,
    seq: i64,
    kind: String,
    lane: String,
    payload: String,
    idempotency_key: String,
    state: String,
    reason: Option<String>,
    message: Option<String>,
    not_before: Option<jiff_sqlx::Timestamp>,
    not_after: jiff_sqlx::Timestamp,
    min_generation: Option<i64>,
    batch_id: Option<uuid::Uuid>,
    signed_at: Option<jiff_sqlx::Timestamp>,
    epoch: Option<i64>,
    boot_id: Option<uuid::Uuid>,
    journal_id: Option<uuid::Uuid>,
    busy_count: i32,
    busy_reason: Option<String>,
    result: Option<String>,
    #[sqlx(rename = "has_evidence!")]
    has_evidence: bool,
    late_state: Option<String>,
    late_reason: Option<String>,
    late_at: Option<jiff_sqlx::Timestamp>,
    cancel_requested_at: Option<jiff_sqlx::Timestamp>,
    owner: Option<String>,
    created_by: String,
    created_at: jiff_sqlx::Timestamp,
    dispatched_at: Option<jiff_sqlx::Timestamp>,
    acked_at: Option<jiff_sqlx::Timestamp>,
    started_at: Option<jiff_sqlx::Timestamp>,
    settled_at: Option<jiff_sqlx::Timestamp>,
}

impl Stored for Row {
    type Item = Command;
    const TABLE: &'static str = "commands";
    const KEY: &'static [&'static str] = &["id"];

    fn read(self) -> Result<Command, DbError> {
        let sent_in = match (self.epoch, self.boot_id, self.journal_id) {
            (Some(epoch), Some(boot), Some(journal)) => Some(SentIn {
                epoch: Epoch::from_i64(epoch),
                boot_id: BootId::from_uuid(boot),
                journal_id: JournalId::from_uuid(journal),
            }),
            _ => None,
        };
        let late = match (self.late_state, self.late_at) {
            (Some(state), Some(at)) => Some(Late { state, reason: self.late_reason, at: at.to_jiff() }),
            _ => None,
        };
        convert::json("payload", &self.payload)?;
        self.result.as_deref().map(|result| convert::json("result", result)).transpose()?;
        Ok(Command {
            id: CommandId::from_uuid(self.id),
            node_id: NodeId::from_uuid(self.node_id),
            // What is wrong with the machine's own row is said of that one.
            node: self.node.and_then(|name| name.parse().ok()),
            seq: super::seq(self.seq),
            kind: self.kind,
            lane: convert::word("lane", &self.lane)?,
            payload: self.payload,
            idempotency_key: self.idempotency_key,
            state: convert::word("command state", &self.state)?,
            reason: self.reason,
            message: self.message,
            not_before: convert::time(self.not_before),
            not_after: self.not_after.to_jiff(),
            min_generation: self.min_generation.map(Generation::from_i64),
            batch_id: self.batch_id.map(BatchId::from_uuid),
            signed_at: convert::time(self.signed_at),
            sent_in,
            busy_count: convert::count(self.busy_count),
            busy_reason: self.busy_reason,
            result: self.result,
            has_evidence: self.has_evidence,
            late,
            cancel_requested_at: convert::time(self.cancel_requested_at),
            owner: self.owner,
            created_by: self.created_by,
            created_at: self.created_at.to_jiff(),
            dispatched_at: convert::time(self.dispatched_at),
            acked_at: convert::time(self.acked_at),
            started_at: convert::time(self.started_at),
            settled_at: convert::time(self.settled_at),
        })
    }
}
