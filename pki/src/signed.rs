//! The exact bytes under every signature.
//!
//! `"bc/<purpose>/v1\0"`, then length-prefixed trust domain, fleet id and fields. The purpose separates the domains: a
//! signature over a status report can never pass for one over a NodeSpec. The lengths (32 bits, big endian) make two
//! different lists of fields two different texts.

use crate::Realm;

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The command-signing root vouches for a worker key.
    WorkerCertificate,
    /// A worker says what a node should be.
    DesiredState,
    /// A worker says what time it is.
    ServerTime,
    /// A worker answers a join or a renewal.
    JoinResponse,
    /// A worker says what a node should trust.
    TrustBundle,
    /// A node proves that it holds its key.
    CsrPossession,
    /// A node says what it converged.
    StatusReport,
    /// A node says what it is made of.
    Inventory,
    /// A worker tells a node to do something.
    Command,
    /// A node says how a command ended.
    CommandUpdate,
    /// A node asks for the values of secrets.
    SecretRequest,
    /// A worker answers with sealed values.
    SecretResponse,
    /// A machine proves what it is when it joins.
    JoinAttestation,
    /// A gateway asks for its next certificates.
    GatewayRenewal,
    /// People and services vouch for a version of the daemon.
    Release,
    /// Whoever verified the history of a source says how far.
    VerifiedCheckpoint,
    /// Whoever verified a commit says what its revision consists of.
    RevisionManifest,
    /// The control plane stands by the audit log up to a row.
    AuditCheckpoint,
    /// The control plane says how far the audit log was when it was exported.
    AuditExport,
    /// A worker vouches for the key that signs audit checkpoints.
    AuditKey,
    /// A process of the control plane queued a command.
    QueuedCommand,
    /// A process of the control plane says what a machine is called and where it belongs.
    Placement,
    /// A process of the control plane put a batch down.
    PutBatch,
    /// A worker says with which trust policy a fleet begins.
    FirstPolicy,
    /// A process of the control plane says what a caller asks to be proposed.
    AskedProposal,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 25] = [
        Self::WorkerCertificate,
        Self::DesiredState,
        Self::ServerTime,
        Self::JoinResponse,
        Self::TrustBundle,
        Self::CsrPossession,
        Self::StatusReport,
        Self::Inventory,
        Self::Command,
        Self::CommandUpdate,
        Self::SecretRequest,
        Self::SecretResponse,
        Self::JoinAttestation,
        Self::GatewayRenewal,
        Self::Release,
        Self::VerifiedCheckpoint,
        Self::RevisionManifest,
        Self::AuditCheckpoint,
        Self::AuditExport,
        Self::AuditKey,
        Self::QueuedCommand,
        Self::Placement,
        Self::PutBatch,
        Self::FirstPolicy,
        Self::AskedProposal,
    ];

    /// The word in the signed bytes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkerCertificate => "worker-certificate",
            Self::DesiredState => "desired-state",
            Self::ServerTime => "server-time",
            Self::JoinResponse => "join-response",
            Self::TrustBundle => "trust-bundle",
            Self::CsrPossession => "csr-possession",
            Self::StatusReport => "status-report",
            Self::Inventory => "inventory",
            Self::Command => "command",
            Self::CommandUpdate => "command-update",
            Self::SecretRequest => "secret-request",
            Self::SecretResponse => "secret-response",
            Self::JoinAttestation => "join-attestation",
            Self::GatewayRenewal => "gateway-renewal",
            Self::Release => "release",
            Self::VerifiedCheckpoint => "verified-checkpoint",
            Self::RevisionManifest => "revision-manifest",
            Self::AuditCheckpoint => "audit-checkpoint",
            Self::AuditExport => "audit-export",
            Self::AuditKey => "audit-key",
            Self::QueuedCommand => "queued-command",
            Self::Placement => "placement",
            Self::PutBatch => "put-batch",
            Self::FirstPolicy => "first-policy",
            Self::AskedProposal => "asked-proposal",
        }
    }
}

/// Bytes that may be signed: only this type builds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBytes(Vec<u8>);

impl SignedBytes {
    /// The head of a signed text: purpose and realm.
    #[must_use]
    pub fn new(purpose: Purpose, realm: &Realm) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(b"bc/");
        bytes.extend_from_slice(purpose.as_str().as_bytes());
        bytes.extend_from_slice(b"/v1\0");
        Self(bytes).field(&realm.trust_domain).field(&realm.fleet_id)
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, field: impl AsRef<[u8]>) -> Self {
        push_field(&mut self.0, field.as_ref());
        self
    }

    /// Adds a number as a field of eight bytes, big endian.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.field(number.to_be_bytes())
    }

    /// Adds a time as its RFC 3339 text in UTC.
    #[must_use]
    pub fn time(self, time: schema::time::Timestamp) -> Self {
        self.field(time.to_string())
    }

    /// The bytes to sign or to verify.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A field behind its length, so that it ends where it says.
pub(crate) fn push_field(bytes: &mut Vec<u8>, field: &[u8]) {
    let length = u32::try_from(field.len()).expect("a field is far below 4 GiB");
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(field);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_the_documented_ones() {
        let bytes = SignedBytes::new(Purpose::ServerTime, &Realm::new("bc.local", "f1")).field("ab").number(7);
        let mut expected = b"bc/server-time/v1\0".to_vec();
        expected.extend_from_slice(b"\0\0\0\x08bc.local\0\0\0\x02f1\0\0\0\x02ab\0\0\0\x08\0\0\0\0\0\0\0\x07");
        assert_eq!(bytes.as_bytes(), expected);
    }

    #[test]
    fn fields_cannot_slide_into_each_other() {
        let realm = Realm::new("bc.local", "f1");
        let start = || SignedBytes::new(Purpose::Inventory, &realm);
        assert_ne!(start().field("ab").field("c"), start().field("a").field("bc"));
        assert_ne!(start().field(""), start());
        assert_ne!(
            SignedBytes::new(Purpose::Inventory, &Realm::new("a", "bc")),
            SignedBytes::new(Purpose::Inventory, &Realm::new("ab", "c"))
        );
    }

    #[test]
    fn purposes_have_words_of_their_own() {
        let words: std::collections::BTreeSet<_> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
        assert_eq!(words.len(), Purpose::ALL.len());
    }
}
