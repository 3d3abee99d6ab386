//! The kinds of objects: one file per kind with its typed model and its decoder.
//!
//! The models serialise with the words that people write, so the canonical JSON of an object is its document. A
//! document that was stored can be read back with serde; its values then have no places.

pub(super) mod fleet_doc;
mod form;
pub(super) mod image;
pub(super) mod node;
pub(super) mod pool;
pub(super) mod profile;
pub(super) mod removed;
pub(super) mod rollout;
pub(super) mod site;

use std::collections::BTreeMap;

use super::{
    Located,
    decode::{Fields, Findings},
};

pub use fleet_doc::{Admission, FleetDocument, Prune};
pub use image::{Arch, Image, ImageUse};
pub use node::{Cordon, Node};
pub use pool::{Cpu, GpuSharing, Gpus, Hardware, HostReserve, Placement, Policy, Pool};
pub use profile::{Access, AccessKeyEntry, FileEntry, Kernel, Module, Profile, Setting, UnitEntry};
pub use removed::Removed;
pub use rollout::Rollout;
pub use site::{Network, Site};

/// Free words: `labels { rack "r12" }`.
fn labels(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<String>> {
    let labels = fields.text_table("labels", findings);
    for (key, value) in &labels {
        let key = Located::new(key.clone(), value.at.clone());
        form::keep(Some(key), "the key of a label: letters, digits, - _ . /", form::label_key, findings);
        form::keep(Some(value.clone()), "a text on one line", |text| text.is_empty() || form::line(text), findings);
    }
    labels
}
