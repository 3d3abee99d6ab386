//! Makes a host agree with a section.
//!
//! ```text
//! section ─ compile ─▶ Desired ─┐
//! host ──── observe ─▶ Observed ┼─ steps ─▶ [Step] ─ carry_out ─▶ host, Memory
//! disk ──── Memory ─────────────┘
//! ```
//!
//! [`steps`] is pure. Whatever is needed to undo a change is in the [`Memory`] on disk before the change is made, and
//! leaves it after the change was undone. So a run that was interrupted anywhere is finished by the next one.

use schema::{
    report::SectionState,
    spec::{NodeSpec, Section},
    time::Timestamp,
};

use crate::{
    path::HostPath,
    process::Runner,
    section::{self, Facts},
    tree::Tree,
};

mod carry;
mod memory;
mod observe;
mod step;

pub use carry::carry_out;
pub use memory::{Keep, Memory, Origin};
pub use observe::{Observed, Seen, observe};
pub use step::{Planned, Step, steps};

#[cfg(test)]
mod tests;

/// How one section ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Converged or failed.
    pub state: SectionState,
    /// Why it failed; empty when converged.
    pub reason: String,
    /// What waits for a boot.
    pub staged: Vec<String>,
    /// When the section has to be looked at again by itself.
    pub until: Option<Timestamp>,
    /// What was done, for the log.
    pub done: Vec<String>,
}

/// The host that is worked on.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// Its files.
    pub tree: &'a Tree,
    /// Its programs.
    pub runner: &'a dyn Runner,
    /// Where the daemon keeps its own files, when that lies under the root.
    pub state_dir: Option<&'a HostPath>,
}

impl Host<'_> {
    fn facts(&self, spec: &NodeSpec) -> Facts {
        Facts::gather(self.tree, spec, self.state_dir.cloned())
    }
}

/// What one section would do now.
#[must_use]
pub fn plan(host: Host<'_>, section: Section, spec: &NodeSpec, memory: &Memory, now: Timestamp) -> Planned {
    let facts = host.facts(spec);
    let desired = section::compile(section, spec, &facts, now);
    let observed = observe(host, &desired, memory);
    steps(&desired, &observed, memory)
}

/// Converges one section.
pub fn converge(
    host: Host<'_>,
    section: Section,
    spec: &NodeSpec,
    memory: &mut Memory,
    keep: &mut dyn Keep,
    now: Timestamp,
) -> Ended {
    let facts = host.facts(spec);
    let desired = section::compile(section, spec, &facts, now);
    let observed = observe(host, &desired, memory);
    let planned = steps(&desired, &observed, memory);
    let outcome = carry_out(host, &planned.steps, memory, keep);

    let mut problems = desired.problems;
    problems.extend(planned.problems);
    problems.extend(outcome.problems);
    // What the kernel has changed by now.
    let staged = section::compile(section, spec, &host.facts(spec), now).staged;
    let state = if problems.is_empty() { SectionState::Converged } else { SectionState::Failed };
    Ended { state, reason: shorten(&problems), staged, until: desired.until, done: outcome.done }
}

/// How a section that converged before stands, without touching it: what waits for a boot may have changed.
#[must_use]
pub fn standing(host: Host<'_>, section: Section, spec: &NodeSpec, now: Timestamp) -> Ended {
    let desired = section::compile(section, spec, &host.facts(spec), now);
    Ended {
        state: SectionState::Converged,
        reason: String::new(),
        staged: desired.staged,
        until: desired.until,
        done: Vec::new(),
    }
}

fn shorten(problems: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut reason = problems.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if problems.len() > SHOWN {
        reason.push_str(&format!("; and {} more", problems.len() - SHOWN));
    }
    reason.chars().take(2000).collect()
}
