//! Parts of the fleet that a person stopped by hand: their machines keep what they are assigned.

use jiff_sqlx::ToSqlx;
use schema::time::Timestamp;

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A suspension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// What stands still: `fleet`, or `kind/name` of a site, a pool or a node.
    pub scope: String,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
    /// Who placed it.
    pub placed_by: String,
    /// When.
    pub created_at: Timestamp,
}

/// Suspends a scope, or says anew why and until when.
///
/// # Errors
/// When the statement fails.
pub async fn place(
    txn: &mut Txn,
    scope: &str,
    owner: &str,
    reason: &str,
    until: Option<Timestamp>,
    placed_by: &str,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO suspensions (scope, owner, reason, until, placed_by) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT (scope) DO UPDATE
           SET owner = EXCLUDED.owner, reason = EXCLUDED.reason, until = EXCLUDED.until, placed_by = EXCLUDED.placed_by"#,
        scope,
        owner,
        reason,
        until.map(ToSqlx::to_sqlx) as _,
        placed_by,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Lets a scope go on; `false` when it was not suspended.
///
/// # Errors
/// When the statement fails.
pub async fn lift(txn: &mut Txn, scope: &str) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "DELETE FROM suspensions WHERE scope = $1 RETURNING (until IS NULL OR until > compute_now()) AS \"stood!\"",
        scope
    )
    .fetch_optional(txn.conn())
    .await?;
    Ok(done.is_some_and(|row| row.stood))
}

/// Those that stand, by scope.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<Suspension>, DbError> {
    select(db.pool()).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn list_in(txn: &mut Txn) -> Result<Listed<Suspension>, DbError> {
    select(txn.conn()).await
}

async fn select(db: impl sqlx::PgExecutor<'_>) -> Result<Listed<Suspension>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT scope, owner, reason, until, placed_by, created_at
           FROM suspensions
           WHERE until IS NULL OR until > compute_now()
           ORDER BY scope"#,
    );
    rows::list(db, statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    scope: String,
    owner: String,
    reason: String,
    until: Option<jiff_sqlx::Timestamp>,
    placed_by: String,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Suspension;
    const TABLE: &'static str = "suspensions";
    const KEY: &'static [&'static str] = &["scope"];

    fn read(self) -> Result<Suspension, DbError> {
        Ok(Suspension {
            scope: self.scope,
            owner: self.owner,
            reason: self.reason,
            until: convert::time(self.until),
            placed_by: self.placed_by,
            created_at: self.created_at.to_jiff(),
        })
    }
}

/// Forgets those that ended a day ago, and answers how many.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let done = sqlx::query!("DELETE FROM suspensions WHERE until < compute_now() - interval '1 day'")
        .execute(db.pool())
        .await?;
    Ok(done.rows_affected())
}
