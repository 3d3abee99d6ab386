//! Items: the places that a section can want something of.

use std::fmt;

use schema::effect::{AfterWrite, after_write};
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::{path::HostPath, tree::FileState};

/// A place. The order is the order of work; undoing goes the other way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Key {
    /// A file or a link.
    Path(HostPath),
    /// A value that the kernel holds, by the file that shows it.
    Value(HostPath),
    /// A kernel module.
    Module(String),
    /// Whether a systemd unit runs.
    Active(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Value(path) => path.fmt(f),
            Self::Module(name) => write!(f, "module {name}"),
            Self::Active(name) => write!(f, "unit {name}"),
        }
    }
}

/// What the language calls a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A file; its content, owner, group and mode are fields below.
    File(String),
    /// A file with a secret: its path, and the reference that is told instead of the content.
    Secret(String, String),
    /// One field.
    Field(String),
    /// A file of several settings.
    Shared(Shared),
}

impl Named {
    /// The path that it is at, or below.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::File(path) | Self::Secret(path, _) | Self::Field(path) => path,
            Self::Shared(shared) => &shared.group,
        }
    }
}

/// What is wanted of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// This file.
    File(FileState),
    /// A symbolic link to this target.
    Link(String),
    /// Nothing there.
    Absent,
    /// This value in the kernel, if it has such a value.
    Value(String),
    /// Loaded, if the kernel's modules can be seen.
    Loaded,
    /// Running, or not.
    Active(bool),
}

/// A program to run after places changed. What is owed is remembered, so that it is run after an interruption too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// systemd reads its unit files again.
    ReloadSystemd,
    /// The boot loader's configuration is made again.
    UpdateGrub,
    /// The SSH server reads its configuration again.
    ReloadSshd,
    /// A running unit starts again, because a file that it reads changed.
    Restart(String),
}

impl Action {
    /// What is owed after this place changed: the very table that a plan is made with.
    #[must_use]
    pub fn after(path: &HostPath) -> Vec<Self> {
        after_write(path.as_str()).into_iter().map(Self::from).collect()
    }
}

impl From<AfterWrite> for Action {
    fn from(after: AfterWrite) -> Self {
        match after {
            AfterWrite::ReloadSystemd => Self::ReloadSystemd,
            AfterWrite::UpdateGrub => Self::UpdateGrub,
            AfterWrite::ReloadSshd => Self::ReloadSshd,
            AfterWrite::Restart(unit) => Self::Restart(unit),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReloadSystemd => f.write_str("systemctl daemon-reload"),
            Self::UpdateGrub => f.write_str("update-grub"),
            Self::ReloadSshd => f.write_str("reload the SSH server"),
            Self::Restart(unit) => write!(f, "restart {unit} if it runs"),
        }
    }
}
