//! What a plan does to machines: what hosts become, what is done to whom, in which order, and whom it touches who booked.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    effect::{EffectAction, EffectClass},
    name::Name,
    object::Kind,
};
use serde_json::Value;

use super::{Fold, count, more, named};
use crate::plan::{
    FieldChange, MoveReason, Plan, PoolPlan, TargetChange, Wave,
    render::{
        groups::{self, Alike, Part},
        lines::Room,
        page::{Ink, Line},
        values,
    },
};

/// What differs on hosts, each difference once with all pools for which it is the same.
pub(super) fn targets(plan: &Plan, fold: Fold) -> Vec<Line> {
    let mut all = Told::default();
    for (index, target) in plan.targets.iter().enumerate() {
        let fields = told(plan, target);
        match (target.before, fields.is_empty()) {
            (None, _) => all.new.push(index),
            (Some(_), true) => all.as_said.push(index),
            (Some(_), false) => fields.into_iter().for_each(|field| all.add(field, index)),
        }
    }
    let of = |hosts: &[usize]| -> Vec<&TargetChange> { hosts.iter().map(|index| &plan.targets[*index]).collect() };
    let simple = [(all.new, "are described for the first time"), (all.as_said, "change as the files above say")];
    let simple = simple.into_iter().filter(|(hosts, _)| !hosts.is_empty());
    let mut groups: Vec<(Vec<usize>, String, Vec<FieldChange>)> =
        simple.map(|(hosts, what)| (hosts, what.to_owned(), Vec::new())).collect();
    let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for (field, hosts) in all.fields {
        let at = *known.entry(hosts).or_insert_with_key(|hosts| {
            groups.push((hosts.clone(), change_of(&of(hosts)), Vec::new()));
            groups.len() - 1
        });
        groups[at].2.push(field);
    }
    let shown = named(groups.len(), fold);
    let mut out = Vec::new();
    for (hosts, what, fields) in &groups[..shown] {
        let pools = of(hosts).iter().map(|target| Some(&target.pool)).collect();
        out.push(
            Line::new(2).with(Ink::Bold, &groups::pool_words(&pools)).with(Ink::Plain, &format!(": hosts {what}")),
        );
        let fields: Vec<&FieldChange> = fields.iter().collect();
        out.extend(values::fields(&fields, Room { indent: 6, most: fold.most, width: fold.width }));
    }
    out.extend(more(groups.len(), shown, " kinds of hosts", 2));
    out
}

/// `with profile/gpu-host change:`.
fn change_of(hosts: &[&TargetChange]) -> String {
    let profiles: BTreeSet<&Name> = hosts.iter().map(|target| &target.profile).collect();
    let names: Vec<String> = profiles.iter().take(3).map(|profile| format!("profile/{profile}")).collect();
    match profiles.len() {
        0..=3 => format!("with {} change:", names.join(", ")),
        more => format!("with {} and {} change:", names.join(", "), count(more - 3, "more profile")),
    }
}

/// What there is to tell of hosts, by the indices of targets.
#[derive(Default)]
struct Told {
    /// Nothing was said of them before.
    new: Vec<usize>,
    /// Nothing that the change of a file does not say already.
    as_said: Vec<usize>,
    /// What differs, and on which.
    fields: Vec<(FieldChange, Vec<usize>)>,
    /// Places in `fields`, by path.
    paths: BTreeMap<String, Vec<usize>>,
}

impl Told {
    fn add(&mut self, field: FieldChange, host: usize) {
        let places = self.paths.entry(field.path.clone()).or_default();
        let known = places.iter().copied().find(|at| {
            let other = &self.fields[*at].0;
            other.place == field.place && same_change(other, &field)
        });
        let Some(at) = known else {
            places.push(self.fields.len());
            self.fields.push((field, vec![host]));
            return;
        };
        let (other, hosts) = &mut self.fields[at];
        // The longest of lists that change alike stands for all of them.
        if items(&field.after).len() > items(&other.after).len() {
            *other = field;
        }
        hosts.push(host);
    }
}

