//! Codes about which trust policy a machine believes.

use super::{
    Area::Condition,
    Entry,
    Lifter::{Itself, Machine},
    entry,
};

/// The entries.
pub(super) const ENTRIES: &[Entry] = &[
    entry(
        Condition,
        "policy-missing",
        "The machine has not said that it believes a trust policy, so that it may not ask people before it does harm.",
        Itself,
        "it comes with its next session; a daemon that does not say so is an old one: upgrade it",
    ),
    entry(
        Condition,
        "policy-behind",
        "The machine believes an earlier trust policy than the one in force, and takes no approval under that one.",
        Itself,
        "it comes with its session; its daemon's log says why it does not take it",
    ),
    entry(
        Condition,
        "policy-apart",
        "The machine believes a trust policy that is not one of this control plane's. It never goes back, and takes no approval.",
        Machine,
        "bring that policy into force as it was (docs/guides/trust.md), or join the machine anew with an empty state directory",
    ),
];
