//! Reports, checked as far as a gateway can: size, and the few words that say whose they are.
//!
//! The signature is the control plane's to verify; here the bytes only must not be somebody else's by mistake.

use proto::agent::v1 as pb;
use schema::{
    id::{JournalId, NodeId},
    report::{MAX_DRIFT_BYTES, ReportKind},
};
use serde::Deserialize;

use super::Report;
use crate::refusal::{Refusal, shortened};

/// Sections and conditions, and as much drift as a report may have.
const MAX_STATUS_BYTES: usize = 256 * 1024 + MAX_DRIFT_BYTES;
const MAX_SIGNATURE_BYTES: usize = 128;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow)]
    node_id: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    journal_id: std::borrow::Cow<'a, str>,
    seq: u64,
}

/// Checks a report of the node and journal that a session was opened for.
pub(super) fn check(
    kind: ReportKind,
    report: pb::NodeReport,
    node_id: NodeId,
    journal_id: JournalId,
) -> Result<Report, Refusal> {
    let most = match kind {
        ReportKind::Status => MAX_STATUS_BYTES,
        ReportKind::Inventory => proto::MAX_FRAME_BYTES,
    };
    if report.payload.len() > most {
        return Err(Refusal::FrameTooLarge);
    }
    if report.signature.is_empty() || report.signature.len() > MAX_SIGNATURE_BYTES {
        return Err(Refusal::FrameMalformed("a report's signature has an impossible length"));
    }
    let head: Head<'_> = serde_json::from_slice(&report.payload)
        .map_err(|_| Refusal::FrameMalformed("a report is not JSON with nodeId, journalId and seq"))?;
    if head.node_id != node_id.to_string() {
        return Err(Refusal::WrongNode { certified: node_id, claimed: shortened(&head.node_id) });
    }
    if head.journal_id != journal_id.to_string() {
        return Err(Refusal::FrameMalformed("a report names another journal than Hello"));
    }
    if head.seq == 0 || i64::try_from(head.seq).is_err() {
        return Err(Refusal::FrameMalformed("a report's seq is out of range"));
    }
    let seq = head.seq;
    Ok(Report { kind, seq, payload: report.payload, signature: report.signature })
}