fn items(value: &Option<Value>) -> &[Value] {
    match value {
        Some(Value::Array(items)) => items,
        _ => &[],
    }
}

/// Whether two fields change in the same way: what comes into a list and what goes from it is the same, whatever else is in
/// it.
fn same_change(one: &FieldChange, other: &FieldChange) -> bool {
    if one.before == other.before && one.after == other.after {
        return true;
    }
    let lists = [&one.before, &one.after, &other.before, &other.after];
    if !lists.into_iter().flatten().all(Value::is_array) {
        return false;
    }
    let (gone, come) = differs(one);
    !(gone.is_empty() && come.is_empty()) && (gone, come) == differs(other)
}

/// What goes from a list, and what comes into it.
fn differs(field: &FieldChange) -> (Vec<&Value>, Vec<&Value>) {
    let (before, after) = (items(&field.before), items(&field.after));
    let gone = before.iter().filter(|item| !after.contains(item));
    (gone.collect(), after.iter().filter(|item| !before.contains(item)).collect())
}

/// What is to be told of a target: without what the profile's own change says already, and without what templates see
/// of a profile, which repeats it.
fn told(plan: &Plan, target: &TargetChange) -> Vec<FieldChange> {
    let files =
        || plan.objects.iter().filter(|object| object.object.kind != Kind::Node).flat_map(|object| &object.fields);
    let lines = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).is_some_and(|text| text.contains('\n'));
    let said = |field: &FieldChange| {
        files().any(|other| {
            let same_place = field.path.ends_with(&other.path) || lines(&other.before) || lines(&other.after);
            same_place && same_change(other, field)
        })
    };
    let repeats =
        |field: &FieldChange| field.path.starts_with("values.profile.") || field.path == "values.pool.profile";
    target.fields.iter().filter(|field| !repeats(field) && !said(field)).cloned().collect()
}

/// What is done to machines, each list once with the machines it meets.
pub(super) fn effects(plan: &Plan, fold: Fold) -> Vec<Line> {
    let blocks = groups::alike(plan);
    let shown = named(blocks.len(), fold);
    let mut out = Vec::new();
    for block in &blocks[..shown] {
        out.extend(self::block(plan, block, fold));
    }
    if blocks.len() > shown {
        let machines: usize = blocks[shown..].iter().map(Alike::count).sum();
        let what = format!(" kinds of change, on {}", count(machines, "machine"));
        out.extend(more(blocks.len(), shown, &what, 2));
    }
    out
}

fn block(plan: &Plan, block: &Alike<'_>, fold: Fold) -> Vec<Line> {
    let class = groups::said(block.class);
    let mut out = vec![
        Line::new(2).with(ink(block.class), class).with(Ink::Plain, &format!(", {}", count(block.count(), "machine"))),
    ];
    let parts = named(block.parts.len(), fold);
    out.extend(block.parts[..parts].iter().flat_map(|part| self::part(part, fold)));
    out.extend(more(block.parts.len(), parts, " groups of machines", 6));
    let list = block.effects.and_then(|index| plan.effects.get(usize::try_from(index).ok()?));
    let Some(list) = list else {
        out.push(Line::new(4).with(Ink::Dim, "nothing is done on the host"));
        return out;
    };
    let items = named(list.items.len(), fold);
    for item in &list.items[..items] {
        let cause = item.cause.as_ref().map_or_else(String::new, |cause| format!("  because of {cause}"));
        let verb = match item.action {
            EffectAction::Stage => format!("stage for {}:", groups::said(item.class)),
            EffectAction::Pin => "hold, without installing:".to_owned(),
            EffectAction::Unpin => "hold no longer:".to_owned(),
            action => action.to_string(),
        };
        let ink = if item.class >= EffectClass::Drain { ink(item.class) } else { Ink::Plain };
        out.push(Line::new(4).with(ink, &format!("{verb} {}", item.subject)).with(Ink::Dim, &cause));
    }
    out.extend(more(list.items.len(), items, "", 4));
    out
}

