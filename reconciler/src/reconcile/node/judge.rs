//! The judgement over one node: a pure function of what is known about it.

use std::collections::{BTreeMap, BTreeSet};

use pki::hardware::{Claims, HardwareKey};
use schema::{
    canonical,
    digest::Digest,
    fleet::Pool,
    generation::Generation,
    inventory::{Dmi, Gpu, InventorySection},
    node::{
        Condition, ConditionStatus, Connectivity, NoScheduleReason, ProvisionState,
        condition::{GENERATION_AHEAD, GPU_COUNT_MISMATCH, GPU_MODEL_MISMATCH, SECTION_FAILED},
    },
    report::{InventoryReport, SectionState, SectionStatus, StatusReport},
    spec::Section,
    time::Timestamp,
};
use store::nodes::Node;

use super::Waiting;
use crate::reconcile::nodespec::SPEC_INVALID;

/// Some of the inventory could not be read or has not arrived.
pub const INVENTORY_INCOMPLETE: &str = "InventoryIncomplete";
/// The last report under the node's name does not count; the message says why.
pub const REPORT_REFUSED: &str = "ReportRefused";

/// The machine shows other hardware than the node is known by.
pub const HARDWARE_CHANGED: &str = "HardwareChanged";

/// The conditions that the control plane judges. What a node says about these is not taken over.
pub const OWN_CONDITIONS: &[&str] = &[
    GENERATION_AHEAD,
    GPU_COUNT_MISMATCH,
    GPU_MODEL_MISMATCH,
    HARDWARE_CHANGED,
    INVENTORY_INCOMPLETE,
    REPORT_REFUSED,
    SECTION_FAILED,
    SPEC_INVALID,
];

/// The conditions that keep new work away while they are true.
const BLOCKING: &[&str] = &[GENERATION_AHEAD, GPU_COUNT_MISMATCH, GPU_MODEL_MISMATCH, HARDWARE_CHANGED, SECTION_FAILED];

/// What is stored of a node's inventory, and what a report adds to it.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    sections: BTreeMap<InventorySection, (Digest, String)>,
    changed: BTreeSet<InventorySection>,
    gone: Vec<InventorySection>,
}

impl Inventory {
    pub(super) fn new(stored: BTreeMap<InventorySection, (Digest, String)>) -> Self {
        Self { sections: stored, ..Self::default() }
    }

    /// Takes reports over, oldest first, and answers the sections that the newest names without their documents being
    /// here. A document that does not have the digest that was signed for it counts as missing.
    pub(super) fn update(&mut self, reports: &[InventoryReport]) -> Vec<InventorySection> {
        for report in reports {
            for (name, value) in &report.sections {
                let Some(signed) = report.digests.get(name) else { continue };
                let Ok(bytes) = canonical::to_vec(value) else { continue };
                let digest = Digest::of(&bytes);
                if digest != *signed || self.sections.get(name).is_some_and(|(stored, _)| *stored == digest) {
                    continue;
                }
                let Ok(document) = String::from_utf8(bytes) else { continue };
                self.sections.insert(*name, (digest, document));
                self.changed.insert(*name);
            }
        }
        let Some(newest) = reports.last() else { return Vec::new() };
        // What the node can no longer read is no longer known.
        let gone = |name: &InventorySection| !newest.digests.contains_key(name);
        self.gone = self.sections.keys().filter(|name| gone(name)).copied().collect();
        self.sections.retain(|name, _| !gone(name));
        newest
            .digests
            .iter()
            .filter(|(name, digest)| self.sections.get(*name).is_none_or(|(stored, _)| stored != *digest))
            .map(|(name, _)| *name)
            .collect()
    }

    /// The sections to store.
    pub(super) fn changed(&self) -> Vec<(InventorySection, Digest, String)> {
        let section = |name: &InventorySection| {
            self.sections.get(name).map(|(digest, document)| (*name, *digest, document.clone()))
        };
        self.changed.iter().filter_map(section).collect()
    }

    /// The sections to remove.
    pub(super) fn gone(&self) -> &[InventorySection] {
        &self.gone
    }

    fn missing(&self) -> Vec<InventorySection> {
        InventorySection::ALL.iter().filter(|name| !self.sections.contains_key(name)).copied().collect()
    }

    fn hardware_key(&self) -> Option<HardwareKey> {
        let (_, document) = self.sections.get(&InventorySection::Dmi)?;
        let dmi: Dmi = serde_json::from_str(document).ok()?;
        Some(HardwareKey::derive(&Claims::of_dmi(&dmi)))
    }

    fn gpus(&self) -> Option<Vec<Gpu>> {
        let (_, document) = self.sections.get(&InventorySection::Gpus)?;
        serde_json::from_str(document).ok()
    }
}

