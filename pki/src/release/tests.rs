//! Facts about signed manifests: whose voice counts, by which key, for what and how often.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    release::{Arch, Binary},
};

use super::*;
use crate::{
    batch::testing::{Fleet, Person, object, policy},
    trust::{
        commit::Commit,
        policy::Policy,
        signature::signer,
        spoken::{Spoken, Unheard},
        testing::{Gpg, PLAIN, Pgp, SecurityKey, has, secret, sign_raw, split, ssh_sign},
    },
};

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

/// Somebody of a policy: a kind, a role and the lines of their keys.
fn principal(name: &str, kind: &str, role: &str, keys: &[String]) -> String {
    format!("principal \"{name}\" {{ kind \"{kind}\"; roles \"{role}\"; {} }}\n", keys.join("; "))
}

fn ssh(line: &str) -> String {
    format!("key \"{line}\"")
}

fn openpgp(fingerprint: &str, block: &str) -> String {
    format!("openpgp \"{fingerprint}\" \"\"\"\n{block}\n\"\"\"\n")
}

/// A policy that `root` alone changes, in which these take part.
fn policy_of(root: &Person, principals: &str, more: &str) -> Policy {
    policy(&format!(
        "policy {{ format 1; epoch 1; }}\npath \"**\" {{ roles \"admin\"; }}\ntrust {{ roles \"admin\"; threshold 1; }}\n{}{principals}{more}",
        principal("root", "human", "admin", &[ssh(&root.line())])
    ))
}

/// Whose word is asked for.
struct World {
    fleet: Fleet,
    policy: Policy,
    revoked: BTreeSet<String>,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self { fleet: Fleet::new("acme.example"), policy, revoked: BTreeSet::new() }
    }

    fn trusted(&self) -> Trusted<'_> {
        Trusted {
            trust_domain: &self.fleet.trust_domain,
            fleet: self.fleet.id,
            policy: &self.policy,
            revoked: &self.revoked,
        }
    }

    /// The bytes that people sign here.
    fn bytes(&self) -> Vec<u8> {
        let bytes = SignedManifest::unsigned(&manifest()).to_sign(&self.fleet.trust_domain, self.fleet.id);
        bytes.as_bytes().to_vec()
    }

    fn verify(&self, signatures: &[String]) -> Result<Manifest, ManifestRefusal> {
        let signed = SignedManifest { signatures: signatures.to_vec(), ..SignedManifest::unsigned(&manifest()) };
        signed.verify(&self.trusted())
    }

    fn by(&self, people: &[&Person]) -> Vec<String> {
        people.iter().map(|person| person.sign(NAMESPACE, &self.bytes())).collect()
    }

    /// Why it is not believed.
    fn untrusted(&self, signatures: &[String]) -> Untrusted {
        match self.verify(signatures) {
            Err(ManifestRefusal::Untrusted(untrusted)) => untrusted,
            other => panic!("{other:?}"),
        }
    }

    /// The one reason why a signature does not count.
    fn no_voice(&self, signature: String) -> NoVoice {
        let mut refused = self.untrusted(&[signature]).refused;
        assert_eq!(refused.len(), 1);
        refused.remove(0)
    }
}

const ONE: &str = "releases { roles \"release\"; threshold 1; }\n";
const TWO: &str = "releases { roles \"release\"; threshold 2; }\n";

/// Ada with two keys, Bob and a service may sign, two together; Oscar and a forge may not.
struct Cast {
    ada: [Person; 2],
    bob: Person,
    ci: Person,
    oscar: Person,
    forge: Person,
    root: Person,
}

impl Cast {
    fn new() -> Self {
        let [ada, other, bob, ci, oscar, forge, root] =
            ["ada", "ada", "bob", "ci", "oscar", "forge", "root"].map(Person::new);
        Self { ada: [ada, other], bob, ci, oscar, forge, root }
    }

