//! Pokes to other gateways, sent together: a node that moved is looked at by the gateway that it left.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use schema::id::NodeId;
use store::{Db, poke::Poke};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Nodes to poke about.
#[derive(Debug, Default)]
pub(crate) struct Pokes {
    waiting: Mutex<HashSet<NodeId>>,
    wake: Notify,
}

impl Pokes {
    /// Pokes about a node.
    pub(crate) fn put(&self, node_id: NodeId) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(node_id);
        self.wake.notify_one();
    }

    /// Sends what comes until it is cancelled; what comes meanwhile goes with the next statement. A lost one costs time.
    pub(crate) async fn run(&self, db: &Db, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.wake.notified() => {}
            }
            let nodes = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            db.poke(nodes.into_iter().map(Poke::Node)).await;
        }
    }
}
