//! A TPM that proves which one it is: by a secret that only it can have read, and by a key of its own that signs.
//!
//! ```text
//!  machine ── endorsement key, attestation key ─▶ control plane: a secret, encrypted so that only a TPM with both can read it
//!          ◀── challenge, credential ──
//!          ── the secret, a quote over the request ─▶ both are checked; nothing was kept meanwhile
//! ```
//!
//! The secret follows from the challenge and the two keys, so the control plane computes it again. The identity is the digest
//! of the endorsement key as an X.509 public key, which is the same in the maker's certificate: it can be known before the
//! machine is unpacked.

use rustls_pki_types::CertificateDer;
use schema::attested::{AttestKind, Attested};
use subtle::ConstantTimeEq as _;

use super::{Binding, Proof, Refusal, chain};

mod credential;
mod public;
mod quote;

pub use credential::Credential;
use public::{AttestationKey, EndorsementKey};

const KIND: AttestKind = AttestKind::Tpm;
/// tcg-kp-EKCertificate, 2.23.133.8.1.
const EK_USAGE: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x01];

/// The public areas of two keys, as `TPM2B_PUBLIC`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The endorsement key.
    pub endorsement: Vec<u8>,
    /// The attestation key.
    pub attestation: Vec<u8>,
}

/// What a machine shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its keys, the same that the challenge was made for.
    pub keys: Keys,
    /// The endorsement key's certificate and those between it and the maker's root, DER, leaf first; empty when it has none.
    pub chain: Vec<Vec<u8>>,
    /// What it read from the credential.
    pub secret: Vec<u8>,
    /// A quote over the binding's digest, `TPMS_ATTEST`.
    pub quote: Vec<u8>,
    /// The attestation key's signature over it, `TPMT_SIGNATURE`.
    pub signature: Vec<u8>,
}

/// A secret of a challenge, and what it is for.
pub type Secret = [u8; 32];

/// What the secret of a challenge depends on: both keys.
///
/// # Errors
/// When they cannot be read, or are not such keys.
pub fn label(keys: &Keys) -> Result<Vec<u8>, Refusal> {
    let (endorsement, attestation) = read(keys)?;
    Ok([endorsement.digest().as_bytes().as_slice(), &attestation.name].concat())
}

/// Encrypts a secret so that only the TPM that has both keys can read it.
///
/// # Errors
/// When the keys cannot be read, or are not such keys.
pub fn credential(keys: &Keys, secret: &Secret) -> Result<Credential, Refusal> {
    let (endorsement, attestation) = read(keys)?;
    credential::make(&endorsement, &attestation.name, secret).ok_or(Refusal::Unsupported(KIND))
}

/// Checks that a TPM has both keys, and that it was asked for this request.
///
/// # Errors
/// When it has not, or was not.
pub fn prove(evidence: &Evidence, binding: &Binding<'_>, secret: &Secret) -> Result<Proof, Refusal> {
    let (endorsement, attestation) = read(&evidence.keys)?;
    if !bool::from(evidence.secret.as_slice().ct_eq(secret)) {
        return Err(Refusal::NotProven(KIND));
    }
    let quoted = quote::verify(&attestation, &evidence.quote, &evidence.signature)?;
    if quoted != binding.digest(KIND).as_bytes() {
        return Err(Refusal::OtherRequest(KIND));
    }
    let chain = chain(KIND, &evidence.chain)?;
    if let Some(leaf) = chain.first() {
        is_of(leaf, &endorsement)?;
    }
    let attested = Attested::of_digest(KIND, endorsement.digest());
    Ok(Proof { attested, names: Vec::new(), about: None, chain, usage: &[EK_USAGE] })
}

fn read(keys: &Keys) -> Result<(EndorsementKey, AttestationKey), Refusal> {
    Ok((EndorsementKey::read(&keys.endorsement)?, AttestationKey::read(&keys.attestation)?))
}

/// A certificate of another key says nothing about this one.
fn is_of(leaf: &CertificateDer<'_>, endorsement: &EndorsementKey) -> Result<(), Refusal> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| Refusal::Malformed(KIND))?;
    if !rest.is_empty() {
        return Err(Refusal::Malformed(KIND));
    }
    if parsed.public_key().raw != endorsement.spki { Err(Refusal::NotProven(KIND)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
