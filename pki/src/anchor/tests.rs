//! Facts about pins and anchors.

use super::*;
use crate::testing::keys;

#[test]
fn a_pinned_anchor_survives_its_bytes() {
    let anchor = keys().anchor("fleet-one");
    assert_eq!(Anchor::from_pinned(&anchor.to_bytes(), anchor.pin()), Ok(anchor));
}

#[test]
fn another_anchor_is_refused_and_both_digests_are_named() {
    let (anchor, other) = (keys().anchor("fleet-one"), keys().anchor("fleet-one"));
    let refusal = Anchor::from_pinned(&other.to_bytes(), anchor.pin()).expect_err("another");
    assert_eq!(refusal, AnchorRefusal::WrongPin { pinned: anchor.pin(), found: other.pin() });
}

#[test]
fn only_canonical_bytes_are_an_anchor() {
    let anchor = keys().anchor("fleet-one");
    let pretty = serde_json::to_vec_pretty(&anchor).expect("json");
    assert_eq!(Anchor::from_bytes(&pretty), Err(AnchorRefusal::Malformed));
    assert_eq!(Anchor::from_bytes(b"{}"), Err(AnchorRefusal::Malformed));
}
