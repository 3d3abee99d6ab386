//! Facts about the keys that follow from the checkpoint secret.

use super::*;
use crate::{
    keys::{Keys, RotationKind, SigningKeys, SourceKeys},
    testing::{keys, now},
};

const MANIFEST: CheckpointPurpose = CheckpointPurpose::RevisionManifest;
const FLEET: &str = "fleet-one";

#[test]
fn a_checkpoint_is_good_for_its_purpose_its_bytes_and_its_fleet() {
    let keys = keys();
    let signer = keys.checkpoint_signer(FLEET);
    let signature = signer.sign(MANIFEST, b"manifest");
    assert_eq!(signer.verifier().verify(MANIFEST, b"manifest", &signature), Ok(signer.key()));
    for (purpose, bytes, fleet) in [
        (CheckpointPurpose::VerifiedCheckpoint, b"manifest".as_slice(), FLEET),
        (MANIFEST, b"manifesT", FLEET),
        (MANIFEST, b"manifest", "fleet-two"),
    ] {
        let verifier = keys.checkpoint_verifier(fleet);
        assert_eq!(verifier.verify(purpose, bytes, &signature), Err(CheckpointRefusal::NotOurs));
    }
    for bit in 0..signature.len() * 8 {
        let mut changed = signature.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(signer.verifier().verify(MANIFEST, b"manifest", &changed).is_err(), "bit {bit}");
    }
}

#[test]
fn the_same_secret_gives_the_same_keys_and_no_two_kinds_of_work_share_one() {
    let keys = keys();
    let again = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    assert_eq!(keys.checkpoint_signer(FLEET).key(), again.checkpoint_signer(FLEET).key());
    assert_ne!(keys.checkpoint_signer(FLEET).key(), keys.audit_signer(FLEET).key());
}

#[test]
fn during_a_rotation_both_are_believed_and_afterwards_one() {
    let mut keys = keys();
    let before = keys.checkpoint_signer(FLEET);
    let old = before.sign(MANIFEST, b"m");
    let tag = keys.command_seal(FLEET).tag(b"c");
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    assert_eq!(keys.checkpoint_signer(FLEET).key(), before.key(), "the old one signs until the switch");
    let next = keys.audit_signer(FLEET).next().expect("announced");
    assert!(keys.command_seal(FLEET).is_present(b"c", &tag));
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    let after = keys.checkpoint_signer(FLEET);
    assert_ne!(after.key(), before.key());
    assert_eq!(keys.audit_signer(FLEET).key(), next);
    assert_eq!(after.verifier().verify(MANIFEST, b"m", &old), Ok(before.key()));
    assert!(!after.verifier().is_present(before.key()));
    assert!(before.verifier().verify(MANIFEST, b"m", &after.sign(MANIFEST, b"m")).is_err(), "who did not follow");
    assert!(keys.command_seal(FLEET).is_tag(b"c", &tag));
    assert!(!keys.command_seal(FLEET).is_present(b"c", &tag));
    let audit = keys.audit_signer(FLEET);
    assert!(audit.before().is_some_and(|old| audit.sign_as(old, b"handover").is_some()));
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    assert!(keys.checkpoint_verifier(FLEET).verify(MANIFEST, b"m", &old).is_err());
    assert!(!keys.command_seal(FLEET).is_tag(b"c", &tag));
}

#[test]
fn an_audit_signature_is_no_manifest_and_the_other_way_round() {
    let keys = keys();
    let audit = keys.audit_signer(FLEET);
    let signature = audit.sign_as(audit.key(), b"x").expect("held");
    assert!(audit.key().signed_audit(audit.realm(), b"x", &signature));
    assert!(keys.checkpoint_verifier(FLEET).verify(MANIFEST, b"x", &signature).is_err());
    let manifest = keys.checkpoint_signer(FLEET).sign(MANIFEST, b"x");
    assert!(!audit.key().signed_audit(audit.realm(), b"x", &manifest));
    assert!(audit.sign_as(keys.checkpoint_signer(FLEET).key(), b"x").is_none());
}

#[test]
fn a_tag_is_good_for_its_command() {
    let seal = keys().command_seal(FLEET);
    let tag = seal.tag(b"reboot");
    assert!(seal.is_tag(b"reboot", &tag));
    assert!(!seal.is_tag(b"wipe", &tag));
    assert!(!seal.is_tag(b"reboot", &[]));
    assert!(!keys().command_seal(FLEET).is_tag(b"reboot", &tag), "of other keys");
    let keys = keys();
    assert!(!keys.placement_seal(FLEET).is_tag(b"reboot", &keys.command_seal(FLEET).tag(b"reboot")), "another use");
    assert!(!keys.batch_seal(FLEET).is_tag(b"reboot", &keys.placement_seal(FLEET).tag(b"reboot")), "another use");
    assert!(keys.source().batch_seal(FLEET).is_tag(b"reboot", &keys.batch_seal(FLEET).tag(b"reboot")));
}

#[test]
fn a_process_gets_what_its_work_needs() {
    let keys = keys();
    let source = SourceKeys::open(&keys.source().seal(b"secret"), b"secret").expect("opens");
    let signing = SigningKeys::open(&keys.signing().seal(b"secret"), b"secret").expect("opens");
    let manifest = source.checkpoint_signer(FLEET).sign(MANIFEST, b"m");
    assert!(signing.checkpoint_verifier(FLEET).verify(MANIFEST, b"m", &manifest).is_ok());
    assert!(signing.command_seal(FLEET).is_tag(b"c", &keys.command_seal(FLEET).tag(b"c")));
    let all = serde_json::to_value(&keys).expect("json");
    let secret = all["checkpoint"].as_str().expect("a secret");
    let (of_source, of_signing) =
        (serde_json::to_string(&keys.source()).expect("json"), serde_json::to_string(&keys.signing()).expect("json"));
    for document in [&of_source, &of_signing] {
        assert!(!document.contains(secret), "the checkpoint secret itself");
    }
    assert!(!of_source.contains(all["commandRoot"].as_str().expect("a key")), "the source signs no command");
    let history = serde_json::to_value(keys.source()).expect("json")["history"].as_str().expect("a seed").to_owned();
    assert!(!of_signing.contains(&history), "controllers sign no manifest");
}
