//! The plan: what a commit would change, computed and never guessed.
//!
//! [`plan`] is a pure function of a [`Fleet`], of what is [`Observed`] and of the time: no database, no clock, no
//! network, and the same input gives the same bytes. The offline `plan --base A --head B` and the live one differ in
//! nothing but where [`Observed`] comes from. Only `schema::fleet::load` makes a [`Fleet`], and only for a tree without
//! an error, so a broken tree cannot be planned, let alone be read as "those objects are gone".
//!
//! A [`Plan`] is what people and machines look at. [`Planned`] carries with it the exact rows that `apply` writes, so
//! that what is done is what was shown.

mod delta;
mod diff;
mod gates;
mod machines;
mod objects;
mod observed;
mod render;
mod types;

#[cfg(test)]
mod tests;

pub use delta::{Delta, HoldRow, NodeRow, ObjectRow, ObjectStanding, PoolRow, TargetRow};
pub use diff::{FieldChange, diff};
pub(crate) use machines::cordon;
pub use observed::{
    Machines, Observed, ObservedHold, ObservedNode, ObservedObject, ObservedPool, ObservedTarget, Shown,
};
pub use render::{RenderOptions, render};
pub use types::{
    Bind, CapacityImpact, Change, Counts, Gate, GateWord, Held, HoldChange, Inputs, MoveReason, MovedChange, NodeMove,
    ObjectChange, ObservedFrom, Plan, PlanBrake, PoolPlan, ReservationImpact, TargetChange, TenantImpact, Verification,
    Wait, Warning, Wave,
};

use std::collections::BTreeMap;

use schema::{canonical, digest::Digest, fleet::Fleet, time::Timestamp};

/// A plan and the rows that carry it out. Only [`plan`] makes one.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What is shown.
    pub plan: Plan,
    pub(crate) delta: Delta,
}

impl Planned {
    /// Names the commit that the plan leads to.
    #[must_use]
    pub fn at_commit(mut self, commit: &str) -> Self {
        self.plan.commit = Some(commit.to_owned());
        self
    }

    /// Whether carrying it out would write nothing but the commit itself.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.delta.is_empty()
    }
}

impl Plan {
    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("a plan holds no fractions and serialises")
    }

    /// The digest of what the plan was made of: two plans of the same trees and facts have the same, whatever the commits
    /// are called.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical::digest(&self.inputs).expect("inputs serialise")
    }
}

/// Computes what has to change so that the fleet is in force. `now` decides which holds have ended.
#[must_use]
pub fn plan(fleet: &Fleet, observed: &Observed, now: Timestamp) -> Planned {
    let mut delta = Delta::default();
    let removals = gates::judge(fleet, observed);
    let objects = objects::compare(fleet, observed, &removals, &mut delta);
    let machines = machines::compare(fleet, observed, &removals, now, &mut delta);
    let mut warnings = machines.warnings;
    warnings.extend(gates::without_effect(fleet, observed));
    warnings.sort();
    delta.holds = removals.holds();
    let held: Vec<_> = delta
        .holds
        .iter()
        .map(|hold| (&hold.subject, hold.gate.as_str(), hold.reason.as_str(), hold.until))
        .collect();
    let stored: Vec<_> = observed
        .holds
        .iter()
        .map(|hold| (&hold.subject, hold.gate.as_str(), hold.reason.as_str(), hold.until))
        .collect();
    delta.holds_change = held != stored;

    let count = |change: Change| objects.changes.iter().filter(|object| object.change == change).count();
    let counts = Counts {
        create: count(Change::Create),
        update: count(Change::Update),
        restore: count(Change::Restore),
        remove: count(Change::Remove),
        retain: count(Change::Retain),
        held: count(Change::Hold),
        unchanged: objects.unchanged,
        machines: machines.total,
        moves: machines.moves.len(),
        undeclared: machines.undeclared,
        awaited: machines.awaited,
        waiting: 0,
        moved: 0,
    };
    Planned {
        plan: Plan {
            format: 1,
            base: observed.commit.clone(),
            commit: None,
            inputs: Inputs::default(),
            verification: Verification::Unverified,
            counts,
            objects: objects.changes,
            targets: machines.targets,
            pools: machines.pools,
            nodes: machines.moves,
            holds: machines.holds,
            gates: removals.gates,
            moved: Vec::new(),
            effects: Vec::new(),
            classes: BTreeMap::new(),
            brakes: Vec::new(),
            bind: None,
            reservations: None,
            tenants: None,
            capacity: None,
            warnings,
        },
        delta,
    }
}
