//! Who was heard and who went away, written in batches: a statement for many heartbeats, a transaction for many that closed.
//! Silence is judged elsewhere.

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
    writer::{self, Failure},
};

/// How many sessions are closed in one transaction.
const CLOSES_PER_BATCH: usize = 500;

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
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let beats = async {
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    _ = ticks.tick() => write_beats(db, registry).await,
                }
            }
        };
        let closes = writer::run(CLOSES_PER_BATCH, writer::GATHERING, &self.wake, cancel.clone(), |most| {
            self.write_closes(db, most)
        });
        tokio::join!(beats, closes);
    }

    /// Writes what still waits, as long as that works.
    pub(crate) async fn flush(&self, db: &Db, registry: &Registry) {
        write_beats(db, registry).await;
        writer::flush(CLOSES_PER_BATCH, |most| self.write_closes(db, most)).await;
    }

    async fn write_closes(&self, db: &Db, most: usize) -> Result<usize, Failure> {
        let batch: Vec<(NodeId, Epoch)> = self.lock().extract_if(|_, _| true).take(most).collect();
        if !batch.is_empty()
            && let Err(error) = writer::answer(close_rows(db, &batch)).await
        {
            tracing::warn!(sessions = batch.len(), error = %chain(&error), "closed sessions wait for PostgreSQL");
            // Of one that alone cannot be closed the silence is noticed.
            if let Some(failure) = Failure::of(&error, most) {
                for (node_id, epoch) in batch {
                    self.closing_at_least(node_id, epoch);
                }
                return Err(failure);
            }
        }
        Ok(batch.len())
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
    match writer::answer(sessions::beat(db, &rows)).await {
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
