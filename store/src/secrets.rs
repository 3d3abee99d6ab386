//! Secrets: sealed values by name and version. What is in here opens only with a key that is elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use schema::{id::NodeId, secret::SecretName, time::Timestamp};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// How many versions of a secret are kept: whoever was away may still ask for the one that it was told of.
pub const KEPT: u32 = 3;

/// A secret, without any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: SecretName,
    /// Its newest version.
    pub version: u64,
    /// The versions that are kept, newest first.
    pub versions: Vec<u64>,
    /// Who put the newest one.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
}

/// Takes the next version of a secret. Whoever puts another one waits for this transaction's end.
///
/// # Errors
/// When the statement fails.
pub async fn next_version(txn: &mut Txn, name: &SecretName) -> Result<u64, DbError> {
    let counter = sqlx::query_scalar!(
        // A name that this database does not know may have had versions since the backup that it was restored from.
        // A life below a hundred thousand is a plain count and not a time.
        r#"INSERT INTO secrets AS s (name, counter)
           SELECT $1, CASE WHEN life < 100000 THEN life * 10000 ELSE life END + 1 FROM outbox_life() life
           ON CONFLICT (name) DO UPDATE SET counter = s.counter + 1
           RETURNING counter"#,
        name.as_str(),
    )
    .fetch_one(txn.conn())
    .await?;
    version(counter)
}

/// Goes on with the versions of the life that began in this transaction, from the second of its beginning: this database was
/// restored, and what was put since its backup, also where that was restored before, has versions that must not come back with
/// another value. Nobody puts one secret every second from one restore to the next.
///
/// # Errors
/// When the statement fails.
pub async fn skip_versions(txn: &mut Txn) -> Result<(), DbError> {
    sqlx::query!("UPDATE secrets SET counter = greatest((counter / 10000 + 1) * 10000, outbox_life())")
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// Stores the envelope of a version that was taken in this transaction, and forgets the oldest ones.
///
/// # Errors
/// When a statement fails.
pub async fn put(
    txn: &mut Txn,
    name: &SecretName,
    version: u64,
    envelope: &[u8],
    created_by: &str,
) -> Result<(), DbError> {
    sqlx::query!(
        "INSERT INTO secret_versions (name, version, envelope, created_by) VALUES ($1, $2, $3, $4)",
        name.as_str(),
        column(version),
        envelope,
        created_by,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"DELETE FROM secret_versions
           WHERE name = $1 AND version NOT IN
                 (SELECT version FROM secret_versions WHERE name = $1 ORDER BY version DESC LIMIT $2)"#,
        name.as_str(),
        i64::from(KEPT),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Forgets a secret with all its versions; `false` when there was none.
///
/// # Errors
/// When a statement fails.
pub async fn delete(txn: &mut Txn, name: &SecretName) -> Result<bool, DbError> {
    // In the order of a put, which holds the counter first.
    sqlx::query!("SELECT counter FROM secrets WHERE name = $1 FOR UPDATE", name.as_str())
        .fetch_optional(txn.conn())
        .await?;
    let done = sqlx::query!("DELETE FROM secret_versions WHERE name = $1", name.as_str()).execute(txn.conn()).await?;
    Ok(done.rows_affected() > 0)
}

/// Every secret, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<Secret>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT DISTINCT ON (name) name, version, created_by, created_at,
                  ARRAY_AGG(version) OVER (PARTITION BY name) AS "versions!"
           FROM secret_versions
           ORDER BY name, version DESC"#,
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    version: i64,
    created_by: String,
    created_at: jiff_sqlx::Timestamp,
    #[sqlx(rename = "versions!")]
    versions: Vec<i64>,
}

impl Stored for Row {
    type Item = Secret;
    const TABLE: &'static str = "secret_versions";
    const KEY: &'static [&'static str] = &["name", "version"];

    fn read(self) -> Result<Secret, DbError> {
        let mut versions = self.versions.into_iter().map(version).collect::<Result<Vec<_>, _>>()?;
        versions.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Secret {
            name: convert::word("secret name", &self.name)?,
            version: version(self.version)?,
            versions,
            created_by: self.created_by,
            created_at: self.created_at.to_jiff(),
        })
    }
}

/// The envelope of one version; `None` when it is not kept.
///
/// # Errors
/// When the statement fails.
pub async fn find_envelope(db: &Db, name: &SecretName, version: u64) -> Result<Option<Vec<u8>>, DbError> {
    let envelope = sqlx::query_scalar!(
        "SELECT envelope FROM secret_versions WHERE name = $1 AND version = $2",
        name.as_str(),
        column(version),
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(envelope)
}

/// An envelope and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The secret.
    pub name: SecretName,
    /// Its version.
    pub version: u64,
    /// Its value, sealed.
    pub envelope: Vec<u8>,
}

