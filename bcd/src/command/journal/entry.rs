//! What the journal knows of one command.

use schema::{
    command::{CommandUpdate, KindRow, Reason, UpdateState, kind::UNKNOWN_KIND_TIMEOUT},
    digest::Digest,
    id::{BootId, CommandId},
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};

use super::JournalError;
use crate::command::quorum::Permitted;

/// How long after the last moment at which a command may run somebody may still ask about it.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// One command, without its body and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Which command.
    pub id: CommandId,
    /// Its number on this node.
    pub seq: u64,
    /// The word of its kind, known here or not.
    pub kind: String,
    /// Past this it does not begin.
    pub not_after: Timestamp,
    /// Digest of the exact bytes that were signed.
    pub body: Digest,
    /// Digest of the signature that was checked.
    pub signature: Digest,
    /// When it came.
    pub at: Timestamp,
    /// The boot that it came in.
    pub boot_id: BootId,
    /// By what people it was permitted, when somebody had to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permitted: Option<Permitted>,
    /// Each time that it began. More than once only when its kind is safe to run again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Ran>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// Size of body and result.
    pub bytes: u64,
}

/// One run of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ran {
    /// When it began.
    pub at: Timestamp,
    /// What it was about to do to the machine, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Happened>,
}

/// Something that a command was about to do to the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Happened {
    /// What.
    pub name: String,
    /// When.
    pub at: Timestamp,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// Succeeded, failed, rejected or cancelled.
    pub state: UpdateState,
    /// Why, unless it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When.
    pub at: Timestamp,
    /// The approvals that it was refused for, when that is why: the digest of their bytes. Others may be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Digest>,
}

/// What the node said about a command that has ended: the exact bytes, and its signature over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The update.
    pub update: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

impl Ended {
    /// The end that an update says.
    #[must_use]
    pub fn of(update: &CommandUpdate, at: Timestamp) -> Self {
        Self { state: update.state, reason: update.reason.clone(), at, approvals: update.approvals }
    }
}

impl Stored {
    pub(super) fn size(&self) -> usize {
        self.update.len() + self.signature.len()
    }
}

impl Entry {
    /// How its kind has to be treated; `None` when this version does not know it.
    #[must_use]
    pub fn row(&self) -> Option<&'static KindRow> {
        self.kind.parse().ok().map(schema::command::CommandKind::row)
    }

    /// The approvals that it was refused for, when it ended so.
    #[must_use]
    pub fn refused_approvals(&self) -> Option<Digest> {
        self.ended.as_ref().and_then(|ended| ended.approvals).filter(|_| self.runs.is_empty())
    }

    /// Everything that it was about to do, in all runs.
    pub fn effects(&self) -> impl Iterator<Item = &Happened> {
        self.runs.iter().flat_map(|run| &run.effects)
    }

    /// From here on nobody asks about it any more.
    #[must_use]
    pub fn forgettable_at(&self) -> Timestamp {
        REMEMBERED.after(self.over_at())
    }

    /// From here on it can neither begin nor be waited for: whoever sends it again gets no other answer than that.
    #[must_use]
    pub fn over_at(&self) -> Timestamp {
        self.timeout().after(self.not_after)
    }

    /// How long it may run.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.row().map_or(UNKNOWN_KIND_TIMEOUT, |row| row.timeout)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an entry serialises")
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, JournalError> {
        serde_json::from_slice(bytes).map_err(|error| JournalError::Broken(error.to_string()))
    }
}
