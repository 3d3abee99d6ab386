//! What nodes were attested as: an identity that was proven for one node is no other node's while that one is there.

use schema::{
    attested::{AttestKind, Attested},
    id::NodeId,
};

use crate::{Db, DbError, Txn, convert};

/// Why an identity was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is another node's.
    #[error("another node was attested as this")]
    Elsewhere,
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Records that a node was attested as this.
///
/// # Errors
/// When the identity is another node's; the transaction is to be dropped then.
pub async fn record(txn: &mut Txn, attested: &Attested, node: NodeId) -> Result<(), RecordError> {
    let done = sqlx::query!(
        r#"INSERT INTO attestation_uses AS a (kind, subject, node_id) VALUES ($1, $2, $3)
           ON CONFLICT (kind, subject) DO UPDATE SET last_used = compute_now() WHERE a.node_id = EXCLUDED.node_id"#,
        attested.kind.as_str(),
        attested.subject,
        node.as_uuid(),
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    if done.rows_affected() == 1 { Ok(()) } else { Err(RecordError::Elsewhere) }
}

/// The node that was attested as this.
///
/// # Errors
/// When the statement fails.
pub async fn node_of(db: &Db, attested: &Attested) -> Result<Option<NodeId>, DbError> {
    let found = sqlx::query_scalar!(
        "SELECT node_id FROM attestation_uses WHERE kind = $1 AND subject = $2",
        attested.kind.as_str(),
        attested.subject,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(found.map(NodeId::from_uuid))
}

/// What a node was attested as.
///
/// # Errors
/// When the statement fails.
pub async fn of_node(db: &Db, node: NodeId) -> Result<Vec<Attested>, DbError> {
    let rows = sqlx::query!(
        "SELECT kind, subject FROM attestation_uses WHERE node_id = $1 ORDER BY kind, subject",
        node.as_uuid(),
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter()
        .map(|row| {
            let kind: AttestKind = convert::word("attestation kind", &row.kind)?;
            Ok(Attested { kind, subject: row.subject })
        })
        .collect()
}

/// Forgets what a node was attested as: all of it, or what is of one kind.
///
/// # Errors
/// When the statement fails.
pub async fn forget(txn: &mut Txn, node: NodeId, kind: Option<AttestKind>) -> Result<(), DbError> {
    sqlx::query!(
        "DELETE FROM attestation_uses WHERE node_id = $1 AND kind = COALESCE($2, kind)",
        node.as_uuid(),
        kind.map(AttestKind::as_str),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
