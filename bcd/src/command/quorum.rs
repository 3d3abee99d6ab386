//! The step at which a node asks for people's approval of destructive work.
//!
//! Its place in the order is fixed, and what it checks follows from the trust policy that this node believes. It is asked
//! twice: when a command is accepted, and in the moment before it begins. A node that was never told of a policy lets go.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pki::{
    batch::{Approval, Authority, Me, Permit, permit},
    trust::policy::Policy,
};
use schema::{
    command::{CommandBody, Refusal},
    digest::Digest,
    generation::IdentityGeneration,
    id::{CommandId, JournalId, NodeId},
    name::Name,
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};

use crate::policies::Policies;

#[cfg(test)]
mod tests;

/// In which time the allowance for commands outside of batches counts.
const HOUR: Duration = Duration::from_secs(3600);

/// A moment, by both clocks of a node. Whoever signs the time of the control plane can move one of them ahead; the other one is
/// the machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The time that the control plane proved.
    pub now: Timestamp,
    /// What the machine's clock says.
    pub wall: Timestamp,
}

impl Clocks {
    /// Whether an hour has passed since then, as both say. A machine's clock that was set back since does not know.
    #[must_use]
    pub fn is_an_hour_after(self, then: Self) -> bool {
        HOUR.after(then.now) <= self.now && (HOUR.after(then.wall) <= self.wall || self.wall < then.wall)
    }
}

/// What this node holds against a destructive command.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// What people agreed on; `None` when nobody ever told this node of a policy.
    pub policies: Option<Arc<Policies>>,
    /// This node's name, as the signed answer to its join says.
    pub name: String,
    /// Which of its identities.
    pub identity_generation: IdentityGeneration,
    /// What it is recognised by; `None` before the machine was looked at.
    pub hardware_key: Option<String>,
    /// What it knows of itself, by the words that preconditions use.
    pub facts: BTreeMap<String, String>,
    /// It was this late once, as far as two words of the control plane agree.
    pub floor: Option<Timestamp>,
    /// Its certificate counts from then on: a clock of this machine that says an earlier time is wrong.
    pub certified: Option<Timestamp>,
}

/// What was used up, as the journal knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// By which command.
    pub uses: BTreeMap<Digest, CommandId>,
    /// When something began outside of batches. What is older than the allowance counts is not in it for ever.
    pub unbatched: Vec<Clocks>,
    /// Since when the journal knows everything; `None` before the time was proven to it.
    pub since: Option<Timestamp>,
}

/// Why what a command costs cannot be paid any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Short {
    /// It may have the name of one that comes again: a journal forgets commands, and whoever signs them may give a name twice.
    #[error("its approval was used by {0}, and counts once")]
    Used(CommandId),
    /// The allowance of this hour is used up.
    #[error("{before} commands ran outside of batches in the last hour, and the trust policy allows {per_hour}")]
    Allowance {
        /// So many began in it.
        before: usize,
        /// So many may.
        per_hour: u32,
    },
}

impl Short {
    /// The code of it.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Used(_) => Refusal::BatchUnapproved,
            Self::Allowance { .. } => Refusal::UnbatchedLimit,
        }
    }
}

impl Spent {
    /// Whether a command that begins at this moment can pay what it costs.
    ///
    /// # Errors
    /// With what is used up.
    pub fn affords(&self, toll: &Toll, at: Clocks) -> Result<(), Short> {
        if let Some(user) = toll.uses().iter().find_map(|used| self.uses.get(used)) {
            return Err(Short::Used(*user));
        }
        if let Toll::Unbatched { per_hour } = *toll {
            let before = self.unbatched.iter().filter(|then| !at.is_an_hour_after(**then)).count();
            if before >= per_hour as usize {
                return Err(Short::Allowance { before, per_hour });
            }
        }
        Ok(())
    }

    /// Takes down that a command paid.
    pub fn pay(&mut self, id: CommandId, toll: &Toll, at: Clocks) {
        self.uses.extend(toll.uses().iter().map(|used| (*used, id)));
        if let Toll::Unbatched { .. } = toll {
            self.unbatched.retain(|then| !at.is_an_hour_after(*then));
            self.unbatched.push(at);
        }
    }
}

/// What the desk and the lanes ask: the same guard, and what was used up.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    guard: Arc<Mutex<Arc<Guard>>>,
    spent: Arc<Mutex<Spent>>,
}

impl Gate {
    /// A gate beside what a journal knows.
    #[must_use]
    pub fn new(spent: Arc<Mutex<Spent>>) -> Self {
        Self { guard: Arc::default(), spent }
    }

