//! Batches as tables and pages. Pure.

use std::collections::BTreeMap;

use schema::time::Timestamp;
use serde_json::Value;

use crate::output::{
    Output, Table,
    table::Cell,
    text::{Style, count, printable},
};

pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn time(value: &Value, name: &str) -> Option<Timestamp> {
    value.get(name)?.as_str()?.parse().ok()
}

fn style(state: &str) -> Style {
    match state {
        "done" | "succeeded" => Style::Good,
        "proposed" | "approved" | "dispatching" | "sent" => Style::Attention,
        "void" | "rejected" | "expired" | "cancelled" | "failed" => Style::Bad,
        _ => Style::Dim,
    }
}

/// How far it is: a bar of what ended well, what ended badly and what is at work.
fn progress(batch: &Value, colour: bool) -> String {
    const WIDTH: u64 = 12;
    let all = number(batch, "/counts/machines");
    if all == 0 {
        return "no machine".to_owned();
    }
    let of = |name: &str| number(batch, &format!("/counts/{name}"));
    let (good, bad, sent) = (of("succeeded"), of("failed"), of("sent"));
    // What is there is seen, however little it is of the whole.
    let cells = |count: u64| if count == 0 { 0 } else { (count * WIDTH / all).max(1) };
    let (good_cells, bad_cells) = (cells(good).min(WIDTH), cells(bad));
    let bad_cells = bad_cells.min(WIDTH - good_cells);
    let sent_cells = cells(sent).min(WIDTH - good_cells - bad_cells);
    let rest = WIDTH - good_cells - bad_cells - sent_cells;
    let part = |style: Style, letter: &str, cells: u64| style.paint(&letter.repeat(cells as usize), colour);
    let bar = format!(
        "{}{}{}{}",
        part(Style::Good, "█", good_cells),
        part(Style::Bad, "█", bad_cells),
        part(Style::Attention, "▒", sent_cells),
        part(Style::Dim, "░", rest)
    );
    format!("{bar} {}/{all}", good + bad)
}

/// What it waits for, or why it ended so.
fn says(batch: &Value) -> String {
    let waits = batch.pointer("/waitsFor/message").and_then(Value::as_str).filter(|text| !text.is_empty());
    printable(waits.or_else(|| batch.get("message").and_then(Value::as_str)).unwrap_or_default())
}

pub(super) fn table(batches: &[Value], asks: &[Value], output: &Output) -> Table {
    let mut table = Table::new(&["batch", "kind", "state", "machines", "until", "it says"]).whole(&["batch"]).words();
    for batch in batches {
        let state = text(batch, "state");
        let until = match (time(batch, "endedAt"), time(batch, "expires")) {
            (Some(ended), _) => format!("ended {}", output.ago(ended)),
            (None, Some(expires)) => output.ago(expires),
            (None, None) => "-".to_owned(),
        };
        table.row([
            text(batch, "name").into(),
            text(batch, "kind").into(),
            Cell::from(state).style(style(state)),
            progress(batch, false).into(),
            until.into(),
            says(batch).into(),
        ]);
    }
    for ask in asks {
        let since = time(ask, "since").map_or_else(|| "-".to_owned(), |at| format!("since {}", output.ago(at)));
        table.row([
            text(ask, "name").into(),
            "-".into(),
            Cell::from(text(ask, "state")).style(Style::Bad),
            "-".into(),
            since.into(),
            printable(text(ask, "message")).into(),
        ]);
    }
    table
}

