//! What a plan was made of, as one digest.
//!
//! The facts are those that decided something: the objects that change, the machines that move. A machine that joins
//! elsewhere, an object of another pool, a report or a label that nobody reads is not among them, and neither is the time:
//! a freeze decides when a change goes and not what it is. So what was shown does not grow stale by itself.

use std::fmt::Write as _;

use schema::{canonical, digest::Digest, fleet::Fleet};

use super::{Inputs, Machines, Observed, ObservedFrom, Plan, policy::Policy};

/// What renders, compares and classifies: another version of it may find otherwise.
const RENDERER: &str = concat!("better-compute ", env!("CARGO_PKG_VERSION"), ", plan 1");

pub(super) fn of(fleet: &Fleet, observed: &Observed, policy: &Policy, plan: &Plan) -> Inputs {
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
        facts: Digest::of(facts(observed, plan)),
    }
}

/// One line for each fact.
fn facts(observed: &Observed, plan: &Plan) -> String {
    let text = |digest: Option<Digest>| digest.map(|digest| digest.to_string()).unwrap_or_default();
    let mut out = String::new();
    for change in &plan.objects {
        let before = text(observed.objects.get(&change.object).map(|held| held.digest));
        let _ = writeln!(out, "object {} {before}", change.object);
    }
    for target in &plan.targets {
        let _ = writeln!(out, "target {} {} {}", target.pool, target.profile, text(target.before));
    }
    for node in &plan.nodes {
        let (before, after) = (text(node.before_spec), text(node.after_spec));
        let _ = writeln!(out, "node {} {} {before} {after}", node.node, text(node.before));
    }
    out
}
