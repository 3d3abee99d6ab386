//! `audit mend`: the way on where somebody wrote into the chain of the audit log.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    command::{owner::Owner, token::once},
    exit::Failure,
    output::{
        Output, note,
        text::{count, printable},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute why audit                                        what stands in the way
  better-compute audit export --out before.log                    keep what is signed
  better-compute audit mend --reason \"a stolen password; OPS-4201\"

The chain goes on from the last checkpoint that a key of the control plane signed. Lines behind it that are what was chained are chained anew. Whatever else stands there is set aside: it stays in the database, a line of the log names it, and every export shows that line. Nothing is believed by that which was not believed before. First find out who can write to the database.";

/// Go on where somebody wrote into the chain: set that aside, name it in the log, chain the rest anew.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Mend {
    /// Why, and what was found
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who answers for it
    #[command(flatten)]
    pub owner: Owner,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Mend {
    /// Does it.
    ///
    /// # Errors
    /// When nothing stands in the way, or the call fails.
    pub(super) async fn run(&self, output: &Output) -> Result<(), Failure> {
        let client = Client::new(&self.target)?;
        let mut input =
            Map::from_iter([("reason".to_owned(), json!(self.reason)), ("idempotencyKey".to_owned(), json!(once()))]);
        input.extend(self.owner.said(&client).map(|owner| ("owner".to_owned(), owner.into())));
        let done = client.call("audit.mend", &Value::Object(input)).await?;
        if output.is_json() {
            return output.json(&done);
        }
        let number = |key: &str| done[key].as_u64().unwrap_or_default();
        let from = match done["checkpoint"].as_u64() {
            Some(n) => format!("it goes on from checkpoint {n}, which stands by {}", count(number("rows"), "line")),
            None => "no checkpoint is this control plane's: it begins anew".to_owned(),
        };
        output.line(format!(
            "the audit log goes on\n\
             from         {from}\n\
             chained anew {}\n\
             set aside    {}, {}, {} of no chain",
            count(number("again"), "line"),
            count(number("lines"), "line"),
            count(number("checkpoints"), "checkpoint"),
            count(number("outside"), "line"),
        ))?;
        for line in ["named", "outsideNamed"].into_iter().filter_map(|key| done[key].as_array()).flatten() {
            output.line(format!("  {}", named(line)))?;
        }
        note("A line of the log says so: better-compute audit --action audit.mend");
        Ok(())
    }
}

fn named(line: &Value) -> String {
    let text = |key: &str| printable(line[key].as_str().unwrap_or_default());
    let place = line["pos"].as_u64().map_or_else(|| "line".to_owned(), |pos| format!("line {pos}"));
    format!("{place} ({}): {}", text("id"), text("text"))
}

/// What a line of the log says was set aside.
pub(super) fn told(detail: &Value, when: &str) -> String {
    let number = |what: &str| detail[what]["count"].as_u64().unwrap_or_default();
    let mut text = format!(
        "BREAK {when}: {} and {} behind line {} were set aside ({})",
        count(number("lines"), "line"),
        count(number("checkpoints"), "checkpoint"),
        detail["rows"],
        printable(detail["reason"].as_str().unwrap_or_default()),
    );
    if number("outside") > 0 {
        text.push_str(&format!("; and {} of no chain", count(number("outside"), "line")));
    }
    for line in ["lines", "outside"].into_iter().filter_map(|what| detail[what]["named"].as_array()).flatten() {
        text.push_str(&format!("\n  {}", named(line)));
    }
    text
}
