//! Pools as the reconcilers need them, and the targets that their hosts are composed from.

use std::collections::BTreeMap;

use schema::{digest::Digest, id::RevisionId, name::Name, node::PoolClass, time::Timestamp};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A pool in force.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Name,
    /// What its machines are booked as.
    pub class: PoolClass,
    /// The tenant it belongs to; `None` for the platform's.
    pub owner_tenant: Option<String>,
    /// The pool document's policy, canonical JSON.
    pub policy: serde_json::Value,
    /// What its hosts should be; `None` until a revision was applied.
    pub target: Option<Digest>,
    /// The target of each profile that a node may have instead.
    pub profile_targets: BTreeMap<Name, Digest>,
    /// The revision that wrote it last.
    pub revision: Option<RevisionId>,
    /// When that was.
    pub updated_at: Timestamp,
}

/// A pool as a revision writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPool {
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Name,
    /// What its machines are booked as.
    pub class: PoolClass,
    /// The tenant it belongs to.
    pub owner_tenant: Option<String>,
    /// The pool document's policy.
    pub policy: serde_json::Value,
    /// What its hosts should be. Stored before, with [`insert_targets`].
    pub target: Option<Digest>,
    /// The target of each profile that a node may have instead.
    pub profile_targets: BTreeMap<Name, Digest>,
}

/// A whole host template, addressed by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The digest of `doc`.
    pub digest: Digest,
    /// The pool.
    pub pool: Name,
    /// The profile.
    pub profile: Name,
    /// The template, canonical JSON.
    pub doc: String,
}

/// Stores targets; the text of one that is there already is put right.
///
/// # Errors
/// When the statement fails.
pub async fn insert_targets(txn: &mut Txn, targets: &[Target]) -> Result<(), DbError> {
    let targets: BTreeMap<Digest, &Target> = targets.iter().map(|target| (target.digest, target)).collect();
    let digests: Vec<Vec<u8>> = targets.keys().map(convert::digest_column).collect();
    let column = |of: fn(&Target) -> String| targets.values().map(|target| of(target)).collect::<Vec<String>>();
    sqlx::query!(
        r#"INSERT INTO targets (digest, pool, profile, doc)
           SELECT * FROM UNNEST($1::bytea[], $2::text[], $3::text[], $4::text[])
           ON CONFLICT (digest) DO UPDATE SET created_at = EXCLUDED.created_at, doc = EXCLUDED.doc"#,
        &digests,
        &column(|t| t.pool.to_string()),
        &column(|t| t.profile.to_string()),
        &column(|t| t.doc.clone()),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Forgets targets that no pool and no node names, a day after they were last stored, and answers how many.
///
/// # Errors
/// When the statement fails.
pub async fn prune_targets(db: &Db) -> Result<u64, DbError> {
    // Storing one again moves its time and so locks it: it is not forgotten under the transaction that will name it.
    let done = sqlx::query!(
        r#"WITH named (digest) AS (
               SELECT target_digest FROM pools WHERE target_digest IS NOT NULL
               UNION SELECT decode(substr(p.text, 8), 'hex') FROM pools, jsonb_each_text(profile_targets) AS p (profile, text)
               UNION SELECT n.digest
                     FROM nodes, LATERAL (VALUES (target_digest), (assigned_digest), (spec_from_digest)) AS n (digest)
                     WHERE n.digest IS NOT NULL
           )
           DELETE FROM targets t
           WHERE t.created_at < compute_now() - interval '1 day'
             AND NOT EXISTS (SELECT FROM named WHERE named.digest = t.digest)"#,
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}

/// One target.
///
/// # Errors
/// When the statement fails.
pub async fn find_target(db: &Db, digest: &Digest) -> Result<Option<Target>, DbError> {
    let row = sqlx::query!(
        "SELECT digest, pool, profile, doc FROM targets WHERE digest = $1",
        convert::digest_column(digest)
    )
    .fetch_optional(db.pool())
    .await?;
    row.map(|row| {
        Ok(Target {
            digest: convert::digest(&row.digest)?,
            pool: convert::word("pool", &row.pool)?,
            profile: convert::word("profile", &row.profile)?,
            doc: row.doc,
        })
    })
    .transpose()
}

/// Targets by digest; those that are not there are left out.
///
/// # Errors
/// When the statement fails.
pub async fn find_targets(txn: &mut Txn, digests: &[Digest]) -> Result<Vec<Target>, DbError> {
    let digests: Vec<Vec<u8>> = digests.iter().map(convert::digest_column).collect();
    let rows =
        sqlx::query!("SELECT digest, pool, profile, doc FROM targets WHERE digest = ANY($1) ORDER BY digest", &digests)
            .fetch_all(txn.conn())
            .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Target {
                digest: convert::digest(&row.digest)?,
                pool: convert::word("pool", &row.pool)?,
                profile: convert::word("profile", &row.profile)?,
                doc: row.doc,
            })
        })
        .collect()
}

