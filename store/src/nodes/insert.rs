//! A machine comes in, as adopting.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    id::NodeId,
    name::Name,
    node::{Role, Trust},
    shard,
};

use crate::{DbError, Txn, convert, marks};

/// A machine that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its id, which its certificate already names.
    pub id: NodeId,
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// The tenant that owns it.
    pub owner_tenant: Option<String>,
    /// What it is to the platform.
    pub role: Role,
    /// Who controls it.
    pub trust: Trust,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// A `node` document names it.
    pub declared: bool,
    /// SHA-256 over its normalised identifiers.
    pub hardware_key: Option<Digest>,
    /// At least two independent identifiers survived.
    pub hardware_key_trusted: bool,
    /// What it should be; also what it is assigned first.
    pub target: Option<Digest>,
    /// The node document's own words, canonical JSON; `{}` for none.
    pub overlay: String,
}

impl NewNode {
    /// A machine that belongs nowhere and of which nothing is known.
    #[must_use]
    pub fn unknown(id: NodeId, name: Name) -> Self {
        Self {
            id,
            name,
            site: None,
            pool: None,
            owner_tenant: None,
            role: Role::Host,
            trust: Trust::Platform,
            labels: BTreeMap::new(),
            declared: false,
            hardware_key: None,
            hardware_key_trusted: false,
            target: None,
            overlay: "{}".to_owned(),
        }
    }
}

/// Why a machine was not inserted.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// Another node has the name.
    #[error("the name {0} is taken")]
    NameTaken(Name),
    /// Another node has the trusted hardware key.
    #[error("another node has the same hardware")]
    HardwareTaken,
    /// The statement failed.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Inserts a node as adopting, assigned to its target.
///
/// # Errors
/// [`InsertError`] names what is taken; the transaction is of no more use then.
pub async fn insert(txn: &mut Txn, node: &NewNode) -> Result<(), InsertError> {
    let target = node.target.as_ref().map(convert::digest_column);
    let place = marks::placement(node.id, node.name.as_str(), node.pool.as_deref());
    let placement = txn.marker().map(|marker| marker.placement(&place));
    let done = sqlx::query!(
        r#"INSERT INTO nodes (id, name, site, pool, owner_tenant, role, trust, labels, declared, hardware_key, hardware_key_trusted,
                              provision_state, shard, target_digest, target_overlay, assigned_digest, assigned_overlay, placement)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'adopting', $12, $13, $14, $13, $14, $15)"#,
        node.id.as_uuid(),
        node.name.as_str(),
        node.site.as_deref(),
        node.pool.as_deref(),
        node.owner_tenant.as_deref(),
        node.role.as_str(),
        node.trust.as_str(),
        serde_json::to_value(&node.labels).expect("text labels are JSON"),
        node.declared,
        node.hardware_key.as_ref().map(convert::digest_column),
        node.hardware_key_trusted,
        i16::try_from(shard::of(&node.id.to_string())).expect("a shard is below 256"),
        target,
        node.overlay,
        placement,
    )
    .execute(txn.conn())
    .await
    .map_err(DbError::from);
    match done {
        Ok(_) => Ok(()),
        Err(error) if error.violates("nodes_name_key") => Err(InsertError::NameTaken(node.name.clone())),
        Err(error) if error.violates("nodes_hardware_key") => Err(InsertError::HardwareTaken),
        Err(error) => Err(error.into()),
    }
}
