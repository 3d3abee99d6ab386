//! How far each repository was followed: remote, verified, planned, applied.

use schema::time::Timestamp;

use crate::{
    Db, DbError, Listed, Txn, convert,
    poke::Poke,
    rows::{self, Stored},
};

// The columns of a Row, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT name, url, branch, path, remote_commit, remote_at, verified_commit, verified_at, planned_commit, planned_at,
                      applied_commit, applied_at, rolled_back_from, accepted_commit, state, reason, detail, since, checked_at
               FROM sources "# + $tail
            $(, $arg)*
        )
    };
}

/// A commit, and since when the stage is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The commit id, hexadecimal.
    pub commit: String,
    /// When the stage got there.
    pub at: Timestamp,
}

/// The state of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name; `fleet` for the fleet repository.
    pub name: String,
    /// Where it is fetched from.
    pub url: String,
    /// The branch that is followed.
    pub branch: String,
    /// The folder that holds the fleet, empty for the root.
    pub path: String,
    /// The tip of the remote branch.
    pub remote: Option<At>,
    /// The last commit that was verified.
    pub verified: Option<At>,
    /// The last commit that a plan was made for.
    pub planned: Option<At>,
    /// The commit that is in force.
    pub applied: Option<At>,
    /// After a rollback: the commit that was in force before. A newer one has to follow it.
    pub rolled_back_from: Option<String>,
    /// A commit that a person accepted although it does not follow the one in force; over once a commit comes into force.
    pub accepted: Option<String>,
    /// What it does or why it does not, kebab-case and stable.
    pub state: String,
    /// The state for people.
    pub reason: Option<String>,
    /// The diagnostics of the state; `None` when all is well.
    pub detail: Option<serde_json::Value>,
    /// Since when the state holds.
    pub since: Timestamp,
    /// When the remote was last looked at.
    pub checked_at: Option<Timestamp>,
}

/// The stages that follow a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Seen at the remote.
    Remote,
    /// Verified along the first-parent chain.
    Verified,
    /// Planned.
    Planned,
    /// In force.
    Applied,
}

/// Why a stage did not move.
#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    /// The stage is at another commit than the caller believed.
    #[error("the {stage:?} commit is {found:?}, not {expected:?}")]
    Moved {
        /// The stage.
        stage: Stage,
        /// What the caller believed.
        expected: Option<String>,
        /// What is stored.
        found: Option<String>,
    },
    /// There is no such source.
    #[error("there is no source {0:?}")]
    Missing(String),
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Creates the source or changes where it points, and answers its state. A changed URL or branch keeps the commits: the
/// verified one must still be on the new branch.
///
/// # Errors
/// When the statement fails.
pub async fn ensure(txn: &mut Txn, name: &str, url: &str, branch: &str, path: &str) -> Result<Source, DbError> {
    sqlx::query!(
        r#"INSERT INTO sources (name, url, branch, path, state)
           VALUES ($1, $2, $3, $4, 'starting')
           ON CONFLICT (name) DO UPDATE
           SET url = EXCLUDED.url, branch = EXCLUDED.branch, path = EXCLUDED.path
           WHERE (sources.url, sources.branch, sources.path) IS DISTINCT FROM (EXCLUDED.url, EXCLUDED.branch, EXCLUDED.path)"#,
        name,
        url,
        branch,
        path,
    )
    .execute(txn.conn())
    .await?;
    let source = rows::find(txn.conn(), select!("WHERE name = $1", name)).await?;
    source.ok_or_else(|| DbError::other(format!("the source {name:?} was taken away while it was put down")))
}

/// One source.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, name: &str) -> Result<Option<Source>, DbError> {
    rows::find(db.pool(), select!("WHERE name = $1", name)).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn find_in(txn: &mut Txn, name: &str) -> Result<Option<Source>, DbError> {
    rows::find(txn.conn(), select!("WHERE name = $1", name)).await
}

/// Every source, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<Source>, DbError> {
    rows::list(db.pool(), select!("ORDER BY name")).await
}

/// Moves one stage from `expected` to `commit`; the time moves with it, and stays when the commit does.
///
/// # Errors
/// [`AdvanceError::Moved`] when the stage is elsewhere.
pub async fn advance(
    txn: &mut Txn,
    name: &str,
    stage: Stage,
    expected: Option<&str>,
    commit: &str,
) -> Result<(), AdvanceError> {
    let stored = sqlx::query!(
        "SELECT remote_commit, verified_commit, planned_commit, applied_commit FROM sources WHERE name = $1 FOR UPDATE",
        name
    )
    .fetch_optional(txn.conn())
    .await
    .map_err(DbError::from)?
    .ok_or_else(|| AdvanceError::Missing(name.to_owned()))?;
    let found = match stage {
        Stage::Remote => stored.remote_commit,
        Stage::Verified => stored.verified_commit,
        Stage::Planned => stored.planned_commit,
        Stage::Applied => stored.applied_commit,
    };
    if found.as_deref() != expected {
        return Err(AdvanceError::Moved { stage, expected: expected.map(str::to_owned), found });
    }
    if found.as_deref() == Some(commit) {
        return Ok(());
    }
    let done = match stage {
        Stage::Remote => {
            sqlx::query!(
                "UPDATE sources SET remote_commit = $2, remote_at = compute_now() WHERE name = $1",
                name,
                commit
            )
            .execute(txn.conn())
            .await
        }
        Stage::Verified => {
            sqlx::query!(
                "UPDATE sources SET verified_commit = $2, verified_at = compute_now() WHERE name = $1",
                name,
                commit
            )
            .execute(txn.conn())
            .await
        }
        Stage::Planned => {
            sqlx::query!(
                "UPDATE sources SET planned_commit = $2, planned_at = compute_now() WHERE name = $1",
                name,
                commit
            )
            .execute(txn.conn())
            .await
        }
        Stage::Applied => {
            sqlx::query!(
                "UPDATE sources SET applied_commit = $2, applied_at = compute_now(), rolled_back_from = NULL, accepted_commit = NULL WHERE name = $1",
                name,
                commit
            )
            .execute(txn.conn())
            .await
        }
    };
    done.map_err(DbError::from)?;
    Ok(())
}