/// Writes pools of a revision, new and changed ones.
///
/// # Errors
/// When the statement fails.
pub async fn upsert(txn: &mut Txn, revision: RevisionId, pools: &[NewPool]) -> Result<(), DbError> {
    let column = |of: fn(&NewPool) -> String| pools.iter().map(of).collect::<Vec<String>>();
    let owners: Vec<Option<String>> = pools.iter().map(|p| p.owner_tenant.clone()).collect();
    let policies: Vec<serde_json::Value> = pools.iter().map(|p| p.policy.clone()).collect();
    let targets: Vec<Option<Vec<u8>>> = pools.iter().map(|p| p.target.as_ref().map(convert::digest_column)).collect();
    let profiles: Vec<serde_json::Value> =
        pools.iter().map(|p| serde_json::to_value(&p.profile_targets).expect("names and digests are JSON")).collect();
    sqlx::query!(
        r#"INSERT INTO pools (name, site, class, owner_tenant, policy, target_digest, profile_targets, revision)
           SELECT name, site, class, owner_tenant, policy, target, profile_targets, $8
           FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::bytea[], $7::jsonb[])
                AS p (name, site, class, owner_tenant, policy, target, profile_targets)
           ON CONFLICT (name) DO UPDATE
           SET site = EXCLUDED.site, class = EXCLUDED.class, owner_tenant = EXCLUDED.owner_tenant, policy = EXCLUDED.policy,
               target_digest = EXCLUDED.target_digest, profile_targets = EXCLUDED.profile_targets, revision = EXCLUDED.revision, updated_at = compute_now()"#,
        &column(|p| p.name.to_string()),
        &column(|p| p.site.to_string()),
        &column(|p| p.class.to_string()),
        &owners as &[Option<String>],
        &policies,
        &targets as &[Option<Vec<u8>>],
        &profiles,
        revision.as_uuid(),
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

/// Takes pools out.
///
/// # Errors
/// When the statement fails.
pub async fn delete(txn: &mut Txn, names: &[Name]) -> Result<(), DbError> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    sqlx::query!("DELETE FROM pools WHERE name = ANY($1)", &names).execute(txn.conn()).await?;
    Ok(())
}

// The columns of a Row, once.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            "SELECT name, site, class, owner_tenant, policy, target_digest, profile_targets, revision, updated_at FROM pools " + $tail
            $(, $arg)*
        )
    };
}

/// One pool.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, name: &str) -> Result<Option<Pool>, DbError> {
    rows::find(db.pool(), select!("WHERE name = $1", name)).await
}

/// One pool, kept as it is until the end of the transaction: what a joining machine reads before its row is inserted, so
/// that it is in order with an apply, which changes the pools first.
///
/// # Errors
/// When the statement fails.
pub async fn find_shared(txn: &mut Txn, name: &str) -> Result<Option<Pool>, DbError> {
    rows::find(txn.conn(), select!("WHERE name = $1 FOR SHARE", name)).await
}

/// Every pool, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db) -> Result<Listed<Pool>, DbError> {
    rows::list(db.pool(), select!("ORDER BY name")).await
}

/// The same inside a transaction.
///
/// # Errors
/// When the statement fails.
pub async fn list_in(txn: &mut Txn) -> Result<Vec<Pool>, DbError> {
    rows::list(txn.conn(), select!("ORDER BY name")).await?.whole()
}

/// Locks every pool until the end of the transaction, by name: what an apply does first.
///
/// # Errors
/// When the statement fails.
pub async fn lock_all(txn: &mut Txn) -> Result<Vec<Pool>, DbError> {
    rows::list(txn.conn(), select!("ORDER BY name FOR UPDATE")).await?.whole()
}

/// How far a pool's machines are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The pool.
    pub pool: Name,
    /// Its machines, retired ones left out.
    pub total: u64,
    /// Those with a session.
    pub connected: u64,
    /// Those assigned to the pool's target, or to the one of their own profile.
    pub assigned: u64,
    /// Those that receive a spec, are assigned to their target, have a spec composed from it, observed its generation with no
    /// section failed, wait for no reboot, and have an identity.
    pub converged: u64,
    /// Those whose identity was revoked: they do not come back by themselves.
    pub revoked: u64,
    /// Those on which new work may be placed.
    pub schedulable: u64,
}

