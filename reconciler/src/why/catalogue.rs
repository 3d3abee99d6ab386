//! Every code that says "not yet" or "no": what it means, who can lift it, and how. Written once.
//!
//! The codes themselves live where they are decided; tests hold each list of codes and this one together.

use schemars::JsonSchema;
use serde::Serialize;

mod batches;
mod calls;
mod commands;
mod gates;
mod joins;
mod policies;
mod secrets;
mod sessions;
mod statements;
mod states;
mod trust;
mod work;

/// Where a code comes from. A code is unique in its area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// A machine's session with a gateway.
    Session,
    /// A machine that wants to join.
    Join,
    /// A node that wants a new certificate.
    Renewal,
    /// A machine that asks for the values of secrets.
    Secret,
    /// A command.
    Command,
    /// A batch of destructive commands.
    Batch,
    /// What a person signs.
    Statement,
    /// What holds a change back, or work away.
    Gate,
    /// A reconciler.
    Work,
    /// A fact about a machine.
    Condition,
    /// New work on a machine.
    Schedule,
    /// The fleet repository.
    Source,
    /// A commit of the fleet repository, once people sign for it.
    Trust,
    /// An answer of the API.
    Api,
}

impl Area {
    /// Every area, in the order of the reference.
    pub const ALL: [Self; 14] = [
        Self::Session,
        Self::Join,
        Self::Renewal,
        Self::Secret,
        Self::Command,
        Self::Batch,
        Self::Statement,
        Self::Gate,
        Self::Work,
        Self::Condition,
        Self::Schedule,
        Self::Source,
        Self::Trust,
        Self::Api,
    ];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Join => "join",
            Self::Renewal => "renewal",
            Self::Secret => "secret",
            Self::Command => "command",
            Self::Batch => "batch",
            Self::Statement => "statement",
            Self::Gate => "gate",
            Self::Work => "work",
            Self::Condition => "condition",
            Self::Schedule => "schedule",
            Self::Source => "source",
            Self::Trust => "trust",
            Self::Api => "api",
        }
    }

    /// What its codes are about.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Session => "Why a machine has no session, or lost it",
            Self::Join => "Why a machine does not become a node",
            Self::Renewal => "Why a node gets no new certificate",
            Self::Secret => "Why a machine does not get the values of secrets",
            Self::Command => "Why a command waits, or how it ended",
            Self::Batch => "Why a batch of destructive commands waits, or how it ended",
            Self::Statement => "Why what a person signs about destructive work does not count",
            Self::Gate => "What holds a change back, or keeps new work away on purpose",
            Self::Work => "What a reconciler waits for, or what broke",
            Self::Condition => "Facts about a machine",
            Self::Schedule => "Why a machine gets no new work",
            Self::Source => "Why the fleet repository is not followed",
            Self::Trust => "What the trust policy concludes about a commit, or about the fleet",
            Self::Api => "Why a call was not done",
        }
    }
}

/// Who can lift it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Lifter {
    /// It passes without anybody.
    Itself,
    /// Whoever operates the control plane.
    Operator,
    /// Whoever writes the fleet repository.
    Author,
    /// People whom the trust policy names.
    People,
    /// Whoever is at the machine.
    Machine,
    /// Whoever asked for it.
    Caller,
    /// Whoever develops this program.
    Developer,
}

impl Lifter {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Itself, Self::Operator, Self::Author, Self::People, Self::Machine, Self::Caller, Self::Developer];

    /// As people read it.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Itself => "it passes by itself",
            Self::Operator => "an operator",
            Self::Author => "a commit in the fleet repository",
            Self::People => "people whom the trust policy names",
            Self::Machine => "somebody at the machine",
            Self::Caller => "whoever asked for it",
            Self::Developer => "a new version of this program",
        }
    }
}

/// One code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where it comes from.
    pub area: Area,
    /// The stable word.
    pub code: &'static str,
    /// What it means.
    pub means: &'static str,
    /// Who can lift it.
    pub lifted_by: Lifter,
    /// What that one does.
    pub remedy: &'static str,
}

/// Every entry, area by area.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    [
        sessions::ENTRIES,
        joins::ENTRIES,
        secrets::ENTRIES,
        commands::ENTRIES,
        batches::ENTRIES,
        statements::ENTRIES,
        gates::ENTRIES,
        work::ENTRIES,
        policies::ENTRIES,
        states::ENTRIES,
        trust::ENTRIES,
        calls::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

/// The entry of a code.
#[must_use]
pub fn find(area: Area, code: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.area == area && entry.code == code)
}

/// The entries of a code in every area that has it, whatever its case.
#[must_use]
pub fn of_code(code: &str) -> Vec<&'static Entry> {
    all().filter(|entry| entry.code.eq_ignore_ascii_case(code)).collect()
}

const fn entry(area: Area, code: &'static str, means: &'static str, lifted_by: Lifter, remedy: &'static str) -> Entry {
    Entry { area, code, means, lifted_by, remedy }
}
