//! Blocks of keys as an attacker and as careless people make them, against `git` and `gpg`: what they refuse is refused.

use aws_lc_rs::digest::SHA256;

use super::*;
use crate::trust::{
    object::ObjectFormat,
    signature::{self, SignatureRefusal},
    testing::{Git, Gpg, Numbered, PLAIN, Pgp, has, pgp_armour, pgp_packet, pgp_part, sign_raw, split},
};

const STRONG: Numbered = (8, &SHA256);
const SHA_1: Numbered = (2, &SHA1_FOR_LEGACY_USE_ONLY);
const MADE: u32 = Pgp::MADE;
/// Long after keys are made, and long ago.
const LATER: u32 = MADE + 1000;
const DAY: [u8; 4] = 86_400_u32.to_be_bytes();

fn flags(flags: u8) -> Vec<u8> {
    pgp_part(packet::KEY_FLAGS, &[flags])
}

fn bytes(pgp: &Pgp) -> Vec<u8> {
    armor::open(&pgp.block, "PGP PUBLIC KEY BLOCK", Dress::OpenPgp).expect("armour")
}

fn primary(pgp: &Pgp) -> Vec<u8> {
    pgp_packet(packet::PUBLIC_KEY, &pgp.body)
}

/// A primary key with one name, signed so.
fn owned(pgp: &Pgp, kind: u8, hash: Numbered, says: &[u8]) -> Vec<u8> {
    [primary(pgp), pgp.owned(kind, hash, &[&pgp.by(MADE), says].concat())].concat()
}

/// A signature over a name, without the name before it.
fn without_name(named: Vec<u8>) -> Vec<u8> {
    let mut rest = Reader(&named);
    packet::next(&mut rest).expect("a name");
    rest.0.to_vec()
}

fn signed(by: &Pgp, kind: u8, hash: Numbered, says: &[u8], text: &[u8]) -> Vec<u8> {
    pgp_packet(packet::SIGNATURE, &by.says(kind, hash, [says, &[]], text))
}

/// A subkey and how its primary key binds it: with these parts, and signed back by somebody.
fn bound(pgp: &Pgp, subkey: &Pgp, hash: Numbered, says: &[u8], back: Option<&Pgp>) -> Vec<u8> {
    let text = [pgp.framed(), subkey.framed()].concat();
    let mut says = [&pgp.by(MADE), says].concat();
    if let Some(back) = back {
        says.extend(pgp_part(packet::EMBEDDED, &back.says(SIGNS_BACK, STRONG, [&back.by(MADE), &[]], &text)));
    }
    [pgp_packet(packet::PUBLIC_SUBKEY, &subkey.body), signed(pgp, BINDS, hash, &says, &text)].concat()
}

fn revoked(pgp: &Pgp, subkey: &Pgp, hash: Numbered) -> Vec<u8> {
    let says = [pgp.by(LATER), pgp_part(29, &[2])].concat();
    signed(pgp, REVOKES_SUBKEY, hash, &says, &[pgp.framed(), subkey.framed()].concat())
}

/// What the policy says of a block, and of a commit that the pinned key signed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Counts,
    Key(KeyRefusal),
    Signature(SignatureRefusal),
}

use Verdict::{Counts, Key, Signature};

fn ours(block: &str, pinned: &Pgp, raw: &[u8]) -> Verdict {
    match TrustKey::from_openpgp(block, &pinned.fingerprint()) {
        Err(refusal) => Key(refusal),
        Ok(key) => signature::signer(&split(raw), [&key]).map_or_else(Signature, |_| Counts),
    }
}

