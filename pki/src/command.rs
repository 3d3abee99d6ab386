//! Commands to a node, signed by a worker, and the node's last word on them, signed by the node.
//!
//! Both travel as exact bytes. A gateway that forges, changes or readdresses either is found out by whoever acts on it.

use schema::{
    digest::{Digest, Digester},
    id::NodeId,
};

use crate::{
    Realm,
    node_key::{BadNodeSignature, NodeKey, NodePublicKey},
    signed::{Purpose, SignedBytes},
    verify::Validity,
    worker::{CommandVerifier, Signature, SignatureRefusal, WorkerKey},
};

fn command(realm: &Realm, node: NodeId, body: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::Command, realm).field(node.to_string()).field(body)
}

fn update(realm: &Realm, node: NodeId, update: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::CommandUpdate, realm).field(node.to_string()).field(update)
}

/// Names one copy of a command: its body with the signature that it came with. Two copies with the same body are told
/// apart by it, so that a spoilt one speaks for itself only.
#[must_use]
pub fn command_copy(body: &[u8], signature: &Signature) -> Digest {
    let mut digest = Digester::new("bc/command-copy/v1");
    for part in [body, &signature.worker, &signature.root_signature, &signature.signature] {
        digest.part(part);
    }
    digest.finish()
}

impl WorkerKey {
    /// Signs the exact bytes of a command to a node.
    #[must_use]
    pub fn sign_command(&self, node: NodeId, body: &[u8]) -> Signature {
        self.sign(&command(self.realm(), node, body))
    }
}

impl CommandVerifier {
    /// Checks a command: this node, these bytes.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn command(
        &self,
        node: NodeId,
        body: &[u8],
        signature: &Signature,
        validity: Validity,
    ) -> Result<(), SignatureRefusal> {
        self.verify(&command(self.realm(), node, body), signature, validity)
    }
}

impl NodeKey {
    /// Signs this node's last word on a command.
    #[must_use]
    pub fn sign_command_update(&self, realm: &Realm, node: NodeId, bytes: &[u8]) -> Vec<u8> {
        self.sign(&update(realm, node, bytes))
    }
}

impl NodePublicKey {
    /// Checks a node's last word on a command: this node, these bytes.
    ///
    /// # Errors
    /// When this node's key did not sign exactly that.
    pub fn verify_command_update(
        &self,
        realm: &Realm,
        node: NodeId,
        bytes: &[u8],
        signature: &[u8],
    ) -> Result<(), BadNodeSignature> {
        self.verify(&update(realm, node, bytes), signature)
    }
}

#[cfg(test)]
mod tests;
