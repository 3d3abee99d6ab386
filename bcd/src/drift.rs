//! Drift: what something else than the daemon changed after it had been as desired.
//!
//! ```text
//! Desired ─┐
//! Observed ┼─ weigh ─▶ Desired without what is left alone, Findings ─▶ steps … ─▶ close
//! Ledger ──┘                                                    └─▶ note
//! ```
//!
//! A place that differs is *drift* when it was seen to be as desired before, under the very same wish; otherwise it is work
//! that has not been done yet. Drift is put right, or left alone where the spec's rules say so; either way it is in the
//! [`Ledger`] on disk before anything is touched, and in the next report. What is fought over (put right again and again
//! within minutes) is put right more and more seldom until the fight ends.
//!
//! [`weigh`] and the ledger are pure: they touch no host and read no clock.

use schema::{
    report::{DriftCause, DriftMode},
    spec::{self, NodeSpec},
    time::Timestamp,
};

mod fight;
mod ledger;
mod look;
mod report;
mod weigh;

pub use ledger::{Ledger, Tracked};
pub use weigh::{Finding, Weighed, weigh};

#[cfg(test)]
mod tests;

/// The moment of a look, and what is known of the one before.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// What a change that is found now is put down to.
    pub cause: DriftCause,
}

/// What the rules of a spec say about a field, as `explain` names it. What they do not speak of is enforced.
#[must_use]
pub fn mode(spec: &NodeSpec, path: &str) -> DriftMode {
    // Access is never left alone.
    let rule = if path.starts_with("access.") { None } else { spec.host.drift_mode(path) };
    match rule {
        Some(spec::DriftMode::Warn) => DriftMode::Warn,
        Some(spec::DriftMode::Adopt) => DriftMode::Adopt,
        None => DriftMode::Enforce,
    }
}
