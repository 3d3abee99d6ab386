//! What somebody placed over machines: the freezes and suspensions that cover each, and its cordons.

use schema::fleet::brake::BrakeKind;
use store::{fleet_holds, node_holds, nodes};

use super::{HoldView, brake_view, brakes, view};
use crate::api::{ApiError, App};

/// For each of these machines what stands over it now, whether or not anything waits for that.
pub(in crate::api::groups) async fn over(app: &App, nodes: &[nodes::Node]) -> Result<Vec<Vec<HoldView>>, ApiError> {
    let mut txn = app.db.snapshot().await?;
    let now = txn.now().await?;
    let stored = fleet_holds::list_in(&mut txn).await?;
    let mut standing = brakes(&mut txn).await?;
    // A pin says which revision, not that a machine is left alone.
    standing.retain(|(brake, _)| matches!(brake.kind, BrakeKind::Freeze | BrakeKind::Suspend));
    drop(txn);
    let mut all = Vec::with_capacity(nodes.len());
    for node in nodes {
        let covers =
            |brake: &schema::fleet::brake::Brake| brake.covers(&node.name, node.pool.as_deref(), node.site.as_deref());
        let covering = standing.iter().filter(|(brake, _)| covers(brake)).cloned();
        let mut over: Vec<HoldView> = covering
            .filter_map(|(brake, source)| brake_view(brake, source, now, &stored, 1))
            .filter(|hold| hold.active)
            .collect();
        for held in node_holds::list(&app.db, node.id).await? {
            if held.hold.until.is_none_or(|until| until > now) {
                over.push(view(&format!("node/{}", node.name), "cordon", &held.hold, held.created_at, 1));
            }
        }
        all.push(over);
    }
    Ok(all)
}
