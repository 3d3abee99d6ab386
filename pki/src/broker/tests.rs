//! Facts about requests for secrets and their answers.

use super::*;
use crate::testing::{Node, after, keys, now, realm};

fn wanted(name: &str, version: u32) -> SecretVersion {
    SecretVersion { name: name.parse().expect("a name"), version }
}

fn value(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

#[test]
fn values_get_to_the_node_that_asked_and_to_no_other() {
    let keys = keys();
    let node = Node::of(&keys);
    let worker = keys.command_root().certify(&realm(), now());
    let verifier = CommandVerifier::new(realm(), vec![keys.command_root().public()]);
    let ask = || Asking::new(&realm(), node.id, &node.key, vec![wanted("a", 1), wanted("b/c", 7)], now());
    let (asking, other) = (ask(), ask());

    let request = SecretRequest::parse(&asking.bytes, now()).expect("a request");
    let public = node.key.public();
    assert_eq!(public.verify_secret_request(&realm(), node.id, &asking.bytes, &asking.signature), Ok(()));
    assert!(public.verify_secret_request(&realm(), node.id, &other.bytes, &asking.signature).is_err());
    assert!(public.verify_secret_request(&realm(), NodeId::generate(), &asking.bytes, &asking.signature).is_err());

    let sealed = seal(&realm(), &request, &asking.bytes, &[value("one"), value("")]).expect("sealed");
    let signature = worker.sign_secret_response(node.id, &asking.bytes, &sealed);
    let at = Validity::At(now());
    let opened = asking.open(&sealed, &signature, &verifier, at).expect("opens");
    assert_eq!(opened, [(wanted("a", 1), value("one")), (wanted("b/c", 7), value(""))]);
    assert!(other.open(&sealed, &signature, &verifier, at).is_err(), "another request of the same node");

    // A carrier that seals a value of its own has nobody's signature.
    let forged = seal(&realm(), &request, &asking.bytes, &[value("evil"), value("")]).expect("sealed");
    assert!(matches!(asking.open(&forged, &signature, &verifier, at), Err(AnswerRefusal::Signature(_))));
    for short in [&[][..], &[value("one")]] {
        let sealed = seal(&realm(), &request, &asking.bytes, short).expect("sealed");
        let signature = worker.sign_secret_response(node.id, &asking.bytes, &sealed);
        assert!(matches!(asking.open(&sealed, &signature, &verifier, at), Err(AnswerRefusal::DoesNotOpen)));
    }
}

#[test]
fn a_request_is_short_fresh_and_for_different_values() {
    let node = Node::of(&keys());
    let parsed = |wanted: Vec<SecretVersion>, at| {
        SecretRequest::parse(&Asking::new(&realm(), node.id, &node.key, wanted, at).bytes, now()).map(drop)
    };
    assert_eq!(parsed(vec![wanted("a", 1)], after(290)), Ok(()));
    assert_eq!(parsed(vec![wanted("a", 1)], after(-310)), Err(RequestRefusal::Time));
    assert_eq!(parsed(vec![wanted("a", 1)], after(310)), Err(RequestRefusal::Time));
    assert_eq!(parsed(Vec::new(), now()), Err(RequestRefusal::Count));
    assert_eq!(parsed(vec![wanted("a", 1); 2], now()), Err(RequestRefusal::Count));
    let many = (1..=17).map(|version| wanted("a", version)).collect();
    assert_eq!(parsed(many, now()), Err(RequestRefusal::Count));
    assert_eq!(SecretRequest::parse(b"{}", now()), Err(RequestRefusal::Malformed));
}

#[test]
fn a_mark_is_of_one_key_one_path_and_one_content() {
    let (one, other) = (NodeKey::generate(), NodeKey::generate());
    let mark = one.marks().of("/etc/a", b"value");
    assert_eq!(mark, one.marks().of("/etc/a", b"value"));
    assert_ne!(mark, one.marks().of("/etc/b", b"value"));
    assert_ne!(mark, one.marks().of("/etc/a", b"valve"));
    assert_ne!(mark, other.marks().of("/etc/a", b"value"));
}

#[test]
fn nothing_that_is_printed_has_the_one_time_key() {
    let node = Node::of(&keys());
    let asking = Asking::new(&realm(), node.id, &node.key, vec![wanted("a", 1)], now());
    assert!(format!("{asking:?}").contains("private: Secret(..)"));
}
