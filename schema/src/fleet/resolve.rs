//! Resolving: what a profile's chain says in all, and where each value of a host comes from.
//!
//! Layers are merged from the root of the chain to its tip. Mappings merge by key and named things (files, units,
//! modules, packages, keys) by name: a later layer's value takes the place of the earlier one as a whole. Plain lists
//! (kernel arguments) append; an exact repetition appears once, at its first place.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Fleet, Located, Node,
    kind::{AccessKeyEntry, FileEntry, Module, Setting, UnitEntry},
};
use crate::{diagnostic::SourceRef, name::Name};

/// A value that won, the layer that won with it, and the layers that it beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer<T> {
    /// The value and its place.
    pub value: Located<T>,
    /// The profile that says it.
    pub profile: Name,
    /// Profiles further down that said something else, nearest first.
    pub beaten: Vec<(Name, SourceRef)>,
}

/// A profile with everything that its chain says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProfile {
    /// The profile at the tip.
    pub name: Name,
    /// The chain, root first, the profile itself last.
    pub chain: Vec<Name>,
    /// Kernel parameters.
    pub sysctl: BTreeMap<String, Layer<String>>,
    /// Kernel modules.
    pub modules: BTreeMap<String, Layer<Module>>,
    /// Kernel command line arguments.
    pub kernel_args: Vec<Layer<String>>,
    /// Huge pages by size.
    pub hugepages: BTreeMap<String, Layer<u32>>,
    /// Files by path.
    pub files: BTreeMap<String, Layer<FileEntry>>,
    /// systemd units by name.
    pub units: BTreeMap<String, Layer<UnitEntry>>,
    /// Package versions.
    pub packages: BTreeMap<String, Layer<String>>,
    /// Break-glass keys.
    pub access: BTreeMap<String, Layer<AccessKeyEntry>>,
    /// Daemon settings; recorded.
    pub daemon: BTreeMap<String, Layer<Setting>>,
    /// Telemetry settings; recorded.
    pub telemetry: BTreeMap<String, Layer<Setting>>,
    /// The image of new machines.
    pub image: Option<Layer<Name>>,
}

/// Where one value of a host comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// The value's path in the node spec, for example `host.sysctl.vm.swappiness`.
    pub path: String,
    /// The value, shortened for people.
    pub value: String,
    /// The layer that won, as an address: `profile/gpu-host`, `node/fra1-r12`.
    pub layer: String,
    /// Where it is written.
    pub at: SourceRef,
    /// The template that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<SourceRef>,
    /// Layers that said something else, nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beaten: Vec<SourceRef>,
}

pub(super) fn explain(_fleet: &Fleet, _node: &Node, _path: Option<&str>) -> Option<Vec<Provenance>> {
    None
}
