//! `cordon` and `uncordon`: keep new work away from a machine by hand, and let it come again.

use clap::Args;

use super::hold::{Hold, Subject, lift};
use crate::{
    args::FormatArg,
    client::Target,
    exit::{Exit, Failure},
    output::Output,
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
    /// Why, who and until when
    #[command(flatten)]
    pub hold: Hold,
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
        let subject = Subject { method: "nodes.cordon", key: "node", name: name(&self.node), says: "gets no new work" };
        self.hold.place(&subject, "uncordon", &self.target, output).await
    }
}

impl Uncordon {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let subject =
            Subject { method: "nodes.uncordon", key: "node", name: name(&self.node), says: "gets work again" };
        lift(&subject, &self.target, output).await
    }
}

/// A machine's name: its address says the same.
fn name(text: &str) -> &str {
    text.strip_prefix("node/").unwrap_or(text)
}
