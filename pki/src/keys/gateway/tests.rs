//! Facts about gateways that get their next keys by themselves.

use super::*;
use crate::{
    keys::{Advanced, RotationKind},
    testing::{after, keys, now, realm},
    tls::{internal_client, internal_server, tests::handshake},
};
use schema::clock::ManualClock;
use std::sync::Arc;

const FLEET: &str = "fleet-one";

fn gateway(keys: &Keys) -> GatewayKeys {
    keys.issue_gateway("gw-1", &["gw.example.org".to_owned(), "192.0.2.7".to_owned()], now()).expect("issued")
}

fn renew(keys: &Keys, gateway: &GatewayKeys, at: Timestamp) -> Result<GatewayKeys, GatewayRefusal> {
    let issuer = keys.gateway_issuer(at);
    let (name, _) = issuer.gateway(&gateway.internal.chain()[0], at)?;
    let renewing = gateway.renewing(&realm(), at).expect("an own key");
    let asked = (renewing.request.as_slice(), renewing.signature.as_slice());
    let issued = issuer.renew(&realm(), &name, &renewing.serving_chain, asked, at)?;
    Ok(gateway.renewed(&renewing, issued))
}

fn names_of(keys: &GatewayKeys) -> Option<Vec<String>> {
    names(&x509_parser::parse_x509_certificate(&keys.serving.chain()[0]).expect("a certificate").1)
}

/// Whether the two complete an internal handshake.
fn meet(keys: &Keys, gateway: &GatewayKeys, at: Timestamp) -> bool {
    let clock = Arc::new(ManualClock::new(at));
    let served = keys.issue_internal("control-plane", at).expect("issued");
    let server = internal_server(&served, &keys.internal_authorities(), clock.clone()).expect("usable");
    let client = internal_client(&gateway.internal, &gateway.internal_authorities(), clock).expect("usable");
    handshake(client, server, crate::keys::INTERNAL_NAME).0.is_ok()
}

#[test]
fn the_next_certificates_have_the_names_of_the_present_ones_and_other_keys() {
    let keys = keys();
    let first = gateway(&keys);
    let next = renew(&keys, &first, after(60)).expect("renewed");
    assert_eq!(names_of(&next), names_of(&first));
    assert_eq!(names_of(&next).expect("names"), ["gw.example.org", "192.0.2.7"]);
    assert_ne!(next.serving.key().secret_der(), first.serving.key().secret_der());
    assert_ne!(next.internal.key().secret_der(), first.internal.key().secret_der());
    assert!(next.serving.not_after() > first.serving.not_after());
    assert!(meet(&keys, &next, after(60)));
}

#[test]
fn nobody_else_gets_a_gateways_certificates() {
    let (keys, other) = (keys(), Keys::generate("bc.local", now()).expect("keys"));
    let (mine, foreign) = (gateway(&keys), gateway(&other));
    let issuer = keys.gateway_issuer(now());
    assert!(matches!(renew(&keys, &foreign, now()), Err(GatewayRefusal::NotAGateway)));
    let process = keys.issue_internal("control-plane", now()).expect("issued");
    assert!(matches!(issuer.gateway(&process.chain()[0], now()), Err(GatewayRefusal::NotAGateway)));
    assert!(matches!(issuer.gateway(&mine.serving.chain()[0], now()), Err(GatewayRefusal::NotAGateway)));

    let asked = mine.renewing(&realm(), now()).expect("an own key");
    let renew = |chain: &[CertificateDer<'_>], request: &[u8], signature: &[u8], at| {
        issuer.renew(&realm(), "gw-1", chain, (request, signature), at).map(drop)
    };
    let (chain, request, signature) = (&asked.serving_chain, &asked.request, &asked.signature);
    renew(chain, request, signature, now()).expect("good");
    assert!(matches!(renew(foreign.serving.chain(), request, signature, now()), Err(GatewayRefusal::Foreign)));
    assert!(matches!(renew(mine.internal.chain(), request, signature, now()), Err(GatewayRefusal::Foreign)));
    let another = gateway(&keys);
    assert!(matches!(renew(another.serving.chain(), request, signature, now()), Err(GatewayRefusal::Possession)));
    assert!(matches!(renew(chain, request, signature, after(301)), Err(GatewayRefusal::Time)));
    assert!(matches!(renew(chain, b"{}", signature, now()), Err(GatewayRefusal::Malformed)));
    assert!(matches!(renew(chain, request, signature, after(31 * 86_400)), Err(GatewayRefusal::Time)));
}

#[test]
fn at_every_step_a_gateway_that_followed_the_one_before_meets_the_control_plane() {
    for kind in [RotationKind::InternalAuthority, RotationKind::NodeCa] {
        let mut keys = keys();
        let mut held = gateway(&keys);
        for expected in [Advanced::Begun, Advanced::Switched, Advanced::Finished] {
            assert_eq!(keys.advance(kind, FLEET, now()), expected);
            assert!(meet(&keys, &held, now()), "{kind} {expected:?}");
            held = renew(&keys, &held, now()).expect("renewed");
            assert_eq!(held.revision, keys.revision());
            assert!(meet(&keys, &held, now()), "{kind} {expected:?}");
        }
    }
}

#[test]
fn a_gateway_that_missed_every_step_of_the_authority_of_its_serving_certificate_follows_when_it_is_back() {
    let mut keys = keys();
    let held = gateway(&keys);
    for _ in 0..2 {
        while keys.advance(RotationKind::NodeCa, FLEET, now()) != Advanced::Finished {}
    }
    let keys = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    assert!(meet(&keys, &held, after(60)) && !keys.gateway_issuer(now()).is_outside(held.revision));
    let next = renew(&keys, &held, after(60)).expect("renewed");
    assert_eq!((next.revision, names_of(&next)), (keys.revision(), names_of(&held)));
    // A certificate of an authority that is over names nobody new, and the internal authority says who asks.
    let other = Keys::generate("bc.local", now()).expect("keys");
    assert!(matches!(renew(&keys, &gateway(&other), after(60)), Err(GatewayRefusal::NotAGateway)));
    assert!(matches!(renew(&keys, &held, after(31 * 86_400)), Err(GatewayRefusal::NotAGateway)));
}

#[test]
fn a_gateway_is_outside_once_it_and_the_control_plane_do_not_believe_each_other() {
    let mut keys = keys();
    let kept = gateway(&keys).revision;
    let outside = |keys: &Keys, revision| keys.gateway_issuer(now()).is_outside(revision);
    keys.advance(RotationKind::InternalAuthority, FLEET, now());
    let begun = keys.revision();
    assert!(!outside(&keys, kept), "the old authority signs");
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    keys.advance(RotationKind::InternalAuthority, FLEET, now());
    let switched = keys.revision();
    assert!(outside(&keys, kept) && !outside(&keys, begun), "it does not know the next one");
    keys.advance(RotationKind::InternalAuthority, FLEET, now());
    assert!(outside(&keys, begun) && !outside(&keys, switched), "it has no certificate of the next one");
}

#[test]
fn a_gateway_that_did_not_follow_is_outside_when_the_old_authority_is_over() {
    let mut keys = keys();
    let held = gateway(&keys);
    while keys.advance(RotationKind::InternalAuthority, FLEET, now()) != Advanced::Finished {}
    assert!(!meet(&keys, &held, now()));
    assert!(matches!(renew(&keys, &held, now()), Err(GatewayRefusal::NotAGateway)));
}
