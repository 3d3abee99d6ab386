//! What the classifier promises.

use super::*;
use crate::spec::NodeSpec;

#[test]
fn a_spec_that_stays_has_no_effects() {
    assert_eq!(classify(&NodeSpec::default(), &NodeSpec::default()), Effects::default());
}
