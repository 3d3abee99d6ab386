//! The plan as a function: what it finds, what it holds, and what people read.

mod effects;
mod gates;
mod identity;
mod incremental;
mod model;
mod passes;
mod property;
mod stale;
mod text;

use schema::{
    fleet::{Fleet, Sources, load},
    name::Name,
    object::ObjectRef,
    time::Timestamp,
};

use super::{Change, Machines, MoveReason, Observed, Plan, Planned, Wait, plan};

pub(super) const HEAD: &str = "fleet \"test\" {\n  format 1\n  trust-domain \"test.example\"\n}\n";
pub(super) const SITE: &str = "site \"fra1\" {\n  region \"eu\"\n}\n";
pub(super) const BASE: &str = "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n}\n";
pub(super) const QUIET: &str =
    "profile \"quiet\" {\n  extends \"base\"\n  sysctl {\n    \"kernel.printk\" \"3\"\n  }\n}\n";
pub(super) const POOL: &str = "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\n";
pub(super) const OTHER: &str = "pool \"l40s\" {\n  site \"fra1\"\n  profile \"quiet\"\n}\n";

pub(super) const FILES: [(&str, &str); 6] = [
    ("fleet.kdl", HEAD),
    ("sites.kdl", SITE),
    ("base.kdl", BASE),
    ("quiet.kdl", QUIET),
    ("h100.kdl", POOL),
    ("l40s.kdl", OTHER),
];

/// The small fleet with some files added or replaced; an empty text takes a file away.
pub(super) fn fleet(changes: &[(&str, &str)]) -> Fleet {
    let mut files: std::collections::BTreeMap<&str, &str> = FILES.into_iter().collect();
    for (file, text) in changes {
        if text.is_empty() {
            files.remove(file)
        } else {
            files.insert(file, text)
        };
    }
    let loaded = load(&files.into_iter().map(|(file, text)| (file, text.as_bytes().to_vec())).collect::<Sources>());
    loaded.fleet.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

pub(super) fn node(name: &str, pool: &str, more: &str) -> String {
    format!("node \"{name}\" {{\n  pool \"{pool}\"\n{more}}}\n")
}

pub(super) fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().expect("a time")
}

/// What is known when `fleet` is in force and these machines joined and converged.
fn in_force(fleet: &Fleet, machines: &[(&str, &str)]) -> Observed {
    let mut observed = Observed::nothing(Machines::Joined);
    observed.nodes = machines.iter().map(|(name, pool)| model::machine(name, pool)).collect();
    observed.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    model::apply(&observed, &plan(fleet, &observed, now()))
}

fn changes(plan: &Plan) -> Vec<(String, Change)> {
    plan.objects.iter().map(|object| (object.object.to_string(), object.change)).collect()
}

fn moved(plan: &Plan) -> Vec<(&str, &[MoveReason])> {
    plan.nodes.iter().map(|node| (node.node.as_str(), node.why.as_slice())).collect()
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn object(text: &str) -> ObjectRef {
    text.parse().expect("an address")
}

fn warnings_of(plan: &Plan, about: &str) -> usize {
    plan.warnings.iter().filter(|warning| warning.object.to_string() == about).count()
}

fn settled(planned: &Planned) {
    assert!(planned.is_settled(), "{:#?}", planned.delta);
    assert!(planned.plan.nodes.is_empty());
}

#[test]
fn the_first_plan_creates_everything_and_the_next_one_nothing() {
    let fleet = fleet(&[]);
    let first = plan(&fleet, &Observed::nothing(Machines::Joined), now());
    assert_eq!((first.plan.counts.create, first.plan.counts.moves, first.plan.targets.len()), (6, 0, 2));
    let after = model::apply(&Observed::nothing(Machines::Joined), &first);
    settled(&plan(&fleet, &after, now()));
}

#[test]
fn a_profile_change_moves_the_machines_whose_hosts_it_reaches_and_says_what_differs() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "h100"), ("c", "l40s")]);
    let changed = fleet(&[("quiet.kdl", &QUIET.replace("\"3\"", "\"7\""))]);
    let planned = plan(&changed, &before, now());
    assert_eq!(changes(&planned.plan), [("profile/quiet".to_owned(), Change::Update)]);
    assert_eq!(planned.plan.objects[0].fields[0].path, "sysctl.kernel.printk");
    assert_eq!(planned.plan.objects[0].fields[0].place.as_deref(), Some("quiet.kdl:4"));
    assert_eq!(moved(&planned.plan), [("c", &[MoveReason::Target][..])]);
    assert_eq!(planned.plan.targets.len(), 1);
    assert_eq!(planned.plan.targets[0].fields[0].path, "sysctl.kernel.printk");
    settled(&plan(&changed, &model::apply(&before, &planned), now()));
}

