//! What a worker signs and a node checks: NodeSpecs, time, answers to a join, and what is trusted.

use schema::{
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::NodeId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    anchor::AnchorTrust,
    signed::{Purpose, SignedBytes},
    verify::Validity,
    worker::{CommandVerifier, Signature, SignatureRefusal, WorkerKey},
};

fn desired_state(realm: &Realm, node: NodeId, generation: Generation, spec: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::DesiredState, realm).field(node.to_string()).number(generation.0).field(spec)
}

fn server_time(realm: &Realm, node: NodeId, nonce: &[u8], time: Timestamp) -> SignedBytes {
    SignedBytes::new(Purpose::ServerTime, realm).field(node.to_string()).field(nonce).time(time)
}

fn join_response(realm: &Realm, identity: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::JoinResponse, realm).field(identity)
}

fn first_policy(realm: &Realm, trust: &AnchorTrust) -> SignedBytes {
    SignedBytes::new(Purpose::FirstPolicy, realm).field(trust.fleet.as_bytes()).field(trust.digest.as_bytes())
}

/// Who a machine is, in the answer to its join and to each renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinIdentity {
    /// Its id.
    pub node_id: NodeId,
    /// Its name, from its document or its hardware key.
    pub node_name: String,
    /// Its pool, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The realm's trust domain.
    pub trust_domain: String,
    /// The realm's fleet.
    pub fleet_id: String,
    /// Counts the identities that this node has had.
    pub identity_generation: IdentityGeneration,
    /// The kinds of commands that it accepts; `None` for every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Digest of the request that is answered.
    pub csr: Digest,
}

/// Why an answer to a join is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JoinIdentityRefusal {
    /// Its signature does not count.
    #[error("the signature of the answer does not count")]
    Signature(#[source] SignatureRefusal),
    /// It is not an identity.
    #[error("the identity in the answer is malformed")]
    Malformed,
    /// It answers another request, or is of another fleet.
    #[error("the answer is not for this request in this fleet")]
    NotForUs,
}

impl WorkerKey {
    /// Signs the exact bytes of one generation of a node's spec.
    #[must_use]
    pub fn sign_desired_state(&self, node: NodeId, generation: Generation, spec: &[u8]) -> Signature {
        self.sign(&desired_state(self.realm(), node, generation, spec))
    }

    /// Signs the time, for the node that chose the nonce.
    #[must_use]
    pub fn sign_server_time(&self, node: NodeId, nonce: &[u8], time: Timestamp) -> Signature {
        self.sign(&server_time(self.realm(), node, nonce, time))
    }

    /// Signs who a machine is; the exact bytes travel with the signature.
    #[must_use]
    pub fn sign_identity(&self, identity: &JoinIdentity) -> (Vec<u8>, Signature) {
        let bytes = schema::canonical::to_vec(identity).expect("an identity serialises");
        let signature = self.sign(&join_response(self.realm(), &bytes));
        (bytes, signature)
    }
}

impl WorkerKey {
    /// Signs with which policy a fleet begins, for machines that joined before anybody pinned one.
    #[must_use]
    pub fn sign_first_policy(&self, trust: &AnchorTrust) -> Signature {
        self.sign(&first_policy(self.realm(), trust))
    }
}

impl CommandVerifier {
    /// Checks with which policy a fleet begins.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn first_policy(
        &self,
        trust: &AnchorTrust,
        signature: &Signature,
        validity: Validity,
    ) -> Result<(), SignatureRefusal> {
        self.verify(&first_policy(self.realm(), trust), signature, validity)
    }

    /// Checks a spec: this node, this generation, these bytes.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn desired_state(
        &self,
        node: NodeId,
        generation: Generation,
        spec: &[u8],
        signature: &Signature,
        validity: Validity,
    ) -> Result<(), SignatureRefusal> {
        self.verify(&desired_state(self.realm(), node, generation, spec), signature, validity)
    }

    /// Checks a time. The worker's certificate has to be valid at the very time that it states.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn server_time(
        &self,
        node: NodeId,
        nonce: &[u8],
        time: Timestamp,
        signature: &Signature,
    ) -> Result<(), SignatureRefusal> {
        self.verify(&server_time(self.realm(), node, nonce, time), signature, Validity::At(time))
    }

    /// Checks an answer to the request with this digest.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn identity(
        &self,
        csr: Digest,
        identity: &[u8],
        signature: &Signature,
        validity: Validity,
    ) -> Result<JoinIdentity, JoinIdentityRefusal> {
        self.verify(&join_response(self.realm(), identity), signature, validity)
            .map_err(JoinIdentityRefusal::Signature)?;
        let identity: JoinIdentity = serde_json::from_slice(identity).map_err(|_| JoinIdentityRefusal::Malformed)?;
        let realm = Realm::new(&identity.trust_domain, &identity.fleet_id);
        if identity.csr != csr || realm != *self.realm() {
            return Err(JoinIdentityRefusal::NotForUs);
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests;
