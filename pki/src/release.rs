//! Release keys: they sign the manifest of a daemon's release, and so many of them have to.
//!
//! A manifest travels as its exact bytes with a signature per key. What is not signed by enough keys that count here is
//! not read at all.

use std::collections::BTreeSet;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::release::{MAX_MANIFEST, Manifest};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::{
    Realm,
    encoding::{Secret, bytes, key32},
    provider::random,
    signed::{Purpose, SignedBytes},
    worker::{public_of, verify_ed25519},
};

/// The most signatures that a manifest carries.
const MOST: usize = 32;
const WORD: &str = "bcrk_";
const PUBLIC_WORD: &str = "bcrp_";

fn signed(realm: &Realm, manifest: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::Release, realm).field(manifest)
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseKeyError {
    /// Not a private one.
    #[error("a release key is written bcrk_ and 44 characters")]
    Private,
    /// Not a public one.
    #[error("the public half of a release key is written bcrp_ and 44 characters")]
    Public,
}

/// The private half of a release key (Ed25519).
pub struct ReleaseKey(Secret);

impl std::fmt::Debug for ReleaseKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReleaseKey({})", self.public())
    }
}

impl ReleaseKey {
    /// A fresh one.
    #[must_use]
    pub fn generate() -> Self {
        Self(Secret(random::<32>().to_vec()))
    }

    /// Reads what [`Self::to_text`] wrote.
    ///
    /// # Errors
    /// When it is no key.
    pub fn parse(text: &str) -> Result<Self, ReleaseKeyError> {
        let seed = text.trim().strip_prefix(WORD).and_then(|text| STANDARD.decode(text).ok());
        let seed = Secret(seed.ok_or(ReleaseKeyError::Private)?);
        let sound = seed.0.len() == 32 && Ed25519KeyPair::from_seed_unchecked(&seed.0).is_ok();
        if sound { Ok(Self(seed)) } else { Err(ReleaseKeyError::Private) }
    }

    /// The key as text, for a file that its owner alone may read; `write` gets it and it is wiped afterwards.
    pub fn to_text<T>(&self, write: impl FnOnce(&str) -> T) -> T {
        let mut text = format!("{WORD}{}", STANDARD.encode(&self.0.0));
        let written = write(&text);
        text.zeroize();
        written
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0.0).expect("a seed was checked when it was read")
    }

    /// The half that vouches.
    #[must_use]
    pub fn public(&self) -> ReleasePublicKey {
        ReleasePublicKey(public_of(&self.pair()))
    }
}

/// The public half of a release key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleasePublicKey(#[serde(with = "key32")] [u8; 32]);

impl std::fmt::Display for ReleasePublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PUBLIC_WORD}{}", STANDARD.encode(self.0))
    }
}

impl std::fmt::Debug for ReleasePublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for ReleasePublicKey {
    type Err = ReleaseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let key = text.strip_prefix(PUBLIC_WORD).and_then(|text| STANDARD.decode(text).ok());
        key.and_then(|key| key.try_into().ok()).map(Self).ok_or(ReleaseKeyError::Public)
    }
}

/// Whose signatures count, and how many of them it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseKeys {
    keys: BTreeSet<ReleasePublicKey>,
    threshold: usize,
}

impl ReleaseKeys {
    /// These keys, so many of them; `None` when that lets everything go or nothing ever.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = ReleasePublicKey>, threshold: usize) -> Option<Self> {
        let keys: BTreeSet<ReleasePublicKey> = keys.into_iter().collect();
        (threshold >= 1 && threshold <= keys.len()).then_some(Self { keys, threshold })
    }
}

/// Why a manifest is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestRefusal {
    /// It is no signed manifest.
    #[error("it is no signed manifest: {0}")]
    Malformed(String),
    /// Too few of the keys that count here signed it.
    #[error("{by} of the keys that count here signed it, and it takes {threshold}")]
    Untrusted {
        /// How many did.
        by: usize,
        /// How many have to.
        threshold: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeySignature {
    key: ReleasePublicKey,
    #[serde(with = "bytes")]
    signature: Vec<u8>,
}

/// A manifest with its signatures, exactly as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignedManifest {
    /// The exact bytes that are signed.
    manifest: String,
    signatures: Vec<KeySignature>,
}

impl SignedManifest {
    /// A manifest that nobody has signed.
    #[must_use]
    pub fn unsigned(manifest: &Manifest) -> Self {
        let manifest = String::from_utf8(manifest.to_bytes()).expect("JSON is UTF-8");
        Self { manifest, signatures: Vec::new() }
    }

    /// Reads what travels. Nothing is believed yet.
    ///
    /// # Errors
    /// When it is no signed manifest.
    pub fn read(text: &str) -> Result<Self, ManifestRefusal> {
        let malformed = |why: &str| ManifestRefusal::Malformed(why.to_owned());
        if text.len() > MAX_MANIFEST {
            return Err(malformed("it is longer than 64 KiB"));
        }
        let read: Self = serde_json::from_str(text).map_err(|error| ManifestRefusal::Malformed(error.to_string()))?;
        if read.signatures.len() > MOST {
            return Err(malformed("it has more than 32 signatures"));
        }
        Ok(read)
    }

    /// What travels.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts serialise")
    }

    /// Adds a key's signature, in the place of an earlier one of the same key.
    pub fn sign(&mut self, realm: &Realm, key: &ReleaseKey) {
        let public = key.public();
        let signature = key.pair().sign(signed(realm, self.manifest.as_bytes()).as_bytes()).as_ref().to_vec();
        self.signatures.retain(|known| known.key != public);
        self.signatures.push(KeySignature { key: public, signature });
    }

    /// The manifest, when enough of the keys that count signed exactly these bytes for this fleet.
    ///
    /// # Errors
    /// [`ManifestRefusal`] says why it is not believed.
    pub fn verify(&self, realm: &Realm, keys: &ReleaseKeys) -> Result<Manifest, ManifestRefusal> {
        let bytes = signed(realm, self.manifest.as_bytes());
        let good = |given: &&KeySignature| {
            keys.keys.contains(&given.key) && verify_ed25519(&given.key.0, bytes.as_bytes(), &given.signature).is_ok()
        };
        // One key is one voice, however often it signed.
        let by = self.signatures.iter().filter(good).map(|given| given.key).collect::<BTreeSet<_>>().len();
        if by < keys.threshold {
            return Err(ManifestRefusal::Untrusted { by, threshold: keys.threshold });
        }
        let manifest: Manifest = serde_json::from_str(&self.manifest)
            .map_err(|error| ManifestRefusal::Malformed(format!("what is signed is no manifest: {error}")))?;
        if manifest.to_bytes() == self.manifest.as_bytes() {
            Ok(manifest)
        } else {
            Err(ManifestRefusal::Malformed("what is signed is not in its canonical form".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests;
