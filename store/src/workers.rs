//! Membership: which processes work in which role. Shards are divided among the live ones.

use std::time::Duration;

use schema::{id::WorkerId, time::Timestamp};

use crate::{Db, DbError, Role, convert};

/// One process in one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its id, new at each start.
    pub id: WorkerId,
    /// What it does.
    pub role: Role,
    /// Where it runs, for people.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The namespace of that id; `None` where there are none.
    pub pid_namespace: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last said that it lives.
    pub heartbeat_at: Timestamp,
}

/// The process-id namespace of this process, as the kernel names it: a process id says nothing outside of its own.
#[must_use]
pub fn pid_namespace() -> Option<String> {
    Some(std::fs::read_link("/proc/self/ns/pid").ok()?.display().to_string())
}

/// Enters this process, for `ttl`. Once more is no harm: the answer may have been lost.
///
/// # Errors
/// When the statement fails.
pub async fn join(db: &Db, id: WorkerId, role: Role, host: &str, pid: u32, ttl: Duration) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO workers (id, role, host, pid, pid_namespace, expires_at)
           VALUES ($1, $2, $3, $4, $5, compute_now() + $6 * interval '1 millisecond')
           ON CONFLICT (id) DO UPDATE SET expires_at = EXCLUDED.expires_at"#,
        id.as_uuid(),
        role.as_str(),
        host,
        i32::try_from(pid).unwrap_or(0),
        pid_namespace(),
        convert::millis(ttl),
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// Says that a process lives. `false` when its row is gone because it was silent for too long: it then joins again,
/// under a new id.
///
/// # Errors
/// When the statement fails.
pub async fn heartbeat(db: &Db, id: WorkerId, ttl: Duration) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE workers SET heartbeat_at = compute_now(), expires_at = compute_now() + $2 * interval '1 millisecond' WHERE id = $1",
        id.as_uuid(),
        convert::millis(ttl),
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes a process out, at a clean end.
///
/// # Errors
/// When the statement fails.
pub async fn leave(db: &Db, id: WorkerId) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM workers WHERE id = $1", id.as_uuid()).execute(db.pool()).await?;
    Ok(())
}

/// Removes the rows of processes that have been silent for too long, or whose sign of life is of a time to come, and answers how many there were.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    Ok(sqlx::query!(
        "DELETE FROM workers WHERE expires_at <= compute_now() OR heartbeat_at > compute_now() + interval '1 minute'"
    )
    .execute(db.pool())
    .await?
    .rows_affected())
}

/// The live processes of a role, ordered by id; of every role when `None`.
///
/// # Errors
/// When the statement fails.
pub async fn live(db: &Db, role: Option<Role>) -> Result<Vec<Worker>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, role, host, pid, pid_namespace, started_at, heartbeat_at
           FROM workers
           WHERE expires_at > compute_now() AND heartbeat_at <= compute_now() + interval '1 minute' AND ($1::text IS NULL OR role = $1)
           ORDER BY id"#,
        role.map(Role::as_str),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Worker {
                id: WorkerId::from_uuid(row.id),
                role: convert::word("role", &row.role)?,
                host: row.host,
                pid: u32::try_from(row.pid).unwrap_or(0),
                pid_namespace: row.pid_namespace,
                started_at: row.started_at.to_jiff(),
                heartbeat_at: row.heartbeat_at.to_jiff(),
            })
        })
        .collect()
}
