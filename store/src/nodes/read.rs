//! Finding, listing and locking nodes.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    generation::{Generation, IdentityGeneration, Version},
    id::NodeId,
    name::Name,
    node::{Bucket, Condition, Connectivity, NoScheduleReason, ProvisionState},
};

use sqlx::Row as _;

use super::{GetError, Node, SpecFrom};
use crate::{
    Db, DbError, Listed, Page, Txn, convert, page,
    rows::{self, Stored},
};

// The columns of a Row, once; `$tail` is the rest of the statement.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT id, name, site, pool, owner_tenant, role, trust, adapter, labels, declared, hardware_key,
                      hardware_key_trusted, provision_state, failed_from, maintenance, maintenance_reason, cordoned, power,
                      connectivity, connectivity_since, conditions, no_schedule_reasons, inventory_wanted, generation, observed_generation,
                      applied_generation, identity_generation, version, shard, spec_digest, spec_signed_at, spec_changed_at, spec_from_digest, spec_from_overlay,
                      target_digest, target_overlay, assigned_digest, assigned_overlay, assigned_name, created_at, adopted_at
               FROM nodes "# + $tail
            $(, $arg)*
        )
    };
}

/// One node; `None` when there is none.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: NodeId) -> Result<Option<Node>, DbError> {
    rows::find(db.pool(), select!("WHERE id = $1", id.as_uuid())).await
}

/// One node.
///
/// # Errors
/// [`GetError::Missing`] when there is none.
pub async fn get(db: &Db, id: NodeId) -> Result<Node, GetError> {
    find(db, id).await?.ok_or_else(|| GetError::Missing(id.to_string()))
}

/// One node by its name.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_name(db: &Db, name: &str) -> Result<Option<Node>, DbError> {
    rows::find(db.pool(), select!("WHERE name = $1", name)).await
}

/// The node, not retired, that has this hardware key; one that is trusted before one that is not.
///
/// # Errors
/// When the statement fails.
pub async fn find_by_hardware_key(db: &Db, key: &Digest) -> Result<Option<Node>, DbError> {
    rows::find(
        db.pool(),
        select!(
            "WHERE hardware_key = $1 AND provision_state <> 'retired' ORDER BY hardware_key_trusted DESC, id LIMIT 1",
            convert::digest_column(key),
        ),
    )
    .await
}

/// What these nodes are called; one that is not there, or has no name that can be read, is missing.
///
/// # Errors
/// When the statement fails.
pub async fn names(db: &Db, ids: &[NodeId]) -> Result<BTreeMap<NodeId, Name>, DbError> {
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    let rows = sqlx::query!("SELECT id, name FROM nodes WHERE id = ANY ($1)", &ids).fetch_all(db.pool()).await?;
    Ok(rows.into_iter().filter_map(|row| Some((NodeId::from_uuid(row.id), row.name.parse().ok()?))).collect())
}

/// Locks one node until the end of the transaction.
///
/// # Errors
/// When the statement fails.
pub async fn lock(txn: &mut Txn, id: NodeId) -> Result<Option<Node>, DbError> {
    rows::find(txn.conn(), select!("WHERE id = $1 FOR NO KEY UPDATE", id.as_uuid())).await
}

/// What a list is narrowed to; every `None` is "any".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The pool.
    pub pool: Option<String>,
    /// The site.
    pub site: Option<String>,
    /// How far the machine is.
    pub provision: Option<ProvisionState>,
    /// Its session.
    pub connectivity: Option<Connectivity>,
    /// Whether it is cordoned.
    pub cordoned: Option<bool>,
    /// How its name begins.
    pub name_prefix: Option<String>,
}

/// Nodes by name; `after` is the `next` of the page before.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, filter: &Filter, after: Option<&str>, limit: u32) -> Result<Page<Node>, DbError> {
    let (limit, rows) = page::rows(limit);
    let statement = select!(
        r#"WHERE ($1::text IS NULL OR pool = $1)
             AND ($2::text IS NULL OR site = $2)
             AND ($3::text IS NULL OR provision_state = $3)
             AND ($4::text IS NULL OR connectivity = $4)
             AND ($5::boolean IS NULL OR cordoned = $5)
             AND ($6::text IS NULL OR starts_with(name, $6))
             AND ($7::text IS NULL OR name > $7)
           ORDER BY name
           LIMIT $8"#,
        filter.pool.as_deref(),
        filter.site.as_deref(),
        filter.provision.map(ProvisionState::as_str),
        filter.connectivity.map(Connectivity::as_str),
        filter.cordoned,
        filter.name_prefix.as_deref(),
        after,
        rows,
    );
    page::read(db.pool(), statement, limit, |row| row.try_get("name")).await
}

/// Every node of these pools that is not retired, by name.
///
/// # Errors
/// When the statement fails.
pub async fn of_pool(db: &Db, pools: &[Name]) -> Result<Listed<Node>, DbError> {
    let pools: Vec<String> = pools.iter().map(ToString::to_string).collect();
    rows::list(db.pool(), select!("WHERE pool = ANY($1) AND provision_state <> 'retired' ORDER BY name", &pools)).await
}

