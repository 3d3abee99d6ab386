//! `profile`: what a host looks like. Profiles extend one another; [`crate::fleet::resolve`] merges a chain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{diagnostic::SourceRef, fleet::Located, name::Name, time::Timestamp};

/// A kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Module {
    /// Options as modprobe.d takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Located<String>>,
    /// Whether the module is kept from loading instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blacklist: Option<Located<bool>>,
}

/// Kernel modules and command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kernel {
    /// Modules by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub module: BTreeMap<String, Located<Module>>,
    /// Command line arguments, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Located<String>>,
}

impl Kernel {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.module.is_empty() && self.args.is_empty()
    }
}

/// A file on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct FileEntry {
    /// The content itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// Owning user; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Located<String>>,
    /// Owning group; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Located<String>>,
    /// Four octal digits; `0644` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Located<String>>,
}

/// A systemd unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct UnitEntry {
    /// The unit file itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the unit file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// Whether it starts at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<Located<bool>>,
    /// `started` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Located<String>>,
}

/// A break-glass SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AccessKeyEntry {
    /// The public key: type and base64.
    pub key: Located<String>,
    /// Who the key belongs to; its name when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Located<String>>,
    /// Account on the host; `root` when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Located<String>>,
    /// When it stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
}

/// A setting of a kind that this version records without acting on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// A profile's document: one layer of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Profile {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The profile below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<Located<Name>>,
    /// Kernel parameters by their dotted name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, Located<String>>,
    /// Kernel modules and command line.
    #[serde(default, skip_serializing_if = "Kernel::is_empty")]
    pub kernel: Kernel,
    /// How many huge pages, by size: `2MiB` or `1GiB`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages: BTreeMap<String, Located<u32>>,
    /// Files by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub file: BTreeMap<String, Located<FileEntry>>,
    /// systemd units by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unit: BTreeMap<String, Located<UnitEntry>>,
    /// Package versions by package.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub package: BTreeMap<String, Located<String>>,
    /// Break-glass SSH keys by a name of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub access: BTreeMap<String, Located<AccessKeyEntry>>,
    /// Settings of the node daemon; recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub daemon: BTreeMap<String, Located<Setting>>,
    /// Settings of telemetry; recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub telemetry: BTreeMap<String, Located<Setting>>,
    /// What is put on the disk of a new machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Located<Name>>,
}