/// One batch with its machines.
pub(super) fn page(batch: &Value, output: &Output) -> String {
    let paint = |style: Style, text: &str| style.paint(text, output.colour);
    let state = text(batch, "state");
    let mut lines = vec![format!(
        "{}  {}  {}  {}",
        paint(Style::Bold, &format!("batch/{}", printable(text(batch, "name")))),
        printable(text(batch, "kind")),
        paint(style(state), state),
        progress(batch, output.colour)
    )];
    let mut row = |name: &str, text: String| {
        if !text.is_empty() && text != "-" {
            lines.push(output.labelled(name, 11, &text, "  "));
        }
    };
    row("why", printable(text(batch, "why")));
    let waits = batch.get("waitsFor");
    row(if waits.is_some() { "waits for" } else { "it says" }, says(batch));
    if waits.is_some() {
        row("besides", printable(text(batch, "message")));
    }
    row("asked", asked(batch, output));
    row("approvals", approvals(batch));
    row("window", window(batch, output));
    row("then", then(batch, output));
    row("also", also(batch));
    row("digest", printable(text(batch, "digest")));
    row("review", review(batch));
    let scope = batch.get("scope").and_then(Value::as_array).filter(|scope| !scope.is_empty());
    if let Some(scope) = scope {
        let mut table = Table::new(&["machine", "state", "it says", "command", "began", "ended"])
            .whole(&["machine", "command"])
            .words();
        for leaf in scope {
            let state = text(leaf, "state");
            let ago = |name: &str| time(leaf, name).map_or_else(|| "-".to_owned(), |at| output.ago(at));
            let mut says = leaf.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
            if says.is_empty() && state == "waiting" {
                let away = leaf.get("connectivity").and_then(Value::as_str).filter(|word| *word != "connected");
                let cordoned = flag(leaf, "cordoned").then_some("cordoned");
                let changed = leaf.get("changed").and_then(Value::as_str);
                says = changed.or(away).or(cordoned).unwrap_or_default().to_owned();
            }
            table.row([
                text(leaf, "node").into(),
                Cell::from(state).style(style(state)),
                printable(&says).into(),
                text(leaf, "command").into(),
                ago("beganAt").into(),
                ago("endedAt").into(),
            ]);
        }
        lines.push(String::new());
        lines.push(table.render(output.width, output.colour));
    }
    if let Some(next) = next(batch) {
        lines.push(String::new());
        lines.push(paint(Style::Dim, &next));
    }
    lines.join("\n")
}

fn asked(batch: &Value, output: &Output) -> String {
    let place = batch.get("place").and_then(Value::as_str).map(printable);
    let commit: Option<String> =
        batch.get("planCommit").and_then(Value::as_str).map(|id| id.chars().take(10).collect());
    let mut text = match (place, commit) {
        (Some(place), Some(commit)) => format!("{place} in {commit}"),
        (Some(place), None) => place,
        (None, _) => printable(text(batch, "createdBy")),
    };
    if let Some(proposer) = batch.get("proposer").and_then(Value::as_str) {
        text.push_str(&format!(", proposed by {}", printable(proposer)));
    }
    if let Some(at) = time(batch, "createdAt") {
        text.push_str(&format!(", {}", output.ago(at)));
    }
    text
}

fn approvals(batch: &Value) -> String {
    if text(batch, "reason") == "not-ours" {
        return "not known: its row is not as it was put down".to_owned();
    }
    if batch.get("needsApproval").and_then(Value::as_bool) != Some(true) {
        return "none needed: it is written down for audit".to_owned();
    }
    let tier =
        batch.get("tier").and_then(Value::as_str).map_or_else(String::new, |tier| format!("tier {}", printable(tier)));
    let Some(said) = batch.get("approvals") else { return tier };
    let list = |name: &str| -> Vec<String> {
        said.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(printable)
            .collect()
    };
    let mut parts = vec![tier];
    if flag(said, "stale") {
        parts.push(format!("the trust policy of epoch {} is not in force any more", number(said, "/trustEpoch")));
    }
    for (name, word) in [("yes", "said yes"), ("no", "said no"), ("withdrawn", "took it back")] {
        let who = list(name);
        if !who.is_empty() {
            parts.push(format!("{} {word}", who.join(", ")));
        }
    }
    let (missing, may) = (list("missing"), list("may"));
    if out_of_reach(batch) {
        parts.push(format!("nobody can give the approvals it lacks: it needs {}", missing.join(" and ")));
    } else if !missing.is_empty() {
        parts.push(format!("it needs {} ({} can)", missing.join(" and "), may.join(", ")));
    }
    parts.extend(list("refused").into_iter().map(|why| format!("does not count: {why}")));
    parts.join("; ")
}

/// Whether too few are left who could approve it.
fn out_of_reach(batch: &Value) -> bool {
    batch.get("approvals").is_some_and(|said| flag(said, "outOfReach"))
}

fn window(batch: &Value, output: &Output) -> String {
    match (time(batch, "notBefore"), time(batch, "expires")) {
        (Some(from), Some(to)) => {
            format!("{} to {} ({})", schema::time::Moment(from), schema::time::Moment(to), output.ago(to))
        }
        _ => String::new(),
    }
}

