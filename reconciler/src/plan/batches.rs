//! Batches: which machines a document that this commit brings asks for, and what else that disturbs.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    fleet::{Batch, Fleet},
    name::Name,
    object::Kind,
};

use super::{BatchPool, Change, ObjectChange, Observed, PlanBatch};

/// A machine as the fleet that comes describes it.
struct Machine<'a> {
    name: &'a Name,
    pool: Option<&'a Name>,
    site: Option<&'a Name>,
    labels: BTreeMap<String, String>,
    cordoned: bool,
}

/// Every batch whose document comes, changes or goes.
pub(super) fn of(fleet: &Fleet, view: &Observed, changes: &[ObjectChange]) -> Vec<PlanBatch> {
    let mut all = Vec::new();
    let changed: Vec<&ObjectChange> = changes.iter().filter(|change| change.object.kind == Kind::Batch).collect();
    if changed.is_empty() {
        return all;
    }
    let machines = machines(fleet, view);
    for change in changed {
        match fleet.batches.get(&change.object.name) {
            Some(batch) => all.push(planned(fleet, view, batch, change.change, &machines)),
            // What goes needs no list: nothing more of it begins.
            None => all.extend(gone(view, change)),
        }
    }
    all
}

fn machines<'a>(fleet: &'a Fleet, view: &'a Observed) -> Vec<Machine<'a>> {
    let mut machines: BTreeMap<&Name, Machine<'a>> = BTreeMap::new();
    for node in &view.nodes {
        let document = fleet.nodes.get(&node.name);
        let pool = document.and_then(|node| node.pool.as_ref()).map(|pool| &pool.value).or(node.pool.as_ref());
        let site = pool.and_then(|pool| fleet.pools.get(pool)).map(|pool| &pool.site.value).or(node.site.as_ref());
        let labels = match document {
            Some(document) => document.labels.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect(),
            None => node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        };
        let cordoned = document.map_or(node.hold.is_some(), |node| node.cordon.is_some());
        machines.insert(&node.name, Machine { name: &node.name, pool, site, labels, cordoned });
    }
    machines.into_values().collect()
}

fn planned(fleet: &Fleet, view: &Observed, batch: &Batch, change: Change, machines: &[Machine<'_>]) -> PlanBatch {
    let inside: Vec<&Machine<'_>> = machines
        .iter()
        .filter(|machine| batch.covers(machine.name, machine.pool, machine.site, &machine.labels))
        .collect();
    let names: BTreeSet<&Name> = inside.iter().map(|machine| machine.name).collect();
    let mut pools: BTreeMap<Option<&Name>, usize> = BTreeMap::new();
    for machine in &inside {
        *pools.entry(machine.pool).or_default() += 1;
    }
    let pools = pools
        .into_iter()
        .map(|(pool, nodes)| BatchPool {
            pool: pool.cloned(),
            nodes,
            machines: machines.iter().filter(|machine| machine.pool == pool).count(),
            budget: pool
                .and_then(|pool| fleet.pools.get(pool)?.policy.as_ref()?.disruption_budget.as_ref())
                .map(|budget| budget.value.clone()),
        })
        .collect();
    let boots = matches!(batch.command.value.as_str(), "node.reboot" | "node.reimage");
    let staged = view.boots.iter().flatten().filter(|name| boots && names.contains(name)).cloned().collect();
    PlanBatch {
        name: batch.name.clone(),
        change,
        command: batch.command.value.to_string(),
        reason: batch.reason.value.clone(),
        staged,
        cordoned: inside.iter().filter(|machine| machine.cordoned).map(|machine| machine.name.clone()).collect(),
        nodes: names.into_iter().cloned().collect(),
        pools,
        not_before: batch.not_before.as_ref().map(|at| at.value),
        expires: batch.expires.value,
        max_in_flight: batch.max_in_flight.as_ref().map_or(1, |most| most.value),
        max_failures: batch.max_failures.as_ref().map_or(0, |most| most.value),
        spread: batch.spread.as_ref().map(|key| key.value.clone()),
    }
}

fn gone(view: &Observed, change: &ObjectChange) -> Option<PlanBatch> {
    let doc = &view.objects.get(&change.object)?.doc;
    let text = |key: &str| doc.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    Some(PlanBatch {
        name: change.object.name.clone(),
        change: change.change,
        command: text("command"),
        reason: text("reason"),
        nodes: Vec::new(),
        pools: Vec::new(),
        staged: Vec::new(),
        cordoned: Vec::new(),
        not_before: None,
        expires: text("expires").parse().ok()?,
        max_in_flight: 1,
        max_failures: 0,
        spread: None,
    })
}
