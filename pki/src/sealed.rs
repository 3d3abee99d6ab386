//! How a join token and what a machine proves itself with travel: sealed to the join service's key (HPKE, RFC 9180).
//!
//! X25519, HKDF-SHA256, AES-256-GCM, base mode. The associated data is the digest of the certificate request and the
//! fleet id, so a sealed token works for one request in one fleet, and the gateway in between learns nothing.

use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE,
    hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey},
};
use schema::digest::Digest;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    anchor::{Anchor, JoinPublicKey},
    encoding::{Secret, bytes},
    provider::random,
    token::{Token, TokenKind},
};

const TOKEN: &[u8] = b"bc/join-token/v1\0";
const EVIDENCE: &[u8] = b"bc/join-evidence/v1\0";

/// Why a sealed token was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealedTokenRefusal {
    /// It is sealed to a key that is not here.
    #[error("the token is sealed to a key that this control plane does not hold")]
    UnknownKey,
    /// It does not open for this request in this fleet.
    #[error("the sealed token does not open for this certificate request in this fleet")]
    DoesNotOpen,
    /// What was sealed is no join token.
    #[error("the token is not of the form bcjt_<id>.<secret>")]
    NotAToken,
}

/// The key does not accept what is sealed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the join key in the anchor cannot be used")]
pub struct BadJoinKey;

/// A join token, or evidence, on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedToken {
    /// To which key.
    pub key_id: String,
    /// The encapsulated key.
    pub encapsulated_key: Vec<u8>,
    /// The token, encrypted.
    pub ciphertext: Vec<u8>,
}

fn associated(csr: Digest, fleet_id: &str) -> Vec<u8> {
    [csr.as_bytes().as_slice(), fleet_id.as_bytes()].concat()
}

/// Seals a token for one request, on the node.
///
/// # Errors
/// When the anchor's join key is unusable.
pub fn seal(anchor: &Anchor, csr: Digest, token: &Token) -> Result<SealedToken, BadJoinKey> {
    seal_as(TOKEN, anchor, csr, token.reveal().as_bytes())
}

/// Seals evidence for one request, on the node: some of it is as good as a secret.
///
/// # Errors
/// When the anchor's join key is unusable.
pub fn seal_evidence(anchor: &Anchor, csr: Digest, evidence: &[u8]) -> Result<SealedToken, BadJoinKey> {
    seal_as(EVIDENCE, anchor, csr, evidence)
}

fn seal_as(info: &[u8], anchor: &Anchor, csr: Digest, bytes: &[u8]) -> Result<SealedToken, BadJoinKey> {
    let key = HpkePublicKey(anchor.join_key.hpke.clone());
    let associated = associated(csr, &anchor.realm().fleet_id);
    let (EncapsulatedSecret(encapsulated_key), ciphertext) =
        SUITE.seal(info, &associated, bytes, &key).map_err(|_| BadJoinKey)?;
    Ok(SealedToken { key_id: anchor.join_key.id.clone(), encapsulated_key, ciphertext })
}

/// The join service's private key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinKey {
    id: String,
    #[serde(with = "bytes")]
    public: Vec<u8>,
    private: Secret,
}

impl JoinKey {
    pub(crate) fn generate() -> Self {
        let (HpkePublicKey(public), private) = SUITE.generate_key_pair().expect("the provider generates X25519 keys");
        Self { id: hex::encode(random::<4>()), public, private: Secret(private.secret_bytes().to_vec()) }
    }

    /// The public half, for the anchor.
    #[must_use]
    pub fn public(&self) -> JoinPublicKey {
        JoinPublicKey { id: self.id.clone(), hpke: self.public.clone() }
    }

    /// Opens what a node sealed for this request.
    ///
    /// # Errors
    /// When it was sealed to another key, for another request or fleet, was changed, or is no token.
    pub fn open(&self, sealed: &SealedToken, csr: Digest, fleet_id: &str) -> Result<Token, SealedTokenRefusal> {
        let opened = self.open_as(TOKEN, sealed, csr, fleet_id)?;
        let text = std::str::from_utf8(&opened).map_err(|_| SealedTokenRefusal::NotAToken)?;
        Token::parse(TokenKind::Join, text).map_err(|_| SealedTokenRefusal::NotAToken)
    }

    /// Opens the evidence that a node sealed for this request.
    ///
    /// # Errors
    /// When it was sealed to another key, for another request or fleet, or was changed.
    pub fn open_evidence(
        &self,
        sealed: &SealedToken,
        csr: Digest,
        fleet_id: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SealedTokenRefusal> {
        self.open_as(EVIDENCE, sealed, csr, fleet_id)
    }

    fn open_as(
        &self,
        info: &[u8],
        sealed: &SealedToken,
        csr: Digest,
        fleet_id: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SealedTokenRefusal> {
        if sealed.key_id != self.id {
            return Err(SealedTokenRefusal::UnknownKey);
        }
        let encapsulated = EncapsulatedSecret(sealed.encapsulated_key.clone());
        let key = HpkePrivateKey::from(self.private.0.clone());
        let opened = SUITE.open(&encapsulated, info, &associated(csr, fleet_id), &sealed.ciphertext, &key);
        opened.map(Zeroizing::new).map_err(|_| SealedTokenRefusal::DoesNotOpen)
    }
}

#[cfg(test)]
mod tests;
