//! Certificates that nodes were issued, by serial.

use jiff_sqlx::ToSqlx;
use schema::{generation::IdentityGeneration, id::NodeId, time::Timestamp};

use crate::{
    Db, DbError, Txn, convert,
    poke::Poke,
    rows::{self, Stored},
};

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCert {
    /// Its serial number, big endian.
    pub serial: Vec<u8>,
    /// Whose it is.
    pub node_id: NodeId,
    /// The public key, as the certificate has it (SubjectPublicKeyInfo).
    pub public_key: Vec<u8>,
    /// The identity it belongs to.
    pub identity_generation: IdentityGeneration,
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
    /// When it was revoked; `None` while it is not.
    pub revoked_at: Option<Timestamp>,
    /// The kinds of commands that its holder accepts; `None` for every kind.
    pub allowed_kinds: Option<Vec<String>>,
    /// The name that its holder was told with it; `None` where that is not known.
    pub node_name: Option<String>,
}

/// Stores a certificate.
///
/// # Errors
/// When the statement fails.
pub async fn insert(txn: &mut Txn, cert: &NodeCert) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO node_certs (serial, node_id, public_key, identity_generation, not_before, not_after, allowed_kinds, node_name)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"#,
        cert.serial,
        cert.node_id.as_uuid(),
        cert.public_key,
        cert.identity_generation.to_i64(),
        cert.not_before.to_sqlx() as _,
        cert.not_after.to_sqlx() as _,
        cert.allowed_kinds.as_deref(),
        cert.node_name,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Keeps a certificate as it was issued, with those that it follows from.
///
/// # Errors
/// When the statement fails.
pub async fn keep_chain(txn: &mut Txn, serial: &[u8], chain: &[Vec<u8>]) -> Result<(), DbError> {
    sqlx::query!("UPDATE node_certs SET chain = $2 WHERE serial = $1", serial, chain).execute(txn.conn()).await?;
    Ok(())
}

/// The certificate of a node's key, with those that it follows from; none when it was not kept.
///
/// # Errors
/// When the statement fails.
pub async fn chain_of(db: &Db, node: NodeId, key: &[u8]) -> Result<Vec<Vec<u8>>, DbError> {
    let chain = sqlx::query_scalar!(
        r#"SELECT chain AS "chain!" FROM node_certs
           WHERE node_id = $1 AND public_key = $2 AND chain IS NOT NULL ORDER BY not_after DESC LIMIT 1"#,
        node.as_uuid(),
        key,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(chain.unwrap_or_default())
}

/// One certificate.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, serial: &[u8]) -> Result<Option<NodeCert>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT serial, node_id, public_key, identity_generation, not_before, not_after, revoked_at, allowed_kinds, node_name
           FROM node_certs WHERE serial = $1"#,
        serial,
    );
    rows::find(db.pool(), statement).await
}

/// More keys than an identity comes to: a renewal keeps its key.
const MOST_KEYS: i64 = 8;

/// The public keys that a node's reports may be signed with, newest first and few: those of certificates of its present identity
/// that are not revoked. One that expired within the last 31 days still counts, because a report may have waited.
///
/// # Errors
/// When the statement fails.
pub async fn keys(db: &Db, id: NodeId) -> Result<Vec<Vec<u8>>, DbError> {
    let keys = sqlx::query_scalar!(
        r#"SELECT c.public_key
           FROM node_certs c
           JOIN nodes n ON n.id = c.node_id AND n.identity_generation = c.identity_generation
           WHERE c.node_id = $1 AND c.revoked_at IS NULL AND c.not_after > compute_now() - interval '31 days'
           GROUP BY c.public_key
           ORDER BY max(c.not_after) DESC
           LIMIT $2"#,
        id.as_uuid(),
        MOST_KEYS,
    );
    Ok(keys.fetch_all(db.pool()).await?)
}

/// The kinds of commands that a node's present identity accepts; `None` for every kind.
///
/// # Errors
/// When the statement fails.
pub async fn allowed_kinds(db: &Db, id: NodeId) -> Result<Option<Vec<String>>, DbError> {
    let allowed = sqlx::query_scalar!("SELECT node_allowed_kinds($1)", id.as_uuid());
    Ok(allowed.fetch_one(db.pool()).await?)
}

/// How many certificates a node was issued within the last hour.
///
/// # Errors
/// When the statement fails.
pub async fn issued_lately(txn: &mut Txn, id: NodeId) -> Result<u64, DbError> {
    let issued = sqlx::query_scalar!(
        r#"SELECT count(*) AS "issued!" FROM node_certs
           WHERE node_id = $1 AND issued_at > compute_now() - interval '1 hour'"#,
        id.as_uuid(),
    );
    let issued = issued.fetch_one(txn.conn()).await?;
    Ok(u64::try_from(issued).unwrap_or_default())
}

/// Whether a key is one that the node's present identity was certified with, however long ago.
///
/// # Errors
/// When the statement fails.
pub async fn is_key_of(db: &Db, id: NodeId, public_key: &[u8]) -> Result<bool, DbError> {
    let known = sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT FROM node_certs c
               JOIN nodes n ON n.id = c.node_id AND n.identity_generation = c.identity_generation
               WHERE c.node_id = $1 AND c.revoked_at IS NULL AND c.public_key = $2
           ) AS "known!""#,
        id.as_uuid(),
        public_key,
    );
    Ok(known.fetch_one(db.pool()).await?)
}

