//! Waves as a rollout says them, for the machines of a plan: how many go when, and what has to be so before the next ones
//! go. Which machines a number or a share picks is decided when a run begins; only a selector names them now.

use std::collections::BTreeMap;

use schema::{
    effect::EffectClass,
    fleet::{Fleet, Strategy, kind},
    name::Name,
    time::Timestamp,
};

use super::{NodeMove, Observed, Plan, Wave};

/// Machines of one wave that are named, at most.
const NAMED: usize = 50;

/// Gives every pool that goes in waves and has machines to move its waves.
pub(super) fn foresee(fleet: &Fleet, observed: &Observed, now: Timestamp, plan: &mut Plan) {
    if plan.pools.iter().all(|pool| pool.strategy != "waves") {
        return;
    }
    let labels: BTreeMap<&Name, &BTreeMap<String, String>> =
        observed.nodes.iter().map(|node| (&node.name, &*node.labels)).collect();
    for pool in &mut plan.pools {
        let Some(Strategy::Waves { rollout }) = fleet.pools.get(&pool.pool).map(|pool| fleet.strategy(pool)) else {
            continue;
        };
        let Some(rollout) = fleet.rollouts.get(&rollout) else { continue };
        let moves: Vec<&NodeMove> = plan
            .nodes
            .iter()
            .filter(|node| node.pool.as_ref() == Some(&pool.pool) && node.effect > EffectClass::None)
            .filter(|node| node.before.is_some())
            .collect();
        if !moves.is_empty() {
            pool.waves = Some(waves(rollout, &moves, &labels, now));
        }
    }
}

fn waves(
    rollout: &kind::Rollout,
    moves: &[&NodeMove],
    labels: &BTreeMap<&Name, &BTreeMap<String, String>>,
    now: Timestamp,
) -> Vec<Wave> {
    let hardest = |of: &[&NodeMove]| of.iter().map(|node| node.effect).max().unwrap_or(EffectClass::None);
    let earliest = rollout.window.as_ref().and_then(|window| {
        let standing = window.value.standing(now);
        standing.next_edge.filter(|_| !standing.holds)
    });
    let gates: Vec<String> = rollout.gate.iter().map(|gate| gate.value.as_str().to_owned()).collect();
    let mut left: Vec<&NodeMove> = moves.to_vec();
    let mut done = 0;
    let mut found = Vec::new();
    for (index, wave) in rollout.wave.iter().enumerate() {
        let wave = &wave.value;
        // A number or a share counts everybody who has the change when the wave is done.
        let upto = match (&wave.nodes, &wave.percent) {
            (Some(nodes), _) => Some(nodes.value as usize),
            (None, Some(percent)) => {
                let share = (moves.len() * usize::from(percent.value.as_percent())).div_ceil(100);
                Some(share)
            }
            (None, None) => None,
        };
        let (machines, count, effect) = if let Some(upto) = upto {
            let count = upto.min(moves.len()).saturating_sub(done);
            (Vec::new(), count, hardest(&left))
        } else {
            let picked = |node: &&NodeMove| {
                let own = labels.get(&node.node);
                wave.selector.iter().all(|(key, value)| own.and_then(|own| own.get(key)) == Some(&value.value))
            };
            let (inside, outside): (Vec<&NodeMove>, Vec<&NodeMove>) = left.iter().copied().partition(picked);
            left = outside;
            let names = inside.iter().take(NAMED).map(|node| node.node.clone()).collect();
            (names, inside.len(), hardest(&inside))
        };
        done += count;
        found.push(Wave {
            index: index + 1,
            machines,
            count,
            effect,
            soak: wave.soak.as_ref().map(|soak| soak.value.to_string()),
            gates: gates.clone(),
            earliest: earliest.filter(|_| index == 0),
        });
    }
    found
}
