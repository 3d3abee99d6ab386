//! What a node signs and the control plane checks: reports, and proofs that it holds its key.
//!
//! Reports travel as exact bytes. A gateway stores them as they came; whoever acts on one checks it against the key in
//! the node's current certificate first.

use schema::{digest::Digest, id::NodeId};

pub use schema::report::ReportKind;

use crate::{
    Realm,
    issue::Serial,
    node_key::{BadNodeSignature, NodeKey, NodePublicKey},
    signed::{Purpose, SignedBytes},
};

const fn purpose(kind: ReportKind) -> Purpose {
    match kind {
        ReportKind::Status => Purpose::StatusReport,
        ReportKind::Inventory => Purpose::Inventory,
    }
}

fn report(realm: &Realm, kind: ReportKind, node: NodeId, payload: &[u8]) -> SignedBytes {
    SignedBytes::new(purpose(kind), realm).field(node.to_string()).field(payload)
}

/// Which of these keys signed a report: this kind, this node, these bytes.
#[must_use]
pub fn signer<'k>(
    keys: &'k [NodePublicKey],
    realm: &Realm,
    kind: ReportKind,
    node: NodeId,
    payload: &[u8],
    signature: &[u8],
) -> Option<&'k NodePublicKey> {
    NodePublicKey::signer(keys, &report(realm, kind, node, payload), signature)
}

/// A renewal, as the node key signs it.
#[derive(Debug, Clone, Copy)]
pub struct RenewalAsked<'r> {
    /// The digest of the request.
    pub csr: Digest,
    /// The present certificate.
    pub serial: &'r Serial,
    /// The control plane's, and fresh.
    pub challenge: &'r [u8],
    /// What the machine says that it is made of; empty while nobody asks.
    pub claims: &'r [u8],
}

impl RenewalAsked<'_> {
    fn signed(&self, realm: &Realm) -> SignedBytes {
        SignedBytes::new(Purpose::CsrPossession, realm)
            .field(self.csr.as_bytes())
            .field(self.serial.as_str())
            .field(self.challenge)
            .field(self.claims)
    }
}

impl NodeKey {
    /// Signs a report of this node.
    #[must_use]
    pub fn sign_report(&self, realm: &Realm, kind: ReportKind, node: NodeId, payload: &[u8]) -> Vec<u8> {
        self.sign(&report(realm, kind, node, payload))
    }

    /// Proves that the holder of the key in the certificate with this serial asks for another one by this request, and asks
    /// now: the challenge is the control plane's and fresh.
    #[must_use]
    pub fn sign_possession(&self, realm: &Realm, asked: &RenewalAsked<'_>) -> Vec<u8> {
        self.sign(&asked.signed(realm))
    }
}

impl NodePublicKey {
    /// Checks a report: this kind, this node, these bytes.
    ///
    /// # Errors
    /// When this node's key did not sign exactly that.
    pub fn verify_report(
        &self,
        realm: &Realm,
        kind: ReportKind,
        node: NodeId,
        payload: &[u8],
        signature: &[u8],
    ) -> Result<(), BadNodeSignature> {
        self.verify(&report(realm, kind, node, payload), signature)
    }

    /// Checks a proof of possession.
    ///
    /// # Errors
    /// When this node's key did not sign exactly that.
    pub fn verify_possession(
        &self,
        realm: &Realm,
        asked: &RenewalAsked<'_>,
        signature: &[u8],
    ) -> Result<(), BadNodeSignature> {
        self.verify(&asked.signed(realm), signature)
    }
}

#[cfg(test)]
mod tests;
