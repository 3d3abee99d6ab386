//! Machines that are alike in a plan, brought together: by how hard it is for them, by what is done to them, by what
//! keeps them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use schema::{
    effect::EffectClass,
    name::Name,
    time::{Moment, Timestamp},
};

use super::names;
use crate::plan::{GateWord, Held, MoveReason, NodeMove, Plan, bind::UNNAMED};

/// The most rows of the table of machines before pools are folded too.
const ROWS: usize = 8;

/// The most pools that stand apart under one list of effects.
const APART: usize = 4;

/// Machines of one class.
pub(in crate::plan) struct Row<'a> {
    /// How hard it is for them.
    pub(in crate::plan) class: EffectClass,
    /// Their pools: one, or all of them where there are too many for a row each.
    pub(in crate::plan) pools: BTreeSet<Option<&'a Name>>,
    /// Who they are.
    pub(in crate::plan) nodes: Vec<&'a str>,
    /// How many of them are held.
    pub(in crate::plan) held: usize,
}

/// Every machine that moves, the hardest class first.
pub(in crate::plan) fn rows(plan: &Plan) -> Vec<Row<'_>> {
    let rows = rows_by(plan, |node| node.pool.as_ref());
    if rows.len() <= ROWS { rows } else { rows_by(plan, |_| None) }
}

fn rows_by<'a>(plan: &'a Plan, apart: impl Fn(&'a NodeMove) -> Option<&'a Name>) -> Vec<Row<'a>> {
    let mut rows: BTreeMap<(Reverse<EffectClass>, Option<&Name>), Row<'_>> = BTreeMap::new();
    for node in &plan.nodes {
        let row = rows.entry((Reverse(node.effect), apart(node))).or_insert_with(|| Row {
            class: node.effect,
            pools: BTreeSet::new(),
            nodes: Vec::new(),
            held: 0,
        });
        row.pools.insert(node.pool.as_ref());
        row.nodes.push(node.node.as_str());
        row.held += usize::from(!node.held.is_empty());
    }
    rows.into_values().collect()
}

/// Machines to which the same is done.
pub(in crate::plan) struct Alike<'a> {
    /// How hard it is for them.
    pub(in crate::plan) class: EffectClass,
    /// What is done, as an index into the plan's effects.
    pub(in crate::plan) effects: Option<u32>,
    /// The machines, apart where reasons or what keeps them differ.
    pub(in crate::plan) parts: Vec<Part<'a>>,
}

/// Machines that move for the same reasons and are held by the same.
pub(in crate::plan) struct Part<'a> {
    /// Their pools.
    pub(in crate::plan) pools: BTreeSet<Option<&'a Name>>,
    /// Why they move.
    pub(in crate::plan) why: &'a [MoveReason],
    /// What keeps them.
    pub(in crate::plan) held: &'a [Held],
    /// Who they are.
    pub(in crate::plan) nodes: Vec<&'a str>,
}

impl Alike<'_> {
    /// How many machines there are.
    pub(in crate::plan) fn count(&self) -> usize {
        self.parts.iter().map(|part| part.nodes.len()).sum()
    }
}

/// Every machine that moves, by what is done to it, the hardest first.
pub(in crate::plan) fn alike(plan: &Plan) -> Vec<Alike<'_>> {
    type BlockKey = (Reverse<EffectClass>, Option<u32>);
    let pools = |node: &NodeMove| (Reverse(node.effect), node.effects);
    let mut several: BTreeMap<BlockKey, BTreeSet<Option<&Name>>> = BTreeMap::new();
    for node in &plan.nodes {
        several.entry(pools(node)).or_default().insert(node.pool.as_ref());
    }
    type PartKey<'a> = (Option<&'a Name>, &'a [Held], &'a [MoveReason]);
    let mut blocks: BTreeMap<BlockKey, BTreeMap<PartKey<'_>, Part<'_>>> = BTreeMap::new();
    for node in &plan.nodes {
        let NodeMove { pool, why, held, .. } = node;
        let key = pools(node);
        let apart = pool.as_ref().filter(|_| several[&key].len() <= APART);
        let block = blocks.entry(key).or_default();
        let part = block.entry((apart, held, why)).or_insert_with(|| Part {
            pools: BTreeSet::new(),
            why,
            held,
            nodes: Vec::new(),
        });
        part.pools.insert(pool.as_ref());
        part.nodes.push(node.node.as_str());
    }
    blocks
        .into_iter()
        .map(|((Reverse(class), effects), parts)| Alike { class, effects, parts: parts.into_values().collect() })
        .collect()
}

