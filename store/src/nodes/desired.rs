//! Targets, assignments, specs and what was observed of them.

use schema::{digest::Digest, effect::EffectClass, generation::Generation, id::NodeId, time::Timestamp};

use crate::{Db, DbError, Txn, convert, poke::Poke};

/// What one node should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The node.
    pub id: NodeId,
    /// The target's digest.
    pub target: Digest,
    /// The node document's own words, canonical JSON.
    pub overlay: String,
}

/// The stored spec of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSpec {
    /// Its generation.
    pub generation: Generation,
    /// The canonical bytes that are signed and sent.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: Digest,
    /// The encoded signature over them.
    pub signature: Vec<u8>,
    /// When they were last signed.
    pub signed_at: Timestamp,
    /// The class of what this generation does to the machine; `None` when nobody judged it.
    pub effect: Option<EffectClass>,
}

/// What a spec was composed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFrom {
    /// The target.
    pub target: Digest,
    /// The node document's own words, canonical JSON.
    pub overlay: String,
}

/// A spec that was composed and signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSpec<'a> {
    /// The generation that was signed: the next one, or one past what a node reported that is ahead of a restored database.
    pub generation: Generation,
    /// The canonical bytes.
    pub bytes: &'a [u8],
    /// The encoded signature.
    pub signature: &'a [u8],
    /// What it was composed from.
    pub from: &'a SpecFrom,
    /// The class of what it does to the machine, as against the spec before it.
    pub effect: EffectClass,
}

/// Why a spec was not stored.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Somebody else stored one in between, or the node is gone.
    #[error("the node's generation is not {expected}")]
    Moved {
        /// What the caller composed against.
        expected: Generation,
    },
    /// The generation would not rise.
    #[error("generation {to} does not follow {expected}")]
    NotForward {
        /// What the caller composed against.
        expected: Generation,
        /// What it wanted to write.
        to: Generation,
    },
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Sets what nodes should be, without assigning it, and answers those that changed.
///
/// # Errors
/// When the statement fails.
pub async fn set_targets(txn: &mut Txn, targets: &[Assignment]) -> Result<Vec<NodeId>, DbError> {
    let (ids, digests, overlays) = columns(targets);
    let changed = sqlx::query_scalar!(
        r#"UPDATE nodes n
           SET target_digest = t.digest, target_overlay = t.overlay, version = n.version + 1, updated_at = compute_now()
           FROM UNNEST($1::uuid[], $2::bytea[], $3::text[]) AS t (id, digest, overlay)
           WHERE n.id = t.id AND (n.target_digest, n.target_overlay) IS DISTINCT FROM (t.digest, t.overlay)
           RETURNING n.id"#,
        &ids,
        &digests,
        &overlays,
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(changed.into_iter().map(NodeId::from_uuid).collect())
}

/// Assigns nodes to what they should be, for many nodes in one statement, and answers those that changed. The caller
/// enqueues `nodespec` for them.
///
/// # Errors
/// When the statement fails.
pub async fn assign(txn: &mut Txn, assignments: &[Assignment]) -> Result<Vec<NodeId>, DbError> {
    let (ids, digests, overlays) = columns(assignments);
    let changed = sqlx::query_scalar!(
        r#"UPDATE nodes n
           SET assigned_digest = t.digest, assigned_overlay = t.overlay, assigned_name = NULL, version = n.version + 1, updated_at = compute_now()
           FROM UNNEST($1::uuid[], $2::bytea[], $3::text[]) AS t (id, digest, overlay)
           WHERE n.id = t.id AND (n.assigned_digest, n.assigned_overlay, n.assigned_name) IS DISTINCT FROM (t.digest, t.overlay, NULL::text)
           RETURNING n.id"#,
        &ids,
        &digests,
        &overlays,
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(changed.into_iter().map(NodeId::from_uuid).collect())
}

fn columns(assignments: &[Assignment]) -> (Vec<uuid::Uuid>, Vec<Vec<u8>>, Vec<String>) {
    (
        assignments.iter().map(|a| a.id.as_uuid()).collect(),
        assignments.iter().map(|a| convert::digest_column(&a.target)).collect(),
        assignments.iter().map(|a| a.overlay.clone()).collect(),
    )
}

/// The stored spec; `None` before the first.
///
/// # Errors
/// When the statement fails.
pub async fn find_spec(db: &Db, id: NodeId) -> Result<Option<StoredSpec>, DbError> {
    let row = sqlx::query!(
        r#"SELECT generation, spec AS "spec!", spec_digest AS "digest!", spec_signature AS "signature!", spec_signed_at AS "signed_at!", spec_effect
           FROM nodes
           WHERE id = $1 AND spec IS NOT NULL"#,
        id.as_uuid(),
    )
    .fetch_optional(db.pool())
    .await?;
    row.map(|row| {
        Ok(StoredSpec {
            generation: Generation::from_i64(row.generation),
            bytes: row.spec,
            digest: convert::digest(&row.digest)?,
            signature: row.signature,
            signed_at: row.signed_at.to_jiff(),
            effect: row.spec_effect.map(|word| convert::word("effect class", &word)).transpose()?,
        })
    })
    .transpose()
}

/// What gateways send of the specs of some nodes, in one statement: generation, bytes and signature. Nodes without a spec
/// are left out.
///
/// # Errors
/// When the statement fails.
pub async fn find_specs(db: &Db, nodes: &[NodeId]) -> Result<Vec<(NodeId, Generation, Vec<u8>, Vec<u8>)>, DbError> {
    let nodes: Vec<uuid::Uuid> = nodes.iter().map(|node| node.as_uuid()).collect();
    let rows = sqlx::query!(
        r#"SELECT id, generation, spec AS "spec!", spec_signature AS "signature!"
           FROM nodes
           WHERE id = ANY ($1) AND spec IS NOT NULL"#,
        &nodes,
    )
    .fetch_all(db.pool())
    .await?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| (NodeId::from_uuid(row.id), Generation::from_i64(row.generation), row.spec, row.signature))
        .collect())
}