/// What comes of it, and in which steps.
fn then(batch: &Value, output: &Output) -> String {
    let waits = match text(batch, "state") {
        "proposed" => "when enough people agree",
        "approved" | "dispatching" => "",
        _ => return String::new(),
    };
    let mut parts: Vec<String> = Vec::new();
    let begins = time(batch, "notBefore").filter(|at| *at > output.now);
    let begins = begins.map_or_else(|| "at once".to_owned(), |at| format!("from {} on", schema::time::Moment(at)));
    if !waits.is_empty() {
        parts.push(format!("{waits} it begins {begins}"));
    }
    let mut pace = format!("{} at a time", count(number(batch, "/maxInFlight"), "machine"));
    if let Some(spread) = batch.get("spread").and_then(Value::as_str) {
        pace.push_str(&format!(", one {} at a time", printable(spread)));
    }
    parts.push(pace);
    parts.push(match number(batch, "/maxFailures") {
        0 => "it stops at the first failure".to_owned(),
        most => format!("it stops after more than {}", count(most, "failure")),
    });
    parts.push("what has not begun when the window ends never does".to_owned());
    parts.join("; ")
}

/// What else it disturbs, and which machines keep it waiting.
fn also(batch: &Value) -> String {
    let scope = batch.get("scope").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let open: Vec<&Value> = scope.iter().filter(|leaf| text(leaf, "state") == "waiting").collect();
    let mut pools: BTreeMap<&str, u64> = BTreeMap::new();
    for leaf in &open {
        if let Some(pool) = leaf.get("pool").and_then(Value::as_str) {
            *pools.entry(pool).or_default() += 1;
        }
    }
    let mut parts: Vec<String> = Vec::new();
    for (pool, machines) in pools {
        parts.push(format!("{} of pool/{}", count(machines, "machine"), printable(pool)));
    }
    let away =
        |leaf: &&&Value| leaf.get("connectivity").and_then(Value::as_str).is_some_and(|word| word != "connected");
    let mut some = |number: usize, what: &str| parts.extend((number > 0).then(|| format!("{number} {what}")));
    some(open.iter().filter(|leaf| flag(leaf, "staged")).count(), "with changes that come with a boot");
    some(open.iter().filter(|leaf| flag(leaf, "cordoned")).count(), "cordoned");
    some(open.iter().filter(away).count(), "not connected");
    some(open.iter().filter(|leaf| leaf.get("changed").is_some()).count(), "no longer what was resolved, and left out");
    parts.join("; ")
}

fn review(batch: &Value) -> String {
    if batch.get("toReview").and_then(Value::as_bool) == Some(true) {
        return "nobody looked at this emergency yet".to_owned();
    }
    batch
        .get("reviewed")
        .map_or_else(String::new, |seen| format!("{}: {}", printable(text(seen, "by")), printable(text(seen, "note"))))
}

/// What the reader can do about it.
fn next(batch: &Value) -> Option<String> {
    let name = printable(text(batch, "name"));
    if batch.get("toReview").and_then(Value::as_bool) == Some(true) && batch.get("endedAt").is_some() {
        return Some(format!("better-compute breakglass close {name} --note \"what was found\""));
    }
    match text(batch, "state") {
        "proposed" if out_of_reach(batch) => {
            Some(format!("better-compute batches cancel {name} --reason TEXT; then ask for it under another name"))
        }
        "proposed" => Some(format!("in a clone of the fleet repository: better-compute approve batch/{name}")),
        _ => None,
    }
}

/// One line for a look at the whole; nothing for what has ended and was looked at.
pub(super) fn line(batch: &Value, output: &Output) -> Option<String> {
    let state = text(batch, "state");
    let review = batch.get("toReview").and_then(Value::as_bool) == Some(true);
    if batch.get("endedAt").is_some() && !review {
        return None;
    }
    let name = Style::Attention.paint(&format!("batch/{}", printable(text(batch, "name"))), output.colour);
    let kind = printable(text(batch, "kind"));
    if review {
        let what = Style::Bad.paint("emergency", output.colour);
        return Some(format!(
            "{name} {what} {kind}: {}; better-compute breakglass close",
            printable(text(batch, "why"))
        ));
    }
    let says = says(batch);
    let says = if says.is_empty() { String::new() } else { format!(": {says}") };
    Some(format!("{name} {kind} {state} {}{says}", progress(batch, output.colour)))
}

