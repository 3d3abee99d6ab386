//! `node`: what a person decides about one machine.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::token::once;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute node adopt fra1-r12-u04                check it again, and adopt it when that passes
  better-compute node rebind fra1-r12-u04               its board was replaced, its disk was not
  better-compute node rebind fra1-r12-u04 --join join_01k9…   the machine that waits there is this node
  better-compute node revoke fra1-r12-u04 --reason 'disk lost'
  better-compute node delete fra1-r12-u04";

/// Decide about one machine: adopt, rebind, revoke, delete.
///
/// What a machine should be stands in the fleet repository. This is for what only a person can know: that a machine is fit,
/// that its board was replaced, that its disk was stolen, that it is gone.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Node {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be decided.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Check a machine again that failed the checks of its pool, or take it as it is
    Adopt {
        /// The node, by name or id
        #[arg(value_name = "NODE")]
        node: String,
        /// Adopt it whatever the checks say
        #[arg(long)]
        skip_checks: bool,
    },
    /// Move a node to other hardware: its own machine after a repair, or a machine that waits to join
    Rebind {
        /// The node, by name or id
        #[arg(value_name = "NODE")]
        node: String,
        /// The join of the machine that is the node from now on; its old identity ends
        #[arg(long, value_name = "JOIN")]
        join: Option<String>,
    },
    /// End a node's identity at once; a token with --reclaim lets a machine come in for it again
    Revoke {
        /// The node, by name or id
        #[arg(value_name = "NODE")]
        node: String,
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Forget a machine that is gone
    Delete {
        /// The node, by name or id
        #[arg(value_name = "NODE")]
        node: String,
        /// Also while it is connected
        #[arg(long)]
        force: bool,
    },
}

impl Node {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let (method, mut input, said) = self.verb.call();
        input.insert("idempotencyKey".to_owned(), once().into());
        let done = client.call(method, &Value::Object(input)).await?;
        if output.is_json() {
            output.json(&done)?;
        } else {
            output.line(said)?;
            if let Self { verb: Verb::Revoke { .. }, .. } = self {
                output.line(way_back(&done))?;
            }
        }
        Ok(Exit::Ok)
    }
}

impl Verb {
    /// The method, its input, and what is said once it is done.
    fn call(&self) -> (&'static str, Map<String, Value>, String) {
        let object = |value: Value| match value {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        match self {
            Self::Adopt { node, skip_checks } => {
                let said = if *skip_checks { "is adopted" } else { "is checked and adopted when it passes" };
                let input = json!({ "node": node, "skipChecks": skip_checks });
                ("nodes.adopt", object(input), format!("{node} {said}"))
            }
            Self::Rebind { node, join: None } => {
                ("nodes.rebind", object(json!({ "node": node })), format!("{node} is known by its present hardware"))
            }
            Self::Rebind { node, join: Some(join) } => {
                let said = format!("the machine of {join} becomes {node} at its next try");
                ("nodes.rebind", object(json!({ "node": node, "join": join })), said)
            }
            Self::Revoke { node, reason } => {
                let said = format!("the identity of {node} is over");
                ("nodes.revokeIdentity", object(json!({ "node": node, "reason": reason })), said)
            }
            Self::Delete { node, force } => {
                ("nodes.delete", object(json!({ "node": node, "force": force })), format!("{node} is forgotten"))
            }
        }
    }
}

/// Which token lets a machine come in again for a node whose identity was revoked: any other one is held as a copy.
fn way_back(node: &Value) -> String {
    let pool = node.get("pool").and_then(Value::as_str).unwrap_or("POOL");
    format!("`better-compute token create --pool {pool} --reclaim` lets its machine, or another one, come in for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_that_lets_a_revoked_node_come_back_is_named() {
        assert!(way_back(&json!({ "pool": "h100" })).contains("token create --pool h100 --reclaim`"));
        let verb = Verb::Revoke { node: "gpu-1".to_owned(), reason: "sold".to_owned() };
        assert!(!verb.call().2.contains("a token lets it"));
    }
}
