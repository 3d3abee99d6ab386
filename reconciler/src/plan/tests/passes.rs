//! Two plans in a row: what holds in the first one holds in the second, whatever the first one wrote.

use schema::{effect::EffectClass as Class, time::Timestamp};

use super::{BASE, HEAD, OTHER, POOL, SITE, fleet, in_force, model, name, node, now, object};
use crate::plan::{GateWord, MoveReason, Observed, Plan, Planned, RenderOptions, Wait, plan, render};

const LATER: &str = "2026-12-02T00:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn gates(plan: &Plan) -> Vec<(&str, Vec<GateWord>)> {
    plan.nodes.iter().map(|node| (node.node.as_str(), node.held.iter().map(|held| held.gate).collect())).collect()
}

fn freeze(scope: &str) -> String {
    format!(
        "freeze \"x\" {{\n  scope \"{scope}\"\n  reason \"sales\"\n  owner \"ada\"\n  until \"2026-12-01T00:00:00Z\"\n}}\n"
    )
}

fn swapped() -> String {
    BASE.replace("10", "1")
}

/// A commit that is planned again and again does no more than at first.
fn stands(head: &schema::fleet::Fleet, before: &Observed) -> (Planned, Observed) {
    let first = plan(head, before, now());
    let mut observed = model::again(before, &first);
    for _ in 0..3 {
        let next = plan(head, &observed, now());
        assert!(next.is_settled(), "{:#?}", next.delta);
        assert_eq!(gates(&next.plan), gates(&first.plan));
        observed = model::again(&observed, &next);
    }
    for (after, before) in observed.nodes.iter().zip(&before.nodes) {
        assert_eq!((after.assigned, &after.site), (before.assigned, &before.site));
    }
    (first, observed)
}

/// A commit on top that changes nothing.
fn next(observed: &Observed) -> Observed {
    Observed { policy: None, ..observed.clone() }
}

#[test]
fn a_machine_of_a_frozen_site_stays_in_it_while_its_pool_goes_elsewhere() {
    let sites = [SITE, &SITE.replace("fra1", "ber1")].concat();
    let frozen = freeze("site/fra1");
    let base = fleet(&[("sites.kdl", &sites), ("f.kdl", &frozen)]);
    let before = in_force(&base, &[("a", "h100")]);
    let there = POOL.replace("fra1", "ber1");
    let files = [("sites.kdl", sites.as_str()), ("f.kdl", frozen.as_str()), ("h100.kdl", there.as_str())];
    let (swap, files_of) = (swapped(), |more: &[(&'static str, &str)]| {
        let mut all: Vec<(&str, &str)> = files.to_vec();
        all.extend(more.iter().map(|(file, text)| (*file, *text)));
        fleet(&all)
    });
    let head = files_of(&[("base.kdl", &swap)]);
    let (first, after) = stands(&head, &before);
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Freeze])]);
    let thawed = model::apply(&after, &plan(&head, &after, at(LATER)));
    assert_eq!((&thawed.nodes[0].site, thawed.nodes[0].assigned), (&Some(name("ber1")), thawed.nodes[0].target));

    // The site first, when nothing is told, and the change afterwards: the same.
    let moved = files_of(&[]);
    let (first, after) = stands(&moved, &before);
    let site = MoveReason::Site { from: Some(name("fra1")), to: Some(name("ber1")) };
    assert!(first.plan.nodes[0].why.contains(&site));
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Freeze])]);
    stands(&head, &next(&after));
}

#[test]
fn a_site_is_not_removed_while_a_held_machine_stays_in_it() {
    let pin = "  pin reason=\"a bug\" owner=\"ada\"\n";
    let documents = node("a", "h100", pin);
    let before = in_force(&fleet(&[("n.kdl", &documents)]), &[("a", "h100")]);
    let head = fleet(&[
        ("n.kdl", &documents),
        ("sites.kdl", &[&SITE.replace("fra1", "ber1"), "removed \"site/fra1\" reason=\"sold\"\n"].concat()),
        ("h100.kdl", &POOL.replace("fra1", "ber1")),
        ("l40s.kdl", &OTHER.replace("fra1", "ber1")),
    ]);
    let (first, _) = stands(&head, &before);
    assert_eq!(first.plan.gates[0].wait, Wait::Dependents { needed_by: vec![object("node/a")], count: 1 });
}

