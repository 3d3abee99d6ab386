//! Commands: one-shot work for one node, with a deadline.
//!
//! | module | what it holds |
//! |---|---|
//! | [`kind`] | the one table of kinds: lane, flags, timeout, payload and result types |
//! | [`lane`] | the three lanes and how much each has in flight |
//! | [`payload`], [`result`] | what each kind is told and what it answers |
//! | [`state`] | the states of a command and the moves between them |
//! | [`refusal`] | why a node does not accept a command, and why one ended as it did |
//! | [`body`] | what a worker signs and a node checks |
//! | [`mod@reference`] | the page for people |
//! | [`update`] | what a node says about a command, and signs when it is the last word |
//!
//! What must hold when a message is lost is desired state ([`crate::spec`]); what does harm when it runs late is a command.

pub mod body;
pub mod kind;
pub mod lane;
pub mod payload;
pub mod reference;
pub mod refusal;
pub mod result;
pub mod state;
pub mod update;

pub use body::{BodyError, CommandBody, CommandHead, SecretRef};
pub use kind::{CommandKind, KINDS, KindRow};
pub use lane::Lane;
pub use payload::PayloadError;
pub use refusal::{Reason, Refusal};
pub use state::{CommandEvent, CommandState, IllegalCommandMove};
pub use update::{CommandUpdate, UpdateError, UpdateState};

/// The word of Hello and Welcome by which each side says that it speaks commands.
pub const COMMANDS_CAPABILITY: &str = "commands";
/// The word of Hello by which a node says that it takes another name with a renewal, and renews when it is asked to.
pub const RENAMES_CAPABILITY: &str = "renames";
/// The word of Hello by which a node says that it asks for people's approval of destructive commands.
pub const APPROVALS_CAPABILITY: &str = "approvals";

#[cfg(test)]
mod tests;
