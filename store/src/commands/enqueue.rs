//! A command comes in: one row with its number and its body, in the transaction of whoever wants it.

use std::time::Duration;

use jiff_sqlx::ToSqlx;
use schema::{
    canonical,
    command::{CommandBody, CommandKind, CommandState, PayloadError, SecretRef},
    generation::Generation,
    id::{BatchId, CommandId, NodeId},
    node::Role,
    time::Timestamp,
};
use serde_json::{Value, json};

use super::Command;
use crate::{Db, DbError, Txn, convert, node_certs, outbox, queue};

/// A command to queue.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCommand {
    /// For which node.
    pub node_id: NodeId,
    /// What to do.
    pub kind: CommandKind,
    /// What to do it with; defaults are filled in.
    pub payload: Value,
    /// Unique per node: a repeat returns the first command. `wf:<workflow>:<step>` names a workflow as the owner.
    pub idempotency_key: String,
    /// Never begun from here on.
    pub not_after: Timestamp,
    /// What the node must have applied.
    pub min_generation: Option<Generation>,
    /// The destructive batch that it is part of.
    pub batch_id: Option<BatchId>,
    /// The secrets that it needs, by reference.
    pub secrets: Vec<SecretRef>,
    /// Who wants it.
    pub created_by: String,
}

/// A queued command.
#[derive(Debug, Clone, PartialEq)]
pub struct Enqueued {
    /// The command; the first one when its key came again.
    pub command: Command,
    /// The bytes to sign.
    pub body: Vec<u8>,
    /// Whether it was queued by this call.
    pub fresh: bool,
}

/// Why a command was not queued.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// No such node.
    #[error("there is no node {0}")]
    UnknownNode(NodeId),
    /// The node is retired.
    #[error("the node is retired")]
    Retired,
    /// The node's identity was revoked and nothing has taken its place.
    #[error("the node's identity was revoked{}", because(.0))]
    Revoked(Option<String>),
    /// The key stands for a command of another kind.
    #[error("the key was used for {id}, which is a {kind}")]
    Conflict {
        /// The command that has the key.
        id: CommandId,
        /// Its kind.
        kind: String,
    },
    /// The node's certificate allows only other kinds.
    #[error("the node runs a restricted identity that does not accept {kind}; it accepts {}", list(allowed))]
    Restricted {
        /// The kind that was wanted.
        kind: CommandKind,
        /// What the certificate allows.
        allowed: Vec<String>,
    },
    /// Machines of the node's role run no such command.
    #[error("a machine of the role {role} does not run {kind}; machines of these roles do: {}", roles(*kind))]
    Role {
        /// The kind that was wanted.
        kind: CommandKind,
        /// The node's role.
        role: Role,
    },
    /// The deadline is further away than a signature is good for.
    #[error("a command waits 12 hours at most")]
    TooLate,
    /// The payload is not one of this kind.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

