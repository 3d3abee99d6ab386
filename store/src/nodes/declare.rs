//! What documents say about machines, read and written for many at once by apply.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    id::NodeId,
    name::Name,
    node::{Hold, HoldSource, Role},
};

use crate::{
    DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// What apply compares a node with.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredView {
    /// The node.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// What it is to the platform.
    pub role: Role,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A `node` document names it.
    pub declared: bool,
    /// What it should be.
    pub target: Option<Digest>,
    /// The words that go with `target`.
    pub target_overlay: String,
    /// What it was last assigned.
    pub assigned: Option<Digest>,
    /// The words that go with `assigned`.
    pub assigned_overlay: String,
    /// The name that goes with `assigned`, while it is not its own.
    pub assigned_name: Option<Name>,
    /// The hold that its document places.
    pub git_hold: Option<Hold>,
}

/// What documents say about one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The machine.
    pub id: NodeId,
    /// Its site.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// What it is to the platform, by its pool's class.
    pub role: Role,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A `node` document names it.
    pub declared: bool,
    /// What it should be.
    pub target: Option<Digest>,
    /// The node document's own words, canonical JSON.
    pub target_overlay: String,
    /// Assign it to `target` at once.
    pub assign: bool,
}

/// Every node that is not retired, by name, as documents describe it.
///
/// # Errors
/// When the statement fails.
pub async fn declared_view(txn: &mut Txn) -> Result<Listed<DeclaredView>, DbError> {
    let statement = sqlx::query_as!(
        Row,
        r#"SELECT n.id, n.name, n.site, n.pool, n.role, n.labels, n.declared,
                  n.target_digest, n.target_overlay, n.assigned_digest, n.assigned_overlay, n.assigned_name,
                  h.owner AS "owner?", h.reason AS "reason?", h.until, h.place
           FROM nodes n
           LEFT JOIN node_holds h ON h.node_id = n.id AND h.source = 'git'
           WHERE n.provision_state <> 'retired'
           ORDER BY n.name"#,
    );
    rows::list(txn.conn(), statement).await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    name: String,
    site: Option<String>,
    pool: Option<String>,
    role: String,
    labels: serde_json::Value,
    declared: bool,
    target_digest: Option<Vec<u8>>,
    target_overlay: String,
    assigned_digest: Option<Vec<u8>>,
    assigned_overlay: String,
    assigned_name: Option<String>,
    #[sqlx(rename = "owner?")]
    owner: Option<String>,
    #[sqlx(rename = "reason?")]
    reason: Option<String>,
    until: Option<jiff_sqlx::Timestamp>,
    place: Option<String>,
}

impl Stored for Row {
    type Item = DeclaredView;
    const TABLE: &'static str = "nodes";
    const KEY: &'static [&'static str] = &["name", "id"];

    fn read(self) -> Result<DeclaredView, DbError> {
        let name = |text: Option<String>| text.map(|text| convert::word::<Name>("name", &text)).transpose();
        let git_hold = self.owner.zip(self.reason).map(|(owner, reason)| Hold {
            source: HoldSource::Git,
            owner,
            reason,
            until: convert::time(self.until),
            place: self.place,
        });
        Ok(DeclaredView {
            id: NodeId::from_uuid(self.id),
            name: convert::word("name", &self.name)?,
            site: name(self.site)?,
            pool: name(self.pool)?,
            role: convert::word("role", &self.role)?,
            labels: serde_json::from_value(self.labels).map_err(|e| DbError::corrupt("labels", e))?,
            declared: self.declared,
            target: convert::maybe_digest(self.target_digest)?,
            target_overlay: self.target_overlay,
            assigned: convert::maybe_digest(self.assigned_digest)?,
            assigned_overlay: self.assigned_overlay,
            assigned_name: name(self.assigned_name)?,
            git_hold,
        })
    }
}

/// The names of machines where something is staged for a boot, retired ones left out.
///
/// # Errors
/// When the statement fails.
pub async fn awaiting_boot(txn: &mut Txn) -> Result<Vec<Name>, DbError> {
    let names = sqlx::query_scalar!(
        r#"SELECT name FROM nodes
           WHERE conditions @> '[{"type": "RebootRequired", "status": "true"}]' AND provision_state <> 'retired'
           ORDER BY name"#,
    )
    .fetch_all(txn.conn())
    .await?;
    // A machine that has no readable name is told of where its row is read.
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// How many machines there are in a pool of a site, retired ones left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The site.
    pub site: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// How many machines are there.
    pub machines: u64,
    /// Which of the machines that were asked for are among them.
    pub named: Vec<String>,
}

