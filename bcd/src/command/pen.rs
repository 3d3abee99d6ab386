//! How this node words and signs what it says about commands.

use std::sync::Arc;

use pki::{Realm, node_key::NodeKey};
use schema::{
    command::{CommandUpdate, UpdateState},
    id::{BootId, CommandId, JournalId, NodeId},
};

use super::journal::Stored;

/// A node's pen.
#[derive(Debug, Clone)]
pub struct Pen {
    /// This node.
    pub node: NodeId,
    /// Its trust domain and fleet.
    pub realm: Realm,
    /// Its key.
    pub key: Arc<NodeKey>,
    /// Its journal.
    pub journal: JournalId,
    /// Its boot.
    pub boot: BootId,
}

impl Pen {
    /// The beginning of what is said about a command.
    #[must_use]
    pub const fn update(&self, command: CommandId, state: UpdateState) -> CommandUpdate {
        CommandUpdate::new(command, self.node, state, self.journal, self.boot)
    }

    /// The exact bytes of a last word, signed.
    #[must_use]
    pub fn sign(&self, update: &CommandUpdate) -> Stored {
        let update = update.to_bytes();
        let signature = self.key.sign_command_update(&self.realm, self.node, &update);
        Stored { update, signature }
    }
}
