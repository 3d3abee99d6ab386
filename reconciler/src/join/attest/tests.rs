//! Facts about what pools say, and what that is worth.

use schema::{attested::Attested, digest::Digest};

use super::{super::voucher::Voucher, *};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn stand(pool: &str, endorsed: bool, named: bool, open: bool) -> Stand {
    Stand { pool: name(pool), endorsed, named, open }
}

fn identity(kind: AttestKind, stands: Vec<Stand>) -> Testimony {
    let subject = match kind {
        AttestKind::X509 | AttestKind::Tpm => Digest::of("key").to_string(),
        AttestKind::Aws | AttestKind::Gcp | AttestKind::Azure => "acme/1".to_owned(),
    };
    Testimony::Identity { attested: Attested::new(kind, subject).expect("an identity"), about: None, stands }
}

fn token(pool: &str) -> Testimony {
    let by = "token of ada".to_owned();
    let id = JoinTokenId::generate();
    Testimony::Token { id, pool: name(pool), expect: Expect::default(), reclaim: false, kinds: None, by }
}

fn pool(heard: Vec<Testimony>) -> Result<Name, &'static str> {
    Voucher::weigh(heard).and_then(|voucher| voucher.pool()).map_err(|refusal| refusal.code())
}

#[test]
fn an_authority_lets_in_whom_it_certified_and_a_maker_or_a_cloud_only_who_is_named() {
    for kind in AttestKind::ALL.iter().copied() {
        let open = pool(vec![identity(kind, vec![stand("h100", true, false, true)])]);
        let expected = if kind == AttestKind::X509 { Ok(name("h100")) } else { Err("attestation-unknown") };
        assert_eq!(open, expected, "{kind}");
        assert_eq!(pool(vec![identity(kind, vec![stand("h100", true, true, false)])]), Ok(name("h100")), "{kind}");
        for stands in [vec![stand("h100", false, true, false)], vec![stand("h100", true, false, false)], Vec::new()] {
            assert_eq!(pool(vec![identity(kind, stands)]), Err("attestation-unknown"), "{kind}");
        }
    }
}

#[test]
fn who_belongs_to_several_pools_belongs_to_none_until_somebody_says_which() {
    let both = || identity(AttestKind::X509, vec![stand("a100", true, true, false), stand("h100", true, true, false)]);
    assert_eq!(pool(vec![both()]), Err("attestation-disagrees"));
    assert_eq!(pool(vec![token("h100"), both()]), Ok(name("h100")));
    assert_eq!(pool(vec![token("b200"), both()]), Err("attestation-disagrees"));
    let known_nowhere = identity(AttestKind::X509, Vec::new());
    assert_eq!(pool(vec![token("b200"), known_nowhere]), Ok(name("b200")));
    assert_eq!(pool(Vec::new()), Err("no-token"));
}

#[test]
fn a_rule_that_cannot_be_read_believes_nobody() {
    let document = serde_json::json!({
        "name": "h100", "site": "fra1", "profile": "base",
        "attest": { "x509": { "roots": "nothing" }, "gcp": { "keys": "{}", "only": ["acme/*"] }, "smoke": {} },
    });
    let rules = rules(&[serde_json::from_value(document).expect("a pool")]);
    assert_eq!(rules.iter().map(|rule| rule.kind).collect::<Vec<_>>(), [AttestKind::Gcp, AttestKind::X509]);
    assert!(rules.iter().all(|rule| rule.roots.is_none() && rule.keys.is_none()));
}

#[test]
fn what_is_asked_of_everybody_is_not_met_by_a_key_that_anybody_makes() {
    let of = |attest: serde_json::Value| {
        let document = serde_json::json!({ "name": "h100", "site": "fra1", "profile": "base", "attest": attest });
        rules(&[serde_json::from_value(document).expect("a pool")])
    };
    let voucher = |rule: &Rule| {
        let subject = Digest::of("key").to_string();
        let stands = vec![rule.stand([subject.as_str()], true)];
        Voucher::weigh(vec![token("h100"), identity(AttestKind::Tpm, stands)]).expect("weighed")
    };
    let required = &of(serde_json::json!({ "tpm": { "required": true } }))[0];
    let shown = voucher(required);
    assert!(!shown.satisfies(required, &[]));
    assert!(shown.satisfies(required, &shown.attested()), "its document names it");
    let named = &of(serde_json::json!({ "tpm": { "required": true, "only": [Digest::of("key").to_string()] } }))[0];
    assert!(voucher(named).satisfies(named, &[]));
    let roots = include_str!("../tests/evidence/racks.pem");
    let made = &of(serde_json::json!({ "tpm": { "required": true, "roots": roots } }))[0];
    assert!(voucher(made).satisfies(made, &[]), "its maker stands behind it");
}

#[test]
fn a_certificate_is_believed_by_nobody_who_names_no_authority() {
    let document = serde_json::json!({
        "name": "h100", "site": "fra1", "profile": "base", "attest": { "x509": { "only": ["*"] } },
    });
    let rules = rules(&[serde_json::from_value(document).expect("a pool")]);
    let realm = pki::Realm::new("bc.local", "fleet_test");
    let binding = Binding { realm: &realm, csr: Digest::of("csr"), challenge: b"challenge" };
    let (certificate, key) =
        (include_bytes!("../tests/evidence/r12.pem"), include_bytes!("../tests/evidence/r12-key.pem"));
    let evidence = pki::attest::x509::sign(certificate, key, &binding).expect("signed");
    let proof = pki::attest::x509::prove(&evidence, &binding).expect("proven");
    let heard = rule::stands(&proof, &rules, Timestamp::UNIX_EPOCH).expect("heard");
    assert_eq!(pool(vec![heard]), Err("attestation-unknown"));
}

#[test]
fn what_a_cloud_says_of_a_document_counts_by_the_keys_of_its_own_pool() {
    let heard = identity(AttestKind::Aws, vec![stand("a", false, false, false), stand("b", true, false, false)]);
    let voucher = Voucher::weigh(vec![heard]).expect("weighed");
    let named = voucher.attested();
    assert_eq!(voucher.believed(&named, &name("b")), Ok(()));
    for pool in ["a", "c"] {
        let refusal = voucher.believed(&named, &name(pool)).map_err(|refusal| refusal.code());
        assert_eq!(refusal, Err("attestation-untrusted"), "{pool}");
    }
    assert_eq!(voucher.believed(&[], &name("a")), Ok(()), "the document names nothing");
    let key = Voucher::weigh(vec![identity(AttestKind::Tpm, Vec::new())]).expect("weighed");
    assert_eq!(key.believed(&key.attested(), &name("a")), Ok(()), "a key is its own name");
}
