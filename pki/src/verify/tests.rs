//! Facts about who is a node and who is not.

use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};

use super::*;
use crate::{
    csr::Csr,
    keys::Keys,
    testing::{Node, after, keys, now},
};

fn identify(keys: &Keys, node: &Node, seconds: i64) -> Result<NodeIdentity, IdentityRefusal> {
    keys.node_verifier().identify(&node.issued.chain, Validity::At(after(seconds)))
}

#[test]
fn a_node_certificate_identifies_its_node_for_a_day() {
    let keys = keys();
    let node = Node::of(&keys);
    let identity = identify(&keys, &node, 0).expect("good");
    assert_eq!(identity.node_id, node.id);
    assert_eq!(identity.serial, node.issued.serial);
    assert_eq!(identity.public_key, node.key.public());
    assert_eq!(identity.not_after, node.issued.not_after);
    assert!(identify(&keys, &node, -299).is_ok());
    assert!(identify(&keys, &node, 86_400).is_ok());
}

#[test]
fn a_certificate_says_which_kinds_its_node_accepts() {
    let keys = keys();
    let said = |kinds: Option<&[String]>| {
        let node = Node::of(&keys);
        let csr = Csr::parse(&node.key.request()).expect("a request");
        let issued = keys.node_issuer().issue(&csr, node.id, kinds, now()).expect("issued");
        keys.node_verifier().identify(&issued.chain, Validity::At(now())).expect("good").kinds
    };
    assert_eq!(said(None), CertifiedKinds::All);
    assert_eq!(said(Some(&[])), CertifiedKinds::Only(Vec::new()));
    // Longer than a length of one byte says.
    let kinds: Vec<String> = (0..40).map(|number| format!("kind.number-{number}")).collect();
    assert_eq!(said(Some(&kinds)), CertifiedKinds::Only(kinds));
    let before = keys.issue_serving(&["localhost".to_owned()], now()).expect("issued");
    assert_eq!(CertifiedKinds::read(&parse(&before.chain()[0]).expect("a certificate")), Some(CertifiedKinds::Unsaid));
}

#[test]
fn before_and_after_that_day_it_does_not() {
    let keys = keys();
    let node = Node::of(&keys);
    assert_eq!(identify(&keys, &node, -301), Err(IdentityRefusal::NotYetValid));
    assert_eq!(identify(&keys, &node, 86_401), Err(IdentityRefusal::Expired));
    assert!(keys.node_verifier().identify(&node.issued.chain, Validity::Open).is_ok());
}

#[test]
fn an_authority_vouches_for_its_nodes_also_when_the_clock_is_set_back_after_it_was_made() {
    let keys = keys();
    let node = Node::at(&keys, after(-12 * 3600));
    assert!(identify(&keys, &node, -12 * 3600).is_ok());
    let serving = keys.issue_serving(&["localhost".to_owned()], now()).expect("issued");
    let (_, leaf) = x509_parser::parse_x509_certificate(&serving.chain()[0]).expect("a certificate");
    assert!(leaf.validity().not_before.timestamp() <= after(-12 * 3600).as_second());
}

#[test]
fn another_control_plane_of_the_same_name_is_foreign() {
    assert_eq!(identify(&keys(), &Node::of(&keys()), 0), Err(IdentityRefusal::ForeignCa));
}

#[test]
fn serving_and_internal_certificates_are_no_nodes() {
    let keys = keys();
    let serving = keys.issue_serving(&["localhost".to_owned()], now()).expect("issued");
    let internal = keys.issue_internal("worker", now()).expect("issued");
    for identity in [serving, internal] {
        let refusal = keys.node_verifier().identify(identity.chain(), Validity::At(now()));
        assert!(matches!(refusal, Err(IdentityRefusal::ForeignCa | IdentityRefusal::NotANode)), "{refusal:?}");
    }
    let authority = [Node::of(&keys).issued.chain[1].clone()];
    assert!(keys.node_verifier().identify(&authority, Validity::At(now())).is_err());
}

