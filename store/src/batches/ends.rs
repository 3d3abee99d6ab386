//! How batches ended, as the audit log says. A row can be set back by whoever may update it; a line of the log is never updated,
//! and is chained and signed with all that come after it.

use std::collections::BTreeSet;

use schema::{id::BatchId, name::Name, time::Timestamp};

use super::{BatchState, time};
use crate::{Db, DbError, Txn, convert};

/// The end of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub state: BatchState,
    /// Who ended it.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// The first end of a batch of this name, whatever its row says. A name is used once, so that it does not matter which row it was.
///
/// # Errors
/// When the statement fails.
pub async fn ended(txn: &mut Txn, name: &Name) -> Result<Option<Ended>, DbError> {
    let row = sqlx::query!(
        r#"SELECT action, actor, LEAST(GREATEST(at, '0001-01-01 00:00Z'), '9999-12-30 00:00Z') AS "at!: jiff_sqlx::Timestamp"
           FROM audit
           WHERE subject = $1 AND action IN ('batches.done', 'batches.expired', 'batches.void', 'batches.rejected', 'batches.cancelled')
           ORDER BY seq LIMIT 1"#,
        format!("batch/{name}"),
    )
    .fetch_optional(txn.conn())
    .await?;
    row.map(|row| {
        let word = row.action.strip_prefix("batches.").unwrap_or(&row.action);
        Ok(Ended { state: convert::word("end of a batch", word)?, by: row.actor, at: time(row.at) })
    })
    .transpose()
}

/// Which of some batches have ended, whatever their rows say, or whether they have any.
///
/// # Errors
/// When the statement fails.
pub async fn ended_among(db: &Db, batches: &BTreeSet<BatchId>) -> Result<BTreeSet<BatchId>, DbError> {
    if batches.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids: Vec<String> = batches.iter().map(ToString::to_string).collect();
    let found = sqlx::query_scalar!(
        r#"SELECT detail ->> 'batchId' AS "id!" FROM audit
           WHERE action IN ('batches.done', 'batches.expired', 'batches.void', 'batches.rejected', 'batches.cancelled')
             AND detail ->> 'batchId' = ANY ($1)"#,
        &ids,
    )
    .fetch_all(db.pool())
    .await?;
    Ok(found.iter().filter_map(|id| id.parse().ok()).collect())
}
