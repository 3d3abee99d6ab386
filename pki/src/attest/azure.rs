//! Azure: the attested document of a virtual machine, signed as PKCS #7 with a certificate of the metadata service.
//!
//! Its nonce has ten digits: the binding is cut to them, so that a document is worth nothing after the few minutes that a
//! challenge lives.

use rustls_pki_types::{DnsName, ServerName};
use schema::{
    attested::{AttestKind, Attested},
    time::Timestamp,
};
use serde::Deserialize;
use webpki::{EndEntityCert, KeyUsage};

use super::{Binding, Proof, Refusal, Roots, aws::pkcs7};

const KIND: AttestKind = AttestKind::Azure;
/// The names of the metadata service: the public cloud, and those of governments.
const SERVICES: [&str; 3] = ["metadata.azure.com", "metadata.azure.us", "metadata.azure.cn"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    nonce: String,
    subscription_id: String,
    vm_id: String,
}

/// What a machine asks its metadata service to put into the document.
#[must_use]
pub fn nonce(binding: &Binding<'_>) -> String {
    let digest = binding.digest(KIND);
    let (head, _) = digest.as_bytes().split_first_chunk::<8>().expect("a digest has 32 bytes");
    format!("{:010}", u64::from_be_bytes(*head) % 10_000_000_000)
}

/// The machine in a document of `/metadata/attested/document`.
///
/// # Errors
/// When it cannot be read, was not signed by the metadata service, or was made for another request.
pub fn prove(text: &str, roots: &Roots, binding: &Binding<'_>, now: Timestamp) -> Result<Proof, Refusal> {
    let signed = pkcs7(KIND, text)?;
    let signer = signed.certificates.iter().position(|certificate| signed.is_signed_by(certificate));
    let signer = signer.ok_or(Refusal::Untrusted(KIND))?;
    let mut between = signed.certificates.clone();
    let leaf = between.swap_remove(signer);
    roots.endorse(KIND, &leaf, &between, KeyUsage::server_auth(), now)?;
    let certificate = EndEntityCert::try_from(&leaf).map_err(|_| Refusal::Malformed(KIND))?;
    let named = |name: &str| {
        DnsName::try_from(name)
            .is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&ServerName::DnsName(name)).is_ok())
    };
    if !SERVICES.into_iter().any(named) {
        return Err(Refusal::Untrusted(KIND));
    }
    let document: Document = serde_json::from_slice(&signed.content).map_err(|_| Refusal::Malformed(KIND))?;
    if document.nonce != nonce(binding) {
        return Err(Refusal::OtherRequest(KIND));
    }
    let subject = format!("{}/{}", document.subscription_id, document.vm_id).to_ascii_lowercase();
    let attested = Attested::new(KIND, subject).ok_or(Refusal::Malformed(KIND))?;
    Ok(Proof { attested, names: Vec::new(), about: None, chain: Vec::new(), usage: &[] })
}
