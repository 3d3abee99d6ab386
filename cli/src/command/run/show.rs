//! What became of commands, for people and for programs. Pure.

use schema::{
    command::{
        CommandState,
        result::{CheckStatus, Diagnosis, InventoryRefreshed, LogBundle, Rebooted},
    },
    time::{Duration, Timestamp},
};
use serde_json::{Value, json};

use super::bundle;
use crate::{
    exit::Failure,
    output::{
        self, Output, Table,
        age::short,
        table::Cell,
        text::{Style, count, printable},
    },
};

/// One machine: the command as the control plane has it, or why there is none.
#[derive(Debug)]
pub(in crate::command) struct Row {
    /// The machine, as it was said.
    pub(in crate::command) node: String,
    /// Its command.
    pub(in crate::command) outcome: Result<Value, Failure>,
}

impl Row {
    /// The command's id.
    pub(super) fn id(&self) -> Option<&str> {
        self.outcome.as_ref().ok()?.get("id")?.as_str()
    }

    /// The id of a command that has not ended.
    pub(super) fn open_id(&self) -> Option<&str> {
        self.outcome.as_ref().ok().filter(|command| !is_over(command)).and_then(|_| self.id())
    }

    /// Whether it ended well.
    pub(in crate::command) fn has_succeeded(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|command| word(command) == CommandState::Succeeded.as_str())
    }
}

/// The word of a command's state.
pub(in crate::command) fn word(command: &Value) -> &str {
    field(command, "state").unwrap_or("unknown")
}

/// Whether a command has ended.
pub(super) fn is_over(command: &Value) -> bool {
    word(command).parse::<CommandState>().is_ok_and(CommandState::is_terminal)
}

fn field<'a>(command: &'a Value, name: &str) -> Option<&'a str> {
    command.get(name)?.as_str()
}

fn moment(command: &Value, name: &str) -> Option<Timestamp> {
    field(command, name)?.parse().ok()
}

/// For programs: every command, and for a machine without one why.
pub(super) fn in_json(rows: &[Row]) -> Value {
    let one = |row: &Row| match &row.outcome {
        Ok(command) => command.clone(),
        Err(failure) => json!({ "node": row.node, "error": failure.message, "hint": failure.hint }),
    };
    json!({ "commands": rows.iter().map(one).collect::<Vec<_>>() })
}

/// For people: a table, and what each result says.
pub(super) fn text(rows: &[Row], queued_only: bool, output: &Output) -> String {
    let commands = rows.iter().filter_map(|row| row.outcome.as_ref().ok());
    let mut parts = Vec::new();
    let mut table = table(commands.clone(), output);
    for row in rows {
        if let Err(failure) = &row.outcome {
            let why = failure.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
            let said = format!("{}{why}", failure.message);
            table.row([
                row.node.as_str().into(),
                "-".into(),
                Cell::from("refused").style(Style::Bad),
                "-".into(),
                said.into(),
            ]);
        }
    }
    parts.push(table.render(output.width, output.colour));
    // What takes many lines is shown for one machine; `commands show` has it for each of many.
    let is_shown = |text: &String| rows.len() == 1 || !text.contains(":\n");
    parts.extend(commands.filter_map(|command| result(command, output)).filter(is_shown));
    if !queued_only && rows.len() > 1 {
        let good = rows.iter().filter(|row| row.has_succeeded()).count() as u64;
        parts.push(format!("{good} of {} succeeded", count(rows.len() as u64, "command")));
    }
    parts.join("\n\n")
}

/// One row per command.
pub(in crate::command) fn table<'a>(commands: impl Iterator<Item = &'a Value>, output: &Output) -> Table {
    let mut table = Table::new(&["node", "command", "state", "took", "it says"]).whole(&["node", "command"]).words();
    for command in commands {
        table.row([
            who(command).into(),
            field(command, "id").unwrap_or("-").into(),
            state(command),
            took(command, output).into(),
            says(command).into(),
        ]);
    }
    table
}

/// The machine of a command.
pub(in crate::command) fn who(command: &Value) -> &str {
    field(command, "node").or_else(|| field(command, "nodeId")).unwrap_or("-")
}

/// A state with its look.
pub(in crate::command) fn state(command: &Value) -> Cell {
    let word = word(command);
    let style = match word.parse() {
        Ok(CommandState::Succeeded) => Style::Good,
        Ok(CommandState::Failed | CommandState::Rejected | CommandState::Expired) => Style::Bad,
        Ok(CommandState::Cancelled) => Style::Dim,
        Ok(_) | Err(_) => Style::Attention,
    };
    Cell::from(word).style(style)
}