fn part(part: &Part<'_>, fold: Fold) -> Vec<Line> {
    let pool = groups::pool_words(&part.pools);
    let held: Vec<String> = part.held.iter().map(groups::gate).collect();
    let held = if held.is_empty() { String::new() } else { format!("  held by {}", held.join(" and ")) };
    let names = groups::few(&part.nodes, room(fold, pool.len() + 10));
    let why: Vec<String> = part.why.iter().filter(|why| **why != MoveReason::Target).map(said).collect();
    let mark = if part.held.is_empty() { Line::new(6) } else { Line::marked(6, '!') };
    let mut out = vec![mark.with(Ink::Bold, &pool).with(Ink::Plain, &format!("  {names}")).with(Ink::Bad, &held)];
    if !why.is_empty() {
        out.push(Line::new(8).with(Ink::Dim, &why.join("; ")));
    }
    out
}

/// In which order pools and waves go. Pools that go in the same way stand on one line.
pub(super) fn order(plan: &Plan, fold: Fold) -> Vec<Line> {
    let mut ways: Vec<(String, Vec<&PoolPlan>)> = Vec::new();
    for pool in plan.pools.iter().filter(|pool| pool.moves > 0 || pool.waves.is_some()) {
        let way = way(pool);
        match ways.iter_mut().find(|(other, pools)| *other == way && pools[0].waves.is_none() && pool.waves.is_none()) {
            Some((_, pools)) => pools.push(pool),
            None => ways.push((way, vec![pool])),
        }
    }
    let shown = named(ways.len(), fold);
    let mut out = Vec::new();
    for (way, pools) in &ways[..shown] {
        let sum = |of: fn(&PoolPlan) -> usize| pools.iter().map(|pool| of(pool)).sum::<usize>();
        let (moves, machines, held) = (sum(|pool| pool.moves), sum(|pool| pool.machines), sum(|pool| pool.held));
        let held = if held > 0 { format!(", {held} held") } else { String::new() };
        out.push(
            Line::new(2)
                .with(Ink::Bold, &groups::pool_words(&pools.iter().map(|pool| Some(&pool.pool)).collect()))
                .column(20)
                .with(Ink::Plain, &format!("{moves} of {}{held}", count(machines, "machine")))
                .with(Ink::Dim, &format!("  {way}")),
        );
        out.extend(waves(pools[0].waves.as_deref().unwrap_or_default(), fold));
    }
    out.extend(more(ways.len(), shown, " pools", 2));
    out
}

fn way(pool: &PoolPlan) -> String {
    let how = match (&pool.waves, pool.strategy.as_str()) {
        (Some(waves), _) => format!("in {}", count(waves.len(), "wave")),
        (None, "immediate") => "all at once".to_owned(),
        (None, strategy) => strategy.to_owned(),
    };
    match &pool.rollout {
        Some(rollout) => format!("{how}, by rollout/{rollout}"),
        None => format!("{how} (no rollout is named)"),
    }
}

fn waves(waves: &[Wave], fold: Fold) -> Vec<Line> {
    let shown = named(waves.len(), fold);
    let lines = waves[..shown].iter().map(|wave| {
        let nodes: Vec<&str> = wave.machines.iter().map(Name::as_str).collect();
        let mut names = groups::few(&nodes, room(fold, 48));
        if wave.count > nodes.len() && !nodes.is_empty() {
            names.push_str(" …");
        }
        let mut then: Vec<String> = wave.soak.iter().map(|soak| format!("soaks {soak}")).collect();
        then.extend(wave.gates.iter().map(|gate| format!("waits for {gate}")));
        then.extend(wave.earliest.iter().map(|earliest| format!("not before {}", groups::moment(*earliest))));
        let then = if then.is_empty() { String::new() } else { format!("; {}", then.join(", ")) };
        Line::new(4)
            .with(Ink::Plain, &format!("{:>2}. {}, ", wave.index, count(wave.count, "machine")))
            .with(ink(wave.effect), groups::said(wave.effect))
            .with(Ink::Dim, &then)
            .with(Ink::Plain, &format!("  {names}"))
    });
    lines.chain(more(waves.len(), shown, " waves", 4)).collect()
}