/// The progress of every pool that exists or has machines, by name.
///
/// # Errors
/// When the statement fails.
pub async fn progress(db: &Db) -> Result<Listed<Progress>, DbError> {
    let statement = sqlx::query_as!(
        ProgressRow,
        r#"SELECT COALESCE(p.name, n.pool) AS "pool!",
                  count(n.id) AS "total!",
                  count(*) FILTER (WHERE n.connectivity = 'connected') AS "connected!",
                  count(*) FILTER (WHERE n.assigned_digest = n.target_digest AND n.assigned_overlay = n.target_overlay
                                     AND n.assigned_name IS NULL) AS "assigned!",
                  count(*) FILTER (WHERE n.provision_state IN ('adopted', 'deployed')
                                     AND n.assigned_digest = n.target_digest AND n.assigned_overlay = n.target_overlay AND n.assigned_name IS NULL
                                     AND (n.spec_from_digest, n.spec_from_overlay)
                                         IS NOT DISTINCT FROM (n.assigned_digest, n.assigned_overlay)
                                     AND n.generation > 0 AND n.observed_generation >= n.generation
                                     AND NOT n.conditions @> '[{"type": "RebootRequired", "status": "true"}]'
                                     AND r.node_id IS NULL
                                     AND NOT EXISTS (SELECT FROM node_sections s WHERE s.node_id = n.id AND s.state = 'failed')) AS "converged!",
                  count(r.node_id) AS "revoked!",
                  count(*) FILTER (WHERE n.id IS NOT NULL AND node_bucket(n) = 'schedulable') AS "schedulable!"
           FROM pools p
           FULL JOIN (SELECT * FROM nodes WHERE pool IS NOT NULL AND provision_state <> 'retired') n ON n.pool = p.name
           LEFT JOIN (SELECT DISTINCT c.node_id FROM node_certs c JOIN nodes m ON m.id = c.node_id
                      WHERE c.revoked_at IS NOT NULL
                        AND NOT EXISTS (SELECT FROM node_certs l WHERE l.node_id = m.id AND l.revoked_at IS NULL
                                          AND l.identity_generation = m.identity_generation)) r ON r.node_id = n.id
           GROUP BY 1
           ORDER BY 1"#,
    );
    rows::list(db.pool(), statement).await
}

#[derive(sqlx::FromRow)]
struct ProgressRow {
    #[sqlx(rename = "pool!")]
    pool: String,
    #[sqlx(rename = "total!")]
    total: i64,
    #[sqlx(rename = "connected!")]
    connected: i64,
    #[sqlx(rename = "assigned!")]
    assigned: i64,
    #[sqlx(rename = "converged!")]
    converged: i64,
    #[sqlx(rename = "revoked!")]
    revoked: i64,
    #[sqlx(rename = "schedulable!")]
    schedulable: i64,
}

impl Stored for ProgressRow {
    type Item = Progress;
    const TABLE: &'static str = "nodes";
    const KEY: &'static [&'static str] = &["pool!"];

    fn read(self) -> Result<Progress, DbError> {
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(Progress {
            pool: convert::word("pool", &self.pool)?,
            total: count(self.total),
            connected: count(self.connected),
            assigned: count(self.assigned),
            converged: count(self.converged),
            revoked: count(self.revoked),
            schedulable: count(self.schedulable),
        })
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    site: String,
    class: String,
    owner_tenant: Option<String>,
    policy: serde_json::Value,
    target_digest: Option<Vec<u8>>,
    profile_targets: serde_json::Value,
    revision: Option<uuid::Uuid>,
    updated_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = Pool;
    const TABLE: &'static str = "pools";
    const KEY: &'static [&'static str] = &["name"];

    fn read(self) -> Result<Pool, DbError> {
        Ok(Pool {
            name: convert::word("name", &self.name)?,
            site: convert::word("site", &self.site)?,
            class: convert::word("class", &self.class)?,
            owner_tenant: self.owner_tenant,
            policy: self.policy,
            target: convert::maybe_digest(self.target_digest)?,
            profile_targets: serde_json::from_value(self.profile_targets)
                .map_err(|e| DbError::corrupt("profile targets", e))?,
            revision: self.revision.map(RevisionId::from_uuid),
            updated_at: self.updated_at.to_jiff(),
        })
    }
}
