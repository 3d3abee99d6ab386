//! `joins`: who tried to join, and why they were let in or not.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::get::{self, Kind};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{self, Output, text::printable_lines},
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
                    let open = |item: &&Value| item.get("state").and_then(Value::as_str) != Some("admitted");
                    if let Some(id) = items.iter().find(open).and_then(|item| item.get("id")?.as_str()) {
                        output::note(format!(
                            "\n`better-compute joins show {id}` says what a reason means here, and what would admit the machine."
                        ));
                    }
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
    output.line(page(detail, output))
}

fn page(detail: &Value, output: &Output) -> String {
    let join = detail.get("join").unwrap_or(detail);
    let mut parts = vec![output.outline(join, 0)];
    if let Some(claims) = detail.get("claims").filter(|claims| !claims.is_null()) {
        parts.push(format!("claims:\n{}", output.outline(&brief(claims), 1)));
    }
    if let Some(lines) = detail.get("admit").and_then(Value::as_str) {
        let proven = join.get("attested").and_then(Value::as_array).is_some_and(|proven| !proven.is_empty());
        let first = if proven {
            "This document would admit the machine: it believes the identity itself, whoever issued it. Compare that with the\n\
             machine, and commit it, for example as nodes/NAME.kdl:"
        } else {
            "This document would admit the machine; commit it, for example as nodes/NAME.kdl:"
        };
        parts.push(format!("\n{first}\n\n{}", printable_lines(lines)));
    }
    parts.join("\n")
}

/// What a machine says of itself, with its parts counted: by what a part is known is told, the rest is in the JSON.
fn brief(claims: &Value) -> Value {
    const KNOWN_BY: [&str; 4] = ["mac", "uuid", "serial", "name"];
    const MOST: usize = 4;
    let Value::Object(members) = claims else { return claims.clone() };
    let part = |item: &Value| KNOWN_BY.iter().find_map(|key| item.get(key)?.as_str().map(str::to_owned));
    let one = |value: &Value| match value {
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let mut known: Vec<String> = items.iter().filter_map(part).take(MOST).collect();
            if items.len() > known.len() {
                known.push("…".to_owned());
            }
            Value::from(format!("{} ({})", items.len(), known.join(", ")))
        }
        value => value.clone(),
    };
    members.iter().map(|(key, value)| (key.clone(), one(value))).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn a_machine_with_many_parts_does_not_hide_its_document() {
        let gpu = |n: u32| json!({ "uuid": format!("GPU-{n}"), "name": "H100" });
        let detail = json!({
            "join": { "id": "join_1", "state": "waiting", "reason": "attestation-unknown", "attested": ["x509:sha256:00"] },
            "claims": { "dmi": { "serial": "PF3K0X91" }, "gpus": (0..8).map(gpu).collect::<Vec<_>>(), "nics": [{ "name": "eth0", "mac": "0c:42" }] },
            "admit": "node \"n\" {\n}\n",
        });
        let output =
            Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:10:00Z".parse().unwrap() };
        let text = page(&detail, &output);
        assert!(text.contains("8 (GPU-0, GPU-1, GPU-2, GPU-3, …)") && text.contains("1 (0c:42)"), "{text}");
        assert!(text.contains("whoever issued it") && text.ends_with("node \"n\" {\n}\n"), "{text}");
    }
}
