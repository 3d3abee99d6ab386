//! When a plan that was shown is good, and when it is not: related and unrelated changes of the tree and of the facts.

use schema::fleet::{Fleet, NodeOverlay};

use super::{BASE, HEAD, OTHER, QUIET, fleet, in_force, model, name, node, now};
use crate::plan::{GateWord, Observed, Plan, RenderOptions, Shown, markdown, plan, render};

/// The document of the profile that the shown change gives `h100`.
const KERNEL: &str =
    "profile \"gpu\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n  kernel {\n    args \"iommu=pt\"\n  }\n}\n";
const GPU: &str = "profile \"gpu\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n}\n";
const POOL: &str = "pool \"h100\" {\n  site \"fra1\"\n  profile \"gpu\"\n}\n";

fn bound() -> String {
    HEAD.replace("}\n", "  apply {\n    bind \"reboot\"\n  }\n}\n")
}

/// The tree in force, or the one that the shown commit leads to, with further files.
fn tree(gpu: &str, changes: &[(&str, &str)]) -> Fleet {
    let head = bound();
    let nodes = [node("a", "h100", ""), node("b", "l40s", "")].concat();
    let mut files = vec![("fleet.kdl", head.as_str()), ("gpu.kdl", gpu), ("h100.kdl", POOL), ("n.kdl", nodes.as_str())];
    files.extend(changes);
    fleet(&files)
}

fn before() -> Observed {
    in_force(&tree(GPU, &[]), &[("a", "h100"), ("b", "l40s"), ("c", "h100")])
}

/// Machines that the binding holds.
fn held(plan: &Plan) -> Vec<&str> {
    let bound = plan.nodes.iter().filter(|node| node.held.iter().any(|held| held.gate == GateWord::Bind));
    bound.map(|node| node.node.as_str()).collect()
}

fn live() -> Shown {
    Shown::of(&plan(&tree(KERNEL, &[]), &before(), now()).plan)
}

fn offline() -> Shown {
    Shown::of(&plan(&tree(KERNEL, &[]), &Observed::from_fleet(&tree(GPU, &[])), now()).plan)
}

fn showing(observed: Observed, shown: &Shown) -> Observed {
    Observed { shown: vec![shown.clone()], ..observed }
}

#[test]
fn an_unrelated_change_of_the_tree_leaves_it_good() {
    let rack = node("d", "l40s", "");
    let cases: [&[(&str, &str)]; 8] = [
        &[],
        &[("quiet.kdl", &QUIET.replace("\"3\"", "\"7\""))],
        &[("base.kdl", &BASE.replace("\"10\"", "\"1\""))],
        &[("sites.kdl", "site \"fra1\" {\n  region \"us\"\n}\n")],
        &[("d.kdl", &rack)],
        &[("new.kdl", "pool \"a100\" {\n  site \"fra1\"\n  profile \"base\"\n}\n")],
        &[("l40s.kdl", &OTHER.replace("quiet", "base"))],
        &[("h100.kdl", &format!("// a comment\n{POOL}"))],
    ];
    for (index, case) in cases.iter().enumerate() {
        for shown in [live(), offline()] {
            let planned = plan(&tree(KERNEL, case), &showing(before(), &shown), now()).plan;
            let expected: &[&str] = if shown.offline { &["c"] } else { &[] };
            assert_eq!(
                held(&planned),
                expected,
                "case {index}: only the undeclared machine, where trees alone were shown"
            );
            assert!(planned.nodes.iter().any(|node| node.node.as_str() == "a" && node.held.is_empty()), "case {index}");
        }
    }
}