#[test]
fn a_moved_line_changes_a_row_and_no_machine() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let moved = fleet(&[("h100.kdl", &format!("\n\n{POOL}"))]);
    let planned = plan(&moved, &before, now());
    assert_eq!((planned.plan.objects.len(), planned.plan.nodes.len(), planned.delta.objects.len()), (0, 0, 1));
    settled(&plan(&moved, &model::apply(&before, &planned), now()));
}

#[test]
fn an_absent_document_is_retained_and_its_machines_keep_what_they_have() {
    let full = fleet(&[("a.kdl", &node("a", "l40s", "  profile \"base\"\n  labels rack=\"r1\"\n"))]);
    let before = in_force(&full, &[("a", "l40s"), ("b", "l40s")]);
    let less = fleet(&[("l40s.kdl", ""), ("quiet.kdl", "")]);
    let planned = plan(&less, &before, now());
    assert_eq!(
        changes(&planned.plan),
        [
            ("pool/l40s".to_owned(), Change::Retain),
            ("profile/quiet".to_owned(), Change::Retain),
            ("node/a".to_owned(), Change::Retain)
        ]
    );
    assert_eq!(planned.plan.objects[0].paste.as_deref(), Some("removed \"pool/l40s\" { reason \"why it goes\" }"));
    assert!(planned.plan.nodes.is_empty() && planned.delta.removed_pools.is_empty());
    let after = model::apply(&before, &planned);
    assert_eq!(after.nodes, before.nodes);
    let again = plan(&less, &after, now());
    assert_eq!(again.plan.counts.retain, 3);
    settled(&again);

    let back = plan(&full, &after, now());
    assert_eq!((back.plan.counts.restore, back.plan.counts.moves), (3, 0));
}

#[test]
fn an_empty_fleet_removes_nothing() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let nothing = fleet(&[("sites.kdl", ""), ("base.kdl", ""), ("quiet.kdl", ""), ("h100.kdl", ""), ("l40s.kdl", "")]);
    let planned = plan(&nothing, &before, now());
    assert_eq!((planned.plan.counts.retain, planned.plan.counts.remove, planned.plan.counts.moves), (5, 0, 0));
}

#[test]
fn a_removed_line_lets_an_object_go_once_and_may_be_deleted_then() {
    let before = in_force(&fleet(&[]), &[("a", "h100")]);
    let gone = fleet(&[("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\n")]);
    let planned = plan(&gone, &before, now());
    assert_eq!(changes(&planned.plan), [("pool/l40s".to_owned(), Change::Remove)]);
    assert_eq!(planned.plan.objects[0].reason.as_deref(), Some("sold"));
    assert_eq!(planned.delta.removed_pools, [name("l40s")]);
    let after = model::apply(&before, &planned);
    settled(&plan(&gone, &after, now()));
    settled(&plan(&fleet(&[("l40s.kdl", "")]), &after, now()));
}

#[test]
fn what_is_still_needed_does_not_go() {
    let before = in_force(&fleet(&[]), &[("a", "l40s"), ("b", "l40s")]);
    let gone = fleet(&[
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"sold\"\nremoved \"profile/quiet\" reason=\"sold\"\n"),
        ("quiet.kdl", ""),
    ]);
    let planned = plan(&gone, &before, now());
    assert_eq!(
        changes(&planned.plan),
        [("pool/l40s".to_owned(), Change::Hold), ("profile/quiet".to_owned(), Change::Hold)]
    );
    assert_eq!(
        planned.plan.gates[0].wait,
        Wait::Dependents { needed_by: vec![object("node/a"), object("node/b")], count: 2 }
    );
    assert_eq!(planned.plan.gates[1].wait, Wait::Dependents { needed_by: vec![object("pool/l40s")], count: 1 });
    let after = model::apply(&before, &planned);
    assert_eq!(after.nodes, before.nodes);
    assert_eq!(after.holds.len(), 2);
    settled(&plan(&gone, &after, now()));
}

