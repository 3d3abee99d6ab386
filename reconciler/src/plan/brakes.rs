//! Brakes in a plan: which freezes, pins and suspensions there are, which machines they cover, and what goes on when they
//! end.
//!
//! A brake of a document that is gone holds on: absence lifts nothing. A document that says it no more lifts it, and so
//! does a freeze's own `removed` once that is granted; a pinned machine or a suspended pool is let go before it can be
//! removed. Lifting is a commit of its own: what waited goes with it, and what the same commit changes or removes waits for
//! the next one, however often the commit is planned. What somebody suspended by hand ends at once.

use std::collections::{BTreeMap, BTreeSet};

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

use super::{GateWord, Held, HoldRow, Observed, PlanBrake, Wait, identity::Identity, in_order::InOrder};

/// One brake and how it stands.
struct One {
    brake: Brake,
    standing: Standing,
    /// This commit ends or narrows it.
    ends: bool,
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
        removals: &Lifted<'_>,
        now: Timestamp,
    ) -> Self {
        let mut brakes = fleet.brakes();
        // Those in force that the commit may end; the ones that it ended when it was planned before are among them.
        let mut former: Vec<Brake> = removals.before.iter().map(|brake| identity.brake(brake.clone())).collect();
        let mut declared = InOrder::new(declared.iter().map(|(object, entry)| (*object, *entry)));
        for (object, held) in &observed.objects {
            let entry = declared.find(object);
            if entry.is_some_and(|entry| entry.digest == held.digest) {
                continue;
            }
            let place = format!("{}:{}", held.file, held.line);
            let stored = brake::of_document(object.kind, &object.name, &held.doc).into_iter();
            let stored = stored.map(|brake| Brake { place: Some(place.clone()), ..identity.brake(brake) });
            if entry.is_some() || removals.granted.contains(object) {
                former.extend(stored);
            } else {
                brakes.extend(stored);
            }
        }
        former.retain(|old| old.standing(now).holds && !brakes.iter().any(|new| says_as_much(new, old, now)));
        former.sort_by(|a, b| (&a.name, a.kind, &a.place).cmp(&(&b.name, b.kind, &b.place)));
        former.dedup();
        brakes.extend(observed.suspensions.iter().cloned());
        let mut brakes: Vec<(Brake, bool)> = brakes.into_iter().map(|brake| (brake, false)).collect();
        brakes.extend(former.into_iter().map(|brake| (brake, true)));
        brakes.sort_by(|(a, x), (b, y)| (&a.name, a.kind, &a.place, x).cmp(&(&b.name, b.kind, &b.place, y)));
        let mut this = Self::default();
        for (brake, ends) in brakes {
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
            this.all.push(One { brake, standing, ends, machines: 0, returns: BTreeMap::new() });
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

    /// Whether one ends with this commit.
    pub(super) fn ends(&self, index: usize) -> bool {
        self.all[index].ends
    }

    /// Those that this commit ends, for the next time that it is planned.
    pub(super) fn ending(&self) -> Vec<Brake> {
        self.all.iter().filter(|one| one.ends).map(|one| one.brake.clone()).collect()
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

    /// What holds the removal of an object: a brake of the whole fleet, or one on the object or on what it belongs to. A
    /// freeze keeps no freeze from being removed, or two of the fleet would keep each other.
    pub(super) fn on_removal(&self, objects: &[ObjectRef], of_freeze: bool) -> Option<Wait> {
        let holds = |one: &&One| one.standing.holds && !(of_freeze && one.brake.kind == BrakeKind::Freeze);
        let one = self.on(objects).into_iter().map(|index| &self.all[index]).find(holds)?;
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
                reason: if one.ends {
                    let waiting = machines(waiting);
                    format!(
                        "{}; the commit ends it, and what it changes goes with the next one ({waiting} waiting)",
                        one.brake.reason
                    )
                } else {
                    format!("{} ({} waiting)", one.brake.reason, machines(waiting))
                },
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
            .map(|One { brake, standing, ends, machines, returns }| PlanBrake {
                kind: word(brake.kind),
                name: brake.name,
                scope: match brake.scope {
                    Scope::Fleet => None,
                    Scope::Objects(objects) => Some(objects),
                },
                owner: brake.owner,
                reason: brake.reason,
                active: standing.holds,
                ends,
                until: brake.until,
                next: standing.next_edge,
                place: brake.place,
                machines,
                returns,
            })
            .collect()
    }
}

/// What this commit may lift.
pub(super) struct Lifted<'l> {
    /// Freezes whose removal is granted.
    pub(super) granted: &'l BTreeSet<ObjectRef>,
    /// What the commit ended when it was planned before.
    pub(super) before: &'l [Brake],
}

/// Whether a brake that comes holds wherever and as long as one in force does.
fn says_as_much(new: &Brake, old: &Brake, now: Timestamp) -> bool {
    let scope = match (&new.scope, &old.scope) {
        (Scope::Fleet, _) => true,
        (Scope::Objects(_), Scope::Fleet) => false,
        (Scope::Objects(new), Scope::Objects(old)) => old.iter().all(|object| new.contains(object)),
    };
    let until = new.until.is_none_or(|new| old.until.is_some_and(|old| old <= new));
    let window = new.window.is_none() || new.window == old.window;
    scope && until && window && new.standing(now).holds
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
