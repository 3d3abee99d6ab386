//! `kinds --commands`: what can be asked of a node, and what each kind takes and answers.

use schema::command::{
    CommandKind, KINDS, KindRow,
    reference::{Member, flags, members},
};
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    output::{Output, Table, table::Cell, text::Style},
};

/// Lists the kinds of commands.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn list(output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        let rows = KINDS.iter().map(in_json).collect::<Vec<_>>();
        return output.json(&json!({ "commands": rows }));
    }
    let mut table = Table::new(&["kind", "takes", "lane", "is", "it does"]).whole(&["kind"]).words();
    for row in &KINDS {
        table.row([
            row.kind.as_str().into(),
            takes(row).into(),
            row.lane.as_str().into(),
            flags(row).join(", ").into(),
            row.summary.into(),
        ]);
    }
    output.table(&table, "")
}

/// The members of its payload; those with a star must be there.
fn takes(row: &KindRow) -> String {
    let word = |member: &Member| format!("{}{}", member.name, if member.required { "*" } else { "" });
    let words: Vec<String> = members(&row.payload.schema()).iter().map(word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

/// Shows one kind.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn page(kind: CommandKind, output: &Output) -> Result<(), Failure> {
    let row = kind.row();
    if output.is_json() {
        return output.json(&in_json(row));
    }
    let roles: Vec<&str> = row.roles.iter().map(|role| role.as_str()).collect();
    output.line(format!("{}: {}", row.kind, row.summary))?;
    output.line(format!(
        "It runs in lane {} on {} machines, for at most {} after its deadline, and is {}.\n",
        row.lane,
        roles.join(", "),
        row.timeout,
        flags(row).join(", "),
    ))?;
    table("payload", &members(&row.payload.schema()), output)?;
    output.line("")?;
    table("result", &members(&row.result.schema()), output)?;
    output.line("\n* must be there")
}

fn table(title: &str, members: &[Member], output: &Output) -> Result<(), Failure> {
    let payload = title == "payload";
    let mut table = Table::new(&[title, "holds", "it says"]).whole(&[title]);
    for member in members {
        let star = if payload && member.required { "*" } else { "" };
        let default = member.default.as_ref().filter(|_| payload).map(|value| format!(" (else {value})"));
        let says = Cell::from(format!("{}{}", member.doc, default.unwrap_or_default())).style(Style::Dim);
        table.row([format!("{}{star}", member.name).into(), member.takes.as_str().into(), says]);
    }
    output.table(&table, "It takes nothing.")
}

fn in_json(row: &KindRow) -> Value {
    json!({
        "kind": row.kind,
        "says": row.summary,
        "lane": row.lane,
        "destructive": row.destructive,
        "retrySafe": row.retry_safe,
        "selfTerminating": row.self_terminating,
        "attested": row.attested,
        "byRun": row.by_run,
        "timeoutSeconds": row.timeout.as_secs(),
        "roles": row.roles,
        "payload": row.payload.schema(),
        "result": row.result.schema(),
    })
}

/// A kind of command among the arguments.
///
/// # Errors
/// When there is no such kind; the text names all of them.
pub fn command_kind(text: &str) -> Result<CommandKind, String> {
    text.parse().map_err(|_| {
        let all: Vec<&str> = CommandKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("no such kind of command; there are {}", all.join(", "))
    })
}