/// A case: what it is, the block, and what the policy says.
type Case = (&'static str, Vec<u8>, Verdict);

/// Holds one key's cases to `git` and `gpg`, each with a key ring of its own.
fn hold(pinned: &Pgp, at: u32, theirs: bool, cases: Vec<Case>) {
    let document = PLAIN.as_bytes();
    let packet = pgp_packet(packet::SIGNATURE, &pinned.says(0, STRONG, [&pinned.by(at), &[]], document));
    let raw = sign_raw(document, "gpgsig", &pgp_armour("SIGNATURE", &packet));
    let git = Git::new(ObjectFormat::Sha1);
    git.run(&["write-tree"], &[]);
    let commit = git.put(&raw);
    for (case, block, verdict) in cases {
        let block = pgp_armour("PUBLIC KEY BLOCK", &block);
        assert_eq!(ours(&block, pinned, &raw), verdict, "{case}");
        let gpg = Gpg::empty();
        gpg.import(&block);
        assert_eq!(git.verifies_with(&commit, &gpg), theirs, "gpg: {case}");
    }
}

const fn unvouched(part: Part, flaw: Flaw) -> Verdict {
    Key(KeyRefusal::Unvouched(part, flaw))
}

#[test]
fn keys_that_gpg_takes_are_taken() {
    if !has("gpg") || !has("git") {
        return;
    }
    let (pgp, subkey, other) = (Pgp::generate(), Pgp::generate(), Pgp::generate());
    let direct = |says: &[u8]| signed(&pgp, DIRECT, STRONG, &[&pgp.by(MADE), says].concat(), &pgp.framed());
    let newer = |says: &[u8]| pgp.owned(0x13, STRONG, &[&pgp.by(LATER), says].concat());
    let critical = |kind: u8, body: &[u8]| pgp_part(0x80 | kind, body);
    let parts = [
        critical(packet::KEY_FLAGS, &[3]),
        critical(packet::KEY_EXPIRES, &[0; 4]),
        critical(11, &[9]),
        critical(21, &[8]),
        critical(22, &[2]),
        critical(25, &[1]),
        critical(30, &[1]),
    ];
    let primaries = vec![
        ("a plain key", bytes(&pgp), Counts),
        ("certified loosely", owned(&pgp, 0x10, STRONG, &flags(3)), Counts),
        ("without flags", owned(&pgp, 0x13, STRONG, &[]), Counts),
        ("critical parts that are understood", owned(&pgp, 0x13, STRONG, &parts.concat()), Counts),
        (
            "a direct signature too",
            [primary(&pgp), direct(&flags(3)), pgp.owned(0x13, STRONG, &pgp.by(MADE))].concat(),
            Counts,
        ),
        ("flags that were widened", [owned(&pgp, 0x13, STRONG, &flags(1)), newer(&flags(3))].concat(), Counts),
        (
            "extended",
            [owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_EXPIRES, &DAY)), newer(&flags(3))].concat(),
            Counts,
        ),
        (
            "another one's opinion",
            [bytes(&pgp), without_name(other.owned(0x13, STRONG, &other.by(MADE)))].concat(),
            Counts,
        ),
        (
            "with a subkey that is revoked",
            [bytes(&pgp), bound(&pgp, &subkey, STRONG, &flags(2), Some(&subkey)), revoked(&pgp, &subkey, STRONG)]
                .concat(),
            Counts,
        ),
    ];
    hold(&pgp, MADE + 86_401, true, primaries);
    let good = bound(&pgp, &subkey, STRONG, &flags(2), Some(&subkey));
    let binding = vec![
        ("a subkey", [bytes(&pgp), good.clone()].concat(), Counts),
        ("a subkey of one that only certifies", [owned(&pgp, 0x13, STRONG, &flags(1)), good].concat(), Counts),
    ];
    hold(&subkey, MADE + 86_401, true, binding);
}

