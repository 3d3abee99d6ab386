//! What a pool's hosts should be ([`HostTemplate`], whose digest is the pool's target) and how one machine's sections are
//! made from it ([`compose`]).
//!
//! A template is self-contained: it is stored under its digest and composed from later, when the repository may have
//! moved on or be away. It holds no places, so moving a line moves no target.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FleetDocument, Node, Pool, ResolvedProfile, Site};
use crate::{
    canonical,
    digest::Digest,
    name::Name,
    spec::{AccessSection, HostSection, Hugepages, KernelModule, PackagePin},
    time::Timestamp,
};

/// The text of a file: given, or made by a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// The text itself.
    Text(String),
    /// The path of a template in [`HostTemplate::templates`].
    Template(String),
}

/// A file before its template is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileTemplate {
    /// Absolute path on the host.
    pub path: String,
    /// What is in it.
    pub content: Content,
    /// Owning user.
    pub owner: String,
    /// Owning group.
    pub group: String,
    /// Four octal digits.
    pub mode: String,
}

/// A systemd unit before its template is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitTemplate {
    /// Unit name with its suffix.
    pub name: String,
    /// The unit file; `None` when it comes with a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Started at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Running at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
}

/// A break-glass key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessKeyTemplate {
    /// Who the key belongs to.
    pub principal: String,
    /// Account on the host.
    pub account: String,
    /// Type and base64.
    pub key: String,
    /// When it stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What the hosts of one pool should be under one profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostTemplate {
    /// The pool.
    pub pool: Name,
    /// The profile.
    pub profile: Name,
    /// Kernel parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Kernel modules, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<KernelModule>,
    /// Kernel command line arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_args: Vec<String>,
    /// Huge pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hugepages: Vec<Hugepages>,
    /// Files, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileTemplate>,
    /// systemd units, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitTemplate>,
    /// Package versions, by package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<PackagePin>,
    /// Break-glass keys, by account and principal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<AccessKeyTemplate>,
    /// The texts of the templates that files and units name, and of those that these include.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
    /// What templates see of `fleet`, `site`, `pool` and `profile`; only the ones that a template names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,
}

/// The words that a machine's own document adds. A machine without a document has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeOverlay {
    /// The profile that it has instead of its pool's: the template to compose from is the one of this profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// Free words, which templates see as `node.labels`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One machine's sections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composed {
    /// What the host looks like.
    pub host: HostSection,
    /// Break-glass access.
    pub access: AccessSection,
}

/// Why a machine's sections cannot be made. A fleet that was loaded composes for its declared machines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template {template}, line {line}: {message}")]
pub struct ComposeError {
    /// The template's path.
    pub template: String,
    /// The line in it.
    pub line: u32,
    /// What is wrong.
    pub message: String,
}

impl HostTemplate {
    pub(super) fn new(
        _fleet: &FleetDocument,
        _site: &Site,
        _pool: &Pool,
        _profile: &ResolvedProfile,
        _templates: &BTreeMap<Arc<str>, Arc<str>>,
    ) -> Self {
        todo!()
    }

    /// The digest of its canonical JSON: the target of a pool.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical::digest(self).expect("a template holds no fractions and serialises")
    }
}

impl NodeOverlay {
    /// The words of a node's document.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self {
            profile: node.profile.as_ref().map(|name| name.value.clone()),
            labels: node.labels.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect(),
        }
    }
}

/// Makes one machine's sections: a pure function of its arguments.
///
/// # Errors
/// When a template uses a value that this machine does not have, or does too much.
pub fn compose(_template: &HostTemplate, _overlay: &NodeOverlay, _node: &str) -> Result<Composed, ComposeError> {
    todo!()
}
