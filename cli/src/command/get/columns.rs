//! Which columns the tables of `get` have, and how a cell is made. Pure.

use schema::time::Timestamp;
use serde_json::Value;

use super::Kind;
use crate::output::{Output, table::Cell, text::Style};

/// One column of a table.
pub(super) struct Column {
    /// Its heading.
    pub(super) title: &'static str,
    /// Makes its cell for one item.
    pub(super) cell: fn(&Value, &Output) -> Cell,
}

macro_rules! columns {
    ($($title:literal => $cell:expr),* $(,)?) => { &[$(Column { title: $title, cell: $cell }),*] };
}

/// The columns of a list.
pub(super) fn of(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::Nodes => columns! {
            "name" => |item, _| text(item, "/name"),
            "pool" => |item, _| text(item, "/pool"),
            "state" => |item, _| word(item, "/provision"),
            "connection" => |item, _| word(item, "/connectivity"),
            "generation" => |item, _| generation(item),
            "converged" => |item, _| yes(item, "/converged"),
            "schedulable" => |item, _| schedulable(item),
        },
        Kind::Pools => columns! {
            "name" => |item, _| text(item, "/name"),
            "site" => |item, _| text(item, "/site"),
            "class" => |item, _| text(item, "/class"),
            "converged" => |item, _| of_total(item, "/converged"),
            "connected" => |item, _| text(item, "/connected"),
            "schedulable" => |item, _| text(item, "/schedulable"),
            "target" => |item, _| short(item, "/target"),
        },
        Kind::Sites => columns! {
            "name" => |item, _| text(item, "/name"),
            "region" => |item, _| text(item, "/document/document/region"),
            "pools" => |item, _| text(item, "/pools"),
        },
        Kind::Plans => columns! {
            "id" => |item, _| text(item, "/id"),
            "commit" => |item, _| short(item, "/commit"),
            "state" => |item, _| word(item, "/state"),
            "from" => |item, _| short(item, "/baseCommit"),
            "made" => |item, output| age(item, "/createdAt", output),
        },
        // Their table is that of `batches`.
        Kind::Batches => {
            columns! { "name" => |item, _| text(item, "/name"), "state" => |item, _| word(item, "/state") }
        }
        Kind::Joins => columns! {
            "id" => |item, _| text(item, "/id"),
            "state" => |item, _| word(item, "/state"),
            "machine" => |item, _| text(item, "/nodeName"),
            "pool" => |item, _| text(item, "/pool"),
            "when" => |item, output| age(item, "/updatedAt", output),
            "reason" => |item, _| text(item, "/reason"),
        },
        Kind::Tokens => columns! {
            "id" => |item, _| text(item, "/id"),
            "pool" => |item, _| text(item, "/pool"),
            "used" => |item, _| used(item),
            "state" => |item, _| alive(item),
            "expires" => |item, output| age(item, "/expiresAt", output),
            "bound to" => |item, _| bounds(item),
        },
    }
}

/// What a join token says beside its pool.
fn bounds(item: &Value) -> Cell {
    let words = |values: &Value| {
        let words = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(",")
    };
    let expect = item["expect"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = expect.map(|(kind, values)| format!("{kind} {}", words(values))).collect();
    parts.extend((item["reclaim"] == true).then(|| "reclaims".to_owned()));
    parts.extend(item["kinds"].is_array().then(|| format!("only {}", words(&item["kinds"]))));
    if parts.is_empty() { "-".into() } else { parts.join("; ").into() }
}

fn plain(item: &Value, pointer: &str) -> Option<String> {
    match item.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(
            items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        other => Some(other.to_string()),
    }
}

pub(super) fn text(item: &Value, pointer: &str) -> Cell {
    plain(item, pointer).unwrap_or_else(|| "-".to_owned()).into()
}

/// A digest or a commit, shortened.
fn short(item: &Value, pointer: &str) -> Cell {
    let text = plain(item, pointer).unwrap_or_else(|| "-".to_owned());
    text.trim_start_matches("sha256:").chars().take(12).collect::<String>().into()
}

/// The word of a state, in the colour of its meaning.
fn word(item: &Value, pointer: &str) -> Cell {
    let text = plain(item, pointer).unwrap_or_else(|| "-".to_owned());
    let style = match text.as_str() {
        "ready" | "adopted" | "connected" | "online" | "applied" | "admitted" | "joined" | "open" | "active" => {
            Style::Good
        }
        "refused" | "failed" | "lost" | "revoked" | "expired" | "held" => Style::Bad,
        "-" => Style::Dim,
        _ => Style::Attention,
    };
    Cell::from(text).style(style)
}

fn yes(item: &Value, pointer: &str) -> Cell {
    match item.pointer(pointer).and_then(Value::as_bool) {
        Some(true) => Cell::from("yes").style(Style::Good),
        Some(false) => Cell::from("no").style(Style::Attention),
        None => "-".into(),
    }
}

/// `7`, or `6 of 7` while the node is behind.
fn generation(item: &Value) -> Cell {
    match (number(item, "/observed"), number(item, "/generation")) {
        (Some(observed), Some(desired)) if observed == desired => Cell::from(desired.to_string()),
        (Some(observed), Some(desired)) => Cell::from(format!("{observed} of {desired}")).style(Style::Attention),
        _ => "-".into(),
    }
}

fn schedulable(item: &Value) -> Cell {
    match plain(item, "/noScheduleReasons") {
        Some(reasons) => Cell::from(reasons).style(Style::Attention),
        None if item.get("schedulable").and_then(Value::as_bool) == Some(false) => {
            // A cordon is counted with maintenance, and is not called so anywhere else.
            let cordoned = item.get("cordoned").and_then(Value::as_bool) == Some(true);
            let bucket = plain(item, "/bucket").filter(|bucket| !(cordoned && bucket == "maintenance"));
            let bucket = bucket.or_else(|| cordoned.then(|| "cordoned".to_owned()));
            Cell::from(bucket.unwrap_or_else(|| "no".to_owned())).style(Style::Attention)
        }
        None => Cell::from("yes").style(Style::Good),
    }
}

fn number(item: &Value, pointer: &str) -> Option<u64> {
    item.pointer(pointer).and_then(Value::as_u64)
}

fn used(item: &Value) -> Cell {
    match (number(item, "/uses"), number(item, "/usesLeft")) {
        (Some(uses), Some(left)) => format!("{} of {uses}", uses.saturating_sub(left)).into(),
        _ => "-".into(),
    }
}

/// A join token's state, from its own fields.
fn alive(item: &Value) -> Cell {
    if item.get("revokedAt").is_some_and(|at| !at.is_null()) {
        return Cell::from("revoked").style(Style::Bad);
    }
    if number(item, "/usesLeft") == Some(0) {
        return Cell::from("used up").style(Style::Dim);
    }
    Cell::from("open").style(Style::Good)
}

fn of_total(item: &Value, pointer: &str) -> Cell {
    match (number(item, pointer), number(item, "/total")) {
        (Some(some), Some(total)) => {
            Cell::from(format!("{some}/{total}")).style(if some == total { Style::Good } else { Style::Attention })
        }
        _ => "-".into(),
    }
}

fn age(item: &Value, pointer: &str, output: &Output) -> Cell {
    let then: Option<Timestamp> = item.pointer(pointer).and_then(Value::as_str).and_then(|text| text.parse().ok());
    then.map_or_else(|| "-".into(), |then| output.ago(then).into())
}
