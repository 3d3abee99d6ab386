//! What keeps a machine from moving, and the holds that are stored of it.

use std::collections::BTreeMap;

use schema::{
    effect::EffectClass,
    fleet::Strategy,
    name::Name,
    object::{Kind, ObjectRef},
};

use super::{Moves, Scene, candidate::Candidate};
use crate::plan::{
    GateWord, Held, HoldRow, bind,
    brakes::{Brakes, machines as counted},
    effects::Change,
};

/// Everything that keeps a machine from moving; what is told nothing new, or for the first time, goes. A machine whose spec
/// cannot be made is held like one that is told: it would be told as soon as the spec can be made.
pub(super) fn held(
    scene: &Scene<'_>,
    candidate: &Candidate<'_>,
    change: &Change,
    brakes: &mut Brakes,
    out: &mut Moves,
) -> Vec<Held> {
    let Candidate { node, wanted, .. } = candidate;
    let is_told = change.is_told();
    if node.assigned.is_none() || !(is_told || candidate.leaves_its_pool() || candidate.leaves_its_site()) {
        return Vec::new();
    }
    let class = change.class();
    let mut held: Vec<Held> = candidate.brakes.iter().map(|index| brakes.hold(*index, class)).collect();
    // One that is narrowed holds as it was and as it comes.
    held.sort();
    held.dedup();
    if !is_told {
        return held;
    }
    if let Some(Strategy::Waves { rollout }) = wanted.declared_pool.map(|pool| scene.fleet.strategy(pool)) {
        held.push(Held { gate: GateWord::Rollout, by: format!("rollout/{rollout}"), until: None });
    }
    let one = bind::Move {
        node: &node.name,
        pool: wanted.pool,
        declared: wanted.declared,
        behind: node.target == wanted.target && node.target_overlay == *wanted.overlay,
        before: node.assigned,
        after: wanted.target,
        before_spec: change.before,
        after_spec: change.after,
        effect: class,
        unknown: change.failed.is_some() || change.blind.is_some(),
    };
    if let Some(unshown) =
        scene.bind.and_then(|class| bind::judge(class, &scene.observed.shown, &scene.observed.missing, &one))
    {
        out.unshown += 1;
        held.push(unshown);
    }
    held.sort();
    held
}

/// Machines that rollouts and binding hold, for each pool: one stored hold for each gate and pool.
#[derive(Default)]
pub(super) struct Waiting {
    pools: BTreeMap<(Name, GateWord), (usize, String)>,
}

impl Waiting {
    pub(super) fn note(&mut self, candidate: &Candidate<'_>, held: &[Held]) {
        let Some(pool) = candidate.wanted.pool.or(candidate.node.pool.as_ref()) else { return };
        for held in held.iter().filter(|held| matches!(held.gate, GateWord::Rollout | GateWord::Bind)) {
            let waiting = self.pools.entry((pool.clone(), held.gate)).or_insert_with(|| (0, held.by.clone()));
            waiting.0 += 1;
        }
    }

    pub(super) fn rows(self, scene: &Scene<'_>) -> Vec<HoldRow> {
        let place = |pool: &Name| {
            let at = &scene.fleet.pools.get(pool)?.at;
            Some(format!("{}:{}", at.file, at.line()))
        };
        self.pools
            .into_iter()
            .map(|((pool, gate), (count, by))| {
                let reason = match gate {
                    GateWord::Rollout => format!("{by} goes in waves ({} waiting)", counted(count)),
                    _ => {
                        let class = scene.bind.unwrap_or(EffectClass::None);
                        format!(
                            "{class} and harder goes only as a plan that the commit names shows it ({} waiting)",
                            counted(count)
                        )
                    }
                };
                let place = match gate {
                    GateWord::Bind => scene.bind_place.map(str::to_owned),
                    _ => place(&pool),
                };
                let subject = ObjectRef::new(Kind::Pool, pool);
                HoldRow { subject, gate, owner: "source".to_owned(), reason, until: None, place }
            })
            .collect()
    }
}