/// Machines that one gate keeps.
pub(in crate::plan) struct Kept<'a> {
    /// What keeps them.
    pub(in crate::plan) held: &'a Held,
    /// Who they are.
    pub(in crate::plan) nodes: Vec<&'a str>,
}

/// Every machine that is held, by what keeps it; a machine that two keep is in both.
pub(in crate::plan) fn kept(plan: &Plan) -> Vec<Kept<'_>> {
    let mut by: BTreeMap<&Held, Vec<&str>> = BTreeMap::new();
    for node in &plan.nodes {
        for held in &node.held {
            by.entry(held).or_default().push(node.node.as_str());
        }
    }
    by.into_iter().map(|(held, nodes)| Kept { held, nodes }).collect()
}

/// `16 reboot, 36 service restart`, the hardest first.
pub(in crate::plan) fn classes(classes: &BTreeMap<EffectClass, usize>) -> String {
    let words: Vec<String> = classes
        .iter()
        .rev()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| format!("{count} {}", said(*class)))
        .collect();
    words.join(", ")
}

/// A class in words.
pub(in crate::plan) const fn said(class: EffectClass) -> &'static str {
    match class {
        EffectClass::None => "no effect",
        EffectClass::Live => "live",
        EffectClass::ServiceRestart => "service restart",
        EffectClass::Drain => "drain",
        EffectClass::Reboot => "reboot",
        EffectClass::Reimage => "reimage",
        EffectClass::Wipe => "wipe",
    }
}

/// `pool/h100`, `pool/gpu-[00-39]`, or that there is none.
pub(in crate::plan) fn pool_words(pools: &BTreeSet<Option<&Name>>) -> String {
    let names: Vec<String> = pools.iter().flatten().map(|pool| format!("pool/{pool}")).collect();
    // Two or three are known by their names; more are a range, or a list that is cut.
    let words = match names.len() {
        0..=3 => names.join(", "),
        _ => names::in_room(&names::fold(names.iter().map(String::as_str)), 40),
    };
    match (pools.contains(&None), words.is_empty()) {
        (false, _) => words,
        (true, true) => "no pool".to_owned(),
        (true, false) => format!("{words} and no pool"),
    }
}

/// A moment for people.
pub(in crate::plan) fn moment(at: Timestamp) -> String {
    Moment(at).to_string()
}

/// Names in at most `room` characters.
pub(in crate::plan) fn few(nodes: &[&str], room: usize) -> String {
    names::in_room(&names::fold(nodes.iter().copied()), room)
}

/// What keeps machines, in words: the gate, which one, until when, and who answers for it.
pub(in crate::plan) fn keeper(held: &Held, plan: &Plan) -> String {
    let until = held.until.map_or_else(String::new, |until| format!(" until {}", moment(until)));
    let brake = plan.brakes.iter().find(|brake| brake.kind == held.gate && brake.name == held.by);
    let whose = brake.map_or_else(String::new, |brake| format!(" ({}: {})", brake.owner, brake.reason));
    let waves = if held.gate == GateWord::Rollout { ", which goes in waves; this version begins none" } else { "" };
    let ends = if brake.is_some_and(|brake| brake.ends) {
        ", which this commit ends: they go with the next commit (an empty one will do)"
    } else {
        ""
    };
    if held.gate == GateWord::Bind && held.by == UNNAMED {
        return "a commit that names this plan".to_owned();
    }
    format!("{}{until}{whose}{waves}{ends}", gate(held))
}

/// The gate, and which one.
pub(in crate::plan) fn gate(held: &Held) -> String {
    let by = &held.by;
    match held.gate {
        GateWord::Freeze => by.clone(),
        GateWord::Pin => format!("the pin of {by}"),
        GateWord::Suspend => format!("the suspension of {by}"),
        GateWord::Rollout => by.clone(),
        GateWord::Bind => format!("binding: {by}"),
        GateWord::Protected | GateWord::Prune | GateWord::Dependents => format!("{}: {by}", held.gate),
    }
}
