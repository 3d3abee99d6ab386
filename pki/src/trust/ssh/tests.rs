//! SSH signatures against `ssh-keygen` and `git`: what we take they take, and where we are stricter a test says why.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;
use crate::trust::{
    commit::Commit,
    key::KeyRefusal,
    object::ObjectFormat,
    testing::{
        Git, PLAIN, SecurityKey, field, has, mpint, secret, sign_raw, split, ssh_sign, ssh_verifies, twin, with_numbers,
    },
};

const KINDS: [&str; 3] = ["ed25519", "ecdsa", "rsa"];

fn opened(armour: &str) -> Vec<u8> {
    armor::open(armour, "SSH SIGNATURE", Dress::Ssh).expect("armour")
}

fn closed(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(70).map(|at| &text[at..text.len().min(at + 70)]).collect();
    format!("-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n", lines.join("\n"))
}

/// A whole signature blob for git, over SHA-512.
fn blob(key: &[u8], signature: &[u8]) -> Vec<u8> {
    let version = 1_u32.to_be_bytes();
    [&MAGIC[..], &version, &field(key), &field(b"git"), &field(b""), &field(b"sha512"), &field(signature)].concat()
}

#[test]
fn what_git_and_ssh_keygen_sign_is_verified_by_all_three() {
    if !has("git") || !has("ssh-keygen") {
        return;
    }
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let git = Git::new(format);
        for kind in KINDS {
            let key = secret(kind);
            let raw = git.signed(key, "by git");
            let commit = Commit::split(format, &raw).expect("a commit");
            let (armour, payload) = (commit.signature().expect("signed"), commit.payload());
            assert_eq!(signer(&armour, &payload, GIT, [&key.key()]), Ok(&key.key()), "{kind}");
            assert!(git.verifies(&commit.id().to_string(), &[&key.line]), "{kind}");
            assert!(ssh_verifies(&key.line, &payload, &armour), "{kind}");
        }
    }
    for kind in KINDS {
        let key = secret(kind);
        let armour = ssh_sign(key, "git", &["-O", "hashalg=sha256"], PLAIN.as_bytes());
        assert_eq!(signer(&armour, PLAIN.as_bytes(), GIT, [&key.key()]), Ok(&key.key()), "{kind} over sha256");
    }
}

#[test]
fn who_is_not_known_is_told_by_name() {
    if !has("ssh-keygen") {
        return;
    }
    let (ada, bob) = (secret("ed25519"), secret("ed25519.bob"));
    let armour = ssh_sign(ada, "git", &[], PLAIN.as_bytes());
    let refusal = SignatureRefusal::UnknownKey(ada.key().name());
    assert_eq!(signer(&armour, PLAIN.as_bytes(), GIT, [&bob.key()]), Err(refusal));
    assert!(!ssh_verifies(&bob.line, PLAIN.as_bytes(), &armour));
}

#[test]
fn any_bit_of_a_signed_commit_that_is_flipped_is_refused() {
    if !has("ssh-keygen") {
        return;
    }
    for kind in KINDS {
        let key = secret(kind);
        let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &ssh_sign(key, "git", &[], PLAIN.as_bytes()));
        for bit in 0..raw.len() * 8 {
            let mut flipped = raw.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let taken = Commit::split(ObjectFormat::Sha1, &flipped)
                .is_ok_and(|commit| crate::trust::signature::signer(&commit, [&key.key()]).is_ok());
            assert!(!taken, "{kind}: bit {bit} at {:?}", char::from(flipped[bit / 8]));
        }
    }
}

#[test]
fn a_signature_has_one_form_and_one_spelling() {
    if !has("ssh-keygen") {
        return;
    }
    let (key, payload) = (secret("ed25519"), PLAIN.as_bytes());
    let armour = ssh_sign(key, "git", &[], payload);
    let bytes = opened(&armour);
    let with = |from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|window| window == from).expect("the field");
        closed(&[&bytes[..at], to, &bytes[at + from.len()..]].concat())
    };
    let reserved = with(&[field(b"git"), field(b"")].concat(), &[field(b"git"), field(b"JUNK")].concat());
    let version = with(b"SSHSIG\0\0\0\x01", b"SSHSIG\0\0\0\0");
    let longer = closed(&[&bytes[..], b"x"].concat());
    for refused in [reserved, version, longer] {
        assert!(matches!(signer(&refused, payload, GIT, [&key.key()]), Err(SignatureRefusal::Shape(_))), "{refused}");
    }
    for spelling in [armour.replace('\n', "\r\n"), format!("note\n{armour}"), format!("{armour}note\n")] {
        assert!(
            matches!(signer(&spelling, payload, GIT, [&key.key()]), Err(SignatureRefusal::Armor(_))),
            "{spelling:?}"
        );
    }
    let other = ssh_sign(key, "file", &[], payload);
    assert_eq!(
        signer(&other, payload, GIT, [&key.key()]),
        Err(SignatureRefusal::Namespace { found: "file".to_owned(), wanted: GIT })
    );
    assert!(!ssh_verifies(&key.line, payload, &other));
}

