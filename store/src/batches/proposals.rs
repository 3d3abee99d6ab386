//! Proposals that callers of the API asked for, until their commits are there.

use schema::{id::BatchId, name::Name, time::Timestamp};

use super::time;
use crate::{Db, DbError, Txn, convert};

/// A proposal that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedFor {
    /// Its batch.
    pub batch: BatchId,
    /// The batch's name.
    pub name: Name,
    /// Who asked.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub why: String,
    /// The file that asks for it.
    pub text: String,
    /// What the process that took the call made over [`words`].
    pub mark: Vec<u8>,
    /// Why it has no commit yet, as it was said last: a stable word, and the same for people.
    pub said: Option<(String, String)>,
}

impl AskedFor {
    /// What its mark is made over.
    #[must_use]
    pub fn words(&self) -> Vec<u8> {
        words(self.batch, &self.name, &self.by, &self.text)
    }
}

/// What the mark of a proposal is made over.
#[must_use]
pub fn words(batch: BatchId, name: &Name, by: &str, text: &str) -> Vec<u8> {
    serde_json::json!([batch, name, by, text]).to_string().into_bytes()
}

/// Asks for the commit of a batch that was just put.
///
/// # Errors
/// When the statement fails.
pub async fn ask(txn: &mut Txn, batch: BatchId, text: &str, mark: &[u8]) -> Result<(), DbError> {
    sqlx::query!("INSERT INTO proposals (batch_id, text, mark) VALUES ($1, $2, $3)", batch.as_uuid(), text, mark)
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// Those that have no commit, and have not ended, oldest first.
///
/// # Errors
/// When the statement fails.
pub async fn asked(db: &Db, limit: u32) -> Result<Vec<AskedFor>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT b.id, b.name, b.created_by, b.created_at AS "created_at: jiff_sqlx::Timestamp", b.why, b.reason, b.message, p.text, p.mark
           FROM proposals p JOIN batches b ON b.id = p.batch_id
           WHERE b.ended_at IS NULL AND b.plan_commit IS NULL ORDER BY b.created_at LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(AskedFor {
                batch: BatchId::from_uuid(row.id),
                name: convert::word("batch name", &row.name)?,
                by: row.created_by,
                at: time(row.created_at),
                why: row.why,
                text: row.text,
                mark: row.mark,
                said: row.reason.zip(row.message),
            })
        })
        .collect()
}