#[test]
fn a_retained_freeze_keeps_its_scope_over_a_rename() {
    let before = in_force(&fleet(&[("f.kdl", &freeze("pool/h100"))]), &[("a", "h100")]);
    let renamed = POOL.replace("h100", "h200");
    let line = "moved from=\"pool/h100\" to=\"pool/h200\"\n";
    let swap = swapped();
    let head = fleet(&[("h100.kdl", &renamed), ("m.kdl", line), ("base.kdl", &swap)]);
    let (first, after) = stands(&head, &before);
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Freeze])]);
    assert_eq!(after.objects[&object("freeze/x")].doc["scope"][0], "pool/h200");
    // Nor is anything lost when the line is deleted, as its warning says it may be.
    let (_, after) = stands(&fleet(&[("h100.kdl", &renamed), ("base.kdl", &swap)]), &next(&after));
    // One that was retained before is no other.
    let again = POOL.replace("h100", "h300");
    let line = "moved from=\"pool/h200\" to=\"pool/h300\"\n";
    let (third, _) = stands(&fleet(&[("h100.kdl", &again), ("m.kdl", line), ("base.kdl", &swap)]), &next(&after));
    assert_eq!(gates(&third.plan), [("a", vec![GateWord::Freeze])]);
}

#[test]
fn what_is_retained_needs_what_it_names_under_another_name() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let silent = super::QUIET.replace("\"quiet\"", "\"silent\"");
    let line = "moved from=\"profile/quiet\" to=\"profile/silent\"\n";
    let (_, after) = stands(&fleet(&[("l40s.kdl", ""), ("quiet.kdl", &silent), ("m.kdl", line)]), &before);
    assert_eq!(after.objects[&object("pool/l40s")].doc["profile"], "silent");
    let gone = fleet(&[("l40s.kdl", ""), ("quiet.kdl", "removed \"profile/silent\" reason=\"sold\"\n")]);
    let held = plan(&gone, &next(&after), now());
    assert_eq!(held.plan.gates[0].wait, Wait::Dependents { needed_by: vec![object("pool/l40s")], count: 1 });
}

#[test]
fn a_freeze_whose_removal_is_held_holds() {
    let limited = HEAD.replace("}\n", "  prune {\n    max-objects 1\n  }\n}\n");
    let before = in_force(&fleet(&[("fleet.kdl", &limited), ("f.kdl", &freeze("pool/h100"))]), &[("a", "h100")]);
    let swap = swapped();
    let head = fleet(&[
        ("fleet.kdl", &limited),
        ("base.kdl", &swap),
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n"),
        ("f.kdl", "removed \"freeze/x\" reason=\"called off\"\n"),
    ]);
    let (first, after) = stands(&head, &before);
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Freeze])]);
    assert!(!first.plan.brakes[0].ends);
    // What waited for it waits on, also under a commit that does nothing else.
    stands(&head, &next(&after));
}

