//! The limits that a plan is held to: those of the fleet document in force, never the ones that the plan itself brings.

use schema::{
    diagnostic::SourceRef,
    effect::EffectClass,
    fleet::{
        Fleet, Located,
        brake::Brake,
        kind::{Apply, Prune},
    },
    object::{Kind, ObjectRef},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Observed, Warning};

/// Limits in force.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Policy {
    /// How much one revision may remove.
    pub(super) prune: Prune,
    /// How a revision is applied.
    pub(super) apply: Apply,
    /// Which of the two this version cannot read; it holds.
    #[serde(skip)]
    unreadable: Vec<&'static str>,
}

/// What a commit did when it was planned before, so that it does not go further the next time.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Memory {
    /// The brakes that it ends.
    pub(super) ends: Vec<Brake>,
    /// The objects that it removed.
    pub(super) removed_objects: usize,
    /// The machines' documents among them.
    pub(super) removed_nodes: usize,
}

impl Memory {
    pub(super) fn of(observed: &Observed) -> Self {
        let known = observed.policy.as_ref().and_then(|policy| policy.get("memory"));
        known.and_then(|known| Self::deserialize(known).ok()).unwrap_or_default()
    }
}

impl Policy {
    /// The policy of the fleet document in force; the new one's only when there is none.
    pub(super) fn in_force(fleet: &Fleet, observed: &Observed) -> Self {
        // A commit that lifts a limit is held to it for as long as it is the one in force.
        if let Some(policy) = &observed.policy {
            return Self::read(policy);
        }
        match observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet) {
            Some((_, held)) => Self::read(&held.doc),
            None => Self {
                prune: fleet.document.prune.clone(),
                apply: fleet.document.apply.clone(),
                unreadable: Vec::new(),
            },
        }
    }

    /// A stored document that another version wrote may say what this one cannot read: then nothing is removed, and nothing
    /// goes unseen. A limit never opens by being misunderstood.
    fn read(document: &Value) -> Self {
        let mut this = Self::default();
        let zero = || Located::new(0, SourceRef::default());
        match document.get("prune").map(Prune::deserialize) {
            None => {}
            Some(Ok(prune)) => this.prune = prune,
            Some(Err(_)) => {
                this.prune.max_objects = Some(zero());
                this.unreadable.push("prune");
            }
        }
        match document.get("apply").map(Apply::deserialize) {
            None => {}
            Some(Ok(apply)) => this.apply = apply,
            Some(Err(_)) => {
                this.apply.bind = Some(Located::new(EffectClass::Live, SourceRef::default()));
                this.unreadable.push("apply");
            }
        }
        this
    }

    /// What is worth knowing about limits that cannot be read.
    pub(super) fn warnings(&self, fleet: &Fleet) -> impl Iterator<Item = Warning> {
        self.unreadable.iter().map(|member| Warning {
            object: ObjectRef::new(Kind::Fleet, fleet.document.name.clone()),
            message: format!("another version wrote `{member}` of the fleet in force and this one cannot read it, so that it holds everything"),
            place: None,
            note: false,
        })
    }

    /// The words of the fleet document in force that are its policy, and what the commit does, for when it is planned again.
    pub(super) fn words(observed: &Observed, memory: &Memory) -> Option<Value> {
        let mut words = observed.policy.clone().or_else(|| {
            let (_, held) = observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet)?;
            let words =
                ["prune", "apply"].iter().filter_map(|key| Some(((*key).to_owned(), held.doc.get(*key)?.clone())));
            Some(Value::Object(words.collect()))
        })?;
        words.as_object_mut()?.insert("memory".to_owned(), serde_json::to_value(memory).ok()?);
        Some(words)
    }

    /// Where the binding in force is written: in the new files when they have it too, else where it was.
    pub(super) fn bind_place(&self, fleet: &Fleet, observed: &Observed) -> Option<String> {
        self.apply.bind.as_ref()?;
        if let Some(bind) = &fleet.document.apply.bind {
            return Some(format!("{}:{}", bind.at.file, bind.at.line()));
        }
        let (_, held) = observed.objects.iter().find(|(object, _)| object.kind == Kind::Fleet)?;
        Some(format!("{}:{}", held.file, held.line))
    }

    /// From which class on effects go only as they were shown.
    pub(super) fn bind(&self) -> Option<EffectClass> {
        self.apply.bind.as_ref().map(|bind: &Located<EffectClass>| bind.value)
    }
}