/// Whom it touches who booked, where anybody books.
pub(super) fn bookings(plan: &Plan, fold: Fold) -> Vec<Line> {
    let mut out = Vec::new();
    let reservations = plan.reservations.as_deref().unwrap_or_default();
    let shown = named(reservations.len(), fold);
    for booking in &reservations[..shown] {
        let nodes: Vec<&str> = booking.machines.iter().map(Name::as_str).collect();
        let until = booking.until.map_or_else(String::new, |until| format!(", until {}", groups::moment(until)));
        out.push(
            Line::new(2)
                .with(Ink::Bold, &format!("{} of tenant/{}", booking.reservation, booking.tenant))
                .with(Ink::Plain, &format!("{until}: {} on {}", groups::said(booking.effect), groups::few(&nodes, 60))),
        );
    }
    out.extend(more(reservations.len(), shown, " bookings", 2));
    let tenants = plan.tenants.as_deref().unwrap_or_default();
    let shown = named(tenants.len(), fold);
    out.extend(tenants[..shown].iter().map(|tenant| {
        let what = format!(": {} move, {}", count(tenant.machines, "booked machine"), groups::said(tenant.effect));
        Line::new(2).with(Ink::Bold, &format!("tenant/{}", tenant.tenant)).with(Ink::Plain, &what)
    }));
    out.extend(more(tenants.len(), shown, " tenants", 2));
    let capacity = plan.capacity.as_deref().unwrap_or_default();
    let shown = named(capacity.len(), fold);
    out.extend(capacity[..shown].iter().map(|pool| {
        let what = format!(": {} → {} can be booked", pool.before, pool.after);
        Line::new(2).with(Ink::Bold, &format!("pool/{}", pool.pool)).with(Ink::Plain, &what)
    }));
    out.extend(more(capacity.len(), shown, " pools", 2));
    out
}

/// What is left of a line for names.
const fn room(fold: Fold, taken: usize) -> usize {
    let left = fold.width.saturating_sub(taken);
    if fold.most == usize::MAX {
        usize::MAX
    } else if left < 24 {
        24
    } else {
        left
    }
}

/// The look of a class.
pub(in crate::plan) const fn ink(class: EffectClass) -> Ink {
    match class {
        EffectClass::None => Ink::Dim,
        EffectClass::Live => Ink::Good,
        EffectClass::ServiceRestart | EffectClass::Drain => Ink::Attention,
        EffectClass::Reboot | EffectClass::Reimage | EffectClass::Wipe => Ink::Bad,
    }
}

fn said(why: &MoveReason) -> String {
    let none = |name: &Option<Name>| name.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    match why {
        MoveReason::Target => "what the hosts should be changes".to_owned(),
        MoveReason::Membership { from, to } => format!("pool {} → {}", none(from), none(to)),
        MoveReason::Site { from, to } => format!("site {} → {}", none(from), none(to)),
        MoveReason::Profile { from, to } => format!("own profile {} → {}", none(from), none(to)),
        MoveReason::Labels => "labels change".to_owned(),
        MoveReason::First => "told for the first time what to be".to_owned(),
        MoveReason::Behind => "behind what it should be already".to_owned(),
        MoveReason::Declaration { declared: true } => "a document names it".to_owned(),
        MoveReason::Declaration { declared: false } => "its document goes".to_owned(),
    }
}
