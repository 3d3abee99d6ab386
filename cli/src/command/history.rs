//! `history`: what was in force, when, who wrote it, and what each change brought.

use clap::Args;
use schema::object::ObjectRef;
use serde_json::{Map, Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{
        Output, Table,
        table::Cell,
        text::{Style, count, printable},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute history                     the last revisions, newest first
  better-compute history pool/h100           those that changed one object
  better-compute history rev_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute history 4f1c2d9             the newest revision of a commit
  better-compute history --limit 200 --format json

`better-compute rollback REV` goes back to one of them.";

/// How many revisions are asked for at a time.
const PAGE: u32 = 100;

/// See what was in force, and what each change brought.
///
/// Lists the revisions that were in force, newest first: the commit, who wrote it, what it changed and when it was
/// applied. With an object's address it lists those that changed it; with a revision or commit it shows that one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct History {
    /// An object, a revision's id, or a commit or its beginning
    #[arg(value_name = "KIND/NAME|REV")]
    pub subject: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl History {
    /// Asks and shows.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let object = match self.subject.as_deref() {
            Some(subject) if subject.contains('/') => Some(address(subject)?),
            Some(revision) => {
                let detail = client.call("revisions.get", &json!({ "revision": revision })).await?;
                if output.is_json() {
                    output.json(&detail)?
                } else {
                    output.line(one(&detail, output))?
                }
                return Ok(Exit::Ok);
            }
            None => None,
        };
        let items = self.list(&client, object.as_ref()).await?;
        if output.is_json() {
            output.json(&json!({ "revisions": items }))?;
        } else {
            let empty = object.map_or_else(
                || "nothing was in force yet".to_owned(),
                |object| format!("no revision changed {object}"),
            );
            output.table(&table(&items, output), &empty)?;
        }
        Ok(Exit::Ok)
    }

    async fn list(&self, client: &Client, object: Option<&ObjectRef>) -> Result<Vec<Value>, Failure> {
        list(client, object, self.limit).await
    }
}

/// The newest revisions, newest first.
///
/// # Errors
/// When a call fails.
pub(super) async fn newest(client: &Client, limit: u32) -> Result<Vec<Value>, Failure> {
    list(client, None, limit).await
}

async fn list(client: &Client, object: Option<&ObjectRef>, limit: u32) -> Result<Vec<Value>, Failure> {
    let wanted = limit as usize;
    let (mut items, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut input = Map::new();
        input.insert("limit".to_owned(), PAGE.min(limit).into());
        if let Some(object) = object {
            input.insert("object".to_owned(), object.to_string().into());
        }
        if let Some(after) = after {
            input.insert("after".to_owned(), after.into());
        }
        let mut page = client.call("revisions.list", &Value::Object(input)).await?;
        if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
            items.extend(more);
        }
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() || items.len() >= wanted {
            items.truncate(wanted);
            return Ok(items);
        }
    }
}

fn address(text: &str) -> Result<ObjectRef, Failure> {
    text.parse().map_err(|error| {
        Failure::usage(format!("{text:?} is not an address: {error}")).hint("write KIND/NAME, for example pool/h100")
    })
}

fn table(items: &[Value], output: &Output) -> Table {
    let mut table = Table::new(&["revision", "commit", "in force", "author", "changes", "subject"])
        .whole(&["revision", "commit", "in force"])
        .words();
    for (index, item) in items.iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or("-");
        let quarantined = item.get("quarantined").and_then(Value::as_bool) == Some(true);
        let style = if quarantined {
            Style::Bad
        } else if index == 0 {
            Style::Good
        } else {
            Style::Plain
        };
        table.row([
            text("id").into(),
            Cell::from(format!("{}{}", short(text("commit")), if quarantined { " quarantined" } else { "" }))
                .style(style),
            when(item, "appliedAt", output).into(),
            person(text("author")).into(),
            changes(item).into(),
            subject(item).into(),
        ]);
    }
    table
}

