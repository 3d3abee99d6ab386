//! Leases: who may act for a shard or a singleton, and until when.
//!
//! A lease has an epoch that rises at each change of holder. Whoever acts under a lease names the epoch it got; a claim
//! or a fenced transaction of an older epoch changes nothing. Times are the database's.

use std::time::Duration;

use schema::{generation::Epoch, id::WorkerId};

use crate::{Db, DbError, Role, Txn, convert};

/// A lease that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Its name: [`shard`] or [`singleton`].
    pub name: String,
    /// The epoch of this holder.
    pub epoch: Epoch,
}

/// The lease of one shard of a role.
#[must_use]
pub fn shard(role: Role, shard: u16) -> String {
    match role {
        Role::Controllers => format!("shard:{shard}"),
        role => format!("{role}/shard:{shard}"),
    }
}

/// The lease of a job that one process runs at a time.
#[must_use]
pub fn singleton(name: &str) -> String {
    format!("singleton:{name}")
}

/// The fenced transaction's lease has another holder or epoch by now.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Somebody else holds it; nothing may be written.
    #[error("the lease {0} was taken over")]
    Stale(String),
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Takes every one of `names` that is free, expired, of a time that cannot be (the clock was set back) or already `holder`'s, for `ttl` from now. The answer holds those
/// that `holder` has afterwards. Never waits: a lease that a fenced transaction of its holder keeps is left out.
///
/// # Errors
/// When a statement fails.
pub async fn acquire(db: &Db, holder: WorkerId, names: &[String], ttl: Duration) -> Result<Vec<Lease>, DbError> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    sqlx::query!(
        r#"INSERT INTO leases (name, epoch, holder, expires_at)
           SELECT name, 0, NULL, compute_now()
           FROM UNNEST($1::text[]) AS wanted (name)
           WHERE NOT EXISTS (SELECT FROM leases l WHERE l.name = wanted.name)
           ON CONFLICT (name) DO NOTHING"#,
        &names,
    )
    .execute(db.pool())
    .await?;
    let rows = sqlx::query!(
        r#"WITH free AS (
               SELECT name
               FROM leases
               WHERE name = ANY($1) AND (holder IS NULL OR holder = $2 OR expires_at <= compute_now()
                                           OR expires_at > compute_now() + $3 * interval '10 milliseconds')
               FOR UPDATE SKIP LOCKED
           )
           UPDATE leases l
           SET epoch = CASE WHEN l.holder = $2 THEN l.epoch ELSE l.epoch + 1 END,
               holder = $2,
               expires_at = compute_now() + $3 * interval '1 millisecond'
           FROM free
           WHERE l.name = free.name
           RETURNING l.name, l.epoch"#,
        &names,
        holder.as_uuid(),
        convert::millis(ttl),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| Lease { name: row.name, epoch: Epoch::from_i64(row.epoch) }).collect())
}

/// Gives leases back, those that `holder` still has.
///
/// # Errors
/// When the statement fails.
pub async fn release(db: &Db, holder: WorkerId, names: &[String]) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE leases SET holder = NULL, expires_at = compute_now() WHERE holder = $1 AND name = ANY($2)",
        holder.as_uuid(),
        names,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// The leases of a holder that have not expired.
///
/// # Errors
/// When the statement fails.
pub async fn held(db: &Db, holder: WorkerId) -> Result<Vec<Lease>, DbError> {
    let rows = sqlx::query!(
        "SELECT name, epoch FROM leases WHERE holder = $1 AND expires_at > compute_now() ORDER BY name",
        holder.as_uuid()
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| Lease { name: row.name, epoch: Epoch::from_i64(row.epoch) }).collect())
}

/// Makes the rest of this transaction conditional on the lease: nobody takes it over before the commit.
///
/// # Errors
/// [`FenceError::Stale`] when the holder or the epoch is another one.
pub async fn fence(txn: &mut Txn, holder: WorkerId, lease: &Lease) -> Result<(), FenceError> {
    let row = sqlx::query_scalar!(
        r#"SELECT true AS "held!" FROM leases WHERE name = $1 AND epoch = $2 AND holder = $3 FOR KEY SHARE"#,
        lease.name,
        lease.epoch.to_i64(),
        holder.as_uuid(),
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?;
    row.map(|_| ()).ok_or_else(|| FenceError::Stale(lease.name.clone()))
}
