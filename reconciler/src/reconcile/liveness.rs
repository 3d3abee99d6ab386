//! `liveness`: judges silence, for all nodes at once. Key: `all`.
//!
//! A node is unreachable 90 seconds after it was last heard and lost after its pool's grace; only this reconciler says
//! so, never a gateway, and what it says it tells the `node` reconciler in the same transaction. It also lifts the holds that
//! have ended. When nothing changed it writes nothing.
//! After PostgreSQL was away gateways speak first, so that its silence is not taken for that of the nodes.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use schema::{fleet::Pool, node::connectivity::DEFAULT_LOST_GRACE, time};
use store::{
    node_holds, pools,
    queue::{self, Kind},
    sessions,
};

use super::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy};

/// The reconciler.
#[derive(Debug)]
pub struct Liveness;

const ALL: &str = "all";

#[async_trait]
impl Reconciler for Liveness {
    fn kind(&self) -> &'static Kind {
        &queue::LIVENESS
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    fn periodic(&self) -> &'static [Periodic] {
        const { &[Periodic { key: ALL, every: Duration::from_secs(5), settle: Duration::from_secs(30) }] }
    }

    async fn run(&self, context: &Context, _key: &str) -> Result<Outcome, Failure> {
        let pools = pools::list(context.db()).await?.items;
        let graces: BTreeMap<String, time::Duration> =
            pools.iter().filter_map(|pool| Some((pool.name.to_string(), grace(&pool.policy)?))).collect();
        let holds_ended = !node_holds::expired(context.db()).await?.is_empty();
        let mut txn = context.begin().await?;
        let changed = sessions::judge(&mut txn, &graces, DEFAULT_LOST_GRACE).await?;
        let released = if holds_ended { node_holds::expire(&mut txn).await? } else { Vec::new() };
        for (id, connectivity) in &changed {
            tracing::info!(node_id = %id, %connectivity, "the connectivity of a node changed");
        }
        queue::enqueue(&mut txn, &queue::NODE, changed.iter().map(|(id, _)| *id).chain(released)).await?;
        txn.commit().await?;
        Ok(Outcome::done())
    }
}

/// The grace that a pool's document asks for.
fn grace(document: &serde_json::Value) -> Option<time::Duration> {
    let pool: Pool = serde_json::from_value(document.clone()).ok()?;
    Some(pool.policy?.value.lost_after?.value)
}
