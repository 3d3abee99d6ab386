//! `joins`: who tried to join, and why they were let in or not.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::get::{self, Kind};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute joins
  better-compute joins show join_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute joins approve join_01k9m2v7t3c4w8d5e6f7g8h9ja";

/// See who tried to join, and why they were let in or not.
///
/// Lists attempts to join with their outcome, or shows one with the reason and with what would admit the machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Joins {
    /// What to do; a list when nothing is said
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List attempts, the newest first
    List,
    /// Let the next try of a machine through that waits for a yes: weak hardware, no document, away for too long
    Approve {
        /// The attempt
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Show one attempt
    Show {
        /// The attempt
        #[arg(value_name = "ID")]
        id: String,
    },
}

impl Joins {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        match &self.verb {
            None | Some(Verb::List) => {
                let items = get::list(&client, Kind::Joins, None, None).await?;
                if output.is_json() {
                    output.json(&json!({ "joins": items }))?;
                } else {
                    output.table(&get::table(Kind::Joins, &items, output), "nobody tried to join")?;
                }
            }
            Some(Verb::Approve { id }) => {
                let input = json!({ "id": id, "idempotencyKey": super::token::once() });
                let join = client.call("joins.approve", &input).await?;
                if output.is_json() {
                    output.json(&join)?;
                } else {
                    output.line(format!("{id} is let through at its next try"))?;
                }
            }
            Some(Verb::Show { id }) => {
                let join = client.call("joins.get", &json!({ "id": id })).await?;
                if output.is_json() {
                    output.json(&join)?;
                } else {
                    show(&join, output)?;
                }
            }
        }
        Ok(Exit::Ok)
    }
}

/// Shows one attempt, with the lines that would admit the machine.
///
/// # Errors
/// When standard output cannot be written.
pub fn show(detail: &Value, output: &Output) -> Result<(), Failure> {
    output.line(output.outline(detail.get("join").unwrap_or(detail), 0))?;
    if let Some(claims) = detail.get("claims").filter(|claims| !claims.is_null()) {
        output.line(format!("claims:\n{}", output.outline(claims, 1)))?;
    }
    if let Some(lines) = detail.get("admit").and_then(Value::as_str) {
        output.line(format!(
            "\nThis document would admit the machine; commit it, for example as nodes/NAME.kdl:\n\n{lines}"
        ))?;
    }
    Ok(())
}