#[test]
fn a_primary_key_that_gpg_does_not_verify_with_is_refused() {
    if !has("gpg") || !has("git") {
        return;
    }
    let (pgp, other) = (Pgp::generate(), Pgp::generate());
    let revocation =
        |hash| signed(&pgp, REVOKES_KEY, hash, &[pgp.by(LATER), pgp_part(29, &[2])].concat(), &pgp.framed());
    let direct = |says: &[u8]| signed(&pgp, DIRECT, STRONG, &[&pgp.by(MADE), says].concat(), &pgp.framed());
    let newer = |says: &[u8]| pgp.owned(0x13, STRONG, &[&pgp.by(LATER), says].concat());
    let mut broken = bytes(&pgp);
    *broken.last_mut().expect("a byte") ^= 1;
    let unnamed = pgp_part(packet::CREATED, &MADE.to_be_bytes());
    let primary_only = unvouched(Part::Primary, Flaw::Missing);
    hold(
        &pgp,
        LATER + 1,
        false,
        vec![
            (
                "revoked at its place",
                [&primary(&pgp), &revocation(STRONG)[..], &bytes(&pgp)[primary(&pgp).len()..]].concat(),
                Key(KeyRefusal::Revoked),
            ),
            ("revoked at the end", [bytes(&pgp), revocation(STRONG)].concat(), Key(KeyRefusal::Revoked)),
            ("revoked with a weak hash", [bytes(&pgp), revocation(SHA_1)].concat(), Key(KeyRefusal::Revoked)),
            ("for certifying", owned(&pgp, 0x13, STRONG, &flags(1)), Key(KeyRefusal::NotForSigning)),
            ("for ciphers", owned(&pgp, 0x13, STRONG, &flags(0x0c)), Key(KeyRefusal::NotForSigning)),
            ("for logging in", owned(&pgp, 0x13, STRONG, &flags(0x20)), Key(KeyRefusal::NotForSigning)),
            (
                "for nothing",
                owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_FLAGS, &[])),
                Key(KeyRefusal::NotForSigning),
            ),
            ("flags that were narrowed", [bytes(&pgp), newer(&flags(1))].concat(), Key(KeyRefusal::NotForSigning)),
            (
                "flags that were narrowed with a weak hash",
                [bytes(&pgp), pgp.owned(0x13, SHA_1, &[pgp.by(LATER), flags(1)].concat())].concat(),
                Key(KeyRefusal::NotForSigning),
            ),
            (
                "flags that a direct signature narrows",
                [primary(&pgp), direct(&flags(1)), pgp.owned(0x13, STRONG, &[pgp.by(MADE), flags(3)].concat())]
                    .concat(),
                Key(KeyRefusal::NotForSigning),
            ),
            ("without a name", primary(&pgp), primary_only.clone()),
            (
                "without a name, but a direct signature",
                [primary(&pgp), direct(&flags(3))].concat(),
                primary_only.clone(),
            ),
            (
                "a name that its owner did not sign",
                [primary(&pgp), pgp_packet(packet::USER_ID, b"Ada")].concat(),
                primary_only.clone(),
            ),
            ("a signature that is broken", broken, unvouched(Part::Primary, Flaw::Bad)),
            (
                "a signature by somebody else",
                [primary(&pgp), other.owned(0x13, STRONG, &other.by(MADE))].concat(),
                primary_only,
            ),
            (
                "a signature older than the key",
                [primary(&pgp), pgp.owned(0x13, STRONG, &pgp.by(MADE - 1))].concat(),
                unvouched(Part::Primary, Flaw::Early),
            ),
            (
                "a critical part that nobody knows",
                owned(&pgp, 0x13, STRONG, &pgp_part(0x80 | 101, b"x")),
                unvouched(Part::Primary, Flaw::Critical),
            ),
            (
                "a signature that does not name its key",
                [primary(&pgp), pgp.owned(0x13, STRONG, &unnamed)].concat(),
                unvouched(Part::Primary, Flaw::Issuer),
            ),
            (
                "expired",
                owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_EXPIRES, &1000_u32.to_be_bytes())),
                Signature(SignatureRefusal::KeyExpired),
            ),
            (
                "expired by a direct signature",
                [
                    primary(&pgp),
                    direct(&pgp_part(packet::KEY_EXPIRES, &1000_u32.to_be_bytes())),
                    pgp.owned(0x13, STRONG, &pgp.by(MADE)),
                ]
                .concat(),
                Signature(SignatureRefusal::KeyExpired),
            ),
            (
                "an end beyond what 32 bits say",
                owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_EXPIRES, &[0xff; 4])),
                Signature(SignatureRefusal::KeyExpired),
            ),
        ],
    );
}

