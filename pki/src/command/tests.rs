//! Facts about signed commands and updates: nothing passes for anything else.

use super::*;
use crate::testing::{Node, after, keys, now, realm};

const BODY: &[u8] = br#"{"kind":"node.reboot"}"#;
const UPDATE: &[u8] = br#"{"state":"succeeded"}"#;

#[test]
fn a_signed_command_is_good_for_its_node_bytes_and_realm_only() {
    let keys = keys();
    let worker = keys.command_root().certify(&realm(), now());
    let verifier = CommandVerifier::new(realm(), vec![keys.command_root().public()]);
    let (node, at) = (NodeId::generate(), Validity::At(now()));
    let signature = worker.sign_command(node, BODY);
    assert_eq!(verifier.command(node, BODY, &signature, at), Ok(()));
    let bad = Err(SignatureRefusal::BadSignature);
    assert_eq!(verifier.command(NodeId::generate(), BODY, &signature, at), bad);
    assert_eq!(verifier.command(node, b"{}", &signature, at), bad);
    let spec = worker.sign_desired_state(node, schema::generation::Generation(1), BODY);
    assert_eq!(verifier.command(node, BODY, &spec, at), bad);
    assert_eq!(
        verifier.command(node, BODY, &signature, Validity::At(after(90_000))),
        Err(SignatureRefusal::WorkerExpired)
    );
    let elsewhere = CommandVerifier::new(Realm::new("bc.local", "fleet-two"), vec![keys.command_root().public()]);
    assert_eq!(elsewhere.command(node, BODY, &signature, at), Err(SignatureRefusal::UnknownRoot));
}

#[test]
fn a_signed_update_is_good_for_its_node_bytes_and_purpose_only() {
    let node = Node::of(&keys());
    let key = node.key.public();
    let signature = node.key.sign_command_update(&realm(), node.id, UPDATE);
    assert_eq!(key.verify_command_update(&realm(), node.id, UPDATE, &signature), Ok(()));
    let bad = Err(BadNodeSignature);
    assert_eq!(key.verify_command_update(&realm(), NodeId::generate(), UPDATE, &signature), bad);
    assert_eq!(key.verify_command_update(&realm(), node.id, b"{}", &signature), bad);
    assert_eq!(key.verify_command_update(&Realm::new("bc.local", "fleet-two"), node.id, UPDATE, &signature), bad);
    let report = node.key.sign_report(&realm(), schema::report::ReportKind::Status, node.id, UPDATE);
    assert_eq!(key.verify_command_update(&realm(), node.id, UPDATE, &report), bad);
}

#[test]
fn a_copy_is_its_body_with_its_signature() {
    let worker = keys().command_root().certify(&realm(), now());
    let signature = worker.sign_command(NodeId::generate(), BODY);
    let mut spoilt = signature.clone();
    spoilt.signature[0] ^= 1;
    assert_eq!(command_copy(BODY, &signature), command_copy(BODY, &signature.clone()));
    assert_ne!(command_copy(BODY, &signature), command_copy(BODY, &spoilt));
    assert_ne!(command_copy(BODY, &signature), command_copy(UPDATE, &signature));
}
