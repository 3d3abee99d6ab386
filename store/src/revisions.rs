//! Applied revisions and the objects in force. A revision, its objects and what they cause are one transaction.

use std::collections::BTreeMap;

use jiff_sqlx::ToSqlx;
use schema::{
    digest::Digest,
    id::{PlanId, RevisionId},
    object::ObjectRef,
    time::Timestamp,
};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A revision to store.
#[derive(Debug, Clone)]
pub struct NewRevision {
    /// Its id.
    pub id: RevisionId,
    /// The source it came from.
    pub source: String,
    /// The commit, hexadecimal.
    pub commit: String,
    /// The commit's tree.
    pub tree: String,
    /// The branch.
    pub branch: String,
    /// The commit's author line.
    pub author: String,
    /// The commit's committer line.
    pub committer: String,
    /// The first line of the commit's message.
    pub subject: String,
    /// When it was committed, as the commit says.
    pub committed_at: Timestamp,
    /// Who applied it: `source`, or a person through the API.
    pub applied_by: String,
    /// The digest over every object's address and digest.
    pub digest: Digest,
    /// What changed, in counts.
    pub summary: serde_json::Value,
    /// The plan that it carried out.
    pub plan: Option<PlanId>,
}

/// A stored revision.
#[derive(Debug, Clone)]
pub struct Revision {
    /// What was stored.
    pub revision: NewRevision,
    /// Its place in the order of application.
    pub seq: u64,
    /// When it was applied.
    pub applied_at: Timestamp,
    /// The digest of its files; `None` when they were not kept.
    pub tree_digest: Option<Digest>,
}

/// Whether an object is in force, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectState {
    /// A document of the applied commit says so.
    Declared,
    /// Its document is gone without `removed`; the last text stays in force.
    Retained,
    /// A `removed` document took it away.
    Removed,
    /// It goes on under another name; only said in the history of a revision.
    Moved,
}

impl ObjectState {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Retained => "retained",
            Self::Removed => "removed",
            Self::Moved => "moved",
        }
    }

    fn read(text: &str) -> Result<Self, DbError> {
        match text {
            "declared" => Ok(Self::Declared),
            "retained" => Ok(Self::Retained),
            "removed" => Ok(Self::Removed),
            "moved" => Ok(Self::Moved),
            other => Err(DbError::other(format!("{other:?} is no state of an object"))),
        }
    }
}

/// An object that a revision changes: new, changed, moved in its file, retained or removed.
#[derive(Debug, Clone)]
pub struct ObjectChange {
    /// The address.
    pub object: ObjectRef,
    /// The digest of `doc`.
    pub digest: Digest,
    /// The canonical document; for a retained or removed object, the last one.
    pub doc: String,
    /// Where it is written.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// What it is after the revision.
    pub state: ObjectState,
}

/// An object in force (or removed).
#[derive(Debug, Clone)]
pub struct StoredObject {
    /// The address.
    pub object: ObjectRef,
    /// The digest of its document.
    pub digest: Digest,
    /// The canonical document.
    pub doc: String,
    /// Where it is, or was, written.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// Whether it is in force, and why.
    pub state: ObjectState,
    /// The revision that made it so.
    pub revision: RevisionId,
}

