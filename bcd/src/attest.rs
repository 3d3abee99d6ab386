//! What the machine proves about itself when it joins: gathered for one request, sealed as a token is.
//!
//! ```text
//!  what was asked for ─▶ JoinChallenge (with a TPM's keys) ─▶ files, TPM, metadata service ─▶ JoinEvidence, sealed
//! ```

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use pki::{
    attest::{Binding, azure, gcp, x509},
    csr, sealed,
};
use prost::Message as _;
use proto::agent::v1 as pb;
use schema::attested::AttestKind;

use crate::{process::RunError, wire};

mod metadata;
mod tpm;

pub use metadata::Metadata;
use tpm::Tpm;

/// What is to be shown, and where it is found.
#[derive(Debug, Clone, Default)]
pub struct Attest {
    /// By which kinds.
    pub kinds: BTreeSet<AttestKind>,
    /// A certificate with those above it, in PEM, and its key.
    pub x509: Option<(PathBuf, PathBuf)>,
    /// How the TPM is reached, as tpm2-tools take it; their own way when it is not said.
    pub tcti: Option<String>,
    /// Where the metadata service of the cloud is.
    pub metadata: Metadata,
}

/// Why a machine cannot show what it should.
#[derive(Debug, thiserror::Error)]
pub enum AttestError {
    /// A certificate was asked for, and none was named.
    #[error("--attest x509 needs --x509-certificate FILE and --x509-key FILE")]
    NoFiles,
    /// A file cannot be read.
    #[error("reading {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("the machine's certificate cannot be used")]
    Pair(#[from] x509::BadPair),
    /// A program that asks the TPM gave no answer.
    #[error("the TPM was not asked{}", missing(.0))]
    Program(#[from] RunError),
    /// The TPM, or the program that asks it, said no.
    #[error("{program}: {said}")]
    Tpm {
        /// Which program.
        program: String,
        /// What it complained.
        said: String,
    },
    /// The control plane gave nothing for the TPM.
    #[error("the control plane gave no credential for the TPM")]
    NoCredential,
    /// The metadata service gave no answer.
    #[error("the metadata service of {kind} at {endpoint} gave no document: {why}")]
    Metadata {
        /// Which.
        kind: AttestKind,
        /// Where it was looked for.
        endpoint: String,
        /// Why not.
        why: String,
    },
}

fn missing(error: &RunError) -> &'static str {
    match error {
        RunError::Start { .. } => "; it is asked through tpm2-tools: apt-get install tpm2-tools",
        RunError::Deadline { .. } => "",
    }
}

/// What goes into the request.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) evidence: pb::SealedToken,
    pub(crate) challenge: Vec<u8>,
}

impl Attest {
    /// Whether there is nothing to be shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Finds out the public keys of the TPM, when one is to be shown. `scratch` is a directory for its programs.
    pub(crate) async fn begin(&self, scratch: &Path) -> Result<Gathering<'_>, AttestError> {
        let tpm = if self.kinds.contains(&AttestKind::Tpm) {
            let (scratch, tcti) = (scratch.to_owned(), self.tcti.clone());
            Some(blocking(move || Tpm::begin(&scratch, tcti)).await?)
        } else {
            None
        };
        Ok(Gathering { attest: self, tpm })
    }
}

/// Evidence on its way.
pub(crate) struct Gathering<'a> {
    attest: &'a Attest,
    tpm: Option<Tpm>,
}

impl Gathering<'_> {
    /// What is asked for before anything can be shown.
    pub(crate) fn challenge(&self, csr: &[u8]) -> pb::JoinChallengeRequest {
        let tpm = self.tpm.as_ref().map(|tpm| tpm.keys().clone());
        pb::JoinChallengeRequest { csr_hash: csr::hash(csr).as_bytes().to_vec(), tpm }
    }

    /// Everything that is to be shown, for this request.
    pub(crate) async fn show(
        self,
        anchor: &pki::anchor::Anchor,
        csr: &[u8],
        answer: pb::JoinChallengeResponse,
    ) -> Result<Shown, AttestError> {
        let Self { attest, tpm } = self;
        let pb::JoinChallengeResponse { challenge, tpm: credential } = answer;
        let realm = anchor.realm();
        let binding = Binding { realm: &realm, csr: csr::hash(csr), challenge: &challenge };
        let mut evidence = pb::JoinEvidence::default();
        for kind in &attest.kinds {
            match kind {
                AttestKind::X509 => evidence.x509 = Some(certificate(attest.x509.as_ref(), &binding)?),
                AttestKind::Tpm => {}
                AttestKind::Aws => evidence.aws = attest.metadata.aws().await?,
                AttestKind::Gcp => evidence.gcp = attest.metadata.gcp(&gcp::audience(&binding)).await?,
                AttestKind::Azure => evidence.azure = attest.metadata.azure(&azure::nonce(&binding)).await?,
            }
        }
        if let Some(tpm) = tpm {
            let credential = credential.ok_or(AttestError::NoCredential)?;
            let digest = binding.digest(AttestKind::Tpm);
            evidence.tpm = Some(blocking(move || tpm.answer(&credential, &digest)).await?);
        }
        let sealed = sealed::seal_evidence(anchor, binding.csr, &evidence.encode_to_vec());
        // The anchor was checked against its pin; a key in it that cannot be used is the control plane's mistake.
        let sealed = sealed.map_err(|_| AttestError::NoCredential)?;
        Ok(Shown { evidence: wire::sealed(sealed), challenge })
    }
}

fn certificate(files: Option<&(PathBuf, PathBuf)>, binding: &Binding<'_>) -> Result<pb::X509Evidence, AttestError> {
    let (certificate, key) = files.ok_or(AttestError::NoFiles)?;
    let read = |path: &PathBuf| fs::read(path).map_err(|source| AttestError::File { path: path.clone(), source });
    let key = zeroize::Zeroizing::new(read(key)?);
    let x509::Evidence { chain, scheme, signature } = x509::sign(&read(certificate)?, &key, binding)?;
    Ok(pb::X509Evidence { chain, scheme: u32::from(scheme), signature })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AttestError> + Send + 'static,
) -> Result<T, AttestError> {
    tokio::task::spawn_blocking(work).await.expect("a program that is run does not panic")
}

#[cfg(test)]
mod tests;
