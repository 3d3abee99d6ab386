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
use serde_json::Value;

use super::Observed;

/// Limits in force.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Policy {
    /// How much one revision may remove.
    pub(super) prune: Prune,
    /// How a revision is applied.
    pub(super) apply: Apply,
}

impl Policy {
    /// The policy of the fleet document in force; the new one's only when there is none. A stored document that says
    /// nothing readable about limits has none.
    pub(super) fn in_force(fleet: &Fleet, observed: &Observed) -> Self {
        // A commit that lifts a limit is held to it for as long as it is the one in force.
        if let Some(policy) = &observed.policy {
            return Self::deserialize(policy).unwrap_or_default();
        }
        match observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet) {
            Some((_, held)) => Self::deserialize(&*held.doc).unwrap_or_default(),
            None => Self { prune: fleet.document.prune.clone(), apply: fleet.document.apply.clone() },
        }
    }

    /// The words of the fleet document in force that are its policy, for a commit that is planned again.
    pub(crate) fn words(observed: &Observed) -> Option<Value> {
        observed.policy.clone().or_else(|| {
            let (_, held) = observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet)?;
            let words =
                ["prune", "apply"].iter().filter_map(|key| Some(((*key).to_owned(), held.doc.get(*key)?.clone())));
            Some(Value::Object(words.collect()))
        })
    }

    /// From which class on effects go only as they were shown.
    pub(super) fn bind(&self) -> Option<EffectClass> {
        self.apply.bind.as_ref().map(|bind: &Located<EffectClass>| bind.value)
    }
}
