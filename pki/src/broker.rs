//! How the values of secrets get to a node: sealed to a key that the node made for this one request.
//!
//! The request is signed by the node's key, and names what it wants, when, and the one-time key. The answer is sealed to that
//! key (HPKE, RFC 9180), bound to the exact request, and signed by a worker. Whoever carries the two learns names and sizes,
//! can replay a request only into an answer that nobody opens any more, and can put no value of its own in.

use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE,
    hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey},
};
use schema::{
    canonical,
    digest::Digest,
    id::NodeId,
    secret::MAX_SECRET_BYTES,
    spec::SecretVersion,
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    Realm,
    encoding::{Secret, bytes},
    node_key::{BadNodeSignature, NodeKey, NodePublicKey},
    signed::{Purpose, SignedBytes},
    verify::Validity,
    worker::{CommandVerifier, Signature, SignatureRefusal, WorkerKey},
};

/// How many values one request is for.
pub const MOST_WANTED: usize = 16;
/// How far the time in a request may be from the control plane's.
pub const REQUEST_LIFE: Duration = Duration::from_secs(5 * 60);

const INFO: &[u8] = b"bc/secret/v1\0";

/// What a node asks for. Its canonical JSON is what is signed and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRequest {
    /// Who asks.
    pub node_id: NodeId,
    /// When, by the time that the node believes.
    pub time: Timestamp,
    /// What it wants, each once.
    pub wanted: Vec<SecretVersion>,
    /// The one-time key.
    #[serde(with = "bytes")]
    key: Vec<u8>,
}

/// Why bytes are not a request that can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// Not a request.
    #[error("the request is malformed")]
    Malformed,
    /// Nothing, too much, or something twice.
    #[error("a request is for 1 to {MOST_WANTED} different values")]
    Count,
    /// Too old, or from the future.
    #[error("the time of the request is too far from the control plane's")]
    Time,
}

impl SecretRequest {
    /// Reads a request, which is still to be checked against the node's key.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn parse(bytes: &[u8], now: Timestamp) -> Result<Self, RequestRefusal> {
        let request: Self = serde_json::from_slice(bytes).map_err(|_| RequestRefusal::Malformed)?;
        let distinct: std::collections::BTreeSet<_> = request.wanted.iter().collect();
        if distinct.len() != request.wanted.len() || !(1..=MOST_WANTED).contains(&distinct.len()) {
            return Err(RequestRefusal::Count);
        }
        if request.time.duration_since(now).unsigned_abs() > REQUEST_LIFE.to_std() {
            return Err(RequestRefusal::Time);
        }
        Ok(request)
    }
}

/// A value, and which one it is.
pub type Value = (SecretVersion, Zeroizing<Vec<u8>>);

/// Values on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValues {
    /// The encapsulated key.
    pub encapsulated_key: Vec<u8>,
    /// The values in the order of the request, encrypted.
    pub ciphertext: Vec<u8>,
}

/// The one-time key of a request cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the one-time key of the request cannot be used")]
pub struct BadOneTimeKey;

/// Why an answer holds nothing for the node.
#[derive(Debug, thiserror::Error)]
pub enum AnswerRefusal {
    /// Nobody who may signed it, for this request.
    #[error("the answer was not signed for this request")]
    Signature(#[from] SignatureRefusal),
    /// It does not open, or is not what was asked for.
    #[error("the answer does not open for this request")]
    DoesNotOpen,
}

fn request_bytes(realm: &Realm, node: NodeId, bytes: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::SecretRequest, realm).field(node.to_string()).field(bytes)
}

fn response_bytes(realm: &Realm, node: NodeId, request: Digest, sealed: &SealedValues) -> SignedBytes {
    SignedBytes::new(Purpose::SecretResponse, realm)
        .field(node.to_string())
        .field(request.as_bytes())
        .field(&sealed.encapsulated_key)
        .field(&sealed.ciphertext)
}

fn associated(realm: &Realm, node: NodeId, request: Digest) -> Vec<u8> {
    SignedBytes::new(Purpose::SecretResponse, realm)
        .field(node.to_string())
        .field(request.as_bytes())
        .as_bytes()
        .to_vec()
}

