//! OpenPGP signatures against `gpg` and `git`, and the vectors of RFC 9580 for version 6, which that `gpg` does not have.

use aws_lc_rs::signature::Ed25519KeyPair;

use super::*;
use crate::trust::{
    commit::Commit,
    key::{Flaw, KeyRefusal, Part},
    object::ObjectFormat,
    testing::{Git, Gpg, PLAIN, Pgp, has, pgp_armour, pgp_packet, pgp_part, sign_raw, split},
};

fn opened(armour: &str) -> Vec<u8> {
    armor::open(armour, "PGP SIGNATURE", Dress::OpenPgp).expect("armour")
}

fn closed(bytes: &[u8]) -> String {
    pgp_armour("SIGNATURE", bytes)
}

#[test]
fn what_gpg_signs_is_verified_by_gpg_and_by_us() {
    if !has("gpg") || !has("git") {
        return;
    }
    let git = Git::new(ObjectFormat::Sha1);
    git.run(&["write-tree"], &[]);
    for algorithm in ["ed25519", "rsa3072"] {
        let gpg = Gpg::with(algorithm);
        let key = gpg.key();
        assert_eq!(key.name(), gpg.fingerprint);
        for hash in ["SHA256", "SHA384", "SHA512"] {
            let armour = gpg.sign(PLAIN.as_bytes(), &["--digest-algo", hash]);
            let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &armour);
            assert_eq!(crate::trust::signature::signer(&split(&raw), [&key]), Ok(&key), "{algorithm} {hash}");
            assert!(git.verifies_with(&git.put(&raw), &gpg), "{algorithm} {hash}");
        }
        // SHA-1 and signatures over a text are refused, whatever gpg says of them.
        let weak = gpg.sign(PLAIN.as_bytes(), &["--digest-algo", "SHA1", "--allow-weak-digest-algos"]);
        assert_eq!(signer(&weak, PLAIN.as_bytes(), [&key]), Err(SignatureRefusal::Hash("SHA-1".to_owned())));
        let text = gpg.sign(PLAIN.as_bytes(), &["--textmode"]);
        let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &text);
        assert_eq!(signer(&text, PLAIN.as_bytes(), [&key]), Err(SignatureRefusal::Type(1)));
        assert!(git.verifies_with(&git.put(&raw), &gpg), "git takes a signature over a text");
        // What expires by a date that its signer wrote is refused: gpg would refuse it one day, and then not us.
        let short = gpg.sign(PLAIN.as_bytes(), &["--default-sig-expire", "1y"]);
        assert!(matches!(signer(&short, PLAIN.as_bytes(), [&key]), Err(SignatureRefusal::Shape(_))));
    }
}

#[test]
fn any_bit_of_a_signed_commit_that_is_flipped_is_refused() {
    if !has("gpg") {
        return;
    }
    for algorithm in ["ed25519", "rsa3072"] {
        let gpg = Gpg::with(algorithm);
        let key = gpg.key();
        let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &gpg.sign(PLAIN.as_bytes(), &[]));
        for bit in 0..raw.len() * 8 {
            let mut flipped = raw.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let taken = Commit::split(ObjectFormat::Sha1, &flipped)
                .is_ok_and(|commit| crate::trust::signature::signer(&commit, [&key]).is_ok());
            assert!(!taken, "{algorithm}: bit {bit} at {:?}", char::from(flipped[bit / 8]));
        }
    }
}

