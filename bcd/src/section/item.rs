//! Items: the places that a section can want something of.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// A running unit starts again with its new file.
    Restart(String),
}

impl Action {
    /// What is owed after this place changed.
    #[must_use]
    pub fn after(path: &HostPath) -> Vec<Self> {
        let units = "/etc/systemd/system";
        if path.is_under(units) {
            let is_unit_file = path.parent().is_some_and(|parent| parent.as_str() == units);
            let restart = is_unit_file.then(|| Self::Restart(path.name().to_owned()));
            return std::iter::once(Self::ReloadSystemd).chain(restart).collect();
        }
        if path.is_under("/etc/default/grub.d") {
            return vec![Self::UpdateGrub];
        }
        if path.is_under("/etc/ssh/sshd_config.d") {
            return vec![Self::ReloadSshd];
        }
        Vec::new()
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
