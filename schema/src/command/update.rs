//! What a node says about a command. The last word is signed with the node's own key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    refusal::Reason,
    state::{CommandEvent, CommandState},
};
use crate::{
    canonical,
    digest::Digest,
    id::{BootId, CommandId, JournalId, NodeId},
    node::words,
};

/// The longest message, in bytes.
pub const MAX_MESSAGE: usize = 4 * 1024;
/// The longest result, in bytes of its canonical JSON.
pub const MAX_RESULT: usize = 256 * 1024;
/// The longest update, in bytes.
pub const MAX_UPDATE: usize = MAX_RESULT + 4 * MAX_MESSAGE;

words! {
    /// What a node says about a command.
    UpdateState {
        /// It is in the journal.
        Acked = "acked",
        /// It began.
        Running = "running",
        /// No room in the lane: send it again later.
        Busy = "busy",
        /// Done.
        Succeeded = "succeeded",
        /// Not done, or done and found wanting.
        Failed = "failed",
        /// Refused.
        Rejected = "rejected",
        /// Stopped because somebody cancelled it.
        Cancelled = "cancelled",
    }
}

impl UpdateState {
    /// Whether it is the node's last word, which is signed.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Rejected | Self::Cancelled)
    }

    /// What it does to the command.
    #[must_use]
    pub const fn event(self) -> CommandEvent {
        match self {
            Self::Acked => CommandEvent::Ack,
            Self::Running => CommandEvent::Start,
            Self::Busy => CommandEvent::Busy,
            Self::Succeeded => CommandEvent::Succeed,
            Self::Failed => CommandEvent::Fail,
            Self::Rejected => CommandEvent::Reject,
            Self::Cancelled => CommandEvent::Cancel,
        }
    }

    /// The state that the command has afterwards.
    #[must_use]
    pub const fn state(self) -> CommandState {
        match self {
            Self::Acked => CommandState::Acked,
            Self::Running => CommandState::Running,
            Self::Busy => CommandState::Pending,
            Self::Succeeded => CommandState::Succeeded,
            Self::Failed => CommandState::Failed,
            Self::Rejected => CommandState::Rejected,
            Self::Cancelled => CommandState::Cancelled,
        }
    }
}

/// What a node says about one command. Its canonical JSON is what travels, and what is signed when it is the last word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandUpdate {
    /// Which command.
    pub command: CommandId,
    /// Who says it.
    pub node_id: NodeId,
    /// What.
    pub state: UpdateState,
    /// Why it ended so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why it ended so, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What came out, as the kind's result type has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The digest of the result's canonical bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
    /// Which copy of the command was refused, when its signature did not count: the digest of its body and signature.
    /// Another copy of the same command may be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Digest>,
    /// Which approvals were refused, when those that came with it were not enough: the digest of their bytes. Something on the way
    /// may have spoilt them, and others may be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Digest>,
    /// The life of the journal that knows it.
    pub journal_id: JournalId,
    /// The boot that it was said in.
    pub boot_id: BootId,
}

/// Why bytes are not an update.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Not an update at all.
    #[error("the bytes are not an update of a command: {0}")]
    Malformed(String),
    /// A part is longer than it may be.
    #[error("the {0} of the update is too long")]
    TooLong(&'static str),
    /// The digest is another's, or missing beside a result.
    #[error("the digest in the update is not the result's")]
    Digest,
    /// It ended badly and says no reason.
    #[error("the update says no reason")]
    NoReason,
}

impl CommandUpdate {
    /// An update that says no more than a state.
    #[must_use]
    pub const fn new(
        command: CommandId,
        node_id: NodeId,
        state: UpdateState,
        journal_id: JournalId,
        boot_id: BootId,
    ) -> Self {
        Self {
            command,
            node_id,
            state,
            reason: None,
            message: None,
            result: None,
            result_digest: None,
            copy: None,
            approvals: None,
            journal_id,
            boot_id,
        }
    }

    /// With a reason, and a message that is cut to its length.
    #[must_use]
    pub fn because(mut self, reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        let message = cut(message.into());
        self.message = (!message.is_empty()).then_some(message);
        self
    }

    /// With a result and its digest. A result that is too long or has no canonical form is left out, and the message says so.
    #[must_use]
    pub fn with_result(mut self, result: Value) -> Self {
        match canonical::to_vec(&result) {
            Ok(bytes) if bytes.len() <= MAX_RESULT => {
                self.result_digest = Some(Digest::of(&bytes));
                self.result = Some(result);
            }
            Ok(bytes) => self.note(&format!("the result of {} bytes is too long to report", bytes.len())),
            Err(error) => self.note(&format!("the result cannot be reported: {error}")),
        }
        self
    }

    fn note(&mut self, note: &str) {
        let message = self.message.take().map_or_else(|| note.to_owned(), |message| format!("{note}; {message}"));
        self.message = Some(cut(message));
    }

    /// The bytes that travel and are signed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("an update holds a canonical result only")
    }

    /// Reads an update and checks what does not need a key: lengths, the result's digest, a reason where one belongs.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, UpdateError> {
        if bytes.len() > MAX_UPDATE {
            return Err(UpdateError::TooLong("whole"));
        }
        let update: Self = serde_json::from_slice(bytes).map_err(|error| UpdateError::Malformed(error.to_string()))?;
        if update.message.as_ref().is_some_and(|message| message.len() > MAX_MESSAGE) {
            return Err(UpdateError::TooLong("message"));
        }
        let digest = match &update.result {
            Some(result) => {
                let bytes = canonical::to_vec(result).map_err(|error| UpdateError::Malformed(error.to_string()))?;
                if bytes.len() > MAX_RESULT {
                    return Err(UpdateError::TooLong("result"));
                }
                Some(Digest::of(bytes))
            }
            None => None,
        };
        if digest != update.result_digest {
            return Err(UpdateError::Digest);
        }
        let needs_reason = matches!(update.state, UpdateState::Failed | UpdateState::Rejected);
        if needs_reason && update.reason.is_none() {
            return Err(UpdateError::NoReason);
        }
        Ok(update)
    }
}

/// The text, cut at a character so that it is no longer than a message may be. NUL has no place in a database text.
fn cut(text: String) -> String {
    let mut text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    if text.len() > MAX_MESSAGE {
        let mut end = MAX_MESSAGE - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