/// How long its machine took, or has been at it; nothing while it waits to be sent.
pub(in crate::command) fn took(command: &Value, output: &Output) -> String {
    let from = ["startedAt", "ackedAt", "dispatchedAt"].into_iter().find_map(|name| moment(command, name));
    let Some(from) = from.filter(|_| word(command) != CommandState::Pending.as_str()) else { return "-".to_owned() };
    short(Duration::between(from, moment(command, "settledAt").unwrap_or(output.now)))
}

/// Why it is where it is.
pub(in crate::command) fn says(command: &Value) -> String {
    let reason = field(command, "reason");
    let message = field(command, "message");
    let late = command.get("late").and_then(|late| field(late, "state"));
    let mut says = match (reason, message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(word), None) | (None, Some(word)) => word.to_owned(),
        (None, None) if command.get("awaitingApproval").is_some() => "waits for approvals".to_owned(),
        (None, None) if !is_over(command) && command.get("cancelRequestedAt").is_some() => "asked to stop".to_owned(),
        (None, None) => String::new(),
    };
    if let Some(late) = late {
        let gap = if says.is_empty() { "" } else { "; " };
        says.push_str(&format!("{gap}the node said {late} after the end"));
    }
    says
}

/// What a result says, when it says more than that it is there.
pub(in crate::command) fn result(command: &Value, output: &Output) -> Option<String> {
    let result = command.get("result")?;
    let head = format!("{} {}", who(command), field(command, "kind").unwrap_or_default());
    if let Ok(diagnosis) = serde_json::from_value::<Diagnosis>(result.clone()) {
        return Some(format!("{}: {}", printable(&head), self::diagnosis(&diagnosis, output)));
    }
    if let Ok(refreshed) = serde_json::from_value::<InventoryRefreshed>(result.clone()) {
        return Some(format!("{}: {}", printable(&head), printable(&inventory(&refreshed))));
    }
    if let Ok(bundle) = serde_json::from_value::<LogBundle>(result.clone()) {
        return Some(format!("{}: {}", printable(&head), bundle::text(who(command), &bundle)));
    }
    if let Ok(Rebooted { rebooted: true, .. }) = serde_json::from_value(result.clone()) {
        return Some(format!("{}: the machine is back with another boot", printable(&head)));
    }
    let is_empty = result.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_empty).then(|| format!("{}:\n{}", printable(&head), output.outline(result, 1)))
}

/// What was read, and what of it was sent: whether that had changed, the machine does not say.
fn inventory(refreshed: &InventoryRefreshed) -> String {
    let read = count(refreshed.digests.len() as u64, "section");
    let sent: Vec<&str> = refreshed.sent.iter().map(|section| section.as_str()).collect();
    let sent = if sent.is_empty() {
        "what had changed was sent".to_owned()
    } else {
        format!("{} sent whether changed or not", sent.join(", "))
    };
    let unread = refreshed.unread.iter().map(|(section, why)| format!("; {section} could not be read: {why}"));
    format!("{read} read, {sent}{}", unread.collect::<String>())
}

/// What did not pass, check by check; what passed is counted.
fn diagnosis(diagnosis: &Diagnosis, output: &Output) -> String {
    let by = [diagnosis.source.as_deref(), diagnosis.driver.as_deref()];
    let by: Vec<&str> = by.into_iter().flatten().collect();
    let by = if by.is_empty() { String::new() } else { format!(" (by {})", printable(&by.join(", "))) };
    let passed = diagnosis.checks.iter().filter(|check| check.status == CheckStatus::Pass).count() as u64;
    let head = format!("{} of {} passed{by}", passed, count(diagnosis.checks.len() as u64, "check"));
    let mut table = Table::new(&["check", "gpu", "is", "why"]).whole(&["check", "gpu"]).words();
    for check in &diagnosis.checks {
        let style = match check.status {
            CheckStatus::Pass => continue,
            CheckStatus::Fail => Style::Bad,
            CheckStatus::Unknown => Style::Attention,
            CheckStatus::NotSupported => Style::Dim,
        };
        table.row([
            check.name.as_str().into(),
            check.gpu.as_deref().unwrap_or("-").into(),
            Cell::from(check.status.as_str()).style(style),
            check.why.as_deref().unwrap_or("").into(),
        ]);
    }
    if table.is_empty() { head } else { format!("{head}\n{}", table.render(output.width, output.colour)) }
}

/// Says how to go on after Ctrl-C.
pub(in crate::command) fn interrupted(rows: &[Row]) {
    output::note(farewell(rows));
}

