//! A plan made of trees that were read after others is the plan of the same trees read for the first time, byte for byte.

use std::collections::BTreeMap;

use proptest::prelude::*;
use schema::fleet::{Cache, Fleet, Sources, load};

use super::{FILES, node, now};
use crate::plan::{Observed, plan};

type Tree = BTreeMap<String, String>;

/// What a file becomes: one of a few texts, so that trees meet again, or nothing.
fn edit() -> impl Strategy<Value = (String, Option<String>)> {
    let words = prop::sample::select(vec![
        "",
        "  labels rack=\"r1\"\n",
        "  labels rack=\"r2\"\n",
        "  profile \"quiet\"\n",
        "  serial \"S1\"\n",
        "  cordon \"burn-in\" owner=\"ada\" until=\"2030-01-20T12:00:00Z\"\n",
    ]);
    let machine = (0..6_u8, prop::sample::select(vec!["h100", "l40s"]), words).prop_map(|(number, pool, words)| {
        (format!("nodes/n{number}.kdl"), Some(node(&format!("n{number}"), pool, words)))
    });
    let gone = (0..6_u8).prop_map(|number| (format!("nodes/n{number}.kdl"), None));
    let profile = (1..4_u8).prop_map(|number| {
        let text = format!("profile \"base\" {{\n  sysctl {{\n    \"vm.swappiness\" \"{number}\"\n  }}\n}}\n");
        ("base.kdl".to_owned(), Some(text))
    });
    prop_oneof![6 => machine, 2 => gone, 1 => profile]
}

fn read(cache: &mut Cache, tree: &Tree) -> (Option<Fleet>, Option<Fleet>) {
    let sources: Sources = tree.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
    (cache.load(&sources).fleet, load(&sources).fleet)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn plans_of_trees_that_are_read_after_others_are_the_plans_of_the_same_trees(edits in prop::collection::vec(edit(), 2..16)) {
        let mut tree: Tree = FILES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let mut cache = Cache::default();
        let mut before = read(&mut cache, &tree);
        for (path, text) in edits {
            match text {
                Some(text) => tree.insert(path, text),
                None => tree.remove(&path),
            };
            let after = read(&mut cache, &tree);
            prop_assert_eq!(after.0.is_some(), after.1.is_some());
            let (Some(again), Some(fresh)) = &after else { continue };
            let (Some(base), Some(fresh_base)) = &before else { continue };
            let one = plan(again, &Observed::from_fleet(base), now());
            let other = plan(fresh, &Observed::from_fleet(fresh_base), now());
            prop_assert_eq!(one.plan.to_bytes(), other.plan.to_bytes());
            prop_assert_eq!(format!("{:?}", one.delta), format!("{:?}", other.delta));
            before = after;
        }
    }
}
