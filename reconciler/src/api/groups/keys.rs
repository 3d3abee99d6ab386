//! `keys`: how far the fleet followed a rotation of keys. Rotating is for whoever holds the key directory.

use schema::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::identities::{self, Stragglers};

use crate::api::{ApiError, App};

/// What is asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Since {
    /// The version of the trust bundle that nodes should have.
    trust_version: u64,
    /// When their certificates should have been issued, RFC 3339.
    #[schemars(with = "Option<String>")]
    issued_since: Option<Timestamp>,
}

/// Nodes that did not follow.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct StragglersView {
    /// How many.
    count: u64,
    /// The first ones, by name.
    names: Vec<String>,
}

/// How far the fleet is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Progress {
    /// All nodes.
    nodes: u64,
    /// Those that believe an older trust bundle.
    behind: StragglersView,
    /// Those whose newest certificate is older.
    old_certificates: StragglersView,
}

pub(in crate::api) async fn progress(app: &App, input: Since) -> Result<Progress, ApiError> {
    let found = identities::progress(&app.db, input.trust_version, input.issued_since).await?;
    let view = |stragglers: Stragglers| StragglersView { count: stragglers.count, names: stragglers.names };
    Ok(Progress { nodes: found.nodes, behind: view(found.behind), old_certificates: view(found.old_certificates) })
}
