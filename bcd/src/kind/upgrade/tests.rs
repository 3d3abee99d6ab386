//! Facts about taking a release.

use std::collections::BTreeMap;

use pki::{
    batch::testing::Person,
    release::{NAMESPACE, SignedManifest},
    trust::key::TrustKey,
};
use schema::{command::CommandKind, digest::Digest, release::Manifest};
use serde_json::json;

use super::*;
use crate::{
    command::Run as _,
    kind::testing::{Lab, body, failure, success},
    testing::People,
};

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

const RELEASES: &str = "releases { roles \"admin\"; threshold 2; }\n";

/// What a node believes whose people agreed to this on top of their first policy.
fn policies(people: &People, more: &str) -> Policies {
    let mut policies = people.policies();
    assert!(policies.take(&[people.next(more).1], &[]).changed);
    policies
}

fn payload(manifest: &Manifest, policies: &Policies, by: &[&Person]) -> DaemonUpgrade {
    let trusted = policies.trusted().expect("a policy");
    let signed = by.iter().fold(SignedManifest::unsigned(manifest), |signed, person| {
        let key = TrustKey::from_ssh(&person.line()).expect("a key");
        let bytes = signed.to_sign(trusted.trust_domain, trusted.fleet);
        signed.with(person.sign(NAMESPACE, bytes.as_bytes()), &key, &trusted).expect("signed")
    });
    DaemonUpgrade { version: "9.4.0".to_owned(), manifest: signed.to_text() }
}

/// The reason against a release and why, of a node that believes this.
fn refusal(policies: Option<Policies>, payload: &DaemonUpgrade) -> (Reason, String) {
    let lab = Lab::new();
    let (context, _handle) = Context::for_test(body(KIND, json!(payload)));
    let context = match policies {
        Some(policies) => context.believing(policies),
        None => context,
    };
    let (reason, message, _) = failure(lab.machine().run(&context));
    (reason, message)
}

#[test]
fn each_reason_against_a_release_has_its_word() {
    let people = People::new(0);
    let believed = policies(&people, RELEASES);
    let (before, after): (Version, Version) = ("9.3.0".parse().expect("one"), "9.5.0".parse().expect("one"));
    let now = at("2026-03-02T00:00:00Z");
    let facts = || Facts { running: &before, arch: Some(Arch::Amd64), now, policies: Some(&believed) };
    let word = |payload: &DaemonUpgrade, facts: &Facts<'_>| match judge(payload, facts) {
        Ok(binary) => format!("{} bytes", binary.size),
        Err((reason, _)) => reason.to_string(),
    };
    let good = payload(&manifest(), &believed, &[&people.ada, &people.bob]);
    let noise = DaemonUpgrade { manifest: "{}".to_owned(), ..good.clone() };
    let other = DaemonUpgrade { version: "9.4.1".to_owned(), ..good.clone() };
    let far = Version::new(9, 1, 0);
    for (payload, facts, expected) in [
        (&good, facts(), "5 bytes"),
        (&noise, facts(), "release-malformed"),
        (&payload(&manifest(), &believed, &[&people.ada]), facts(), "release-untrusted"),
        (&good, Facts { policies: None, ..facts() }, "release-untrusted"),
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
fn a_release_that_enough_people_signed_is_good_and_put_nowhere() {
    let people = People::new(0);
    let believed = policies(&people, RELEASES);
    let arches = [Arch::Amd64, Arch::Arm64].map(|arch| (arch, Binary { digest: Digest::of("bytes"), size: 5 }));
    let everywhere = Manifest { binaries: BTreeMap::from(arches), from: None, ..manifest() };
    let signed = payload(&everywhere, &believed, &[&people.ada, &people.bob]);
    let (reason, message) = refusal(Some(believed), &signed);
    assert_eq!(reason, Reason::UNSUPPORTED_HERE, "{message}");
    assert!(message.contains("the release is good"), "{message}");
}

#[test]
fn without_a_policy_no_release_is_believed_whoever_signed_it() {
    let people = People::new(0);
    let signed = payload(&manifest(), &policies(&people, RELEASES), &[&people.ada, &people.bob]);
    for policies in [None, Some(people.pinned())] {
        let (reason, message) = refusal(policies, &signed);
        assert_eq!(reason, Reason::RELEASE_UNTRUSTED);
        assert!(message.contains("holds no trust policy"), "{message}");
    }
    let noise = DaemonUpgrade { manifest: "noise".to_owned(), ..signed };
    assert_eq!(refusal(None, &noise).0, Reason::RELEASE_MALFORMED);
}

#[test]
fn the_newest_policy_says_who_may_sign_and_a_revocation_is_heard() {
    let people = People::new(0);
    let mut believed = policies(&people, RELEASES);
    let signed = payload(&manifest(), &believed, &[&people.ada, &people.bob]);
    let (reason, message) = refusal(Some(people.policies()), &signed);
    assert_eq!(reason, Reason::RELEASE_UNTRUSTED);
    assert!(message.contains("policy of epoch 1 has no `releases`"), "{message}");

    let revoke = people.fleet.revoke(&people.ada, &people.bob.key(), &people.policy);
    assert!(believed.take(&[], &[revoke]).changed);
    let (reason, message) = refusal(Some(believed), &signed);
    assert_eq!(reason, Reason::RELEASE_UNTRUSTED);
    let gone = format!("bob does not count: the key {} is revoked", people.bob.key());
    assert!(message.starts_with("ada signed it, and ") && message.contains(&gone), "{message}");
}

#[test]
fn what_follows_the_policy_and_cannot_be_judged_takes_every_release_away() {
    let people = People::new(0);
    let mut believed = policies(&people, RELEASES);
    let signed = payload(&manifest(), &believed, &[&people.ada, &people.bob]);
    let newer = crate::policies::Offered {
        epoch: 3,
        document: b"policy { format 2; epoch 3; }".to_vec(),
        statements: Vec::new(),
    };
    assert!(!believed.take(&[newer], &[]).changed);
    let (reason, message) = refusal(Some(believed), &signed);
    assert_eq!(reason, Reason::RELEASE_UNTRUSTED);
    assert!(message.contains("TrustTooNew"), "{message}");
}

#[test]
fn a_daemon_that_is_back_in_the_wanted_version_says_so() {
    let wanted = json!({"version": env!("CARGO_PKG_VERSION"), "manifest": "whatever it was"});
    let result = success(KIND, Lab::new().run(KIND, wanted));
    assert_eq!(result, json!({"version": env!("CARGO_PKG_VERSION")}));
}
