//! The files of applied revisions, kept by what changes: any revision's tree can be built again, byte for byte, without git.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    fleet::{SourceBlob, Sources},
    id::RevisionId,
};

use crate::{Db, DbError, Txn, convert};

/// How many bytes of new files go into one statement.
const BATCH: usize = 16 << 20;

/// Makes `tree` the files of a revision that was inserted in this transaction. Unchanged files cost no row, and bytes that
/// are stored already are not sent again.
///
/// # Errors
/// When a statement fails.
pub async fn write(txn: &mut Txn, revision: RevisionId, tree: &Sources) -> Result<(), DbError> {
    let row = sqlx::query!(
        "UPDATE revisions SET tree_digest = $2 WHERE id = $1 RETURNING source, seq",
        revision.as_uuid(),
        convert::digest_column(&tree.digest()),
    )
    .fetch_one(txn.conn())
    .await?;
    write_blobs(txn, tree).await?;
    let rows: Vec<FileRow> = tree.iter().map(|(path, blob)| FileRow::of(path, blob)).collect();
    let paths: Vec<String> = rows.iter().map(|row| row.path.clone()).collect();
    let kinds: Vec<String> = rows.iter().map(|row| row.what.to_owned()).collect();
    let digests: Vec<Option<Vec<u8>>> =
        rows.iter().map(|row| row.digest.as_ref().map(convert::digest_column)).collect();
    let notes: Vec<String> = rows.iter().map(|row| row.note.clone()).collect();
    sqlx::query!(
        r#"UPDATE revision_files f SET until_seq = $2
           WHERE f.source = $1 AND f.until_seq IS NULL
             AND NOT EXISTS (
                 SELECT FROM UNNEST($3::text[], $4::text[], $5::bytea[], $6::text[]) AS n (path, what, digest, note)
                 WHERE n.path = f.path AND n.what = f.what AND n.digest IS NOT DISTINCT FROM f.digest AND n.note = f.note)"#,
        row.source,
        row.seq,
        &paths,
        &kinds,
        &digests as &[Option<Vec<u8>>],
        &notes,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"INSERT INTO revision_files (source, path, from_seq, what, digest, note)
           SELECT $1, n.path, $2, n.what, n.digest, n.note
           FROM UNNEST($3::text[], $4::text[], $5::bytea[], $6::text[]) AS n (path, what, digest, note)
           WHERE NOT EXISTS (
               SELECT FROM revision_files f WHERE f.source = $1 AND f.path = n.path AND f.until_seq IS NULL)"#,
        row.source,
        row.seq,
        &paths,
        &kinds,
        &digests as &[Option<Vec<u8>>],
        &notes,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// A revision of the same files as the one before it in its source.
///
/// # Errors
/// When the statement fails.
pub async fn keep(txn: &mut Txn, revision: RevisionId) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE revisions r
           SET tree_digest = (SELECT p.tree_digest FROM revisions p
                              WHERE p.source = r.source AND p.seq < r.seq
                              ORDER BY p.seq DESC LIMIT 1)
           WHERE r.id = $1"#,
        revision.as_uuid()
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

async fn write_blobs(txn: &mut Txn, tree: &Sources) -> Result<(), DbError> {
    let files: BTreeMap<Digest, &[u8]> = tree
        .iter()
        .filter_map(|(_, blob)| match blob {
            SourceBlob::Bytes(bytes) => Some((bytes.digest(), &**bytes)),
            _ => None,
        })
        .collect();
    let digests: Vec<Vec<u8>> = files.keys().map(convert::digest_column).collect();
    let missing = sqlx::query_scalar!(
        r#"SELECT d AS "digest!" FROM UNNEST($1::bytea[]) AS d
           WHERE NOT EXISTS (SELECT FROM blobs b WHERE b.digest = d)"#,
        &digests,
    )
    .fetch_all(txn.conn())
    .await?;
    let mut new = missing.into_iter().peekable();
    while new.peek().is_some() {
        let (mut digests, mut bodies, mut size) = (Vec::new(), Vec::new(), 0);
        while size < BATCH
            && let Some(digest) = new.next()
        {
            let bytes = files[&convert::digest(&digest)?];
            size += bytes.len();
            bodies.push(bytes.to_vec());
            digests.push(digest);
        }
        sqlx::query!(
            "INSERT INTO blobs (digest, bytes) SELECT * FROM UNNEST($1::bytea[], $2::bytea[]) ON CONFLICT (digest) DO NOTHING",
            &digests,
            &bodies,
        )
        .execute(txn.conn())
        .await?;
    }
    Ok(())
}

/// The files of a revision; `None` when there is no such revision, or when it was applied before files were kept.
///
/// # Errors
/// When a statement fails, or when the files are not the ones that the revision was made of.
pub async fn read(db: &Db, revision: RevisionId) -> Result<Option<Sources>, DbError> {
    let row = sqlx::query!("SELECT source, seq, tree_digest FROM revisions WHERE id = $1", revision.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    let Some(row) = row else { return Ok(None) };
    let Some(tree_digest) = convert::maybe_digest(row.tree_digest)? else { return Ok(None) };
    // What is before and after a revision never changes, so that this needs no snapshot.
    let rows = sqlx::query!(
        r#"SELECT f.path, f.what, f.note, b.bytes AS "bytes?"
           FROM revision_files f
           LEFT JOIN blobs b ON b.digest = f.digest
           WHERE f.source = $1 AND f.from_seq <= $2 AND (f.until_seq IS NULL OR f.until_seq > $2)"#,
        row.source,
        row.seq,
    )
    .fetch_all(db.pool())
    .await?;
    let mut tree = Sources::default();
    for row in rows {
        let blob = match row.what.as_str() {
            "file" => SourceBlob::Bytes(row.bytes.unwrap_or_default().into()),
            "symlink" => SourceBlob::Symlink,
            "submodule" => SourceBlob::Submodule,
            "too-large" => SourceBlob::TooLarge { bytes: convert::word("file size", &row.note)? },
            "unreadable" => SourceBlob::Unreadable { reason: row.note },
            _ => SourceBlob::BadPath,
        };
        tree.insert(row.path, blob);
    }
    if tree.digest() != tree_digest {
        return Err(DbError::other(format!("the stored files of {revision} are not the ones that it was made of")));
    }
    Ok(Some(tree))
}

/// A file that a revision changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Its path below the fleet's root.
    pub path: String,
    /// It was there before.
    pub before: bool,
    /// It is there afterwards.
    pub after: bool,
}

/// The files that a revision brought, changed or took, by path; at most `limit`.
///
/// # Errors
/// When the statement fails.
pub async fn changes(db: &Db, seq: u64, limit: u32) -> Result<Vec<ChangedFile>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT path AS "path!", bool_or(was) AS "before!", bool_or(NOT was) AS "after!"
           FROM (SELECT path, false AS was FROM revision_files WHERE from_seq = $1
                 UNION ALL SELECT path, true FROM revision_files WHERE until_seq = $1) AS c
           GROUP BY path ORDER BY path LIMIT $2"#,
        i64::try_from(seq).unwrap_or(i64::MAX),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows.into_iter().map(|row| ChangedFile { path: row.path, before: row.before, after: row.after }).collect())
}

struct FileRow {
    path: String,
    what: &'static str,
    digest: Option<Digest>,
    note: String,
}

impl FileRow {
    fn of(path: &str, blob: &SourceBlob) -> Self {
        let (what, digest, note) = match blob {
            SourceBlob::Bytes(bytes) => ("file", Some(bytes.digest()), String::new()),
            SourceBlob::Symlink => ("symlink", None, String::new()),
            SourceBlob::Submodule => ("submodule", None, String::new()),
            SourceBlob::TooLarge { bytes } => ("too-large", None, bytes.to_string()),
            SourceBlob::Unreadable { reason } => ("unreadable", None, reason.clone()),
            SourceBlob::BadPath => ("bad-path", None, String::new()),
        };
        Self { path: path.to_owned(), what, digest, note }
    }
}
