//! Batches: what a commit asks people to approve.

use super::{Fold, count, more, named};
use crate::plan::{
    BatchPool, Change, Plan, PlanBatch,
    render::page::{Ink, Line},
};

/// Every batch that comes, changes or goes.
pub(super) fn of(plan: &Plan, fold: Fold) -> Vec<Line> {
    plan.batches.iter().flat_map(|batch| one(batch, fold)).collect()
}

fn one(batch: &PlanBatch, fold: Fold) -> Vec<Line> {
    let PlanBatch { name, command, reason, .. } = batch;
    let goes = matches!(batch.change, Change::Remove | Change::Retain | Change::Hold);
    let (mark, ink) = match batch.change {
        Change::Create => ('+', Ink::Attention),
        _ if goes => ('-', Ink::Dim),
        _ => ('~', Ink::Attention),
    };
    let mut lines = vec![
        Line::marked(1, mark).with(ink, &format!("batch/{name}: {command}")).with(Ink::Plain, &format!(" ({reason})")),
    ];
    if goes {
        lines.push(Line::new(2).with(Ink::Dim, "what of it has not begun never does"));
        return lines;
    }
    if batch.change != Change::Create {
        lines.push(Line::new(2).with(Ink::Attention, "its text changes: what people approved before does not count"));
    }
    let window = match batch.not_before {
        Some(from) => format!("between {from} and {}", batch.expires),
        None => format!("as soon as it is approved, until {}", batch.expires),
    };
    lines.push(Line::new(2).with(Ink::Plain, &window));
    let mut pace = format!("{} at a time", count(batch.max_in_flight as usize, "machine"));
    if let Some(spread) = &batch.spread {
        pace.push_str(&format!(", one {spread} at a time"));
    }
    pace.push_str(&match batch.max_failures {
        0 => ", stops at the first failure".to_owned(),
        most => format!(", stops after more than {}", count(most as usize, "failure")),
    });
    lines.push(Line::new(2).with(Ink::Plain, &pace));
    for pool in &batch.pools {
        lines.push(Line::new(2).with(Ink::Plain, &share(pool)));
    }
    if batch.nodes.is_empty() {
        lines.push(Line::new(2).with(Ink::Bad, "no machine is in its scope: nothing can come of it"));
    }
    let shown = named(batch.nodes.len(), fold);
    for node in &batch.nodes[..shown] {
        let mut line = Line::new(3).with(Ink::Plain, &format!("node/{node}"));
        if batch.staged.contains(node) {
            line = line.with(Ink::Dim, " and gets what waits for a boot on it");
        }
        if batch.cordoned.contains(node) {
            line = line.with(Ink::Dim, " (cordoned: it is waited for)");
        }
        lines.push(line);
    }
    lines.extend(more(batch.nodes.len(), shown, "", 3));
    lines
}

fn share(pool: &BatchPool) -> String {
    let of = match &pool.pool {
        Some(name) => format!("{} of {} of pool/{name}", pool.nodes, count(pool.machines, "machine")),
        None => format!("{} of {} without a pool", pool.nodes, count(pool.machines, "machine")),
    };
    match &pool.budget {
        Some(budget) => format!("{of}, which allows {budget} to be disturbed at once"),
        None => of,
    }
}
