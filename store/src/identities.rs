//! Who a node is: its identity is replaced, its hardware moves, its trust steps, its challenges are used up.

use schema::{
    command::Reason,
    digest::Digest,
    id::NodeId,
    node::{ProvisionEvent, connectivity::UNREACHABLE_AFTER},
    time::Timestamp,
};

use crate::{
    Db, DbError, Txn, commands, convert, node_certs,
    nodes::{self, ChangeError, Node},
};

/// The hardware that a node is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// SHA-256 over its normalised identifiers.
    pub key: Option<Digest>,
    /// At least two independent identifiers survived.
    pub trusted: bool,
}

/// Why a node's hardware was not changed.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// Another node has it.
    #[error("another node has this hardware")]
    Taken,
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Why a machine does not take a node over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// Another node has its hardware.
    #[error("another node has this hardware")]
    HardwareTaken,
    /// The node is in the middle of something.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<DbError> for TakeOverError {
    fn from(error: DbError) -> Self {
        Self::Change(error.into())
    }
}

/// Gives a locked node to the machine that comes in for it: certificates, reports and commands of before count no more, what
/// it observed is forgotten with the identity that signed it, and it is accepted anew. Silence is counted from now on: the
/// machine that came in is no less here than the one before it.
///
/// # Errors
/// [`TakeOverError`] says why not; the transaction is of no more use then.
pub async fn take_over(txn: &mut Txn, node: &Node, hardware: Hardware, reason: &str) -> Result<(), TakeOverError> {
    nodes::set_provision(txn, node, ProvisionEvent::Rejoin).await?;
    node_certs::revoke_all(txn, node.id, reason).await?;
    let id = node.id.as_uuid();
    let done = sqlx::query!(
        r#"UPDATE nodes
           SET identity_generation = identity_generation + 1, hardware_key = $2, hardware_key_trusted = $3,
               applied_generation = 0, observed_generation = 0, trust_version = 0, policy_epoch = NULL,
               policy_digest = NULL, policy_refused = NULL,
               acceptance_attempt = acceptance_attempt + 1,
               connectivity = 'disconnected', connectivity_since = compute_now(),
               maintenance = CASE WHEN $4 THEN false ELSE maintenance END,
               maintenance_reason = CASE WHEN $4 THEN NULL ELSE maintenance_reason END
           WHERE id = $1"#,
        id,
        hardware.key.as_ref().map(convert::digest_column),
        hardware.trusted,
        node.failed_from.is_some(),
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from);
    match done {
        Ok(_) => {}
        Err(error) if error.violates("nodes_hardware_key") => return Err(TakeOverError::HardwareTaken),
        Err(error) => return Err(error.into()),
    }
    sqlx::query!(
        r#"UPDATE sessions
           SET last_seen = compute_now(), disconnected_at = COALESCE(disconnected_at, compute_now())
           WHERE node_id = $1"#,
        id,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from)?;
    forget_what_it_said(txn, node.id).await?;
    commands::end_open_of(txn, node.id, &Reason::IDENTITY_REPLACED).await?;
    Ok(())
}

/// Whether the machine that a node is may still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// When it was last heard; `None` when it never was.
    pub heard: Option<Timestamp>,
    /// It was not heard for as long as a machine may be silent.
    pub silent: bool,
    /// No certificate of its identity counts: nobody can be heard under it any more.
    pub vacant: bool,
}

/// Whether the machine that a node is may still be there.
///
/// # Errors
/// When the statement fails.
pub async fn presence(db: &Db, id: NodeId) -> Result<Presence, DbError> {
    read_presence(db.pool(), id).await
}

/// As [`presence`], of a node that is locked: it stays so until the commit.
///
/// # Errors
/// When a statement fails.
pub async fn presence_of_locked(txn: &mut Txn, id: NodeId) -> Result<Presence, DbError> {
    sqlx::query!("SELECT node_id FROM sessions WHERE node_id = $1 FOR NO KEY UPDATE", id.as_uuid())
        .fetch_optional(txn.conn())
        .await?;
    read_presence(txn.conn(), id).await
}

async fn read_presence(executor: impl sqlx::PgExecutor<'_>, id: NodeId) -> Result<Presence, DbError> {
    let row = sqlx::query!(
        r#"SELECT s.last_seen AS "last_seen?: jiff_sqlx::Timestamp",
                  COALESCE(s.last_seen <= compute_now() - $2 * interval '1 second', true) AS "silent!",
                  NOT EXISTS (SELECT FROM node_certs c
                              WHERE c.node_id = n.id AND c.identity_generation = n.identity_generation
                                AND c.revoked_at IS NULL) AS "vacant!"
           FROM nodes n
           LEFT JOIN sessions s ON s.node_id = n.id
           WHERE n.id = $1"#,
        id.as_uuid(),
        UNREACHABLE_AFTER.as_secs() as f64,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map_or(Presence { heard: None, silent: true, vacant: true }, |row| Presence {
        heard: convert::time(row.last_seen),
        silent: row.silent,
        vacant: row.vacant,
    }))
}

async fn forget_what_it_said(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    let id = id.as_uuid();
    sqlx::query!("DELETE FROM node_reports WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_report_marks WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_sections WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_inventory WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_drift WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_boots WHERE node_id = $1", id).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM node_identities WHERE node_id = $1", id).execute(txn.conn()).await?;
    Ok(())
}

