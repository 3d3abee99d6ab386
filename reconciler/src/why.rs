//! Why something has not happened: what a machine or a command waits for, since when, and who can lift it.
//!
//! Pure: facts in, [`Wait`]s out, what stands in front of everything else first. What a code means and what lifts it is
//! written once, in the [`catalogue`]; a wait adds what is true of this machine at this time.

use schema::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use store::outcomes::Outcome;

mod batch;
pub mod catalogue;
mod command;
mod node;
pub mod reference;

#[cfg(test)]
mod tests;

pub use batch::{BatchFacts, asks, batch, votes};
pub use catalogue::{Area, Entry, Lifter};
pub use command::{CommandFacts, command};
pub use node::{Gate, NodeFacts, OUTSIDE, is_echo, node, outside, revoked};

/// What is kept from happening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keeps {
    /// Everything: nothing reaches the machine.
    Contact,
    /// The command does not run, or did not.
    Command,
    /// The machine is not what it should be.
    DesiredState,
    /// No new work is placed.
    NewWork,
    /// No line of the audit log is signed.
    Log,
    /// Nothing; it is worth knowing.
    Nothing,
}

impl Keeps {
    /// As people read it.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Contact => "nothing reaches the machine",
            Self::Command => "the command",
            Self::DesiredState => "what the machine should be",
            Self::NewWork => "new work",
            Self::Log => "the audit log",
            Self::Nothing => "nothing",
        }
    }
}

/// One thing that has to happen first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// Who said so.
    pub area: Area,
    /// The stable word.
    pub code: String,
    /// What is kept from happening.
    pub keeps: Keeps,
    /// It is not waited for: it is how it ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// What is true here and now.
    pub says: String,
    /// What the code means.
    pub means: String,
    /// Who can lift it.
    pub lifted_by: Lifter,
    /// What that one does.
    pub remedy: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub since: Option<Timestamp>,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// Who answers for it, when a person does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The file and line of the fleet repository that say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The place in the program that said so, for whoever develops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said_in: Option<String>,
}

impl Wait {
    /// What the catalogue says of a code, and what is true here. Any work can end as work of every kind can.
    #[must_use]
    pub(crate) fn new(area: Area, code: &str, keeps: Keeps, says: impl Into<String>) -> Self {
        let entry = catalogue::find(area, code).or_else(|| catalogue::find(Area::Work, code));
        Self {
            area,
            code: code.to_owned(),
            keeps,
            ended: false,
            says: says.into(),
            means: entry.map_or("", |entry| entry.means).to_owned(),
            lifted_by: entry.map_or(Lifter::Developer, |entry| entry.lifted_by),
            remedy: entry.map_or("report this code: no page knows it", |entry| entry.remedy).to_owned(),
            since: None,
            until: None,
            owner: None,
            place: None,
            said_in: None,
        }
    }

    pub(crate) fn since(mut self, since: Timestamp) -> Self {
        self.since = Some(since);
        self
    }

    pub(crate) fn said_in(mut self, place: impl Into<String>) -> Self {
        self.said_in = Some(place.into());
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    pub(crate) const fn lifted_by(mut self, lifter: Lifter) -> Self {
        self.lifted_by = lifter;
        self
    }
}

/// What keeps the audit log from being chained and signed.
pub(crate) fn audit(outcome: &Outcome) -> Wait {
    let says = outcome.message.clone();
    Wait::new(Area::Work, &outcome.reason, Keeps::Log, says).since(outcome.since).said_in(&outcome.place)
}

/// The catalogue speaks of NODE; a wait speaks of this one.
fn for_node(mut waits: Vec<Wait>, name: &str) -> Vec<Wait> {
    for wait in &mut waits {
        wait.remedy = wait.remedy.replace("NODE", name);
    }
    waits
}

/// What stands in front of everything else first, the older first among equals.
fn in_order(mut waits: Vec<Wait>) -> Vec<Wait> {
    waits.sort_by(|a, b| (a.keeps, a.since, &a.code).cmp(&(b.keeps, b.since, &b.code)));
    waits
}