#[test]
fn only_a_detached_signature_over_the_bytes_of_a_document_is_one() {
    use aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;

    let (pgp, document) = (Pgp::generate(), PLAIN.as_bytes());
    let key = pgp.key();
    let signed = |kind| pgp.signature(kind, (8, &SHA256), document);
    assert_eq!(signer(&closed(&signed(BINARY)), document, [&key]), Ok(&key));
    // Over a text, alone, certifying, binding, by itself, revoking, of a time, of another signature.
    for kind in [0x01, 0x02, 0x10, 0x11, 0x12, 0x13, 0x18, 0x19, 0x1f, 0x20, 0x28, 0x30, 0x40, 0x50] {
        assert_eq!(signer(&closed(&signed(kind)), document, [&key]), Err(SignatureRefusal::Type(kind)), "{kind:#x}");
    }
    for (number, name) in [(1, "MD5"), (2, "SHA-1"), (3, "number 3"), (11, "number 11")] {
        let weak = pgp.signature(BINARY, (number, &SHA1_FOR_LEGACY_USE_ONLY), document);
        assert_eq!(signer(&closed(&weak), document, [&key]), Err(SignatureRefusal::Hash(name.to_owned())));
    }
    // A message that carries its own text: one pass, the text, the signature.
    let inline =
        [pgp_packet(4, &[3, 0, 8, 27, 0, 0, 0, 0, 0, 0, 0, 0, 1]), pgp_packet(11, b"b\0\0\0\0\0text"), signed(BINARY)];
    let inline = inline.concat();
    assert!(matches!(signer(&closed(&inline), document, [&key]), Err(SignatureRefusal::Shape(_))));
    for (armour, refusal) in [
        (pgp_armour("MESSAGE", &inline), SignatureRefusal::Kind),
        (
            format!("-----BEGIN PGP SIGNED MESSAGE-----\n\n{}", closed(&signed(BINARY))),
            SignatureRefusal::Armor(armor::ArmorRefusal::Begin),
        ),
    ] {
        let raw = sign_raw(document, "gpgsig", &armour);
        assert_eq!(crate::trust::signature::signer(&split(&raw), [&key]), Err(refusal), "{armour}");
    }
}

#[test]
fn a_signature_is_one_packet_whose_every_part_is_understood() {
    if !has("gpg") {
        return;
    }
    let gpg = Gpg::with("ed25519");
    let (key, payload) = (gpg.key(), PLAIN.as_bytes());
    let bytes = opened(&gpg.sign(payload, &[]));
    assert_eq!(signer(&closed(&bytes), payload, [&key]), Ok(&key));
    let shape = |bytes: &[u8], what: &str| {
        assert!(matches!(signer(&closed(bytes), payload, [&key]), Err(SignatureRefusal::Shape(_))), "{what}");
    };
    shape(&[&bytes[..], &bytes].concat(), "two packets");
    shape(&[&bytes[..], b"x"].concat(), "something behind it");
    shape(&[&[0x80 | (8 << 2), bytes[1]], &bytes[2..]].concat(), "another packet");
    // In an old frame with a length of one byte: version, type, algorithm, hash, the hashed area and then the other one.
    assert_eq!(bytes[0], 0x88);
    let hashed = usize::from(u16::from_be_bytes([bytes[6], bytes[7]]));
    let at = 8 + hashed;
    let unhashed = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let with = |area: &[u8]| {
        let length = u16::try_from(area.len()).expect("short").to_be_bytes();
        let body = [&bytes[2..at], &length, area, &bytes[at + 2 + unhashed..]].concat();
        [&[0x88, u8::try_from(body.len()).expect("short")], &body[..]].concat()
    };
    let own = &bytes[at + 2..at + 2 + unhashed];
    assert_eq!(signer(&closed(&with(own)), payload, [&key]), Ok(&key));
    assert_eq!(signer(&closed(&with(&[])), payload, [&key]), Ok(&key), "the fingerprint is in the hashed area");
    shape(&with(&[own, own].concat()), "an issuer twice");
    shape(&with(&[own, &[2, 100, 0]].concat()), "anything else that nothing protects");
    let mut other = own.to_vec();
    *other.last_mut().expect("an id") ^= 1;
    assert!(matches!(signer(&closed(&with(&other)), payload, [&key]), Err(SignatureRefusal::UnknownKey(_))));
}