fn roles(kind: CommandKind) -> String {
    kind.row().roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

fn list(words: &[String]) -> String {
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

/// A worker signs for half of its day, so a signature is good for so long at least.
const LONGEST: schema::time::Duration = schema::time::Duration::from_secs(12 * 3_600);

/// How long whoever signs a command by itself has before the reconciler does.
const SIGNED_WITHIN: Duration = Duration::from_secs(2);

/// Queues a command under the node's next number. The `command` reconciler is woken in the same transaction.
///
/// # Errors
/// [`EnqueueError`] says why not.
pub async fn enqueue(txn: &mut Txn, new: &NewCommand) -> Result<Enqueued, EnqueueError> {
    put(txn, new, Duration::ZERO).await
}

/// The same, for a process that signs the command straight after its commit: the reconciler looks a little later.
///
/// # Errors
/// [`EnqueueError`] says why not.
pub async fn enqueue_to_sign(txn: &mut Txn, new: &NewCommand) -> Result<Enqueued, EnqueueError> {
    put(txn, new, SIGNED_WITHIN).await
}

async fn put(txn: &mut Txn, new: &NewCommand, signed_within: Duration) -> Result<Enqueued, EnqueueError> {
    let payload = new.kind.check_payload(&new.payload)?;
    let id = new.node_id.as_uuid();
    // A repeat takes no number and no lock.
    let node = sqlx::query!(
        r#"UPDATE nodes
           SET next_cmd_seq = next_cmd_seq + 1
           WHERE id = $1 AND NOT EXISTS (SELECT FROM commands WHERE node_id = $1 AND idempotency_key = $2)
           RETURNING next_cmd_seq - 1 AS "seq!", name, role, provision_state, node_allowed_kinds(id) AS allowed, compute_now() AS "now!",
                     (SELECT COALESCE((array_agg(c.revoked_reason ORDER BY c.revoked_at DESC NULLS LAST))[1], '') FROM node_certs c
                      WHERE c.node_id = nodes.id
                      HAVING count(*) > 0
                         AND count(*) FILTER (WHERE c.revoked_at IS NULL
                                                AND c.identity_generation = nodes.identity_generation) = 0) AS revoked"#,
        id,
        new.idempotency_key,
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    let Some(node) = node else {
        return repeat(txn, new).await?.ok_or(EnqueueError::UnknownNode(new.node_id));
    };
    if new.not_after > LONGEST.after(node.now.to_jiff()) {
        return Err(EnqueueError::TooLate);
    }
    acceptable(new.kind, (&node.provision_state, &node.role), node.revoked, node.allowed)?;
    let body = CommandBody {
        id: CommandId::generate(),
        node_id: new.node_id,
        kind: new.kind,
        seq: super::seq(node.seq),
        payload,
        not_after: new.not_after,
        min_generation: new.min_generation,
        batch: new.batch_id,
        secrets: new.secrets.clone(),
        journal: None,
    };
    let bytes = body.to_bytes();
    let payload = canonical::to_vec(&body.payload).map_err(|error| DbError::corrupt("payload", error))?;
    let payload = String::from_utf8_lossy(&payload).into_owned();
    let row = new.kind.row();
    let owner = owner(&new.idempotency_key);
    let mark = txn.marker().and_then(|marker| marker.command(&bytes));
    let inserted = sqlx::query!(
        r#"INSERT INTO commands (id, node_id, seq, kind, retry_safe, lane, payload, idempotency_key, not_after, min_generation, batch_id, body,
                                 owner, created_by, mark)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
           ON CONFLICT (node_id, idempotency_key) DO NOTHING
           RETURNING not_before, created_at"#,
        body.id.as_uuid(),
        id,
        node.seq,
        new.kind.as_str(),
        row.retry_safe,
        row.lane.as_str(),
        payload,
        new.idempotency_key,
        new.not_after.to_sqlx() as _,
        new.min_generation.map(Generation::to_i64),
        new.batch_id.map(BatchId::as_uuid),
        bytes,
        owner,
        new.created_by,
        mark,
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    let Some(inserted) = inserted else {
        // Another transaction queued it between the two statements; the number stays unused.
        return repeat(txn, new).await?.ok_or(EnqueueError::UnknownNode(new.node_id));
    };
    let command = Command {
        id: body.id,
        node_id: new.node_id,
        node: Some(convert::word("node name", &node.name)?),
        seq: body.seq,
        kind: new.kind.to_string(),
        lane: row.lane,
        payload,
        idempotency_key: new.idempotency_key.clone(),
        state: CommandState::Pending,
        reason: None,
        message: None,
        not_before: convert::time(inserted.not_before),
        not_after: new.not_after,
        min_generation: new.min_generation,
        batch_id: new.batch_id,
        signed_at: None,
        sent_in: None,
        busy_count: 0,
        busy_reason: None,
        result: None,
        has_evidence: false,
        late: None,
        cancel_requested_at: None,
        owner,
        created_by: new.created_by.clone(),
        created_at: inserted.created_at.to_jiff(),
        dispatched_at: None,
        acked_at: None,
        started_at: None,
        settled_at: None,
    };
    let doc = json!({ "commandId": command.id, "nodeId": command.node_id, "kind": command.kind, "seq": command.seq });
    outbox::append(txn, &[outbox::NewEvent::new(outbox::COMMAND_QUEUED, command.node_id, doc)]).await?;
    if signed_within.is_zero() {
        queue::enqueue(txn, &queue::COMMAND, [new.node_id]).await?;
    } else {
        queue::enqueue_later(txn, &queue::COMMAND, [new.node_id], signed_within).await?;
    }
    Ok(Enqueued { command, body: bytes, fresh: true })
}

/// Whether a command of this kind would be queued for this node now; nothing is.
///
/// # Errors
/// [`EnqueueError`] says why not.
pub async fn may_enqueue(db: &Db, id: NodeId, kind: CommandKind) -> Result<(), EnqueueError> {
    let node = sqlx::query!(
        r#"SELECT role, provision_state, node_allowed_kinds(id) AS allowed FROM nodes WHERE id = $1"#,
        id.as_uuid(),
    )
    .fetch_optional(db.pool())
    .await
    .map_err(DbError::from)?;
    let node = node.ok_or(EnqueueError::UnknownNode(id))?;
    let revoked = node_certs::revocation(db, id).await?.map(|revocation| revocation.reason);
    acceptable(kind, (&node.provision_state, &node.role), revoked, node.allowed)
}

fn acceptable(
    kind: CommandKind,
    (provision, role): (&str, &str),
    revoked: Option<String>,
    allowed: Option<Vec<String>>,
) -> Result<(), EnqueueError> {
    if provision == "retired" {
        return Err(EnqueueError::Retired);
    }
    if let Some(reason) = revoked {
        return Err(EnqueueError::Revoked(Some(reason).filter(|reason| !reason.is_empty())));
    }
    if let Some(allowed) = allowed.filter(|allowed| !allowed.iter().any(|word| word == kind.as_str())) {
        return Err(EnqueueError::Restricted { kind, allowed });
    }
    let role: Role = convert::word("role", role)?;
    if kind.row().roles.contains(&role) { Ok(()) } else { Err(EnqueueError::Role { kind, role }) }
}

/// The command that has the key already.
async fn repeat(txn: &mut Txn, new: &NewCommand) -> Result<Option<Enqueued>, EnqueueError> {
    let found = sqlx::query!(
        "SELECT id, kind, body FROM commands WHERE node_id = $1 AND idempotency_key = $2",
        new.node_id.as_uuid(),
        new.idempotency_key
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    let Some(found) = found else { return Ok(None) };
    let id = CommandId::from_uuid(found.id);
    if found.kind != new.kind.as_str() {
        return Err(EnqueueError::Conflict { id, kind: found.kind });
    }
    let command = super::read::in_txn(txn, id).await?;
    Ok(command.map(|command| Enqueued { command, body: found.body, fresh: false }))
}

/// Who waits for a command, as its key says.
fn owner(key: &str) -> Option<String> {
    let (workflow, _step) = key.strip_prefix("wf:")?.split_once(':')?;
    (!workflow.is_empty()).then(|| format!("wf:{workflow}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_the_workflow_that_waits() {
        assert_eq!(owner("wf:01abc:step-2").as_deref(), Some("wf:01abc"));
        assert_eq!(owner("wf:01abc:a:b").as_deref(), Some("wf:01abc"));
        for other in ["api:me:wf:1:2", "wf:", "wf::x", "wf:alone", "acceptance:node_1:1:diag.nvml"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