/// Stores a revision and what it changes, in a handful of statements however many objects there are.
///
/// # Errors
/// When a statement fails.
pub async fn insert(txn: &mut Txn, revision: &NewRevision, changes: &[ObjectChange]) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO revisions (id, source, commit, tree, branch, author, committer, subject, committed_at, applied_by, digest, summary, plan)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"#,
        revision.id.as_uuid(),
        revision.source,
        revision.commit,
        revision.tree,
        revision.branch,
        revision.author,
        revision.committer,
        revision.subject,
        revision.committed_at.to_sqlx() as _,
        revision.applied_by,
        convert::digest_column(&revision.digest),
        revision.summary,
        revision.plan.map(PlanId::as_uuid),
    )
    .execute(txn.conn())
    .await?;
    if changes.is_empty() {
        return Ok(());
    }
    let documents: BTreeMap<Digest, &str> = changes.iter().map(|change| (change.digest, change.doc.as_str())).collect();
    let digests: Vec<Vec<u8>> = documents.keys().map(convert::digest_column).collect();
    let docs: Vec<String> = documents.values().map(|doc| (*doc).to_owned()).collect();
    sqlx::query!(
        "INSERT INTO documents (digest, doc) SELECT * FROM UNNEST($1::bytea[], $2::text[]) ON CONFLICT (digest) DO NOTHING",
        &digests,
        &docs,
    )
    .execute(txn.conn())
    .await?;
    let kinds: Vec<String> = changes.iter().map(|c| c.object.kind.as_str().to_owned()).collect();
    let names: Vec<String> = changes.iter().map(|c| c.object.name.to_string()).collect();
    let digests: Vec<Vec<u8>> = changes.iter().map(|c| convert::digest_column(&c.digest)).collect();
    let files: Vec<String> = changes.iter().map(|c| c.file.clone()).collect();
    let lines: Vec<i32> = changes.iter().map(|c| convert::int(c.line)).collect();
    let states: Vec<String> = changes.iter().map(|c| c.state.as_str().to_owned()).collect();
    sqlx::query!(
        r#"INSERT INTO objects (kind, name, digest, file, line, state, revision)
           SELECT kind, name, digest, file, line, state, $7
           FROM UNNEST($1::text[], $2::text[], $3::bytea[], $4::text[], $5::int[], $6::text[])
                AS c (kind, name, digest, file, line, state)
           WHERE state <> 'moved'
           ON CONFLICT (kind, name) DO UPDATE
           SET digest = EXCLUDED.digest, file = EXCLUDED.file, line = EXCLUDED.line,
               state = EXCLUDED.state, revision = EXCLUDED.revision"#,
        &kinds,
        &names,
        &digests,
        &files,
        &lines,
        &states,
        revision.id.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"INSERT INTO revision_objects (revision, kind, name, digest, file, line, state)
           SELECT $7, kind, name, digest, file, line, state
           FROM UNNEST($1::text[], $2::text[], $3::bytea[], $4::text[], $5::int[], $6::text[])
                AS c (kind, name, digest, file, line, state)"#,
        &kinds,
        &names,
        &digests,
        &files,
        &lines,
        &states,
        revision.id.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

// The columns of a RevisionRow, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            RevisionRow,
            r#"SELECT id, seq, source, commit, tree, branch, author, committer, subject, committed_at, applied_at, applied_by, digest,
                      summary, plan, tree_digest
               FROM revisions "# + $tail
            $(, $arg)*
        )
    };
}

/// The newest revision; `None` before the first.
///
/// # Errors
/// When the statement fails.
pub async fn latest(db: &Db) -> Result<Option<Revision>, DbError> {
    rows::find(db.pool(), select!("ORDER BY seq DESC LIMIT 1")).await
}

/// The sequence number of the newest revision, zero before the first: what a transaction compares to see that no apply came
/// in between.
///
/// # Errors
/// When the statement fails.
pub async fn latest_seq(txn: &mut Txn) -> Result<u64, DbError> {
    let seq =
        sqlx::query_scalar!(r#"SELECT COALESCE(max(seq), 0) AS "seq!" FROM revisions"#).fetch_one(txn.conn()).await?;
    Ok(u64::try_from(seq).unwrap_or(0))
}

/// Revisions, newest first, before a sequence number.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, before: Option<u64>, limit: u32) -> Result<Listed<Revision>, DbError> {
    rows::list(
        db.pool(),
        select!(
            "WHERE $1::bigint IS NULL OR seq < $1 ORDER BY seq DESC LIMIT $2",
            before.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX)),
            i64::from(limit),
        ),
    )
    .await
}

/// The revisions that changed an object, newest first, before a sequence number; and those that changed it under the names
/// that it had before `moved` gave it another.
///
/// # Errors
/// When the statement fails.
pub async fn list_of(
    db: &Db,
    object: &ObjectRef,
    before: Option<u64>,
    limit: u32,
) -> Result<Listed<Revision>, DbError> {
    let statement = select!(
        r#"WHERE id IN (
               WITH RECURSIVE names (kind, name, until) AS (
                   SELECT $1::text, $2::text, 9223372036854775807::bigint
                   UNION
                   SELECT n.kind, split_part(pair ->> 0, '/', 2), r.seq
                   FROM names n
                   JOIN revision_objects o ON o.kind = n.kind AND o.name = n.name
                   JOIN revisions r ON r.id = o.revision AND r.seq < n.until
                   CROSS JOIN LATERAL jsonb_array_elements(r.summary -> 'moved') AS pair
                   WHERE pair ->> 1 = n.kind || '/' || n.name
               )
               SELECT o.revision
               FROM names n
               JOIN revision_objects o ON o.kind = n.kind AND o.name = n.name
               JOIN revisions r ON r.id = o.revision AND r.seq < n.until
             )
             AND ($3::bigint IS NULL OR seq < $3)
           ORDER BY seq DESC LIMIT $4"#,
        object.kind.as_str(),
        object.name.as_str(),
        before.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX)),
        i64::from(limit),
    );
    rows::list(db.pool(), statement).await
}

