//! Facts about key files and what a gateway gets.

use super::*;
use crate::{
    testing::{Node, keys, now},
    verify::Validity,
};

#[test]
fn opened_keys_are_the_same_keys() {
    let keys = keys();
    let opened = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    assert_eq!(opened.anchor("fleet-one").pin(), keys.anchor("fleet-one").pin());
    let node = Node::of(&opened);
    assert!(keys.node_verifier().identify(&node.issued.chain, Validity::At(now())).is_ok());
}

#[test]
fn a_gateway_gets_no_authority() {
    let keys = keys();
    let gateway =
        keys.issue_gateway("gw-one", &["gw.example.org".to_owned(), "10.0.0.1".to_owned()], now()).expect("issued");
    let text = serde_json::to_string(&gateway).expect("json");
    let all = serde_json::to_value(&keys).expect("json");
    for authority in ["root", "node", "serving", "internal"] {
        let key = all[authority]["key"].as_str().expect("a key");
        assert!(!text.contains(key), "{authority}");
    }
    let opened = GatewayKeys::open(&gateway.seal(b"secret"), b"secret").expect("opens");
    let node = Node::of(&keys);
    let verifier = opened.node_verifier().expect("verifier");
    assert!(verifier.identify(&node.issued.chain, Validity::At(now())).is_ok());
    assert!(Keys::open(&gateway.seal(b"secret"), b"secret").is_err());
}

#[test]
fn what_is_no_trust_domain_gets_no_keys() {
    assert!(Keys::generate("Not A Domain", now()).is_err());
}

#[test]
fn what_is_no_name_gets_no_certificate() {
    for name in ["", "a b", "*", "-", "é"] {
        assert!(matches!(keys().issue_serving(&[name.to_owned()], now()), Err(IssueError::Name(_))), "{name:?}");
    }
}

#[test]
fn printed_keys_show_no_secret() {
    assert!(format!("{:?}", keys()).contains("Secret(..)"));
}

#[test]
fn keys_that_are_made_anew_can_keep_the_secrets() {
    let (before, after) = (keys(), Keys::generate("gpu.example.org", now()).expect("keys"));
    let name = schema::secret::SecretName::new("a").expect("a name");
    let at = crate::secret::Address { name: &name, version: 1, tenant: None };
    let envelope = before.secret_store("fleet-one").seal(at, b"value");
    assert!(after.secret_store("fleet-one").open(at, &envelope).is_err());
    let kept = after.keeping_secrets_of(&before);
    assert_eq!(kept.secret_store("fleet-one").open(at, &envelope).expect("opens").as_slice(), b"value");
}

#[test]
fn a_pin_is_set_once_and_travels_with_the_keys() {
    use crate::trust::{object::ObjectId, statement::FleetId};

    let mut keys = keys();
    let pin = |byte| {
        let commit = ObjectId::Sha1([byte; 20]);
        TrustPin {
            commit,
            fleet: FleetId::of(keys.trust_domain(), &commit),
            digest: schema::digest::Digest::of([byte]),
        }
    };
    let (one, two) = (pin(1), pin(2));
    let before = keys.revision();
    assert_eq!(keys.trust_pin(), None);
    let foreign = TrustPin { fleet: two.fleet, ..one };
    assert_eq!(keys.pin_trust(foreign), Err(PinRefusal::OtherFleet(two.fleet)));
    keys.pin_trust(one).expect("pinned");
    assert_eq!(keys.revision(), before + 1, "whoever works with the keys notices");
    keys.pin_trust(one).expect("the same again");
    assert_eq!(keys.revision(), before + 1);
    assert_eq!(keys.pin_trust(two), Err(PinRefusal::Pinned(one)));
    let opened = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    assert_eq!((opened.trust_pin(), opened.signing().trust_pin()), (Some(one), Some(one)));
}

#[test]
fn a_service_key_travels_to_whoever_follows_the_fleet_and_to_nobody_else() {
    let mut keys = keys();
    let (before, revision) = (serde_json::to_value(&keys).expect("json"), keys.revision());
    assert!(before.get("service").is_none(), "keys without one are what they were");
    keys.add_service_key();
    assert_eq!(keys.revision(), revision + 1, "whoever works with the keys notices");
    let opened = Keys::open(&keys.seal(b"secret"), b"secret").expect("opens");
    let source = SourceKeys::open(&opened.source().seal(b"secret"), b"secret").expect("opens");
    assert_eq!(source.service(), keys.service());
    let secret = serde_json::to_value(&keys).expect("json")["service"][0].as_str().expect("a key").to_owned();
    let gateway = keys.issue_gateway("gw-one", &["gw.example.org".to_owned()], now()).expect("issued");
    for others in [serde_json::to_string(&keys.signing()), serde_json::to_string(&gateway)] {
        assert!(!others.expect("json").contains(&secret));
    }
}
