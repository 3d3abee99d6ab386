//! Every reason against a join or a renewal.
//!
//! `Display` is what the person at the machine reads; `code` is what is stored and matched. A join that is *held* or
//! *waiting* costs nothing yet: the machine asks again with the same request, and a commit or a command resolves it.

use pki::{csr::CsrRefusal, hardware::IdentifierKind, sealed::SealedTokenRefusal};
use schema::{name::Name, time::Timestamp};

/// What becomes of a join that is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is over; asking again with the same token and machine gives the same answer.
    Refused,
    /// A person has to look: something is ambiguous.
    Held,
    /// Something is not there yet.
    Waiting,
}

/// Why a machine does not join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// The certificate request is not good.
    #[error(transparent)]
    Request(#[from] CsrRefusal),
    /// The hardware claims cannot be read.
    #[error("the hardware claims are malformed")]
    Claims,
    /// The sealed token does not open.
    #[error(transparent)]
    Sealed(#[from] SealedTokenRefusal),
    /// No such token.
    #[error("the join token is not known here")]
    TokenUnknown,
    /// The token's secret is another one.
    #[error("the join token's secret is wrong")]
    TokenWrong,
    /// Its time is over.
    #[error("the join token expired at {0}")]
    TokenExpired(Timestamp),
    /// Somebody revoked it.
    #[error("the join token was revoked")]
    TokenRevoked,
    /// Other machines used it up.
    #[error("the join token was used up by other machines")]
    TokenUsed,
    /// The machine is described by a file.
    #[error("this control plane admits real machines only; described hardware joins one that was created with --dev")]
    Described,
    /// Identifiers exist and may not be read.
    #[error("the machine's identifiers may not be read ({}); run bcd as root", list(.0))]
    Unreadable(Vec<IdentifierKind>),
    /// Another node has the same hardware.
    #[error(
        "node {0} has the same hardware key, and nothing was changed; if that node is this machine, or is gone, delete it \
         (nodes.delete) and this join goes on by itself"
    )]
    DuplicateHardware(Name),
    /// Fewer than two independent identifiers, and no document vouches for the machine.
    #[error(
        "the machine has fewer than two independent identifiers; a node document with one of its serials or MAC addresses would admit it"
    )]
    WeakHardware,
    /// Several documents describe this machine.
    #[error("the documents of {} all describe this machine", names(.0))]
    AmbiguousDocument(Vec<Name>),
    /// The name is another machine's.
    #[error(
        "the name {0} belongs to another machine; if that node is gone, delete it (nodes.delete) and this join goes on"
    )]
    NameTaken(Name),
    /// The fleet admits documented machines only.
    #[error("the fleet's admission is strict; a node document would admit this machine")]
    NeedsDocument,
    /// The pool is not applied yet.
    #[error("there is no pool {0} yet")]
    UnknownPool(Name),
}

impl JoinRefusal {
    /// The stored word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Request(_) => "bad-request",
            Self::Claims => "bad-claims",
            Self::Sealed(SealedTokenRefusal::UnknownKey) => "token-for-another-key",
            Self::Sealed(SealedTokenRefusal::DoesNotOpen) => "token-does-not-open",
            Self::Sealed(SealedTokenRefusal::NotAToken) => "token-malformed",
            Self::TokenUnknown => "token-unknown",
            Self::TokenWrong => "token-wrong",
            Self::TokenExpired(_) => "token-expired",
            Self::TokenRevoked => "token-revoked",
            Self::TokenUsed => "token-used",
            Self::Described => "described-hardware",
            Self::Unreadable(_) => "hardware-unreadable",
            Self::DuplicateHardware(_) => "duplicate-hardware",
            Self::WeakHardware => "weak-hardware-key",
            Self::AmbiguousDocument(_) => "ambiguous-document",
            Self::NameTaken(_) => "name-taken",
            Self::NeedsDocument => "needs-document",
            Self::UnknownPool(_) => "unknown-pool",
        }
    }

    /// What becomes of the join.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        match self {
            Self::DuplicateHardware(_) | Self::WeakHardware | Self::AmbiguousDocument(_) | Self::NameTaken(_) => {
                Standing::Held
            }
            Self::NeedsDocument | Self::UnknownPool(_) => Standing::Waiting,
            _ => Standing::Refused,
        }
    }
}

/// Why a node gets no new certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewRefusal {
    /// The certificate request is not good.
    #[error(transparent)]
    Request(#[from] CsrRefusal),
    /// The old certificate is none of ours.
    #[error(transparent)]
    Certificate(#[from] pki::verify::IdentityRefusal),
    /// We did not record issuing it.
    #[error("this certificate is not known here; the machine has to join again")]
    UnknownCertificate,
    /// It ended too long ago.
    #[error("the certificate expired at {0}, more than 30 days ago; the machine has to join again")]
    TooOld(Timestamp),
    /// The identity was revoked or replaced.
    #[error("the identity of this machine was revoked; it has to join again")]
    Revoked,
    /// The request was not signed by the old key.
    #[error("the renewal does not prove possession of the node's key")]
    Possession,
}

impl RenewRefusal {
    /// The stored word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Request(_) => "bad-request",
            Self::Certificate(refusal) => refusal.code(),
            Self::UnknownCertificate => "unknown-certificate",
            Self::TooOld(_) => "certificate-too-old",
            Self::Revoked => "identity-revoked",
            Self::Possession => "no-possession",
        }
    }
}

fn list(kinds: &[IdentifierKind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}
