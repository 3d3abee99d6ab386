//! Commands that wait for people, and the proof that people agreed.

use schema::{
    command::Reason,
    id::{CommandId, NodeId},
};

use crate::{Db, DbError, Txn, poke::Poke, queue};

/// Keeps a command that no gateway was handed yet until its batch lets it go. `false` when one was.
///
/// # Errors
/// When the statement fails.
pub async fn hold(txn: &mut Txn, id: CommandId) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE commands SET not_before = NULL WHERE id = $1 AND state = 'pending' AND dispatched_at IS NULL",
        id.as_uuid()
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lets a command go that waits, with the proof that people agreed; nothing is proven where nobody has to. `false` when it does
/// not wait any more.
///
/// # Errors
/// When a statement fails.
pub async fn approve(txn: &mut Txn, id: CommandId, approval: Option<&[u8]>) -> Result<bool, DbError> {
    let node = sqlx::query_scalar!(
        r#"UPDATE commands SET approval = $2, not_before = COALESCE(not_before, compute_now())
           WHERE id = $1 AND state = 'pending' AND dispatched_at IS NULL
           RETURNING node_id"#,
        id.as_uuid(),
        approval,
    )
    .fetch_optional(txn.conn())
    .await?;
    let Some(node) = node else { return Ok(false) };
    queue::enqueue(txn, &queue::COMMAND, [NodeId::from_uuid(node)]).await?;
    Ok(true)
}

/// The proof that went with a command.
///
/// # Errors
/// When the statement fails.
pub async fn approval_of(txn: &mut Txn, id: CommandId) -> Result<Option<Vec<u8>>, DbError> {
    let approval = sqlx::query_scalar!("SELECT approval FROM commands WHERE id = $1", id.as_uuid());
    Ok(approval.fetch_optional(txn.conn()).await?.flatten())
}

/// The proof as a gateway sends it, empty when nothing was proven; `None` when there is no such command.
///
/// # Errors
/// When the statement fails.
pub async fn sent_approval(db: &Db, id: CommandId) -> Result<Option<Vec<u8>>, DbError> {
    let approval = sqlx::query_scalar!("SELECT approval FROM commands WHERE id = $1", id.as_uuid());
    Ok(approval.fetch_optional(db.pool()).await?.map(Option::unwrap_or_default))
}

/// Has a command sent again that its node refused for approvals that were not sent with it, 1 to 30 seconds later, doubling. The
/// node's word is that it did not accept it; one that was acknowledged stays as it is. `false` when it was not sent, or when it is
/// too late. Whoever calls this holds the command ([`lock`](super::lock)).
///
/// # Errors
/// When the statement fails.
pub async fn send_again(txn: &mut Txn, node: NodeId, id: CommandId) -> Result<bool, DbError> {
    let why = Reason::APPROVALS_SPOILT;
    let done = sqlx::query!(
        r#"UPDATE commands
           SET state = 'pending',
               not_before = compute_now() + LEAST(30, 2 ^ LEAST(busy_count, 5)) * interval '1 second',
               busy_count = busy_count + 1,
               busy_reason = $3
           WHERE id = $1 AND node_id = $2 AND state = 'dispatched' AND acked_at IS NULL AND not_after > compute_now()"#,
        id.as_uuid(),
        node.as_uuid(),
        why.as_str(),
    )
    .execute(txn.conn())
    .await?;
    let again = done.rows_affected() == 1;
    if again {
        txn.poke(Poke::Commands(node));
    }
    Ok(again)
}