#[test]
fn a_subkey_that_gpg_does_not_verify_with_is_refused() {
    if !has("gpg") || !has("git") {
        return;
    }
    let (pgp, subkey, other) = (Pgp::generate(), Pgp::generate(), Pgp::generate());
    let own = bytes(&pgp);
    let with = |more: Vec<u8>| [own.clone(), more].concat();
    let good = bound(&pgp, &subkey, STRONG, &flags(2), Some(&subkey));
    let unbound = pgp_packet(packet::PUBLIC_SUBKEY, &subkey.body);
    let expiry = |seconds: u32| [flags(2), pgp_part(packet::KEY_EXPIRES, &seconds.to_be_bytes())].concat();
    let revoked_primary = signed(&pgp, REVOKES_KEY, STRONG, &pgp.by(LATER), &pgp.framed());
    let stranger = {
        let text = [pgp.framed(), subkey.framed()].concat();
        [unbound.clone(), signed(&other, BINDS, STRONG, &[other.by(MADE), flags(2)].concat(), &text)].concat()
    };
    hold(
        &subkey,
        LATER + 1,
        false,
        vec![
            (
                "not signed back",
                with(bound(&pgp, &subkey, STRONG, &flags(2), None)),
                unvouched(Part::Back, Flaw::Missing),
            ),
            (
                "signed back by another key",
                with(bound(&pgp, &subkey, STRONG, &flags(2), Some(&other))),
                unvouched(Part::Back, Flaw::Bad),
            ),
            (
                "for ciphers",
                with(bound(&pgp, &subkey, STRONG, &flags(0x0c), Some(&subkey))),
                Key(KeyRefusal::NotForSigning),
            ),
            ("not bound", with(unbound.clone()), unvouched(Part::Subkey, Flaw::Missing)),
            ("bound by somebody else", with(stranger), unvouched(Part::Subkey, Flaw::Missing)),
            ("revoked", with([good.clone(), revoked(&pgp, &subkey, STRONG)].concat()), Key(KeyRefusal::Revoked)),
            (
                "revoked with a weak hash",
                with([good.clone(), revoked(&pgp, &subkey, SHA_1)].concat()),
                Key(KeyRefusal::Revoked),
            ),
            (
                "revoked behind another subkey",
                with(
                    [
                        good.clone(),
                        bound(&pgp, &other, STRONG, &flags(2), Some(&other)),
                        revoked(&pgp, &subkey, STRONG),
                    ]
                    .concat(),
                ),
                Key(KeyRefusal::Revoked),
            ),
            (
                "of a primary key that is revoked",
                with([good.clone(), revoked_primary].concat()),
                Key(KeyRefusal::Revoked),
            ),
            (
                "of a primary key without a name",
                [primary(&pgp), good.clone()].concat(),
                unvouched(Part::Primary, Flaw::Missing),
            ),
            ("alone", unbound, Key(KeyRefusal::NotOneCertificate)),
            ("as another primary key", with(primary(&subkey)), Key(KeyRefusal::NotOneCertificate)),
            (
                "expired",
                with(bound(&pgp, &subkey, STRONG, &expiry(1000), Some(&subkey))),
                Signature(SignatureRefusal::KeyExpired),
            ),
            (
                "of a primary key that expired",
                [owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_EXPIRES, &1000_u32.to_be_bytes())), good].concat(),
                Signature(SignatureRefusal::KeyExpired),
            ),
        ],
    );
}

