//! A batch as a person reads it before signing. Pure: what was checked in, a text out.

use schema::time::Moment;
use serde_json::Value;

use super::check::{Asked, Checked, Machine};
use crate::{
    output::{
        Output,
        text::{Style, count, printable},
    },
    statement::Speaker,
};

/// So many machines are named one by one; JSON names all.
const NAMED: usize = 40;

pub(super) fn render(asked: &Asked, checked: &Checked, speaker: &Speaker, output: &Output) -> String {
    let header = &checked.header;
    let paint = |style: Style, text: &str| style.paint(text, output.colour);
    let kind = checked.document.command.value.as_str();
    let machines = count(checked.machines.len() as u64, "machine");
    let mut lines = vec![format!(
        "{}  {} on {machines}",
        paint(Style::Bold, &format!("batch/{}", header.name)),
        paint(Style::Attention, kind)
    )];
    let mut row = |name: &str, text: String| lines.push(output.hanging(&format!("{name:<10}{text}"), "  "));
    row("why", printable(&header.reason));
    let place = &checked.document.at;
    let commit: String = header.plan_commit.to_string().chars().take(10).collect();
    let mut by: Vec<String> = header.excluded.iter().map(ToString::to_string).collect();
    by.extend(
        header
            .proposer
            .iter()
            .filter(|name| !header.excluded.contains(*name))
            .map(|name| format!("proposed by {name}")),
    );
    let by = if by.is_empty() { "nobody the policy knows".to_owned() } else { by.join(", ") };
    row("asked", format!("{}:{} in {commit}, by {by}", printable(&place.file), place.line()));
    row("window", format!("{} to {}", Moment(header.not_before), Moment(header.expires)));
    row("told", printable(&checked.payload.to_string()));
    row("pace", pace(checked));
    row("tier", tier(asked, checked));
    for line in also(checked) {
        row("also", line);
    }
    lines.push(String::new());
    let named = if checked.machines.len() <= NAMED + 2 { checked.machines.len() } else { NAMED };
    let width = checked.machines.iter().take(named).map(|machine| machine.leaf.name.chars().count()).max().unwrap_or(0);
    lines.extend(checked.machines.iter().take(named).map(|machine| line(machine, width, output)));
    if checked.machines.len() > named {
        lines.push(format!("  and {} more (-o json names all)", checked.machines.len() - named));
    }
    lines.push(String::new());
    lines.extend(checked.notes.iter().map(|note| paint(Style::Attention, &output.hanging(note, "  "))));
    lines.push(paint(
        Style::Dim,
        &format!("  {} was made again from this clone; you sign as {}", header.digest(), speaker.principal),
    ));
    lines.join("\n")
}

fn pace(checked: &Checked) -> String {
    let document = &checked.document;
    let at_once = document.max_in_flight.as_ref().map_or(1, |most| most.value);
    let mut text = format!("{} at a time", count(u64::from(at_once), "machine"));
    if let Some(spread) = &document.spread {
        text.push_str(&format!(", one {} at a time", printable(&spread.value)));
    }
    match document.max_failures.as_ref().map_or(0, |most| most.value) {
        0 => text.push_str(", stops at the first failure"),
        most => text.push_str(&format!(", stops after more than {}", count(u64::from(most), "failure"))),
    }
    text
}

fn tier(asked: &Asked, checked: &Checked) -> String {
    let names = |key: &str| -> Vec<String> {
        let said = asked.batch.pointer(&format!("/approvals/{key}")).and_then(Value::as_array);
        said.into_iter().flatten().filter_map(Value::as_str).map(printable).collect()
    };
    let (yes, no) = (names("yes"), names("no"));
    let mut text = format!("{} (trust policy of epoch {})", checked.header.tier, checked.header.under.epoch);
    if !yes.is_empty() {
        text.push_str(&format!("; {} said yes", yes.join(", ")));
    }
    if !no.is_empty() {
        text.push_str(&format!("; {} said no", no.join(", ")));
    }
    let missing = names("missing");
    let missing = if asked.batch.get("approvals").is_some() { missing } else { checked.missing.clone() };
    match missing.as_slice() {
        [] => text.push_str("; nobody else is needed"),
        missing => text.push_str(&format!("; it needs {}", missing.join(" and "))),
    }
    text
}

/// What else it disturbs.
fn also(checked: &Checked) -> Vec<String> {
    let mut lines: Vec<String> = checked
        .budgets
        .iter()
        .map(|(pool, machines, budget)| {
            let of = format!("{} of pool/{}", count(*machines as u64, "machine"), printable(pool));
            match budget {
                Some(budget) => format!("{of}, which allows {} to be disturbed at once", printable(budget)),
                None => format!("{of}, which says no disruption budget"),
            }
        })
        .collect();
    let mut some = |number: usize, text: &str| {
        if number > 0 {
            lines.push(format!("{} {text}", count(number as u64, "machine")));
        }
    };
    let of = |wanted: &dyn Fn(&Machine) -> bool| checked.machines.iter().filter(|machine| wanted(machine)).count();
    some(of(&|machine| machine.staged), "with changes that wait for a boot and come with it");
    some(of(&|machine| machine.cordoned), "cordoned: waited for until the window ends");
    let away = |machine: &Machine| machine.connectivity.as_deref().is_some_and(|word| word != "connected");
    some(of(&away), "not connected now: waited for until the window ends");
    lines
}

fn line(machine: &Machine, width: usize, output: &Output) -> String {
    let serial = match &machine.serial {
        Ok(serial) => format!("serial {}", printable(serial)),
        Err(why) => Style::Attention.paint(why, output.colour),
    };
    let mut facts: Vec<String> = machine.pool.iter().map(|pool| format!("pool/{}", printable(pool))).collect();
    facts.extend(machine.connectivity.iter().filter(|word| *word != "connected").map(|word| printable(word)));
    facts.extend(machine.cordoned.then(|| "cordoned".to_owned()));
    let facts = Style::Dim.paint(&facts.join(" · "), output.colour);
    format!("  node/{:<width$}  {serial}  {facts}", machine.leaf.name.as_str())
}
