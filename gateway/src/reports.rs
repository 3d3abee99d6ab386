//! Node-signed reports on their way to the database: a bounded buffer and the one task that empties it.
//!
//! While PostgreSQL is away reports wait here: of statuses the newest of each node, of inventories all of them. A session
//! whose report does not fit ends; the node says everything again in its next one. When all room is taken, the node that
//! takes the most of it makes room. Every write names the session's epoch.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use schema::{cause::chain, generation::Epoch, id::NodeId, report::ReportKind};
use store::{
    Db, DbError,
    node_reports::{self, Inserted},
    queue,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    refusal::Refusal,
    registry::Registry,
    session::Report,
    writer::{self, Failure, Pushed, greediest},
};

#[cfg(test)]
mod tests;

const INVENTORIES_PER_NODE: usize = 32;
/// A node's first inventory always fits; from here on it has to wait.
const BYTES_PER_NODE: usize = 8 * 1024 * 1024;
const MAX_BYTES: usize = 64 * 1024 * 1024;
const NODES_PER_BATCH: usize = 64;
const BYTES_PER_BATCH: usize = 8 * 1024 * 1024;
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
    fn push(&mut self, Pending { node_id, epoch, report }: Pending) -> Pushed<Epoch> {
        match self.slots.get(&node_id).map(|slot| slot.epoch) {
            // The database takes nothing of an older session any more.
            Some(newer) if newer > epoch => return Pushed::Fits,
            Some(older) if older < epoch => _ = self.drop_all_of(node_id),
            _ => {}
        }
        let size = report.payload.len();
        let (held, inventories) = self.slots.get(&node_id).map_or((0, 0), |slot| (slot.size(), slot.inventories.len()));
        let share = inventories < INVENTORIES_PER_NODE && (inventories == 0 || held + size <= BYTES_PER_NODE);
        if report.kind == ReportKind::Inventory && !share {
            return Pushed::Full;
        }
        let pushed = if self.bytes + size > MAX_BYTES {
            let all = self.slots.iter().map(|(node_id, slot)| (*node_id, slot.size()));
            match greediest(all, node_id, held + size) {
                Some(node) => Pushed::InPlaceOf(node, self.drop_all_of(node)),
                None => return Pushed::Full,
            }
        } else {
            Pushed::Fits
        };
        let slot = self.slots.entry(node_id).or_insert_with(|| {
            self.order.push_back(node_id);
            Slot { epoch, status: None, inventories: VecDeque::new() }
        });
        match report.kind {
            ReportKind::Status if slot.status.as_ref().is_some_and(|waiting| waiting.seq > report.seq) => {}
            ReportKind::Status => slot.status = Some(report),
            ReportKind::Inventory => {
                let position = slot.inventories.partition_point(|other| other.seq < report.seq);
                slot.inventories.insert(position, report);
            }
        }
        self.bytes = self.bytes + slot.size() - held;
        pushed
    }

    fn drop_all_of(&mut self, node_id: NodeId) -> Epoch {
        let slot = self.slots.remove(&node_id).expect("a node that waits has a slot");
        self.order.retain(|other| *other != node_id);
        self.bytes -= slot.size();
        slot.epoch
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
    pub(crate) fn put(&self, registry: &Registry, pending: Pending) -> bool {
        let pushed = self.lock().push(pending);
        self.wake.notify_one();
        match pushed {
            Pushed::Fits => true,
            Pushed::Full => false,
            Pushed::InPlaceOf(node_id, epoch) => {
                tracing::warn!(%node_id, "a node took the most room for reports and lost it");
                registry.end(node_id, epoch, DROPPED);
                true
            }
        }
    }

    /// Writes what comes until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, registry: &Registry, cancel: CancellationToken) {
        writer::run(NODES_PER_BATCH, writer::GATHERING, &self.wake, cancel, |nodes| self.write(db, registry, nodes))
            .await;
    }

    /// Writes what still waits, as long as that works.
    pub(crate) async fn flush(&self, db: &Db, registry: &Registry) {
        writer::flush(NODES_PER_BATCH, |nodes| self.write(db, registry, nodes)).await;
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
        match writer::answer(store_all(db, &taken)).await {
            Ok(Inserted { stored, full }) => {
                for Pending { node_id, epoch, .. } in taken.iter().filter(|pending| !stored.contains(&pending.node_id))
                {
                    let refusal = if full.contains(node_id) { FULL } else { Refusal::Superseded };
                    registry.end(*node_id, *epoch, refusal);
                }
            }
            Err(error) => {
                if let Some(failure) = Failure::of(&error, nodes) {
                    tracing::warn!(reports = taken.len(), error = %chain(&error), "reports wait for PostgreSQL");
                    for pending in taken {
                        let (node_id, epoch) = (pending.node_id, pending.epoch);
                        if !self.put(registry, pending) {
                            registry.end(node_id, epoch, DROPPED);
                        }
                    }
                    return Err(failure);
                }
                for Pending { node_id, epoch, report } in &taken {
                    tracing::error!(%node_id, %epoch, kind = %report.kind, seq = report.seq, error = %chain(&error), "a report was dropped");
                    registry.end(*node_id, *epoch, DROPPED);
                }
            }
        }
        Ok(taken.len())
    }
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
