//! Facts about stepping from one trust bundle to the next.

use super::*;
use crate::testing::keys;

#[test]
fn a_bundle_is_taken_from_a_trusted_root_and_never_steps_back() {
    let keys = keys();
    let anchor = keys.anchor("fleet-one");
    let signed = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&anchor, 2));
    let bundle = signed.step(&anchor.verifier(), 1).expect("next");
    assert_eq!((bundle.version, bundle.roots()), (2, anchor.roots()));
    assert!(signed.step(&bundle.verifier(), 2).is_ok());
    assert_eq!(signed.step(&bundle.verifier(), 3), Err(BundleRefusal::Older));
}

#[test]
fn a_bundle_of_another_root_or_fleet_is_refused() {
    let (other, keys) = (keys(), keys());
    let trusted = keys.anchor("fleet-one").verifier();
    let foreign = other.command_root().sign_bundle(&TrustBundle::of_anchor(&other.anchor("fleet-one"), 2));
    assert_eq!(foreign.step(&trusted, 1), Err(BundleRefusal::BadSignature));
    let elsewhere = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&keys.anchor("fleet-two"), 2));
    assert_eq!(elsewhere.step(&trusted, 1), Err(BundleRefusal::BadSignature));
}

#[test]
fn no_bit_of_a_bundle_can_change() {
    let keys = keys();
    let anchor = keys.anchor("fleet-one");
    let signed = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&anchor, 1));
    for bit in 0..signed.bytes.len() * 8 {
        let mut changed = signed.clone();
        changed.bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(changed.step(&anchor.verifier(), 0), Err(BundleRefusal::BadSignature));
    }
}
