//! What holds machines and removals, and what lets them go.

use schema::{effect::EffectClass as Class, time::Timestamp};

use super::{BASE, HEAD, POOL, changes, fleet, in_force, model, moved, name, node, now, object};
use crate::plan::{Change, GateWord, Held, MoveReason, Observed, Plan, Shown, Wait, plan};

const KERNEL: &str =
    "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n  kernel {\n    args \"iommu=pt\"\n  }\n}\n";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn gates(plan: &Plan) -> Vec<(&str, Vec<GateWord>)> {
    plan.nodes.iter().map(|node| (node.node.as_str(), node.held.iter().map(|held| held.gate).collect())).collect()
}

fn freeze(until: &str) -> String {
    format!(
        "freeze \"year-end\" {{\n  scope \"pool/h100\"\n  reason \"sales\"\n  owner \"ada\"\n  from \"2026-11-01T00:00:00Z\"\n  until \"{until}\"\n}}\n"
    )
}

#[test]
fn a_freeze_holds_its_machines_until_it_ends_and_then_they_go_by_themselves() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "l40s")]);
    let frozen = fleet(&[("f.kdl", &freeze("2026-12-01T00:00:00Z")), ("base.kdl", &BASE.replace("10", "1"))]);
    let planned = plan(&frozen, &before, now());
    let until = Some(at("2026-12-01T00:00:00Z"));
    let held = Held { gate: GateWord::Freeze, by: "freeze/year-end".to_owned(), until };
    assert_eq!(planned.plan.nodes[0].held, [held]);
    assert!(planned.plan.nodes[1].held.is_empty());
    assert_eq!((planned.plan.counts.moves, planned.plan.counts.waiting), (2, 1));
    assert_eq!((planned.plan.brakes[0].machines, planned.plan.brakes[0].active), (1, true));
    assert_eq!(planned.plan.brakes[0].returns, [(Class::Live, 1)].into());
    assert_eq!(planned.delta.next_edge, until);
    assert_eq!(planned.delta.holds.len(), 1);
    assert_eq!(
        (planned.delta.holds[0].subject.to_string(), planned.delta.holds[0].until),
        ("freeze/year-end".into(), until)
    );

    let after = model::apply(&before, &planned);
    assert_eq!((after.nodes[0].assigned, after.nodes[1].assigned), (before.nodes[0].assigned, after.nodes[1].target));
    let again = plan(&frozen, &after, now());
    assert!(again.is_settled(), "{:#?}", again.delta);
    assert_eq!(moved(&again.plan), [("a", &[MoveReason::Behind][..])]);

    let later = plan(&frozen, &after, at("2026-12-01T00:00:00Z"));
    assert_eq!(gates(&later.plan), [("a", vec![])]);
    let done = model::apply(&after, &later);
    assert_eq!(done.nodes[0].assigned, done.nodes[0].target);
    assert!(done.holds.is_empty());
}

#[test]
fn a_freeze_that_is_gone_from_the_tree_holds_on_and_may_be_deleted_when_it_is_over() {
    let frozen = fleet(&[("f.kdl", &freeze("2026-12-01T00:00:00Z"))]);
    let before = in_force(&frozen, &[("a", "h100")]);
    let without = fleet(&[("base.kdl", &BASE.replace("10", "1"))]);
    let planned = plan(&without, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Freeze])]);
    assert!(changes(&planned.plan).contains(&("freeze/year-end".to_owned(), Change::Retain)));
    let said = fleet(&[
        ("base.kdl", &BASE.replace("10", "1")),
        ("r.kdl", "removed \"freeze/year-end\" reason=\"called off\"\n"),
    ]);
    // Lifting it is a commit of its own: what waited goes with it.
    assert_eq!(gates(&plan(&said, &before, now()).plan), [("a", vec![GateWord::Freeze])]);
    let waits = model::apply(&before, &planned);
    assert_eq!(gates(&plan(&said, &waits, now()).plan), [("a", vec![])]);
    let later = plan(&without, &before, at("2026-12-02T00:00:00Z"));
    assert_eq!(gates(&later.plan), [("a", vec![])]);
    assert!(changes(&later.plan).contains(&("freeze/year-end".to_owned(), Change::Remove)));
}

#[test]
fn a_pin_holds_one_machine_and_a_suspension_what_it_is_on() {
    let pin = "  pin reason=\"a bug\" owner=\"ada\" until=\"2026-12-01T00:00:00Z\"\n";
    let suspended = POOL.replace("}\n", "  suspend \"wait\" owner=\"bob\"\n}\n");
    let base = fleet(&[("n.kdl", &[node("a", "l40s", pin), node("b", "l40s", "")].concat())]);
    let before = in_force(&base, &[("a", "l40s"), ("b", "l40s"), ("c", "h100")]);
    let head = fleet(&[
        ("n.kdl", &[node("a", "l40s", pin), node("b", "l40s", "")].concat()),
        ("h100.kdl", &suspended),
        ("base.kdl", &BASE.replace("10", "1")),
    ]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Pin]), ("b", vec![]), ("c", vec![GateWord::Suspend])]);
    let subjects: Vec<String> = planned.delta.holds.iter().map(|hold| hold.subject.to_string()).collect();
    assert_eq!(subjects, ["pool/h100", "node/a"]);
}

