//! `commands`: what was queued for machines, what became of it, and taking it back.

use clap::{Args, Subcommand};
use schema::{
    clock::SharedClock,
    command::{CommandKind, CommandState},
};
use serde_json::{Map, Value, json};

use super::{
    run::{
        show::{self, Row},
        watch::Watch,
    },
    token::once,
};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, Table},
};

const EXAMPLES: &str = "\
Examples:
  better-compute commands                     the newest first
  better-compute commands fra1-r12-u04 --state failed
  better-compute commands show cmd_01k9m2v7t3c4w8d5e6f7g8h9ja --wait
  better-compute commands cancel cmd_01k9m2v7t3c4w8d5e6f7g8h9ja";

/// Most rows that one call asks for.
const PAGE: u32 = 200;

/// See what was queued for machines, and take it back.
///
/// Lists commands with where they are and why, or shows one with its result. A command that waits is taken back at once; one
/// that its machine has is asked to stop, and says what really happened.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Commands {
    /// What to do; a list when nothing is said
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Only of this machine, by name or id
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Only in this state, such as pending or failed
    #[arg(long, value_name = "STATE", value_parser = state())]
    pub state: Option<CommandState>,
    /// Only of this kind
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub kind: Option<CommandKind>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: u32,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

fn state() -> impl clap::builder::TypedValueParser<Value = CommandState> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(CommandState::ALL.iter().map(|state| state.as_str()))
        .map(|word| word.parse().expect("only words of states are possible"))
}

fn kind() -> impl clap::builder::TypedValueParser<Value = CommandKind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(CommandKind::ALL.iter().map(|kind| kind.as_str()))
        .map(|word| word.parse().expect("only words of kinds are possible"))
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show one command with its result
    Show {
        /// The command
        #[arg(value_name = "ID")]
        id: String,
        /// Wait until it has ended; exit code 1 when it did not succeed
        #[arg(long)]
        wait: bool,
    },
    /// Take commands back
    Cancel {
        /// The commands
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

impl Commands {
    /// Asks and shows.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn run(&self, clock: &SharedClock) -> Result<Exit, Failure> {
        let output = &Output::detect(self.format.format, clock.now());
        let client = Client::new(&self.target)?;
        match &self.verb {
            None => self.list(&client, output).await?,
            Some(Verb::Show { id, wait }) => {
                let mut command = client.call("commands.get", &json!({ "command": id })).await?;
                let mut good = true;
                if *wait {
                    let mut rows = [Row { node: show::who(&command).to_owned(), outcome: Ok(command) }];
                    if !Watch::new(&client, output).follow(&mut rows).await? {
                        show::interrupted(&rows);
                        return Ok(Exit::Failed);
                    }
                    let [row] = rows;
                    good = row.has_succeeded();
                    command = row.outcome?;
                }
                if output.is_json() {
                    output.json(&command)?;
                } else {
                    output.line(page(&command, &output.at(clock.now())))?;
                }
                return Ok(if good { Exit::Ok } else { Exit::Failed });
            }
            Some(Verb::Cancel { ids }) => cancel(&client, ids, output).await?,
        }
        Ok(Exit::Ok)
    }

    async fn list(&self, client: &Client, output: &Output) -> Result<(), Failure> {
        let mut input = Map::new();
        let state = self.state.map(CommandState::as_str);
        let kind = self.kind.map(CommandKind::as_str);
        for (key, value) in [("node", self.node.as_deref()), ("state", state), ("kind", kind)] {
            input.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        }
        let mut found: Vec<Value> = Vec::new();
        while (found.len() as u32) < self.limit {
            input.insert("limit".to_owned(), (self.limit - found.len() as u32).min(PAGE).into());
            let mut page = client.call("commands.list", &Value::Object(input.clone())).await?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                found.extend(items);
            }
            match page.get("next").filter(|next| next.is_string()) {
                Some(next) => input.insert("before".to_owned(), next.clone()),
                None => break,
            };
        }
        if output.is_json() {
            return output.json(&json!({ "commands": found }));
        }
        let any = self.node.is_none() && self.state.is_none() && self.kind.is_none();
        output.table(
            &table(&found, self.node.is_some(), output),
            if any { "no command was queued" } else { "no such command" },
        )
    }
}

/// `of_one`: all of them are of the machine that was asked about.
fn table(commands: &[Value], of_one: bool, output: &Output) -> Table {
    let titles = ["command", "node", "kind", "state", "queued", "took", "it says"];
    let titles: Vec<&str> = titles.into_iter().filter(|title| !of_one || *title != "node").collect();
    let whole: &[&str] = if of_one { &["command", "kind", "state"] } else { &["command", "node", "state"] };
    let mut table = Table::new(&titles).whole(whole).words();
    for command in commands {
        let text = |name: &str| command.get(name).and_then(Value::as_str).unwrap_or("-");
        let queued = text("createdAt").parse().map_or_else(|_| "-".to_owned(), |at| output.ago(at));
        let mut cells = vec![text("id").into()];
        cells.extend((!of_one).then(|| show::who(command).into()));
        cells.extend([
            text("kind").into(),
            show::state(command),
            queued.into(),
            show::took(command, output).into(),
            show::says(command).into(),
        ]);
        table.row(cells);
    }
    table
}

