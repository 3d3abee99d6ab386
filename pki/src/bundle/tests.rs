//! Facts about stepping from one trust bundle to the next.

use super::*;
use crate::{keys::Keys, testing::keys};

fn of(keys: &Keys, version: u64) -> SignedBundle {
    keys.command_root().sign_bundle(&TrustBundle::of_anchor(&keys.anchor("fleet-one"), version))
}

#[test]
fn a_bundle_is_taken_one_version_at_a_time_and_never_backwards() {
    let keys = keys();
    let anchor = keys.anchor("fleet-one");
    let second = of(&keys, 2).first(&anchor.verifier()).expect("the anchor's root signed it");
    assert_eq!((second.version, second.roots()), (2, anchor.roots()));
    assert_eq!(second.step(&of(&keys, 2)), Ok(second.clone()));
    assert_eq!(second.step(&of(&keys, 3)).map(|bundle| bundle.version), Ok(3));
    assert_eq!(second.step(&of(&keys, 1)), Err(BundleRefusal::Older));
    assert_eq!(second.step(&of(&keys, 4)), Err(BundleRefusal::Skips));
    assert_eq!(second.step(&of(&keys, u64::MAX)), Err(BundleRefusal::Skips));
}

#[test]
fn whoever_missed_three_bundles_takes_all_three() {
    let keys = keys();
    let first = of(&keys, 1).first(&keys.anchor("fleet-one").verifier()).expect("good");
    let all: Vec<_> = (1..=4).map(|version| of(&keys, version)).collect();
    let (last, refusal) = first.step_through(&all);
    assert_eq!((last.version, refusal), (4, None));
    let (last, refusal) = first.step_through(&[of(&keys, 2), of(&keys, 4)]);
    assert_eq!((last.version, refusal), (2, Some(BundleRefusal::Skips)));
}

#[test]
fn a_bundle_of_another_root_or_fleet_is_refused() {
    let (other, keys) = (keys(), keys());
    let first = of(&keys, 1).first(&keys.anchor("fleet-one").verifier()).expect("good");
    assert_eq!(first.step(&of(&other, 2)), Err(BundleRefusal::BadSignature));
    let elsewhere = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&keys.anchor("fleet-two"), 2));
    assert_eq!(first.step(&elsewhere), Err(BundleRefusal::BadSignature));
}

#[test]
fn no_bit_of_a_bundle_can_change() {
    let keys = keys();
    let signed = of(&keys, 1);
    let trusted = keys.anchor("fleet-one").verifier();
    for bit in 0..signed.bytes.len() * 8 {
        let mut changed = signed.clone();
        changed.bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(changed.first(&trusted), Err(BundleRefusal::BadSignature));
    }
}