/// One line for what asks for a batch and is none.
pub(super) fn ask_line(ask: &Value, output: &Output) -> String {
    let name = Style::Attention.paint(&format!("batch/{}", printable(text(ask, "name"))), output.colour);
    format!("{name} {}: {}", printable(text(ask, "state")), printable(text(ask, "message")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: Some(110), now: "2026-12-07T12:10:00Z".parse().unwrap() }
    }

    fn batch(state: &str, more: &Value) -> Value {
        let mut batch = json!({
            "batchId": "batch_1", "name": "kernel", "state": state, "kind": "node.reboot", "why": "kernel 6.14", "origin": "document",
            "needsApproval": true, "tier": "reboot", "place": "batches/kernel.kdl:1", "planCommit": "91aa4c0f3e".repeat(4),
            "digest": "sha256:00", "createdBy": "source", "createdAt": "2026-12-07T11:10:00Z", "notBefore": "2026-12-07T11:10:00Z",
            "expires": "2026-12-11T16:00:00Z", "maxInFlight": 2, "maxFailures": 0, "spread": "rack", "counts": { "machines": 9, "waiting": 9, "sent": 0, "succeeded": 0, "failed": 0, "left": 0 },
        });
        if let (Value::Object(batch), Value::Object(more)) = (&mut batch, more) {
            batch.extend(more.clone());
        }
        batch
    }

    fn all() -> Vec<Value> {
        vec![
            batch(
                "proposed",
                &json!({
                    "waitsFor": { "reason": "batch-approvals", "message": "it needs one more person with the role operator; ada said yes" },
                    "approvals": { "yes": ["ada"], "no": [], "withdrawn": [], "missing": ["one more person with the role operator"], "may": ["cleo", "dan"],
                                   "refused": ["bob: bob proposed it, signed it or is excluded (excluded)"], "trustEpoch": 3 },
                    "scope": [{ "node": "h100-1", "state": "waiting", "pool": "h100", "connectivity": "unreachable" },
                              { "node": "h100-2", "state": "waiting", "pool": "h100", "cordoned": true },
                              { "node": "h100-3", "state": "waiting", "pool": "h100", "changed": "it was booted since (booted-since)" }],
                }),
            ),
            batch(
                "dispatching",
                &json!({
                    "waitsFor": { "reason": "batch-in-flight", "message": "h100-3 at it, 5 to come" },
                    "counts": { "machines": 9, "waiting": 5, "sent": 1, "succeeded": 2, "failed": 1, "left": 0 },
                    "scope": [{ "node": "h100-1", "state": "succeeded", "command": "cmd_1", "beganAt": "2026-12-07T12:00:00Z", "endedAt": "2026-12-07T12:05:00Z" },
                              { "node": "h100-2", "state": "failed", "reason": "timeout", "command": "cmd_2" }],
                }),
            ),
            batch(
                "void",
                &json!({ "reason": "trust-changed", "message": "the policy changed", "endedAt": "2026-12-07T12:00:00Z",
                         "approvals": { "stale": true, "trustEpoch": 3, "yes": [], "no": [], "withdrawn": [], "missing": [], "may": [],
                                        "refused": ["ada: it is said under the trust policy of epoch 3 (other-policy)"] } }),
            ),
            batch(
                "done",
                &json!({ "origin": "breakglass", "toReview": true, "endedAt": "2026-12-07T12:00:00Z",
                "counts": { "machines": 1, "waiting": 0, "sent": 0, "succeeded": 1, "failed": 0, "left": 0 } }),
            ),
        ]
    }

    fn asks() -> Vec<Value> {
        let since = "2026-12-07T11:00:00Z";
        vec![
            json!({ "name": "disks", "origin": "document", "state": "waiting", "reason": "batch-history", "since": since,
                    "message": "the commit 91aa4c0f3e is not in the repository: fetch its whole history" }),
            json!({ "name": "health-42", "origin": "proposal", "state": "refused", "reason": "proposal-unsigned", "since": since,
                    "message": "no key of the trust policy signed it" }),
        ]
    }

    #[test]
    fn a_list_says_how_far_each_is_and_what_it_waits_for() {
        insta::assert_snapshot!(table(&all(), &asks(), &output()).render(Some(110), false));
    }

    #[test]
    fn a_page_says_who_is_needed_and_what_each_machine_waits_for() {
        let pages: Vec<String> = all().iter().map(|batch| page(batch, &output())).collect();
        insta::assert_snapshot!(pages.join("\n--\n"));
    }

    #[test]
    fn a_look_at_the_whole_has_what_is_open_and_emergencies_that_nobody_looked_at() {
        let mut lines: Vec<String> = all().iter().filter_map(|batch| line(batch, &output())).collect();
        lines.extend(asks().iter().map(|ask| ask_line(ask, &output())));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
