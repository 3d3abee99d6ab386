//! The example fleet loads, and is what its snapshot says.

use super::support::{example, text, tree};
use crate::fleet::load;

#[test]
fn the_example_fleet_loads_without_errors() {
    let loaded = load(&example());
    assert!(loaded.fleet.is_some(), "{}", text(&loaded));
    insta::assert_snapshot!(text(&loaded));
}

/// The guide shows documents that are read as it says.
#[test]
fn the_documents_of_the_guide_load() {
    let guide = include_str!("../../../../docs/guides/fleet-language.md");
    let blocks = |language: &str| -> Vec<&str> {
        let fence = format!("```{language}\n");
        guide.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
    };
    // The first KDL block and the YAML block show one object twice.
    let kdl = blocks("kdl").split_off(1).join("\n");
    let template = blocks("jinja").join("");
    let loaded = load(&tree(&[("fleet.kdl", &kdl), ("templates/motd.j2", &template), ("access/plans.cedar", "")]));
    assert!(loaded.fleet.is_some(), "{}", text(&loaded));
    for (path, text) in [("a.kdl", blocks("kdl")[0]), ("a.yaml", blocks("yaml")[0])] {
        assert!(load(&tree(&[(path, text)])).fleet.is_some(), "{path}");
    }
}