/// One revision.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: RevisionId) -> Result<Option<Revision>, DbError> {
    rows::find(db.pool(), select!("WHERE id = $1", id.as_uuid())).await
}

/// The newest revision of a source; its files are the ones in force.
///
/// # Errors
/// When the statement fails.
pub async fn latest_of(txn: &mut Txn, source: &str) -> Result<Option<Revision>, DbError> {
    rows::find(txn.conn(), select!("WHERE source = $1 ORDER BY seq DESC LIMIT 1", source)).await
}

/// The same outside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn newest(db: &Db, source: &str) -> Result<Option<Revision>, DbError> {
    rows::find(db.pool(), select!("WHERE source = $1 ORDER BY seq DESC LIMIT 1", source)).await
}

/// The newest revision of each commit of a source whose id begins so, newest first; at most two, since more than one is not
/// what was asked for.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_commit(db: &Db, source: &str, beginning: &str) -> Result<Vec<Revision>, DbError> {
    let rows = select!(
        r#"WHERE seq IN (SELECT max(seq) FROM revisions
                         WHERE source = $1 AND left(commit, length($2)) = $2
                         GROUP BY commit)
           ORDER BY seq DESC LIMIT 2"#,
        source,
        beginning,
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter().map(RevisionRow::read).collect()
}

#[derive(sqlx::FromRow)]
struct RevisionRow {
    id: uuid::Uuid,
    seq: i64,
    source: String,
    commit: String,
    tree: String,
    branch: String,
    author: String,
    committer: String,
    subject: String,
    committed_at: jiff_sqlx::Timestamp,
    applied_at: jiff_sqlx::Timestamp,
    applied_by: String,
    digest: Vec<u8>,
    summary: serde_json::Value,
    plan: Option<uuid::Uuid>,
    tree_digest: Option<Vec<u8>>,
}

impl Stored for RevisionRow {
    type Item = Revision;
    const TABLE: &'static str = "revisions";
    const KEY: &'static [&'static str] = &["seq", "id"];

    fn read(self) -> Result<Revision, DbError> {
        Ok(Revision {
            revision: NewRevision {
                id: RevisionId::from_uuid(self.id),
                source: self.source,
                commit: self.commit,
                tree: self.tree,
                branch: self.branch,
                author: self.author,
                committer: self.committer,
                subject: self.subject,
                committed_at: self.committed_at.to_jiff(),
                applied_by: self.applied_by,
                digest: convert::digest(&self.digest)?,
                summary: self.summary,
                plan: self.plan.map(PlanId::from_uuid),
            },
            seq: u64::try_from(self.seq).unwrap_or(0),
            applied_at: self.applied_at.to_jiff(),
            tree_digest: convert::maybe_digest(self.tree_digest)?,
        })
    }
}

/// Every object, removed ones included, by kind and name.
///
/// # Errors
/// When the statement fails.
pub async fn objects(db: &Db) -> Result<Vec<StoredObject>, DbError> {
    select_objects(db.pool()).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn objects_in(txn: &mut Txn) -> Result<Vec<StoredObject>, DbError> {
    select_objects(txn.conn()).await
}

async fn select_objects(db: impl sqlx::PgExecutor<'_>) -> Result<Vec<StoredObject>, DbError> {
    let statement = sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.kind, o.name, o.digest, d.doc, o.file, o.line, o.state, o.revision
           FROM objects o
           JOIN documents d ON d.digest = o.digest
           ORDER BY o.kind, o.name"#,
    );
    rows::list(db, statement).await?.whole()
}

