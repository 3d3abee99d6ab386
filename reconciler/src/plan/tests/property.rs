//! Properties over random pairs of fleets.

use proptest::prelude::*;
use schema::fleet::Fleet;

use super::{fleet, model, node, now};
use crate::plan::{Change, Machines, Observed, plan};

/// A fleet in few numbers: per pool whether it is there and what its profile says, per machine its document.
#[derive(Debug, Clone)]
struct Shape {
    swappiness: u8,
    printk: u8,
    l40s: u8,
    nodes: Vec<u8>,
    /// What holds: nothing, a freeze of a pool or a site, suspensions, waves, or effects that nobody saw.
    brake: u8,
    /// A pool is in another site.
    away: bool,
    /// A pool has another name, and a line says so.
    renamed: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    (0..3_u8, 0..3_u8, 0..3_u8, prop::collection::vec(0..8_u8, 4), 0..8_u8, any::<bool>()).prop_map(
        |(swappiness, printk, l40s, nodes, brake, away)| Shape {
            swappiness,
            printk,
            l40s,
            nodes,
            brake,
            away,
            renamed: false,
        },
    )
}

/// The same without anything that holds.
fn free(shape: &Shape) -> Shape {
    Shape { brake: 0, ..shape.clone() }
}

fn build(shape: &Shape) -> Fleet {
    let with_l40s = shape.l40s != 1;
    let mut documents = String::new();
    for (index, kind) in shape.nodes.iter().enumerate() {
        let name = format!("n{index}");
        let pool = if kind % 2 == 1 && with_l40s { "l40s" } else { "h100" };
        match kind {
            0 | 1 => {}
            2 => documents.push_str(&format!("removed \"node/{name}\" reason=\"x\"\n")),
            3 | 4 => documents.push_str(&node(&name, pool, "")),
            5 => documents.push_str(&node(&name, pool, "  profile \"quiet\"\n")),
            6 => documents.push_str(&node(&name, pool, "  labels rack=\"r1\"\n")),
            _ => documents.push_str(&node(&name, pool, "  cordon \"fan\" owner=\"ada\"\n")),
        }
    }
    let l40s = match shape.l40s {
        0 => super::OTHER.to_owned(),
        1 => String::new(),
        _ => super::OTHER.replace("quiet", "base"),
    };
    let words = "owner=\"ada\"";
    let (mut head, mut h100, mut brake) = (super::HEAD.to_owned(), super::POOL.to_owned(), String::new());
    match shape.brake {
        1 => {
            brake = "freeze \"f\" {\n  scope \"pool/h100\"\n  reason \"x\"\n  owner \"ada\"\n  until \"2026-12-24T00:00:00Z\"\n}\n".to_owned();
        }
        2 => h100 = h100.replace("}\n", &format!("  suspend \"x\" {words}\n}}\n")),
        3 => head = head.replace("}\n", &format!("  suspend \"x\" {words}\n}}\n")),
        4 => {
            brake = "rollout \"r\" {\n  wave nodes=1\n  wave percent=\"100%\"\n}\n".to_owned();
            h100 = h100.replace("}\n", "  rollout \"r\"\n}\n");
        }
        6 => {
            brake = "freeze \"f\" {\n  scope \"site/fra1\"\n  reason \"x\"\n  owner \"ada\"\n  until \"2026-12-24T00:00:00Z\"\n}\n".to_owned();
        }
        5 => head = head.replace("}\n", "  apply {\n    bind \"live\"\n  }\n}\n"),
        _ => {}
    }
    if shape.away {
        h100 = h100.replace("fra1", "ber1");
    }
    if shape.renamed {
        h100 = [&h100.replace("\"h100\"", "\"h200\""), "moved from=\"pool/h100\" to=\"pool/h200\"\n"].concat();
        brake = brake.replace("pool/h100", "pool/h200");
        documents = documents.replace("pool \"h100\"", "pool \"h200\"");
    }
    fleet(&[
        ("fleet.kdl", &head),
        ("sites.kdl", &[super::SITE, &super::SITE.replace("fra1", "ber1")].concat()),
        ("h100.kdl", &h100),
        ("brake.kdl", &brake),
        ("base.kdl", &super::BASE.replace("10", &shape.swappiness.to_string())),
        ("quiet.kdl", &super::QUIET.replace("\"3\"", &format!("\"{}\"", shape.printk))),
        ("l40s.kdl", &l40s),
        ("nodes.kdl", &documents),
    ])
}