/// Stores a new spec, which was composed and signed outside the transaction against generation `expected`, and pokes the
/// node's gateway after the commit.
///
/// # Errors
/// [`SpecError::Moved`] when the node is at another generation by now: compose again.
pub async fn set_spec(txn: &mut Txn, id: NodeId, expected: Generation, spec: &NewSpec<'_>) -> Result<(), SpecError> {
    if spec.generation <= expected {
        return Err(SpecError::NotForward { expected, to: spec.generation });
    }
    let done = sqlx::query!(
        r#"UPDATE nodes
           SET generation = $3, spec = $4, spec_digest = $5, spec_signature = $6, spec_from_digest = $7, spec_from_overlay = $8,
               spec_effect = $9, spec_signed_at = compute_now(), spec_changed_at = compute_now(), updated_at = compute_now()
           WHERE id = $1 AND generation = $2"#,
        id.as_uuid(),
        expected.to_i64(),
        spec.generation.to_i64(),
        spec.bytes,
        convert::digest_column(&Digest::of(spec.bytes)),
        spec.signature,
        convert::digest_column(&spec.from.target),
        spec.from.overlay,
        spec.effect.as_str(),
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    if done.rows_affected() == 0 {
        return Err(SpecError::Moved { expected });
    }
    txn.poke(Poke::Node(id));
    Ok(())
}

/// Notes that the spec of `generation` is also what `from` composes to: the assignment moved and the bytes did not. `false`
/// when the spec moved.
///
/// # Errors
/// When the statement fails.
pub async fn confirm_spec(txn: &mut Txn, id: NodeId, generation: Generation, from: &SpecFrom) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE nodes SET spec_from_digest = $3, spec_from_overlay = $4 WHERE id = $1 AND generation = $2 AND spec IS NOT NULL",
        id.as_uuid(),
        generation.to_i64(),
        convert::digest_column(&from.target),
        from.overlay,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Stores a fresh signature over the spec of `generation`, without a new generation. `false` when the spec moved.
///
/// # Errors
/// When the statement fails.
pub async fn resign_spec(txn: &mut Txn, id: NodeId, generation: Generation, signature: &[u8]) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "UPDATE nodes SET spec_signature = $3, spec_signed_at = compute_now() WHERE id = $1 AND generation = $2 AND spec IS NOT NULL",
        id.as_uuid(),
        generation.to_i64(),
        signature,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Raises what a node applied and observed; never lowers either. The caller has verified the node's signature.
///
/// # Errors
/// When the statement fails.
pub async fn observe(txn: &mut Txn, id: NodeId, applied: Generation, observed: Generation) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE nodes
           SET applied_generation = GREATEST(applied_generation, $2), observed_generation = GREATEST(observed_generation, $3)
           WHERE id = $1 AND (applied_generation < $2 OR observed_generation < $3)"#,
        id.as_uuid(),
        applied.to_i64(),
        observed.to_i64(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
