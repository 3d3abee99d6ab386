//! Which machines of a batch are next, and what the others wait for. Pure: the batch, its machines and the pools in, a choice out.
//!
//! A batch begins with the first machine by name. It has `max-in-flight` in hand at most, never machines of two failure domains
//! at once, and takes none that is cordoned or away, nor one whose pool has as many disturbed machines as it allows.

use std::collections::{BTreeMap, BTreeSet};

use schema::{name::Name, node::Connectivity};
use store::batches::{InPool, Leaf, LeafState, Machine};

use super::resolve::{self, Differs};

/// What a machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// Its session.
    Session,
    /// Its cordon to be lifted.
    Uncordon,
    /// The machine to hear the name that it was given: it knows itself by the one before.
    Name,
    /// Somebody to stand by its name and its pool, which no process of this control plane wrote.
    Place,
    /// Others of its pool to be back.
    Budget,
    /// Machines of another failure domain to be done.
    Domain,
    /// Others of the batch to be done.
    Turn,
}

impl WaitsFor {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "unreachable",
            Self::Uncordon => "cordoned",
            Self::Name => "renamed",
            Self::Place => "place-unproven",
            Self::Budget => "disruption-budget",
            Self::Domain => "spread",
            Self::Turn => "max-in-flight",
        }
    }
}

/// What is next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// Machines to begin with, by their index.
    pub go: Vec<u32>,
    /// Machines that are not those of their leaves any more, by their index, with the reason.
    pub changed: Vec<(u32, Differs)>,
    /// What the others wait for, by their index.
    pub waits: BTreeMap<u32, WaitsFor>,
    /// How many have a command in hand.
    pub in_flight: usize,
}

/// How many machines of a pool may be disturbed at once; `None` when its document does not say. A share is of all its machines,
/// rounded down and one at least.
#[must_use]
pub fn budget(text: Option<&str>, machines: u32) -> Option<u32> {
    let text = text?;
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u64 = percent.parse().ok()?;
            let share = u64::from(machines) * percent / 100;
            Some(u32::try_from(share.max(u64::from(percent > 0))).unwrap_or(u32::MAX))
        }
        None => text.parse().ok(),
    }
}

/// So many begin in one step: a transaction that holds pools is short.
pub const AT_A_STEP: usize = 64;

/// Chooses.
#[must_use]
pub fn choose(leaves: &[Leaf], pools: &[InPool], max_in_flight: u32, spread: Option<&str>) -> Choice {
    let mut choice = Choice::default();
    let mut room: BTreeMap<&Name, u32> = BTreeMap::new();
    for pool in pools {
        if let Some(most) = budget(pool.budget.as_deref(), pool.machines) {
            room.insert(&pool.pool, most.saturating_sub(pool.disturbed));
        }
    }
    let sent: Vec<&Leaf> = leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).collect();
    choice.in_flight = sent.len();
    let mut domain: Option<String> =
        spread.and_then(|key| sent.first().map(|leaf| domain_of(key, leaf, leaf.machine.as_ref())));
    let mut free = (max_in_flight as usize).saturating_sub(sent.len()).min(AT_A_STEP);
    for leaf in leaves.iter().filter(|leaf| leaf.state == LeafState::Waiting) {
        let Some(machine) = &leaf.machine else {
            choice.changed.push((leaf.index, Differs::Machine("it is gone")));
            continue;
        };
        let approved = leaf.leaf.as_deref().and_then(pki::batch::Leaf::read);
        if let Some(why) = approved.and_then(|approved| resolve::differs(&approved, machine)) {
            choice.changed.push((leaf.index, why));
            continue;
        }
        let own = spread.map(|key| domain_of(key, leaf, Some(machine)));
        let waits = if !machine.vouched {
            Some(WaitsFor::Place)
        } else if machine.connectivity != Connectivity::Connected {
            Some(WaitsFor::Session)
        } else if machine.cordoned {
            Some(WaitsFor::Uncordon)
        } else if machine.renamed {
            Some(WaitsFor::Name)
        } else if free == 0 {
            Some(WaitsFor::Turn)
        } else if own.is_some() && domain.is_some() && own != domain {
            Some(WaitsFor::Domain)
        } else if machine.pool.as_ref().and_then(|pool| room.get(pool)) == Some(&0) {
            Some(WaitsFor::Budget)
        } else {
            None
        };
        match waits {
            Some(waits) => _ = choice.waits.insert(leaf.index, waits),
            None => {
                free -= 1;
                domain = domain.or(own);
                if let Some(room) = machine.pool.as_ref().and_then(|pool| room.get_mut(pool)) {
                    *room -= 1;
                }
                choice.go.push(leaf.index);
            }
        }
    }
    choice.in_flight += choice.go.len();
    choice
}

/// The failure domain of a machine. One without the label stands for itself.
fn domain_of(key: &str, leaf: &Leaf, machine: Option<&Machine>) -> String {
    let value = machine.and_then(|machine| machine.labels.get(key));
    value.map_or_else(|| format!("node/{}", leaf.node), |value| format!("{key}={value}"))
}

/// The pools of machines that could be next.
#[must_use]
pub fn pools_of(leaves: &[Leaf]) -> Vec<Name> {
    let waiting = leaves.iter().filter(|leaf| leaf.state == LeafState::Waiting);
    let pools: BTreeSet<Name> = waiting.filter_map(|leaf| leaf.machine.as_ref()?.pool.clone()).collect();
    pools.into_iter().collect()
}