/// What is known beside the node's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// The pool's document; `None` when it is in no applied revision.
    pub(super) pool: Option<&'a Pool>,
    /// A status that this run takes over.
    pub(super) status: Option<&'a StatusReport>,
    /// The highest applied and observed generation that this run takes over.
    pub(super) highest: (Generation, Generation),
    /// The generation under which the node attempted another spec than the one that is stored.
    pub(super) other_spec: Option<Generation>,
    /// Why the last report does not count.
    pub(super) refused: Option<&'a str>,
    /// Whether a report was taken over in this run.
    pub(super) heard: bool,
    pub(super) inventory: &'a Inventory,
    pub(super) sections: &'a BTreeMap<Section, SectionStatus>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    /// All conditions, by type.
    pub(super) conditions: Vec<Condition>,
    /// The reasons of this writer; those of others stay as they are.
    no_schedule: BTreeSet<NoScheduleReason>,
    /// The node is to be adopted.
    pub(super) adopt: bool,
    /// The node reports a spec that this database never wrote: the next one jumps past it.
    pub(super) ahead: bool,
    /// What it still waits for.
    pub(super) waiting: Option<Waiting>,
}

impl Judgement {
    /// Reasons to add and to take away.
    pub(super) fn no_schedule_change(&self, node: &Node) -> (Vec<NoScheduleReason>, Vec<NoScheduleReason>) {
        let stored: BTreeSet<&NoScheduleReason> = node.no_schedule.iter().filter(|reason| is_own(reason)).collect();
        let add = self.no_schedule.iter().filter(|reason| !stored.contains(reason)).cloned().collect();
        let remove = stored.into_iter().filter(|reason| !self.no_schedule.contains(reason)).cloned().collect();
        (add, remove)
    }

    pub(super) fn changes_nothing(&self, node: &Node) -> bool {
        !self.adopt && self.adopts_only(node)
    }

    /// Whether nothing follows but that the node may be adopted.
    pub(super) fn adopts_only(&self, node: &Node) -> bool {
        let (add, remove) = self.no_schedule_change(node);
        add.is_empty() && remove.is_empty() && self.conditions == node.conditions
    }
}

fn is_own(reason: &NoScheduleReason) -> bool {
    match reason {
        NoScheduleReason::Condition(_) | NoScheduleReason::Unreachable => true,
        NoScheduleReason::Taint(_) | NoScheduleReason::Draining => false,
    }
}

pub(super) fn judge(node: &Node, facts: &Facts<'_>, now: Timestamp) -> Judgement {
    let (applied, observed) = (node.applied.max(facts.highest.0), node.observed.max(facts.highest.1));
    let other_spec = facts.other_spec == Some(node.generation);
    let ahead = observed.max(applied) > node.generation || other_spec;
    let missing = facts.inventory.missing();
    let failed: Vec<Section> = facts
        .sections
        .iter()
        .filter(|(_, status)| status.state == SectionState::Failed)
        .map(|(name, _)| *name)
        .collect();

    let mut conditions: Vec<Condition> = match facts.status {
        Some(status) => status.conditions.iter().filter(|condition| !is_judged(condition)).cloned().collect(),
        None => node.conditions.iter().filter(|condition| !is_judged(condition)).cloned().collect(),
    };
    conditions.extend(node.conditions.iter().filter(|condition| condition.kind == SPEC_INVALID).cloned());
    let mut judged = Judged { node, now, conditions: &mut conditions };
    if ahead {
        let message = if other_spec {
            format!("the node has another generation {} than this database", node.generation)
        } else {
            format!("the node reports generation {}; this database has {}", observed.max(applied), node.generation)
        };
        judged.set(GENERATION_AHEAD, ConditionStatus::True, "DatabaseBehind", message);
    }
    if !failed.is_empty() {
        let reasons: Vec<String> =
            failed.iter().map(|name| format!("{name}: {}", facts.sections[name].reason)).collect();
        judged.set(SECTION_FAILED, ConditionStatus::True, "NotConverged", reasons.join("; "));
    }
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|section| section.as_str()).collect();
        judged.set(INVENTORY_INCOMPLETE, ConditionStatus::True, "SectionsMissing", names.join(", "));
    }
    match facts.refused {
        Some(refused) => judged.set(REPORT_REFUSED, ConditionStatus::True, "NotBelieved", refused.to_owned()),
        None if !facts.heard => judged.keep(REPORT_REFUSED),
        None => {}
    }
    judged.identity(facts);
    judged.hardware(facts);
    conditions.sort_by(|a, b| a.kind.cmp(&b.kind));

    let blocking = conditions
        .iter()
        .filter(|condition| condition.status == ConditionStatus::True && BLOCKING.contains(&&*condition.kind));
    let mut no_schedule: BTreeSet<NoScheduleReason> =
        blocking.map(|condition| NoScheduleReason::Condition(condition.kind.clone())).collect();
    if matches!(node.connectivity, Connectivity::Unreachable | Connectivity::Lost) {
        no_schedule.insert(NoScheduleReason::Unreachable);
    }

    let adopt = node.provision == ProvisionState::Adopting && facts.pool.is_some() && missing.is_empty();
    let waiting = match (&node.pool, facts.pool) {
        (None, _) => Some(Waiting::NoPool),
        (Some(name), None) => Some(Waiting::PoolUnknown(name.to_string())),
        (Some(_), Some(_)) if node.failed_from == Some(ProvisionState::Adopting) => {
            Some(Waiting::NotAccepted(node.maintenance_reason.clone().unwrap_or_default()))
        }
        (Some(_), Some(_)) if node.provision == ProvisionState::Adopting && !missing.is_empty() => {
            Some(Waiting::Inventory(missing))
        }
        (Some(_), Some(_)) if node.provision.receives_spec() && observed < node.generation => {
            Some(Waiting::Convergence { generation: node.generation, observed })
        }
        (Some(_), Some(_)) if !failed.is_empty() => Some(Waiting::Sections(failed)),
        (Some(_), Some(_)) => None,
    };
    Judgement { conditions, no_schedule, adopt, ahead, waiting }
}

