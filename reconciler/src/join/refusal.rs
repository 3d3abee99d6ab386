//! Every reason against a join or a renewal.
//!
//! `Display` is what the person at the machine reads; `code` is what is stored and matched. A join that is *held* or
//! *waiting* costs nothing yet: the machine asks again with the same request, and a commit or a command resolves it.

use std::fmt;

use pki::{
    attest::Refusal, challenge::ChallengeRefusal, csr::CsrRefusal, hardware::IdentifierKind,
    sealed::SealedTokenRefusal, verify::IdentityRefusal,
};
use schema::{
    attested::{AttestKind, Attested},
    name::Name,
    node::ProvisionState,
    time::Timestamp,
};

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
        "node {0} has the same hardware key, and nothing was changed; if that node is this machine, join with a token that \
         reclaims (token create --reclaim), or say so with `node rebind {0} --join JOIN`"
    )]
    DuplicateHardware(Name),
    /// Fewer than two independent identifiers, and no document vouches for the machine.
    #[error(
        "the machine has fewer than two independent identifiers; a node document with one of its serials or MAC addresses admits it, \
         and so does `joins approve`"
    )]
    WeakHardware,
    /// The token is for other machines.
    #[error("the join token is for another machine: it expects {}", .0.join(" and "))]
    TokenExpects(Vec<String>),
    /// The request has neither a token nor evidence.
    #[error("the request brings neither a join token nor evidence (bcd join --attest)")]
    NoToken,
    /// The evidence cannot be read.
    #[error("the evidence is malformed")]
    Evidence,
    /// The evidence proves nothing.
    #[error(transparent)]
    Attestation(#[from] Refusal),
    /// The evidence is not made for a challenge of ours, or for one that is too old.
    #[error(transparent)]
    Challenge(#[from] ChallengeRefusal),
    /// What the machine proved is known to nobody here.
    #[error("{}; a node document that names it admits the machine (`joins show` prints one), and so does a join token", strangers(.0))]
    AttestationUnknown(Vec<Stranger>),
    /// Token and pools say different things.
    #[error("{}", disagreement(token.as_ref(), document.as_ref(), pools))]
    Disagree {
        /// The pool of the token.
        token: Option<Name>,
        /// The pool of a document that does not name what it proved.
        document: Option<Name>,
        /// The pools that let it in by what it proved.
        pools: Vec<Name>,
    },
    /// The pool wants to see more.
    #[error("pool {pool} takes only machines that show more: bcd join --attest {}", kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(","))]
    AttestationRequired {
        /// The pool.
        pool: Name,
        /// What is missing.
        kinds: Vec<AttestKind>,
    },
    /// Another node is known by the same.
    #[error(
        "node {0} was attested as the same, and nothing was changed; if that node is this machine, say so with \
         `node rebind {0} --join JOIN`; if it is gone, `node delete {0}`, and this join goes on"
    )]
    AttestedElsewhere(Name),
    /// The machine is one that a document describes, and the token is for another pool.
    #[error(
        "the join token is for pool {token}, and this machine is node {node} of pool {pool}; a token for that pool lets it in, and so \
         does one that expects it (token create --expect-name {node})"
    )]
    TokenOtherPool {
        /// The pool of the token.
        token: Name,
        /// The name in the document.
        node: Name,
        /// The pool in the document.
        pool: Name,
    },
    /// The machine may take its node back, but not with this token.
    #[error(
        "this machine is node {node}, which is not in pool {pool}; a reclaiming token of its own pool takes it back"
    )]
    ReclaimOtherPool {
        /// The node.
        node: Name,
        /// The pool of the token.
        pool: Name,
    },
    /// The machine says that it is a node that was heard meanwhile.
    #[error(
        "node {0} was heard while this machine asked to be it: they are two machines, and one may be a copy; when the other one is \
         switched off, `node rebind {0} --join JOIN` says that this one takes its place"
    )]
    ReclaimConnected(Name),
    /// The node may only be away for a moment.
    #[error(
        "this machine says that it is node {0}, which may only be away for a moment; once that node is lost, this join goes on by \
         itself, and at once after `node revoke {0}`"
    )]
    ReclaimNotLost(Name),
    /// The node is in the middle of something.
    #[error("this machine is node {node}, which is {state}; it comes back once that is over")]
    ReclaimBusy {
        /// The node.
        node: Name,
        /// Where it is.
        state: ProvisionState,
    },
    /// Nobody stands by what the node's row says that it is called.
    #[error(
        "this machine is node {0} by its hardware, and no process of this control plane wrote that node's name and pool as they \
         stand there; once somebody stands by them (`better-compute api nodes.vouch`), this join goes on"
    )]
    ReclaimUnvouched(Name),
    /// Several documents describe this machine.
    #[error("the documents of {} all describe this machine", names(.0))]
    AmbiguousDocument(Vec<Name>),
    /// The name is another machine's.
    #[error(
        "the name {0} belongs to a machine with other hardware; if its board was replaced, `node rebind {0} --join JOIN` says so, \
         or a token that reclaims; if it is gone, `node delete {0}`, and this join goes on"
    )]
    NameTaken(Name),
    /// The fleet admits documented machines only.
    #[error("the fleet's admission is strict; a node document admits this machine, and so does `joins approve`")]
    NeedsDocument,
    /// The pool is not applied yet.
    #[error("there is no pool {0} yet")]
    UnknownPool(Name),
}

