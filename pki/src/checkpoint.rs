//! Keys that follow from the checkpoint secret: what a thief of the database cannot write.
//!
//! | key | held by | makes |
//! |---|---|---|
//! | [`CheckpointSigner`] | whoever verifies history | verified checkpoints, revision manifests |
//! | [`CheckpointVerifier`] | whoever composes from them | – |
//! | [`AuditSigner`] | whoever writes the audit log's checkpoints | audit checkpoints, read by auditors |
//! | [`Seal`] | whoever writes such rows and whoever acts on them | the tag without which a row is no command and no batch, and a machine has no place |
//!
//! Each is derived by HKDF under a label of its own, so that a process gets only what its work needs and no other key
//! follows from it. While the checkpoint secret is replaced both are believed; which of the two signs, the keys say.

use aws_lc_rs::{
    hkdf, hmac,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    encoding::{Secret, key32},
    signed::{Purpose, SignedBytes},
};

/// What a [`CheckpointSigner`] signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointPurpose {
    /// How far the history of a source was verified.
    VerifiedCheckpoint,
    /// What a revision consists of.
    RevisionManifest,
}

impl CheckpointPurpose {
    const fn purpose(self) -> Purpose {
        match self {
            Self::VerifiedCheckpoint => Purpose::VerifiedCheckpoint,
            Self::RevisionManifest => Purpose::RevisionManifest,
        }
    }
}

/// Why a checkpoint does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointRefusal {
    /// No key that is believed signed these bytes.
    #[error("no checkpoint key of this control plane signed it")]
    NotOurs,
}

/// A public checkpoint key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CheckpointKey(#[serde(with = "key32")] [u8; 32]);

impl std::fmt::Debug for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CheckpointKey({self})")
    }
}

impl std::fmt::Display for CheckpointKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A text that is no public checkpoint key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a checkpoint key is 64 hexadecimal digits")]
pub struct BadCheckpointKey;

impl std::str::FromStr for CheckpointKey {
    type Err = BadCheckpointKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = hex::decode(text).map_err(|_| BadCheckpointKey)?;
        bytes.try_into().map(Self).map_err(|_| BadCheckpointKey)
    }
}

impl CheckpointKey {
    /// A key as bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn signed(&self, bytes: &SignedBytes, signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(bytes.as_bytes(), signature).is_ok()
    }

    /// Whether this key made the signature of an audit checkpoint.
    #[must_use]
    pub fn signed_audit(&self, realm: &Realm, bytes: &[u8], signature: &[u8]) -> bool {
        self.signed(&SignedBytes::new(Purpose::AuditCheckpoint, realm).field(bytes), signature)
    }

    /// Whether this key made the signature of the end of an export.
    #[must_use]
    pub fn signed_end(&self, realm: &Realm, bytes: &[u8], signature: &[u8]) -> bool {
        self.signed(&SignedBytes::new(Purpose::AuditExport, realm).field(bytes), signature)
    }
}

/// A private key and its public half.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Seed(Secret);

impl Seed {
    /// The key that follows from a secret for one kind of work.
    fn derive(secret: &[u8], label: &'static [u8]) -> Self {
        Self(expand(secret, label))
    }

    pub(crate) fn of_history(secret: &Secret) -> Self {
        Self::derive(&secret.0, b"history")
    }

    pub(crate) fn of_audit(secret: &Secret) -> Self {
        Self::derive(&secret.0, b"audit")
    }

    pub(crate) fn is_sound(&self) -> bool {
        Ed25519KeyPair::from_seed_unchecked(&self.0.0).is_ok()
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0.0).expect("32 bytes are a seed")
    }

    pub(crate) fn public(&self) -> CheckpointKey {
        let pair = self.pair();
        CheckpointKey(pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes"))
    }

    fn sign(&self, bytes: &SignedBytes) -> Vec<u8> {
        self.pair().sign(bytes.as_bytes()).as_ref().to_vec()
    }
}

/// The secret behind the tags of commands.
pub(crate) fn command_secret(secret: &Secret) -> Secret {
    expand(&secret.0, b"commands")
}

/// The secret behind the tags of what machines are called and where they belong, and of batches.
pub(crate) fn placement_secret(secret: &Secret) -> Secret {
    expand(&secret.0, b"placements")
}

/// The secret behind the tags of proposals that a caller asked for.
pub(crate) fn asked_secret(secret: &Secret) -> Secret {
    expand(&secret.0, b"asked")
}

fn expand(secret: &[u8], label: &'static [u8]) -> Secret {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"bc/checkpoint/v1\0");
    let mut bytes = [0; 32];
    salt.extract(secret)
        .expand(&[label], hkdf::HKDF_SHA256)
        .and_then(|key| key.fill(&mut bytes))
        .expect("32 bytes are one block of HKDF-SHA256");
    Secret(bytes.to_vec())
}

/// Signs how far history was verified, and what its revisions consist of.
#[derive(Debug, Clone)]
pub struct CheckpointSigner {
    seed: Seed,
    verifier: CheckpointVerifier,
}

impl CheckpointSigner {
    pub(crate) fn new(realm: Realm, present: Seed, other: Option<CheckpointKey>) -> Self {
        let verifier = CheckpointVerifier::new(realm, std::iter::once(present.public()).chain(other));
        Self { seed: present, verifier }
    }

    /// The present key.
    #[must_use]
    pub fn key(&self) -> CheckpointKey {
        self.seed.public()
    }