fn is_judged(condition: &Condition) -> bool {
    OWN_CONDITIONS.contains(&&*condition.kind)
}

struct Judged<'a> {
    node: &'a Node,
    now: Timestamp,
    conditions: &'a mut Vec<Condition>,
}

impl Judged<'_> {
    /// Sets a condition; `since` stays while the status does.
    fn set(&mut self, kind: &str, status: ConditionStatus, reason: &str, message: String) {
        let before = self.node.conditions.iter().find(|condition| condition.kind == kind && condition.status == status);
        let since = before.map_or(self.now, |condition| condition.since);
        self.conditions.push(Condition { kind: kind.to_owned(), status, reason: reason.to_owned(), message, since });
    }

    fn keep(&mut self, kind: &str) {
        self.conditions.extend(self.node.conditions.iter().find(|condition| condition.kind == kind).cloned());
    }

    /// A key that lies on another machine's disk is still the key: the hardware beside it says that something was replaced,
    /// or copied.
    fn identity(&mut self, facts: &Facts<'_>) {
        let Some(found) = facts.inventory.hardware_key().filter(|found| found.trusted) else { return };
        let known = self.node.hardware_key.filter(|_| self.node.hardware_key_trusted);
        let (Some(known), Some(found)) = (known, found.digest) else { return };
        if known != found {
            let name = &self.node.name;
            let message = format!(
                "the machine's identifiers are not those that the node is known by: a new board, or a copied disk; after a \
                 repair `better-compute node rebind {name}` says that it is the same machine"
            );
            self.set(HARDWARE_CHANGED, ConditionStatus::True, "OtherIdentifiers", message);
        }
    }

    /// Holds the GPUs that were found against those that the pool's document promises.
    fn hardware(&mut self, facts: &Facts<'_>) {
        let expected =
            facts.pool.and_then(|pool| pool.hardware.as_ref()).and_then(|hardware| hardware.value.gpus.as_ref());
        let Some(expected) = expected.map(|gpus| &gpus.value) else { return };
        let Some(found) = facts.inventory.gpus() else {
            let message = "the GPUs have not been read yet".to_owned();
            return self.set(GPU_COUNT_MISMATCH, ConditionStatus::Unknown, "InventoryMissing", message);
        };
        let count = usize::try_from(expected.count.value).unwrap_or(usize::MAX);
        if found.len() != count {
            let message = format!("the pool's machines have {count} GPUs; this one shows {}", found.len());
            self.set(GPU_COUNT_MISMATCH, ConditionStatus::True, "CountDiffers", message);
        }
        let Some(model) = expected.model.as_ref().map(|model| model.value.trim()) else { return };
        let others: BTreeSet<&str> = found
            .iter()
            .filter_map(|gpu| gpu.model.as_deref())
            .filter(|found| !found.trim().eq_ignore_ascii_case(model))
            .collect();
        if !others.is_empty() {
            let others: Vec<&str> = others.into_iter().collect();
            let message = format!("the pool's machines have {model}; this one shows {}", others.join(", "));
            self.set(GPU_MODEL_MISMATCH, ConditionStatus::True, "ModelDiffers", message);
        }
    }
}
