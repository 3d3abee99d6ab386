//! Facts about evidence: whose it is, for which request, and who stands behind it.

use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ED25519, SanType};

use super::{gcp::KeySet, *};
use crate::testing::{after, now, realm};

fn binding<'a>(realm: &'a Realm, csr: &str, challenge: &'a [u8]) -> Binding<'a> {
    Binding { realm, csr: Digest::of(csr), challenge }
}

fn elsewhere() -> [(Realm, &'static str, &'static [u8]); 4] {
    [
        (realm(), "other", b"challenge"),
        (realm(), "csr", b"other"),
        (Realm::new("bc.local", "fleet-two"), "csr", b"challenge"),
        (Realm::new("bd.local", "fleet-one"), "csr", b"challenge"),
    ]
}

// === x509 ===

struct Maker {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

fn at(seconds: i64) -> ::time::OffsetDateTime {
    ::time::OffsetDateTime::from_unix_timestamp(seconds).expect("a time")
}

impl Maker {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = at(now().as_second() - 1_000);
        params.not_after = at(now().as_second() + 100_000);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("issuer") }
    }

    fn roots(&self) -> Roots {
        Roots::from_pem(&self.issuer.pem()).expect("a root")
    }

    /// A certificate and its key, in PEM.
    fn machine(&self, seconds: i64) -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("key");
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::DnsName("R12.Racks.acme.example".try_into().expect("ascii")),
            SanType::URI("urn:acme:r12".try_into().expect("ascii")),
        ];
        params.not_before = at(now().as_second() - 1_000);
        params.not_after = at(now().as_second() + seconds);
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

#[test]
fn who_holds_the_key_of_a_certificate_is_known_by_its_digest_and_its_names() {
    let maker = Maker::new();
    let (certificate, key) = maker.machine(1_000);
    let realm = realm();
    let binding = binding(&realm, "csr", b"challenge");
    let evidence = x509::sign(certificate.as_bytes(), key.as_bytes(), &binding).expect("signed");
    let proof = x509::prove(&evidence, &binding).expect("proven");
    assert_eq!(proof.attested.to_string(), format!("x509:{}", Digest::of(&evidence.chain[0])));
    assert_eq!(proof.names, ["r12.racks.acme.example", "urn:acme:r12"]);
    assert_eq!(proof.endorsed(&maker.roots(), now()), Ok(()));
    assert_eq!(proof.endorsed(&Maker::new().roots(), now()), Err(Refusal::Untrusted(AttestKind::X509)));
    assert_eq!(proof.endorsed(&maker.roots(), after(1_001)), Err(Refusal::Expired(AttestKind::X509)));
    assert_eq!(proof.endorsed(&maker.roots(), after(-1_001)), Err(Refusal::Expired(AttestKind::X509)));
}

#[test]
fn a_proof_of_possession_is_for_one_request_in_one_fleet() {
    let (certificate, key) = Maker::new().machine(1_000);
    let here = realm();
    let evidence =
        x509::sign(certificate.as_bytes(), key.as_bytes(), &binding(&here, "csr", b"challenge")).expect("signed");
    for (realm, csr, challenge) in elsewhere() {
        let refused = x509::prove(&evidence, &binding(&realm, csr, challenge));
        assert_eq!(refused, Err(Refusal::NotProven(AttestKind::X509)), "{realm:?} {csr}");
    }
}

#[test]
fn somebody_elses_certificate_is_refused() {
    let maker = Maker::new();
    let ((mine, key), (theirs, _)) = (maker.machine(1_000), maker.machine(1_000));
    let here = realm();
    let binding = binding(&here, "csr", b"challenge");
    let evidence = x509::sign(mine.as_bytes(), key.as_bytes(), &binding).expect("signed");
    let other = x509::sign(theirs.as_bytes(), key.as_bytes(), &binding).expect("signed by the wrong key");
    assert_eq!(x509::prove(&other, &binding), Err(Refusal::NotProven(AttestKind::X509)));
    let empty = x509::Evidence { chain: Vec::new(), ..evidence.clone() };
    assert_eq!(x509::prove(&empty, &binding), Err(Refusal::Malformed(AttestKind::X509)));
    let old = x509::Evidence { scheme: 0x0401, ..evidence };
    assert_eq!(x509::prove(&old, &binding), Err(Refusal::Unsupported(AttestKind::X509)));
}