/// The ids of the nodes in these shards after `after`, by id, retired ones left out: what a resync goes through.
///
/// # Errors
/// When the statement fails.
pub async fn ids_in_shards(db: &Db, shards: &[u16], after: Option<NodeId>, limit: u32) -> Result<Vec<NodeId>, DbError> {
    let shards: Vec<i16> = shards.iter().map(|shard| i16::try_from(*shard).unwrap_or(-1)).collect();
    let ids = sqlx::query_scalar!(
        r#"SELECT id
           FROM nodes
           WHERE shard = ANY($1) AND provision_state <> 'retired' AND ($2::uuid IS NULL OR id > $2)
           ORDER BY id
           LIMIT $3"#,
        &shards,
        after.map(NodeId::as_uuid),
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(ids.into_iter().map(NodeId::from_uuid).collect())
}

/// What the schedulable predicate says in SQL: `Ok` when work may be placed. `None` when there is no such node.
///
/// # Errors
/// When the statement fails.
pub async fn bucket(db: &Db, id: NodeId) -> Result<Option<Result<(), Bucket>>, DbError> {
    let text = sqlx::query_scalar!(r#"SELECT node_bucket(n) AS "bucket!" FROM nodes n WHERE id = $1"#, id.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    text.map(|text| if text == "schedulable" { Ok(Ok(())) } else { convert::word("bucket", &text).map(Err) })
        .transpose()
}

#[derive(sqlx::FromRow)]
struct Row {
    id: uuid::Uuid,
    name: String,
    site: Option<String>,
    pool: Option<String>,
    owner_tenant: Option<String>,
    role: String,
    trust: String,
    adapter: String,
    labels: serde_json::Value,
    declared: bool,
    hardware_key: Option<Vec<u8>>,
    hardware_key_trusted: bool,
    provision_state: String,
    failed_from: Option<String>,
    maintenance: bool,
    maintenance_reason: Option<String>,
    cordoned: bool,
    power: String,
    connectivity: String,
    connectivity_since: jiff_sqlx::Timestamp,
    conditions: serde_json::Value,
    no_schedule_reasons: Vec<String>,
    inventory_wanted: Vec<String>,
    generation: i64,
    observed_generation: i64,
    applied_generation: i64,
    identity_generation: i64,
    version: i64,
    shard: i16,
    spec_digest: Option<Vec<u8>>,
    spec_signed_at: Option<jiff_sqlx::Timestamp>,
    spec_changed_at: Option<jiff_sqlx::Timestamp>,
    spec_from_digest: Option<Vec<u8>>,
    spec_from_overlay: Option<String>,
    target_digest: Option<Vec<u8>>,
    target_overlay: String,
    assigned_digest: Option<Vec<u8>>,
    assigned_overlay: String,
    assigned_name: Option<String>,
    created_at: jiff_sqlx::Timestamp,
    adopted_at: Option<jiff_sqlx::Timestamp>,
}

impl Stored for Row {
    type Item = Node;
    const TABLE: &'static str = "nodes";
    const KEY: &'static [&'static str] = &["name", "id"];

    fn read(self) -> Result<Node, DbError> {
        let name = |text: Option<String>| text.map(|text| convert::word::<Name>("name", &text)).transpose();
        let labels: BTreeMap<String, String> =
            serde_json::from_value(self.labels).map_err(|e| DbError::corrupt("labels", e))?;
        let conditions: Vec<Condition> =
            serde_json::from_value(self.conditions).map_err(|e| DbError::corrupt("conditions", e))?;
        let no_schedule: Result<Vec<NoScheduleReason>, DbError> =
            self.no_schedule_reasons.iter().map(|text| convert::word("no-schedule reason", text)).collect();
        Ok(Node {
            id: NodeId::from_uuid(self.id),
            name: convert::word("name", &self.name)?,
            site: name(self.site)?,
            pool: name(self.pool)?,
            owner_tenant: self.owner_tenant,
            role: convert::word("role", &self.role)?,
            trust: convert::word("trust", &self.trust)?,
            adapter: self.adapter,
            labels,
            declared: self.declared,
            hardware_key: convert::maybe_digest(self.hardware_key)?,
            hardware_key_trusted: self.hardware_key_trusted,
            provision: convert::word("provision state", &self.provision_state)?,
            failed_from: self.failed_from.map(|text| convert::word("provision state", &text)).transpose()?,
            maintenance: self.maintenance,
            maintenance_reason: self.maintenance_reason,
            cordoned: self.cordoned,
            power: convert::word("power", &self.power)?,
            connectivity: convert::word("connectivity", &self.connectivity)?,
            connectivity_since: self.connectivity_since.to_jiff(),
            conditions,
            no_schedule: no_schedule?,
            inventory_wanted: self
                .inventory_wanted
                .iter()
                .map(|text| convert::word("inventory section", text))
                .collect::<Result<_, _>>()?,
            generation: Generation::from_i64(self.generation),
            observed: Generation::from_i64(self.observed_generation),
            applied: Generation::from_i64(self.applied_generation),
            identity_generation: IdentityGeneration::from_i64(self.identity_generation),
            version: Version::from_i64(self.version),
            shard: u16::try_from(self.shard).unwrap_or(0),
            spec_digest: convert::maybe_digest(self.spec_digest)?,
            spec_signed_at: convert::time(self.spec_signed_at),
            spec_changed_at: convert::time(self.spec_changed_at),
            spec_from: convert::maybe_digest(self.spec_from_digest)?
                .zip(self.spec_from_overlay)
                .map(|(target, overlay)| SpecFrom { target, overlay }),
            target: convert::maybe_digest(self.target_digest)?,
            target_overlay: self.target_overlay,
            assigned: convert::maybe_digest(self.assigned_digest)?,
            assigned_overlay: self.assigned_overlay,
            assigned_name: name(self.assigned_name)?,
            created_at: self.created_at.to_jiff(),
            adopted_at: convert::time(self.adopted_at),
        })
    }
}