    /// The guard as it is.
    #[must_use]
    pub fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the guard for whoever asks from now on.
    pub fn change(&self, change: impl FnOnce(&mut Guard)) {
        change(Arc::make_mut(&mut self.guard.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// What was used up.
    pub fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a destructive command costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toll {
    /// Nothing: it is harmless, or this node knows no policy.
    Free,
    /// What people permitted, once.
    Permit(Permit),
    /// One of the policy's allowance for commands outside of batches.
    Unbatched {
        /// So many in an hour.
        per_hour: u32,
    },
}

impl Toll {
    /// What is used up, once and for all.
    #[must_use]
    pub fn uses(&self) -> &[Digest] {
        match self {
            Self::Permit(permit) => &permit.uses,
            Self::Free | Self::Unbatched { .. } => &[],
        }
    }
}

/// Why a destructive command is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Not now; the same command may be permitted a little later.
    Busy(String),
    /// It is refused.
    No(Refusal, String),
}

/// One look at a command.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The command, whose signature was checked.
    pub body: &'a CommandBody,
    /// What came with it; empty when nothing did.
    pub approval: &'a [u8],
    /// This node.
    pub node: NodeId,
    /// The journal of its commands.
    pub journal: JournalId,
    /// The time that the control plane proved.
    pub now: Option<Timestamp>,
    /// The time that this machine's own clock says.
    pub wall: Timestamp,
    /// Since when the journal knows everything.
    pub since: Option<Timestamp>,
}

/// Whether a destructive command has the approvals that it needs, and what it costs. Whether that was used before,
/// [`Spent::affords`] says.
///
/// # Errors
/// With the refusal and why.
pub fn approved(asked: &Asked<'_>, guard: &Guard) -> Result<Toll, Held> {
    let unapproved = |why: String| Held::No(Refusal::BatchUnapproved, why);
    let Some(policies) = &guard.policies else { return Ok(Toll::Free) };
    if let Some(why) = policies.halted() {
        return Err(unapproved(format!(
            "the trust policy that follows epoch {} cannot be judged here: {why}",
            policies.epoch()
        )));
    }
    if asked.approval.is_empty() {
        return without_approval(asked, policies);
    }
    let approval = Approval::read(asked.approval).map_err(|why| unapproved(why.to_string()))?;
    let now = asked.now.ok_or_else(|| Held::Busy("the time is not proven yet".to_owned()))?;
    let trusted = policies.trusted().ok_or_else(|| Held::Busy("the trust policy has not come yet".to_owned()))?;
    let hardware_key = guard.hardware_key.as_deref();
    let hardware_key = hardware_key.ok_or_else(|| Held::Busy("the machine has not been looked at yet".to_owned()))?;
    let me = Me {
        name: &guard.name,
        node: asked.node,
        identity_generation: guard.identity_generation,
        hardware_key,
        journal: asked.journal,
        facts: &guard.facts,
    };
    let permit = permit(asked.body, &approval, &me, &trusted, now).map_err(|denied| {
        if denied.may_pass() { Held::Busy(denied.to_string()) } else { unapproved(denied.to_string()) }
    })?;
    in_its_time(&permit, asked.wall, guard)?;
    // An emergency binds no journal, so whatever was called before this one began may have been used in the one before.
    if let Authority::Breakglass { .. } = permit.by
        && asked.since.is_none_or(|since| permit.from < since)
    {
        return Err(unapproved("the emergency was called before this node's journal of commands began".to_owned()));
    }
    Ok(Toll::Permit(permit))
}

/// A control plane that lies about the time meets this machine's own clocks.
fn in_its_time(permit: &Permit, wall: Timestamp, guard: &Guard) -> Result<(), Held> {
    let Permit { from, until, .. } = permit;
    if let Some(late) = [Some(wall), guard.floor].into_iter().flatten().find(|late| late > until) {
        let why = format!("its approvals counted until {until}, and by a clock of this machine it is {late}");
        return Err(Held::No(Refusal::BatchUnapproved, why));
    }
    if wall < *from && guard.certified.is_none_or(|certified| wall >= certified) {
        return Err(Held::Busy(format!("it was approved from {from} on, and by this machine's clock it is {wall}")));
    }
    Ok(())
}

fn without_approval(asked: &Asked<'_>, policies: &Policies) -> Result<Toll, Held> {
    let per_hour = policies.present().map_or(0, Policy::unbatched_destructive_per_hour);
    if per_hour == 0 || asked.body.batch.is_some() {
        let kind = asked.body.kind;
        let why = format!("{kind} is destructive, and it comes without a batch that people approved");
        return Err(Held::No(Refusal::BatchUnapproved, why));
    }
    if asked.now.is_none() {
        return Err(Held::Busy("the time is not proven yet".to_owned()));
    }
    Ok(Toll::Unbatched { per_hour })
}

/// By what a destructive command was permitted, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "by")]
pub enum Permitted {
    /// A batch.
    Batch {
        /// Its name.
        batch: Name,
        /// Its digest.
        digest: Digest,
        /// Which leaf of it.
        index: u32,
        /// Its tier.
        tier: Name,
        /// Who approved it.
        people: Vec<Name>,
    },
    /// An emergency.
    Breakglass {
        /// Why.
        reason: String,
        /// Who called it.
        people: Vec<Name>,
    },
    /// The policy's allowance for commands outside of batches.
    Unbatched,
}

impl Permitted {
    /// What a toll says; `None` when nothing had to be permitted.
    #[must_use]
    pub fn of(toll: &Toll) -> Option<Self> {
        match toll {
            Toll::Free => None,
            Toll::Unbatched { .. } => Some(Self::Unbatched),
            Toll::Permit(Permit { by, people, .. }) => {
                let people = people.iter().cloned().collect();
                Some(match by {
                    Authority::Batch { name, digest, index, tier } => {
                        Self::Batch { batch: name.clone(), digest: *digest, index: *index, tier: tier.clone(), people }
                    }
                    Authority::Breakglass { reason } => Self::Breakglass { reason: reason.clone(), people },
                })
            }
        }
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let list = |people: &[Name]| people.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        match self {
            Self::Batch { batch, index, tier, people, .. } => {
                format!("approved in batch/{batch} (tier {tier}, leaf {index}) by {}", list(people))
            }
            Self::Breakglass { reason, people } => format!("break-glass by {}: {reason}", list(people)),
            Self::Unbatched => "within the trust policy's allowance for commands outside of batches".to_owned(),
        }
    }
}
