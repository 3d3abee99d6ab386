//! The states of a command.
//!
//! ```text
//! pending ──▶ dispatched ──▶ acked ──▶ running ──▶ succeeded | failed | cancelled
//!    ▲            │  busy                            (reports may skip)
//!    └────────────┘
//! pending ──▶ expired | cancelled        dispatched, acked, running ──▶ rejected
//! ```
//!
//! Terminal is final: nothing moves a settled command, however late it comes.

use crate::node::words;

words! {
    /// Where a command is.
    CommandState {
        /// In the database; no node has it.
        Pending = "pending",
        /// Sent to the node.
        Dispatched = "dispatched",
        /// The node has it in its journal.
        Acked = "acked",
        /// The node does it.
        Running = "running",
        /// Done.
        Succeeded = "succeeded",
        /// Not done, or done and found wanting; the reason says why.
        Failed = "failed",
        /// The node refused it.
        Rejected = "rejected",
        /// It waited past its deadline.
        Expired = "expired",
        /// Taken back before it had an effect, or stopped between two.
        Cancelled = "cancelled",
    }
}

words! {
    /// What moves a command.
    CommandEvent {
        /// A gateway sends it.
        Dispatch = "dispatch",
        /// The node has no room in the lane.
        Busy = "busy",
        /// The node journaled it.
        Ack = "ack",
        /// The node began.
        Start = "start",
        /// The node did it.
        Succeed = "succeed",
        /// The node could not, or the control plane gave up on it.
        Fail = "fail",
        /// The node refused it.
        Reject = "reject",
        /// The deadline passed before it was sent.
        Expire = "expire",
        /// It was taken back: by the control plane while it waits, by the node's word afterwards.
        Cancel = "cancel",
    }
}

/// A move that the table does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a command that is {from} cannot {event}")]
pub struct IllegalCommandMove {
    /// Where the command is.
    pub from: CommandState,
    /// What was asked.
    pub event: CommandEvent,
}

impl CommandState {
    /// Whether nothing moves it any more.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Expired | Self::Cancelled)
    }

    /// Whether a node has it, or may have it.
    #[must_use]
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Dispatched | Self::Acked | Self::Running)
    }

    /// Where `event` leads. What says again what is so already is legal and changes nothing; an acknowledgement that
    /// comes after the start is late, and leaves the state as it is.
    ///
    /// # Errors
    /// [`IllegalCommandMove`] for every pair that the table above does not have.
    pub const fn transition(self, event: CommandEvent) -> Result<Self, IllegalCommandMove> {
        use CommandEvent as E;
        Ok(match (self, event) {
            (Self::Pending, E::Dispatch) => Self::Dispatched,
            (Self::Dispatched, E::Busy) => Self::Pending,
            (Self::Dispatched | Self::Acked, E::Ack) => Self::Acked,
            (Self::Dispatched | Self::Acked | Self::Running, E::Start) | (Self::Running, E::Ack) => Self::Running,
            // A replay on a new session sends what is in flight once more.
            (Self::Dispatched | Self::Acked | Self::Running, E::Dispatch) => self,
            (Self::Dispatched | Self::Acked | Self::Running, E::Succeed) => Self::Succeeded,
            (Self::Dispatched | Self::Acked | Self::Running, E::Fail) => Self::Failed,
            (Self::Dispatched | Self::Acked | Self::Running, E::Reject) => Self::Rejected,
            (Self::Pending, E::Expire) => Self::Expired,
            (Self::Pending | Self::Dispatched | Self::Acked | Self::Running, E::Cancel) => Self::Cancelled,
            (from, event) => return Err(IllegalCommandMove { from, event }),
        })
    }
}