#[test]
fn a_related_change_of_the_tree_makes_it_stale() {
    let own = [node("a", "h100", "  profile \"quiet\"\n"), node("b", "l40s", "")].concat();
    let harder = KERNEL.replace("iommu=pt", "iommu=off");
    let wider = KERNEL.replace("\"10\"", "\"1\"");
    let file = KERNEL.replace("  kernel {", "  file \"/etc/motd\" {\n    content \"x\"\n  }\n  kernel {");
    let other = KERNEL.replace("\"gpu\"", "\"quiet\"");
    let cases: [(&str, &[(&str, &str)]); 5] = [
        (&harder, &[]),
        (&wider, &[]),
        (&file, &[]),
        (
            GPU,
            &[
                ("quiet.kdl", &other),
                ("h100.kdl", &POOL.replace("gpu", "quiet")),
                ("base.kdl", &BASE.replace("10", "4")),
            ],
        ),
        (
            KERNEL,
            &[
                ("n.kdl", &own),
                ("quiet.kdl", &QUIET.replace("sysctl {", "kernel {\n    args \"quiet\"\n  }\n  sysctl {")),
            ],
        ),
    ];
    for (index, (gpu, case)) in cases.iter().enumerate() {
        for shown in [live(), offline()] {
            let planned = plan(&tree(gpu, case), &showing(before(), &shown), now()).plan;
            // The same specs under another profile's name are the same change.
            let same = index == 3;
            assert_eq!(held(&planned).contains(&"a"), !same, "case {index}: {:#?}", planned.nodes);
        }
    }
}

#[test]
fn an_unrelated_change_of_the_facts_leaves_it_good() {
    let base = tree(GPU, &[]);
    let joins = |pool: &str| {
        let mut observed = before();
        observed.nodes.push(model::machine("z", pool));
        model::apply(&observed, &plan(&base, &observed, now()))
    };
    let mut bare = before();
    bare.nodes.push(model::machine("z", "h100"));
    let mut labelled = before();
    labelled.nodes[1].labels = std::collections::BTreeMap::from([("rack".to_owned(), "r1".to_owned())]).into();
    let mut behind = before();
    behind.nodes[1].assigned = None;
    let mut gone = before();
    gone.nodes.remove(1);
    let mut renamed = before();
    renamed.commit = Some("another".to_owned());
    let cases = [before(), joins("l40s"), joins("h100"), bare, labelled, behind, gone, renamed];
    for (index, case) in cases.into_iter().enumerate() {
        let planned = plan(&tree(KERNEL, &[]), &showing(case.clone(), &live()), now()).plan;
        assert_eq!(held(&planned), Vec::<&str>::new(), "case {index}");
        let planned = plan(&tree(KERNEL, &[]), &showing(case, &offline()), now()).plan;
        assert!(!held(&planned).contains(&"a"), "case {index}");
    }
}

#[test]
fn a_related_change_of_the_facts_makes_it_stale() {
    // Something else was applied in between.
    let other = tree(&GPU.replace("\"10\"", "\"4\""), &[]);
    let first = before();
    let moved_on = model::apply(&first, &plan(&other, &first, now()));
    // A machine has other words than when it was shown.
    let motd = KERNEL.replace("  kernel {", "  file \"/etc/rack\" {\n    template \"rack.j2\"\n  }\n  kernel {");
    let rack: &[(&str, &str)] = &[("rack.j2", "{{ node.labels.rack | default('none') }}\n")];
    let shown = Shown::of(&plan(&tree(&motd, rack), &before(), now()).plan);
    let labelled = [node("a", "h100", "  labels rack=\"r1\"\n"), node("b", "l40s", "")].concat();
    let relabelled = plan(&tree(&motd, &[rack[0], ("n.kdl", &labelled)]), &showing(before(), &shown), now()).plan;
    assert_eq!(held(&relabelled), ["a"]);
    let why = &relabelled.nodes[0].held[0].by;
    assert_eq!(why, "to be told something else than what the plan shows");
    for shown in [live(), offline()] {
        let planned = plan(&tree(KERNEL, &[]), &showing(moved_on.clone(), &shown), now()).plan;
        assert!(held(&planned).contains(&"a"), "{:#?}", planned.nodes);
    }
    // A machine that was elsewhere when it was shown and is here by now.
    let mut came = before();
    came.nodes[1].pool = Some(name("h100"));
    came.nodes[1].declared = false;
    came.nodes[1].target_overlay = NodeOverlay::default();
    let head = tree(KERNEL, &[("n.kdl", &node("a", "h100", ""))]);
    let planned = plan(&head, &showing(came, &live()), now()).plan;
    assert_eq!(held(&planned), ["b"]);
}

