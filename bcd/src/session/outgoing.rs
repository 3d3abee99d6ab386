//! What the node says: Hello and its signed reports.

use std::collections::BTreeMap;

use proto::agent::v1::{self as pb, node_frame};
use schema::{
    command::{APPROVALS_CAPABILITY, COMMANDS_CAPABILITY, Lane, RENAMES_CAPABILITY},
    inventory::InventorySection,
    report::{InventoryReport, ReportKind, StatusReport},
};

use super::{Core, Effect, Now, Phase, SEQ_BLOCK};

fn said((lane, mark): (&Lane, &u64)) -> (String, u64) {
    (lane.to_string(), *mark)
}

impl Core {
    pub(super) fn hello(&self, nonce: [u8; 32]) -> pb::Hello {
        let digests = self.inventory.digests();
        pb::Hello {
            node_id: self.me.node_id.to_string(),
            boot_id: self.me.boot_id.to_string(),
            journal_id: self.progress.journal_id.to_string(),
            nonce: nonce.to_vec(),
            agent_version: self.me.version.clone(),
            capabilities: ["host", "access", COMMANDS_CAPABILITY, APPROVALS_CAPABILITY, RENAMES_CAPABILITY]
                .map(str::to_owned)
                .to_vec(),
            applied_generation: self.progress.applied.0,
            observed_generation: self.progress.observed.0,
            trust_version: self.trust.version,
            inventory: digests.iter().map(|(section, digest)| (section.to_string(), digest.to_string())).collect(),
            described: self.me.described,
            journal_marks: self.marks.iter().flat_map(|marks| Lane::ALL.iter().zip(marks)).map(said).collect(),
            cannot_keep: self.cannot_keep.clone(),
            policy_epoch: self.policy_epoch(),
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    fn take_seq(&mut self, effects: &mut Vec<Effect>) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.next_seq > self.progress.reserved_seq {
            self.progress.reserved_seq = seq + SEQ_BLOCK;
            effects.push(Effect::KeepProgress(self.progress.clone()));
        }
        seq
    }

    pub(super) fn report_status(&mut self, now: Now) -> Vec<Effect> {
        if !self.is_open() {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let report = StatusReport {
            node_id: self.me.node_id,
            journal_id: self.progress.journal_id,
            boot_id: self.me.boot_id,
            seq: self.take_seq(&mut effects),
            at: self.time(now),
            applied: self.progress.applied,
            trust_version: self.reads_trust.then_some(self.trust.version),
            policy: self.reads_policy.then(|| self.policy_held()),
            binds: self.reads_binds,
            observed: self.progress.observed,
            sections: self.progress.sections.clone(),
            conditions: self.progress.conditions.clone(),
            drift: if self.reads_drift { self.progress.drift.clone() } else { Vec::new() },
        };
        let payload = schema::canonical::to_vec(&report).expect("a report holds no fractions");
        effects.push(Effect::Send(node_frame::Frame::Status(self.sign(ReportKind::Status, payload))));
        effects
    }

    /// What changed since the last report travels by itself, and what is wanted with it.
    pub(super) fn report_changed_inventory(&mut self, wanted: &[InventorySection], now: Now) -> Vec<Effect> {
        let digests = self.inventory.digests();
        if digests == self.progress.reported && wanted.is_empty() {
            return Vec::new();
        }
        let changed: Vec<_> = digests
            .iter()
            .filter(|(section, digest)| self.progress.reported.get(section) != Some(digest) || wanted.contains(section))
            .map(|(section, _)| *section)
            .collect();
        self.report_inventory(&changed, now)
    }

    pub(super) fn report_inventory(&mut self, sections: &[InventorySection], now: Now) -> Vec<Effect> {
        if !self.is_open() {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let digests = self.inventory.digests();
        let wanted = |section: &InventorySection| sections.contains(section);
        let documents: BTreeMap<_, _> = self
            .inventory
            .sections
            .iter()
            .filter(|(section, _)| wanted(section))
            .map(|(section, document)| (*section, document.clone()))
            .collect();
        let report = InventoryReport {
            node_id: self.me.node_id,
            journal_id: self.progress.journal_id,
            seq: self.take_seq(&mut effects),
            at: self.time(now),
            described: self.me.described,
            digests: digests.clone(),
            sections: documents,
        };
        let payload = schema::canonical::to_vec(&report).expect("a report holds no fractions");
        effects.push(Effect::Send(node_frame::Frame::Inventory(self.sign(ReportKind::Inventory, payload))));
        let before = self.progress.reported.clone();
        self.progress.reported.retain(|section, _| digests.contains_key(section));
        self.progress.reported.extend(digests.into_iter().filter(|(section, _)| wanted(section)));
        if self.progress.reported != before {
            effects.push(Effect::KeepProgress(self.progress.clone()));
        }
        effects
    }

    fn sign(&self, kind: ReportKind, payload: Vec<u8>) -> pb::NodeReport {
        let signature = self.me.key.sign_report(&self.me.realm, kind, self.me.node_id, &payload);
        pb::NodeReport { payload, signature }
    }
}
