//! Facts about taking a release.

use std::collections::BTreeMap;

use pki::release::ReleaseKey;
use schema::{command::CommandKind, digest::Digest, release::Manifest};
use serde_json::json;

use super::*;
use crate::kind::testing::{Lab, failure, success};

const KIND: CommandKind = CommandKind::DaemonUpgrade;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn manifest() -> Manifest {
    Manifest {
        version: "9.4.0".parse().expect("a version"),
        binaries: BTreeMap::from([(Arch::Amd64, Binary { digest: Digest::of("bytes"), size: 5 })]),
        not_before: at("2026-03-01T00:00:00Z"),
        expires: at("2026-06-01T00:00:00Z"),
        from: Some("9.2.0".parse().expect("a version")),
        downgrade: false,
    }
}

fn realm() -> Realm {
    Realm::new("bc.local", "fleet-one")
}

fn payload(manifest: &Manifest, keys: &[&ReleaseKey]) -> DaemonUpgrade {
    let mut signed = SignedManifest::unsigned(manifest);
    keys.iter().for_each(|key| signed.sign(&realm(), key));
    DaemonUpgrade { version: "9.4.0".to_owned(), manifest: signed.to_text() }
}

#[test]
fn each_reason_against_a_release_has_its_word() {
    let (one, two) = (ReleaseKey::generate(), ReleaseKey::generate());
    let both = ReleaseKeys::new([one.public(), two.public()], 2).expect("keys");
    let (before, after): (Version, Version) = ("9.3.0".parse().expect("one"), "9.5.0".parse().expect("one"));
    let (realm, now) = (realm(), at("2026-03-02T00:00:00Z"));
    let facts = || Facts { running: &before, arch: Some(Arch::Amd64), now, realm: Some(&realm), keys: Some(&both) };
    let word = |payload: &DaemonUpgrade, facts: &Facts<'_>| match judge(payload, facts) {
        Ok(binary) => format!("{} bytes", binary.size),
        Err((reason, _)) => reason.to_string(),
    };
    let good = payload(&manifest(), &[&one, &two]);
    let noise = DaemonUpgrade { manifest: "{}".to_owned(), ..good.clone() };
    let other = DaemonUpgrade { version: "9.4.1".to_owned(), ..good.clone() };
    let far = Version::new(9, 1, 0);
    for (payload, facts, expected) in [
        (&good, facts(), "5 bytes"),
        (&noise, facts(), "release-malformed"),
        (&payload(&manifest(), &[&one]), facts(), "release-untrusted"),
        (&good, Facts { keys: None, ..facts() }, "release-untrusted"),
        (&good, Facts { realm: None, ..facts() }, "release-untrusted"),
        (&other, facts(), "release-other"),
        (&good, Facts { now: at("2026-02-01T00:00:00Z"), ..facts() }, "release-not-yet"),
        (&good, Facts { now: at("2026-07-01T00:00:00Z"), ..facts() }, "release-expired"),
        (&good, Facts { arch: Some(Arch::Arm64), ..facts() }, "release-no-binary"),
        (&good, Facts { running: &after, ..facts() }, "release-downgrade"),
        (&good, Facts { running: &far, ..facts() }, "release-too-far"),
    ] {
        assert_eq!(word(payload, &facts), expected, "{facts:?}");
    }
}

#[test]
fn without_a_policy_no_release_is_believed_whoever_signed_it() {
    let lab = Lab::new();
    let signed = payload(&manifest(), &[&ReleaseKey::generate()]);
    let (reason, message, _) = failure(lab.run(KIND, json!(signed)));
    assert_eq!(reason, Reason::RELEASE_UNTRUSTED);
    assert!(message.contains("no trust policy"), "{message}");
    let noise = json!({"version": "9.4.0", "manifest": "noise"});
    assert_eq!(failure(lab.run(KIND, noise)).0, Reason::RELEASE_MALFORMED);
}

#[test]
fn a_daemon_that_is_back_in_the_wanted_version_says_so() {
    let wanted = json!({"version": env!("CARGO_PKG_VERSION"), "manifest": "whatever it was"});
    let result = success(KIND, Lab::new().run(KIND, wanted));
    assert_eq!(result, json!({"version": env!("CARGO_PKG_VERSION")}));
}
