//! Facts about rotations: who still believes whom, at every step.

use super::*;
use crate::{
    bundle::TrustBundle,
    testing::{Node, after, keys, now},
    tls::{self, ServerTimes, ServingCertificate},
    verify::Validity,
    worker::WorkerKey,
};

const FLEET: &str = "fleet-one";

fn whole(keys: &mut Keys, kind: RotationKind, at: Timestamp) {
    while keys.advance(kind, FLEET, at) != Advanced::Finished {}
}

fn believed_at_first(keys: &Keys) -> TrustBundle {
    keys.bundles(FLEET)[0].first(&keys.anchor(FLEET).verifier()).expect("the first bundle")
}

/// Whether a machine with these roots completes a handshake with what these keys serve.
fn reaches(roots: &TrustBundle, keys: &Keys, at: Timestamp) -> bool {
    let serving = ServingCertificate::new(&keys.issue_serving(&["localhost".to_owned()], at).expect("issued"));
    let clock = schema::clock::ManualClock::new(at);
    let server = tls::gateway_server(serving.expect("usable"), std::sync::Arc::new(clock.clone()));
    let times = ServerTimes::Clock(std::sync::Arc::new(clock));
    let client = tls::agent_client(&roots.roots(), None, times).expect("roots");
    tls::tests::handshake(client, server, "localhost").0.is_ok()
}

fn knows(trust: &TrustBundle, worker: &WorkerKey) -> bool {
    let node = schema::id::NodeId::generate();
    let time = worker.certificate().not_before;
    let signature = worker.sign_server_time(node, &[7; 32], time);
    trust.verifier().server_time(node, &[7; 32], time, &signature).is_ok()
}

#[test]
fn keys_that_were_never_rotated_are_as_they_were() {
    let keys = keys();
    let text = serde_json::to_string(&keys).expect("json");
    assert!(!text.contains("rotations"));
    assert_eq!(keys.trust_version(), 1);
    assert_eq!(believed_at_first(&keys).version, 1);
}

#[test]
fn at_every_step_a_node_that_knows_the_step_before_goes_on() {
    for kind in [RotationKind::NodeCa, RotationKind::CommandRoot] {
        let mut keys = keys();
        let mut trust = believed_at_first(&keys);
        for expected in [Advanced::Begun, Advanced::Switched, Advanced::Finished] {
            assert_eq!(keys.advance(kind, FLEET, now()), expected);
            assert!(reaches(&trust, &keys, now()), "{kind} {expected:?}");
            let (stepped, refusal) = trust.step_through(&keys.bundles(FLEET));
            assert_eq!((stepped.version, refusal), (keys.trust_version(), None), "{kind} {expected:?}");
            assert!(reaches(&stepped, &keys, now()));
            let worker = keys.command_root().certify(&trust.realm(), now());
            assert!(knows(&stepped, &worker), "{kind} {expected:?}");
            trust = stepped;
        }
        assert_eq!(keys.rotation(kind), None);
    }
}

#[test]
fn a_machine_that_missed_two_rotations_of_each_kind_catches_up() {
    let mut keys = keys();
    let away = Node::of(&keys);
    let trust = believed_at_first(&keys);
    for days in [10, 40] {
        let at = after(days * 86_400);
        for kind in RotationKind::ALL {
            whole(&mut keys, kind, at);
        }
    }
    let keys = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    let back = after(60 * 86_400);
    assert!(reaches(&trust, &keys, back), "the chain leads from the root it knows to the present one");
    let (stepped, refusal) = trust.step_through(&keys.bundles(FLEET));
    assert_eq!((stepped.version, refusal), (13, None));
    assert_eq!(stepped.roots(), vec![keys.root_certificate()]);
    assert!(knows(&stepped, &keys.command_root().certify(&trust.realm(), back)));
    // Its certificate opens no session, and is recognised when it is renewed.
    assert!(keys.node_verifier().identify(&away.issued.chain, Validity::Open).is_err());
    let leaf = &away.issued.chain[..1];
    assert_eq!(keys.renewal_verifier(back).identify(leaf, Validity::Open).map(|node| node.node_id), Ok(away.id));
}

#[test]
fn what_is_over_for_too_long_is_forgotten() {
    let mut keys = keys();
    let trust = believed_at_first(&keys);
    let away = Node::of(&keys);
    whole(&mut keys, RotationKind::NodeCa, now());
    let late = MAX_OFFLINE.after(now());
    assert!(!reaches(&trust, &keys, late));
    assert!(keys.renewal_verifier(late).identify(&away.issued.chain[..1], Validity::Open).is_err());
}

#[test]
fn a_join_key_of_before_opens_until_the_end() {
    let mut keys = keys();
    let before = keys.join_keys();
    keys.advance(RotationKind::JoinKey, FLEET, now());
    let during = keys.join_keys();
    assert_eq!((during.len(), during[1].public()), (2, before[0].public()));
    assert_eq!(keys.anchor(FLEET).join_key, during[0].public());
    assert_eq!(keys.advance(RotationKind::JoinKey, FLEET, now()), Advanced::Finished);
    assert_eq!(keys.join_keys().len(), 1);
}

#[test]
fn an_old_signing_root_signs_nothing_that_counts_after_the_end() {
    let mut keys = keys();
    let stolen = keys.command_root().certify(&believed_at_first(&keys).realm(), now());
    let trust = believed_at_first(&keys);
    whole(&mut keys, RotationKind::CommandRoot, now());
    let (stepped, _) = trust.step_through(&keys.bundles(FLEET));
    assert!(knows(&trust, &stolen) && !knows(&stepped, &stolen));
}