/// Ends a node's identity: no certificate of it works any more, an open session ends, and so does every command. The machine
/// may come back with a token.
///
/// # Errors
/// When a statement fails.
pub async fn revoke(txn: &mut Txn, id: NodeId, reason: &str) -> Result<(), DbError> {
    node_certs::revoke_all(txn, id, reason).await?;
    nodes::bump_identity(txn, id).await?;
    commands::end_open_of(txn, id, &Reason::IDENTITY_REPLACED).await
}

/// From now on the node is known by this hardware. Its identity stays: the machine has its key.
///
/// # Errors
/// [`HardwareError::Taken`] when another node has it; the transaction is of no more use then.
pub async fn set_hardware(txn: &mut Txn, id: NodeId, hardware: Hardware) -> Result<(), HardwareError> {
    let done = sqlx::query!(
        r#"UPDATE nodes SET hardware_key = $2, hardware_key_trusted = $3, version = version + 1, updated_at = compute_now()
           WHERE id = $1"#,
        id.as_uuid(),
        hardware.key.as_ref().map(convert::digest_column),
        hardware.trusted,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from);
    match done {
        Ok(_) => Ok(()),
        Err(error) if error.violates("nodes_hardware_key") => Err(HardwareError::Taken),
        Err(error) => Err(error.into()),
    }
}

/// Uses a challenge up; `false` when it was used before.
///
/// # Errors
/// When the statement fails.
pub async fn use_challenge(txn: &mut Txn, challenge: &[u8], node: NodeId) -> Result<bool, DbError> {
    let done = sqlx::query!(
        "INSERT INTO renewals (challenge, node_id) VALUES ($1, $2) ON CONFLICT (challenge) DO NOTHING",
        challenge,
        node.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The version of the trust bundle that a node said it believes, in bytes that it signed.
///
/// # Errors
/// When the statement fails.
pub async fn set_trust_version(txn: &mut Txn, id: NodeId, version: u64) -> Result<(), DbError> {
    let version = i64::try_from(version).unwrap_or(i64::MAX);
    sqlx::query!("UPDATE nodes SET trust_version = $2 WHERE id = $1 AND trust_version <> $2", id.as_uuid(), version)
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// The version of the trust bundle that a node said it believes; 0 before it said anything.
///
/// # Errors
/// When the statement fails.
pub async fn trust_version(db: &Db, id: NodeId) -> Result<u64, DbError> {
    let version = sqlx::query_scalar!("SELECT trust_version FROM nodes WHERE id = $1", id.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    Ok(version.and_then(|version| u64::try_from(version).ok()).unwrap_or_default())
}

/// Which attempt at a node's acceptance is under way, from 1.
///
/// # Errors
/// When the statement fails.
pub async fn acceptance(db: &Db, id: NodeId) -> Result<u64, DbError> {
    let attempt = sqlx::query_scalar!("SELECT acceptance_attempt FROM nodes WHERE id = $1", id.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    Ok(attempt.and_then(|attempt| u64::try_from(attempt).ok()).unwrap_or(1))
}

/// The node's acceptance begins anew: checks that were made before say nothing about it.
///
/// # Errors
/// When the statement fails.
pub async fn next_acceptance(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    sqlx::query!("UPDATE nodes SET acceptance_attempt = acceptance_attempt + 1 WHERE id = $1", id.as_uuid())
        .execute(txn.conn())
        .await?;
    Ok(())
}

/// How many names a list of stragglers has at most.
pub const STRAGGLERS: usize = 50;

/// Nodes that a rotation waits for, by name; the first of them, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stragglers {
    /// How many.
    pub count: u64,
    /// The first ones.
    pub names: Vec<String>,
}

/// How far the fleet followed a rotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Nodes that are not retired.
    pub nodes: u64,
    /// Those whose trust bundle is older than asked.
    pub behind: Stragglers,
    /// Those whose newest certificate was issued before the asked time.
    pub old_certificates: Stragglers,
}

/// How far the fleet followed: trust bundles of at least this version, certificates issued since then. A node whose identity was
/// revoked follows nothing: whoever comes in for it learns what is believed then.
///
/// # Errors
/// When the statement fails.
pub async fn progress(db: &Db, version: u64, since: Option<Timestamp>) -> Result<Progress, DbError> {
    use jiff_sqlx::ToSqlx as _;
    let version = i64::try_from(version).unwrap_or(i64::MAX);
    let rows = sqlx::query!(
        r#"SELECT n.name, n.trust_version < $1 AS "behind!",
                  ($2::timestamptz IS NOT NULL AND COALESCE(
                      (SELECT max(c.issued_at) FROM node_certs c
                       WHERE c.node_id = n.id AND c.identity_generation = n.identity_generation AND c.revoked_at IS NULL) < $2,
                      false)) AS "old!"
           FROM nodes n
           WHERE n.provision_state <> 'retired'
             AND EXISTS (SELECT FROM node_certs c
                         WHERE c.node_id = n.id AND c.identity_generation = n.identity_generation AND c.revoked_at IS NULL)
           ORDER BY n.name"#,
        version,
        since.map(|at| at.to_sqlx()) as _,
    )
    .fetch_all(db.pool())
    .await?;
    let mut progress = Progress { nodes: u64::try_from(rows.len()).unwrap_or(u64::MAX), ..Progress::default() };
    let count = |stragglers: &mut Stragglers, name: &str| {
        stragglers.count += 1;
        if stragglers.names.len() < STRAGGLERS {
            stragglers.names.push(name.to_owned());
        }
    };
    for row in rows {
        if row.behind {
            count(&mut progress.behind, &row.name);
        }
        if row.old {
            count(&mut progress.old_certificates, &row.name);
        }
    }
    Ok(progress)
}
