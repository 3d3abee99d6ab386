//! The kinds of objects: one file per kind with its typed model and its decoder.
//!
//! The models serialise with the words that people write, so the canonical JSON of an object is its document. A
//! document that was stored can be read back with serde; its values then have no places.

mod fleet_doc;
mod image;
mod node;
mod pool;
mod profile;
mod removed;
mod rollout;
mod site;

pub use fleet_doc::{Admission, FleetDocument, Prune};
pub use image::{Arch, Image, ImageUse};
pub use node::{Cordon, Node};
pub use pool::{Cpu, GpuSharing, Gpus, Hardware, HostReserve, Placement, Policy, Pool};
pub use profile::{AccessKeyEntry, FileEntry, Kernel, Module, Profile, Setting, UnitEntry};
pub use removed::Removed;
pub use rollout::Rollout;
pub use site::{Network, Site};