#[test]
fn a_brake_holds_the_commit_that_lifts_it_and_lets_go_what_waited() {
    let all = HEAD.replace("}\n", "  suspend \"all\" owner=\"ada\"\n}\n");
    let pool = POOL.replace("}\n", "  suspend \"all\" owner=\"ada\"\n}\n");
    let pin = node("a", "h100", "  pin reason=\"all\" owner=\"ada\"\n");
    let plain = node("a", "h100", "");
    let lines = "removed \"freeze/x\" reason=\"called off\"\n";
    let frozen = freeze("pool/h100");
    let swap = swapped();
    for (file, with, without, gate) in [
        ("fleet.kdl", all.as_str(), HEAD, GateWord::Suspend),
        ("h100.kdl", &pool, POOL, GateWord::Suspend),
        ("n.kdl", &pin, &plain, GateWord::Pin),
        ("f.kdl", &frozen, lines, GateWord::Freeze),
    ] {
        let before = in_force(&fleet(&[(file, with)]), &[("a", "h100")]);
        // Lifted with the change: it waits for the next commit, and the plan says so.
        let head = fleet(&[(file, without), ("base.kdl", &swap)]);
        let (first, after) = stands(&head, &before);
        assert_eq!(gates(&first.plan), [("a", vec![gate])], "{file}");
        assert!(first.plan.brakes[0].ends && first.plan.brakes[0].returns == [(Class::Live, 1)].into());
        let page = render(&first.plan, RenderOptions::default());
        assert!(page.contains("this commit ends or narrows it"), "{page}");
        let free = plan(&head, &next(&after), now());
        assert_eq!(gates(&free.plan), [("a", vec![])], "{file}");
        assert!(free.plan.brakes.is_empty());

        // Lifted by a commit of its own: what waited goes with it.
        let waiting = plan(&fleet(&[(file, with), ("base.kdl", &swap)]), &before, now());
        let waits = model::apply(&before, &waiting);
        assert_eq!(gates(&waiting.plan), [("a", vec![gate])], "{file}");
        let lifted = plan(&head, &waits, now());
        assert_eq!(gates(&lifted.plan), [("a", vec![])], "{file}");
        let done = model::again(&waits, &lifted);
        assert_eq!(done.nodes[0].assigned, done.nodes[0].target);
        assert!(plan(&head, &done, now()).is_settled());
    }
}

#[test]
fn a_brake_that_is_shortened_or_narrowed_holds_as_it_was_until_the_next_commit() {
    let frozen = freeze("pool/h100").replace("\"pool/h100\"", "\"pool/h100\" \"pool/l40s\"");
    let before = in_force(&fleet(&[("f.kdl", &frozen)]), &[("a", "h100"), ("b", "l40s")]);
    let swap = swapped();
    let narrow = fleet(&[("f.kdl", &freeze("pool/h100")), ("base.kdl", &swap)]);
    let (first, after) = stands(&narrow, &before);
    assert_eq!(gates(&first.plan).iter().filter(|(_, held)| held.is_empty()).count(), 0);
    let free = plan(&narrow, &next(&after), now());
    assert_eq!(gates(&free.plan), [("a", vec![GateWord::Freeze]), ("b", vec![])]);
    let short = fleet(&[("f.kdl", &frozen.replace("2026-12-01", "2026-11-28")), ("base.kdl", &swap)]);
    stands(&short, &before);
    // What is longer or wider ends nothing, and a brake that is over holds nothing.
    let long = fleet(&[("f.kdl", &frozen.replace("2026-12-01", "2026-12-24")), ("base.kdl", &swap)]);
    assert!(plan(&long, &before, now()).plan.brakes.iter().all(|brake| !brake.ends));
    let over = plan(&short, &before, at(LATER));
    assert!(over.plan.brakes.is_empty() && gates(&over.plan).iter().all(|(_, held)| held.is_empty()));
}

#[test]
fn a_commit_that_lifts_a_brake_removes_nothing_under_it() {
    let frozen = freeze("pool/l40s");
    let before = in_force(&fleet(&[("f.kdl", &frozen)]), &[("a", "h100")]);
    let head = fleet(&[
        ("f.kdl", "removed \"freeze/x\" reason=\"called off\"\n"),
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n"),
    ]);
    let (first, after) = stands(&head, &before);
    assert!(first.delta.removed_pools.is_empty());
    assert_eq!(plan(&head, &next(&after), now()).delta.removed_pools, [name("l40s")]);
}

