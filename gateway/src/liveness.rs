//! Who was heard and who went away, written in batches: one statement for all heartbeats, one transaction for all that
//! closed. Silence is judged elsewhere.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schema::{cause::chain, generation::Epoch, id::NodeId};
use store::{Db, DbError, sessions};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    refusal::Refusal,
    registry::{Registry, Seat},
};

/// How many sessions are closed in one transaction.
const CLOSES_PER_BATCH: usize = 500;
const PAUSE: Duration = Duration::from_secs(1);

/// Sessions that ended and whose rows are still open.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    closing: Mutex<HashMap<NodeId, Epoch>>,
    wake: Notify,
}

impl Liveness {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Epoch>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session ended.
    pub(crate) fn close(&self, node_id: NodeId, epoch: Epoch) {
        self.closing_at_least(node_id, epoch);
        self.wake.notify_one();
    }

    fn closing_at_least(&self, node_id: NodeId, epoch: Epoch) {
        let mut closing = self.lock();
        let newest = closing.entry(node_id).or_insert(epoch);
        *newest = epoch.max(*newest);
    }

    /// Writes heartbeats every `period` and closes when they come, until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, registry: &Registry, period: Duration, cancel: CancellationToken) {
        let mut beats = tokio::time::interval(period);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = beats.tick() => write_beats(db, registry).await,
                () = self.wake.notified() => {
                    if !self.write_closes(db).await {
                        tokio::select! {
                            () = cancel.cancelled() => return,
                            () = tokio::time::sleep(PAUSE) => self.wake.notify_one(),
                        }
                    }
                }
            }
        }
    }

    /// Writes what still waits, once.
    pub(crate) async fn flush(&self, db: &Db, registry: &Registry) {
        write_beats(db, registry).await;
        self.write_closes(db).await;
    }

    async fn write_closes(&self, db: &Db) -> bool {
        loop {
            let batch: Vec<(NodeId, Epoch)> = {
                let mut closing = self.lock();
                let some: Vec<NodeId> = closing.keys().take(CLOSES_PER_BATCH).copied().collect();
                some.into_iter().filter_map(|node_id| closing.remove_entry(&node_id)).collect()
            };
            if batch.is_empty() {
                return true;
            }
            if let Err(error) = close_rows(db, &batch).await {
                tracing::warn!(sessions = batch.len(), error = %chain(&error), "closed sessions wait for PostgreSQL");
                for (node_id, epoch) in batch {
                    self.closing_at_least(node_id, epoch);
                }
                return false;
            }
        }
    }
}

async fn close_rows(db: &Db, batch: &[(NodeId, Epoch)]) -> Result<(), DbError> {
    let mut txn = db.begin().await?;
    sessions::close(&mut txn, batch).await?;
    txn.commit().await
}

async fn write_beats(db: &Db, registry: &Registry) {
    let heard = registry.take_heard();
    if heard.is_empty() {
        return;
    }
    let rows: Vec<(NodeId, Epoch)> = heard.iter().map(|seat| (seat.node_id, seat.epoch)).collect();
    match sessions::beat(db, &rows).await {
        Ok(alive) => {
            let alive: std::collections::HashSet<NodeId> = alive.into_iter().collect();
            for seat in heard.iter().filter(|seat| !alive.contains(&seat.node_id)) {
                registry.end(seat.node_id, seat.epoch, Refusal::Superseded);
            }
        }
        Err(error) => {
            tracing::warn!(sessions = heard.len(), error = %chain(&error), "heartbeats wait for PostgreSQL");
            heard.iter().map(Arc::as_ref).for_each(Seat::hear);
        }
    }
}
