//! Brakes in a plan: which freezes, pins and suspensions there are, which machines they cover, and what goes on when they
//! end.
//!
//! A brake of a document that is gone holds on: absence lifts nothing. A document that says it no more lifts it, and so
//! does a freeze's own `removed`; a pinned machine or a suspended pool is let go before it can be removed.

use std::collections::BTreeMap;

use schema::{
    effect::EffectClass,
    fleet::{
        Fleet, ObjectEntry,
        brake::{self, Brake, BrakeKind, Scope},
        window::Standing,
    },
    name::Name,
    object::{Kind, ObjectRef},
    time::Timestamp,
};

use super::{GateWord, Held, HoldRow, Observed, PlanBrake, Wait, identity::Identity};

/// One brake and how it stands.
struct One {
    brake: Brake,
    standing: Standing,
    machines: usize,
    returns: BTreeMap<EffectClass, usize>,
}

/// Every brake.
#[derive(Default)]
pub(super) struct Brakes {
    all: Vec<One>,
    everywhere: Vec<usize>,
    by_object: BTreeMap<ObjectRef, Vec<usize>>,
}

impl Brakes {
    pub(super) fn of(
        fleet: &Fleet,
        observed: &Observed,
        identity: &Identity<'_>,
        declared: &BTreeMap<&ObjectRef, &ObjectEntry>,
        now: Timestamp,
    ) -> Self {
        let mut brakes = fleet.brakes();
        let lifted = |object: &ObjectRef| {
            object.kind == Kind::Freeze && fleet.removed.iter().any(|removed| removed.name == *object)
        };
        for (object, held) in observed.objects.iter().filter(|(object, _)| !declared.contains_key(object)) {
            if lifted(object) {
                continue;
            }
            let place = format!("{}:{}", held.file, held.line);
            let kept = brake::of_document(object.kind, &object.name, &held.doc).into_iter();
            brakes.extend(kept.map(|brake| Brake { place: Some(place.clone()), ..identity.brake(brake) }));
        }
        brakes.extend(observed.suspensions.iter().cloned());
        brakes.sort_by(|a, b| (&a.name, a.kind, &a.place).cmp(&(&b.name, b.kind, &b.place)));
        let mut this = Self::default();
        for brake in brakes {
            let standing = brake.standing(now);
            if !standing.holds && standing.next_edge.is_none() {
                continue;
            }
            let index = this.all.len();
            match &brake.scope {
                Scope::Fleet => this.everywhere.push(index),
                Scope::Objects(objects) => {
                    for object in objects {
                        this.by_object.entry(object.clone()).or_default().push(index);
                    }
                }
            }
            this.all.push(One { brake, standing, machines: 0, returns: BTreeMap::new() });
        }
        this
    }

    /// The brakes on any of these objects, each once.
    fn on(&self, objects: &[ObjectRef]) -> Vec<usize> {
        let named = objects.iter().filter_map(|object| self.by_object.get(object)).flatten();
        let mut found: Vec<usize> = self.everywhere.iter().chain(named).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Counts a machine for every brake that covers it; those that hold now.
    pub(super) fn look(&mut self, machine: &Covered<'_>) -> Vec<usize> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let mut found = self.on(&machine.objects());
        for index in &found {
            self.all[*index].machines += 1;
        }
        found.retain(|index| self.all[*index].standing.holds);
        found
    }

    /// A machine that should move is held by one of them, and goes on when it ends.
    pub(super) fn hold(&mut self, index: usize, class: EffectClass) -> Held {
        let one = &mut self.all[index];
        *one.returns.entry(class).or_default() += 1;
        Held { gate: word(one.brake.kind), by: one.brake.name.clone(), until: one.standing.next_edge }
    }

    /// What holds the removal of an object: a brake of the whole fleet, or one on the object or on what it belongs to.
    pub(super) fn on_removal(&self, objects: &[ObjectRef]) -> Option<Wait> {
        let one = self.on(objects).into_iter().map(|index| &self.all[index]).find(|one| one.standing.holds)?;
        Some(Wait::Brake {
            gate: word(one.brake.kind),
            by: one.brake.name.clone(),
            reason: one.brake.reason.clone(),
            until: one.standing.next_edge,
        })
    }

    /// When one begins or ends next.
    pub(super) fn next_edge(&self) -> Option<Timestamp> {
        self.all.iter().filter_map(|one| one.standing.next_edge).min()
    }

    /// The stored holds of those that hold machines: one for each.
    pub(super) fn holds(&self) -> Vec<HoldRow> {
        let mut rows: BTreeMap<(ObjectRef, GateWord), HoldRow> = BTreeMap::new();
        for one in self.all.iter().filter(|one| !one.returns.is_empty()) {
            let Ok(subject) = one.brake.name.parse::<ObjectRef>() else { continue };
            let gate = word(one.brake.kind);
            let waiting: usize = one.returns.values().sum();
            rows.entry((subject.clone(), gate)).or_insert_with(|| HoldRow {
                subject,
                gate,
                owner: one.brake.owner.clone(),
                reason: format!("{} ({} waiting)", one.brake.reason, machines(waiting)),
                until: one.standing.next_edge,
                place: one.brake.place.clone(),
            });
        }
        rows.into_values().collect()
    }

    /// The same for people.
    pub(super) fn into_plan(self) -> Vec<PlanBrake> {
        self.all
            .into_iter()
            .map(|One { brake, standing, machines, returns }| PlanBrake {
                kind: word(brake.kind),
                name: brake.name,
                scope: match brake.scope {
                    Scope::Fleet => None,
                    Scope::Objects(objects) => Some(objects),
                },
                owner: brake.owner,
                reason: brake.reason,
                active: standing.holds,
                until: brake.until,
                next: standing.next_edge,
                place: brake.place,
                machines,
                returns,
            })
            .collect()
    }
}

pub(super) fn machines(count: usize) -> String {
    format!("{count} {}", if count == 1 { "machine" } else { "machines" })
}

const fn word(kind: BrakeKind) -> GateWord {
    match kind {
        BrakeKind::Freeze => GateWord::Freeze,
        BrakeKind::Pin => GateWord::Pin,
        BrakeKind::Suspend => GateWord::Suspend,
    }
}

/// Where a machine is and comes to: leaving a frozen pool is a change of it, too.
pub(super) struct Covered<'m> {
    /// The machine.
    pub(super) node: &'m Name,
    /// Its pools.
    pub(super) pools: [Option<&'m Name>; 2],
    /// Its sites.
    pub(super) sites: [Option<&'m Name>; 2],
}

impl Covered<'_> {
    fn objects(&self) -> Vec<ObjectRef> {
        let of = |kind: Kind, names: [Option<&Name>; 2]| {
            names.into_iter().flatten().map(move |name| ObjectRef::new(kind, name.clone())).collect::<Vec<_>>()
        };
        let mut objects = vec![ObjectRef::new(Kind::Node, self.node.clone())];
        objects.extend(of(Kind::Pool, self.pools));
        objects.extend(of(Kind::Site, self.sites));
        objects
    }
}