#[test]
fn a_revision_removes_no_more_than_the_limit_by_and_by() {
    let limited = HEAD.replace("}\n", "  prune {\n    max-objects 2\n  }\n}\n");
    let pin = |name: &str| node(name, "h100", "  pin reason=\"a bug\" owner=\"ada\" until=\"2026-12-01T00:00:00Z\"\n");
    let documents = [pin("a"), node("b", "h100", ""), node("c", "h100", "")].concat();
    let machines = [("a", "h100"), ("b", "h100"), ("c", "h100")];
    let before = in_force(&fleet(&[("fleet.kdl", &limited), ("n.kdl", &documents)]), &machines);
    let gone = |names: &[&str]| -> String {
        names.iter().map(|name| format!("removed \"node/{name}\" reason=\"sold\"\n")).collect()
    };
    let head = fleet(&[("fleet.kdl", &limited), ("n.kdl", &gone(&["a", "b", "c"]))]);
    let first = plan(&head, &before, now());
    assert_eq!(first.plan.counts.remove, 0, "a pin does not make three into two");
    let after = model::again(&before, &first);
    assert_eq!(plan(&head, &after, at(LATER)).plan.counts.remove, 0);

    let two = fleet(&[("fleet.kdl", &limited), ("n.kdl", &[node("c", "h100", ""), gone(&["a", "b"])].concat())]);
    let first = plan(&two, &before, now());
    assert_eq!(first.plan.counts.remove, 1);
    let after = model::again(&before, &first);
    assert_eq!(plan(&two, &after, at(LATER)).plan.counts.remove, 1, "one that went and one more are two");
    // The limit sinks meanwhile, for the same commit: what went counts.
    let mut less = after;
    less.policy.as_mut().expect("a policy")["prune"]["max-objects"] = 1.into();
    assert_eq!(plan(&two, &less, at(LATER)).plan.counts.remove, 0);
}

#[test]
fn limits_that_cannot_be_read_hold() {
    let limited = HEAD.replace("}\n", "  prune max-objects=9\n  apply {\n    bind \"reboot\"\n  }\n}\n");
    let mut before = in_force(&fleet(&[("fleet.kdl", &limited)]), &[("a", "h100")]);
    let held = before.objects.get_mut(&object("fleet/test")).expect("a fleet");
    let mut doc = (*held.doc).clone();
    doc["apply"]["bind"] = "meltdown".into();
    held.doc = doc.clone().into();
    let swap = swapped();
    let head =
        fleet(&[("fleet.kdl", &limited), ("base.kdl", &swap), ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n")]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Bind])]);
    assert_eq!(planned.plan.counts.remove, 1, "the other one is read");
    assert!(planned.plan.warnings.iter().any(|warning| warning.message.contains("`apply`")));
    doc["prune"]["max-objects"] = "a few".into();
    before.objects.get_mut(&object("fleet/test")).expect("a fleet").doc = doc.into();
    let (first, _) = stands(&head, &before);
    assert_eq!(first.plan.counts.remove, 0);
}

#[test]
fn what_cannot_be_told_or_compared_is_held_like_the_hardest() {
    let bound = HEAD.replace("}\n", "  apply {\n    bind \"reboot\"\n  }\n}\n");
    let before = in_force(&fleet(&[("fleet.kdl", &bound)]), &[("a", "h100")]);
    let swap = swapped();
    let head = fleet(&[("fleet.kdl", &bound), ("base.kdl", &swap)]);
    assert_eq!(gates(&plan(&head, &before, now()).plan), [("a", vec![])]);
    // What it is told now cannot be made again: what is undone may be anything.
    let mut blind = before;
    blind.targets.clear();
    let (first, _) = stands(&head, &blind);
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Bind])]);
}

#[test]
fn a_machine_whose_spec_cannot_be_made_waits_for_what_covers_it() {
    let frozen = freeze("pool/h100");
    let before = in_force(&fleet(&[("f.kdl", &frozen)]), &[("a", "h100")]);
    let motd = "profile \"base\" {\n  file \"/etc/motd\" {\n    template \"motd.j2\"\n  }\n}\n";
    let head = fleet(&[
        ("f.kdl", &frozen),
        ("base.kdl", motd),
        ("motd.j2", "{% if node.name == \"a\" %}{{ node.labels.rack }}{% endif %}\n"),
    ]);
    let (first, after) = stands(&head, &before);
    assert!(first.plan.warnings.iter().any(|warning| warning.message.contains("its spec cannot be made")));
    assert_eq!(gates(&first.plan), [("a", vec![GateWord::Freeze])]);
    assert_eq!(gates(&plan(&head, &after, at(LATER)).plan), [("a", vec![])]);
}
