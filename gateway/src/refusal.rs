//! Why a session does not open, or ends. A closed list: the code is stable, the message is for the node's own log.

use pki::verify::IdentityRefusal;

/// Why a session does not open, or ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The connection has no client certificate.
    #[error("no client certificate was shown: join first, then connect with the node's certificate")]
    CertificateRequired,
    /// The certificate is not one of a node of this control plane.
    #[error("{}", of_certificate(.0))]
    Certificate(IdentityRefusal),
    /// The certificate ended, perhaps in the middle of the session.
    #[error("the node's certificate has ended: renew it and connect again")]
    CertificateEnded,
    /// The control plane does not know the certificate.
    #[error("the control plane has no record of this certificate: renew it, and join again if that is refused")]
    UnknownCertificate,
    /// The certificate was revoked.
    #[error("the node's certificate was revoked")]
    CertificateRevoked,
    /// The certificate belongs to an identity that was replaced.
    #[error("the node's identity was replaced since this certificate was issued: join again")]
    IdentityReplaced,
    /// There is no such node any more.
    #[error("this node was removed from the fleet")]
    NodeGone,
    /// Hello or a report names another node than the certificate does.
    #[error("the certificate is {certified}'s and does not speak for {claimed:?}")]
    WrongNode {
        /// The certified node.
        certified: schema::id::NodeId,
        /// The one that was named, shortened.
        claimed: String,
    },
    /// The machine is described by a file, and the control plane takes real ones only.
    #[error("this machine is described by a file, which only a control plane started with --dev admits")]
    DescribedHardware,
    /// The first frame was no Hello.
    #[error("the first frame of a session is Hello")]
    HelloExpected,
    /// Hello did not come.
    #[error("Hello did not come in time")]
    HelloLate,
    /// A second Hello.
    #[error("Hello is said once in a session")]
    HelloTwice,
    /// A value of Hello that cannot be.
    #[error("Hello is malformed: {0}")]
    HelloMalformed(&'static str),
    /// A frame that does not decode.
    #[error("a frame is malformed: {0}")]
    FrameMalformed(&'static str),
    /// A frame or a report above its limit.
    #[error("a frame is larger than the gateway takes")]
    FrameTooLarge,
    /// A frame of a kind that this gateway does not know.
    #[error("a frame is of a kind that this gateway does not know")]
    FrameUnknown,
    /// Too many frames, or too many sessions in a short time.
    #[error("too many {0} in a short time")]
    RateLimited(&'static str),
    /// The journal is an old copy.
    #[error(
        "the node's journal does not have what it took before: an old copy was put back, and it is another journal"
    )]
    JournalOld,
    /// A newer session of the same node.
    #[error("a newer session of this node is open")]
    Superseded,
    /// The gateway or the node's identity has all the sessions that it may have.
    #[error("{0}: try again later, or another gateway")]
    TooManySessions(&'static str),
    /// The node does not read what is sent to it.
    #[error("the node does not read its frames")]
    SlowReader,
    /// Something that a session needs is not reachable.
    #[error("{0}: try again")]
    Unavailable(&'static str),
}

/// Whose an authority was that nobody believes now, a gateway cannot know: a machine that shows one of this fleet's from
/// before a rotation is asked to renew.
fn of_certificate(refusal: &IdentityRefusal) -> String {
    match refusal {
        IdentityRefusal::ForeignCa => {
            "the certificate's authority is not one that is believed now: another control plane's, \
                                       or this one's before a rotation, and then the machine renews it by itself"
                .to_owned()
        }
        other => other.to_string(),
    }
}

impl Refusal {
    /// Every stable word that there is.
    pub const CODES: &'static [&'static str] = &[
        "CERTIFICATE_REQUIRED",
        "FOREIGN_CA",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_NOT_YET_VALID",
        "WRONG_TRUST_DOMAIN",
        "NOT_A_NODE",
        "CERTIFICATE_MALFORMED",
        "UNKNOWN_CERTIFICATE",
        "CERTIFICATE_REVOKED",
        "IDENTITY_REPLACED",
        "NODE_GONE",
        "WRONG_NODE",
        "DESCRIBED_HARDWARE",
        "HELLO_EXPECTED",
        "HELLO_LATE",
        "HELLO_TWICE",
        "HELLO_MALFORMED",
        "FRAME_MALFORMED",
        "FRAME_TOO_LARGE",
        "FRAME_UNKNOWN",
        "RATE_LIMITED",
        "JOURNAL_OLD",
        "SUPERSEDED",
        "TOO_MANY_SESSIONS",
        "SLOW_READER",
        "UNAVAILABLE",
    ];

    /// The stable word on the wire and in the database.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::CertificateRequired => "CERTIFICATE_REQUIRED",
            Self::Certificate(IdentityRefusal::ForeignCa) => "FOREIGN_CA",
            Self::Certificate(IdentityRefusal::Expired) | Self::CertificateEnded => "CERTIFICATE_EXPIRED",
            Self::Certificate(IdentityRefusal::NotYetValid) => "CERTIFICATE_NOT_YET_VALID",
            Self::Certificate(IdentityRefusal::WrongTrustDomain) => "WRONG_TRUST_DOMAIN",
            Self::Certificate(IdentityRefusal::NotANode) => "NOT_A_NODE",
            Self::Certificate(IdentityRefusal::Malformed) => "CERTIFICATE_MALFORMED",
            Self::UnknownCertificate => "UNKNOWN_CERTIFICATE",
            Self::CertificateRevoked => "CERTIFICATE_REVOKED",
            Self::IdentityReplaced => "IDENTITY_REPLACED",
            Self::NodeGone => "NODE_GONE",
            Self::WrongNode { .. } => "WRONG_NODE",
            Self::DescribedHardware => "DESCRIBED_HARDWARE",
            Self::HelloExpected => "HELLO_EXPECTED",
            Self::HelloLate => "HELLO_LATE",
            Self::HelloTwice => "HELLO_TWICE",
            Self::HelloMalformed(_) => "HELLO_MALFORMED",
            Self::FrameMalformed(_) => "FRAME_MALFORMED",
            Self::FrameTooLarge => "FRAME_TOO_LARGE",
            Self::FrameUnknown => "FRAME_UNKNOWN",
            Self::RateLimited(_) => "RATE_LIMITED",
            Self::JournalOld => "JOURNAL_OLD",
            Self::Superseded => "SUPERSEDED",
            Self::TooManySessions(_) => "TOO_MANY_SESSIONS",
            Self::SlowReader => "SLOW_READER",
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }

    /// Whether the certificate's node is one that the control plane has.
    #[must_use]
    pub const fn is_of_a_known_node(&self) -> bool {
        !matches!(self, Self::UnknownCertificate | Self::NodeGone | Self::IdentityReplaced)
    }

    /// Whether it says something about the peer that people should see. The others pass by themselves, or are no fault.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        !matches!(self, Self::Superseded | Self::Unavailable(_) | Self::TooManySessions(_) | Self::CertificateEnded)
    }
}

/// A claimed id, short enough for logs and messages.
pub(crate) fn shortened(claimed: &str) -> String {
    claimed.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        // What `code` says, read from where it says it.
        let source = include_str!("refusal.rs");
        let (_, code) = source.split_once("pub const fn code").expect("the function");
        let (code, _) = code.split_once("\n    }\n").expect("its end");
        let mut said: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
        let mut listed = Refusal::CODES.to_vec();
        said.sort_unstable();
        listed.sort_unstable();
        assert_eq!(said, listed);
    }
}
