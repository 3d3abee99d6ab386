//! Node-signed reports on their way to the database: a bounded buffer and the one task that empties it.
//!
//! While PostgreSQL is away reports wait here: of statuses the newest of each node, of inventories all of them. A session
//! whose report does not fit ends; the node says everything again in its next one. Every write names the session's epoch.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schema::{cause::chain, generation::Epoch, id::NodeId, report::ReportKind};
use store::{
    Db, DbError,
    error::DbErrorKind,
    node_reports::{self, Inserted},
    queue,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{refusal::Refusal, registry::Registry, session::Report};

#[cfg(test)]
mod tests;

const INVENTORIES_PER_NODE: usize = 32;
const MAX_BYTES: usize = 64 * 1024 * 1024;
const NODES_PER_BATCH: usize = 64;
const BYTES_PER_BATCH: usize = 8 * 1024 * 1024;
const PAUSE: Duration = Duration::from_secs(1);
/// A report was lost; the node says everything again in its next session.
const DROPPED: Refusal = Refusal::Unavailable("a report of this node could not be kept");
const FULL: Refusal = Refusal::Unavailable("too many reports of this node wait to be read");

/// A report and the session it came over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) node_id: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) report: Report,
}

#[derive(Debug)]
struct Slot {
    epoch: Epoch,
    status: Option<Report>,
    inventories: VecDeque<Report>,
}

impl Slot {
    const fn new(epoch: Epoch) -> Self {
        Self { epoch, status: None, inventories: VecDeque::new() }
    }

    fn size(&self) -> usize {
        self.status.iter().chain(&self.inventories).map(|report| report.payload.len()).sum()
    }
}

/// What waits, by node, in the order in which nodes came.
#[derive(Debug, Default)]
struct Buffer {
    slots: HashMap<NodeId, Slot>,
    order: VecDeque<NodeId>,
    bytes: usize,
}

impl Buffer {
    /// Keeps a report, unless it does not fit.
    fn push(&mut self, Pending { node_id, epoch, report }: Pending) -> bool {
        if self.bytes + report.payload.len() > MAX_BYTES {
            return false;
        }
        let slot = self.slots.entry(node_id).or_insert_with(|| {
            self.order.push_back(node_id);
            Slot::new(epoch)
        });
        let before = slot.size();
        if epoch > slot.epoch {
            // The database takes nothing of an older session any more.
            *slot = Slot::new(epoch);
        }
        let mut fits = true;
        if epoch == slot.epoch {
            match report.kind {
                ReportKind::Status if slot.status.as_ref().is_some_and(|waiting| waiting.seq > report.seq) => {}
                ReportKind::Status => slot.status = Some(report),
                ReportKind::Inventory if slot.inventories.len() >= INVENTORIES_PER_NODE => fits = false,
                ReportKind::Inventory => {
                    let position = slot.inventories.partition_point(|other| other.seq < report.seq);
                    slot.inventories.insert(position, report);
                }
            }
        }
        self.bytes = self.bytes + slot.size() - before;
        fits
    }

    /// Takes what waits for up to `nodes` nodes.
    fn take(&mut self, nodes: usize) -> Vec<Pending> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for _ in 0..nodes {
            if bytes >= BYTES_PER_BATCH {
                break;
            }
            let Some(node_id) = self.order.pop_front() else { break };
            let slot = self.slots.remove(&node_id).expect("a node that waits has a slot");
            bytes += slot.size();
            let epoch = slot.epoch;
            let reports = slot.inventories.into_iter().chain(slot.status);
            taken.extend(reports.map(|report| Pending { node_id, epoch, report }));
        }
        self.bytes -= bytes;
        taken
    }
}

/// The buffer, shared.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    buffer: Mutex<Buffer>,
    wake: Notify,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a report, unless there is no room for it.
    pub(crate) fn put(&self, pending: Pending) -> bool {
        let fits = self.lock().push(pending);
        self.wake.notify_one();
        fits
    }

    /// Writes what comes until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, registry: &Registry, cancel: CancellationToken) {
        let mut nodes = NODES_PER_BATCH;
        loop {
            match self.write(db, registry, nodes).await {
                Ok(0) => tokio::select! {
                    () = cancel.cancelled() => return,
                    () = self.wake.notified() => {}
                },
                Ok(_) => nodes = (nodes * 2).min(NODES_PER_BATCH),
                Err(Failure::Later) => tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(PAUSE) => {}
                },
                // One node at a time, so that what PostgreSQL does not take costs only its own node.
                Err(Failure::Refused) => nodes = 1,
            }
        }
    }

    /// Writes what still waits, as long as that works.
    pub(crate) async fn flush(&self, db: &Db, registry: &Registry) {
        while let Ok(1..) = self.write(db, registry, NODES_PER_BATCH).await {}
        let left = self.lock().order.len();
        if left > 0 {
            tracing::warn!(nodes = left, "reports were not written; their nodes will send them again");
        }
    }

    async fn write(&self, db: &Db, registry: &Registry, nodes: usize) -> Result<usize, Failure> {
        let taken = self.lock().take(nodes);
        if taken.is_empty() {
            return Ok(0);
        }
        match store_all(db, &taken).await {
            Ok(Inserted { stored, full }) => {
                for Pending { node_id, epoch, .. } in taken.iter().filter(|pending| !stored.contains(&pending.node_id))
                {
                    let refusal = if full.contains(node_id) { FULL } else { Refusal::Superseded };
                    registry.end(*node_id, *epoch, refusal);
                }
                Ok(taken.len())
            }
            Err(error) if nodes == 1 && !is_transient(&error) => {
                for Pending { node_id, epoch, report } in &taken {
                    tracing::error!(%node_id, %epoch, kind = %report.kind, seq = report.seq, error = %chain(&error), "a report was dropped");
                    registry.end(*node_id, *epoch, DROPPED);
                }
                Ok(taken.len())
            }
            Err(error) => {
                tracing::warn!(reports = taken.len(), error = %chain(&error), "reports wait for PostgreSQL");
                let mut buffer = self.lock();
                for pending in taken {
                    let (node_id, epoch) = (pending.node_id, pending.epoch);
                    if !buffer.push(pending) {
                        registry.end(node_id, epoch, DROPPED);
                    }
                }
                Err(if is_transient(&error) { Failure::Later } else { Failure::Refused })
            }
        }
    }
}

enum Failure {
    Later,
    Refused,
}

const fn is_transient(error: &DbError) -> bool {
    matches!(error.kind(), DbErrorKind::Unavailable | DbErrorKind::Contention)
}

async fn store_all(db: &Db, taken: &[Pending]) -> Result<Inserted, DbError> {
    let rows: Vec<node_reports::NewReport> = taken
        .iter()
        .map(|Pending { node_id, epoch, report }| node_reports::NewReport {
            node_id: *node_id,
            epoch: *epoch,
            kind: report.kind,
            seq: report.seq,
            payload: report.payload.clone(),
            signature: report.signature.clone(),
        })
        .collect();
    let mut txn = db.begin().await?;
    let inserted = node_reports::insert(&mut txn, &rows).await?;
    queue::enqueue(&mut txn, &queue::NODE, inserted.stored.iter().chain(&inserted.full)).await?;
    txn.commit().await?;
    Ok(inserted)
}
