//! Who works with which revision of the control plane's keys: its processes, and gateways apart.

use std::time::Duration;

use jiff_sqlx::ToSqlx as _;
use schema::time::Timestamp;

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A process or a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Host and process, or the gateway's name.
    pub name: String,
    /// It is a gateway apart.
    pub is_gateway: bool,
    /// The revision that it works with.
    pub revision: u64,
    /// When it last said so.
    pub seen_at: Timestamp,
    /// How far the clock of a process's host is from the one here, in milliseconds; positive when it is ahead.
    pub clock_off: i64,
    /// When a gateway's certificates end.
    pub expires_at: Timestamp,
    /// Who said that this gateway gets no more certificates.
    pub ended_by: Option<String>,
}

/// What a process says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said<'a> {
    /// Host and process.
    pub name: &'a str,
    /// The revision of the keys that it works with.
    pub revision: u64,
    /// How far the clock of its host is from the one here, in milliseconds; positive when it is ahead.
    pub clock_off: i64,
}

/// Notes what a process says of itself, for `ttl`, and forgets those that are gone.
///
/// # Errors
/// When a statement fails.
pub async fn process(db: &Db, said: Said<'_>, ttl: Duration) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM key_holders WHERE expires_at <= compute_now() AND ended_by IS NULL")
        .execute(db.pool())
        .await?;
    sqlx::query!(
        r#"INSERT INTO key_holders (name, is_gateway, revision, expires_at, clock_off)
           VALUES ($1, false, $2, compute_now() + $3 * interval '1 millisecond', $4)
           ON CONFLICT (name) DO UPDATE
           SET revision = EXCLUDED.revision, seen_at = compute_now(), expires_at = EXCLUDED.expires_at,
               clock_off = EXCLUDED.clock_off"#,
        said.name,
        i64::try_from(said.revision).unwrap_or(i64::MAX),
        convert::millis(ttl),
        said.clock_off,
    )
    .execute(db.pool())
    .await?;
    Ok(())
}

/// Takes a process out, at a clean end.
///
/// # Errors
/// When the statement fails.
pub async fn leave(db: &Db, name: &str) -> Result<(), DbError> {
    sqlx::query!("DELETE FROM key_holders WHERE name = $1 AND NOT is_gateway", name).execute(db.pool()).await?;
    Ok(())
}

/// Notes that a gateway works with a revision and until when its certificate counts. `false` when it was ended.
///
/// # Errors
/// When the statement fails.
pub async fn gateway(db: &Db, name: &str, revision: u64, certificate_ends: Timestamp) -> Result<bool, DbError> {
    let lives = sqlx::query_scalar!(
        r#"INSERT INTO key_holders AS k (name, is_gateway, revision, expires_at) VALUES ($1, true, $2, $3)
           ON CONFLICT (name) DO UPDATE
           SET revision = EXCLUDED.revision, seen_at = compute_now(), expires_at = EXCLUDED.expires_at
           RETURNING ended_by IS NULL AS "lives!""#,
        name,
        i64::try_from(revision).unwrap_or(i64::MAX),
        certificate_ends.to_sqlx() as _,
    )
    .fetch_one(db.pool())
    .await?;
    Ok(lives)
}

/// A gateway gets no more certificates; `false` when none of this name was ever seen.
///
/// # Errors
/// When the statement fails.
pub async fn end_gateway(txn: &mut Txn, name: &str, by: &str) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE key_holders SET ended_by = COALESCE(ended_by, $2) WHERE name = $1 AND is_gateway",
        name,
        by,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Everybody who lives or was ended, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<Holder>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT name, is_gateway, revision, seen_at, expires_at, ended_by, clock_off
           FROM key_holders
           WHERE expires_at > compute_now() OR ended_by IS NOT NULL
           ORDER BY is_gateway, name"#,
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    is_gateway: bool,
    revision: i64,
    seen_at: jiff_sqlx::Timestamp,
    expires_at: jiff_sqlx::Timestamp,
    ended_by: Option<String>,
    clock_off: i64,
}

impl Stored for Row {
    type Item = Holder;
    const TABLE: &'static str = "key_holders";
    const KEY: &'static [&'static str] = &["name"];

    fn read(self) -> Result<Holder, DbError> {
        Ok(Holder {
            name: self.name,
            is_gateway: self.is_gateway,
            revision: u64::try_from(self.revision).map_err(|e| DbError::corrupt("revision", e))?,
            seen_at: self.seen_at.to_jiff(),
            clock_off: self.clock_off,
            expires_at: self.expires_at.to_jiff(),
            ended_by: self.ended_by,
        })
    }
}
