//! Commits that a person keeps from coming into force.

use schema::time::Timestamp;

use crate::{
    Db, DbError, Listed, Txn,
    rows::{self, Stored},
};

/// A commit in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The commit, hexadecimal.
    pub commit: String,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Who placed it.
    pub placed_by: String,
    /// When.
    pub created_at: Timestamp,
}

/// Puts a commit in quarantine, or says anew why it is there.
///
/// # Errors
/// When the statement fails.
pub async fn place(
    txn: &mut Txn,
    source: &str,
    commit: &str,
    owner: &str,
    reason: &str,
    placed_by: &str,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO quarantined (source, commit, owner, reason, placed_by) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT (source, commit) DO UPDATE
           SET owner = EXCLUDED.owner, reason = EXCLUDED.reason, placed_by = EXCLUDED.placed_by"#,
        source,
        commit,
        owner,
        reason,
        placed_by,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Lets a commit go; `false` when it was not held.
///
/// # Errors
/// When the statement fails.
pub async fn lift(txn: &mut Txn, source: &str, commit: &str) -> Result<bool, DbError> {
    let done = sqlx::query!("DELETE FROM quarantined WHERE source = $1 AND commit = $2", source, commit)
        .execute(txn.conn())
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether, by whom and why a commit is held.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, source: &str, commit: &str) -> Result<Option<Quarantined>, DbError> {
    select_one(db.pool(), source, commit).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn find_in(txn: &mut Txn, source: &str, commit: &str) -> Result<Option<Quarantined>, DbError> {
    select_one(txn.conn(), source, commit).await
}

async fn select_one(db: impl sqlx::PgExecutor<'_>, source: &str, commit: &str) -> Result<Option<Quarantined>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT commit, owner, reason, placed_by, created_at FROM quarantined WHERE source = $1 AND commit = $2",
        source,
        commit
    );
    rows::find(db, statement).await
}

/// The commits of a source that are held, newest first.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, source: &str, limit: u32) -> Result<Listed<Quarantined>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        "SELECT commit, owner, reason, placed_by, created_at FROM quarantined WHERE source = $1 ORDER BY created_at DESC, commit LIMIT $2",
        source,
        i64::from(limit),
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    commit: String,
    owner: String,
    reason: String,
    placed_by: String,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Quarantined;
    const TABLE: &'static str = "quarantined";
    const KEY: &'static [&'static str] = &["commit"];

    fn read(self) -> Result<Quarantined, DbError> {
        Ok(Quarantined {
            commit: self.commit,
            owner: self.owner,
            reason: self.reason,
            placed_by: self.placed_by,
            created_at: self.created_at.to_jiff(),
        })
    }
}