#[test]
fn a_machine_that_is_told_nothing_yet_goes_although_its_pool_is_frozen() {
    let frozen = fleet(&[("f.kdl", &freeze("2026-12-01T00:00:00Z"))]);
    let mut before = in_force(&frozen, &[("a", "h100")]);
    before.nodes.push(model::machine("b", "h100"));
    let planned = plan(&frozen, &before, now());
    assert_eq!(gates(&planned.plan), [("b", vec![])]);
    assert!(planned.delta.nodes[0].assign);
}

#[test]
fn a_frozen_pool_loses_nobody_and_is_not_removed_while_somebody_stays() {
    let frozen =
        fleet(&[("f.kdl", &freeze("2026-12-01T00:00:00Z").replace("h100", "l40s")), ("n.kdl", &node("a", "l40s", ""))]);
    let before = in_force(&frozen, &[("a", "l40s")]);
    let head = fleet(&[
        ("n.kdl", &node("a", "h100", "")),
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n"),
        ("f.kdl", &freeze("2026-12-01T00:00:00Z").replace("pool/h100", "site/fra1")),
    ]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Freeze])]);
    assert!(planned.delta.removed_pools.is_empty());
    let after = model::apply(&before, &planned);
    assert_eq!(after.nodes[0].pool, Some(name("l40s")));
    let thawed = plan(&head, &after, at("2026-12-02T00:00:00Z"));
    assert_eq!(thawed.delta.removed_pools, [name("l40s")]);
    assert_eq!(model::apply(&after, &thawed).nodes[0].pool, Some(name("h100")));
}

#[test]
fn a_frozen_pool_loses_nobody_to_a_pool_that_is_alike() {
    let alike = "pool \"l4\" {\n  site \"fra1\"\n  profile \"quiet\"\n}\n";
    let files = |pool: &str| {
        [
            ("f.kdl", freeze("2026-12-01T00:00:00Z").replace("h100", "l40s")),
            ("n.kdl", node("a", pool, "")),
            ("l4.kdl", alike.to_owned()),
        ]
    };
    let tree = |pool: &str| {
        let files = files(pool);
        fleet(&files.iter().map(|(file, text)| (*file, text.as_str())).collect::<Vec<_>>())
    };
    let before = in_force(&tree("l40s"), &[("a", "l40s")]);
    let planned = plan(&tree("l4"), &before, now());
    assert_eq!(planned.plan.nodes[0].before_spec, planned.plan.nodes[0].after_spec);
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Freeze])]);
    assert_eq!(model::apply(&before, &planned).nodes[0].pool, Some(name("l40s")));
}

#[test]
fn a_frozen_machine_under_another_name_is_told_its_new_one_when_it_may_go() {
    let motd = "profile \"base\" {\n  file \"/etc/motd\" {\n    template \"motd.j2\"\n  }\n}\n";
    let frozen = freeze("2026-12-01T00:00:00Z");
    let files = [("f.kdl", frozen.as_str()), ("base.kdl", motd), ("motd.j2", "{{ node.name }}\n")];
    let tree = |more: &[(&str, &str)]| fleet(&files.iter().chain(more).copied().collect::<Vec<_>>());
    let before = in_force(&tree(&[("n.kdl", &node("a", "h100", ""))]), &[("a", "h100")]);
    let head = tree(&[("n.kdl", &node("z", "h100", "")), ("m.kdl", "moved from=\"node/a\" to=\"node/z\"\n")]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("z", vec![GateWord::Freeze])]);
    let after = model::apply(&before, &planned);
    assert_eq!((&after.nodes[0].name, after.nodes[0].assigned_name.clone()), (&name("z"), Some(name("a"))));
    let again = plan(&head, &after, now());
    assert!(again.is_settled(), "{:#?}", again.delta);
    assert_eq!(gates(&again.plan), [("z", vec![GateWord::Freeze])]);
    let thawed = model::apply(&after, &plan(&head, &after, at("2026-12-02T00:00:00Z")));
    assert_eq!(thawed.nodes[0].assigned_name, None);
}