/// Moves what is in force back from `expected` to the commit of an earlier revision. What a newer commit has to follow stays.
///
/// # Errors
/// [`AdvanceError::Moved`] when another commit is in force.
pub async fn roll_back(txn: &mut Txn, name: &str, expected: Option<&str>, commit: &str) -> Result<(), AdvanceError> {
    let before = lock(txn, name).await?;
    let found = before.applied.map(|at| at.commit);
    if found.as_deref() != expected {
        return Err(AdvanceError::Moved { stage: Stage::Applied, expected: expected.map(str::to_owned), found });
    }
    sqlx::query!(
        r#"UPDATE sources
           SET rolled_back_from = COALESCE(rolled_back_from, applied_commit),
               applied_commit = $2, applied_at = compute_now(), accepted_commit = NULL
           WHERE name = $1"#,
        name,
        commit
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    Ok(())
}

/// What is in force is the tip again: a newer commit follows it, and nothing else is accepted.
///
/// # Errors
/// When the statement fails.
pub async fn follow(txn: &mut Txn, name: &str) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE sources SET rolled_back_from = NULL, accepted_commit = NULL WHERE name = $1 AND rolled_back_from IS NOT NULL",
        name
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// One source, locked until the end of the transaction: nothing comes into force meanwhile.
///
/// # Errors
/// [`AdvanceError::Missing`], or when the statement fails.
pub async fn lock(txn: &mut Txn, name: &str) -> Result<Source, AdvanceError> {
    let source = rows::find(txn.conn(), select!("WHERE name = $1 FOR UPDATE", name)).await?;
    source.ok_or_else(|| AdvanceError::Missing(name.to_owned()))
}

/// Stores the state; `since` moves when the state or the reason does. Nothing is written when nothing changed.
///
/// # Errors
/// When the statement fails.
pub async fn set_state(
    txn: &mut Txn,
    name: &str,
    state: &str,
    reason: Option<&str>,
    detail: Option<&serde_json::Value>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE sources
           SET since = CASE WHEN (state, reason) IS NOT DISTINCT FROM ($2, $3) THEN since ELSE compute_now() END,
               state = $2, reason = $3, detail = $4
           WHERE name = $1 AND (state, reason, detail) IS DISTINCT FROM ($2, $3, $4)"#,
        name,
        state,
        reason,
        detail,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Stores the branch once the remote's own default is known.
///
/// # Errors
/// When the statement fails.
pub async fn set_branch(txn: &mut Txn, name: &str, branch: &str) -> Result<(), DbError> {
    sqlx::query!("UPDATE sources SET branch = $2 WHERE name = $1 AND branch <> $2", name, branch)
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// Notes that a person accepts a commit that does not follow the verified one; `None` takes it back.
///
/// # Errors
/// When the statement fails.
pub async fn accept(txn: &mut Txn, name: &str, commit: Option<&str>) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE sources SET accepted_commit = $2 WHERE name = $1 AND accepted_commit IS DISTINCT FROM $2",
        name,
        commit
    )
    .execute(txn.conn())
    .await?;
    txn.poke(Poke::Source(name.to_owned()));
    Ok(())
}

/// Notes that the remote was looked at. At most one write a minute.
///
/// # Errors
/// When the statement fails.
pub async fn touch_checked(txn: &mut Txn, name: &str) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE sources SET checked_at = compute_now()
           WHERE name = $1 AND (checked_at IS NULL OR checked_at < compute_now() - interval '1 minute')"#,
        name,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    url: String,
    branch: String,
    path: String,
    remote_commit: Option<String>,
    remote_at: Option<jiff_sqlx::Timestamp>,
    verified_commit: Option<String>,
    verified_at: Option<jiff_sqlx::Timestamp>,
    planned_commit: Option<String>,
    planned_at: Option<jiff_sqlx::Timestamp>,
    applied_commit: Option<String>,
    applied_at: Option<jiff_sqlx::Timestamp>,
    rolled_back_from: Option<String>,
    accepted_commit: Option<String>,
    state: String,
    reason: Option<String>,
    detail: Option<serde_json::Value>,
    since: jiff_sqlx::Timestamp,
    checked_at: Option<jiff_sqlx::Timestamp>,
}

impl Stored for Row {
    type Item = Source;
    const TABLE: &'static str = "sources";
    const KEY: &'static [&'static str] = &["name"];

    fn read(self) -> Result<Source, DbError> {
        let at =
            |commit: Option<String>, at: Option<jiff_sqlx::Timestamp>| Some(At { commit: commit?, at: at?.to_jiff() });
        if self.detail.as_ref().is_some_and(|detail| !detail.is_object()) {
            return Err(DbError::corrupt("detail", "it is no JSON object"));
        }
        Ok(Source {
            name: self.name,
            url: self.url,
            branch: self.branch,
            path: self.path,
            remote: at(self.remote_commit, self.remote_at),
            verified: at(self.verified_commit, self.verified_at),
            planned: at(self.planned_commit, self.planned_at),
            applied: at(self.applied_commit, self.applied_at),
            rolled_back_from: self.rolled_back_from,
            accepted: self.accepted_commit,
            state: self.state,
            reason: self.reason,
            detail: self.detail,
            since: self.since.to_jiff(),
            checked_at: convert::time(self.checked_at),
        })
    }
}