/// Members that have a place of their own on the page, or that say nothing to people.
const ELSEWHERE: [&str; 3] = ["result", "payload", "late"];

/// One command.
fn page(command: &Value, output: &Output) -> String {
    let mut head = command.clone();
    if let Some(members) = head.as_object_mut() {
        members.retain(|name, _| !ELSEWHERE.contains(&name.as_str()));
    }
    let mut parts = vec![output.outline(&head, 0)];
    let payload = command.get("payload").filter(|payload| payload.as_object().is_some_and(|it| !it.is_empty()));
    parts.extend(payload.map(|payload| format!("payload:\n{}", output.outline(payload, 1))));
    parts.extend(command.get("late").map(|late| format!("after the end the node said:\n{}", output.outline(late, 1))));
    parts.extend(show::result(command, output));
    parts.join("\n\n")
}

async fn cancel(client: &Client, ids: &[String], output: &Output) -> Result<(), Failure> {
    let mut all = Vec::new();
    for id in ids {
        let input = json!({ "command": id, "idempotencyKey": once() });
        all.push(client.call("commands.cancel", &input).await?);
    }
    if output.is_json() {
        return output.json(&json!({ "commands": all }));
    }
    for command in &all {
        output.line(cancelled(command))?;
    }
    Ok(())
}

/// What cancelling came to.
fn cancelled(command: &Value) -> String {
    let id = command.get("id").and_then(Value::as_str).unwrap_or("-");
    let what =
        format!("{id} ({} on {})", command.get("kind").and_then(Value::as_str).unwrap_or("-"), show::who(command));
    match show::word(command) {
        "cancelled" => format!("{what} is cancelled and never runs"),
        state if state.parse().is_ok_and(CommandState::is_terminal) => format!("{what} had ended: {state}"),
        state => format!("{what} is {state}; its machine is asked to stop and says what happened"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    fn commands() -> [Value; 3] {
        let one = |n: u32, more: Value| {
            let mut command = json!({
                "id": format!("cmd_{n}"), "nodeId": "node_1", "node": format!("gpu-{n}"), "seq": n, "kind": "node.reboot", "lane": "control",
                "payload": { "reason": "new kernel" }, "state": "pending", "notAfter": "2026-11-29T12:20:00Z",
                "createdBy": "tok_1", "createdAt": "2026-11-29T12:08:00Z",
            });
            if let (Value::Object(command), Value::Object(more)) = (&mut command, more) {
                command.extend(more);
            }
            command
        };
        [
            one(1, json!({})),
            one(
                2,
                json!({ "state": "succeeded", "settledAt": "2026-11-29T12:09:30Z", "result": { "rebooted": true } }),
            ),
            one(
                3,
                json!({
                    "state": "failed", "reason": "timeout", "settledAt": "2026-11-29T12:09:00Z", "node": null,
                    "late": { "state": "succeeded", "at": "2026-11-29T12:09:30Z" },
                }),
            ),
        ]
    }

    #[test]
    fn a_list_says_where_each_is_and_why() {
        insta::assert_snapshot!(table(&commands(), false, &output()).render(None, false));
    }

    #[test]
    fn of_one_machine_kind_and_state_are_there_whole_on_a_narrow_screen() {
        let mut command = commands()[2].clone();
        command["id"] = "cmd_01k9m2v7t3c4w8d5e6f7g8h9ja".into();
        command["kind"] = "inventory.refresh".into();
        let text = table(&[command], true, &output()).render(Some(80), false);
        assert!(text.contains("cmd_01k9m2v7t3c4w8d5e6f7g8h9ja") && text.contains("inventory.refresh"), "{text}");
        assert!(text.contains("failed") && !text.contains("NODE"), "{text}");
    }

    #[test]
    fn a_page_has_what_was_asked_and_what_came_of_it() {
        let pages: Vec<String> = commands().iter().map(|command| page(command, &output())).collect();
        insta::assert_snapshot!(pages.join("\n--\n"));
    }

    #[test]
    fn cancelling_says_what_it_came_to() {
        let [pending, succeeded, _] = commands();
        let with = |state: &str| {
            let mut command = pending.clone();
            command["state"] = state.into();
            cancelled(&command)
        };
        insta::assert_snapshot!([with("cancelled"), with("running"), cancelled(&succeeded)].join("\n"));
    }
}
