//! Why a batch waits, or how it ended.

use std::collections::BTreeSet;

use pki::batch::RefusedVote;
use schema::{name::Name, node::Connectivity};
use store::{
    batches::{Ask, Batch, Leaf, LeafState, Origin},
    outcomes::Outcome,
};

use super::{Area, Keeps, Wait, catalogue, in_order};

/// So many words that do not count are told of.
const MOST_VOTES: usize = 16;

/// What is known of a batch.
#[derive(Debug)]
pub struct BatchFacts<'a> {
    /// Its row.
    pub batch: &'a Batch,
    /// Its machines.
    pub leaves: &'a [Leaf],
    /// What the reconciler said last.
    pub outcome: Option<&'a Outcome>,
}

/// Why what asks for batches is none.
#[must_use]
pub fn asks(asks: &[Ask]) -> Vec<Wait> {
    let one = |ask: &Ask| {
        let mut wait = wait(&ask.new.code, ask.new.message.clone()).since(ask.since);
        wait.place.clone_from(&ask.new.place);
        wait.remedy = wait.remedy.replace("NAME", &ask.new.name);
        wait
    };
    in_order(asks.iter().map(one).collect())
}

/// Everything that a batch waits for; how it ended, once it has.
#[must_use]
pub fn batch(facts: &BatchFacts<'_>) -> Vec<Wait> {
    let batch = facts.batch;
    let mut waits = Vec::new();
    if batch.state.is_terminal() {
        if let Some(reason) = batch.reason.as_deref() {
            let says = batch.message.clone().unwrap_or_else(|| format!("it is {}", batch.state));
            let mut wait = wait(reason, says);
            wait.since = batch.ended_at;
            wait.ended = true;
            waits.push(wait);
        }
    } else if let Some(outcome) = facts.outcome.filter(|outcome| outcome.state == "wait" || outcome.state == "error") {
        let mut wait = wait(&outcome.reason, outcome.message.clone()).since(outcome.since).said_in(&outcome.place);
        wait.until = Some(batch.new.expires);
        waits.push(wait);
    }
    if batch.new.origin == Origin::Breakglass && batch.closed.is_none() {
        let mut wait = wait("to-review", format!("{} called an emergency: {}", batch.new.created_by, batch.new.why));
        wait.keeps = Keeps::Nothing;
        waits.push(wait.since(batch.created_at));
    }
    if !batch.state.is_terminal() {
        waits.extend(facts.leaves.iter().filter_map(machine));
    }
    for wait in &mut waits {
        wait.place.clone_from(&batch.new.place);
        wait.remedy = wait.remedy.replace("NAME", batch.new.name.as_str());
    }
    in_order(waits)
}

/// What people said about a batch that does not count, and why.
#[must_use]
pub fn votes(batch: &Name, refused: &[RefusedVote]) -> Vec<Wait> {
    let (mut told, mut waits) = (BTreeSet::new(), Vec::new());
    for RefusedVote { who, why } in refused {
        let code = why.code();
        if waits.len() == MOST_VOTES || !told.insert((who, code)) {
            continue;
        }
        let areas = [Area::Statement, Area::Trust];
        let area = areas.into_iter().find(|area| catalogue::find(*area, code).is_some()).unwrap_or(Area::Statement);
        let what = who.as_ref().map_or_else(|| "something that was said".to_owned(), |who| format!("what {who} said"));
        let mut wait = Wait::new(area, code, Keeps::Nothing, format!("{what} does not count: {why}"));
        wait.remedy = wait.remedy.replace("NAME", batch.as_str());
        waits.push(wait);
    }
    waits
}

/// A machine that keeps the batch waiting.
fn machine(leaf: &Leaf) -> Option<Wait> {
    if leaf.state != LeafState::Waiting {
        return None;
    }
    let machine = leaf.machine.as_ref()?;
    let says = if machine.connectivity != Connectivity::Connected {
        format!("node/{} is {}", leaf.node, machine.connectivity)
    } else if machine.cordoned {
        format!("node/{} is cordoned", leaf.node)
    } else {
        return None;
    };
    let mut wait = wait("batch-machines", says).remedy(format!("better-compute why node/{}", leaf.node));
    wait.keeps = Keeps::NewWork;
    Some(wait)
}

fn wait(code: &str, says: impl Into<String>) -> Wait {
    Wait::new(Area::Batch, code, Keeps::Command, says)
}
