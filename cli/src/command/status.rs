//! `status`: what is applied, what waits and why, and who has converged; once, over and over, or until something is so.

mod report;
mod wait;

use std::time::Duration as StdDuration;

use clap::Args;
use schema::{clock::SharedClock, time::Duration};
use serde_json::{Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::Output,
};
use report::Report;
pub use wait::Goal;

const EXAMPLES: &str = "\
Examples:
  better-compute status
  better-compute status --watch
  better-compute status --wait converged --timeout 60s    every machine is as git says
  better-compute status --wait converged --commit \"$(git rev-parse HEAD)\"
  better-compute status --wait refused --commit 4f1c2d    a commit was found to be wrong

With --wait it exits with 0 when the goal was reached, and with 1 when the time was up.";

/// See what is applied, what waits, and who has converged.
///
/// Shows the remote, verified, planned and applied commit with their ages, the diagnostics of a commit that cannot be
/// applied, how many machines of each pool have converged, and who waits to join.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Draw it again every second, until interrupted
    #[arg(long, conflicts_with = "wait")]
    pub watch: bool,
    /// Wait until this is so
    #[arg(long, value_enum, value_name = "GOAL")]
    pub wait: Option<Goal>,
    /// The commit that --wait is about, or the beginning of its id
    #[arg(long, value_name = "COMMIT", requires = "wait")]
    pub commit: Option<String>,
    /// The number of machines that --wait is about, at least
    #[arg(long, value_name = "N", requires = "wait")]
    pub nodes: Option<u64>,
    /// How long --wait waits
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub timeout: Duration,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Status {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        if let Some(goal) = self.wait {
            return self.wait_for(goal, clock).await;
        }
        let client = Client::new(&self.target)?;
        loop {
            let output = Output::detect(self.format.format, clock.now());
            let document = ask(&client).await?;
            if self.watch {
                output.redraw()?;
            }
            show(&document, &output)?;
            if !self.watch {
                return Ok(Exit::Ok);
            }
            tokio::time::sleep(StdDuration::from_secs(1)).await;
        }
    }

    /// One look from the very beginning: a control plane that is starting has no client.json yet.
    async fn look(&self) -> Result<Value, Failure> {
        let client = Client::new(&self.target)?;
        match ask(&client).await {
            // The control plane was made anew between the reading and the call.
            Err(failure) if failure.denied && client.is_outdated(&self.target) => {
                Err(Failure { exit: Exit::Unreachable, ..failure })
            }
            answer => answer,
        }
    }

    async fn wait_for(&self, goal: Goal, clock: &SharedClock) -> Result<Exit, Failure> {
        let aim = wait::Aim { goal, commit: self.commit.as_deref(), nodes: self.nodes.unwrap_or(0) };
        let until = tokio::time::Instant::now() + self.timeout.to_std();
        let mut pause = StdDuration::from_millis(50);
        loop {
            let document = match self.look().await {
                Err(failure) if failure.exit == Exit::Unreachable && tokio::time::Instant::now() < until => None,
                answer => Some(answer?),
            };
            let missing = match &document {
                Some(document) => aim.missing(&Report::read(document)?),
                None => Some("nothing answers".to_owned()),
            };
            let output = Output::detect(self.format.format, clock.now());
            match (missing, document) {
                (None, Some(document)) => {
                    show(&document, &output)?;
                    return Ok(Exit::Ok);
                }
                (missing, document) if tokio::time::Instant::now() >= until => {
                    if let Some(document) = document {
                        show(&document, &output)?;
                    }
                    let what = missing.unwrap_or_default();
                    return Err(Failure::failed(format!("not {goal} after {}: {what}", self.timeout)));
                }
                _ => tokio::time::sleep(pause).await,
            }
            pause = (pause * 2).min(StdDuration::from_millis(200));
        }
    }
}

async fn ask(client: &Client) -> Result<Value, Failure> {
    client.call("fleet.status", &json!({})).await
}

fn show(document: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json() { output.json(document) } else { output.line(Report::read(document)?.render(output)) }
}
