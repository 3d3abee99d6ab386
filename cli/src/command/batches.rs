//! `batches`: what destructive work was asked for, who has to approve it, and how far it is.

mod show;

use clap::{Args, Subcommand};
use schema::clock::SharedClock;
use serde_json::{Map, Value, json};

use super::{owner::Owner, token::once};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, note, text::printable},
};

const EXAMPLES: &str = "\
Examples:
  better-compute batches                        those that have not ended, and the newest that have
  better-compute batches 2026-12-kernel         one, machine by machine
  better-compute batches 2026-12-kernel --watch
  better-compute batches --state void
  better-compute batches cancel 2026-12-kernel --reason \"the kernel is withdrawn\"";

/// Most rows that one call asks for.
const PAGE: u32 = 200;

/// See batches of destructive commands: who has to approve them, and how far they are.
///
/// Lists batches, or shows one with its machines. Whoever may run commands can take one back; what of it has begun ends by itself.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Batches {
    /// What to do; look when nothing is said
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// One of them, by name, batch/NAME or id
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Only in this state, such as proposed or done
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
    /// Look again every second until it has ended
    #[arg(long, requires = "name")]
    pub watch: bool,
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
    /// Take a batch back: what of it has not begun never does
    Cancel {
        /// The batch
        #[arg(value_name = "NAME")]
        name: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Who answers for it
        #[command(flatten)]
        owner: Owner,
    },
}

impl Batches {
    /// Asks and shows.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        let output = &Output::detect(self.format.format, clock.now());
        let client = Client::new(&self.target)?;
        if let Some(Verb::Cancel { name, reason, owner }) = &self.verb {
            let owner = owner.said(&client);
            let input = json!({ "batch": name, "reason": reason, "owner": owner, "idempotencyKey": once() });
            let batch = client.call("commandBatches.cancel", &input).await?;
            if output.is_json() {
                output.json(&batch)?;
            } else {
                output.line(format!(
                    "batch/{} is cancelled; what of it has not begun never does",
                    show::text(&batch, "name")
                ))?;
            }
            return Ok(Exit::Ok);
        }
        match &self.name {
            Some(name) if self.watch => watch(&client, name, output, clock).await,
            Some(name) => one(&client, name, output).await,
            None => self.list(&client, output).await,
        }
    }

    async fn list(&self, client: &Client, output: &Output) -> Result<Exit, Failure> {
        let (mut found, mut asks): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
        let (mut input, mut overlooked) = (Map::new(), None);
        input.extend(self.state.iter().map(|state| ("state".to_owned(), state.as_str().into())));
        while (found.len() as u32) < self.limit {
            input.insert("limit".to_owned(), (self.limit - found.len() as u32).min(PAGE).into());
            let mut page = client.call("commandBatches.list", &Value::Object(input.clone())).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items);
            }
            if let Some(Value::Array(more)) = page.get_mut("asks").map(Value::take) {
                asks.extend(more);
            }
            overlooked = overlooked.or_else(|| page.get_mut("overlooked").map(Value::take));
            match page.get("next").filter(|next| next.is_string()) {
                Some(next) => _ = input.insert("before".to_owned(), next.clone()),
                None => break,
            }
        }
        if output.is_json() {
            output.json(&json!({ "batches": found, "asks": asks, "overlooked": overlooked }))?;
        } else {
            output.table(&show::table(&found, &asks, output), "no batch was asked for")?;
            if let Some(overlooked) = overlooked.as_ref().and_then(Value::as_str) {
                note(printable(overlooked));
            }
        }
        Ok(Exit::Ok)
    }
}

/// A batch with all its machines.
///
/// # Errors
/// When a call fails.
pub async fn whole(client: &Client, name: &str) -> Result<Value, Failure> {
    let mut batch = client.call("commandBatches.get", &json!({ "batch": name })).await?;
    let mut machines = Vec::new();
    let mut input = json!({ "batch": name, "limit": PAGE });
    loop {
        let mut page = client.call("commandBatches.scope", &input).await?;
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            machines.extend(items);
        }
        match page.get("next").filter(|next| next.is_string()) {
            Some(next) => input["after"] = next.clone(),
            None => break,
        }
    }
    batch["scope"] = machines.into();
    Ok(batch)
}

/// The table of a list.
#[must_use]
pub fn table(batches: &[Value], output: &Output) -> crate::output::Table {
    show::table(batches, &[], output)
}

/// One batch with its machines, as people read it.
///
/// # Errors
/// When a call fails.
pub async fn show_one(client: &Client, name: &str, output: &Output) -> Result<(), Failure> {
    one(client, name, output).await.map(drop)
}

async fn one(client: &Client, name: &str, output: &Output) -> Result<Exit, Failure> {
    let batch = whole(client, name).await?;
    if output.is_json() {
        output.json(&batch)?;
    } else {
        output.line(show::page(&batch, output))?;
    }
    Ok(Exit::Ok)
}

/// Shows it once a second; where there is no terminal, only when something of it changed.
async fn watch(client: &Client, name: &str, output: &Output, clock: &SharedClock) -> Result<Exit, Failure> {
    let mut shown = Value::Null;
    loop {
        let batch = whole(client, name).await?;
        let ended = batch.get("endedAt").is_some();
        if output.is_json() {
            if ended {
                output.json(&batch)?;
            }
        } else if output.is_terminal() || batch != shown {
            let output = output.at(clock.now());
            output.redraw()?;
            output.line(show::page(&batch, &output))?;
        }
        if ended {
            return Ok(if show::text(&batch, "state") == "done" { Exit::Ok } else { Exit::Failed });
        }
        shown = batch;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

/// One line for a look at the whole; nothing for what has ended and was looked at.
#[must_use]
pub fn line(batch: &Value, output: &Output) -> Option<String> {
    show::line(batch, output)
}

/// The same of what asks for a batch and is none.
#[must_use]
pub fn ask_line(ask: &Value, output: &Output) -> String {
    show::ask_line(ask, output)
}
