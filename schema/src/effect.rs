//! Effects: what a change of a machine's spec does to the machine, and how hard.
//!
//! [`classify`] compares two specs and names everything that the daemon will do on a host that is as the first one says:
//! one classifier for the plan that people read, for the record of each generation, and, by [`after_write`], for the
//! daemon itself. It is total (every two specs have effects, and specs that differ have at least one) and pure. It does
//! not know the host: what depends on it (a module that is loaded already, a unit that does not run) is taken as the
//! harder of the two.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::words;

mod classify;
mod managed;
pub mod places;

#[cfg(test)]
mod tests;

pub use classify::classify;
pub use managed::{AfterWrite, after_write};

words! {
    /// How hard a change is for a machine, from nothing to everything. The order is the order of declaration.
    EffectClass {
        /// The host stays as it is.
        None = "none",
        /// Something changes while everything runs on.
        Live = "live",
        /// A service stops or starts again; workloads run on.
        ServiceRestart = "service-restart",
        /// Workloads have to leave first.
        Drain = "drain",
        /// It works only after a boot.
        Reboot = "reboot",
        /// The disk is written anew.
        Reimage = "reimage",
        /// What the disks held is gone.
        Wipe = "wipe",
    }
}

words! {
    /// What is done.
    EffectAction {
        /// A file is written: content, owner or mode.
        Write = "write",
        /// A file goes, or what was there before comes back.
        Remove = "remove",
        /// A value is set.
        Set = "set",
        /// A value is what it was before, or nobody's any more.
        Unset = "unset",
        /// A kernel module is loaded.
        Load = "load",
        /// A kernel module is loaded no more from the next boot on.
        Unload = "unload",
        /// A unit starts.
        Start = "start",
        /// A unit stops.
        Stop = "stop",
        /// A unit starts at boot.
        Enable = "enable",
        /// A unit does not start at boot.
        Disable = "disable",
        /// A unit starts again, if it runs.
        Restart = "restart",
        /// A program reads its configuration again.
        Reload = "reload",
        /// It is prepared and waits for a boot.
        Stage = "stage",
        /// A package keeps to a version.
        Pin = "pin",
        /// A package keeps to no version.
        Unpin = "unpin",
        /// Somebody may log in.
        Grant = "grant",
        /// Somebody may log in no more.
        Revoke = "revoke",
    }
}

/// One thing that is done to a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// How hard it is.
    pub class: EffectClass,
    /// To what: `file /etc/motd`, `sysctl vm.swappiness`, `unit chrony.service`, `kernel arguments`.
    pub subject: String,
    /// What is done to it.
    pub action: EffectAction,
    /// What else of the same change brings it about: the file whose change restarts a unit, the setting that is written to
    /// a file; absent when the spec says it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Everything that a change does to a machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effects {
    /// The hardest of the items; none when there are none.
    pub class: EffectClass,
    /// What is done, sorted.
    pub items: Vec<Effect>,
}

impl Effects {
    /// Effects from items in any order.
    #[must_use]
    pub fn new(mut items: Vec<Effect>) -> Self {
        items.sort_unstable();
        items.dedup();
        let class = items.iter().map(|item| item.class).max().unwrap_or(EffectClass::None);
        Self { class, items }
    }

    /// Whether nothing is done at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl Default for Effects {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}