#[test]
fn no_certificate_is_anonymous_and_garbage_is_malformed() {
    let verifier = keys().node_verifier();
    assert_eq!(verifier.peer(None, now()), Peer::Anonymous);
    assert_eq!(verifier.peer(Some(&[]), now()), Peer::Anonymous);
    let garbage = [CertificateDer::from(vec![1, 2, 3])];
    assert_eq!(verifier.peer(Some(&garbage), now()), Peer::Refused(IdentityRefusal::Malformed));
}

/// A verifier and a maker of certificates that our own issuer would never make.
fn odd_authority() -> (NodeVerifier, impl Fn(Vec<SanType>, ExtendedKeyUsagePurpose) -> CertificateDer<'static>) {
    let key = KeyPair::generate().expect("key");
    let mut params = CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    let certificate = params.self_signed(&key).expect("root");
    let verifier = NodeVerifier::new("bc.local", &[certificate.der().clone()]).expect("verifier");
    let issuer = Issuer::new(params, key);
    let make = move |names: Vec<SanType>, usage| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        params.signed_by(&KeyPair::generate().expect("key"), &issuer).expect("leaf").der().clone()
    };
    (verifier, make)
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().expect("ascii"))
}

#[test]
fn only_the_exact_spiffe_form_names_a_node() {
    let (verifier, make) = odd_authority();
    let id = NodeId::generate();
    let good = format!("spiffe://bc.local/node/{id}");
    let judge = |names: Vec<SanType>| {
        let leaf = make(names, ExtendedKeyUsagePurpose::ClientAuth);
        verifier.identify(&[leaf], Validity::At(now())).map(|identity| identity.node_id)
    };
    assert_eq!(judge(vec![uri(&good)]), Ok(id));
    for odd in [
        format!("SPIFFE://bc.local/node/{id}"),
        format!("spiffe://BC.LOCAL/node/{id}"),
        format!("spiffe://bc.local./node/{id}"),
        format!("spiffe://bc.local/node/{id}/"),
        format!("spiffe://bc.local/node/%6eode{id}"),
        format!("spiffe://bc.local/nodes/{id}"),
        format!("spiffe://bc.local//node/{id}"),
        format!("spiffe://bc.local:443/node/{id}"),
        format!("https://bc.local/node/{id}"),
        "spiffe://bc.local/node/".to_owned(),
        "spiffe://bc.local/node/root".to_owned(),
        "spiffe://bc.local".to_owned(),
    ] {
        assert_eq!(judge(vec![uri(&odd)]), Err(IdentityRefusal::NotANode), "{odd}");
    }
    assert_eq!(judge(vec![uri(&format!("spiffe://other.local/node/{id}"))]), Err(IdentityRefusal::WrongTrustDomain));
    assert_eq!(judge(vec![uri(&good), uri(&good)]), Err(IdentityRefusal::NotANode));
    assert_eq!(
        judge(vec![uri(&good), SanType::DnsName("a.example".try_into().expect("dns"))]),
        Err(IdentityRefusal::NotANode)
    );
    assert_eq!(judge(vec![]), Err(IdentityRefusal::NotANode));
}

#[test]
fn a_server_certificate_with_a_node_name_is_not_a_node() {
    let (verifier, make) = odd_authority();
    let leaf =
        make(vec![uri(&format!("spiffe://bc.local/node/{}", NodeId::generate()))], ExtendedKeyUsagePurpose::ServerAuth);
    assert_eq!(verifier.identify(&[leaf], Validity::At(now())), Err(IdentityRefusal::NotANode));
}

#[test]
fn no_bit_of_a_certificate_can_change() {
    let keys = keys();
    let node = Node::of(&keys);
    let verifier = keys.node_verifier();
    let leaf = node.issued.chain[0].to_vec();
    for bit in 0..leaf.len() * 8 {
        let mut changed = leaf.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let chain = [CertificateDer::from(changed)];
        assert!(verifier.identify(&chain, Validity::At(now())).is_err(), "bit {bit}");
    }
}
