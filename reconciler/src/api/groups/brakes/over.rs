//! What somebody placed over machines: the freezes and suspensions that cover each, and its cordons.

use schema::fleet::brake::BrakeKind;
use store::{fleet_holds, node_holds, nodes};

use super::{HoldView, brakes, covering, view};
use crate::api::{ApiError, App};

/// For each of these machines what stands over it now, whether or not anything waits for that.
pub(in crate::api::groups) async fn over(app: &App, nodes: &[nodes::Node]) -> Result<Vec<Vec<HoldView>>, ApiError> {
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let stored = fleet_holds::list_in(&mut txn).await?;
    let mut standing = brakes(&mut txn).await?;
    // A pin says which revision, not that a machine is left alone.
    standing.retain(|(brake, _)| matches!(brake.kind, BrakeKind::Freeze | BrakeKind::Suspend));
    let cordons = node_holds::list_all(&mut txn).await?;
    drop(txn);
    let over = |node: &nodes::Node| {
        let own = cordons.iter().filter(|(name, _)| *name == node.name);
        let own = own.map(|(name, held)| view(&format!("node/{name}"), "cordon", &held.hold, held.created_at, 1));
        covering(&standing, node, now, &stored).chain(own).collect()
    };
    Ok(nodes.iter().map(over).collect())
}
