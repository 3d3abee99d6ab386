//! `suspend` and `resume`: a part of the fleet that stands still until somebody, or a time, lets it go on.

use clap::Args;

use super::hold::{Hold, Subject, lift};
use crate::{
    args::FormatArg,
    client::Target,
    exit::{Exit, Failure},
    output::Output,
};

const SUSPEND_EXAMPLES: &str = "\
Examples:
  better-compute suspend pool/h100 --reason \"benchmark runs\" --until 4h
  better-compute suspend site/fra1 --reason \"power works\" --owner ada --until 2026-12-01T06:00:00Z
  better-compute suspend fleet --reason \"something is wrong\"
  better-compute resume pool/h100

What waits meanwhile is in every plan; it goes when the suspension ends. A suspension can also stand in a document.";

const RESUME_EXAMPLES: &str = "\
Examples:
  better-compute resume pool/h100
  better-compute holds                        what is suspended, by whom and why";

/// Let a part of the fleet stand still.
///
/// No machine in it is told anything new until the suspension ends or is lifted with `resume`. Commits come into force
/// meanwhile, and what they mean for these machines waits.
#[derive(Debug, Args)]
#[command(after_help = SUSPEND_EXAMPLES)]
pub struct Suspend {
    /// `fleet`, or a site, pool or node as KIND/NAME
    #[arg(value_name = "SCOPE")]
    pub scope: String,
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

/// Let a part of the fleet go on.
///
/// Lifts a suspension that was made with `suspend`. One that stands in a document is lifted by a commit.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct Resume {
    /// `fleet`, or a site, pool or node as KIND/NAME
    #[arg(value_name = "SCOPE")]
    pub scope: String,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Suspend {
    /// Does it.
    ///
    /// # Errors
    /// When the end is no time, or the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let subject = Subject { method: "fleet.suspend", key: "scope", name: &self.scope, says: "stands still" };
        self.hold.place(&subject, "resume", &self.target, output).await
    }
}

impl Resume {
    /// Does it.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let subject = Subject { method: "fleet.resume", key: "scope", name: &self.scope, says: "goes on" };
        lift(&subject, &self.target, output).await
    }
}
