//! The command-signing root and the 24-hour worker keys that it certifies.
//!
//! The root (Ed25519) only certifies workers. A control-plane process makes a worker key in memory, has it certified,
//! and signs with it; it makes the next one before half of the life is over. Nodes know the roots and nothing of workers.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use schema::time::{Duration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    encoding::{Secret, key32},
    provider::random,
    signed::{Purpose, SignedBytes},
    verify::Validity,
};

/// How long a worker key signs.
pub const WORKER_LIFE: Duration = Duration::from_secs(86_400);
const BACKDATE: Duration = Duration::from_secs(5 * 60);
const MAX_BYTES: usize = 4 * 1024;

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureRefusal {
    /// Not in the form of a signature.
    #[error("the signature is malformed")]
    Malformed,
    /// The worker is certified by no command-signing root that is known here.
    #[error("the signing worker is certified by no known command-signing root")]
    UnknownRoot,
    /// The worker's time is over.
    #[error("the signing worker's certificate has expired")]
    WorkerExpired,
    /// The worker's time has not come.
    #[error("the signing worker's certificate is not valid yet")]
    WorkerNotYetValid,
    /// The worker did not sign these bytes.
    #[error("the signature does not match")]
    BadSignature,
}

/// The command-signing root's private key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandRoot(Secret);

impl CommandRoot {
    pub(crate) fn generate() -> Self {
        Self(Secret(random::<32>().to_vec()))
    }

    pub(crate) fn is_sound(&self) -> bool {
        Ed25519KeyPair::from_seed_unchecked(&self.0.0).is_ok()
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0.0).expect("a seed was checked when it was opened")
    }

    /// The public half, which nodes know.
    #[must_use]
    pub fn public(&self) -> CommandRootKey {
        CommandRootKey(public_of(&self.pair()))
    }

    /// A fresh worker key, certified for [`WORKER_LIFE`].
    #[must_use]
    pub fn certify(&self, realm: &Realm, now: Timestamp) -> WorkerKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&random::<32>()).expect("any 32 bytes are a seed");
        let certificate = WorkerCertificate {
            serial: hex::encode(random::<16>()),
            public_key: public_of(&pair),
            not_before: whole_second(now.saturating_sub(BACKDATE.to_std()).unwrap_or(Timestamp::UNIX_EPOCH)),
            not_after: whole_second(WORKER_LIFE.after(now)),
        };
        let worker = certificate.to_bytes();
        let root_signature = self.sign(&SignedBytes::new(Purpose::WorkerCertificate, realm).field(&worker));
        WorkerKey { realm: realm.clone(), certificate, worker, root_signature, pair }
    }

    pub(crate) fn sign(&self, bytes: &SignedBytes) -> Vec<u8> {
        self.pair().sign(bytes.as_bytes()).as_ref().to_vec()
    }
}

/// The command-signing root's public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandRootKey(#[serde(with = "key32")] pub(crate) [u8; 32]);

impl std::fmt::Debug for CommandRootKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandRootKey({})", hex::encode(self.0))
    }
}

impl CommandRootKey {
    pub(crate) fn verify(&self, bytes: &SignedBytes, signature: &[u8]) -> Result<(), SignatureRefusal> {
        verify_ed25519(&self.0, bytes.as_bytes(), signature)
    }
}

/// What the root says about a worker key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerCertificate {
    /// A random number, for logs.
    pub serial: String,
    #[serde(with = "key32")]
    public_key: [u8; 32],
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
}

impl WorkerCertificate {
    fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("a certificate serialises")
    }

    /// Whether half of the life is over: time for a new key, and for signing again what is still in force.
    #[must_use]
    pub fn is_past_half_life(&self, now: Timestamp) -> bool {
        let half = Duration::from_secs(Duration::between(self.not_before, self.not_after).as_secs() / 2);
        now >= half.after(self.not_before)
    }
}