/// One revision and what it changed.
fn one(detail: &Value, output: &Output) -> String {
    let revision = &detail["revision"];
    let text = |key: &str| printable(revision.get(key).and_then(Value::as_str).unwrap_or("-"));
    let bold = |words: &str| Style::Bold.paint(words, output.colour);
    let mut lines = vec![
        format!("{}  {}", bold(&text("id")), printable(&subject(revision))),
        format!("commit    {} of {}", text("commit"), text("branch")),
        format!("author    {}, {}", text("author"), when(revision, "committedAt", output)),
        format!("in force  {}, by {}", when(revision, "appliedAt", output), text("appliedBy")),
        format!("changes   {}", changes(revision)),
    ];
    for (key, title) in [("planId", "plan"), ("rollbackOf", "back to"), ("reason", "reason")] {
        if revision.get(key).is_some_and(Value::is_string) {
            lines.push(format!("{title:<9} {}", text(key)));
        }
    }
    if revision.get("quarantined").and_then(Value::as_bool) == Some(true) {
        lines.push(Style::Bad.paint("its commit is in quarantine", output.colour));
    }
    if revision.get("restorable").and_then(Value::as_bool) == Some(false) {
        lines.push("its files are not kept: it cannot be gone back to".to_owned());
    }
    let mut objects = Table::new(&["object", "is", "place"]).whole(&["object"]);
    for item in detail.get("objects").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
        let line = item.get("line").and_then(Value::as_u64).unwrap_or_default();
        objects.row([text("object").into(), text("change").into(), format!("{}:{line}", text("file")).into()]);
    }
    if !objects.is_empty() {
        lines.push(format!("\n{}", objects.render(output.width, output.colour)));
    }
    if let Some(Value::Array(commits)) = detail.get("commits")
        && commits.len() > 1
    {
        lines.push(format!("\n{} since the revision before:", count(commits.len() as u64, "commit")));
        lines.extend(commits.iter().map(|commit| {
            let text = |key: &str| commit.get(key).and_then(Value::as_str).unwrap_or("-");
            printable(&format!("  {}  {} ({})", short(text("id")), text("subject"), text("author")))
        }));
    }
    lines.join("\n")
}

/// What a revision changed, in words.
fn changes(item: &Value) -> String {
    let counts = &item["counts"];
    let mut words: Vec<String> = [
        ("create", "new"),
        ("update", "changed"),
        ("moved", "renamed"),
        ("restore", "back"),
        ("remove", "removed"),
        ("retain", "retained"),
        ("held", "held"),
    ]
    .into_iter()
    .filter_map(|(key, word)| Some((counts.get(key)?.as_u64().filter(|number| *number > 0)?, word)))
    .map(|(number, word)| format!("{number} {word}"))
    .collect();
    if let Some(moves) = counts.get("moves").and_then(Value::as_u64).filter(|moves| *moves > 0) {
        words.push(count(moves, "machine"));
    }
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn subject(item: &Value) -> String {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    match text("rollbackOf") {
        Some(to) => format!("back to {to}: {}", text("reason").unwrap_or_default()),
        None => text("subject").unwrap_or("-").to_owned(),
    }
}

/// The name of an author: the address is on the page of the revision.
fn person(author: &str) -> &str {
    author.split_once(" <").map_or(author, |(name, _)| name)
}

fn when(item: &Value, key: &str, output: &Output) -> String {
    let at = item.get(key).and_then(Value::as_str).and_then(|text| text.parse().ok());
    at.map_or_else(|| "-".to_owned(), |at| output.ago(at))
}

fn short(commit: &str) -> String {
    commit.chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn revision(id: &str, commit: &str, more: Value) -> Value {
        let mut item = json!({ "id": id, "seq": 7, "commit": commit.repeat(10), "branch": "main", "author": "Ada", "subject": "h100: more huge pages",
            "committedAt": "2026-11-29T11:00:00Z", "appliedAt": "2026-11-29T12:00:00Z", "appliedBy": "source",
            "counts": { "create": 1, "update": 2, "moves": 40 }, "quarantined": false, "restorable": true });
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        item
    }

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: Some(120), now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    #[test]
    fn the_newest_comes_first_and_a_rollback_says_where_it_went() {
        let items = [
            revision(
                "rev_3",
                "beef",
                json!({ "rollbackOf": "rev_1", "reason": "chrony does not start", "appliedBy": "ada", "counts": {} }),
            ),
            revision("rev_2", "dead", json!({ "quarantined": true })),
            revision("rev_1", "abcd", json!({})),
        ];
        insta::assert_snapshot!(table(&items, &output()).render(Some(120), false));
    }

    #[test]
    fn one_revision_says_what_it_changed() {
        let detail = json!({ "revision": revision("rev_2", "dead", json!({ "planId": "plan_1" })),
            "objects": [{ "object": "pool/h100", "change": "declared", "file": "pools/h100.kdl", "line": 3 }],
            "commits": [{ "id": "deadbeefdeadbeef", "author": "Ada", "subject": "h100: more huge pages" }, { "id": "abcdabcdabcdabcd", "author": "Bob", "subject": "typo" }] });
        insta::assert_snapshot!(one(&detail, &output()));
    }
}