#[test]
fn texts_without_certificates_are_no_roots() {
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"] {
        assert_eq!(Roots::from_pem(text), Err(NoCertificates), "{text}");
    }
}

// === AWS ===

const AWS: [&str; 2] = [include_str!("fixtures/aws-open.b64"), include_str!("fixtures/aws-plain.b64")];

fn region() -> Roots {
    Roots::from_pem(include_str!("fixtures/aws.pem")).expect("a certificate")
}

#[test]
fn an_instance_of_aws_is_known_by_account_and_id() {
    for document in AWS {
        let proof = aws::prove(document, &region(), now()).expect("proven");
        assert_eq!(proof.attested.to_string(), "aws:123456789012/i-0123456789abcdef0");
        assert_eq!(proof.names, ["123456789012/eu-central-1/i-0123456789abcdef0"]);
        assert_eq!(proof.endorsed(&region(), now()), Err(Refusal::Untrusted(AttestKind::Aws)), "it has no chain");
    }
}

#[test]
fn a_document_that_another_certificate_signed_is_refused() {
    let other = Roots::from_pem(include_str!("fixtures/aws-other.pem")).expect("a certificate");
    assert_eq!(aws::prove(AWS[0], &other, now()), Err(Refusal::Untrusted(AttestKind::Aws)));
    assert_eq!(aws::prove(AWS[0], &region(), after(20 * 365 * 86_400)), Err(Refusal::Expired(AttestKind::Aws)));
}

#[test]
fn no_byte_of_a_signed_document_can_change() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    for document in AWS {
        let bytes = STANDARD.decode(document.replace('\n', "")).expect("base64");
        let good = aws::prove(document, &region(), now()).expect("proven");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // Beside the content and its signature there is what nobody reads, such as the name of the signer.
            if let Ok(proof) = aws::prove(&STANDARD.encode(&changed), &region(), now()) {
                assert_eq!(proof, good, "byte {at}");
            }
            assert!(aws::prove(&STANDARD.encode(&bytes[..at]), &region(), now()).is_err(), "cut at {at}");
        }
    }
}

// === Google Cloud ===

const RS256: &str = include_str!("fixtures/gcp-rs256.jwt");
const ES256: &str = include_str!("fixtures/gcp-es256.jwt");

fn google() -> KeySet {
    KeySet::from_json(include_str!("fixtures/gcp-keys.json")).expect("keys")
}

#[test]
fn an_instance_of_google_cloud_is_known_by_project_and_id() {
    let here = realm();
    for token in [RS256, ES256] {
        let proof = gcp::prove(token, &google(), &binding(&here, "csr", b"challenge"), now()).expect("proven");
        assert_eq!(proof.attested.to_string(), "gcp:acme-gpu/4815162342");
        assert_eq!(proof.names, ["acme-gpu/europe-west4-b/4815162342"]);
    }
}

#[test]
fn a_token_is_for_one_request_in_one_fleet_and_for_its_time() {
    for (realm, csr, challenge) in elsewhere() {
        let refused = gcp::prove(RS256, &google(), &binding(&realm, csr, challenge), now());
        assert_eq!(refused, Err(Refusal::OtherRequest(AttestKind::Gcp)), "{realm:?} {csr}");
    }
    let here = realm();
    let here = binding(&here, "csr", b"challenge");
    for (time, good) in [(3_539, true), (3_541, false), (-180, true), (-182, false)] {
        assert_eq!(gcp::prove(RS256, &google(), &here, after(time)).is_ok(), good, "{time}");
    }
}

