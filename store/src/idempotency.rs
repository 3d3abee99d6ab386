//! Mutations that were answered: a repeat gets the same answer, another request under the same key is a conflict.

use schema::digest::Digest;

use crate::{Db, DbError, Txn, convert};

/// Whether a mutation is to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// It is new: carry it out, then [`finish`] in the same transaction.
    New,
    /// It was carried out before; this was the answer.
    Replay(String),
    /// The key was used for another request.
    Conflict,
}

/// Claims a key for one request, in the transaction of the mutation. A second request with the key waits for this
/// transaction's end.
///
/// # Errors
/// When a statement fails.
pub async fn begin(
    txn: &mut Txn,
    identity: &str,
    key: &str,
    method: &str,
    request_hash: &Digest,
) -> Result<Begin, DbError> {
    let inserted = sqlx::query!(
        "INSERT INTO idempotency (identity, key, method, request_hash) VALUES ($1, $2, $3, $4) ON CONFLICT (identity, key) DO NOTHING",
        identity,
        key,
        method,
        convert::digest_column(request_hash),
    )
    .execute(txn.conn())
    .await?;
    if inserted.rows_affected() == 1 {
        return Ok(Begin::New);
    }
    let row = sqlx::query!(
        "SELECT method, request_hash, response FROM idempotency WHERE identity = $1 AND key = $2",
        identity,
        key
    )
    .fetch_one(txn.conn())
    .await?;
    let same = row.method == method && row.request_hash == request_hash.as_bytes();
    Ok(match row.response {
        Some(response) if same => Begin::Replay(response),
        _ => Begin::Conflict,
    })
}

/// Stores the answer, in the same transaction.
///
/// # Errors
/// When the statement fails.
pub async fn finish(txn: &mut Txn, identity: &str, key: &str, response: &str) -> Result<(), DbError> {
    sqlx::query!("UPDATE idempotency SET response = $3 WHERE identity = $1 AND key = $2", identity, key, response)
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// Forgets answers older than a day.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done = sqlx::query!("DELETE FROM idempotency WHERE created_at < compute_now() - interval '1 day'")
        .execute(db.pool())
        .await?;
    Ok(done.rows_affected())
}