/// A signature that says this in its two areas, and what the policy, `git` and `gpg` make of it.
fn verdicts(pgp: &Pgp, key: &TrustKey, areas: [&[u8]; 2]) -> (Result<(), SignatureRefusal>, bool) {
    let armour = closed(&pgp_packet(packet::SIGNATURE, &pgp.says(BINARY, (8, &SHA256), areas, PLAIN.as_bytes())));
    let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &armour);
    let (git, gpg) = (Git::new(ObjectFormat::Sha1), Gpg::empty());
    git.run(&["write-tree"], &[]);
    gpg.import(&pgp.block);
    (crate::trust::signature::signer(&split(&raw), [key]).map(|_| ()), git.verifies_with(&git.put(&raw), &gpg))
}

#[test]
fn a_signature_that_is_older_than_its_key_does_not_count() {
    if !has("gpg") || !has("git") {
        return;
    }
    let pgp = Pgp::generate();
    let key = pgp.key();
    for (at, ours, theirs) in [
        (Pgp::MADE, Ok(()), true),
        (Pgp::MADE + 1, Ok(()), true),
        (Pgp::MADE - 1, Err(SignatureRefusal::BeforeKey), false),
        (0, Err(SignatureRefusal::BeforeKey), false),
    ] {
        assert_eq!(verdicts(&pgp, &key, [&pgp.by(at), &[]]), (ours, theirs), "made at {at}");
    }
    // A key of the year 2096: what it signs today is older than it.
    let late = Pgp::made(4_000_000_000);
    let key = late.key();
    assert_eq!(verdicts(&late, &key, [&late.by(Pgp::MADE), &[]]), (Err(SignatureRefusal::BeforeKey), false));
}

#[test]
fn an_area_of_more_octets_than_gpg_reads_is_refused() {
    if !has("gpg") || !has("git") {
        return;
    }
    let pgp = Pgp::generate();
    let (key, usual) = (pgp.key(), pgp.by(Pgp::MADE));
    let filled = |octets: usize| [&usual[..], &pgp_part(101, &vec![0; octets - usual.len() - 6])].concat();
    assert_eq!(verdicts(&pgp, &key, [&filled(10_000), &[]]), (Ok(()), true));
    let refusal = Err(SignatureRefusal::Shape("one of its areas has more than 10000 octets"));
    assert_eq!(verdicts(&pgp, &key, [&filled(10_001), &[]]), (refusal.clone(), false));
    assert_eq!(verdicts(&pgp, &key, [&usual, &filled(10_001)]), (refusal, false));
}

#[test]
fn armour_whose_end_gpg_does_not_see_is_refused() {
    if !has("gpg") || !has("git") {
        return;
    }
    let (pgp, git, gpg) = (Pgp::generate(), Git::new(ObjectFormat::Sha1), Gpg::empty());
    let key = pgp.key();
    git.run(&["write-tree"], &[]);
    gpg.import(&pgp.block);
    for filled in 0..3 {
        let says = [pgp.by(Pgp::MADE), pgp_part(101, &vec![0; filled])].concat();
        let armour =
            closed(&pgp_packet(packet::SIGNATURE, &pgp.says(BINARY, (8, &SHA256), [&says, &[]], PLAIN.as_bytes())));
        let (body, _) = armour.rsplit_once("\n=").expect("a check sum");
        let armour = format!("{body}\n-----END PGP SIGNATURE-----\n");
        let raw = sign_raw(PLAIN.as_bytes(), "gpgsig", &armour);
        let ours = crate::trust::signature::signer(&split(&raw), [&key]).is_ok();
        assert_eq!(
            (ours, git.verifies_with(&git.put(&raw), &gpg)),
            (body.ends_with('='), body.ends_with('=')),
            "{armour}"
        );
    }
}