fn machines() -> Observed {
    let mut observed = Observed::nothing(Machines::Joined);
    observed.nodes =
        (0..4).map(|index| model::machine(&format!("n{index}"), if index < 2 { "h100" } else { "l40s" })).collect();
    observed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_input_gives_the_same_bytes(one in shape(), two in shape()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let mut shuffled = before.clone();
        shuffled.nodes.reverse();
        let bytes = plan(&build(&two), &before, now()).plan.to_bytes();
        prop_assert_eq!(&bytes, &plan(&build(&two), &before, now()).plan.to_bytes());
        prop_assert_eq!(&bytes, &plan(&build(&two), &shuffled, now()).plan.to_bytes());
    }

    #[test]
    fn after_apply_nothing_is_left_to_do(one in shape(), two in shape(), three in shape()) {
        let mut observed = machines();
        for shape in [one, two, three] {
            let fleet = build(&shape);
            let base = observed.clone();
            observed = model::apply(&base, &plan(&fleet, &base, now()));
            // What the limits of the former document held is looked at once more under those of the new one.
            observed = model::apply(&observed, &plan(&fleet, &observed, now()));
            let again = plan(&fleet, &observed, now());
            prop_assert!(again.is_settled(), "{:#?}", again.delta);
            prop_assert!(again.plan.nodes.iter().all(|node| !node.held.is_empty()), "{:#?}", again.plan.nodes);
        }
    }

    #[test]
    fn what_is_done_was_shown_and_what_is_held_is_not_done(one in shape(), two in shape()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let planned = plan(&build(&two), &before, now());
        let after = model::apply(&before, &planned);
        for (after, before) in after.nodes.iter().zip(&before.nodes) {
            let shown = planned.plan.nodes.iter().find(|node| node.id == after.id);
            if let Some(shown) = shown.filter(|shown| !shown.held.is_empty()) {
                prop_assert_eq!((after.assigned, &after.assigned_overlay), (before.assigned, &before.assigned_overlay));
                prop_assert_eq!((&after.pool, &after.site, shown.before), (&before.pool, &before.site, before.assigned));
            } else if (after.assigned, &after.assigned_overlay) != (before.assigned, &before.assigned_overlay) {
                prop_assert_eq!(shown.map(|shown| shown.after), Some(after.assigned));
            } else {
                prop_assert!(shown.is_none_or(|shown| shown.before == shown.after));
            }
        }
        for pool in &planned.delta.removed_pools {
            prop_assert!(!after.nodes.iter().any(|node| node.pool.as_ref() == Some(pool)), "{pool} still has machines");
        }
    }

    #[test]
    fn a_commit_that_is_planned_again_does_no_more(one in shape(), two in shape(), renamed in any::<bool>()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let fleet = build(&Shape { renamed, ..two });
        let first = plan(&fleet, &before, now());
        let mut observed = model::again(&before, &first);
        let after = observed.clone();
        for _ in 0..3 {
            let next = plan(&fleet, &observed, now());
            prop_assert!(next.is_settled(), "{:#?}", next.delta);
            prop_assert!(next.plan.nodes.iter().all(|node| !node.held.is_empty()), "{:#?}", next.plan.nodes);
            observed = model::again(&observed, &next);
        }
        for (after, last) in after.nodes.iter().zip(&observed.nodes) {
            prop_assert_eq!((after.assigned, &after.pool, &after.site), (last.assigned, &last.pool, &last.site));
        }
    }

    #[test]
    fn what_was_held_goes_when_nothing_holds_it(one in shape(), two in shape()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let held = model::apply(&before, &plan(&build(&two), &before, now()));
        // The commit that lifts a binding is itself bound; the one after it is not.
        let lifted = model::apply(&held, &plan(&build(&free(&two)), &held, now()));
        let lifted = model::apply(&lifted, &plan(&build(&free(&two)), &lifted, "2026-12-25T00:00:00Z".parse().expect("a time")));
        let at_once = model::apply(&before, &plan(&build(&free(&two)), &before, now()));
        let at_once = model::apply(&at_once, &plan(&build(&free(&two)), &at_once, "2026-12-25T00:00:00Z".parse().expect("a time")));
        for (lifted, at_once) in lifted.nodes.iter().zip(&at_once.nodes) {
            prop_assert_eq!((lifted.assigned, &lifted.pool), (lifted.target, &at_once.pool));
            prop_assert_eq!((lifted.assigned, &lifted.labels), (at_once.assigned, &at_once.labels));
        }
    }

    #[test]
    fn only_a_removed_line_removes(one in shape(), two in shape()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let fleet = build(&two);
        let planned = plan(&fleet, &before, now());
        for object in planned.plan.objects.iter().filter(|object| object.change == Change::Remove) {
            prop_assert!(fleet.removed.iter().any(|removed| removed.name == object.object));
        }
        let after = model::apply(&before, &planned);
        for object in before.objects.keys() {
            prop_assert!(after.objects.contains_key(object) || fleet.removed.iter().any(|removed| removed.name == *object));
        }
        prop_assert_eq!(after.nodes.len(), before.nodes.len());
        // Nothing loses what it was assigned.
        prop_assert!(after.nodes.iter().zip(&before.nodes).all(|(after, before)| before.assigned.is_none() || after.assigned.is_some()));
    }

    #[test]
    fn every_assigned_target_can_be_composed_from_what_is_stored(one in shape(), two in shape()) {
        let mut observed = machines();
        for shape in [one, two] {
            let fleet = build(&shape);
            let base = observed.clone();
            observed = model::apply(&base, &plan(&fleet, &base, now()));
        }
        prop_assert!(observed.nodes.iter().filter_map(|node| node.assigned).all(|digest| observed.targets.contains_key(&digest)));
    }

    #[test]
    fn a_plan_survives_its_json(one in shape(), two in shape()) {
        let nothing = machines();
        let before = model::apply(&nothing, &plan(&build(&one), &nothing, now()));
        let planned = plan(&build(&two), &before, now());
        let read: crate::plan::Plan = serde_json::from_slice(&planned.plan.to_bytes()).expect("reads");
        prop_assert_eq!(read, planned.plan);
    }
}
