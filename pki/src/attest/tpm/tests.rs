//! Facts about TPM evidence, with what a TPM said. That a TPM can read what is made for it is tried with one end to end.

use schema::digest::Digest;

use super::*;
use crate::{
    attest::Roots,
    testing::{after, now, realm},
};

const SECRET: Secret = [7; 32];
const MAKER: &str = include_str!("../fixtures/tpm-maker.pem");
const OTHER_MAKER: &str = include_str!("../fixtures/tpm-other-maker.pem");

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: String = hexadecimal.split_whitespace().collect();
    hex::decode(digits).expect("hexadecimal")
}

fn evidence() -> Evidence {
    Evidence {
        keys: Keys {
            endorsement: bytes(include_str!("../fixtures/tpm-ek-pub.hex")),
            attestation: bytes(include_str!("../fixtures/tpm-ak-pub.hex")),
        },
        chain: vec![bytes(include_str!("../fixtures/tpm-ek-cert.hex"))],
        secret: SECRET.to_vec(),
        quote: bytes(include_str!("../fixtures/tpm-q-msg.hex")),
        signature: bytes(include_str!("../fixtures/tpm-q-sig.hex")),
    }
}

fn proven(evidence: &Evidence) -> Result<Proof, Refusal> {
    proven_for("csr", b"challenge", evidence)
}

fn proven_for(csr: &str, challenge: &[u8], evidence: &Evidence) -> Result<Proof, Refusal> {
    prove(evidence, &Binding { realm: &realm(), csr: Digest::of(csr), challenge }, &SECRET)
}

#[test]
fn a_tpm_is_known_by_the_digest_of_its_endorsement_key_as_openssl_has_it() {
    let proof = proven(&evidence()).expect("proven");
    let digest = "tpm:sha256:fa11ff93ed08da564a99b372c691e9c938786f5e3b7fdd4ecf99541f4fc54999";
    assert_eq!(proof.attested.to_string(), digest);
}

#[test]
fn a_certificate_is_endorsed_by_its_maker_while_it_is_valid() {
    let proof = proven(&evidence()).expect("proven");
    let maker = Roots::from_pem(MAKER).expect("a root");
    assert_eq!(proof.endorsed(&maker, now()), Ok(()));
    let other = Roots::from_pem(OTHER_MAKER).expect("a root");
    assert_eq!(proof.endorsed(&other, now()), Err(Refusal::Untrusted(KIND)));
    let expired = Evidence { chain: vec![bytes(include_str!("../fixtures/tpm-ek-cert-expired.hex"))], ..evidence() };
    assert_eq!(proven(&expired).expect("proven").endorsed(&maker, now()), Err(Refusal::Expired(KIND)));
    let bare = Evidence { chain: Vec::new(), ..evidence() };
    assert_eq!(proven(&bare).expect("proven").endorsed(&maker, now()), Err(Refusal::Untrusted(KIND)));
    assert_eq!(proof.endorsed(&maker, after(20 * 365 * 86_400)), Err(Refusal::Expired(KIND)));
}

#[test]
fn a_certificate_of_another_key_is_refused() {
    let other = Evidence {
        keys: Keys { endorsement: bytes(include_str!("../fixtures/tpm-eke-pub.hex")), ..evidence().keys },
        ..evidence()
    };
    assert_eq!(proven(&other), Err(Refusal::NotProven(KIND)));
    let bare = Evidence { chain: Vec::new(), ..other };
    assert!(proven(&bare).is_ok());
}

#[test]
fn a_quote_for_another_request_or_challenge_is_refused() {
    assert_eq!(proven_for("other", b"challenge", &evidence()), Err(Refusal::OtherRequest(KIND)));
    assert_eq!(proven_for("csr", b"other", &evidence()), Err(Refusal::OtherRequest(KIND)));
}

#[test]
fn a_quote_by_another_key_is_refused() {
    let keys = Keys { attestation: bytes(include_str!("../fixtures/tpm-ak2-pub.hex")), ..evidence().keys };
    assert_eq!(proven(&Evidence { keys, ..evidence() }), Err(Refusal::NotProven(KIND)));
}

#[test]
fn who_cannot_read_the_secret_is_refused() {
    for secret in [vec![7; 31], vec![8; 32], Vec::new()] {
        assert_eq!(proven(&Evidence { secret, ..evidence() }), Err(Refusal::NotProven(KIND)));
    }
}

#[test]
fn keys_that_are_not_bound_to_their_tpm_or_do_other_things_are_refused() {
    let signing = bytes(include_str!("../fixtures/tpm-sw-pub.hex"));
    let keys = Keys { attestation: signing.clone(), ..evidence().keys };
    assert_eq!(label(&keys), Err(Refusal::Unsupported(KIND)));
    let keys = Keys { endorsement: signing, ..evidence().keys };
    assert_eq!(label(&keys), Err(Refusal::Unsupported(KIND)));
    // fixedTPM, in the last byte of the attributes.
    let mut loose = evidence().keys;
    loose.attestation[9] ^= 2;
    assert_eq!(label(&loose), Err(Refusal::Unsupported(KIND)));
}

#[test]
fn a_credential_is_made_for_both_kinds_of_endorsement_keys_and_never_the_same_twice() {
    for endorsement in [evidence().keys.endorsement, bytes(include_str!("../fixtures/tpm-eke-pub.hex"))] {
        let keys = Keys { endorsement, ..evidence().keys };
        let (one, two) = (credential(&keys, &SECRET).expect("made"), credential(&keys, &SECRET).expect("made"));
        assert_ne!(one, two);
        assert_eq!(one.blob.len(), 2 + 34 + 34);
    }
}

#[test]
fn no_byte_of_the_evidence_can_change_or_be_missing() {
    let good = evidence();
    let parts: [fn(&mut Evidence) -> &mut Vec<u8>; 5] = [
        |evidence| &mut evidence.keys.attestation,
        |evidence| &mut evidence.secret,
        |evidence| &mut evidence.quote,
        |evidence| &mut evidence.signature,
        |evidence| &mut evidence.chain[0],
    ];
    for (number, part) in parts.into_iter().enumerate() {
        let length = part(&mut good.clone()).len();
        // A certificate's signature is looked at where it is asked whose it is.
        let upto = if number == 4 { 0 } else { length };
        for at in 0..upto {
            let mut changed = good.clone();
            part(&mut changed)[at] ^= 1;
            // Another key has another secret.
            let other = label(&changed.keys) != label(&good.keys);
            assert!(other || proven(&changed).is_err(), "part {number}, byte {at}");
        }
        for length in [0, 1, length - 1] {
            let mut cut = good.clone();
            part(&mut cut).truncate(length);
            assert!(proven(&cut).is_err(), "part {number} cut at {length}");
        }
    }
}