/// `gpg` takes all of these. We do not: what is weak may be forged, what ends by itself is good on one day and not on the
/// next, what was taken back may have been stolen, and of what is left to each program to guess programs guess differently.
#[test]
fn where_we_are_stricter_than_gpg() {
    if !has("gpg") || !has("git") {
        return;
    }
    let (pgp, subkey, other) = (Pgp::generate(), Pgp::generate(), Pgp::generate());
    let by_stranger = signed(&other, REVOKES_KEY, STRONG, &other.by(LATER), &pgp.framed());
    let gone = without_name(pgp.owned(REVOKES_NAME, STRONG, &pgp.by(LATER)));
    let spent = pgp_part(packet::EXPIRES, &u32::MAX.to_be_bytes());
    hold(
        &pgp,
        LATER + 1,
        true,
        vec![
            (
                "a weak hash",
                owned(&pgp, 0x13, SHA_1, &flags(3)),
                unvouched(Part::Primary, Flaw::Hash("SHA-1".to_owned())),
            ),
            ("a signature that expires", owned(&pgp, 0x13, STRONG, &spent), unvouched(Part::Primary, Flaw::Expires)),
            ("revoked by somebody else", [bytes(&pgp), by_stranger].concat(), Key(KeyRefusal::Revoked)),
            ("a name that is taken back", [bytes(&pgp), gone].concat(), unvouched(Part::Primary, Flaw::Revoked)),
            ("two keys", [bytes(&pgp), bytes(&other)].concat(), Key(KeyRefusal::NotOneCertificate)),
            ("a marker", [bytes(&pgp), pgp_packet(10, b"PGP")].concat(), Key(KeyRefusal::Packet(10))),
        ],
    );
    let silent = bound(&pgp, &subkey, STRONG, &[], Some(&subkey));
    let weak = bound(&pgp, &subkey, SHA_1, &flags(2), Some(&subkey));
    hold(
        &subkey,
        LATER + 1,
        true,
        vec![
            ("a subkey of which nothing is said", [bytes(&pgp), silent].concat(), Key(KeyRefusal::NotForSigning)),
            ("a weak binding", [bytes(&pgp), weak].concat(), unvouched(Part::Subkey, Flaw::Hash("SHA-1".to_owned()))),
        ],
    );
}

#[test]
fn a_block_has_a_bound() {
    let pgp = Pgp::generate();
    let refusal = |more: Vec<u8>| {
        let block = pgp_armour("PUBLIC KEY BLOCK", &[bytes(&pgp), more].concat());
        TrustKey::from_openpgp(&block, &pgp.fingerprint()).err()
    };
    let one = signed(&pgp, BINDS, STRONG, &pgp.by(MADE), b"something");
    assert_eq!(refusal(one.repeat(255)), None);
    assert_eq!(refusal(one.repeat(256)), Some(KeyRefusal::TooMuch));
    assert_eq!(refusal(pgp_packet(packet::USER_ID, b"Ada").repeat(64)), Some(KeyRefusal::TooMuch));
    assert_eq!(refusal(pgp_packet(packet::USER_ATTRIBUTE, &[0; MOST_NAMES])), Some(KeyRefusal::TooMuch));
    assert_eq!(refusal(pgp_packet(packet::PUBLIC_SUBKEY, &pgp.body).repeat(64)), Some(KeyRefusal::TooMuch));
}

#[test]
fn extending_a_key_changes_the_policy_and_not_the_key() {
    let pgp = Pgp::generate();
    let until = |seconds: u32| {
        let block = owned(&pgp, 0x13, STRONG, &pgp_part(packet::KEY_EXPIRES, &seconds.to_be_bytes()));
        TrustKey::from_openpgp(&pgp_armour("PUBLIC KEY BLOCK", &block), &pgp.fingerprint()).expect("a key")
    };
    let (short, long) = (until(1000), until(2000));
    assert_eq!(short, long);
    assert_ne!(short.fields(), long.fields());
    assert_eq!(pgp.key().fields(), until(0).fields());
}