#[test]
fn two_plans_that_were_shown_each_let_their_own_machines_go() {
    let both =
        tree(KERNEL, &[("quiet.kdl", &QUIET.replace("sysctl {", "kernel {\n    args \"x=1\"\n  }\n  sysctl {"))]);
    let only = tree(GPU, &[("quiet.kdl", &QUIET.replace("sysctl {", "kernel {\n    args \"x=1\"\n  }\n  sysctl {"))]);
    let second = Shown::of(&plan(&only, &before(), now()).plan);
    let one = plan(&both, &showing(before(), &live()), now()).plan;
    assert_eq!(held(&one), ["b"]);
    let observed = Observed { shown: vec![live(), second], ..before() };
    assert_eq!(held(&plan(&both, &observed, now()).plan), Vec::<&str>::new());
}

#[test]
fn the_digest_is_of_what_decided() {
    let head = tree(KERNEL, &[]);
    let digest = |head: &Fleet, observed: &Observed| plan(head, observed, now()).plan.digest();
    let first = digest(&head, &before());
    let mut same = before();
    same.commit = Some("another".to_owned());
    assert_eq!(first, digest(&head, &same));
    // A machine that joins a pool that stays as it is decides nothing.
    let mut joined = before();
    joined.nodes.push(model::machine("z", "l40s"));
    let joined = model::apply(&joined, &plan(&tree(GPU, &[]), &joined, now()));
    assert_eq!(first, digest(&head, &joined));
    assert_ne!(first, digest(&tree(KERNEL, &[("l40s.kdl", &format!("// x\n{OTHER}"))]), &before()), "another tree");
    let mut moved = before();
    moved.nodes[0].assigned = None;
    assert_ne!(first, digest(&head, &moved));
    // When something goes is not what it is.
    let frozen = tree(
        KERNEL,
        &[(
            "f.kdl",
            "freeze \"f\" {\n  scope \"pool/h100\"\n  reason \"x\"\n  owner \"ada\"\n  until \"2026-12-24T00:00:00Z\"\n}\n",
        )],
    );
    let later = plan(&frozen, &before(), "2026-12-25T00:00:00Z".parse().expect("a time")).plan;
    assert_eq!(digest(&frozen, &before()), later.digest());
    let unbound = in_force(&fleet(&[("gpu.kdl", GPU), ("h100.kdl", POOL)]), &[("a", "h100")]);
    assert_ne!(digest(&head, &unbound), first);
}

#[test]
fn a_line_to_paste_is_there_only_when_it_would_do_something() {
    let text = |gpu: &str, more: &[(&str, &str)]| {
        let plan = plan(&tree(gpu, more), &before(), now()).plan;
        assert!(plan.bind.is_some(), "it is in the document all the same");
        (render(&plan, RenderOptions::default()), markdown(&plan, ""))
    };
    let (page, comment) = text(KERNEL, &[]);
    assert!(page.contains("bc-plan: sha256:") && comment.contains("bc-plan: sha256:"), "{page}");
    assert!(page.contains("2 machines wait for a commit that names this plan."), "{page}");
    assert!(
        !page.contains("not shown") && !comment.contains("not shown"),
        "nothing is wrong with what is shown: {page}"
    );
    // A softer change, one of no machine, and none at all.
    let live = [
        ("base.kdl", BASE.replace("\"10\"", "\"1\"")),
        ("sites.kdl", "site \"fra1\" {\n  region \"us\"\n}\n".to_owned()),
    ];
    for more in [&[(live[0].0, live[0].1.as_str())][..], &[(live[1].0, live[1].1.as_str())], &[]] {
        let (page, comment) = text(GPU, more);
        assert!(!page.contains("bc-plan") && !comment.contains("bc-plan"), "{page}");
    }
}

#[test]
fn what_is_bound_points_at_the_line_that_binds() {
    let planned = plan(&tree(KERNEL, &[]), &before(), now());
    let hold = planned.delta.holds.iter().find(|hold| hold.gate == GateWord::Bind).expect("a hold");
    let line = bound().lines().position(|line| line.contains("bind")).map(|line| line + 1);
    assert_eq!(hold.place, line.map(|line| format!("fleet.kdl:{line}")));
    // Taken out by the same commit it is in force still: where it was is what can be said.
    let lifted = plan(&tree(KERNEL, &[("fleet.kdl", HEAD)]), &before(), now());
    let hold = lifted.delta.holds.iter().find(|hold| hold.gate == GateWord::Bind).expect("a hold");
    assert_eq!(hold.place.as_deref(), Some("fleet.kdl:1"));
}
