//! The kinds of objects: one file per kind with its typed model and its decoder.
//!
//! The models serialise with the words that people write, so the canonical JSON of an object is its document. A
//! document that was stored can be read back with serde; its values then have no places.

pub(super) mod access;
mod attest;
pub(super) mod batch;
pub(super) mod fleet_doc;
pub(super) mod form;
pub(super) mod freeze;
mod hold;
pub(super) mod image;
pub(super) mod moved;
pub(super) mod node;
pub(super) mod pool;
pub(super) mod profile;
pub(super) mod quota;
pub(super) mod release;
pub(super) mod removed;
pub(super) mod rollout;
pub(super) mod site;
pub(super) mod tenant;

use std::collections::BTreeMap;

use super::{
    Located,
    decode::{Fields, Findings, lone, text},
};

pub use access::ApiAccess;
pub use attest::AttestRule;
pub use batch::{Batch, BatchCommand, BatchScope};
pub use fleet_doc::{Admission, Apply, FleetDocument, Prune};
pub use freeze::{Freeze, FreezeRule};
pub use hold::Hold;
pub use image::{Arch, Image, ImageUse};
pub use moved::Moved;
pub use node::{Node, Taint};
pub use pool::{Acceptance, AcceptanceCheck, Cpu, GpuSharing, Gpus, Hardware, HostReserve, Placement, Policy, Pool};
pub use profile::{Access, AccessKeyEntry, Drift, FileEntry, Kernel, Module, Profile, Setting, UnitEntry, Without};
pub use quota::Quota;
pub use release::{Artifact, Release};
pub use removed::Removed;
pub use rollout::{Gate, OnFailure, Rollout, Wave};
pub use site::{Network, Site};
pub use tenant::Tenant;

/// Free words: `labels { rack "r12" }`.
fn labels(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<String>> {
    words_of("labels", fields, findings)
}

/// Free words under a key: labels, or a selector over them.
fn words_of(
    key: &'static str,
    fields: &mut Fields<'_>,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, Located<String>> {
    fields.table(key, findings, |entry, findings| {
        let written = findings.located(entry.key.clone(), entry.span);
        let before = findings.errors();
        form::keep(Some(written), "the key of a label: letters, digits, - _ . /", form::label_key, findings);
        if findings.errors() == before + 1
            && entry.key.ends_with(':')
            && let Some(found) = findings.found.last_mut()
        {
            found.help = Some("KDL has no colon after a key".to_owned());
        }
        let value = lone(entry, "a text", findings).and_then(|arg| text(arg, findings));
        let value = form::keep(value, "a text on one line", |text| text.is_empty() || form::line(text), findings);
        value.filter(|_| findings.errors() == before)
    })
}
