//! Manifests of revisions, as they were signed. Nothing here is believed before its signature was checked.

use schema::{digest::Digest, id::RevisionId};

use crate::{Db, DbError, Txn, convert};

/// One pool's share of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The digest of `body`, which the manifest names.
    pub digest: Digest,
    /// What it says.
    pub body: Vec<u8>,
    /// The targets that it names, to find it by.
    pub targets: Vec<Digest>,
}

/// A signed manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The revision.
    pub revision: RevisionId,
    /// What was signed.
    pub body: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

impl Manifest {
    const fn of(revision: uuid::Uuid, body: Vec<u8>, signature: Vec<u8>) -> Self {
        Self { revision: RevisionId::from_uuid(revision), body, signature }
    }
}

/// A signed manifest to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewManifest {
    /// What was signed.
    pub manifest: Manifest,
    /// Its source.
    pub source: String,
    /// The public key of the signature.
    pub key: [u8; 32],
    /// Whether it gives names to something that had others.
    pub renames: bool,
    /// Its parts: those that are stored already, too.
    pub parts: Vec<Part>,
}

/// A part that names a target, with a manifest that names the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// The part's text.
    pub part: Vec<u8>,
    /// The manifest.
    pub manifest: Manifest,
}

/// Stores the manifest of a revision, in place of the one that was there.
///
/// # Errors
/// When a statement fails.
pub async fn put(txn: &mut Txn, new: &NewManifest) -> Result<(), DbError> {
    let Manifest { revision, body, signature } = &new.manifest;
    sqlx::query!(
        r#"INSERT INTO manifests (revision, source, body, signature, key, renames) VALUES ($1, $2, $3, $4, $5, $6)
           ON CONFLICT (revision) DO UPDATE
           SET body = EXCLUDED.body, signature = EXCLUDED.signature, key = EXCLUDED.key, renames = EXCLUDED.renames"#,
        revision.as_uuid(),
        new.source,
        body,
        signature,
        &new.key[..],
        new.renames,
    )
    .execute(txn.conn())
    .await?;
    let digests: Vec<Vec<u8>> = new.parts.iter().map(|part| convert::digest_column(&part.digest)).collect();
    let bodies: Vec<Vec<u8>> = new.parts.iter().map(|part| part.body.clone()).collect();
    sqlx::query!(
        r#"INSERT INTO manifest_parts (digest, body) SELECT * FROM UNNEST($1::bytea[], $2::bytea[])
           ON CONFLICT (digest) DO UPDATE SET body = EXCLUDED.body WHERE manifest_parts.body <> EXCLUDED.body"#,
        &digests,
        &bodies,
    )
    .execute(txn.conn())
    .await?;
    let (mut targets, mut parts) = (Vec::new(), Vec::new());
    for part in &new.parts {
        for target in &part.targets {
            targets.push(convert::digest_column(target));
            parts.push(convert::digest_column(&part.digest));
        }
    }
    sqlx::query!(
        r#"INSERT INTO manifest_targets (target, part, manifest)
           SELECT t.target, t.part, $3 FROM UNNEST($1::bytea[], $2::bytea[]) AS t (target, part)
           ON CONFLICT (target, part) DO UPDATE SET manifest = EXCLUDED.manifest"#,
        &targets,
        &parts,
        revision.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The manifest of a revision.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, revision: RevisionId) -> Result<Option<Manifest>, DbError> {
    let row = sqlx::query!("SELECT body, signature FROM manifests WHERE revision = $1", revision.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    Ok(row.map(|row| Manifest { revision, body: row.body, signature: row.signature }))
}

/// The text of a part.
///
/// # Errors
/// When the statement fails.
pub async fn find_part(db: &Db, digest: &Digest) -> Result<Option<Vec<u8>>, DbError> {
    Ok(sqlx::query_scalar!("SELECT body FROM manifest_parts WHERE digest = $1", convert::digest_column(digest))
        .fetch_optional(db.pool())
        .await?)
}

/// Parts that are said to name a target, those of the latest manifests first; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn naming(db: &Db, target: &Digest, limit: u32) -> Result<Vec<Naming>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT p.body AS part, m.revision, m.body, m.signature
           FROM manifest_targets t
           JOIN manifest_parts p ON p.digest = t.part
           JOIN manifests m ON m.revision = t.manifest
           JOIN revisions r ON r.id = m.revision
           WHERE t.target = $1
           ORDER BY r.seq DESC
           LIMIT $2"#,
        convert::digest_column(target),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Naming { part: row.part, manifest: Manifest::of(row.revision, row.body, row.signature) })
        .collect())
}

/// Manifests of a source that rename something, newest first; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn with_renames(db: &Db, limit: u32) -> Result<Vec<Manifest>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT m.revision, m.body, m.signature FROM manifests m JOIN revisions r ON r.id = m.revision
           WHERE m.renames ORDER BY r.seq DESC LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| Manifest::of(row.revision, row.body, row.signature)).collect())
}

/// Manifests that another key than this one signed; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn of_other_keys(
    db: &Db,
    key: &[u8; 32],
    after: Option<RevisionId>,
    limit: u32,
) -> Result<Vec<Manifest>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT revision, body, signature FROM manifests
           WHERE key <> $1 AND ($2::uuid IS NULL OR revision > $2) ORDER BY revision LIMIT $3"#,
        &key[..],
        after.map(|after| after.as_uuid()),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| Manifest::of(row.revision, row.body, row.signature)).collect())
}

/// Puts another signature under manifests whose text is still the same.
///
/// # Errors
/// When the statement fails.
pub async fn sign_again(txn: &mut Txn, key: &[u8; 32], manifests: &[Manifest]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = manifests.iter().map(|manifest| manifest.revision.as_uuid()).collect();
    let bodies: Vec<Vec<u8>> = manifests.iter().map(|manifest| manifest.body.clone()).collect();
    let signatures: Vec<Vec<u8>> = manifests.iter().map(|manifest| manifest.signature.clone()).collect();
    sqlx::query!(
        r#"UPDATE manifests m SET signature = s.signature, key = $1
           FROM UNNEST($2::uuid[], $3::bytea[], $4::bytea[]) AS s (revision, body, signature)
           WHERE m.revision = s.revision AND m.body = s.body"#,
        &key[..],
        &ids,
        &bodies,
        &signatures,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