#[test]
fn a_token_of_another_issuer_or_key_is_refused() {
    let here = realm();
    let here = binding(&here, "csr", b"challenge");
    let untrusted = Err(Refusal::Untrusted(AttestKind::Gcp));
    assert_eq!(gcp::prove(include_str!("fixtures/gcp-other-issuer.jwt"), &google(), &here, now()), untrusted);
    let only_ec = include_str!("fixtures/gcp-keys.json").replace("\"RSA\"", "\"oct\"");
    let only_ec = KeySet::from_json(&only_ec).expect("one key");
    assert_eq!(gcp::prove(RS256, &only_ec, &here, now()), untrusted);
    assert!(gcp::prove(ES256, &only_ec, &here, now()).is_ok());
}

#[test]
fn a_token_does_not_say_how_it_is_checked() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let here = realm();
    let here = binding(&here, "csr", b"challenge");
    let (_, rest) = RS256.split_once('.').expect("three parts");
    for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS256","kid":"one"}"#, r#"{"alg":"RS256","kid":"one","crit":["x"]}"#]
    {
        let token = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header));
        assert_eq!(gcp::prove(&token, &google(), &here, now()), Err(Refusal::Unsupported(AttestKind::Gcp)), "{header}");
    }
    let crossed = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"one"}"#));
    assert_eq!(gcp::prove(&crossed, &google(), &here, now()), Err(Refusal::Untrusted(AttestKind::Gcp)));
}

// === Azure ===

fn authority() -> Roots {
    Roots::from_pem(include_str!("fixtures/azure-root.pem")).expect("a root")
}

fn azure(document: &str, roots: &Roots) -> Result<Proof, Refusal> {
    let here = realm();
    azure::prove(document, roots, &binding(&here, "csr", b"challenge"), now())
}

#[test]
fn a_machine_of_azure_is_known_by_subscription_and_id() {
    let proof = azure(include_str!("fixtures/azure.b64"), &authority()).expect("proven");
    let expected = "azure:8d10da13-8125-4ba9-a717-bf7490507b3d/02aab8a4-74ef-476e-8182-f6d2ba4166a6";
    assert_eq!(proof.attested.to_string(), expected);
}

#[test]
fn an_attested_document_is_for_one_request_in_one_fleet() {
    for (realm, csr, challenge) in elsewhere() {
        let binding = binding(&realm, csr, challenge);
        let refused = azure::prove(include_str!("fixtures/azure.b64"), &authority(), &binding, now());
        assert_eq!(refused, Err(Refusal::OtherRequest(AttestKind::Azure)), "{realm:?} {csr}");
    }
}

#[test]
fn a_document_that_the_metadata_service_did_not_sign_is_refused() {
    let untrusted = Err(Refusal::Untrusted(AttestKind::Azure));
    assert_eq!(azure(include_str!("fixtures/azure-other-name.b64"), &authority()), untrusted);
    assert_eq!(azure(include_str!("fixtures/azure.b64"), &region()), untrusted);
    let expired = azure(include_str!("fixtures/azure-expired.b64"), &authority());
    assert_eq!(expired, Err(Refusal::Expired(AttestKind::Azure)));
    assert_eq!(azure(AWS[0], &authority()), untrusted);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        cms::SignedData::read(&bytes).ok();
        let keys = tpm::Keys { endorsement: bytes.clone(), attestation: bytes };
        prop_assert!(tpm::label(&keys).is_err());
    }

    #[test]
    fn any_change_of_a_document_is_read_or_refused(at in 0_usize..1_500, byte in any::<u8>()) {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let mut bytes = STANDARD.decode(AWS[0].replace('\n', "")).expect("base64");
        let at = at % bytes.len();
        bytes[at] = byte;
        cms::SignedData::read(&bytes).ok();
    }
}