#[test]
fn a_pinned_machine_keeps_its_pool_from_being_removed() {
    let pin = "  pin reason=\"a bug\" owner=\"ada\"\n";
    let before = in_force(&fleet(&[("n.kdl", &node("a", "l40s", ""))]), &[("a", "l40s")]);
    let head = fleet(&[("n.kdl", &node("a", "h100", pin)), ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n")]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Pin])]);
    assert_eq!(planned.plan.gates[0].wait, Wait::Dependents { needed_by: vec![object("node/a")], count: 1 });
    assert!(planned.delta.removed_pools.is_empty());
}

#[test]
fn the_protection_in_force_holds_a_removal_and_is_lifted_by_a_commit_of_its_own() {
    let protected = super::OTHER.replace("}\n", "  protect \"customers\"\n}\n");
    let gone = fleet(&[("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n")]);
    let before = in_force(&fleet(&[("l40s.kdl", &protected)]), &[]);
    let planned = plan(&gone, &before, now());
    assert_eq!(planned.plan.gates[0].wait, Wait::Protected { reason: "customers".to_owned() });
    assert_eq!((planned.plan.counts.remove, planned.plan.counts.held), (0, 1));
    // It stays protected although its block is gone.
    let still = model::apply(&before, &planned);
    assert_eq!(plan(&gone, &still, now()).plan.counts.remove, 0);
    let lifted = plan(&fleet(&[]), &still, now());
    assert_eq!(plan(&gone, &model::apply(&still, &lifted), now()).plan.counts.remove, 1);
}

#[test]
fn a_pool_whose_rollout_has_waves_is_never_changed_all_at_once() {
    let rollout = "rollout \"careful\" {\n  wave nodes=1 soak=\"10m\"\n  wave percent=\"100%\"\n}\n";
    let pool = POOL.replace("}\n", "  rollout \"careful\"\n}\n");
    let base = fleet(&[("r.kdl", rollout), ("h100.kdl", &pool)]);
    let before = in_force(&base, &[("a", "h100"), ("b", "h100"), ("c", "l40s")]);
    let head = fleet(&[("r.kdl", rollout), ("h100.kdl", &pool), ("base.kdl", &BASE.replace("10", "1"))]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Rollout]), ("b", vec![GateWord::Rollout]), ("c", vec![])]);
    assert_eq!(planned.delta.holds[0].subject, object("pool/h100"));
    let waves = planned.plan.pools[0].waves.clone().expect("waves");
    assert_eq!(waves.iter().map(|wave| wave.count).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(waves[0].soak.as_deref(), Some("10m"));
    // The machines joined before the pool had anything: they were told at once.
    assert!(before.nodes.iter().all(|node| node.assigned.is_some()));
}

fn bound() -> String {
    HEAD.replace("}\n", "  apply {\n    bind \"reboot\"\n  }\n}\n")
}

fn showing(observed: &Observed, shown: &Plan) -> Observed {
    Observed { shown: vec![Shown::of(shown)], ..observed.clone() }
}

#[test]
fn what_is_bound_goes_only_as_it_was_shown() {
    let base = fleet(&[("fleet.kdl", &bound())]);
    let before = in_force(&base, &[("a", "h100"), ("b", "l40s")]);
    let head = fleet(&[("fleet.kdl", &bound()), ("base.kdl", KERNEL)]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Bind]), ("b", vec![GateWord::Bind])]);
    let bind = planned.plan.bind.clone().expect("bind");
    assert_eq!((bind.class, bind.held), (Class::Reboot, 2));
    assert_eq!(bind.trailer, format!("bc-plan: {}", planned.plan.digest()));
    let shown = plan(&head, &showing(&before, &planned.plan), now());
    assert_eq!(gates(&shown.plan), [("a", vec![]), ("b", vec![])]);
    // What is easier goes unseen.
    let easy = fleet(&[("fleet.kdl", &bound()), ("base.kdl", &BASE.replace("10", "1"))]);
    assert_eq!(gates(&plan(&easy, &before, now()).plan), [("a", vec![]), ("b", vec![])]);
}

#[test]
fn the_limits_and_the_binding_are_those_in_force() {
    let before = in_force(&fleet(&[("fleet.kdl", &bound())]), &[("a", "h100")]);
    let head = fleet(&[("base.kdl", KERNEL)]);
    assert_eq!(gates(&plan(&head, &before, now()).plan), [("a", vec![GateWord::Bind])]);
    let free = in_force(&fleet(&[]), &[("a", "h100")]);
    let head = fleet(&[("fleet.kdl", &bound()), ("base.kdl", KERNEL)]);
    assert_eq!(gates(&plan(&head, &free, now()).plan), [("a", vec![])]);
}

#[test]
fn a_brake_by_hand_holds_a_machine_under_its_new_pool_name_too() {
    let mut before = in_force(&fleet(&[]), &[("a", "h100")]);
    before.suspensions.push(schema::fleet::brake::Brake {
        kind: schema::fleet::brake::BrakeKind::Suspend,
        name: "pool/h100".to_owned(),
        scope: schema::fleet::brake::Scope::Objects(vec![object("pool/h100")]),
        owner: "ada".to_owned(),
        reason: "wait".to_owned(),
        from: None,
        until: None,
        window: None,
        place: None,
    });
    let head = fleet(&[
        ("h100.kdl", &POOL.replace("h100", "h200")),
        ("m.kdl", "moved from=\"pool/h100\" to=\"pool/h200\"\n"),
        ("base.kdl", &BASE.replace("10", "1")),
    ]);
    let planned = plan(&head, &before, now());
    assert_eq!(gates(&planned.plan), [("a", vec![GateWord::Suspend])]);
    assert_eq!(planned.plan.brakes[0].name, "pool/h200");
}
