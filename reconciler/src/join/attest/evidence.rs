//! The evidence of a request, opened and read.

use pki::attest::{tpm, x509};
use prost::Message as _;
use proto::agent::v1 as pb;

use super::JoinRefusal;

/// What a machine shows about itself, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::join) struct Evidence {
    pub(super) x509: Option<x509::Evidence>,
    pub(super) tpm: Option<Tpm>,
    pub(super) aws: Option<String>,
    pub(super) gcp: Option<String>,
    pub(super) azure: Option<String>,
}

/// A TPM's evidence, with the secret that only it can have read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tpm {
    pub(super) evidence: tpm::Evidence,
    pub(super) secret: tpm::Secret,
}

impl Evidence {
    /// Reads what was sealed. `secret` gives the secret that goes with the keys of a TPM.
    ///
    /// # Errors
    /// When it is no evidence.
    pub(in crate::join) fn read(bytes: &[u8], secret: impl Fn(&[u8]) -> tpm::Secret) -> Result<Self, JoinRefusal> {
        let read = pb::JoinEvidence::decode(bytes).map_err(|_| JoinRefusal::Evidence)?;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let tpm = match read.tpm {
            Some(read) => {
                let pb::TpmEvidence { keys, chain, secret: shown, quote, signature } = read;
                let keys = keys_of(keys.ok_or(JoinRefusal::Evidence)?);
                let secret = secret(&tpm::label(&keys)?);
                Some(Tpm { evidence: tpm::Evidence { keys, chain, secret: shown, quote, signature }, secret })
            }
            None => None,
        };
        let x509 = match read.x509 {
            Some(pb::X509Evidence { chain, scheme, signature }) => {
                let scheme = u16::try_from(scheme).map_err(|_| JoinRefusal::Evidence)?;
                Some(x509::Evidence { chain, scheme, signature })
            }
            None => None,
        };
        Ok(Self { x509, tpm, aws: given(read.aws), gcp: given(read.gcp), azure: given(read.azure) })
    }

    /// Whether there is something in it that is made for a challenge.
    pub(in crate::join) const fn needs_challenge(&self) -> bool {
        self.x509.is_some() || self.tpm.is_some() || self.gcp.is_some() || self.azure.is_some()
    }
}

/// The keys of a TPM in a message.
pub(in crate::join) fn keys_of(keys: pb::TpmKeys) -> tpm::Keys {
    let pb::TpmKeys { endorsement, attestation } = keys;
    tpm::Keys { endorsement, attestation }
}