#[test]
fn the_prune_limits_hold_removals_and_nothing_else() {
    let limited = HEAD.replace("}\n", "  prune {\n    max-objects 1\n  }\n}\n");
    let before = in_force(&fleet(&[("fleet.kdl", &limited)]), &[("a", "h100")]);
    let wide = limited.replace("max-objects 1", "max-objects 2");
    let gone = fleet(&[
        ("fleet.kdl", &wide),
        ("base.kdl", &BASE.replace("10", "1")),
        ("quiet.kdl", "removed \"profile/quiet\" reason=\"x\"\n"),
        ("l40s.kdl", "removed \"pool/l40s\" reason=\"x\"\n"),
    ]);
    let planned = plan(&gone, &before, now());
    assert_eq!(planned.plan.gates.len(), 1);
    assert_eq!(planned.plan.gates[0].wait, Wait::PruneObjects { limit: 1, asked: 2 });
    assert_eq!(planned.plan.gates[0].objects, [object("pool/l40s"), object("profile/quiet")]);
    assert_eq!(moved(&planned.plan), [("a", &[MoveReason::Target][..])]);
    let after = model::apply(&before, &planned);

    // The commit that raises the limit is in force now, and what it asked for goes.
    let granted = plan(
        &fleet(&[
            ("fleet.kdl", &wide),
            ("quiet.kdl", "removed \"profile/quiet\" reason=\"x\"\n"),
            ("l40s.kdl", "removed \"pool/l40s\" reason=\"x\"\n"),
        ]),
        &after,
        now(),
    );
    assert_eq!((granted.plan.counts.remove, granted.plan.gates.len(), granted.delta.holds.len()), (2, 0, 0));
    assert!(granted.delta.holds_change);
}

#[test]
fn the_share_of_machines_that_lose_their_document_is_limited() {
    let limited = HEAD.replace("}\n", "  prune {\n    max-nodes-percent \"50%\"\n  }\n}\n");
    let documents: String = ["a", "b", "c"].iter().map(|name| node(name, "h100", "")).collect();
    let before = in_force(
        &fleet(&[("fleet.kdl", &limited), ("nodes.kdl", &documents)]),
        &[("a", "h100"), ("b", "h100"), ("c", "h100")],
    );
    let gone = |names: &[&str]| -> String {
        let stay: String =
            ["a", "b", "c"].iter().filter(|name| !names.contains(name)).map(|name| node(name, "h100", "")).collect();
        names.iter().fold(stay, |text, name| text + &format!("removed \"node/{name}\" reason=\"x\"\n"))
    };
    let two = plan(&fleet(&[("fleet.kdl", &limited), ("nodes.kdl", &gone(&["a", "b"]))]), &before, now());
    assert_eq!(two.plan.gates[0].wait, Wait::PruneNodes { limit: 50, asked: 2, of: 3 });
    let one = plan(&fleet(&[("fleet.kdl", &limited), ("nodes.kdl", &gone(&["a"]))]), &before, now());
    assert_eq!((one.plan.counts.remove, one.plan.counts.undeclared), (1, 1));
    // A small share of a small fleet is one machine, and none is none.
    for (share, removed, said) in [("5%", 1, ""), ("0%", 0, "allows 0 (0%)")] {
        let head = limited.replace("50%", share);
        let before = in_force(
            &fleet(&[("fleet.kdl", &head), ("nodes.kdl", &documents)]),
            &[("a", "h100"), ("b", "h100"), ("c", "h100")],
        );
        let one = plan(&fleet(&[("fleet.kdl", &head), ("nodes.kdl", &gone(&["a"]))]), &before, now());
        assert_eq!(one.plan.counts.remove, removed, "{share}");
        let waits: Vec<String> = one.plan.gates.iter().map(|gate| gate.wait.to_string()).collect();
        assert!(waits.concat().contains(said), "{waits:?}");
    }
    assert_eq!(moved(&one.plan), [("a", &[MoveReason::Declaration { declared: false }][..])]);
}

#[test]
fn a_document_moves_its_machine_to_another_pool() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "h100")]);
    let declared = fleet(&[("a.kdl", &node("a", "l40s", ""))]);
    let planned = plan(&declared, &before, now());
    let why = [
        MoveReason::Target,
        MoveReason::Membership { from: Some(name("h100")), to: Some(name("l40s")) },
        MoveReason::Declaration { declared: true },
    ];
    assert_eq!(moved(&planned.plan), [("a", &why[..])]);
    assert_eq!(planned.delta.nodes[0].pool, Some(name("l40s")));
    let after = model::apply(&before, &planned);
    settled(&plan(&declared, &after, now()));
}

#[test]
fn a_profile_of_its_own_has_a_target_of_its_own() {
    let before = in_force(&fleet(&[]), &[("a", "h100"), ("b", "h100")]);
    let own = fleet(&[("a.kdl", &node("a", "h100", "  profile \"quiet\"\n"))]);
    let planned = plan(&own, &before, now());
    assert_eq!(
        planned.plan.targets.iter().map(|target| (target.pool.as_str(), target.profile.as_str())).collect::<Vec<_>>(),
        [("h100", "quiet")]
    );
    assert_eq!(planned.plan.nodes.len(), 1);
    let after = model::apply(&before, &planned);
    assert_ne!(after.nodes[0].assigned, after.nodes[1].assigned);
    assert_eq!(after.pools[&name("h100")].profile_targets.len(), 2);
    settled(&plan(&own, &after, now()));
}

