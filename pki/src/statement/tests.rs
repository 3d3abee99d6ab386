//! Facts about what workers sign: nothing passes for anything else.

use super::*;
use crate::{
    testing::{after, keys, now, realm},
    worker::SignatureRefusal,
};

const SPEC: &[u8] = br#"{"host":{}}"#;

struct Fixture {
    worker: WorkerKey,
    verifier: CommandVerifier,
    node: NodeId,
}

fn fixture() -> Fixture {
    let keys = keys();
    let worker = keys.command_root().certify(&realm(), now());
    let verifier = CommandVerifier::new(realm(), vec![keys.command_root().public()]);
    Fixture { worker, verifier, node: NodeId::generate() }
}

fn at(seconds: i64) -> Validity {
    Validity::At(after(seconds))
}

#[test]
fn a_signed_spec_is_good_for_its_node_generation_and_bytes_only() {
    let Fixture { worker, verifier, node } = fixture();
    let signature = worker.sign_desired_state(node, Generation(3), SPEC);
    assert_eq!(verifier.desired_state(node, Generation(3), SPEC, &signature, at(0)), Ok(()));
    let bad = Err(SignatureRefusal::BadSignature);
    assert_eq!(verifier.desired_state(NodeId::generate(), Generation(3), SPEC, &signature, at(0)), bad);
    assert_eq!(verifier.desired_state(node, Generation(4), SPEC, &signature, at(0)), bad);
    assert_eq!(verifier.desired_state(node, Generation(3), b"{}", &signature, at(0)), bad);
}

#[test]
fn a_worker_signs_for_a_day() {
    let Fixture { worker, verifier, node } = fixture();
    let signature = worker.sign_desired_state(node, Generation(1), SPEC);
    let check = |validity| verifier.desired_state(node, Generation(1), SPEC, &signature, validity);
    assert_eq!(check(at(86_399)), Ok(()));
    assert_eq!(check(at(86_400)), Err(SignatureRefusal::WorkerExpired));
    assert_eq!(check(at(-301)), Err(SignatureRefusal::WorkerNotYetValid));
    assert_eq!(check(Validity::Open), Ok(()));
    assert!(!worker.certificate().is_past_half_life(after(0)));
    assert!(worker.certificate().is_past_half_life(after(43_200)));
}

#[test]
fn another_root_or_realm_counts_nothing() {
    let Fixture { worker, node, .. } = fixture();
    let signature = worker.sign_desired_state(node, Generation(1), SPEC);
    let stranger = CommandVerifier::new(realm(), vec![keys().command_root().public()]);
    let refusal = Err(SignatureRefusal::UnknownRoot);
    assert_eq!(stranger.desired_state(node, Generation(1), SPEC, &signature, at(0)), refusal);

    let keys = keys();
    let signature = keys.command_root().certify(&realm(), now()).sign_desired_state(node, Generation(1), SPEC);
    for realm in [Realm::new("bc.local", "fleet-two"), Realm::new("other.local", "fleet-one")] {
        let verifier = CommandVerifier::new(realm, vec![keys.command_root().public()]);
        assert_eq!(verifier.desired_state(node, Generation(1), SPEC, &signature, at(0)), refusal);
    }
}

#[test]
fn a_worker_cannot_vouch_for_a_worker() {
    let Fixture { worker, verifier, node } = fixture();
    let mut signature = worker.sign_desired_state(node, Generation(1), SPEC);
    let head = SignedBytes::new(Purpose::WorkerCertificate, &realm()).field(&signature.worker);
    signature.root_signature = worker.sign(&head).signature;
    let refusal = verifier.desired_state(node, Generation(1), SPEC, &signature, at(0));
    assert_eq!(refusal, Err(SignatureRefusal::UnknownRoot));
}

#[test]
fn no_bit_of_a_signature_can_change() {
    let Fixture { worker, verifier, node } = fixture();
    let good = worker.sign_desired_state(node, Generation(1), SPEC);
    let parts: [fn(&mut Signature) -> &mut Vec<u8>; 3] =
        [|s| &mut s.worker, |s| &mut s.root_signature, |s| &mut s.signature];
    for part in parts {
        let length = part(&mut good.clone()).len();
        for bit in 0..length * 8 {
            let mut changed = good.clone();
            part(&mut changed)[bit / 8] ^= 1 << (bit % 8);
            assert!(verifier.desired_state(node, Generation(1), SPEC, &changed, Validity::Open).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn a_signature_for_one_purpose_is_none_for_another() {
    let Fixture { worker, verifier, node } = fixture();
    for made in Purpose::ALL {
        let signature = worker.sign(&SignedBytes::new(made, &realm()).field(node.to_string()));
        for wanted in Purpose::ALL {
            let bytes = SignedBytes::new(wanted, &realm()).field(node.to_string());
            assert_eq!(verifier.verify(&bytes, &signature, at(0)).is_ok(), made == wanted, "{made:?} as {wanted:?}");
        }
    }
}

#[test]
fn signed_time_answers_its_node_and_nonce() {
    let Fixture { worker, verifier, node } = fixture();
    let signature = worker.sign_server_time(node, b"nonce", now());
    assert_eq!(verifier.server_time(node, b"nonce", now(), &signature), Ok(()));
    assert!(verifier.server_time(node, b"other", now(), &signature).is_err());
    assert!(verifier.server_time(NodeId::generate(), b"nonce", now(), &signature).is_err());
    assert!(verifier.server_time(node, b"nonce", after(1), &signature).is_err());
}

#[test]
fn a_worker_cannot_state_a_time_outside_its_own_life() {
    let Fixture { worker, verifier, node } = fixture();
    let signature = worker.sign_server_time(node, b"nonce", after(90_000));
    assert_eq!(verifier.server_time(node, b"nonce", after(90_000), &signature), Err(SignatureRefusal::WorkerExpired));
}

#[test]
fn an_identity_answers_one_request_in_one_fleet() {
    let Fixture { worker, verifier, node } = fixture();
    let csr = Digest::of("request");
    let mut identity = JoinIdentity {
        node_id: node,
        node_name: "h100-00c0ffee".to_owned(),
        pool: Some("h100".to_owned()),
        trust_domain: "bc.local".to_owned(),
        fleet_id: "fleet-one".to_owned(),
        identity_generation: IdentityGeneration(1),
        kinds: None,
        csr,
    };
    let (bytes, signature) = worker.sign_identity(&identity);
    assert_eq!(verifier.identity(csr, &bytes, &signature, at(0)), Ok(identity.clone()));
    let other = Digest::of("another request");
    assert_eq!(verifier.identity(other, &bytes, &signature, at(0)), Err(JoinIdentityRefusal::NotForUs));
    identity.fleet_id = "fleet-two".to_owned();
    let (bytes, signature) = worker.sign_identity(&identity);
    assert_eq!(verifier.identity(csr, &bytes, &signature, at(0)), Err(JoinIdentityRefusal::NotForUs));
}