#[test]
fn the_key_that_signs_is_pinned_and_no_other_of_the_block_counts() {
    if !has("gpg") {
        return;
    }
    let gpg = Gpg::with("ed25519");
    gpg.run(&["--quick-add-key", &gpg.fingerprint, "ed25519", "sign", "never"], &[]);
    let armour = gpg.sign(PLAIN.as_bytes(), &[]);
    // gpg signs with the newest subkey: the primary key is another key.
    let primary = gpg.key();
    let refusal = signer(&armour, PLAIN.as_bytes(), [&primary]).expect_err("by the subkey");
    let SignatureRefusal::UnknownKey(subkey) = refusal else { panic!("{refusal}") };
    let key = TrustKey::from_openpgp(&gpg.export(), &subkey).expect("the subkey");
    assert_eq!(signer(&armour, PLAIN.as_bytes(), [&primary, &key]), Ok(&key));
    let spaced = subkey.as_bytes().chunks(4).map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(" ");
    assert_eq!(TrustKey::from_openpgp(&gpg.export(), &spaced), Ok(key));
    let KeyRefusal::Fingerprint(seen) = TrustKey::from_openpgp(&gpg.export(), &"0".repeat(40)).expect_err("not there")
    else {
        panic!("another refusal")
    };
    assert_eq!(seen, [gpg.fingerprint.clone(), subkey]);
}

#[test]
fn weak_keys_are_refused() {
    if !has("gpg") {
        return;
    }
    let gpg = Gpg::with("rsa2048");
    assert_eq!(TrustKey::from_openpgp(&gpg.export(), &gpg.fingerprint), Err(KeyRefusal::ModulusSize(2048)));
    let gpg = Gpg::with("nistp256");
    assert!(matches!(TrustKey::from_openpgp(&gpg.export(), &gpg.fingerprint), Err(KeyRefusal::Kind(_))));
}

/// A certificate of RFC 9580, appendix A.3.
const CERTIFICATE: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----

xioGY4d/4xsAAAAg+U2nu0jWCmHlZ3BqZYfQMxmZu52JGggkLq2EVD34laPCsQYf
GwoAAABCBYJjh3/jAwsJBwUVCg4IDAIWAAKbAwIeCSIhBssYbE8GCaaX5NUt+mxy
KwwfHifBilZwj2Ul7Ce62azJBScJAgcCAAAAAK0oIBA+LX0ifsDm185Ecds2v8lw
gyU2kCcUmKfvBXbAf6rhRYWzuQOwEn7E/aLwIwRaLsdry0+VcallHhSu4RN6HWaE
QsiPlR4zxP/TP7mhfVEe7XWPxtnMUMtf15OyA51YBM4qBmOHf+MZAAAAIIaTJINn
+eUBXbki+PSAld2nhJh/LVmFsS+60WyvXkQ1wpsGGBsKAAAALAWCY4d/4wKbDCIh
BssYbE8GCaaX5NUt+mxyKwwfHifBilZwj2Ul7Ce62azJAAAAAAQBIKbpGG2dWTX8
j+VjFM21J0hqWlEg+bdiojWnKfA5AQpWUWtnNwDEM0g12vYxoWM8Y81W+bHBw805
I8kWVkXU6vFOi+HWvv/ira7ofJu16NnoUkhclkUrk0mXubZvyl4GBg==
-----END PGP PUBLIC KEY BLOCK-----";
const FINGERPRINT: &str = "CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9";

#[test]
fn a_key_of_version_6_has_the_fingerprint_of_the_standard() {
    let key = TrustKey::from_openpgp(CERTIFICATE, FINGERPRINT).expect("a key");
    assert_eq!(key.name(), FINGERPRINT);
    assert_eq!(key.class(), crate::trust::key::KeyClass::Ed25519);
}

/// The body of a signature of version 6, made by the standard's text.
fn version_6(pair: &Ed25519KeyPair, kind: u8, more: &[u8], text: &[u8], salt: &[u8]) -> Vec<u8> {
    let hashed = [&[5, CREATED_CRITICAL, 0x66, 0, 0, 0][..], more].concat();
    let length = u32::try_from(hashed.len()).expect("short").to_be_bytes();
    let covered = [&[6, kind, ED25519, 10][..], &length, &hashed].concat();
    let total = u32::try_from(covered.len()).expect("short").to_be_bytes();
    let hash = digest(&SHA512, &[salt, text, &covered, &[6, 0xff], &total].concat());
    let salt_length = u8::try_from(salt.len()).expect("short");
    let sealed = pair.sign(hash.as_ref());
    let body = [&covered[..], &[0; 4], &hash.as_ref()[..2], &[salt_length], salt, sealed.as_ref()].concat();
    pgp_packet(packet::SIGNATURE, &body)
}

