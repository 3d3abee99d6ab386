//! What a plan was made of, as one digest.
//!
//! The facts are those that decided something: the machines that move, the objects that change, the brakes that hold. A
//! machine that joins elsewhere, an object of another pool, a report or a label that nobody reads is not among them, so
//! that what was shown does not grow stale by itself.

use std::fmt::Write as _;

use schema::{canonical, digest::Digest, fleet::Fleet};

use super::{Change, Inputs, Machines, Observed, ObservedFrom, Plan, brakes::Brakes, observed::text, policy::Policy};

/// What renders, compares and classifies: another version of it may find otherwise.
const RENDERER: &str = concat!("better-compute ", env!("CARGO_PKG_VERSION"), ", plan 1");

pub(super) fn of(fleet: &Fleet, observed: &Observed, policy: &Policy, brakes: &Brakes, plan: &Plan) -> Inputs {
    let from = match observed.machines {
        Machines::Declared => ObservedFrom::Offline,
        Machines::Joined => ObservedFrom::Live,
    };
    Inputs {
        observed: from,
        base_tree: observed.tree,
        tree: Some(fleet.tree),
        policy: canonical::digest(policy).expect("limits serialise"),
        renderer: RENDERER.to_owned(),
        facts: Digest::of(facts(observed, brakes, plan)),
    }
}

/// One line for each fact.
fn facts(observed: &Observed, brakes: &Brakes, plan: &Plan) -> String {
    let mut out = String::new();
    for change in &plan.objects {
        let before = observed.objects.get(&change.object).map(|held| held.digest.to_string()).unwrap_or_default();
        let _ = writeln!(out, "object {} {} {before}", change.object, word(change.change));
    }
    for target in &plan.targets {
        let before = target.before.map(|before| before.to_string()).unwrap_or_default();
        let _ = writeln!(out, "target {} {} {before}", target.pool, target.profile);
    }
    for node in &plan.nodes {
        let digest = |digest: Option<Digest>| digest.map(|digest| digest.to_string()).unwrap_or_default();
        let held: Vec<&str> = node.held.iter().map(|held| held.gate.as_str()).collect();
        let _ = writeln!(
            out,
            "node {} {} {} {} {}",
            node.node,
            digest(node.before),
            digest(node.before_spec),
            digest(node.after_spec),
            held.join(",")
        );
    }
    for hold in &plan.holds {
        let _ = writeln!(out, "cordon {}", text(hold));
    }
    for gate in &plan.gates {
        let _ = writeln!(out, "gate {}", text(gate));
    }
    for (name, kind) in brakes.holding() {
        let _ = writeln!(out, "brake {name} {kind}");
    }
    out
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::Create => "create",
        Change::Update => "update",
        Change::Restore => "restore",
        Change::Remove => "remove",
        Change::Retain => "retain",
        Change::Hold => "hold",
    }
}