fn farewell(rows: &[Row]) -> String {
    let open: Vec<&str> = rows.iter().filter_map(Row::open_id).collect();
    let number = count(open.len() as u64, "command");
    let verb = if open.len() == 1 { "runs" } else { "run" };
    match open.as_slice() {
        [only] => format!(
            "\n{number} {verb} on; watch with `better-compute commands show --wait {only}`, stop with `better-compute commands cancel {only}`"
        ),
        _ => format!(
            "\n{number} {verb} on; watch with `better-compute commands`, stop with `better-compute commands cancel {}`",
            open.iter().take(3).copied().chain((open.len() > 3).then_some("…")).collect::<Vec<_>>().join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: None, now: "2026-11-29T12:01:00Z".parse().unwrap() }
    }

    fn command(node: &str, state: &str, more: &Value) -> Row {
        let mut command = json!({
            "id": format!("cmd_{node}"), "node": node, "nodeId": "node_1", "kind": "diag.nvml", "state": state,
            "createdAt": "2026-11-29T12:00:00Z", "dispatchedAt": "2026-11-29T12:00:01Z",
        });
        if let (Value::Object(command), Value::Object(more)) = (&mut command, more) {
            command.extend(more.clone());
        }
        Row { node: node.to_owned(), outcome: Ok(command) }
    }

    fn rows() -> Vec<Row> {
        let checks = json!([
            { "name": "nvml.init", "status": "pass" },
            { "name": "row-remap.pending", "gpu": "GPU-1", "status": "fail", "why": "a row waits to be remapped until a reset" },
            { "name": "pcie.link", "gpu": "GPU-1", "status": "unknown", "why": "the driver did not answer in 10s" },
        ]);
        let result = |passed: bool, checks: &Value| {
            json!({ "settledAt": "2026-11-29T12:00:04Z",
                    "result": { "passed": passed, "source": "nvidia-smi", "driver": "570.1", "checks": checks } })
        };
        let refused = Failure::failed("there is no node gpu-9 (NOT_FOUND)").hint("see get nodes");
        vec![
            command("gpu-1", "succeeded", &result(true, &json!([{ "name": "nvml.init", "status": "pass" }]))),
            command("gpu-2", "failed", &{
                let mut more = result(false, &checks);
                more["reason"] = "checks-failed".into();
                more["message"] = "1 of 3 checks failed".into();
                more
            }),
            command("gpu-3", "expired", &json!({ "reason": "not-after", "settledAt": "2026-11-29T12:00:50Z" })),
            command(
                "gpu-4",
                "failed",
                &json!({
                    "reason": "timeout", "settledAt": "2026-11-29T12:00:50Z", "late": { "state": "succeeded", "at": "2026-11-29T12:00:55Z" },
                }),
            ),
            command("gpu-5", "running", &json!({ "cancelRequestedAt": "2026-11-29T12:00:30Z" })),
            Row { node: "gpu-9".to_owned(), outcome: Err(refused) },
        ]
    }

    #[test]
    fn many_machines_end_in_one_table_and_what_their_results_say() {
        insta::assert_snapshot!(text(&rows(), false, &output()));
    }

    #[test]
    fn a_result_that_is_no_diagnosis_reads_as_an_outline() {
        let row = command(
            "gpu-1",
            "succeeded",
            &json!({ "kind": "logs.collect", "result": { "bytes": 12, "path": "/var/x" } }),
        );
        insta::assert_snapshot!(text(&[row], false, &output()));
    }

    #[test]
    fn a_refresh_and_a_reboot_take_a_line_each_however_many_machines_there_are() {
        let digest = schema::digest::Digest::of("x");
        let refreshed = json!({
            "digests": { "gpus": digest, "nics": digest }, "sent": ["gpus"], "rescanned": true, "unread": { "dmi": "no right to" },
        });
        let same = json!({ "digests": { "gpus": digest }, "sent": [], "rescanned": false });
        let with = |node: &str, kind: &str, result: &Value| {
            command(node, "succeeded", &json!({ "kind": kind, "result": result }))
        };
        let rows = [
            with("gpu-1", "inventory.refresh", &refreshed),
            with("gpu-2", "inventory.refresh", &same),
            with("gpu-3", "node.reboot", &json!({ "rebooted": true })),
            with("gpu-4", "logs.collect", &json!({ "bytes": 12, "path": "/var/x" })),
        ];
        insta::assert_snapshot!(text(&rows, false, &output()));
    }

    #[test]
    fn programs_get_every_command_and_every_refusal() {
        let all = in_json(&rows());
        assert_eq!(all["commands"].as_array().map(Vec::len), Some(6));
        assert_eq!(all["commands"][5]["node"], "gpu-9");
        assert!(all["commands"][5]["error"].as_str().is_some_and(|error| error.contains("NOT_FOUND")));
    }

    #[test]
    fn whoever_stops_watching_is_told_how_to_go_on() {
        let one = [command("gpu-1", "running", &json!({}))];
        let many: Vec<Row> = (0..5).map(|n| command(&n.to_string(), "pending", &json!({}))).collect();
        insta::assert_snapshot!(format!("{}\n{}", farewell(&one), farewell(&many)));
    }
}