/// How many envelopes do not begin like this and are needed: one that begins like none of those that open is needed unless a
/// newer version of its secret opens.
///
/// # Errors
/// When the statement fails.
pub async fn count_other_heads(db: &Db, head: &[u8], opens: &[Vec<u8>]) -> Result<u64, DbError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM secret_versions s
           WHERE substr(envelope, 1, length($1::bytea)) <> $1
             AND (substr(envelope, 1, length($1)) = ANY ($2::bytea[])
                  OR NOT EXISTS (SELECT FROM secret_versions n WHERE n.name = s.name AND n.version > s.version
                                   AND substr(n.envelope, 1, length($1)) = ANY ($2)))"#,
        head,
        opens,
    )
    .fetch_one(db.pool())
    .await?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// The newest versions that begin like none of those that open: their values are lost, or another key opens them.
///
/// # Errors
/// When the statement fails.
pub async fn list_closed(db: &Db, opens: &[Vec<u8>]) -> Result<Vec<(SecretName, u64)>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT name, version FROM secret_versions s
           WHERE version = (SELECT max(version) FROM secret_versions n WHERE n.name = s.name)
             AND NOT EXISTS (SELECT FROM UNNEST($1::bytea[]) head WHERE substr(envelope, 1, length(head)) = head)
           ORDER BY name"#,
        opens,
    )
    .fetch_all(db.pool())
    .await?;
    rows.into_iter().map(|row| Ok((convert::word("secret name", &row.name)?, version(row.version)?))).collect()
}

/// Some envelopes that do not begin like this and open, which nobody else replaces or deletes before this transaction's end.
///
/// # Errors
/// When the statement fails.
pub async fn lock_other_heads(
    txn: &mut Txn,
    head: &[u8],
    opens: &[Vec<u8>],
    limit: u32,
) -> Result<Vec<Sealed>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT name, version, envelope FROM secret_versions
           WHERE substr(envelope, 1, length($1::bytea)) <> $1 AND substr(envelope, 1, length($1)) = ANY ($2::bytea[])
           ORDER BY name, version LIMIT $3 FOR UPDATE SKIP LOCKED"#,
        head,
        opens,
        i64::from(limit),
    )
    .fetch_all(txn.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let name = convert::word("secret name", &row.name)?;
            Ok(Sealed { name, version: version(row.version)?, envelope: row.envelope })
        })
        .collect()
}

/// Puts another envelope of the same value in.
///
/// # Errors
/// When the statement fails.
pub async fn replace_envelope(txn: &mut Txn, sealed: &Sealed) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE secret_versions SET envelope = $3 WHERE name = $1 AND version = $2",
        sealed.name.as_str(),
        column(sealed.version),
        &sealed.envelope,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The newest versions of some secrets; one that is not kept is left out.
///
/// # Errors
/// When the statement fails.
pub async fn newest(db: &Db, names: &BTreeSet<SecretName>) -> Result<BTreeMap<SecretName, u64>, DbError> {
    select_newest(db.pool(), &texts(names)).await
}

/// The same, so that nobody puts a newer one before this transaction's end.
///
/// # Errors
/// When a statement fails.
pub async fn newest_held(txn: &mut Txn, names: &BTreeSet<SecretName>) -> Result<BTreeMap<SecretName, u64>, DbError> {
    let names = texts(names);
    sqlx::query!("SELECT name FROM secrets WHERE name = ANY ($1) ORDER BY name FOR SHARE", &names)
        .fetch_all(txn.conn())
        .await?;
    select_newest(txn.conn(), &names).await
}

async fn select_newest(db: impl sqlx::PgExecutor<'_>, names: &[String]) -> Result<BTreeMap<SecretName, u64>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT name, max(version) AS "version!" FROM secret_versions WHERE name = ANY ($1) GROUP BY name"#,
        names,
    )
    .fetch_all(db)
    .await?;
    rows.into_iter().map(|row| Ok((convert::word("secret name", &row.name)?, version(row.version)?))).collect()
}

fn texts(names: &BTreeSet<SecretName>) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Makes the secrets that a node refers to exactly these.
///
/// # Errors
/// When a statement fails.
pub async fn set_uses(txn: &mut Txn, node: NodeId, names: &BTreeSet<SecretName>) -> Result<(), DbError> {
    let names = texts(names);
    sqlx::query!("DELETE FROM secret_uses WHERE node_id = $1 AND name <> ALL ($2)", node.as_uuid(), &names)
        .execute(txn.conn())
        .await?;
    sqlx::query!(
        "INSERT INTO secret_uses (node_id, name) SELECT $1, UNNEST($2::text[]) ON CONFLICT DO NOTHING",
        node.as_uuid(),
        &names,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// The nodes that refer to a secret. Call it after the version was taken, or the secret deleted, in the same transaction:
/// whoever composes a spec meanwhile waits for its end.
///
/// # Errors
/// When the statement fails.
pub async fn used_by(txn: &mut Txn, name: &SecretName) -> Result<Vec<NodeId>, DbError> {
    let nodes = sqlx::query_scalar!("SELECT node_id FROM secret_uses WHERE name = $1 ORDER BY node_id", name.as_str())
        .fetch_all(txn.conn())
        .await?;
    Ok(nodes.into_iter().map(NodeId::from_uuid).collect())
}

fn version(column: i64) -> Result<u64, DbError> {
    u64::try_from(column).map_err(|e| DbError::corrupt("secret version", e))
}

fn column(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}
