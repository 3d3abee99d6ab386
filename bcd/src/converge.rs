//! Makes a host agree with a section.
//!
//! ```text
//! section ─ compile ─▶ Desired ─┐
//! host ──── observe ─▶ Observed ┼─ weigh ─▶ Desired ─ steps ─▶ [Step] ─ carry_out ─▶ host, Memory, Ledger
//! disk ──── Memory, Ledger ─────┘
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
    drift::{self, Ledger, Moment, Weighed},
    path::HostPath,
    process::Runner,
    section::{self, Facts, Key},
    tree::Tree,
    vault::Vault,
};

mod carry;
mod memory;
mod observe;
mod step;

pub use carry::carry_out;
pub use memory::{Keep, Memory, Origin};
pub(crate) use observe::normal;
pub use observe::{Observed, Seen, observe};
pub use step::{Planned, Step, steps};

#[cfg(test)]
pub(crate) mod tests;

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
    /// The values of secrets that were released to it.
    pub vault: Option<&'a Vault>,
    /// The time is proven; otherwise it is what the machine's clock says, which may be years off.
    pub knows_time: bool,
}

impl Host<'_> {
    fn facts(&self, spec: &NodeSpec) -> Facts {
        Facts { time_unknown: !self.knows_time, ..Facts::gather(self.tree, spec, self.state_dir.cloned()) }
    }

    /// The facts with what its files with secrets hold.
    fn all_facts(&self, spec: &NodeSpec, memory: &Memory) -> Facts {
        let secrets = self.vault.map(|vault| vault.known(self.tree, spec, memory)).unwrap_or_default();
        let why = self.vault.map_or("no gateway was asked", Vault::refusal).to_owned();
        Facts { secrets, no_secrets: why, ..self.facts(spec) }
    }
}

/// What is kept about one host.
#[derive(Debug)]
pub struct Books<'a> {
    /// What was there before, of one section.
    pub memory: &'a mut Memory,
    /// What drifted, of all sections.
    pub ledger: &'a mut Ledger,
    /// Where both are kept.
    pub keep: &'a mut dyn Keep,
}

/// What one section would do now.
#[must_use]
pub fn plan(
    host: Host<'_>,
    section: Section,
    spec: &NodeSpec,
    memory: &Memory,
    ledger: &Ledger,
    now: Timestamp,
) -> (Planned, Weighed) {
    let facts = host.all_facts(spec, memory);
    let desired = section::compile(section, spec, &facts, now);
    let observed = observe(host, &desired, memory);
    let weighed = drift::weigh(desired, &observed, &facts.accounts, ledger, |path: &str| drift::mode(spec, path), now);
    (steps(&weighed.desired, &observed, memory), weighed)
}

/// Converges one section: what drifted is written down, what is to be made is made, and what came of it is written down.
pub fn converge(host: Host<'_>, section: Section, spec: &NodeSpec, books: &mut Books<'_>, moment: Moment) -> Ended {
    let now = moment.now;
    let (planned, weighed) = plan(host, section, spec, books.memory, books.ledger, now);
    let before = books.ledger.clone();
    let mut said = books.ledger.page(section).note(&weighed.findings, moment);
    if let Err(error) = keep_changed(books, &before) {
        let problem = format!("nothing was changed, for what drifted cannot be kept: {error}");
        *books.ledger = before;
        return failed(problem, &weighed);
    }
    let outcome = carry_out(host, &planned.steps, books.memory, books.keep);
    let before = books.ledger.clone();
    books.ledger.page(section).close(&weighed, |key: &Key| outcome.made.contains(key), now);
    let kept = keep_changed(books, &before).err().map(|error| format!("what drifted cannot be kept: {error}"));

    let mut problems = weighed.desired.problems;
    problems.extend(planned.problems);
    problems.extend(outcome.problems);
    problems.extend(kept);
    said.extend(outcome.done);
    // What the kernel has changed by now.
    let staged = section::compile(section, spec, &host.facts(spec), now).staged;
    let state = if problems.is_empty() { SectionState::Converged } else { SectionState::Failed };
    Ended { state, reason: shorten(&problems), staged, until: weighed.desired.until, done: said }
}

fn keep_changed(books: &mut Books<'_>, before: &Ledger) -> std::io::Result<()> {
    if books.ledger == before { Ok(()) } else { books.keep.keep_ledger(books.ledger) }
}

fn failed(problem: String, weighed: &Weighed) -> Ended {
    let (staged, until) = (weighed.desired.staged.clone(), weighed.desired.until);
    Ended { state: SectionState::Failed, reason: shorten(&[problem]), staged, until, done: Vec::new() }
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
