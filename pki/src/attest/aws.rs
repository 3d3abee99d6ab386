//! AWS: the instance identity document, signed as PKCS #7 with the region's RSA-2048 certificate.
//!
//! It is bound to no request and does not end: whoever can read an instance's metadata can carry it away. That it is used
//! once is the database's business.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::{
    attested::{AttestKind, Attested},
    time::Timestamp,
};
use serde::Deserialize;

use super::{
    MAX_BYTES, Proof, Refusal, Roots,
    cms::{Bad, SignedData},
};

const KIND: AttestKind = AttestKind::Aws;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    account_id: String,
    instance_id: String,
    region: String,
}

/// The instance in a document of `/latest/dynamic/instance-identity/rsa2048`.
///
/// # Errors
/// When it cannot be read, or none of these certificates signed it.
pub fn prove(text: &str, certificates: &Roots, now: Timestamp) -> Result<Proof, Refusal> {
    let signed = pkcs7(KIND, text)?;
    let signer =
        certificates.0.iter().find(|certificate| signed.is_signed_by(certificate)).ok_or(Refusal::Untrusted(KIND))?;
    let (_, signer) = x509_parser::parse_x509_certificate(signer).map_err(|_| Refusal::Malformed(KIND))?;
    let (validity, now) = (signer.validity(), now.as_second());
    if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now) {
        return Err(Refusal::Expired(KIND));
    }
    let document: Document = serde_json::from_slice(&signed.content).map_err(|_| Refusal::Malformed(KIND))?;
    let subject = format!("{}/{}", document.account_id, document.instance_id);
    let attested = Attested::new(KIND, subject).ok_or(Refusal::Malformed(KIND))?;
    let names = vec![format!("{}/{}/{}", document.account_id, document.region, document.instance_id)];
    Ok(Proof { attested, names, about: None, chain: Vec::new(), usage: &[] })
}

/// A signed document in base64, in lines or not, with the lines of PEM around it or not.
pub(super) fn pkcs7(kind: AttestKind, text: &str) -> Result<SignedData, Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::Malformed(kind));
    }
    let body: String = text.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    let bytes = STANDARD.decode(body).map_err(|_| Refusal::Malformed(kind))?;
    SignedData::read(&bytes).map_err(|bad| match bad {
        Bad::Malformed => Refusal::Malformed(kind),
        Bad::Unsupported => Refusal::Unsupported(kind),
    })
}