/// A signature by a worker, with the root's word for the worker: the three parts of the wire message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Canonical JSON of the [`WorkerCertificate`].
    pub worker: Vec<u8>,
    /// The command-signing root's signature over `worker`.
    pub root_signature: Vec<u8>,
    /// The worker's signature.
    pub signature: Vec<u8>,
}

impl Signature {
    /// The worker certificate, read but not checked.
    ///
    /// # Errors
    /// When it is none.
    pub fn certificate(&self) -> Result<WorkerCertificate, SignatureRefusal> {
        if self.worker.len() > MAX_BYTES {
            return Err(SignatureRefusal::Malformed);
        }
        serde_json::from_slice(&self.worker).map_err(|_| SignatureRefusal::Malformed)
    }

    /// Whether this root certified the worker: what another one certified is signed anew when roots change.
    #[must_use]
    pub fn is_under(&self, root: &CommandRootKey, realm: &Realm) -> bool {
        let head = SignedBytes::new(Purpose::WorkerCertificate, realm).field(&self.worker);
        root.verify(&head, &self.root_signature).is_ok()
    }
}

/// A certified worker key, in memory only.
#[derive(Debug)]
pub struct WorkerKey {
    realm: Realm,
    certificate: WorkerCertificate,
    worker: Vec<u8>,
    root_signature: Vec<u8>,
    pair: Ed25519KeyPair,
}

impl WorkerKey {
    /// Signs.
    #[must_use]
    pub fn sign(&self, bytes: &SignedBytes) -> Signature {
        Signature {
            worker: self.worker.clone(),
            root_signature: self.root_signature.clone(),
            signature: self.pair.sign(bytes.as_bytes()).as_ref().to_vec(),
        }
    }

    /// The root's word for this key.
    #[must_use]
    pub const fn certificate(&self) -> &WorkerCertificate {
        &self.certificate
    }

    /// Whose worker this is.
    #[must_use]
    pub const fn realm(&self) -> &Realm {
        &self.realm
    }
}

/// Checks what workers signed, on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandVerifier {
    realm: Realm,
    roots: Vec<CommandRootKey>,
}

impl CommandVerifier {
    /// A verifier that trusts these roots in this realm.
    #[must_use]
    pub const fn new(realm: Realm, roots: Vec<CommandRootKey>) -> Self {
        Self { realm, roots }
    }

    /// The realm that everything signed must name.
    #[must_use]
    pub const fn realm(&self) -> &Realm {
        &self.realm
    }

    /// The trusted roots.
    #[must_use]
    pub fn roots(&self) -> &[CommandRootKey] {
        &self.roots
    }

    /// Checks a signature and the worker behind it.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn verify(
        &self,
        bytes: &SignedBytes,
        signature: &Signature,
        validity: Validity,
    ) -> Result<(), SignatureRefusal> {
        let head = SignedBytes::new(Purpose::WorkerCertificate, &self.realm).field(&signature.worker);
        if !self.roots.iter().any(|root| root.verify(&head, &signature.root_signature).is_ok()) {
            return Err(SignatureRefusal::UnknownRoot);
        }
        let certificate = signature.certificate()?;
        if let Validity::At(now) = validity {
            if now < certificate.not_before {
                return Err(SignatureRefusal::WorkerNotYetValid);
            }
            if now >= certificate.not_after {
                return Err(SignatureRefusal::WorkerExpired);
            }
        }
        verify_ed25519(&certificate.public_key, bytes.as_bytes(), &signature.signature)
    }
}

pub(crate) fn verify_ed25519(key: &[u8; 32], message: &[u8], signature: &[u8]) -> Result<(), SignatureRefusal> {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).map_err(|_| SignatureRefusal::BadSignature)
}

pub(crate) fn public_of(pair: &Ed25519KeyPair) -> [u8; 32] {
    pair.public_key().as_ref().try_into().expect("an Ed25519 public key has 32 bytes")
}

/// Times in certificates are whole seconds, so that their text is one and the same everywhere.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).expect("a timestamp's second is a timestamp")
}
