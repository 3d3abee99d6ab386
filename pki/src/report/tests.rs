//! Facts about what nodes sign.

use super::*;
use crate::testing::{Node, keys, realm};

const REPORT: &[u8] = br#"{"observed":4}"#;

#[test]
fn a_report_is_good_for_its_kind_node_realm_and_bytes_only() {
    let node = Node::of(&keys());
    let key = node.key.public();
    let signature = node.key.sign_report(&realm(), ReportKind::Status, node.id, REPORT);
    assert_eq!(key.verify_report(&realm(), ReportKind::Status, node.id, REPORT, &signature), Ok(()));
    let bad = Err(BadNodeSignature);
    assert_eq!(key.verify_report(&realm(), ReportKind::Inventory, node.id, REPORT, &signature), bad);
    assert_eq!(key.verify_report(&realm(), ReportKind::Status, NodeId::generate(), REPORT, &signature), bad);
    assert_eq!(key.verify_report(&realm(), ReportKind::Status, node.id, b"{}", &signature), bad);
    let elsewhere = Realm::new("bc.local", "fleet-two");
    assert_eq!(key.verify_report(&elsewhere, ReportKind::Status, node.id, REPORT, &signature), bad);
    let other = NodeKey::generate().public();
    assert_eq!(other.verify_report(&realm(), ReportKind::Status, node.id, REPORT, &signature), bad);
}

#[test]
fn a_stored_public_key_verifies_and_garbage_verifies_nothing() {
    let node = Node::of(&keys());
    let signature = node.key.sign_report(&realm(), ReportKind::Status, node.id, REPORT);
    let stored = NodePublicKey::from_bytes(node.key.public().as_bytes());
    assert_eq!(stored.verify_report(&realm(), ReportKind::Status, node.id, REPORT, &signature), Ok(()));
    for garbage in [&b""[..], &[0; 65], &[4; 65]] {
        let key = NodePublicKey::from_bytes(garbage);
        assert!(key.verify_report(&realm(), ReportKind::Status, node.id, REPORT, &signature).is_err());
    }
}

#[test]
fn possession_is_proved_for_one_request_over_one_certificate() {
    let keys = keys();
    let (node, other) = (Node::of(&keys), Node::of(&keys));
    let (csr, key) = (Digest::of("request"), node.key.public());
    let serial = &node.issued.serial;
    let asked = RenewalAsked { csr, serial, challenge: b"now", claims: b"{}" };
    let proof = node.key.sign_possession(&realm(), &asked);
    assert_eq!(key.verify_possession(&realm(), &asked, &proof), Ok(()));
    for wrong in [
        RenewalAsked { csr: Digest::of("another"), ..asked },
        RenewalAsked { serial: &other.issued.serial, ..asked },
        RenewalAsked { challenge: b"later", ..asked },
        RenewalAsked { claims: b"{ }", ..asked },
    ] {
        assert!(key.verify_possession(&realm(), &wrong, &proof).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_node_key_survives_its_file() {
    let key = NodeKey::generate();
    let read = NodeKey::from_pkcs8(key.as_pkcs8()).expect("own bytes");
    assert_eq!(read.public(), key.public());
    assert!(NodeKey::from_pkcs8(b"garbage").is_err());
}
