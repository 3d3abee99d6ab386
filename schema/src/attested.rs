//! What a machine can be attested by, and as what: `tpm:sha256:…`, `x509:sha256:…`, `aws:123456789012/i-0abc…`.
//!
//! One text everywhere: node documents name it, `joins` and `get node` show it, the database keeps it. What stands behind
//! the colon is proven, never claimed.

use std::{fmt, str::FromStr};

use crate::{digest::Digest, node::words};

words! {
    /// The ways in which a machine is attested, besides a join token.
    AttestKind {
        /// It has the private key of a certificate.
        X509 = "x509",
        /// It has a TPM, known by its endorsement key.
        Tpm = "tpm",
        /// It is an instance of AWS.
        Aws = "aws",
        /// It is an instance of Google Cloud.
        Gcp = "gcp",
        /// It is a virtual machine of Azure.
        Azure = "azure",
    }
}

impl AttestKind {
    /// Whether the evidence is made for one request. What is not could be carried off and shown again.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        !matches!(self, Self::Aws)
    }
}

/// An identity that was proven, or that a document expects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attested {
    /// How.
    pub kind: AttestKind,
    /// Who: of a certificate and of a TPM's key the digest, of an instance its account and its id.
    pub subject: String,
}

/// A text that is no attested identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no attested identity, as tpm:sha256:… or aws:ACCOUNT/INSTANCE")]
pub struct BadAttested(String);

impl Attested {
    /// An identity; `None` when the subject is not one of its kind.
    #[must_use]
    pub fn new(kind: AttestKind, subject: impl Into<String>) -> Option<Self> {
        let subject = subject.into();
        let word = |word: &str| {
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte))
        };
        let good = match kind {
            AttestKind::X509 | AttestKind::Tpm => subject.parse::<Digest>().is_ok(),
            AttestKind::Aws | AttestKind::Gcp | AttestKind::Azure => {
                subject.len() <= 200
                    && subject.split_once('/').is_some_and(|(account, instance)| word(account) && word(instance))
            }
        };
        good.then_some(Self { kind, subject })
    }

    /// The identity of a digest: of a certificate, or of a TPM's endorsement key.
    #[must_use]
    pub fn of_digest(kind: AttestKind, digest: Digest) -> Self {
        Self { kind, subject: digest.to_string() }
    }
}

impl fmt::Display for Attested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.subject)
    }
}

impl FromStr for Attested {
    type Err = BadAttested;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (kind, subject) = text.split_once(':')?;
            Self::new(kind.parse().ok()?, subject)
        };
        read().ok_or_else(|| BadAttested(text.chars().take(100).collect()))
    }
}

crate::as_text!(Attested = "^(x509|tpm|aws|gcp|azure):.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_text() {
        let digest = Digest::of("ek").to_string();
        for text in [
            format!("tpm:{digest}"),
            format!("x509:{digest}"),
            "aws:123456789012/i-0abc".to_owned(),
            "gcp:acme-gpu/4815162342".to_owned(),
            "gcp:example.com:acme/4815162342".to_owned(),
        ] {
            assert_eq!(text.parse::<Attested>().expect("good").to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let upper = Digest::of("ek").to_string().to_uppercase();
        for text in
            ["", "tpm", "tpm:", "tpm:sha256:00", "aws:123", "aws:/i-1", "aws:1/", "aws:1/i-*", "aws:1/i/2", "dmi:a/b"]
                .into_iter()
                .map(str::to_owned)
                .chain([format!("tpm:{upper}")])
        {
            assert!(text.parse::<Attested>().is_err(), "{text}");
        }
    }
}
