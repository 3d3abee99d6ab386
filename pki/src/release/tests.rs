//! Facts about signed manifests.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    release::{Arch, Binary},
};

use super::*;

fn manifest() -> Manifest {
    Manifest {
        version: "1.4.0".parse().expect("a version"),
        binaries: BTreeMap::from([(Arch::Amd64, Binary { digest: Digest::of("bytes"), size: 5 })]),
        not_before: "2026-03-01T00:00:00Z".parse().expect("a time"),
        expires: "2026-06-01T00:00:00Z".parse().expect("a time"),
        from: None,
        downgrade: false,
    }
}

fn realm() -> Realm {
    Realm::new("bc.local", "fleet-one")
}

fn signed_by(keys: &[&ReleaseKey]) -> SignedManifest {
    let mut signed = SignedManifest::unsigned(&manifest());
    keys.iter().for_each(|key| signed.sign(&realm(), key));
    signed
}

fn keys(of: &[&ReleaseKey], threshold: usize) -> ReleaseKeys {
    ReleaseKeys::new(of.iter().map(|key| key.public()), threshold).expect("keys")
}

#[test]
fn as_many_keys_as_it_takes_have_to_sign() {
    let (a, b, stranger) = (ReleaseKey::generate(), ReleaseKey::generate(), ReleaseKey::generate());
    let two = keys(&[&a, &b], 2);
    let verify = |signed: &SignedManifest| signed.verify(&realm(), &two);
    assert_eq!(verify(&signed_by(&[&a, &b])), Ok(manifest()));
    let untrusted = |by| Err(ManifestRefusal::Untrusted { by, threshold: 2 });
    assert_eq!(verify(&signed_by(&[])), untrusted(0));
    assert_eq!(verify(&signed_by(&[&a])), untrusted(1));
    assert_eq!(verify(&signed_by(&[&a, &stranger])), untrusted(1));
    let mut twice = signed_by(&[&a]);
    twice.signatures.push(twice.signatures[0].clone());
    assert_eq!(verify(&twice), untrusted(1), "one key is one voice");
    assert_eq!(verify(&signed_by(&[&a, &stranger, &b])), Ok(manifest()), "more than it takes is no harm");
}

#[test]
fn another_text_and_another_fleet_are_not_what_was_signed() {
    let a = ReleaseKey::generate();
    let one = keys(&[&a], 1);
    let good = signed_by(&[&a]);
    let read = SignedManifest::read(&good.to_text()).expect("read");
    assert_eq!((read.verify(&realm(), &one), &read), (Ok(manifest()), &good));
    assert!(good.verify(&Realm::new("bc.local", "fleet-two"), &one).is_err());
    assert!(good.verify(&Realm::new("other", "fleet-one"), &one).is_err());
    let mut changed = good;
    changed.manifest = changed.manifest.replace("1.4.0", "1.5.0");
    assert_eq!(changed.verify(&realm(), &one), Err(ManifestRefusal::Untrusted { by: 0, threshold: 1 }));
}

#[test]
fn what_is_signed_has_one_form() {
    let a = ReleaseKey::generate();
    let loose = |text: String| {
        let mut signed = SignedManifest { manifest: text, signatures: Vec::new() };
        signed.sign(&realm(), &a);
        signed.verify(&realm(), &keys(&[&a], 1))
    };
    let text = String::from_utf8(manifest().to_bytes()).expect("text");
    assert_eq!(loose(text.clone()), Ok(manifest()));
    for other in [text.replace(":5", ": 5"), text.replace('{', "{ "), "{}".to_owned(), "[]".to_owned(), String::new()] {
        assert!(matches!(loose(other.clone()), Err(ManifestRefusal::Malformed(_))), "{other}");
    }
}

#[test]
fn noise_is_no_signed_manifest() {
    let long = format!("{{\"manifest\":\"{}\",\"signatures\":[]}}", "x".repeat(MAX_MANIFEST));
    let a = ReleaseKey::generate();
    let mut many = signed_by(&[&a]);
    many.signatures = vec![many.signatures[0].clone(); MOST + 1];
    for text in ["", "{}", "{\"manifest\":1,\"signatures\":[]}", &long, &many.to_text()] {
        assert!(
            matches!(SignedManifest::read(text), Err(ManifestRefusal::Malformed(_))),
            "{}",
            &text[..text.len().min(40)]
        );
    }
}

#[test]
fn keys_are_texts_and_a_threshold_is_one_that_can_be_met() {
    let key = ReleaseKey::generate();
    let same = key.to_text(ReleaseKey::parse).expect("a key");
    assert_eq!(same.public(), key.public());
    assert_eq!(key.public().to_string().parse(), Ok(key.public()));
    assert!(!format!("{key:?}").contains(&key.to_text(|text| text[5..].to_owned())));
    for text in ["", "bcrk_", "bcrk_AAAA", "bcrp_AAAA"] {
        assert_eq!(ReleaseKey::parse(text).err(), Some(ReleaseKeyError::Private), "{text}");
        assert_eq!(text.parse::<ReleasePublicKey>(), Err(ReleaseKeyError::Public), "{text}");
    }
    for (of, threshold) in [(vec![], 0), (vec![], 1), (vec![key.public()], 0), (vec![key.public(), key.public()], 2)] {
        assert_eq!(ReleaseKeys::new(of, threshold), None);
    }
}
