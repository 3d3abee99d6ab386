//! Commands that wait for people, and the proof that people agreed.

use schema::id::CommandId;

use crate::{DbError, Txn, queue};

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
    queue::enqueue(txn, &queue::COMMAND, [schema::id::NodeId::from_uuid(node)]).await?;
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
