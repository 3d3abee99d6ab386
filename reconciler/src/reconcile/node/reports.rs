//! Reading what a node signed: which stored reports count, and what they say.
//!
//! A report counts when the key in one of the node's certificates of its current identity signed exactly these bytes, the
//! bytes name the node, and nothing newer of the same journal was taken over before. What does not count is dropped with a
//! word in the log and a condition on the node.

use pki::{
    Realm,
    node_key::NodePublicKey,
    report::{ReportKind as Purpose, signer},
};
use schema::{
    canonical,
    generation::Generation,
    id::NodeId,
    inventory::InventorySection,
    report::{DriftEntry, InventoryReport, MAX_DRIFT, MAX_DRIFT_VALUE, ReportKind, StatusReport},
    time::Timestamp,
};
use store::{
    node_certs,
    node_reports::{self, Mark},
    nodes,
};

use crate::reconcile::{Context, Failure};

/// What the stored reports of one node come to.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The newest status.
    pub(super) status: Option<StatusReport>,
    /// The highest generations of all statuses that were taken over: applied and observed.
    pub(super) highest: (Generation, Generation),
    /// The newest inventory that names serial numbers, as it was signed.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Inventories, oldest first.
    pub(super) inventory: Vec<InventoryReport>,
    /// The newest mark per kind.
    pub(super) accepted: Vec<Mark>,
    /// The rows to remove, those that do not count included.
    pub(super) seen: Vec<i64>,
    /// Why the last report that does not count does not.
    pub(super) refused: Option<String>,
    /// More reports wait than one run takes.
    pub(super) more: bool,
}

impl Taken {
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    fn accept(&mut self, mark: Mark) {
        self.accepted.retain(|other| other.kind != mark.kind);
        self.accepted.push(mark);
    }
}

/// Why a report does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReportRefusal {
    #[error("no certificate of the node's current identity has the key that signed it")]
    Signature,
    #[error("its bytes are not a report that this version knows")]
    Unreadable,
    #[error("it speaks for another node")]
    OtherNode,
    #[error("it was stored under another sequence number than the signed one")]
    OtherSequence,
    #[error("it names a generation, a time, or more conditions or drift, than a node can have")]
    Absurd,
    #[error("it was taken over before")]
    Repeated,
    #[error(
        "its journal had a newer one, number {newest}, before: the machine's state directory was put back from a copy, \
         and its reports count again from that number on or after a reboot"
    )]
    Old { newest: u64 },
}

/// Above this no generation is left to jump past it.
const HIGHEST: Generation = Generation(1 << 53);
const MOST_CONDITIONS: usize = 64;

pub(super) async fn take(context: &Context, node: &nodes::Node) -> Result<Taken, Failure> {
    let stored = node_reports::list(context.db(), node.id).await?;
    let more = stored.len() >= node_reports::AT_ONCE;
    if stored.is_empty() {
        return Ok(Taken::default());
    }
    let keys: Vec<NodePublicKey> =
        node_certs::keys(context.db(), node.id).await?.iter().map(|key| NodePublicKey::from_bytes(key)).collect();
    let mut marks = node_reports::marks(context.db(), node.id).await?;
    let mut taken = Taken { more, ..Taken::default() };
    for stored in stored {
        taken.seen.push(stored.id);
        let report = stored.report;
        match read(context.realm(), node.id, &keys, &marks, &report) {
            Ok(Read::Status(status)) => {
                let mark = Mark { kind: ReportKind::Status, journal: status.journal_id, seq: status.seq };
                remember(&mut marks, mark);
                taken.accept(mark);
                let (applied, observed) = taken.highest;
                taken.highest = (applied.max(status.applied), observed.max(status.observed));
                taken.status = Some(status);
                taken.refused = None;
            }
            Ok(Read::Inventory(inventory)) => {
                let mark = Mark { kind: ReportKind::Inventory, journal: inventory.journal_id, seq: inventory.seq };
                remember(&mut marks, mark);
                taken.accept(mark);
                if inventory.sections.contains_key(&InventorySection::Dmi) {
                    taken.identity = Some((report.payload.clone(), report.signature.clone()));
                }
                taken.inventory.push(inventory);
                taken.refused = None;
            }
            // Delivered again after a reconnect, which is no fault of the node's.
            Err(ReportRefusal::Repeated) => {}
            Err(refusal) => {
                tracing::warn!(node_id = %node.id, kind = %report.kind, seq = report.seq, error = %refusal, "a report does not count");
                taken.refused = Some(refusal.to_string());
            }
        }
    }
    Ok(taken)
}

fn remember(marks: &mut Vec<Mark>, mark: Mark) {
    marks.retain(|other| other.kind != mark.kind);
    marks.push(mark);
}

enum Read {
    Status(StatusReport),
    Inventory(InventoryReport),
}

fn read(
    realm: &Realm,
    node: NodeId,
    keys: &[NodePublicKey],
    marks: &[Mark],
    report: &node_reports::NewReport,
) -> Result<Read, ReportRefusal> {
    let purpose = match report.kind {
        ReportKind::Status => Purpose::Status,
        ReportKind::Inventory => Purpose::Inventory,
    };
    if signer(keys, realm, purpose, node, &report.payload, &report.signature).is_none() {
        return Err(ReportRefusal::Signature);
    }
    // A text with a NUL cannot be stored.
    if canonical::has_nul(&report.payload) {
        return Err(ReportRefusal::Unreadable);
    }
    let (read, who, journal, seq) = match report.kind {
        ReportKind::Status => {
            let status: StatusReport =
                serde_json::from_slice(&report.payload).map_err(|_| ReportRefusal::Unreadable)?;
            let absurd = status.applied.max(status.observed) > HIGHEST
                || status.conditions.len() > MOST_CONDITIONS
                || status.at < Timestamp::UNIX_EPOCH;
            if absurd || !is_drift(&status.drift) {
                return Err(ReportRefusal::Absurd);
            }
            let head = (status.node_id, status.journal_id, status.seq);
            (Read::Status(status), head.0, head.1, head.2)
        }
        ReportKind::Inventory => {
            let inventory: InventoryReport =
                serde_json::from_slice(&report.payload).map_err(|_| ReportRefusal::Unreadable)?;
            let head = (inventory.node_id, inventory.journal_id, inventory.seq);
            (Read::Inventory(inventory), head.0, head.1, head.2)
        }
    };
    if who != node {
        return Err(ReportRefusal::OtherNode);
    }
    if seq != report.seq {
        return Err(ReportRefusal::OtherSequence);
    }
    match marks.iter().find(|mark| mark.kind == report.kind && mark.journal == journal) {
        Some(mark) if mark.seq == seq => Err(ReportRefusal::Repeated),
        Some(mark) if mark.seq > seq => Err(ReportRefusal::Old { newest: mark.seq }),
        Some(_) | None => Ok(read),
    }
}

/// Within its bounds, and one entry a path.
fn is_drift(drift: &[DriftEntry]) -> bool {
    let value = |entry: &DriftEntry| entry.observed.as_ref().is_none_or(|value| value.len() <= MAX_DRIFT_VALUE);
    drift.len() <= MAX_DRIFT && drift.iter().all(value) && drift.windows(2).all(|pair| pair[0].path < pair[1].path)
}