/// Revokes every certificate of a node and answers how many that were. A change of identity needs
/// [`crate::nodes::bump_identity`] as well.
///
/// # Errors
/// When the statement fails.
pub async fn revoke_all(txn: &mut Txn, id: NodeId, reason: &str) -> Result<u64, DbError> {
    let done = sqlx::query!(
        "UPDATE node_certs SET revoked_at = compute_now(), revoked_reason = $2 WHERE node_id = $1 AND revoked_at IS NULL",
        id.as_uuid(),
        reason,
    )
    .execute(txn.conn())
    .await?;
    txn.poke(Poke::Node(id));
    Ok(done.rows_affected())
}

/// When the newest certificate of a node's present identity ends; `None` when it has none that is not revoked.
///
/// # Errors
/// When the statement fails.
pub async fn newest_end(db: &Db, id: NodeId) -> Result<Option<Timestamp>, DbError> {
    let end = sqlx::query_scalar!(
        r#"SELECT max(c.not_after) AS "end: jiff_sqlx::Timestamp"
           FROM node_certs c
           JOIN nodes n ON n.id = c.node_id AND n.identity_generation = c.identity_generation
           WHERE c.node_id = $1 AND c.revoked_at IS NULL"#,
        id.as_uuid(),
    )
    .fetch_one(db.pool())
    .await?;
    Ok(end.map(jiff_sqlx::Timestamp::to_jiff))
}

/// The end of an identity that nothing has taken the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// When.
    pub at: Timestamp,
    /// Why, as whoever did it said.
    pub reason: String,
}

/// Why a node has no identity any more; `None` while a certificate of its present identity counts, and for a node that never
/// had one.
///
/// # Errors
/// When the statement fails.
pub async fn revocation(db: &Db, id: NodeId) -> Result<Option<Revocation>, DbError> {
    let statement = sqlx::query_as!(
        RevocationRow,
        r#"SELECT c.node_id, c.revoked_at, c.revoked_reason
           FROM node_certs c
           JOIN nodes n ON n.id = c.node_id
           WHERE c.node_id = $1 AND c.revoked_at IS NOT NULL
             AND NOT EXISTS (SELECT FROM node_certs l
                             WHERE l.node_id = n.id AND l.identity_generation = n.identity_generation AND l.revoked_at IS NULL)
           ORDER BY c.revoked_at DESC, c.issued_at DESC
           LIMIT 1"#,
        id.as_uuid(),
    );
    rows::find(db.pool(), statement).await
}

/// Forgets certificates that expired so long ago that nothing refers to them, but never a node's newest one: a machine may
/// come back after a year. Challenges that are too old to be used again are forgotten too.
///
/// # Errors
/// When the statement fails.
pub async fn prune(db: &Db) -> Result<u64, DbError> {
    let used = sqlx::query!("DELETE FROM renewals WHERE created_at < compute_now() - interval '1 hour'")
        .execute(db.pool())
        .await?;
    let done = sqlx::query!(
        r#"DELETE FROM node_certs c
           WHERE c.not_after < compute_now() - interval '90 days'
             AND EXISTS (SELECT FROM node_certs later WHERE later.node_id = c.node_id AND later.not_after > c.not_after)"#,
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected() + used.rows_affected())
}

#[derive(sqlx::FromRow)]
struct RevocationRow {
    #[expect(dead_code, reason = "the row is found by it when it cannot be read")]
    node_id: uuid::Uuid,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    revoked_reason: Option<String>,
}

impl Stored for RevocationRow {
    type Item = Revocation;
    const TABLE: &'static str = "node_certs";
    const KEY: &'static [&'static str] = &["node_id"];

    fn read(self) -> Result<Revocation, DbError> {
        let at = convert::time(self.revoked_at).ok_or_else(|| DbError::corrupt("revoked_at", "it is none"))?;
        Ok(Revocation { at, reason: self.revoked_reason.unwrap_or_default() })
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    serial: Vec<u8>,
    node_id: uuid::Uuid,
    public_key: Vec<u8>,
    identity_generation: i64,
    not_before: jiff_sqlx::Timestamp,
    not_after: jiff_sqlx::Timestamp,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    allowed_kinds: Option<Vec<String>>,
    node_name: Option<String>,
}

impl Stored for Row {
    type Item = NodeCert;
    const TABLE: &'static str = "node_certs";
    const KEY: &'static [&'static str] = &["node_id"];

    fn read(self) -> Result<NodeCert, DbError> {
        Ok(NodeCert {
            serial: self.serial,
            node_id: NodeId::from_uuid(self.node_id),
            public_key: self.public_key,
            identity_generation: IdentityGeneration::from_i64(self.identity_generation),
            not_before: self.not_before.to_jiff(),
            not_after: self.not_after.to_jiff(),
            revoked_at: convert::time(self.revoked_at),
            allowed_kinds: self.allowed_kinds,
            node_name: self.node_name,
        })
    }
}