    /// Signs bytes for a purpose.
    #[must_use]
    pub fn sign(&self, purpose: CheckpointPurpose, bytes: &[u8]) -> Vec<u8> {
        self.seed.sign(&SignedBytes::new(purpose.purpose(), &self.verifier.realm).field(bytes))
    }

    /// What checks its signatures.
    #[must_use]
    pub const fn verifier(&self) -> &CheckpointVerifier {
        &self.verifier
    }
}

/// Checks what a [`CheckpointSigner`] signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointVerifier {
    realm: Realm,
    keys: Vec<CheckpointKey>,
}

impl CheckpointVerifier {
    /// Believes these keys, the present one first.
    #[must_use]
    pub fn new(realm: Realm, keys: impl IntoIterator<Item = CheckpointKey>) -> Self {
        Self { realm, keys: keys.into_iter().collect() }
    }

    /// Checks a signature, and answers whose it is: what another than the present key signed is signed again before that one
    /// is over.
    ///
    /// # Errors
    /// When no key that is believed made it.
    pub fn verify(
        &self,
        purpose: CheckpointPurpose,
        bytes: &[u8],
        signature: &[u8],
    ) -> Result<CheckpointKey, CheckpointRefusal> {
        let bytes = SignedBytes::new(purpose.purpose(), &self.realm).field(bytes);
        self.keys.iter().copied().find(|key| key.signed(&bytes, signature)).ok_or(CheckpointRefusal::NotOurs)
    }

    /// The key that signs.
    #[must_use]
    pub fn present(&self) -> Option<CheckpointKey> {
        self.keys.first().copied()
    }

    /// Whether a key is the one that signs.
    #[must_use]
    pub fn is_present(&self, key: CheckpointKey) -> bool {
        self.keys.first() == Some(&key)
    }
}

/// Signs checkpoints of the audit log.
#[derive(Debug, Clone)]
pub struct AuditSigner {
    realm: Realm,
    present: Seed,
    /// The next key until the switch, the one before it afterwards.
    other: Option<Seed>,
    switched: bool,
}

impl AuditSigner {
    pub(crate) const fn new(realm: Realm, present: Seed, other: Option<Seed>, switched: bool) -> Self {
        Self { realm, present, other, switched }
    }

    /// The key that signs.
    #[must_use]
    pub fn key(&self) -> CheckpointKey {
        self.present.public()
    }

    /// The key that will sign, while a rotation is under way and has not switched.
    #[must_use]
    pub fn next(&self) -> Option<CheckpointKey> {
        self.other.as_ref().filter(|_| !self.switched).map(Seed::public)
    }

    /// The key before the present one, while it is still held.
    #[must_use]
    pub fn before(&self) -> Option<CheckpointKey> {
        self.other.as_ref().filter(|_| self.switched).map(Seed::public)
    }

    /// Signs a checkpoint with one of the keys held here; `None` when that one is not.
    #[must_use]
    pub fn sign_as(&self, key: CheckpointKey, bytes: &[u8]) -> Option<Vec<u8>> {
        self.sign_for(Purpose::AuditCheckpoint, key, bytes)
    }

    /// Signs the end of an export with one of the keys held here; `None` when that one is not.
    #[must_use]
    pub fn sign_end(&self, key: CheckpointKey, bytes: &[u8]) -> Option<Vec<u8>> {
        self.sign_for(Purpose::AuditExport, key, bytes)
    }

    fn sign_for(&self, purpose: Purpose, key: CheckpointKey, bytes: &[u8]) -> Option<Vec<u8>> {
        let seed = std::iter::once(&self.present).chain(&self.other).find(|seed| seed.public() == key)?;
        Some(seed.sign(&SignedBytes::new(purpose, &self.realm).field(bytes)))
    }

    /// Whose fleet this is.
    #[must_use]
    pub const fn realm(&self) -> &Realm {
        &self.realm
    }
}

/// Marks rows as written by a process of this control plane, for one use.
#[derive(Clone)]
pub struct Seal {
    realm: Realm,
    purpose: Purpose,
    keys: Vec<hmac::Key>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

impl Seal {
    pub(crate) fn new<'a>(realm: Realm, purpose: Purpose, secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let keys = secrets.into_iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &secret.0)).collect();
        Self { realm, purpose, keys }
    }

    /// The tag of some bytes.
    #[must_use]
    pub fn tag(&self, bytes: &[u8]) -> Vec<u8> {
        let key = self.keys.first().expect("a seal has a key");
        hmac::sign(key, self.bytes(bytes).as_bytes()).as_ref().to_vec()
    }

    /// Whether a process of this control plane made a tag for these bytes.
    #[must_use]
    pub fn is_tag(&self, bytes: &[u8], tag: &[u8]) -> bool {
        let bytes = self.bytes(bytes);
        self.keys.iter().any(|key| hmac::verify(key, bytes.as_bytes(), tag).is_ok())
    }

    /// Whether the present key made a tag: what the other one made is made again before that one is over.
    #[must_use]
    pub fn is_present(&self, bytes: &[u8], tag: &[u8]) -> bool {
        let key = self.keys.first().expect("a seal has a key");
        hmac::verify(key, self.bytes(bytes).as_bytes(), tag).is_ok()
    }

    /// Whether another key than the present one is believed, too.
    #[must_use]
    pub const fn is_of_two(&self) -> bool {
        self.keys.len() > 1
    }

    fn bytes(&self, bytes: &[u8]) -> SignedBytes {
        SignedBytes::new(self.purpose, &self.realm).field(bytes)
    }
}

#[cfg(test)]
mod tests;
