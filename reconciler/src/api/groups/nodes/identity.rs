//! Who a node is, changed by people: adopted, its hardware moved, its identity revoked, or forgotten.

use pki::hardware::{Claims, HardwareKey, JoinClaims};
use schema::{
    attested::AttestKind,
    generation::Version,
    inventory::{Dmi, InventorySection},
    node::{Connectivity, ProvisionEvent, ProvisionState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{
    attestations,
    identities::{self, Hardware, HardwareError},
    joins::Join,
    node_inventory,
    nodes::{self, Node},
    outcomes, placements, queue,
};

use super::{NodeView, changed, find, lock};
use crate::api::{ApiError, App, Code, groups::joins, table::Mutation};

/// A node to adopt.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Adopt {
    /// The node's id or name.
    node: String,
    /// Adopt it as it is, whatever its pool's checks say; otherwise they are made anew.
    #[serde(default)]
    skip_checks: bool,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// A node whose identity ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Revoke {
    /// The node's id or name.
    node: String,
    /// Why, for the record.
    reason: String,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// A node whose hardware is another one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Rebind {
    /// The node's id or name.
    node: String,
    /// The join of the machine that the node is from now on; when it is absent, the node's own machine with its new parts.
    join: Option<String>,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// A node whose place somebody stands by.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Vouch {
    /// The node's id.
    node: String,
    /// What it is called: has to be what its row says.
    name: String,
    /// Where it belongs: has to be what its row says.
    pool: Option<String>,
    /// Why, for the record; one line.
    reason: String,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// Somebody stands by what a machine is called and where it belongs, as its row says it: after a database was restored from
/// before a key was replaced, or mended by hand.
pub(in crate::api) async fn vouch(mutation: Mutation<'_>, input: Vouch) -> Result<NodeView, ApiError> {
    let Mutation { app, txn, after, .. } = mutation;
    let node = lock(txn, find(app, &input.node).await?.id, input.version).await?;
    if node.name.as_str() != input.name || node.pool.as_deref() != input.pool.as_deref() {
        let pool = node.pool.as_deref().unwrap_or("no pool");
        let message = format!("its row says {} in {pool}, which is not what you stand by", node.name);
        return Err(ApiError::new(Code::Conflict, message));
    }
    if input.reason.len() > 200 || input.reason.chars().any(char::is_control) {
        return Err(ApiError::field("reason", "a reason is one line of at most 200 bytes"));
    }
    placements::vouch(txn, node.id).await?;
    queue::enqueue(txn, &queue::NODESPEC, [node.id]).await?;
    after.audit = Some(json!({ "reason": input.reason, "name": node.name, "pool": node.pool }));
    changed(txn, node.id).await
}

/// A node to forget.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Delete {
    /// The node's id or name.
    node: String,
    /// Also while it is connected.
    #[serde(default)]
    force: bool,
    /// The version that was read; CONFLICT when the node has another by now.
    version: Option<Version>,
}

/// A node that was deleted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Deleted {
    /// Its id.
    id: String,
    /// Its name, which is free again.
    name: String,
}

pub(in crate::api) async fn adopt(mutation: Mutation<'_>, input: Adopt) -> Result<NodeView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let id = find(app, &input.node).await?.id;
    let node = lock(txn, id, input.version).await?;
    let failed = node.provision == ProvisionState::Failed && node.failed_from == Some(ProvisionState::Adopting);
    if node.provision != ProvisionState::Adopting && !failed {
        let error = ApiError::new(Code::InvalidState, format!("node {} is {}", node.name, node.provision));
        return Err(error.why("only a machine that joined and was not adopted yet is adopted"));
    }
    if failed {
        nodes::set_provision(txn, &node, ProvisionEvent::Recover).await.map_err(ApiError::internal)?;
        nodes::set_maintenance(txn, id, None).await?;
    }
    if input.skip_checks {
        let node = lock(txn, id, None).await?;
        nodes::adopt(txn, &node).await.map_err(ApiError::internal)?;
        tracing::warn!(node = %node.name, by = caller.name, "a node is adopted without its checks");
        queue::enqueue(txn, &queue::NODESPEC, [id]).await?;
    } else {
        identities::next_acceptance(txn, id).await?;
    }
    changed(txn, id).await
}

pub(in crate::api) async fn revoke_identity(mutation: Mutation<'_>, input: Revoke) -> Result<NodeView, ApiError> {
    let Mutation { app, txn, .. } = mutation;
    if input.reason.trim().is_empty() || input.reason.len() > 500 {
        return Err(ApiError::field("reason", "say why, in 1 to 500 bytes"));
    }
    let id = find(app, &input.node).await?.id;
    lock(txn, id, input.version).await?;
    identities::revoke(txn, id, &input.reason).await?;
    changed(txn, id).await
}