const CREATED_CRITICAL: u8 = 0x80 | packet::CREATED;

#[test]
fn a_key_of_version_6_vouches_for_itself_and_signs_with_a_salt_as_long_as_its_hash_asks_for() {
    use aws_lc_rs::signature::KeyPair as _;

    let pair = Ed25519KeyPair::generate().expect("a key");
    let body = [&[6, 0x63, 0x87, 0x7f, 0xe3, ED25519, 0, 0, 0, 32][..], pair.public_key().as_ref()].concat();
    let framed = [&[0x9b][..], &u32::try_from(body.len()).expect("short").to_be_bytes(), &body].concat();
    let fingerprint = digest(&SHA256, &framed);
    let fingerprint = fingerprint.as_ref();
    let issuer = [&[34, packet::ISSUER_FINGERPRINT, 6][..], fingerprint].concat();
    let admitted = |flags: Option<u8>| {
        let says = flags.map_or_else(Vec::new, |flags| vec![2, packet::KEY_FLAGS, flags]);
        let direct = version_6(&pair, 0x1f, &[&issuer[..], &says].concat(), &framed, &[7; 32]);
        let block = pgp_armour("PUBLIC KEY BLOCK", &[pgp_packet(packet::PUBLIC_KEY, &body), direct].concat());
        TrustKey::from_openpgp(&block, &hex::encode(fingerprint))
    };
    let key = admitted(Some(3)).expect("a key for signing");
    assert_eq!(admitted(None).as_ref(), Ok(&key), "one of which nothing is said");
    assert_eq!(admitted(Some(0x0c)), Err(KeyRefusal::NotForSigning));
    let alone = pgp_armour("PUBLIC KEY BLOCK", &pgp_packet(packet::PUBLIC_KEY, &body));
    let refusal = TrustKey::from_openpgp(&alone, &hex::encode(fingerprint));
    assert_eq!(refusal, Err(KeyRefusal::Unvouched(Part::Primary, Flaw::Missing)));

    let document = PLAIN.as_bytes();
    let good = version_6(&pair, BINARY, &issuer, document, &[7; 32]);
    assert_eq!(signer(&closed(&good), document, [&key]), Ok(&key));
    let short = version_6(&pair, BINARY, &issuer, document, &[7; 16]);
    assert!(matches!(signer(&closed(&short), document, [&key]), Err(SignatureRefusal::Shape(_))));
    assert_eq!(signer(&closed(&good), b"another document", [&key]), Err(SignatureRefusal::Bad));
}

/// A signature of RFC 9580, appendix A.6, over a text.
const OVER_A_TEXT: &str = "-----BEGIN PGP SIGNATURE-----

wpgGARsKAAAAKQWCY5ijYyIhBssYbE8GCaaX5NUt+mxyKwwfHifBilZwj2Ul7Ce6
2azJAAAAAGk2IHZJX1AhiJD39eLuPBgiUU9wUA9VHYblySHkBONKU/usJ9BvuAqo
/FvLFuGWMbKAdA+epq7V4HOtAPlBWmU8QOd6aud+aSunHQaaEJ+iTFjP2OMW0KBr
NK2ay45cX1IVAQ==
-----END PGP SIGNATURE-----";

#[test]
fn the_signature_of_the_standard_is_verified_and_being_over_a_text_is_refused() {
    let key = TrustKey::from_openpgp(CERTIFICATE, FINGERPRINT).expect("a key");
    let text = b"What we need from the grocery store:\r\n\r\n- tofu\r\n- vegetables\r\n- noodles\r\n";
    let bytes = opened(OVER_A_TEXT);
    let Signature { fields, hash, .. } = parse(&bytes).expect("a signature");
    assert_eq!(verifies(&fields, hash, text, &key.material), Ok(true));
    assert_eq!(verifies(&fields, hash, b"What we need is tofu", &key.material), Ok(false));
    assert_eq!(signer(OVER_A_TEXT, text, [&key]), Err(SignatureRefusal::Type(1)));
}
