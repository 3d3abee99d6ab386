//! Brakes: what keeps changes away for a time. Freezes, pins and suspensions, of documents in a tree and of those that
//! were stored; `cordon` keeps work away, not changes, and is no brake.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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

use super::SourceRef;

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

impl Scope {
    fn of(object: &ObjectRef) -> Self {
        if object.kind == Kind::Fleet { Self::Fleet } else { Self::Objects(vec![object.clone()]) }
    }
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
        Self {
            kind,
            name: object.to_string(),
            scope: Scope::of(object),
            owner: hold.owner.value.clone(),
            reason: hold.reason.value.clone(),
            from: None,
            until: hold.until.as_ref().map(|until| until.value),
            window: None,
            place: place(hold),
        }
    }

    /// A brake of which only the subject is known.
    fn unreadable(kind: BrakeKind, name: String, scope: Scope) -> Self {
        let (owner, reason) =
            ("unknown".to_owned(), "another version wrote this, and this one cannot read it".to_owned());
        Self { kind, name, scope, owner, reason, from: None, until: None, window: None, place: None }
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

/// `file:line`, as the places of what is stored are.
fn line_of(at: &SourceRef) -> String {
    format!("{}:{}", at.file, at.line())
}

fn place<T>(value: &Located<T>) -> Option<String> {
    (!value.at.file.is_empty()).then(|| line_of(&value.at))
}

/// The brakes of a document that was stored. Places are not stored. Each is read by itself, and what this version cannot
/// read, because another one wrote it, holds: a brake never opens by being misunderstood.
#[must_use]
pub fn of_document(kind: Kind, name: &Name, document: &Value) -> Vec<Brake> {
    fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
        T::deserialize(value).ok()
    }
    let object = ObjectRef::new(kind, name.clone());
    let mut brakes = Vec::new();
    if kind == Kind::Freeze {
        let brake = read::<Freeze>(document).map(|freeze| Brake::of_freeze(&freeze, None));
        brakes.push(brake.unwrap_or_else(|| {
            let scope = document.get("scope").and_then(read::<Vec<ObjectRef>>).map_or(Scope::Fleet, Scope::Objects);
            Brake::unreadable(BrakeKind::Freeze, format!("freeze/{name}"), scope)
        }));
        return brakes;
    }
    let carries: &[(&str, BrakeKind)] = match kind {
        Kind::Fleet | Kind::Site | Kind::Pool => &[("suspend", BrakeKind::Suspend)],
        Kind::Node => &[("suspend", BrakeKind::Suspend), ("pin", BrakeKind::Pin)],
        _ => return brakes,
    };
    for (key, kind) in carries {
        let Some(value) = document.get(*key) else { continue };
        let hold = read::<Located<Hold>>(value).map(|hold| Brake::hold(*kind, &object, &hold));
        brakes.push(hold.unwrap_or_else(|| Brake::unreadable(*kind, object.to_string(), Scope::of(&object))));
    }
    let freezes = document.get("freeze").and_then(Value::as_object).filter(|_| kind == Kind::Fleet);
    for (name, value) in freezes.into_iter().flatten() {
        let rule = read::<FreezeRule>(value).map(|rule| Brake::freeze(name, Scope::Fleet, &rule, None));
        let unreadable = || Brake::unreadable(BrakeKind::Freeze, format!("freeze/{name}"), Scope::Fleet);
        brakes.push(rule.unwrap_or_else(unreadable));
    }
    brakes
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
        brakes.extend(self.freezes.values().map(|freeze| Brake::of_freeze(freeze, Some(line_of(&freeze.at)))));
        brakes.sort_by(|a, b| (&a.name, a.kind).cmp(&(&b.name, b.kind)));
        brakes
    }
}

#[cfg(test)]
mod tests;
