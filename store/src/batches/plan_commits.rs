//! The commits that batches were planned at, with their bytes: copies out of the repository, which prove themselves.

use crate::{Db, DbError, Txn};

/// The plan commits of batches whose bytes are not kept; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn plans_to_keep(db: &Db, limit: u32) -> Result<Vec<String>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT DISTINCT plan_commit AS "commit!" FROM batches
           WHERE plan_commit IS NOT NULL
             AND NOT EXISTS (SELECT FROM plan_commits p WHERE p.commit = plan_commit)
           LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?)
}

/// Keeps commits with their bytes.
///
/// # Errors
/// When the statement fails.
pub async fn keep_plans(txn: &mut Txn, plans: &[(String, Vec<u8>)]) -> Result<(), DbError> {
    let (commits, raws): (Vec<String>, Vec<Vec<u8>>) = plans.iter().cloned().unzip();
    sqlx::query!(
        r#"INSERT INTO plan_commits (commit, raw) SELECT * FROM UNNEST($1::text[], $2::bytea[])
           ON CONFLICT (commit) DO NOTHING"#,
        &commits,
        &raws,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The bytes of a plan commit.
///
/// # Errors
/// When the statement fails.
pub async fn plan(db: &Db, commit: &str) -> Result<Option<Vec<u8>>, DbError> {
    Ok(sqlx::query_scalar!("SELECT raw FROM plan_commits WHERE commit = $1", commit).fetch_optional(db.pool()).await?)
}
