//! `drift`: what something else than the daemon changed on machines.

mod text;

use clap::Args;
use schema::{
    fleet::host_path::canonical,
    report::{DriftEntry, DriftKind, DriftMode},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{self, Output, Table, table::Cell, text::Style},
};

const EXAMPLES: &str = "\
Examples:
  better-compute drift                          every machine of the fleet
  better-compute drift fra1-r12-u04
  better-compute drift --pool h100 --exit-code  for a check: 2 when something is not as desired
  better-compute drift fra1-r12-u04 --path files./etc/motd --format json

A field is put right (enforce, the default) or left alone (warn, adopt) as the `drift` block of the
machine's profile says; what was put right is shown for a day. `better-compute adopt` takes a value over
into the fleet repository. With --exit-code: 0 all is as desired, 2 something is not, 1 error.";

/// Show what something else changed on machines.
///
/// Shows, field by field, what something else than the daemon changed on machines after it had been as desired: since
/// when, when it happened as far as that can be known, what is done about it, and how often it was changed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Drift {
    /// One machine, by name or id
    #[arg(value_name = "NODE", conflicts_with = "pool")]
    pub node: Option<String>,
    /// Only machines of this pool
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Only this field or what it is part of, for example files./etc/motd; JSON has its whole value then
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Exit with 2 when something is not as desired, with 1 on any error
    #[arg(long)]
    pub exit_code: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// One field of one machine.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Drifted {
    /// The machine.
    pub(super) node: String,
    /// Its pool.
    pub(super) pool: Option<String>,
    /// The field.
    pub(super) entry: DriftEntry,
}

impl Drift {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match self.shown(output).await {
            Ok(true) if self.exit_code => Ok(Exit::Usage),
            Err(failure) if self.exit_code => Err(Failure { exit: Exit::Failed, ..failure }),
            done => done.map(|_| Exit::Ok),
        }
    }

    /// Whether something is not as desired.
    async fn shown(&self, output: &Output) -> Result<bool, Failure> {
        let client = Client::new(&self.target)?;
        let path = self.path.as_deref().map(canonical);
        let found = ask(&client, self.node.as_deref(), self.pool.as_deref(), path.as_deref()).await?;
        let drifted = read(&found)?;
        if output.is_json() {
            output.json(&json!({ "drift": found }))?;
        } else {
            output.table(&table(&drifted, output), "nothing has drifted")?;
            let below = text::below(&client, &drifted, output).await?;
            for diff in &below.diffs {
                output.line(format!("\n{diff}"))?;
            }
            if let Some(hint) = below.hint {
                output::note(hint);
            }
        }
        Ok(drifted.iter().any(|drifted| !drifted.entry.corrected))
    }
}

/// Every page of `nodes.drift`.
///
/// # Errors
/// When a call fails.
pub(super) async fn ask(
    client: &Client,
    node: Option<&str>,
    pool: Option<&str>,
    path: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let mut input = Map::new();
    for (key, value) in [("node", node), ("pool", pool), ("path", path)] {
        input.extend(value.map(|value| (key.to_owned(), Value::from(value))));
    }
    let mut found = Vec::new();
    loop {
        let mut page = client.call("nodes.drift", &Value::Object(input.clone())).await?;
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            found.extend(items);
        }
        match page.get("next").filter(|next| next.is_string()) {
            Some(next) => input.insert("after".to_owned(), next.clone()),
            None => return Ok(found),
        };
    }
}

/// Reads what was answered.
///
/// # Errors
/// When it is in a form that this version does not know.
pub(super) fn read(found: &[Value]) -> Result<Vec<Drifted>, Failure> {
    let one = |item: &Value| {
        let mut entry = item.clone();
        let node = entry.as_object_mut().and_then(|fields| fields.remove("node"));
        let pool = entry.as_object_mut().and_then(|fields| fields.remove("pool"));
        if let Some(fields) = entry.as_object_mut() {
            fields.retain(|key, _| !matches!(key.as_str(), "desiredText" | "template"));
        }
        serde_json::from_value(json!({ "node": node, "pool": pool, "entry": entry }))
    };
    found
        .iter()
        .map(one)
        .collect::<Result<_, _>>()
        .during("the control plane's word of drift is in a form that this version does not know")
}

fn table(drifted: &[Drifted], output: &Output) -> Table {
    let titles = ["machine", "field", "is", "should be", "since", "changed", "mode", "now", "happened"];
    let mut table = Table::new(&titles).whole(&["machine", "field"]);
    for Drifted { node, entry, .. } in drifted {
        let (now, style) = standing(entry);
        let times = if entry.times == 1 { "once".to_owned() } else { format!("{} times", entry.times) };
        table.row([
            node.as_str().into(),
            entry.path.as_str().into(),
            observed(entry).into(),
            entry.desired.as_deref().unwrap_or("-").into(),
            output.ago(entry.first_seen).into(),
            times.into(),
            entry.mode.as_str().into(),
            Cell::from(now).style(style),
            entry.cause.as_str().into(),
        ]);
    }
    table
}

fn standing(entry: &DriftEntry) -> (&'static str, Style) {
    match entry.mode {
        _ if entry.corrected => ("put right", Style::Good),
        DriftMode::Enforce => ("not put right yet", Style::Bad),
        DriftMode::Warn | DriftMode::Adopt => ("left alone", Style::Attention),
    }
}

fn observed(entry: &DriftEntry) -> String {
    match (&entry.observed, entry.observed_bytes) {
        _ if entry.kind == DriftKind::Removed => "gone".to_owned(),
        (Some(text), _) => {
            let mut lines = text.lines();
            let line = lines.next().unwrap_or_default();
            let first: String = line.chars().take(60).collect();
            if first.len() < line.len() || lines.next().is_some() { format!("{first} …") } else { first }
        }
        (None, Some(bytes)) => format!("{bytes} bytes, not shown"),
        (None, None) => "not shown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn item(path: &str, mode: &str, more: &Value) -> Value {
        let mut item = json!({
            "node": "gpu-1", "pool": "h100", "path": path, "mode": mode, "kind": "changed", "cause": "while-running",
            "firstSeen": "2026-11-29T11:10:00Z", "lastSeen": "2026-11-29T12:00:00Z", "corrected": false, "times": 1,
        });
        if let (Value::Object(item), Value::Object(more)) = (&mut item, more) {
            item.extend(more.clone());
        }
        item
    }

    #[test]
    fn a_table_of_drift_says_what_is_and_what_is_done() {
        let found = [
            item("files./etc/motd.content", "warn", &json!({ "observed": "mine\nand more", "desired": "ours" })),
            item(
                "files./etc/shadow.content",
                "enforce",
                &json!({ "observedBytes": 812, "corrected": true, "times": 4, "desiredText": "ours", "template": "x.j2" }),
            ),
            item("files./etc/x", "adopt", &json!({ "kind": "removed", "cause": "after-boot" })),
        ];
        let output =
            Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:10:00Z".parse().unwrap() };
        insta::assert_snapshot!(table(&read(&found).unwrap(), &output).render(None, false));
    }

    #[test]
    fn what_is_cut_off_is_marked() {
        let entry = |text: &str| {
            let found = [item("files./etc/motd.content", "warn", &json!({ "observed": text }))];
            observed(&read(&found).unwrap()[0].entry)
        };
        assert_eq!(entry(&"x".repeat(61)), format!("{} …", "x".repeat(60)));
        assert_eq!(entry(&"x".repeat(60)), "x".repeat(60));
    }
}
