//! What does not go with the rest, and what it waits for.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    effect::EffectClass,
    object::ObjectRef,
    time::{Moment, Timestamp},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What keeps something from going. The words are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateWord {
    /// The object in force is protected.
    Protected,
    /// More would go than the limits allow.
    Prune,
    /// Something that stays needs it.
    Dependents,
    /// No change for a time.
    Freeze,
    /// One machine stays as it is.
    Pin,
    /// Somebody stopped changes by hand.
    Suspend,
    /// The pool's rollout goes in waves.
    Rollout,
    /// It is harder than what goes without having been shown.
    Bind,
}

impl GateWord {
    /// Every gate.
    pub const ALL: [Self; 8] = [
        Self::Protected,
        Self::Prune,
        Self::Dependents,
        Self::Freeze,
        Self::Pin,
        Self::Suspend,
        Self::Rollout,
        Self::Bind,
    ];

    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Prune => "prune",
            Self::Dependents => "dependents",
            Self::Freeze => "freeze",
            Self::Pin => "pin",
            Self::Suspend => "suspend",
            Self::Rollout => "rollout",
            Self::Bind => "bind",
        }
    }

    /// The gate that a stored word names.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| gate.as_str() == word)
    }
}

impl std::fmt::Display for GateWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a machine does not go yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// What keeps it.
    pub gate: GateWord,
    /// Which one: a brake's name (`freeze/year-end`, `pool/h100`), a rollout, or what it waits for in words.
    pub by: String,
    /// When that ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
}

/// A freeze, a pin or a suspension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanBrake {
    /// Which of the three.
    pub kind: GateWord,
    /// Its name: `freeze/year-end`, or the object that is pinned or suspended.
    pub name: String,
    /// What it covers; absent for the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<ObjectRef>>,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Whether it holds now.
    pub active: bool,
    /// This commit ends or narrows it: what the commit itself changes waits for the next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// When it ends for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// When it begins or lets go next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next: Option<Timestamp>,
    /// Where it is written, as `file:line`; absent when somebody said it to the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The machines that it covers.
    pub machines: usize,
    /// The machines that it holds now and that go when it ends, by how hard that is for them.
    pub returns: BTreeMap<EffectClass, usize>,
}

/// What goes only as it was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bind {
    /// From this class on.
    pub class: EffectClass,
    /// The plan that was shown and that the commit names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Digest>,
    /// Machines that wait for it: no plan is named that shows them like this.
    pub held: usize,
    /// The trailer that names this plan in a merge, for when it has such machines.
    pub trailer: String,
}

/// Something that does not go with the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// What is held.
    pub objects: Vec<ObjectRef>,
    /// What it waits for.
    pub wait: Wait,
}

/// What something waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "for")]
pub enum Wait {
    /// One revision removes more objects than `prune { max-objects }` allows.
    PruneObjects {
        /// How many may go.
        limit: u32,
        /// How many should go.
        asked: usize,
    },
    /// One revision removes more machines' documents than `prune { max-nodes-percent }` allows.
    PruneNodes {
        /// The share that may go, in percent.
        limit: u8,
        /// How many should go.
        asked: usize,
        /// How many machines there are.
        of: usize,
    },
    /// Something that stays still needs it.
    Dependents {
        /// What needs it: objects, or machines as `node/NAME`. At most ten are named.
        needed_by: Vec<ObjectRef>,
        /// How many there are.
        count: usize,
    },
    /// The object in force is protected; a commit of its own lifts that first.
    Protected {
        /// Why it is protected.
        reason: String,
    },
    /// A freeze, a pin or a suspension covers it.
    Brake {
        /// What holds.
        gate: GateWord,
        /// The brake's name: `freeze/year-end`, `pool/h100`.
        by: String,
        /// Its reason.
        reason: String,
        /// When it lets go by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        until: Option<Timestamp>,
    },
}

impl Wait {
    /// The gate.
    #[must_use]
    pub const fn gate(&self) -> GateWord {
        match self {
            Self::PruneObjects { .. } | Self::PruneNodes { .. } => GateWord::Prune,
            Self::Dependents { .. } => GateWord::Dependents,
            Self::Protected { .. } => GateWord::Protected,
            Self::Brake { gate, .. } => *gate,
        }
    }
}

/// How many of the machines a share allows: rounded down, but one at least, or a small fleet could lose none.
pub(in crate::plan) fn share_of(percent: u8, machines: usize) -> usize {
    let share = machines / 100 * usize::from(percent) + machines % 100 * usize::from(percent) / 100;
    share.max(usize::from(percent > 0))
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PruneObjects { limit, asked } => {
                write!(
                    f,
                    "{asked} objects would go and fleet.prune.max-objects allows {limit}; remove fewer at a time or raise the limit"
                )
            }
            Self::PruneNodes { limit, asked, of } => {
                let most = share_of(*limit, *of);
                write!(
                    f,
                    "{asked} of {of} machines would lose their document and fleet.prune.max-nodes-percent allows {most} ({limit}%); remove fewer at a time or raise the limit"
                )
            }
            Self::Dependents { needed_by, count } => {
                let names: Vec<String> = needed_by.iter().take(3).map(ToString::to_string).collect();
                let more = count.saturating_sub(names.len());
                write!(f, "{} still need{} it", names.join(", "), if *count == 1 { "s" } else { "" })?;
                if more > 0 { write!(f, " (and {more} more)") } else { Ok(()) }
            }
            Self::Protected { reason } => {
                write!(
                    f,
                    "it is protected ({reason}); a commit of its own that declares it without `protect` lifts that first"
                )
            }
            Self::Brake { gate, by, reason, until } => {
                write!(f, "{gate} {by} holds it ({reason})")?;
                until.map_or(Ok(()), |until| write!(f, " until {}", Moment(until)))
            }
        }
    }
}
