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
}

fn shape() -> impl Strategy<Value = Shape> {
    (0..3_u8, 0..3_u8, 0..3_u8, prop::collection::vec(0..8_u8, 4)).prop_map(|(swappiness, printk, l40s, nodes)| Shape {
        swappiness,
        printk,
        l40s,
        nodes,
    })
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
    fleet(&[
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
            let again = plan(&fleet, &observed, now());
            prop_assert!(again.is_settled(), "{:#?}", again.delta);
            prop_assert!(again.plan.nodes.is_empty());
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