#[test]
fn a_cordon_is_placed_with_its_words_and_lifted_when_it_ends() {
    let cordoned =
        fleet(&[("a.kdl", &node("a", "h100", "  cordon \"fan\" owner=\"ada\" until=\"2026-12-01T00:00:00Z\"\n"))]);
    let before = in_force(&fleet(&[("a.kdl", &node("a", "h100", ""))]), &[("a", "h100")]);
    let planned = plan(&cordoned, &before, now());
    assert!(planned.plan.nodes.is_empty());
    assert_eq!(
        (planned.plan.holds[0].holds, planned.plan.holds[0].reason.as_str(), planned.plan.holds[0].owner.as_str()),
        (true, "fan", "ada")
    );
    assert_eq!(planned.plan.holds[0].place.as_deref(), Some("a.kdl:3"));
    let after = model::apply(&before, &planned);
    settled(&plan(&cordoned, &after, now()));
    let later = plan(&cordoned, &after, "2026-12-02T00:00:00Z".parse().expect("a time"));
    assert_eq!((later.plan.holds[0].holds, warnings_of(&later.plan, "node/a")), (false, 1));
}

#[test]
fn a_machine_that_is_behind_is_brought_in_line() {
    let fleet = fleet(&[]);
    let mut observed = in_force(&fleet, &[("a", "h100"), ("b", "h100")]);
    observed.nodes[1].assigned = None;
    let planned = plan(&fleet, &observed, now());
    assert_eq!(moved(&planned.plan), [("b", &[MoveReason::Behind][..])]);
    settled(&plan(&fleet, &model::apply(&observed, &planned), now()));
}

#[test]
fn declared_machines_that_have_not_joined_are_awaited() {
    let planned = plan(&fleet(&[("a.kdl", &node("a", "h100", ""))]), &Observed::nothing(Machines::Joined), now());
    assert_eq!((planned.plan.counts.awaited, planned.plan.counts.machines), (1, 0));
}

#[test]
fn offline_every_declared_machine_is_one() {
    let base = fleet(&[("n.kdl", &[node("a", "h100", ""), node("b", "l40s", "")].concat())]);
    let head = fleet(&[
        ("n.kdl", &[node("a", "h100", ""), node("c", "h100", "")].concat()),
        ("r.kdl", "removed \"node/b\" reason=\"sold\"\n"),
    ]);
    let observed = Observed::from_fleet(&base);
    assert!(plan(&base, &observed, now()).plan.nodes.is_empty());
    let planned = plan(&head, &observed, now());
    assert_eq!(moved(&planned.plan).iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["c"]);
    assert_eq!((planned.plan.counts.machines, planned.plan.counts.remove), (2, 1));
}

#[test]
fn a_pool_that_names_no_rollout_says_so() {
    let planned = plan(&fleet(&[]), &Observed::nothing(Machines::Joined), now());
    assert!(planned.plan.pools.iter().all(|pool| pool.strategy == "immediate" && pool.rollout.is_none()));
}

#[test]
fn a_fleet_with_another_name_keeps_its_identity() {
    let observed = in_force(&fleet(&[]), &[]);
    let head = HEAD.replace("\"test\"", "\"other\"");
    let planned = plan(&fleet(&[("fleet.kdl", &head)]), &observed, now());
    assert_eq!(changes(&planned.plan), [("fleet/other".to_owned(), Change::Update)]);
    assert_eq!(planned.plan.moved[0].from, object("fleet/test"));
    assert!(planned.delta.objects.iter().all(|row| row.standing == super::ObjectStanding::Declared));
    assert!(plan(&fleet(&[("fleet.kdl", &head)]), &model::apply(&observed, &planned), now()).is_settled());
}

#[test]
fn a_removed_line_that_names_nothing_is_worth_knowing() {
    let observed = in_force(&fleet(&[]), &[]);
    let planned = plan(&fleet(&[("r.kdl", "removed \"pool/l400s\" reason=\"sold\"\n")]), &observed, now());
    assert!(planned.is_settled());
    let about = planned.plan.warnings.iter().find(|warning| warning.object == object("pool/l400s")).expect("a warning");
    assert_eq!(about.place.as_deref(), Some("r.kdl:1"));
    // What the language notes about a valid fleet is there, too, with the object that it is about.
    assert_eq!(warnings_of(&planned.plan, "pool/h100"), 1);
    assert!(super::render(&planned.plan, super::RenderOptions::default()).contains("nothing of this name is in force"));
}