/// Where machines are, in numbers, and where the named ones are.
///
/// # Errors
/// When the statement fails.
pub async fn places(txn: &mut Txn, named: &[String]) -> Result<Vec<Place>, DbError> {
    let rows = sqlx::query!(
        r#"SELECT site, pool, count(*) AS "machines!",
                  COALESCE(array_agg(name) FILTER (WHERE name = ANY ($1)), '{}') AS "named!"
           FROM nodes WHERE provision_state <> 'retired' GROUP BY site, pool ORDER BY site, pool"#,
        named,
    )
    .fetch_all(txn.conn())
    .await?;
    let place = |machines: i64| u64::try_from(machines).unwrap_or(0);
    Ok(rows
        .into_iter()
        .map(|row| Place { site: row.site, pool: row.pool, machines: place(row.machines), named: row.named })
        .collect())
}

/// Writes what documents say, for many nodes in one statement, and answers those whose assignment changed: the caller
/// enqueues `nodespec` for them.
///
/// # Errors
/// When the statement fails.
pub async fn declare(txn: &mut Txn, nodes: &[Declared]) -> Result<Vec<NodeId>, DbError> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|n| n.id.as_uuid()).collect();
    let sites: Vec<Option<String>> = nodes.iter().map(|n| n.site.clone().map(String::from)).collect();
    let pools: Vec<Option<String>> = nodes.iter().map(|n| n.pool.clone().map(String::from)).collect();
    let roles: Vec<String> = nodes.iter().map(|n| n.role.to_string()).collect();
    let labels: Vec<serde_json::Value> =
        nodes.iter().map(|n| serde_json::to_value(&n.labels).expect("text labels are JSON")).collect();
    let declared: Vec<bool> = nodes.iter().map(|n| n.declared).collect();
    let targets: Vec<Option<Vec<u8>>> = nodes.iter().map(|n| n.target.as_ref().map(convert::digest_column)).collect();
    let overlays: Vec<String> = nodes.iter().map(|n| n.target_overlay.clone()).collect();
    let assign: Vec<bool> = nodes.iter().map(|n| n.assign).collect();
    let rows = sqlx::query!(
        r#"WITH d AS (
               SELECT d.*, n.assigned_digest AS old_digest, n.assigned_overlay AS old_overlay, n.assigned_name AS old_name
               FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::bool[], $7::bytea[], $8::text[], $9::bool[])
                    AS d (id, site, pool, role, labels, declared, target, overlay, assign)
               JOIN nodes n ON n.id = d.id
               ORDER BY d.id
               FOR NO KEY UPDATE OF n
           )
           UPDATE nodes n
           SET site = d.site, pool = d.pool, role = d.role, labels = d.labels, declared = d.declared,
               target_digest = d.target, target_overlay = d.overlay,
               assigned_digest = CASE WHEN d.assign THEN d.target ELSE n.assigned_digest END,
               assigned_overlay = CASE WHEN d.assign THEN d.overlay ELSE n.assigned_overlay END,
               assigned_name = CASE WHEN d.assign THEN NULL ELSE n.assigned_name END,
               spec_from_digest = CASE WHEN d.assign AND d.old_name IS NOT NULL THEN NULL ELSE n.spec_from_digest END,
               version = n.version + 1, updated_at = compute_now()
           FROM d
           WHERE n.id = d.id
           RETURNING n.id, (d.assign AND (d.old_digest, d.old_overlay, d.old_name) IS DISTINCT FROM (d.target, d.overlay, NULL::text)) AS "moved!""#,
        &ids,
        &sites as &[Option<String>],
        &pools as &[Option<String>],
        &roles,
        &labels,
        &declared,
        &targets as &[Option<Vec<u8>>],
        &overlays,
        &assign,
    )
    .fetch_all(txn.conn())
    .await?;
    Ok(rows.into_iter().filter(|row| row.moved).map(|row| NodeId::from_uuid(row.id)).collect())
}
