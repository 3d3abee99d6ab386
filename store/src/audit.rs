//! Who did what. Append only.

use schema::{id::AuditId, time::Timestamp};

use crate::{Db, DbError, Txn};

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: AuditId,
    /// Its place in the order of writing.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who: a token, `source`, a controller.
    pub actor: String,
    /// Did what, for example `nodes.cordon`.
    pub action: String,
    /// To what, for example a node's id.
    pub subject: String,
    /// The rest.
    pub detail: serde_json::Value,
}

/// Appends a line in the transaction of the deed.
///
/// # Errors
/// When the statement fails.
pub async fn append(
    txn: &mut Txn,
    actor: &str,
    action: &str,
    subject: &str,
    detail: &serde_json::Value,
) -> Result<AuditId, DbError> {
    let id = AuditId::generate();
    sqlx::query!(
        "INSERT INTO audit (id, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)",
        id.as_uuid(),
        actor,
        action,
        subject,
        detail
    )
    .execute(txn.conn())
    .await?;
    Ok(id)
}

/// Lines, newest first; of one subject, or of all.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, subject: Option<&str>, before: Option<u64>, limit: u32) -> Result<Vec<Entry>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT id, seq, at, actor, action, subject, detail
           FROM audit
           WHERE ($1::text IS NULL OR subject = $1) AND ($2::bigint IS NULL OR seq < $2)
           ORDER BY seq DESC
           LIMIT $3"#,
        subject,
        before.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX)),
        i64::from(limit.clamp(1, crate::page::MAX_LIMIT)),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Entry {
            id: AuditId::from_uuid(row.id),
            seq: u64::try_from(row.seq).unwrap_or(0),
            at: row.at.to_jiff(),
            actor: row.actor,
            action: row.action,
            subject: row.subject,
            detail: row.detail,
        })
        .collect())
}
