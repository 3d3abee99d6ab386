//! Brakes: what keeps changes away for a time. Freezes, pins and suspensions, of documents in a tree and of those that
//! were stored; `cordon` keeps work away, not changes, and is no brake.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Fleet, Located,
    kind::{Freeze, FreezeRule, Hold},
    window::{Standing, Window},
};
use crate::{
    name::Name,
    node::words,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

words! {
    /// What kind of brake it is.
    BrakeKind {
        /// No change from a time until a time, or in a weekly window.
        Freeze = "freeze",
        /// One machine stays as it is.
        Pin = "pin",
        /// A person stopped the changes of a part of the fleet.
        Suspend = "suspend",
    }
}

/// What a brake keeps changes away from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// The whole fleet.
    Fleet,
    /// The machines of sites and pools, and single machines.
    Objects(Vec<ObjectRef>),
}

/// One brake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brake {
    /// What it is.
    pub kind: BrakeKind,
    /// The object that says it, `freeze/year-end`, `pool/h100`, `node/fra1-r12`; a freeze inside the fleet file is
    /// `freeze/NAME` as well.
    pub name: String,
    /// What it keeps changes away from.
    pub scope: Scope,
    /// Who can answer for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// When it begins; at once when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The weekly window in which it holds; always when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Where it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Brake {
    /// Whether it holds at an instant, and when that changes.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing {
        let over = |at: Timestamp| self.until.is_some_and(|until| until <= at);
        let begin = self.from.map_or(now, |from| from.max(now));
        if over(begin) {
            return Standing { holds: false, next_edge: None };
        }
        let inside = self.window.as_ref().map_or(Standing { holds: true, next_edge: None }, |w| w.standing(begin));
        if begin > now {
            let first = if inside.holds { Some(begin) } else { inside.next_edge };
            return Standing { holds: false, next_edge: first.filter(|at| !over(*at)) };
        }
        let edge = if inside.holds {
            inside.next_edge.into_iter().chain(self.until).min()
        } else {
            inside.next_edge.filter(|at| !over(*at))
        };
        Standing { holds: inside.holds, next_edge: edge }
    }

    /// Whether it speaks of a machine.
    #[must_use]
    pub fn covers(&self, node: &str, pool: Option<&str>, site: Option<&str>) -> bool {
        match &self.scope {
            Scope::Fleet => true,
            Scope::Objects(objects) => objects.iter().any(|object| match object.kind {
                Kind::Node => object.name.as_str() == node,
                Kind::Pool => pool == Some(object.name.as_str()),
                Kind::Site => site == Some(object.name.as_str()),
                _ => false,
            }),
        }
    }

    fn hold(kind: BrakeKind, object: &ObjectRef, hold: &Located<Hold>) -> Self {
        let scope = if object.kind == Kind::Fleet { Scope::Fleet } else { Scope::Objects(vec![object.clone()]) };
        Self {
            kind,
            name: object.to_string(),
            scope,
            owner: hold.owner.value.clone(),
            reason: hold.reason.value.clone(),
            from: None,
            until: hold.until.as_ref().map(|until| until.value),
            window: None,
            place: place(hold),
        }
    }

    fn freeze(name: &str, scope: Scope, rule: &FreezeRule, place: Option<String>) -> Self {
        Self {
            kind: BrakeKind::Freeze,
            name: format!("freeze/{name}"),
            scope,
            owner: rule.owner.value.clone(),
            reason: rule.reason.value.clone(),
            from: rule.from.as_ref().map(|from| from.value),
            until: rule.until.as_ref().map(|until| until.value),
            window: rule.window.clone(),
            place,
        }
    }

    fn of_freeze(freeze: &Freeze, place: Option<String>) -> Self {
        let scope = Scope::Objects(freeze.scope.iter().map(|object| object.value.clone()).collect());
        Self::freeze(&freeze.name, scope, &freeze.rule, place)
    }
}

fn place<T>(value: &Located<T>) -> Option<String> {
    (!value.at.file.is_empty()).then(|| value.at.to_string())
}

/// What documents that carry brakes have in common.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Held {
    suspend: Option<Located<Hold>>,
    pin: Option<Located<Hold>>,
    freeze: std::collections::BTreeMap<String, Located<FreezeRule>>,
}

/// The brakes of a document that was stored. Places are not stored.
#[must_use]
pub fn of_document(kind: Kind, name: &Name, document: &Value) -> Vec<Brake> {
    let object = ObjectRef::new(kind, name.clone());
    match kind {
        Kind::Freeze => {
            let freeze: Option<Freeze> = serde_json::from_value(document.clone()).ok();
            freeze.iter().map(|freeze| Brake::of_freeze(freeze, None)).collect()
        }
        Kind::Fleet | Kind::Site | Kind::Pool | Kind::Node => {
            // Only these keys are looked at: another version may have written others.
            let keys = ["suspend", "pin", "freeze"];
            let held = keys.iter().filter_map(|key| Some((key.to_string(), document.get(*key)?.clone()))).collect();
            let held: Held = serde_json::from_value(Value::Object(held)).unwrap_or_default();
            let suspend = held.suspend.iter().map(|hold| Brake::hold(BrakeKind::Suspend, &object, hold));
            let pin = held.pin.iter().map(|hold| Brake::hold(BrakeKind::Pin, &object, hold));
            let freezes = held.freeze.iter().map(|(name, rule)| Brake::freeze(name, Scope::Fleet, rule, None));
            suspend.chain(pin).chain(freezes).collect()
        }
        _ => Vec::new(),
    }
}

impl Fleet {
    /// Every brake that a document says, by name.
    #[must_use]
    pub fn brakes(&self) -> Vec<Brake> {
        let mut brakes: Vec<Brake> = Vec::new();
        let mut hold = |kind, of: Kind, name: &Name, hold: Option<&Located<Hold>>| {
            brakes.extend(hold.map(|hold| Brake::hold(kind, &ObjectRef::new(of, name.clone()), hold)));
        };
        hold(BrakeKind::Suspend, Kind::Fleet, &self.document.name, self.document.suspend.as_ref());
        for site in self.sites.values() {
            hold(BrakeKind::Suspend, Kind::Site, &site.name, site.suspend.as_ref());
        }
        for pool in self.pools.values() {
            hold(BrakeKind::Suspend, Kind::Pool, &pool.name, pool.suspend.as_ref());
        }
        for node in self.nodes.values() {
            hold(BrakeKind::Suspend, Kind::Node, &node.name, node.suspend.as_ref());
            hold(BrakeKind::Pin, Kind::Node, &node.name, node.pin.as_ref());
        }
        let own = self.document.freeze.iter();
        brakes.extend(own.map(|(name, rule)| Brake::freeze(name, Scope::Fleet, rule, place(rule))));
        brakes.extend(self.freezes.values().map(|freeze| Brake::of_freeze(freeze, Some(freeze.at.to_string()))));
        brakes.sort_by(|a, b| (&a.name, a.kind).cmp(&(&b.name, b.kind)));
        brakes
    }
}

#[cfg(test)]
mod tests;