/// Something that a machine proved to be, and that neither a document nor a pool names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// What it is.
    pub attested: Attested,
    /// What it says about itself.
    pub about: Option<String>,
    /// Who stands behind it.
    pub backed: Backed,
}

/// Who stands behind something that a machine proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backed {
    /// No pool asks for this kind.
    Unasked,
    /// Nobody whom a pool believes.
    ByNobody,
    /// Somebody whom these pools believe; they name others.
    In(Vec<Name>),
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attested)?;
        if let Some(about) = &self.about {
            write!(f, " ({about})")?;
        }
        match &self.backed {
            Backed::Unasked => write!(f, ", and no pool has an `attest \"{}\"`", self.attested.kind),
            Backed::ByNobody => f.write_str(", and nobody whom a pool believes stands behind that"),
            Backed::In(pools) => {
                write!(
                    f,
                    "; {} believes who stands behind that, and its `only` names nothing that it is called",
                    names(pools)
                )
            }
        }
    }
}

impl JoinRefusal {
    /// Every word of [`JoinRefusal::code`].
    pub const CODES: &[&str] = &[
        "ambiguous-document",
        "attestation-disagrees",
        "attestation-expired",
        "attestation-malformed",
        "attestation-not-proven",
        "attestation-other-request",
        "attestation-required",
        "attestation-unknown",
        "attestation-unsupported",
        "attestation-untrusted",
        "attested-elsewhere",
        "bad-claims",
        "bad-request",
        "challenge-not-ours",
        "challenge-too-old",
        "described-hardware",
        "duplicate-hardware",
        "hardware-unreadable",
        "name-taken",
        "needs-document",
        "no-token",
        "reclaim-busy",
        "reclaim-connected",
        "reclaim-not-lost",
        "reclaim-other-pool",
        "reclaim-unvouched",
        "token-does-not-open",
        "token-expects-another",
        "token-expired",
        "token-for-another-key",
        "token-for-another-pool",
        "token-malformed",
        "token-revoked",
        "token-unknown",
        "token-used",
        "token-wrong",
        "unknown-pool",
        "weak-hardware-key",
    ];

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
            Self::TokenExpects(_) => "token-expects-another",
            Self::NoToken => "no-token",
            Self::Evidence | Self::Attestation(Refusal::Malformed(_)) => "attestation-malformed",
            Self::Attestation(Refusal::Unsupported(_)) => "attestation-unsupported",
            Self::Attestation(Refusal::OtherRequest(_)) => "attestation-other-request",
            Self::Attestation(Refusal::NotProven(_)) => "attestation-not-proven",
            Self::Attestation(Refusal::Untrusted(_)) => "attestation-untrusted",
            Self::Attestation(Refusal::Expired(_)) => "attestation-expired",
            Self::Challenge(ChallengeRefusal::NotOurs) => "challenge-not-ours",
            Self::Challenge(ChallengeRefusal::Late) => "challenge-too-old",
            Self::AttestationUnknown(_) => "attestation-unknown",
            Self::Disagree { .. } => "attestation-disagrees",
            Self::AttestationRequired { .. } => "attestation-required",
            Self::AttestedElsewhere(_) => "attested-elsewhere",
            Self::TokenOtherPool { .. } => "token-for-another-pool",
            Self::ReclaimOtherPool { .. } => "reclaim-other-pool",
            Self::ReclaimConnected(_) => "reclaim-connected",
            Self::ReclaimNotLost(_) => "reclaim-not-lost",
            Self::ReclaimBusy { .. } => "reclaim-busy",
            Self::ReclaimUnvouched(_) => "reclaim-unvouched",
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
            Self::DuplicateHardware(_)
            | Self::WeakHardware
            | Self::AmbiguousDocument(_)
            | Self::NameTaken(_)
            | Self::AttestedElsewhere(_)
            | Self::TokenOtherPool { .. }
            | Self::ReclaimOtherPool { .. }
            | Self::ReclaimConnected(_)
            | Self::ReclaimNotLost(_)
            | Self::ReclaimBusy { .. }
            | Self::ReclaimUnvouched(_) => Standing::Held,
            // A commit ends each of them.
            Self::NeedsDocument | Self::UnknownPool(_) | Self::AttestationUnknown(_) | Self::Disagree { .. } => {
                Standing::Waiting
            }
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
    Certificate(#[from] IdentityRefusal),
    /// We did not record issuing it.
    #[error("this certificate is not known here; the machine has to join again")]
    UnknownCertificate,
    /// It ended too long ago for nobody to look.
    #[error(
        "the certificate expired at {0}, more than 30 days ago; its renewal waits for somebody: `better-compute joins approve`"
    )]
    Late(Timestamp),
    /// The challenge is not one of ours for this certificate, or too old.
    #[error(transparent)]
    Challenge(#[from] ChallengeRefusal),
    /// The challenge was used.
    #[error("the challenge was used before; ask for another one")]
    ChallengeUsed,
    /// The identity was revoked or replaced.
    #[error("the identity of this machine was revoked; it has to join again")]
    Revoked,
    /// The request is for another key than the certificate's.
    #[error("a renewal is for the key that the certificate has; with another key the machine joins again")]
    OtherKey,
    /// It was issued too many certificates lately.
    #[error("this machine was issued more certificates within an hour than any needs; it asks again later")]
    TooOften,
    /// The request was not signed by the old key.
    #[error("the renewal does not prove possession of the node's key")]
    Possession,
}