    fn policy(&self, more: &str) -> Policy {
        let one = |person: &Person, kind: &str, role: &str| principal(&person.name, kind, role, &[ssh(&person.line())]);
        let ada = principal("ada", "human", "release", &self.ada.each_ref().map(|key| ssh(&key.line())));
        let others = [
            one(&self.bob, "human", "release"),
            one(&self.ci, "service", "release"),
            one(&self.oscar, "human", "operator"),
            one(&self.forge, "forge", "release"),
        ];
        policy_of(&self.root, &(ada + &others.concat()), more)
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

#[test]
fn every_kind_of_key_that_signs_commits_signs_releases_and_what_it_signed_for_git_is_none() {
    if !has("ssh-keygen") || !has("gpg") {
        return;
    }
    type Sign<'a> = Box<dyn Fn(&str, &[u8]) -> String + 'a>;
    let security = SecurityKey::generate();
    let rings = ["ed25519", "rsa3072"].map(Gpg::with);
    let mut keys: Vec<(String, Sign<'_>)> =
        vec![(ssh(&security.line), Box::new(|namespace: &str, text: &[u8]| security.sign(namespace, 1, text)))];
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = secret(kind);
        keys.push((ssh(&key.line), Box::new(|namespace, text| ssh_sign(key, namespace, &[], text))));
    }
    for ring in &rings {
        keys.push((openpgp(&ring.fingerprint, &ring.export()), Box::new(|_, text| ring.sign(text, &[]))));
    }
    for (key, sign) in keys {
        let world = World::new(policy_of(
            &Person::new("root"),
            &principal("ada", "human", "release", std::slice::from_ref(&key)),
            ONE,
        ));
        let signature = sign(NAMESPACE, &world.bytes());
        assert_eq!(world.verify(std::slice::from_ref(&signature)), Ok(manifest()), "{key}");
        // What a commit was signed with vouches for no release, and a release's signature for no commit.
        assert!(world.verify(&[sign("git", PLAIN.as_bytes())]).is_err(), "{key}");
        let commit = sign_raw(PLAIN.as_bytes(), "gpgsig", &signature);
        assert!(signer(&split(&commit), world.policy.keys()).is_err(), "{key}");
    }
}

#[test]
fn different_principals_count_and_each_of_them_once() {
    let cast = Cast::new();
    let Cast { ada: [ada, other], bob, ci, .. } = &cast;
    let world = World::new(cast.policy(TWO));
    let verify = |people: &[&Person]| world.verify(&world.by(people));
    let short = |people: &[&Person]| world.untrusted(&world.by(people)).by;
    assert_eq!(verify(&[ada, bob]), Ok(manifest()));
    assert_eq!(verify(&[other, ci]), Ok(manifest()), "a service signs releases");
    assert_eq!(verify(&[&cast.oscar, ada, &cast.forge, bob]), Ok(manifest()), "more than it takes is no harm");
    assert_eq!(short(&[]), BTreeSet::new());
    for of_ada in [&[ada][..], &[ada, other], &[ada, ada, ada]] {
        assert_eq!(short(of_ada), BTreeSet::from([name("ada")]));
    }
}

#[test]
fn who_signed_and_does_not_count_is_told_with_the_reason() {
    let cast = Cast::new();
    let (ada, stranger) = (&cast.ada[0], Person::new("eve"));
    let mut world = World::new(cast.policy(TWO));
    world.revoked.insert(cast.bob.key());
    let told = world.untrusted(&world.by(&[ada, &cast.bob, &cast.oscar, &cast.forge, &stranger, &stranger]));
    assert_eq!(
        told.to_string(),
        format!(
            "ada signed it, and `releases` of the trust policy of epoch 1 asks for 2; bob does not count: the key {} is \
             revoked; oscar does not count: `releases` names release; forge does not count: it is a forge, which stands for \
             nobody; a signature does not count: the key {} is nobody's; one more does not count",
            cast.bob.key(),
            stranger.key()
        )
    );
    let nobody = world.untrusted(&[]).to_string();
    assert_eq!(nobody, "nobody who counts signed it, and `releases` of the trust policy of epoch 1 asks for 2");
}

#[test]
fn a_key_that_is_over_vouches_for_nothing_also_not_for_what_it_signed_before() {
    let cast = Cast::new();
    let ada = &cast.ada[0];
    let over = |how: &str| format!("{TWO}revoked \"{}\" {{ as \"{how}\"; }}\n", ada.key());
    let mut revoked = World::new(cast.policy(TWO));
    revoked.revoked.insert(ada.key());
    let retired = World::new(cast.policy(&over("retired")));
    let compromised = World::new(cast.policy(&over("compromised")));
    for (how, world) in [("revoked", revoked), ("retired", retired), ("compromised", compromised)] {
        let signatures = world.by(&[ada, &cast.bob]);
        let untrusted = world.untrusted(&signatures);
        assert_eq!(untrusted.by, BTreeSet::from([name("bob")]), "{how}");
        assert_eq!(untrusted.refused, [NoVoice::KeyOver { who: name("ada"), key: ada.key(), how }]);
        // Her other key is as good as ever.
        let anew = world.by(&[ada, &cast.bob, &cast.ada[1]]);
        assert_eq!(world.verify(&anew), Ok(manifest()), "{how}");
        assert_eq!(world.untrusted(&world.by(&[ada, &cast.ada[1]])).refused, [], "she counts: {how}");
    }
}

#[test]
fn another_manifest_and_another_fleet_are_not_what_was_signed() {
    let cast = Cast::new();
    let world = World::new(cast.policy(TWO));
    let signatures = world.by(&[&cast.ada[0], &cast.bob]);
    let good = SignedManifest { signatures, ..SignedManifest::unsigned(&manifest()) };
    let read = SignedManifest::read(&good.to_text()).expect("read");
    assert_eq!((read.verify(&world.trusted()), &read), (Ok(manifest()), &good));
    let bad = |signed: &SignedManifest, trusted: &Trusted<'_>| match signed.verify(trusted) {
        Err(ManifestRefusal::Untrusted(untrusted)) => untrusted.refused,
        other => panic!("{other:?}"),
    };
    let twice = [NoVoice::Signature(SignatureRefusal::Bad), NoVoice::Signature(SignatureRefusal::Bad)];
    assert_eq!(bad(&good, &Trusted { trust_domain: "other.example", ..world.trusted() }), twice);
    let elsewhere = FleetId::of("acme.example", &object("another anchor"));
    assert_eq!(bad(&good, &Trusted { fleet: elsewhere, ..world.trusted() }), twice);
    let changed = SignedManifest { manifest: good.manifest.replace("1.4.0", "1.5.0"), ..good.clone() };
    assert_eq!(bad(&changed, &world.trusted()), twice);
}

#[test]
fn a_signature_of_a_commit_or_a_statement_is_no_signature_of_a_release_and_the_other_way_round() {
    let (cast, pgp) = (Cast::new(), Pgp::generate());
    let ada = &cast.ada[0];
    let cleo = principal("cleo", "human", "release", &[openpgp(&pgp.fingerprint(), &pgp.block)]);
    let ada_line = principal("ada", "human", "release", &[ssh(&ada.line())]);
    let world = World::new(policy_of(&cast.root, &(ada_line + &cleo), ONE));
    let git =
        |found: &str| NoVoice::Signature(SignatureRefusal::Namespace { found: found.to_owned(), wanted: NAMESPACE });
    // Of SSH: the namespace is in the signature.
    let commit = ada.commit(object("tree"), &[object("parent")], "pools: two more machines\n");
    let of_commit = split(&commit).signature().expect("signed");
    assert_eq!(world.no_voice(of_commit), git("git"));
    assert_eq!(world.no_voice(ada.sign("git", &world.bytes())), git("git"));
    assert_eq!(world.no_voice(ada.sign("file", &world.bytes())), git("file"));
    let said = world.fleet.trust(ada, Digest::of("before"), &world.policy);
    assert_eq!(world.no_voice(split(&said).signature().expect("signed")), git("git"));
    // Of OpenPGP: what is signed begins with what it is.
    let bad = NoVoice::Signature(SignatureRefusal::Bad);
    assert_eq!(world.no_voice(pgp.sign(PLAIN.as_bytes())), bad);
    assert_eq!(world.no_voice(pgp.sign(manifest().to_bytes().as_slice())), bad);
    assert_eq!(world.verify(&[pgp.sign(&world.bytes())]), Ok(manifest()));

    // A release's under a commit, and under a statement.
    let message = world.fleet.message("revoke/v1", &[], "ada", &[]);
    for (who, signature) in [("ada", ada.sign(NAMESPACE, &world.bytes())), ("cleo", pgp.sign(&world.bytes()))] {
        let commit = sign_raw(PLAIN.as_bytes(), "gpgsig", &signature);
        assert!(signer(&split(&commit), world.policy.keys()).is_err(), "{who}");
        let spoken = PLAIN.replace("pools: two more machines\n", &message);
        let spoken = sign_raw(spoken.as_bytes(), "gpgsig", &signature);
        let heard = Spoken::hear(&spoken, &world.fleet.trust_domain, world.fleet.id, [&world.policy]);
        assert!(heard.is_err_and(|why| !matches!(why, Unheard::OtherFleet { .. })), "{who}");
    }
    // What is signed of a release is no commit at all.
    let format = crate::trust::object::ObjectFormat::Sha1;
    assert!(Commit::split(format, &world.bytes()).is_err());
}

#[test]
fn a_policy_without_releases_lets_nobody_sign_one() {
    let cast = Cast::new();
    let world = World::new(cast.policy(""));
    let refusal = world.verify(&world.by(&[&cast.ada[0], &cast.bob, &cast.root])).expect_err("refused");
    assert_eq!(refusal, ManifestRefusal::NoRule(1));
    assert_eq!(refusal.to_string(), "the trust policy of epoch 1 has no `releases`: it lets nobody sign a release");
}

#[test]
fn what_is_signed_has_one_form() {
    let cast = Cast::new();
    let world = World::new(cast.policy(ONE));
    let loose = |text: String| {
        let unsigned = SignedManifest { manifest: text, signatures: Vec::new() };
        let bytes = unsigned.to_sign(&world.fleet.trust_domain, world.fleet.id);
        let signatures = vec![cast.bob.sign(NAMESPACE, bytes.as_bytes())];
        SignedManifest { signatures, ..unsigned }.verify(&world.trusted())
    };
    let text = String::from_utf8(manifest().to_bytes()).expect("text");
    assert_eq!(loose(text.clone()), Ok(manifest()));
    for other in [text.replace(":5", ": 5"), text.replace('{', "{ "), "{}".to_owned(), "[]".to_owned(), String::new()] {
        assert!(matches!(loose(other.clone()), Err(ManifestRefusal::Malformed(_))), "{other}");
    }
}

#[test]
fn noise_is_no_signed_manifest_and_what_is_read_is_small() {
    let long = format!("{{\"manifest\":\"{}\",\"signatures\":[]}}", "x".repeat(MAX_MANIFEST));
    let many = |number: usize| {
        SignedManifest { signatures: vec![String::new(); number], ..SignedManifest::unsigned(&manifest()) }.to_text()
    };
    assert!(SignedManifest::read(&many(MOST)).is_ok());
    for text in ["", "{}", "{\"manifest\":1,\"signatures\":[]}", &long, &many(MOST + 1)] {
        let read = SignedManifest::read(text);
        assert!(matches!(read, Err(ManifestRefusal::Malformed(_))), "{}", &text[..text.len().min(40)]);
    }
    // Junk among the signatures is no reason against those that count.
    let cast = Cast::new();
    let world = World::new(cast.policy(TWO));
    let mut signatures = world.by(&[&cast.ada[0], &cast.bob]);
    signatures.extend(["junk".to_owned(), "-----BEGIN SSH SIGNATURE-----\n".to_owned()]);
    assert_eq!(world.verify(&signatures), Ok(manifest()));
}

#[test]
fn a_signature_is_added_once_for_each_key_and_only_the_one_that_was_meant() {
    let cast = Cast::new();
    let (world, [ada, other]) = (World::new(cast.policy(TWO)), &cast.ada);
    let key = |person: &Person| TrustKey::from_ssh(&person.line()).expect("a key");
    let add = |signed: &SignedManifest, person: &Person, by: &Person| {
        signed.with(person.sign(NAMESPACE, &world.bytes()), &key(by), &world.trusted())
    };
    let empty = SignedManifest::unsigned(&manifest());
    let one = add(&empty, ada, ada).expect("added");
    let two = add(&one, other, other).expect("added");
    let again = add(&two, ada, ada).expect("added");
    assert_eq!([&one, &two, &again].map(|signed| signed.signatures.len()), [1, 2, 2]);
    assert!(matches!(add(&empty, &cast.bob, ada), Err(ManifestRefusal::Malformed(_))), "another's key");
    assert!(empty.with(ada.sign("git", &world.bytes()), &key(ada), &world.trusted()).is_err());
    let full = SignedManifest { signatures: vec!["junk".to_owned(); MOST], ..empty };
    assert!(matches!(add(&full, ada, ada), Err(ManifestRefusal::Malformed(_))), "no machine would read it");
}
