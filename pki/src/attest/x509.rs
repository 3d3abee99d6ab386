//! Proof of possession of a certificate's key: for machines that were given one when they were built.

use rustls::{SignatureScheme, crypto::aws_lc_rs::sign::any_supported_type};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use schema::{
    attested::{AttestKind, Attested},
    digest::Digest,
};
use webpki::EndEntityCert;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{Binding, Proof, Refusal, chain};
use crate::provider::provider;

const KIND: AttestKind = AttestKind::X509;
/// The ways to sign that are taken, in the order in which a machine picks one.
const SCHEMES: [SignatureScheme; 5] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA512,
];

/// The longest name that is repeated to people.
const MAX_TEXT: usize = 120;

/// What a machine shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// DER, leaf first, without the root.
    pub chain: Vec<Vec<u8>>,
    /// How it signed, as TLS numbers it.
    pub scheme: u16,
    /// Over the binding, by the leaf's key.
    pub signature: Vec<u8>,
}

/// Why a certificate and a key are of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPair {
    /// There is no certificate in PEM.
    #[error("there is no certificate in PEM")]
    Certificate,
    /// There is no private key in PEM.
    #[error("there is no private key in PEM")]
    Key,
    /// The key is of a kind that is not taken.
    #[error("the private key is neither Ed25519, P-256, P-384 nor RSA")]
    Kind,
}

/// Makes evidence, on the machine.
///
/// # Errors
/// When certificate or key cannot be used.
pub fn sign(certificates: &[u8], key: &[u8], binding: &Binding<'_>) -> Result<Evidence, BadPair> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = read.ok().filter(|chain| !chain.is_empty()).ok_or(BadPair::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| BadPair::Key)?;
    let key = any_supported_type(&key).map_err(|_| BadPair::Kind)?;
    let signer = key.choose_scheme(&SCHEMES).ok_or(BadPair::Kind)?;
    let signature = signer.sign(binding.bytes(KIND).as_bytes()).map_err(|_| BadPair::Kind)?;
    let chain = chain.iter().map(|der| der.to_vec()).collect();
    Ok(Evidence { chain, scheme: u16::from(signer.scheme()), signature })
}

/// Checks that whoever sent this holds the key of its certificate.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn prove(evidence: &Evidence, binding: &Binding<'_>) -> Result<Proof, Refusal> {
    let chain = chain(KIND, &evidence.chain)?;
    let leaf = chain.first().ok_or(Refusal::Malformed(KIND))?;
    let (rest, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| Refusal::Malformed(KIND))?;
    if !rest.is_empty() {
        return Err(Refusal::Malformed(KIND));
    }
    let scheme = SignatureScheme::from(evidence.scheme);
    if !SCHEMES.contains(&scheme) {
        return Err(Refusal::Unsupported(KIND));
    }
    let algorithms = provider().signature_verification_algorithms;
    let (_, algorithms) =
        algorithms.mapping.iter().find(|(known, _)| *known == scheme).ok_or(Refusal::Unsupported(KIND))?;
    let certificate = EndEntityCert::try_from(leaf).map_err(|_| Refusal::Malformed(KIND))?;
    let signed = binding.bytes(KIND);
    let good = |algorithm: &&dyn rustls_pki_types::SignatureVerificationAlgorithm| {
        certificate.verify_signature(*algorithm, signed.as_bytes(), &evidence.signature).is_ok()
    };
    if !algorithms.iter().any(good) {
        return Err(Refusal::NotProven(KIND));
    }
    let names = parsed.subject_alternative_name().map_err(|_| Refusal::Malformed(KIND))?.map(|names| {
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(text) => Some(text.to_ascii_lowercase()),
            GeneralName::URI(text) => Some((*text).to_owned()),
            _ => None,
        };
        names.value.general_names.iter().filter_map(text).collect()
    });
    let attested = Attested::of_digest(KIND, Digest::of(leaf));
    let names: Vec<String> = names.unwrap_or_default();
    let about = Some(about(&parsed, &names));
    Ok(Proof { attested, names, about, chain, usage: &[] })
}

/// Whose certificate it says it is, and whose word that would be.
fn about(certificate: &X509Certificate<'_>, names: &[String]) -> String {
    let plain = |text: String| text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect::<String>();
    let (subject, issuer) = (certificate.subject(), certificate.issuer());
    let issued = if subject.as_raw() == issuer.as_raw() {
        "itself".to_owned()
    } else {
        format!("\"{}\"", plain(issuer.to_string()))
    };
    let named = match names {
        [] => "no names".to_owned(),
        names => format!("the names {}", plain(names.iter().take(3).cloned().collect::<Vec<_>>().join(", "))),
    };
    format!("a certificate of \"{}\" with {named}, issued by {issued}", plain(subject.to_string()))
}
