//! A batch as a person reads it before signing. Pure: what was checked in, a text out.

use std::collections::BTreeSet;

use reconciler::batch::resolve::BOOT;
use schema::time::{Moment, Timestamp};

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
/// How far the facts stand from their names.
const COLUMN: usize = 10;

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
    let mut row = |name: &str, text: String| lines.push(output.labelled(name, COLUMN, &text, "  "));
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
    row("then", then(checked, output.now()));
    row("binds", binds(checked));
    row("tier", tier(asked, checked, speaker));
    for line in also(checked) {
        row("also", line);
    }
    lines.push(String::new());
    let named = if checked.machines.len() <= NAMED + 2 { checked.machines.len() } else { NAMED };
    let width = checked.machines.iter().take(named).map(|machine| machine.leaf.name.chars().count()).max().unwrap_or(0);
    lines.extend(checked.machines.iter().take(named).map(|machine| line(machine, width, output)));
    if checked.machines.len() > named {
        lines.push(format!(
            "  and {} more (better-compute batches {} names all)",
            checked.machines.len() - named,
            header.name
        ));
    }
    lines.push(String::new());
    lines.extend(checked.notes.iter().map(|note| paint(Style::Attention, &output.indented(note, "  "))));
    let mut row = |name: &str, text: String| lines.push(output.labelled(name, COLUMN, &text, "  "));
    row("digest", format!("{} (made again from this clone)", header.digest()));
    row("you", format!("{}, by the key {}", speaker.principal, speaker.key));
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

fn tier(asked: &Asked, checked: &Checked, speaker: &Speaker) -> String {
    let heard = |word: &str| asked.said(word).into_iter().map(printable).collect::<Vec<_>>();
    let (yes, no) = (heard("yes"), heard("no"));
    let mut text = format!("{} (trust policy of epoch {})", checked.header.tier, checked.header.under.epoch);
    if !yes.is_empty() {
        text.push_str(&format!("; {} said yes", yes.join(", ")));
    }
    if !no.is_empty() {
        text.push_str(&format!("; {} said no", no.join(", ")));
    }
    let missing = if asked.batch.get("approvals").is_some() { heard("missing") } else { checked.tally().missing };
    if missing.is_empty() {
        text.push_str("; nobody else is needed");
        return text;
    }
    text.push_str(&format!("; it needs {}", missing.join(" and ")));
    let others = checked.candidates();
    let others: Vec<&str> = others.iter().filter(|who| **who != speaker.principal).map(|who| who.as_str()).collect();
    if !others.is_empty() {
        text.push_str(&format!(" (besides you: {})", others.join(", ")));
    }
    text
}

/// What each machine is bound to, besides being the one that it is.
fn binds(checked: &Checked) -> String {
    let words: BTreeSet<&str> =
        checked.machines.iter().flat_map(|machine| machine.leaf.preconditions.keys()).map(String::as_str).collect();
    let mut text = "each machine by its name, identity, hardware and journal".to_owned();
    for word in words {
        match word {
            BOOT => text.push_str("; and the boot that it is in: one that is booted before is left out"),
            other => text.push_str(&format!("; and its {}", printable(other))),
        }
    }
    text
}

/// What comes of it once enough people agree.
fn then(checked: &Checked, now: Timestamp) -> String {
    let header = &checked.header;
    let begins = if header.not_before > now { "begins when its window does" } else { "begins at once" };
    format!("it {begins} when enough people agree; what has not begun at {} never does", Moment(header.expires))
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
    some(of(&|machine| machine.changed.is_some()), "no longer what was resolved: left out");
    lines
}

fn line(machine: &Machine, width: usize, output: &Output) -> String {
    let serial = match &machine.serial {
        Ok(serial) => match &machine.declared {
            None => format!("serial {}", printable(serial)),
            Some(declared) => Style::Bad.paint(
                &format!("serial {}, its document declares {}", printable(serial), printable(declared)),
                output.colour,
            ),
        },
        Err(why) => Style::Attention.paint(why, output.colour),
    };
    let mut facts: Vec<String> = machine.pool.iter().map(|pool| format!("pool/{}", printable(pool))).collect();
    facts.extend(machine.connectivity.iter().filter(|word| *word != "connected").map(|word| printable(word)));
    facts.extend(machine.cordoned.then(|| "cordoned".to_owned()));
    facts.extend(machine.changed.as_deref().map(printable));
    let facts = Style::Dim.paint(&facts.join(" · "), output.colour);
    format!("  node/{:<width$}  {serial}  {facts}", machine.leaf.name.as_str())
}

#[cfg(test)]
mod tests;
