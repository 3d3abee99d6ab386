//! Commands: one-shot work for one node, in order, with a deadline, settled once.
//!
//! ```text
//! enqueue ─▶ pending ── sign ──▶ pending, signed ── claim ──▶ dispatched ── progress ──▶ acked, running
//!                ▲                                               │ busy, release               │
//!                └───────────────────────────────────────────────┘                             ▼
//!                  cancel, sweep ──▶ cancelled, expired, failed        settle ──▶ succeeded, failed, rejected, cancelled
//! ```
//!
//! | module | what it does | who calls it |
//! |---|---|---|
//! | [`enqueue`] | one row, one number, one body | whoever wants something done, in its own transaction |
//! | [`sign`] | what is signed, and what waits for it | the `command` reconciler; the API right after its commit |
//! | `dispatch` | claim, progress, release | gateways |
//! | [`resume`] | what a reconnect replays, and what it proves | gateways; the `command` reconciler |
//! | [`approve`] | what waits for people, and the proof that they agreed | the `batch` reconciler; the API |
//! | [`updates`] | last words as nodes signed them, unread | gateways put down, the `command` reconciler takes |
//! | [`settle`] | every way in which a command ends | the `command` reconciler, the sweeper, the API |
//! | `read` | one command, pages of them | everybody |
//!
//! Whoever locks several rows locks nodes before sessions and boots before commands before work rows, and commands in the order
//! of their ids.

mod approval;
mod dispatch;
mod enqueue;
mod read;
mod resume;
mod settle;
mod sign;
mod updates;

use schema::{
    command::{CommandKind, CommandState, Lane},
    generation::{Epoch, Generation},
    id::{BatchId, BootId, CommandId, JournalId, NodeId},
    name::Name,
    time::Timestamp,
};

use crate::{DbError, convert};

pub use approval::{approval_of, approve, hold, send_again, sent_approval};
pub use dispatch::{Claim, Dispatch, Progress, Step, claim, in_flight, progress, release};
pub use enqueue::{EnqueueError, Enqueued, NewCommand, enqueue, enqueue_to_sign, may_enqueue};
pub use read::{Filter, ahead, count_open, evidence, find, find_by_key, find_many, list};
pub use resume::{Back, Proved, Resume, binds, on_reconnect, proved, resume, resume_all, witness};
pub use settle::{
    Ending, Evidence, Settled, Swept, cancel, end_open_of, is_sweep_due, lock, lock_all, prune, record_late, settle,
    sweep,
};
pub use sign::{
    Journal, Marked, OpenSigned, Queued, Signed, Unsigned, journals, mark_anew, marked, sent, sign, sign_alone,
    signed_open, unsigned, withheld, withhold,
};
pub use updates::{RawUpdate, StoredUpdate, UPDATES_AT_ONCE, remove_updates, store_updates, updates};

/// One command.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Its id.
    pub id: CommandId,
    /// For which node.
    pub node_id: NodeId,
    /// The node's name; `None` when it is gone.
    pub node: Option<Name>,
    /// Counts the node's commands.
    pub seq: u64,
    /// The word of its kind, known to this version or not.
    pub kind: String,
    /// What it shares its workers with.
    pub lane: Lane,
    /// What it is told, canonical JSON.
    pub payload: String,
    /// The key under which it was queued, unique per node.
    pub idempotency_key: String,
    /// Where it is.
    pub state: CommandState,
    /// Why it ended so, a stable word.
    pub reason: Option<String>,
    /// Why it ended so, for people.
    pub message: Option<String>,
    /// Not sent before; `None` while it waits for approvals.
    pub not_before: Option<Timestamp>,
    /// Never begun from here on.
    pub not_after: Timestamp,
    /// What the node must have applied.
    pub min_generation: Option<Generation>,
    /// The destructive batch that it is part of.
    pub batch_id: Option<BatchId>,
    /// When it was last signed.
    pub signed_at: Option<Timestamp>,
    /// The epoch, boot and journal of the session that it was last sent in.
    pub sent_in: Option<SentIn>,
    /// How often the node had no room for it.
    pub busy_count: u32,
    /// Why, the last time; `None` when its lane was full.
    pub busy_reason: Option<String>,
    /// What came out, canonical JSON.
    pub result: Option<String>,
    /// Whether the node's signature is kept with it.
    pub has_evidence: bool,
    /// What the node said after the end.
    pub late: Option<Late>,
    /// When somebody asked to cancel it.
    pub cancel_requested_at: Option<Timestamp>,
    /// Who waits for it, as its key says: `wf:<workflow>`.
    pub owner: Option<String>,
    /// Who queued it.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
    /// When it was last sent.
    pub dispatched_at: Option<Timestamp>,
    /// When the node journaled it.
    pub acked_at: Option<Timestamp>,
    /// When the node began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub settled_at: Option<Timestamp>,
}

impl Command {
    /// Its kind, when this version knows it.
    #[must_use]
    pub fn known_kind(&self) -> Option<CommandKind> {
        self.kind.parse().ok()
    }
}

/// The session that a command was last sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentIn {
    /// The session's epoch.
    pub epoch: Epoch,
    /// The node's boot.
    pub boot_id: BootId,
    /// The node's journal.
    pub journal_id: JournalId,
}

/// What a node said about a command that had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// The state that it named.
    pub state: String,
    /// Its reason.
    pub reason: Option<String>,
    /// When it came.
    pub at: Timestamp,
}

fn seq(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

/// Every kind that this version knows; it sends no other.
fn known_kinds() -> Vec<String> {
    CommandKind::ALL.iter().map(ToString::to_string).collect()
}

fn kind(text: &str) -> Result<CommandKind, DbError> {
    convert::word("command kind", text)
}
