//! `cordon` and `uncordon`: keep new work away from a machine by hand, and let it come again.

use clap::Args;
use schema::time::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    owner::owner,
    suspend::{end, replaced},
    token::once,
};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, text::printable},
};

const CORDON_EXAMPLES: &str = "\
Examples:
  better-compute cordon fra1-r12-u04 --reason \"GPU 3 falls off the bus\"
  better-compute cordon fra1-r12-u04 --reason \"fan\" --owner ada --until 2d
  better-compute uncordon fra1-r12-u04

A cordon keeps work away, not changes: `suspend` and a pin do that. It can also stand in the machine's document.";

const UNCORDON_EXAMPLES: &str = "\
Examples:
  better-compute uncordon fra1-r12-u04
  better-compute holds                        who cordons what, and why";

/// Keep new work away from a machine.
///
/// Nothing new is placed on the machine until the cordon ends or is lifted with `uncordon`. What runs on it runs on, and
/// changes of the fleet reach it as always.
#[derive(Debug, Args)]
#[command(after_help = CORDON_EXAMPLES)]
pub struct Cordon {
    /// The machine, by name or id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who answers for it [default: you, or the name of the token]
    #[arg(long, value_name = "WHO")]
    pub owner: Option<String>,
    /// When it ends by itself: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    pub until: Option<String>,
    /// Also when somebody else cordons it by hand; theirs is over then
    #[arg(long)]
    pub replace: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// Let new work come to a machine again.
///
/// Lifts a cordon that was placed with `cordon`. One that stands in a document is lifted by a commit.
#[derive(Debug, Args)]
#[command(after_help = UNCORDON_EXAMPLES)]
pub struct Uncordon {
    /// The machine, by name or id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Cordon {
    /// Does it.
    ///
    /// # Errors
    /// When the end is no time, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let until: Option<Timestamp> = self.until.as_deref().map(|text| end(text, output.now)).transpose()?;
        let client = Client::new(&self.target)?;
        let node = name(&self.node);
        let mut input = Map::new();
        for (key, value) in [
            ("node", Some(node.to_owned())),
            ("reason", Some(self.reason.clone())),
            ("owner", owner(self.owner.as_ref(), &client)),
            ("until", until.map(|until| until.to_string())),
            ("idempotencyKey", Some(once())),
        ] {
            input.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        if self.replace {
            input.insert("replace".to_owned(), true.into());
        }
        let done = client.call("nodes.cordon", &Value::Object(input)).await?;
        if output.is_json() {
            output.json(&done)?;
        } else {
            let end = until.map_or_else(
                || format!("until `better-compute uncordon {}`", printable(node)),
                |until| format!("until {until}, {}", output.ago(until)),
            );
            output.line(format!("{} gets no new work {end}", printable(node)))?;
            replaced(&done, output)?;
        }
        Ok(Exit::Ok)
    }
}

impl Uncordon {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let node = name(&self.node);
        let input = json!({ "node": node, "idempotencyKey": once() });
        let done = Client::new(&self.target)?.call("nodes.uncordon", &input).await?;
        if output.is_json() {
            output.json(&done)?;
        } else {
            output.line(format!("{} gets work again", printable(node)))?;
        }
        Ok(Exit::Ok)
    }
}

/// A machine's name: its address says the same.
fn name(text: &str) -> &str {
    text.strip_prefix("node/").unwrap_or(text)
}
