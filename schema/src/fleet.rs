//! The fleet language: what a person writes in the fleet repository, and what it means.
//!
//! ```text
//! Sources → parse (per file) → decode (typed, every value with its place) → resolve (references, profile chains)
//!         → render (templates) → check (the fleet as a whole) → Fleet
//! ```
//!
//! One pass reports every problem of every file; a tree with an error yields no [`Fleet`] at all, so it can never be read
//! as "those objects are gone". Nothing else in the project parses a fleet file. This module reads no directory and no
//! repository: [`Sources`] are given.

pub mod brake;
pub mod edit;
pub mod host_path;
pub mod kind;
pub mod reference;
pub mod trust;
pub mod window;

mod check;
mod cursor;
mod decode;
mod doc;
mod explain;
mod fleet_object;
mod format;
mod glob;
mod host;
mod json_schema;
mod labels;
mod load;
mod located;
mod parse;
mod places;
mod quantity;
mod refers;
mod resolve;
mod sources;
mod stack;
mod stop;
mod suggest;
mod template;

pub use cursor::{Cursor, Outlined, Place, cursor, outline};
pub use explain::{Provenance, Read};
pub use fleet_object::{Fleet, ObjectEntry, Strategy};
pub use format::{FormatError, Ignored, format};
pub use glob::covers as pattern_covers;
pub use host::{
    AccessKeyTemplate, ComposeError, Composed, Content, FileTemplate, HostTemplate, NodeOverlay, UnitTemplate, compose,
    compose_all,
};
pub use json_schema::{FORMAT, json_schema};
pub use kind::{
    ApiAccess, Batch, FleetDocument, Freeze, Image, Moved, Node, Pool, Profile, Quota, Release, Removed, Rollout, Site,
    Tenant,
};
pub use labels::Labels;
pub use load::{Cache, Limits, Loaded, load, load_with};
pub use located::Located;
pub use quantity::{ByteSize, ParseQuantityError, Share};
pub use refers::{refers, rename_references};
pub use resolve::{Layer, ResolvedProfile};
pub use sources::{Blob, SourceBlob, Sources};
pub use stop::{Stop, Stopped};
pub use suggest::similar;

pub use crate::diagnostic::{Diagnostic, SourceMap, SourceRef};

#[cfg(test)]
mod tests;