impl RenewRefusal {
    /// Every word of [`RenewRefusal::code`].
    pub const CODES: &[&str] = &[
        "bad-request",
        "challenge-not-ours",
        "challenge-too-old",
        "challenge-used",
        "expired",
        "foreign-ca",
        "identity-revoked",
        "malformed",
        "no-possession",
        "not-a-node",
        "not-yet-valid",
        "other-key",
        "renewal-too-late",
        "renewal-too-often",
        "unknown-certificate",
        "wrong-trust-domain",
    ];

    /// The stored word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Request(_) => "bad-request",
            Self::Certificate(refusal) => refusal.code(),
            Self::UnknownCertificate => "unknown-certificate",
            Self::Late(_) => "renewal-too-late",
            Self::Challenge(ChallengeRefusal::NotOurs) => "challenge-not-ours",
            Self::Challenge(ChallengeRefusal::Late) => "challenge-too-old",
            Self::ChallengeUsed => "challenge-used",
            Self::Revoked => "identity-revoked",
            Self::OtherKey => "other-key",
            Self::TooOften => "renewal-too-often",
            Self::Possession => "no-possession",
        }
    }
}

fn list(kinds: &[IdentifierKind]) -> String {
    kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

fn strangers(strangers: &[Stranger]) -> String {
    let each: Vec<String> = strangers.iter().map(ToString::to_string).collect();
    format!("the machine is {}", each.join("; it is "))
}

fn disagreement(token: Option<&Name>, document: Option<&Name>, pools: &[Name]) -> String {
    let proved = format!("by what it proved the machine belongs to {}", names(pools));
    match (token, document) {
        (Some(token), _) => {
            format!(
                "the join token is for pool {token}, and {proved}; a node document that names what it proved says which"
            )
        }
        (None, Some(document)) => format!(
            "a document with its serial number or address is for pool {document}, and {proved}; one that names what it proved \
             says which"
        ),
        (None, None) => format!("{proved}; a node document that names what it proved says which"),
    }
}

fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}
