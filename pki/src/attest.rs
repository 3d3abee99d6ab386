//! What a machine proves about itself when it joins, besides what it was given: evidence in, a proven identity out.
//!
//! Each kind proves two different things. *Who*: that whoever asks holds a key, or is an instance, for exactly this request
//! ([`Binding`]). *Endorsed*: that somebody who is believed here said what that key is ([`Proof::endorsed`]). The first
//! needs nothing but the evidence, where a key is its own name (a certificate, a TPM); documents of a cloud prove nothing
//! without the cloud's keys. Who may come in, and where, is not decided here.
//!
//! | module | evidence | bound to the request by |
//! |---|---|---|
//! | [`x509`] | a certificate chain and a signature | the signature |
//! | [`tpm`] | an endorsement key, an activated credential, a quote | the credential's secret and the quoted data |
//! | [`aws`] | a signed instance identity document | nothing: it is good for as long as the instance lives |
//! | [`gcp`] | an identity token of the metadata server | its audience |
//! | [`azure`] | an attested document | ten digits of its nonce |

use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use schema::{
    attested::{AttestKind, Attested},
    digest::Digest,
    time::Timestamp,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::{
    Realm,
    provider::provider,
    signed::{Purpose, SignedBytes},
    verify::unix_time,
};

pub mod aws;
pub mod azure;
mod cms;
pub mod gcp;
pub mod tpm;
pub mod x509;

/// The largest piece of evidence that is looked at.
pub const MAX_BYTES: usize = 64 * 1024;
/// The most certificates of a chain.
const MAX_CHAIN: usize = 8;

/// Why evidence proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be read.
    #[error("the {0} evidence is malformed")]
    Malformed(AttestKind),
    /// It is of a kind that is not taken.
    #[error("the {0} evidence uses keys or algorithms that are not taken here")]
    Unsupported(AttestKind),
    /// It was made for another request, another fleet or another challenge.
    #[error("the {0} evidence was made for another request")]
    OtherRequest(AttestKind),
    /// Whoever sent it does not hold what it is about.
    #[error("the {0} evidence does not prove that this machine holds the key")]
    NotProven(AttestKind),
    /// Nobody who is believed here stands behind it.
    #[error("nobody who is believed here stands behind the {0} evidence")]
    Untrusted(AttestKind),
    /// It is not valid at this time.
    #[error("the {0} evidence is not valid at this time")]
    Expired(AttestKind),
}

/// The request that evidence is made for.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// Trust domain and fleet.
    pub realm: &'a Realm,
    /// The certificate request.
    pub csr: Digest,
    /// What the control plane gave for this request; empty where a kind asks for none.
    pub challenge: &'a [u8],
}

impl Binding<'_> {
    /// What is signed, or digested where only little can be.
    #[must_use]
    pub fn bytes(&self, kind: AttestKind) -> SignedBytes {
        SignedBytes::new(Purpose::JoinAttestation, self.realm)
            .field(kind.as_str())
            .field(self.csr.as_bytes())
            .field(self.challenge)
    }

    /// The digest of [`Self::bytes`].
    #[must_use]
    pub fn digest(&self, kind: AttestKind) -> Digest {
        Digest::of(self.bytes(kind).as_bytes())
    }
}

/// An identity that evidence proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Who.
    pub attested: Attested,
    /// What else it is called by those who stand behind it: the names in a certificate.
    pub names: Vec<String>,
    /// What it says about itself, for people: whose it is and who issued it. Nobody checked that.
    pub about: Option<String>,
    /// Who stands behind it; leaf first. Empty when nobody does, or when that was checked already.
    chain: Vec<CertificateDer<'static>>,
    usage: &'static [&'static [u8]],
}

impl Proof {
    /// Everything that it is called.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.attested.subject.as_str()).chain(self.names.iter().map(String::as_str))
    }

    /// Whether its certificates come from one of these roots, and are valid.
    ///
    /// # Errors
    /// When they do not, or are not.
    pub fn endorsed(&self, roots: &Roots, now: Timestamp) -> Result<(), Refusal> {
        let kind = self.attested.kind;
        let Some((leaf, between)) = self.chain.split_first() else { return Err(Refusal::Untrusted(kind)) };
        let usage = match self.usage {
            [usage] => KeyUsage::required_if_present(usage),
            _ => KeyUsage::client_auth(),
        };
        roots.endorse(kind, leaf, between, usage, now)
    }
}

/// Certificates that an operator believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots(Vec<CertificateDer<'static>>);

/// A text that holds no certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are no certificates in PEM")]
pub struct NoCertificates;

impl Roots {
    /// The certificates in a text.
    ///
    /// # Errors
    /// When there are none, or one is broken.
    pub fn from_pem(text: &str) -> Result<Self, NoCertificates> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let certificates = read.map_err(|_| NoCertificates)?;
        let sound = certificates
            .iter()
            .all(|der| x509_parser::parse_x509_certificate(der).is_ok_and(|(rest, _)| rest.is_empty()));
        if certificates.is_empty() || !sound { Err(NoCertificates) } else { Ok(Self(certificates)) }
    }

    fn endorse(
        &self,
        kind: AttestKind,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        usage: KeyUsage,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let certificate = EndEntityCert::try_from(leaf).map_err(|_| Refusal::Malformed(kind))?;
        let anchors: Vec<_> = self.0.iter().filter_map(|der| anchor_from_trusted_cert(der).ok()).collect();
        let all = provider().signature_verification_algorithms.all;
        certificate.verify_for_usage(all, &anchors, between, unix_time(now), usage, None, None).map_err(|error| {
            match error {
                webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => Refusal::Expired(kind),
                _ => Refusal::Untrusted(kind),
            }
        })?;
        Ok(())
    }
}

fn chain(kind: AttestKind, chain: &[Vec<u8>]) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    if chain.len() > MAX_CHAIN || chain.iter().map(Vec::len).sum::<usize>() > MAX_BYTES {
        return Err(Refusal::Malformed(kind));
    }
    Ok(chain.iter().cloned().map(CertificateDer::from).collect())
}

#[cfg(test)]
mod tests;