/// The objects in force that may hold something back: freezes, and documents that say `pin` or `suspend`; and the fleet's
/// own. Which of them really do, their documents say.
///
/// # Errors
/// When the statement fails.
pub async fn braking(txn: &mut Txn) -> Result<Listed<StoredObject>, DbError> {
    let statement = sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.kind, o.name, o.digest, d.doc, o.file, o.line, o.state, o.revision
           FROM objects o
           JOIN documents d ON d.digest = o.digest
           WHERE o.state <> 'removed'
             AND (o.kind IN ('fleet', 'freeze')
                  OR (o.kind IN ('site', 'pool', 'node') AND (d.doc LIKE '%"pin":%' OR d.doc LIKE '%"suspend":%')))
           ORDER BY o.kind, o.name"#,
    );
    rows::list(txn.conn(), statement).await
}

/// Objects whose documents are gone and whose last texts are in force: how many, and the first of them by kind and name.
///
/// # Errors
/// When a statement fails.
pub async fn retained(db: &Db, limit: u32) -> Result<(u64, Vec<String>), DbError> {
    let rows = sqlx::query!(
        r#"SELECT kind || '/' || name AS "object!", count(*) OVER () AS "count!"
           FROM objects WHERE state = 'retained' ORDER BY kind, name LIMIT $1"#,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    let count = rows.first().map_or(0, |row| u64::try_from(row.count).unwrap_or(0));
    Ok((count, rows.into_iter().map(|row| row.object).collect()))
}

/// What revisions after this one renamed, newest revision first, each as the pairs of names that its summary has.
///
/// # Errors
/// When the statement fails.
pub async fn renamed_after(txn: &mut Txn, source: &str, seq: u64) -> Result<Vec<serde_json::Value>, DbError> {
    let rows = sqlx::query_scalar!(
        r#"SELECT summary -> 'moved' AS "moved!" FROM revisions
           WHERE source = $1 AND seq > $2 AND jsonb_typeof(summary -> 'moved') = 'array'
             AND jsonb_array_length(summary -> 'moved') > 0
           ORDER BY seq DESC"#,
        source,
        i64::try_from(seq).unwrap_or(i64::MAX),
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(rows)
}

/// What a revision changed, by kind and name.
///
/// # Errors
/// When the statement fails.
pub async fn changes(db: &Db, revision: RevisionId) -> Result<Listed<StoredObject>, DbError> {
    let statement = sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.kind, o.name, o.digest, d.doc, o.file, o.line, o.state, o.revision
           FROM revision_objects o
           JOIN documents d ON d.digest = o.digest
           WHERE o.revision = $1
           ORDER BY o.kind, o.name"#,
        revision.as_uuid(),
    );
    rows::list(db.pool(), statement).await
}

/// The objects of one kind, removed ones included, by name.
///
/// # Errors
/// When the statement fails.
pub async fn objects_of(db: &Db, kind: schema::object::Kind) -> Result<Listed<StoredObject>, DbError> {
    let statement = sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.kind, o.name, o.digest, d.doc, o.file, o.line, o.state, o.revision
           FROM objects o
           JOIN documents d ON d.digest = o.digest
           WHERE o.kind = $1
           ORDER BY o.name"#,
        kind.as_str(),
    );
    rows::list(db.pool(), statement).await
}

/// One object.
///
/// # Errors
/// When the statement fails.
pub async fn find_object(db: &Db, object: &ObjectRef) -> Result<Option<StoredObject>, DbError> {
    let statement = sqlx::query_as!(
        ObjectRow,
        r#"SELECT o.kind, o.name, o.digest, d.doc, o.file, o.line, o.state, o.revision
           FROM objects o
           JOIN documents d ON d.digest = o.digest
           WHERE o.kind = $1 AND o.name = $2"#,
        object.kind.as_str(),
        object.name.as_str(),
    );
    rows::find(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct ObjectRow {
    kind: String,
    name: String,
    digest: Vec<u8>,
    doc: String,
    file: String,
    line: i32,
    state: String,
    revision: uuid::Uuid,
}

impl Stored for ObjectRow {
    type Item = StoredObject;
    const TABLE: &'static str = "objects";
    const KEY: &'static [&'static str] = &["kind", "name"];

    fn read(self) -> Result<StoredObject, DbError> {
        Ok(StoredObject {
            object: ObjectRef::new(convert::word("kind", &self.kind)?, convert::word("name", &self.name)?),
            digest: convert::digest(&self.digest)?,
            doc: self.doc,
            file: self.file,
            line: convert::count(self.line),
            state: ObjectState::read(&self.state)?,
            revision: RevisionId::from_uuid(self.revision),
        })
    }
}