#[test]
fn weak_keys_sign_nothing_although_ssh_keygen_takes_them() {
    if !has("ssh-keygen") {
        return;
    }
    for (kind, refusal) in
        [("rsa2048", KeyRefusal::ModulusSize(2048)), ("p384", KeyRefusal::Kind("ecdsa-sha2-nistp384".to_owned()))]
    {
        let key = secret(kind);
        let armour = ssh_sign(key, "git", &[], PLAIN.as_bytes());
        assert!(ssh_verifies(&key.line, PLAIN.as_bytes(), &armour), "ssh-keygen takes {kind}");
        assert_eq!(signer(&armour, PLAIN.as_bytes(), GIT, []), Err(SignatureRefusal::Key(refusal)));
    }
}

#[test]
fn rsa_over_sha256_is_another_algorithm() {
    if !has("ssh-keygen") {
        return;
    }
    let key = secret("rsa");
    let mut bytes = opened(&ssh_sign(key, "git", &[], PLAIN.as_bytes()));
    let at = bytes.windows(12).position(|window| window == b"rsa-sha2-512").expect("the algorithm");
    bytes[at..at + 12].copy_from_slice(b"rsa-sha2-256");
    let refusal = SignatureRefusal::Algorithm("rsa-sha2-256".to_owned());
    assert_eq!(signer(&closed(&bytes), PLAIN.as_bytes(), GIT, [&key.key()]), Err(refusal));
}

#[test]
fn the_other_half_of_an_ecdsa_signature_is_the_same_persons() {
    if !has("git") || !has("ssh-keygen") {
        return;
    }
    // git takes both: the id of a commit is no identity. The digest of a statement is one.
    let (git, key) = (Git::new(ObjectFormat::Sha1), secret("ecdsa"));
    git.run(&["write-tree"], &[]);
    let armour = ssh_sign(key, "git", &[], PLAIN.as_bytes());
    for armour in [&armour, &twin(&armour)] {
        let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", armour);
        assert!(git.verifies(&git.put(&raw), &[&key.line]));
        assert_eq!(crate::trust::signature::signer(&split(&raw), [&key.key()]), Ok(&key.key()));
    }
    let long = with_numbers(&armour, |r, s| [field(&[&[0, 0], r].concat()), mpint(s)]);
    assert!(
        signer(&long, PLAIN.as_bytes(), GIT, [&key.key()]).is_err(),
        "zeros in front are another number's spelling"
    );
}

#[test]
fn an_ed25519_signature_has_no_other_half() {
    if !has("ssh-keygen") {
        return;
    }
    // s + L is s where the points are counted.
    let order = hex::decode("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010").expect("digits");
    let key = secret("ed25519");
    let mut bytes = opened(&ssh_sign(key, "git", &[], PLAIN.as_bytes()));
    let (s, mut carry) = (bytes.len() - 32, 0);
    for at in 0..32 {
        let sum = u16::from(bytes[s + at]) + u16::from(order[at]) + carry;
        bytes[s + at] = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(signer(&closed(&bytes), PLAIN.as_bytes(), GIT, [&key.key()]), Err(SignatureRefusal::Bad));
}

#[test]
fn a_security_key_has_to_be_touched_although_ssh_keygen_does_not_ask() {
    let security = SecurityKey::generate();
    let (key, line, payload) = (security.key(), &security.line, PLAIN.as_bytes());
    let armour = security.sign("git", TOUCHED, payload);
    assert_eq!(signer(&armour, payload, GIT, [&key]), Ok(&key));
    let untouched = security.sign("git", 0, payload);
    assert_eq!(signer(&untouched, payload, GIT, [&key]), Err(SignatureRefusal::NoUserPresence));
    if has("ssh-keygen") {
        assert!(ssh_verifies(line, payload, &armour));
        assert!(ssh_verifies(line, payload, &untouched), "ssh-keygen takes it untouched");
    }
}

#[test]
fn a_key_of_small_order_signs_everything_and_is_nobodys() {
    // The identity point: R = 1 and S = 0 sign every text.
    let mut point = [0; 32];
    point[0] = 1;
    let forged = [&point[..], &[0; 32]].concat();
    assert!(TrustKey::verify_ed25519(&point, b"any text at all", &forged), "the primitive takes the forgery");
    let own = [field(b"ssh-ed25519"), field(&point)].concat();
    let armour = closed(&blob(&own, &[field(b"ssh-ed25519"), field(&forged)].concat()));
    assert_eq!(signer(&armour, PLAIN.as_bytes(), GIT, []), Err(SignatureRefusal::Key(KeyRefusal::SmallOrder)));
}