/// The node's side of one request.
#[derive(Debug)]
pub struct Asking {
    realm: Realm,
    node: NodeId,
    wanted: Vec<SecretVersion>,
    /// The request, to be sent as it is.
    pub bytes: Vec<u8>,
    /// By the node's key.
    pub signature: Vec<u8>,
    private: Secret,
}

impl Asking {
    /// A request for these values, with a key of its own.
    #[must_use]
    pub fn new(realm: &Realm, node: NodeId, key: &NodeKey, wanted: Vec<SecretVersion>, time: Timestamp) -> Self {
        let (HpkePublicKey(public), private) = SUITE.generate_key_pair().expect("the provider generates X25519 keys");
        let request = SecretRequest { node_id: node, time, wanted: wanted.clone(), key: public };
        let bytes = canonical::to_vec(&request).expect("a request serialises");
        let signature = key.sign(&request_bytes(realm, node, &bytes));
        let private = Secret(private.secret_bytes().to_vec());
        Self { realm: realm.clone(), node, wanted, bytes, signature, private }
    }

    /// The values in an answer.
    ///
    /// # Errors
    /// When it was not made for this request by somebody who may.
    pub fn open(
        &self,
        sealed: &SealedValues,
        signature: &Signature,
        verifier: &CommandVerifier,
        validity: Validity,
    ) -> Result<Vec<Value>, AnswerRefusal> {
        let request = Digest::of(&self.bytes);
        verifier.verify(&response_bytes(&self.realm, self.node, request, sealed), signature, validity)?;
        let encapsulated = EncapsulatedSecret(sealed.encapsulated_key.clone());
        let key = HpkePrivateKey::from(self.private.0.clone());
        let associated = associated(&self.realm, self.node, request);
        let opened = SUITE
            .open(&encapsulated, INFO, &associated, &sealed.ciphertext, &key)
            .map(Zeroizing::new)
            .map_err(|_| AnswerRefusal::DoesNotOpen)?;
        let values = split(&opened).filter(|values| values.len() == self.wanted.len());
        let values = values.ok_or(AnswerRefusal::DoesNotOpen)?;
        Ok(self.wanted.iter().cloned().zip(values).collect())
    }
}

/// Seals values to the one-time key of a request, in its order.
///
/// # Errors
/// When the key is unusable.
pub fn seal(
    realm: &Realm,
    request: &SecretRequest,
    bytes: &[u8],
    values: &[Zeroizing<Vec<u8>>],
) -> Result<SealedValues, BadOneTimeKey> {
    let mut plain = Zeroizing::new(Vec::new());
    for value in values {
        let length = u32::try_from(value.len()).expect("a value is far below 4 GiB");
        plain.extend_from_slice(&length.to_be_bytes());
        plain.extend_from_slice(value);
    }
    let associated = associated(realm, request.node_id, Digest::of(bytes));
    let (EncapsulatedSecret(encapsulated_key), ciphertext) =
        SUITE.seal(INFO, &associated, &plain, &HpkePublicKey(request.key.clone())).map_err(|_| BadOneTimeKey)?;
    Ok(SealedValues { encapsulated_key, ciphertext })
}

fn split(mut plain: &[u8]) -> Option<Vec<Zeroizing<Vec<u8>>>> {
    let mut values = Vec::new();
    while let Some((length, rest)) = plain.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= MAX_SECRET_BYTES)?;
        let (value, rest) = rest.split_at_checked(length)?;
        values.push(Zeroizing::new(value.to_vec()));
        plain = rest;
    }
    plain.is_empty().then_some(values)
}

impl NodePublicKey {
    /// Checks that this node asks for exactly this.
    ///
    /// # Errors
    /// When this node's key did not sign exactly that.
    pub fn verify_secret_request(
        &self,
        realm: &Realm,
        node: NodeId,
        bytes: &[u8],
        signature: &[u8],
    ) -> Result<(), BadNodeSignature> {
        self.verify(&request_bytes(realm, node, bytes), signature)
    }
}

impl WorkerKey {
    /// Signs an answer to the request with these bytes.
    #[must_use]
    pub fn sign_secret_response(&self, node: NodeId, request: &[u8], sealed: &SealedValues) -> Signature {
        self.sign(&response_bytes(self.realm(), node, Digest::of(request), sealed))
    }
}

#[cfg(test)]
mod tests;
