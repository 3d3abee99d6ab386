//! The example fleet loads, and is what its snapshot says.

use super::support::{example, text};
use crate::fleet::load;

#[test]
fn the_example_fleet_loads_without_errors() {
    let loaded = load(&example());
    assert!(loaded.fleet.is_some(), "{}", text(&loaded));
    insta::assert_snapshot!(text(&loaded));
}
