//! The body of a command: the exact bytes that a worker signs and a node checks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::CommandKind;
use crate::{
    generation::Generation,
    id::{BatchId, CommandId, JournalId, NodeId},
    time::Timestamp,
};

/// The longest body, in bytes.
pub const MAX_BODY: usize = 256 * 1024;

/// A secret that the node asks for when it runs the command. The body holds no secret value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    /// Its name, `secret://…`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Which version; absent: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// One command to one node. Its canonical JSON is what is signed, stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandBody {
    /// Which command.
    pub id: CommandId,
    /// For which node. Another one refuses it.
    pub node_id: NodeId,
    /// What to do.
    pub kind: CommandKind,
    /// Counts this node's commands.
    pub seq: u64,
    /// What to do it with: canonical, as [`CommandKind::check_payload`] gave it back.
    pub payload: Value,
    /// Past this the node does not begin.
    pub not_after: Timestamp,
    /// What the node must have applied before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_generation: Option<Generation>,
    /// The destructive batch that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The secrets that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRef>,
    /// The journal that it is for: the node refuses it in every other one. Absent: in any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalId>,
}

/// What every version of a body has, so that a node can answer a command that it does not understand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandHead {
    /// Which command.
    pub id: CommandId,
    /// For which node.
    pub node_id: NodeId,
    /// The word of its kind, known here or not.
    pub kind: String,
    /// Counts this node's commands.
    pub seq: u64,
    /// Past this the node does not begin.
    pub not_after: Timestamp,
}

/// Why bytes are not a command that can be run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not a command at all.
    #[error("the bytes are not the body of a command")]
    Malformed,
    /// A command that this version does not understand.
    #[error("a command {} with a body that this version does not understand: {message}", head.kind)]
    Unsupported {
        /// What could be read of it.
        head: Box<CommandHead>,
        /// What was not understood.
        message: String,
    },
}

impl CommandBody {
    /// The bytes to sign.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::canonical::to_vec(self).expect("a body with a checked payload is canonical")
    }

    /// Reads the bytes of a body.
    ///
    /// # Errors
    /// [`BodyError::Unsupported`] when they are a command's, with a kind, a field or a payload that is unknown here.
    pub fn read(bytes: &[u8]) -> Result<Self, BodyError> {
        if bytes.len() > MAX_BODY {
            return Err(BodyError::Malformed);
        }
        let head: CommandHead = serde_json::from_slice(bytes).map_err(|_| BodyError::Malformed)?;
        let unsupported = |message: String| BodyError::Unsupported { head: Box::new(head.clone()), message };
        let body: Self = serde_json::from_slice(bytes).map_err(|error| unsupported(error.to_string()))?;
        body.kind.check_payload(&body.payload).map_err(|error| unsupported(error.to_string()))?;
        Ok(body)
    }

    /// What every version of this body has.
    #[must_use]
    pub fn head(&self) -> CommandHead {
        CommandHead {
            id: self.id,
            node_id: self.node_id,
            kind: self.kind.to_string(),
            seq: self.seq,
            not_after: self.not_after,
        }
    }
}
