//! The key that lives on a machine: P-256, for TLS and for reports.
//!
//! Made by `bcd join`, never leaves the machine. The same key is the machine's TLS client key (through its certificate)
//! and signs its reports and proofs of possession, each under a purpose of its own.

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    },
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use schema::digest::Digest;

use crate::{encoding::Secret, issue::TlsIdentity, signed::SignedBytes};

/// Why bytes are not a node key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a P-256 private key in PKCS#8")]
pub struct BadNodeKey;

/// A signature that does not verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature was not made by this node's key over these bytes")]
pub struct BadNodeSignature;

/// A node's private key.
pub struct NodeKey {
    pkcs8: Secret,
    pair: EcdsaKeyPair,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeKey").field(&self.public()).finish()
    }
}

impl NodeKey {
    /// A fresh key.
    #[must_use]
    pub fn generate() -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
            .expect("the provider generates P-256 keys");
        Self::from_pkcs8(document.as_ref()).expect("a generated key parses")
    }

    /// The key in PKCS#8 bytes.
    ///
    /// # Errors
    /// When the bytes are anything else.
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, BadNodeKey> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).map_err(|_| BadNodeKey)?;
        Ok(Self { pkcs8: Secret(pkcs8.to_vec()), pair })
    }

    /// The private key as PKCS#8, for a file with mode 0600.
    #[must_use]
    pub fn as_pkcs8(&self) -> &[u8] {
        &self.pkcs8.0
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> NodePublicKey {
        NodePublicKey(self.pair.public_key().as_ref().to_vec())
    }

    /// Signs (ECDSA with SHA-256, ASN.1). Two signatures over the same bytes differ.
    #[must_use]
    pub fn sign(&self, bytes: &SignedBytes) -> Vec<u8> {
        self.pair.sign(&SystemRandom::new(), bytes.as_bytes()).expect("a P-256 key signs").as_ref().to_vec()
    }

    /// Marks that only the holder of this key can make and compare.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let parent = hmac::Key::new(hmac::HMAC_SHA256, &self.pkcs8.0);
        Marks(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&parent, b"bc/secret-file-mark/v1\0").as_ref()))
    }

    /// A certificate request for this key. It names nothing: the control plane decides who this is. Each call gives
    /// other bytes, so keep the request and send the same one again when an answer was lost.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        crate::csr::create(&self.pkcs8.0)
    }

    /// The key with a certificate chain (leaf first), for TLS.
    #[must_use]
    pub fn identity(&self, chain: Vec<CertificateDer<'static>>) -> TlsIdentity {
        TlsIdentity::new(chain, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pkcs8.0.clone())))
    }
}

/// Marks of what is in files with secrets: an ordinary digest of a short value can be guessed.
#[derive(Clone)]
pub struct Marks(hmac::Key);

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Marks(..)")
    }
}

impl Marks {
    /// The mark of this content at this path.
    #[must_use]
    pub fn of(&self, path: &str, content: &[u8]) -> Digest {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(path.as_bytes());
        context.update(b"\0");
        context.update(content);
        Digest::from_bytes(context.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes"))
    }
}

/// A node's public key: an uncompressed P-256 point of 65 bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NodePublicKey(pub(crate) Vec<u8>);

impl std::fmt::Debug for NodePublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodePublicKey({})", hex::encode(&self.0))
    }
}

impl NodePublicKey {
    /// The key in a stored column. What is not a point on the curve verifies nothing.
    #[must_use]
    pub fn from_bytes(point: &[u8]) -> Self {
        Self(point.to_vec())
    }

    /// The point, for a column.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Checks a signature of this node.
    ///
    /// # Errors
    /// When this key did not make it over these bytes.
    pub fn verify(&self, bytes: &SignedBytes, signature: &[u8]) -> Result<(), BadNodeSignature> {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0)
            .verify(bytes.as_bytes(), signature)
            .map_err(|_| BadNodeSignature)
    }

    /// Which of these keys made a signature over the bytes, which are hashed once however many keys there are.
    #[must_use]
    pub fn signer<'k>(keys: &'k [Self], bytes: &SignedBytes, signature: &[u8]) -> Option<&'k Self> {
        let hash = digest(&SHA256, bytes.as_bytes());
        let made = |key: &&Self| {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.0).verify_digest(&hash, signature).is_ok()
        };
        keys.iter().find(made)
    }
}
