//! Watching commands until each has ended. What is new is said on the side.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use schema::command::CommandState;
use serde_json::{Value, json};

use super::show::{Row, is_over, word};
use crate::{
    client::Client,
    exit::{Exit, Failure},
    output::{Output, note},
};

/// So many are asked about in one call.
const AT_ONCE: usize = 200;
/// Each machine is told apart up to so many; above it is counted.
const FEW: usize = 12;
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(2);
/// When nothing moves for so long, it is said who knows why.
const STILL: Duration = Duration::from_secs(10);
/// How often in a row nobody may answer before watching is given up.
const PATIENCE: u32 = 30;

/// Watches.
#[derive(Debug)]
pub(in crate::command) struct Watch<'a> {
    client: &'a Client,
    quiet: bool,
    place: String,
    said: String,
    /// When nothing moved any more, and whether that was said.
    still: Option<(Instant, bool)>,
}

impl<'a> Watch<'a> {
    pub(in crate::command) fn new(client: &'a Client, output: &Output) -> Self {
        Self { client, quiet: output.is_json(), place: String::new(), said: String::new(), still: None }
    }

    /// Begins each line with where among many it stands.
    pub(super) fn beginning(mut self, place: &str) -> Self {
        place.clone_into(&mut self.place);
        self
    }

    /// Follows every command to its end; `false` when somebody pressed Ctrl-C.
    ///
    /// # Errors
    /// When the control plane stays away. The commands run on.
    pub(in crate::command) async fn follow(&mut self, rows: &mut [Row]) -> Result<bool, Failure> {
        let interrupt = tokio::signal::ctrl_c();
        tokio::pin!(interrupt);
        let (mut pause, mut silence) = (FIRST, 0);
        loop {
            self.say(rows);
            if rows.iter().all(|row| row.outcome.as_ref().map_or(true, is_over)) {
                return Ok(true);
            }
            tokio::select! {
                _ = &mut interrupt => return Ok(false),
                () = tokio::time::sleep(pause) => {}
            }
            match self.look(rows).await {
                Ok(true) => {
                    self.still = None;
                    (pause, silence) = (FIRST, 0);
                }
                Ok(false) => {
                    self.say_who_waits(rows);
                    (pause, silence) = ((pause * 2).min(LONGEST), 0);
                }
                Err(failure) if failure.exit == Exit::Unreachable && silence < PATIENCE => {
                    silence += 1;
                    pause = LONGEST;
                }
                Err(failure) => {
                    let hint = "what was queued runs on; `better-compute commands` shows it";
                    return Err(Failure { hint: Some(hint.to_owned()), ..failure });
                }
            }
        }
    }

    /// Asks about what is not over; answers whether anything moved.
    async fn look(&self, rows: &mut [Row]) -> Result<bool, Failure> {
        let open: Vec<String> = rows.iter().filter_map(|row| row.open_id().map(str::to_owned)).collect();
        let mut moved = false;
        for ids in open.chunks(AT_ONCE) {
            let mut page = self.client.call("commands.list", &json!({ "commands": ids })).await?;
            let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
            let mut found: BTreeMap<String, Value> =
                items.into_iter().filter_map(|item| Some((item.get("id")?.as_str()?.to_owned(), item))).collect();
            for row in rows.iter_mut() {
                let Some(new) = row.id().and_then(|id| found.remove(id)) else { continue };
                moved |= row.outcome.as_ref().is_ok_and(|old| old.get("state") != new.get("state"));
                row.outcome = Ok(new);
            }
        }
        Ok(moved)
    }

    /// A command that is not sent for a while waits for something, and somebody else can say for what.
    fn say_who_waits(&mut self, rows: &[Row]) {
        let (since, said) = self.still.get_or_insert_with(|| (Instant::now(), false));
        if *said || self.quiet || since.elapsed() < STILL {
            return;
        }
        *said = true;
        let waits =
            |row: &&Row| row.outcome.as_ref().is_ok_and(|command| word(command) == CommandState::Pending.as_str());
        if let Some(id) = rows.iter().find(waits).and_then(Row::id) {
            note(format!("{}`better-compute why {id}` says what it waits for", self.place));
        }
    }

    fn say(&mut self, rows: &[Row]) {
        let line = progress(rows);
        if !self.quiet && !line.is_empty() && line != self.said {
            note(format!("{}{line}", self.place));
            self.said = line;
        }
    }
}

/// Where everything is, on one line.
pub(super) fn progress(rows: &[Row]) -> String {
    let states = rows.iter().filter_map(|row| Some((row.node.as_str(), word(row.outcome.as_ref().ok()?))));
    if rows.len() <= FEW {
        let busy = |row: &Row| {
            let command = row.outcome.as_ref().ok()?;
            let reason = command.get("busyReason")?.as_str()?;
            Some(format!(" ({reason})")).filter(|_| word(command) == CommandState::Pending.as_str())
        };
        let reasons = rows.iter().filter(|row| row.outcome.is_ok()).map(busy);
        let one = |((node, state), reason): ((&str, &str), Option<String>)| {
            format!("{node} {state}{}", reason.unwrap_or_default())
        };
        return states.zip(reasons).map(one).collect::<Vec<_>>().join("  ");
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    states.for_each(|(_, state)| *counts.entry(state).or_default() += 1);
    counts.iter().map(|(state, number)| format!("{number} {state}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(states: &[&str]) -> Vec<Row> {
        let row = |(n, state): (usize, &&str)| Row {
            node: format!("gpu-{n}"),
            outcome: Ok(json!({ "id": format!("cmd_{n}"), "state": state })),
        };
        states.iter().enumerate().map(row).collect()
    }

    #[test]
    fn few_machines_are_named_and_many_are_counted() {
        assert_eq!(progress(&rows(&["pending", "running"])), "gpu-0 pending  gpu-1 running");
        let mut full = rows(&["pending", "succeeded"]);
        full[0].outcome.as_mut().expect("a command")["busyReason"] = "journal-unusable".into();
        assert_eq!(progress(&full), "gpu-0 pending (journal-unusable)  gpu-1 succeeded");
        let many = [["running"; 10], ["succeeded"; 10]].concat();
        assert_eq!(progress(&rows(&many)), "10 running, 10 succeeded");
    }
}
