//! Batches of destructive commands: what was asked for, for which machines, and how far it is.
//!
//! ```text
//! put ─▶ proposed ── approved by people ──▶ approved ── first command ──▶ dispatching ──▶ done
//!           │                                  │                             │
//!           └──▶ rejected, void, expired, cancelled ◀────────────────────────┘ (what has begun ends by itself)
//! ```
//!
//! Names are used once. What is here is a copy for the control plane to work with: no machine does anything because of it.

mod asks;
mod ends;
mod leaves;
mod machines;
mod marks;
mod plan_commits;
pub mod proposals;
mod read;
mod write;

use schema::{
    digest::Digest,
    id::{BatchId, CommandId, NodeId},
    name::Name,
    time::Timestamp,
};

pub use asks::{Ask, NewAsk, asks, set_asks};
pub use ends::{Ended, ended, ended_among};
pub use leaves::{count_leaves, leaves, set_leaf, some_leaves, wake_of_commands};
pub use machines::{InPool, Machine, in_hand, keep_identity, machine_of, machines, named, signed_identity};
pub use marks::mark_anew;
pub use plan_commits::{keep_plans, plan, plans_to_keep};
pub use read::{Filter, find, find_by_id, find_for_update, in_force, list, list_open, open_names, to_review};
pub use write::{By, Put, close, heard, move_to, put, trust_changed, wake};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stored text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| UnknownWord(text.chars().take(80).collect()))
            }
        }
    };
}

/// A word that is none of its set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no word of a batch")]
pub struct UnknownWord(String);

words! {
    /// Where a batch is.
    BatchState {
        /// It waits for approvals.
        Proposed = "proposed",
        /// People agreed, or nobody has to; nothing of it was sent yet.
        Approved = "approved",
        /// Some of it was sent.
        Dispatching = "dispatching",
        /// Every machine came to an end.
        Done = "done",
        /// Its time passed.
        Expired = "expired",
        /// What people would approve does not hold any more.
        Void = "void",
        /// Somebody rejected it.
        Rejected = "rejected",
        /// Somebody took it back, or it stopped after failures.
        Cancelled = "cancelled",
    }
}

words! {
    /// Where one machine of a batch is.
    LeafState {
        /// Nothing was sent.
        Waiting = "waiting",
        /// Its command was sent, and has not ended.
        Sent = "sent",
        /// Done.
        Succeeded = "succeeded",
        /// It ended otherwise.
        Failed = "failed",
        /// It never began, and never will.
        Left = "left",
    }
}

words! {
    /// Where a batch comes from.
    Origin {
        /// A document of the verified branch.
        Document = "document",
        /// A proposal that a service pushed.
        Proposal = "proposal",
        /// A call of the API, where nobody has to approve.
        Api = "api",
        /// An emergency.
        Breakglass = "breakglass",
    }
}

impl Batch {
    /// Whether a caller asked for it, and the commit that people approve is not there yet.
    #[must_use]
    pub fn waits_for_commit(&self) -> bool {
        self.new.origin == Origin::Proposal && self.new.plan.is_none() && self.state == BatchState::Proposed
    }
}

impl BatchState {
    /// Whether nothing of it begins any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Proposed | Self::Approved | Self::Dispatching)
    }
}

impl LeafState {
    /// Whether it has come to an end.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Waiting | Self::Sent)
    }
}

/// What people sign the digest of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The header's bytes.
    pub header: Vec<u8>,
    /// The digest of the batch.
    pub digest: Digest,
    /// The class of destructive work.
    pub tier: Name,
    /// The epoch of the policy under which it is approved.
    pub trust_epoch: u64,
}

/// A batch as it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBatch {
    /// Its name.
    pub name: Name,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether people have to approve.
    pub quorum: bool,
    /// What is done, the word of a kind.
    pub kind: String,
    /// Its document, canonical JSON.
    pub doc: String,
    /// Where that is written.
    pub place: Option<String>,
    /// Why it is asked for.
    pub why: String,
    /// The commit that introduced its text, and that commit's tree.
    pub plan: Option<(String, String)>,
    /// What people sign; `None` where nobody has to.
    pub signed: Option<Signed>,
    /// Who proposes it.
    pub proposer: Option<String>,
    /// Break-glass statements, as they came.
    pub evidence: Option<Vec<u8>>,
    /// Who wrote it down.
    pub created_by: String,
    /// Nothing of it begins before.
    pub not_before: Timestamp,
    /// Nothing of it begins from here on.
    pub expires: Timestamp,
    /// Machines at a time.
    pub max_in_flight: u32,
    /// Failures after which it goes on.
    pub max_failures: u32,
    /// The label whose values are failure domains.
    pub spread: Option<String>,
}

/// One machine of a batch as it is asked for; its place in the list is its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLeaf {
    /// The machine.
    pub node_id: NodeId,
    /// Its name.
    pub node: Name,
    /// The leaf's bytes; `None` where nobody has to approve.
    pub leaf: Option<Vec<u8>>,
    /// What its command is told, canonical JSON.
    pub payload: String,
}

/// A stored batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Its id.
    pub id: BatchId,
    /// What was asked for.
    pub new: NewBatch,
    /// The digest of its document.
    pub document: Digest,
    /// Where it is.
    pub state: BatchState,
    /// Why, a stable word.
    pub reason: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
    /// How many machines it has.
    pub leaves: u32,
    /// When it was first written down.
    pub created_at: Timestamp,
    /// When its machines were last resolved.
    pub resolved_at: Timestamp,
    /// When people's approvals were enough.
    pub decided_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Of an emergency: who looked at it afterwards.
    pub closed: Option<Closed>,
    /// The tag of whoever put it down; without a good one the rows are no batch. One that has ended has none.
    pub mark: Option<Vec<u8>>,
}

/// Who looked at an emergency afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// What they found.
    pub note: String,
}

/// A stored machine of a batch, with what is known of the machine now.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Its place.
    pub index: u32,
    /// The machine.
    pub node_id: NodeId,
    /// Its name when the batch was resolved.
    pub node: Name,
    /// The leaf's bytes.
    pub leaf: Option<Vec<u8>>,
    /// What its command is told, canonical JSON.
    pub payload: String,
    /// Where it is.
    pub state: LeafState,
    /// Why, a stable word.
    pub reason: Option<String>,
    /// Its command.
    pub command: Option<CommandId>,
    /// Counts its commands.
    pub attempt: u32,
    /// When its command was sent.
    pub began_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The machine; `None` when it is gone.
    pub machine: Option<Machine>,
    /// Where its command is, and why.
    pub command_state: Option<(String, Option<String>)>,
    /// Its command was handed to a gateway, which may say whatever it likes about where that went.
    pub handed_over: bool,
    /// Its machine signed a last word with no result, and nobody heard that it had begun.
    pub unbegun: bool,
}

fn time(column: jiff_sqlx::Timestamp) -> Timestamp {
    column.to_jiff()
}
