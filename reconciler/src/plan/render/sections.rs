//! The parts of a plan, in the order in which a reviewer asks: what changes in the files, what hosts become, what is done
//! to whom, in which order, what does not go and why, and what is worth knowing.

mod batches;
mod held;
mod machines;
mod objects;

use super::page::{Ink, Line, Section};
use crate::plan::Plan;
pub(in crate::plan) use machines::ink;

/// The title of the part about binding.
pub(in crate::plan) const BOUND: &str = "Bound to what was shown";

/// How much is said.
#[derive(Debug, Clone, Copy)]
pub(in crate::plan) struct Fold {
    /// How many of a kind are named before the rest is counted.
    pub(in crate::plan) most: usize,
    /// The width of a line.
    pub(in crate::plan) width: usize,
}

/// Every part that has something to say.
pub(in crate::plan) fn of(plan: &Plan, fold: Fold) -> Vec<Section> {
    let parts = [
        ("Files", objects::changes(plan, fold)),
        ("Renamed", objects::moved(plan, fold)),
        ("What hosts become", machines::targets(plan, fold)),
        ("What is done to machines", machines::effects(plan, fold)),
        ("Order", machines::order(plan, fold)),
        ("Batches of destructive commands", batches::of(plan, fold)),
        ("Bookings", machines::bookings(plan, fold)),
        ("Held (the rest goes)", held::held(plan, fold)),
        ("Freezes, pins and suspensions", held::brakes(plan, fold)),
        (BOUND, held::bind(plan)),
        ("Cordons", held::cordons(plan, fold)),
        ("Retained (the document is gone, its last text stays in force)", objects::retained(plan, fold)),
        ("Worth knowing", objects::notes(plan, fold)),
    ];
    parts
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(title, lines)| Section { title: title.to_owned(), lines })
        .collect()
}

/// How many of a list are named: all of them when the rest would be a line or two.
fn named(count: usize, fold: Fold) -> usize {
    if count <= fold.most.saturating_add(2) { count } else { fold.most.max(1) }
}

/// The line that counts the rest of a list, when there is one.
fn more(count: usize, named: usize, what: &str, indent: usize) -> Option<Line> {
    (count > named).then(|| Line::new(indent).with(Ink::Dim, &format!("and {} more{what}", count - named)))
}

/// `1 machine`, `3 machines`.
pub(in crate::plan) fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