pub(in crate::api) async fn rebind(mutation: Mutation<'_>, input: Rebind) -> Result<NodeView, ApiError> {
    let Mutation { app, txn, caller, .. } = mutation;
    let id = find(app, &input.node).await?.id;
    let node = lock(txn, id, input.version).await?;
    match &input.join {
        Some(join) => {
            let join = joins::find(app, join).await?;
            is_of_no_other(app, &node, &join).await?;
            if node.connectivity == Connectivity::Connected {
                let error = ApiError::new(Code::InvalidState, format!("node {} is connected", node.name));
                return Err(error.why("a machine that is here is not replaced by another; switch it off first"));
            }
            if node.provision.transition(ProvisionEvent::Rejoin, node.failed_from).is_err() {
                let error = ApiError::new(Code::InvalidState, format!("node {} is {}", node.name, node.provision));
                return Err(error.why("it is in the middle of something; try again when that is over"));
            }
            joins::approved(txn, &join, &caller.name, Some(id)).await?;
        }
        None => {
            let hardware = present(app, &node).await?;
            identities::set_hardware(txn, id, hardware).await.map_err(|error| match error {
                HardwareError::Taken => {
                    let error = ApiError::new(Code::Conflict, "another node has this hardware".to_owned());
                    error.why("one of the two is a copy of the other; delete the one that is gone")
                }
                HardwareError::Db(error) => error.into(),
            })?;
            // The TPM is part of the board that is gone. The disk, and a certificate on it, is still there.
            attestations::forget(txn, id, Some(AttestKind::Tpm)).await?;
        }
    }
    changed(txn, id).await
}

/// A machine that another node is known by cannot be this node as well.
async fn is_of_no_other(app: &App, node: &Node, join: &Join) -> Result<(), ApiError> {
    let claims: Option<JoinClaims> = serde_json::from_value(join.join.claims.clone()).ok();
    let Some(HardwareKey { digest: Some(key), trusted: true, .. }) = claims.map(|claims| claims.hardware_key()) else {
        return Ok(());
    };
    let other = nodes::find_by_hardware_key(&app.db, &key).await?;
    let Some(other) = other.filter(|other| other.id != node.id && other.hardware_key_trusted) else { return Ok(()) };
    let error =
        ApiError::new(Code::Conflict, format!("the machine of this join is node {} by its hardware", other.name));
    Err(error.why(format!(
        "rebind that one: `better-compute node rebind {other} --join {id}`; or, when the machine is to be {node} and {other} is gone, \
         `better-compute node delete {other}` first",
        other = other.name,
        id = join.id,
        node = node.name,
    )))
}

/// The hardware that the node's own signed inventory shows.
async fn present(app: &App, node: &Node) -> Result<Hardware, ApiError> {
    let stored = node_inventory::list(&app.db, node.id).await?;
    let dmi: Option<Dmi> =
        stored.get(&InventorySection::Dmi).and_then(|section| serde_json::from_str(&section.doc).ok());
    let key = dmi.map(|dmi| HardwareKey::derive(&Claims::of_dmi(&dmi)));
    let Some(HardwareKey { digest: Some(digest), trusted, .. }) = key else {
        let message = format!("node {} has shown no hardware that it could be known by", node.name);
        let error = ApiError::new(Code::InvalidState, message);
        return Err(error.why("it has to run once with its new parts; or name its join with --join"));
    };
    if node.hardware_key == Some(digest) {
        let error = ApiError::new(Code::InvalidState, format!("node {} is known by this hardware already", node.name));
        return Err(error.why("nothing is to be moved"));
    }
    Ok(Hardware { key: Some(digest), trusted })
}

pub(in crate::api) async fn delete(mutation: Mutation<'_>, input: Delete) -> Result<Deleted, ApiError> {
    let Mutation { app, txn, .. } = mutation;
    let id = find(app, &input.node).await?.id;
    let node = lock(txn, id, input.version).await?;
    if node.connectivity == Connectivity::Connected && !input.force {
        let error = ApiError::new(Code::InvalidState, format!("node {} is connected", node.name));
        return Err(error.why("stop its daemon first, or delete it with --force"));
    }
    nodes::delete(txn, id).await?;
    outcomes::forget(txn, &id.to_string()).await?;
    Ok(Deleted { id: id.to_string(), name: node.name.to_string() })
}
