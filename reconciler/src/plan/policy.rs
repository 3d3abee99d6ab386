//! The limits that a plan is held to: those of the fleet document in force, never the ones that the plan itself brings.

use schema::{
    effect::EffectClass,
    fleet::{
        Fleet, Located,
        kind::{Apply, Prune},
    },
    object::Kind,
};
use serde::{Deserialize, Serialize};

use super::Observed;

/// Limits in force.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    /// How much one revision may remove.
    pub(super) prune: Prune,
    /// How a revision is applied.
    pub(super) apply: Apply,
}

impl Policy {
    /// The policy of the fleet document in force; the new one's only when there is none. A stored document that says
    /// nothing readable about limits has none.
    pub(super) fn in_force(fleet: &Fleet, observed: &Observed) -> Self {
        match observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet) {
            Some((_, held)) => Self::deserialize(&*held.doc).unwrap_or_default(),
            None => Self { prune: fleet.document.prune.clone(), apply: fleet.document.apply.clone() },
        }
    }

    /// From which class on effects go only as they were shown.
    pub(super) fn bind(&self) -> Option<EffectClass> {
        self.apply.bind.as_ref().map(|bind: &Located<EffectClass>| bind.value)
    }
}
