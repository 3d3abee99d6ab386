//! Membership: which processes work in which role. Shards are divided among the live ones.
//!
//! A member ends minutes after its last sign of life at the latest: the table takes no later end (`workers_end_check`), and no reader
//! believes one (`worker_lives`).

use std::time::Duration;

use schema::{generation::Epoch, id::WorkerId, time::Timestamp};

use crate::{
    Db, DbError, Listed, Role, convert,
    leases::Lease,
    rows::{self, Stored},
};

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
           ON CONFLICT (id) DO UPDATE SET heartbeat_at = EXCLUDED.heartbeat_at, expires_at = EXCLUDED.expires_at"#,
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

/// What a member hears when it says that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its leases, renewed.
    pub leases: Vec<Lease>,
    /// The live members of its role, itself among them, in the order of their ids.
    pub live: Vec<WorkerId>,
    /// Some members of any role are dead and still have a row: [`prune`].
    pub dead: bool,
}

/// Says that a member lives and renews all that it holds, in one statement: idle processes do nothing but this. `None` when it
/// was silent for too long and its row is gone.
///
/// # Errors
/// When the statement fails.
pub async fn beat(db: &Db, id: WorkerId, role: Role, ttl: Duration) -> Result<Option<Membership>, DbError> {
    let row = sqlx::query!(
        r#"WITH beat AS (
               UPDATE workers
               SET heartbeat_at = compute_now(), expires_at = compute_now() + $3 * interval '1 millisecond'
               WHERE id = $1
               RETURNING id
           ), renewed AS (
               UPDATE leases
               SET expires_at = compute_now() + $3 * interval '1 millisecond'
               WHERE holder = $1 AND EXISTS (SELECT FROM beat)
               RETURNING name, epoch
           ), member AS MATERIALIZED (
               SELECT id, role, worker_lives(w) AS lives
               FROM workers w
               WHERE id <> $1
           )
           SELECT (SELECT COALESCE(array_agg(name ORDER BY name), '{}') FROM renewed) AS "names!: Vec<String>",
                  (SELECT COALESCE(array_agg(epoch ORDER BY name), '{}') FROM renewed) AS "epochs!: Vec<i64>",
                  ARRAY(SELECT id FROM member WHERE role = $2 AND lives) AS "others!: Vec<uuid::Uuid>",
                  EXISTS (SELECT FROM member WHERE NOT lives) AS "dead!"
           FROM beat"#,
        id.as_uuid(),
        role.as_str(),
        convert::millis(ttl),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(row.map(|row| {
        let lease = |(name, epoch)| Lease { name, epoch: Epoch::from_i64(epoch) };
        let leases = row.names.into_iter().zip(row.epochs).map(lease).collect();
        let others = row.others.into_iter().map(WorkerId::from_uuid);
        let mut live: Vec<WorkerId> = others.chain([id]).collect();
        live.sort_unstable();
        Membership { leases, live, dead: row.dead }
    }))
}

/// Takes a process out, at a clean end.
///
/// # Errors
/// When the statement fails.
pub async fn leave(db: &Db, id: WorkerId) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM workers WHERE id = $1", id.as_uuid()).execute(db.pool()).await?;
    Ok(())
}

/// Removes the rows of processes that have been silent for too long, or that say so of a time to come, and answers how many there were.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    Ok(sqlx::query!("DELETE FROM workers w WHERE NOT worker_lives(w)").execute(db.pool()).await?.rows_affected())
}

/// The live processes of a role, ordered by id; of every role when `None`.
///
/// # Errors
/// When the statement fails.
pub async fn live(db: &Db, role: Option<Role>) -> Result<Listed<Worker>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT id, role, host, pid, pid_namespace, started_at, heartbeat_at
           FROM workers w
           WHERE worker_lives(w) AND ($1::text IS NULL OR role = $1)
           ORDER BY id"#,
        role.map(Role::as_str),
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    role: String,
    host: String,
    pid: i32,
    pid_namespace: Option<String>,
    started_at: jiff_sqlx::Timestamp,
    heartbeat_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Worker;
    const TABLE: &'static str = "workers";
    const KEY: &'static [&'static str] = &["host", "id"];

    fn read(self) -> Result<Worker, DbError> {
        Ok(Worker {
            id: WorkerId::from_uuid(self.id),
            role: convert::word("role", &self.role)?,
            host: self.host,
            pid: u32::try_from(self.pid).unwrap_or(0),
            pid_namespace: self.pid_namespace,
            started_at: self.started_at.to_jiff(),
            heartbeat_at: self.heartbeat_at.to_jiff(),
        })
    }
}
