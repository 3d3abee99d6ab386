//! The trust bundle: the roots as they are now, versioned and signed.
//!
//! A node steps from the bundle that it has to the next one, which must be signed by a command-signing root that it
//! already trusts. A lower version is never taken, and none is left out: a node that missed three steps takes all three.

use rustls_pki_types::CertificateDer;
use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    anchor::Anchor,
    anchor::JoinPublicKey,
    encoding::Base64,
    signed::{Purpose, SignedBytes},
    worker::{CommandRoot, CommandRootKey, CommandVerifier},
};

const MAX_BYTES: usize = 256 * 1024;

/// Why a trust bundle is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BundleRefusal {
    /// Not a bundle in canonical form.
    #[error("the trust bundle is malformed")]
    Malformed,
    /// It is for another fleet.
    #[error("the trust bundle is of another fleet")]
    WrongRealm,
    /// Older than the one in force.
    #[error("the trust bundle is older than the one in force")]
    Older,
    /// Versions between the one in force and this one are missing.
    #[error("the trust bundle leaves out versions after the one in force")]
    Skips,
    /// Another one of the version in force.
    #[error("the trust bundle is another one of the version in force")]
    Differs,
    /// No root that is trusted so far signed it.
    #[error("the trust bundle is not signed by a command-signing root that is trusted here")]
    BadSignature,
}

/// The trust policy in force, by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustPolicyRef {
    /// Digest of the policy's canonical bytes.
    pub digest: Digest,
    /// Its epoch.
    pub epoch: u64,
}

/// What a node trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustBundle {
    /// Follows the content; only rises.
    pub version: u64,
    trust_domain: String,
    fleet_id: String,
    node_roots: Vec<Base64>,
    command_roots: Vec<CommandRootKey>,
    /// The key to which join tokens are sealed.
    pub join_key: JoinPublicKey,
    /// The trust policy in force, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_policy: Option<TrustPolicyRef>,
}

/// A bundle as it travels: the exact bytes and the signature over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBundle {
    /// Canonical JSON of a [`TrustBundle`].
    pub bytes: Vec<u8>,
    /// A command-signing root's signature.
    pub signature: Vec<u8>,
}

impl TrustBundle {
    /// The bundle that says the same as an anchor.
    #[must_use]
    pub fn of_anchor(anchor: &Anchor, version: u64) -> Self {
        let realm = anchor.realm();
        Self {
            version,
            trust_domain: realm.trust_domain,
            fleet_id: realm.fleet_id,
            node_roots: anchor.roots().iter().map(|root| Base64(root.to_vec())).collect(),
            command_roots: anchor.verifier().roots().to_vec(),
            join_key: anchor.join_key.clone(),
            trust_policy: None,
        }
    }

    /// The canonical bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("a bundle serialises")
    }

    /// The bundle in stored bytes, whose signature was checked when they came.
    ///
    /// # Errors
    /// When the bytes are no bundle in canonical form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BundleRefusal> {
        if bytes.len() > MAX_BYTES {
            return Err(BundleRefusal::Malformed);
        }
        let bundle: Self = serde_json::from_slice(bytes).map_err(|_| BundleRefusal::Malformed)?;
        if bundle.to_bytes() != bytes {
            return Err(BundleRefusal::Malformed);
        }
        Ok(bundle)
    }

    /// Trust domain and fleet.
    #[must_use]
    pub fn realm(&self) -> Realm {
        Realm::new(&self.trust_domain, &self.fleet_id)
    }

    /// The roots that gateways' certificates chain to.
    #[must_use]
    pub fn roots(&self) -> Vec<CertificateDer<'static>> {
        self.node_roots.iter().map(|Base64(der)| CertificateDer::from(der.clone())).collect()
    }

    /// Checks what workers sign.
    #[must_use]
    pub fn verifier(&self) -> CommandVerifier {
        CommandVerifier::new(self.realm(), self.command_roots.clone())
    }
}

fn signed_bytes(realm: &Realm, bytes: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::TrustBundle, realm).field(bytes)
}

impl CommandRoot {
    /// Signs a bundle.
    #[must_use]
    pub fn sign_bundle(&self, bundle: &TrustBundle) -> SignedBundle {
        let bytes = bundle.to_bytes();
        let signature = self.sign(&signed_bytes(&bundle.realm(), &bytes));
        SignedBundle { bytes, signature }
    }
}

impl SignedBundle {
    /// The first bundle of a machine that joins, of whatever version: checked by the anchor that was pinned.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn first(&self, anchor: &CommandVerifier) -> Result<TrustBundle, BundleRefusal> {
        let bytes = signed_bytes(anchor.realm(), &self.bytes);
        if !anchor.roots().iter().any(|root| root.verify(&bytes, &self.signature).is_ok()) {
            return Err(BundleRefusal::BadSignature);
        }
        let bundle = TrustBundle::from_bytes(&self.bytes)?;
        if bundle.realm() != *anchor.realm() { Err(BundleRefusal::WrongRealm) } else { Ok(bundle) }
    }
}

impl TrustBundle {
    /// The next bundle after this one. The one in force may come again.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn step(&self, next: &SignedBundle) -> Result<Self, BundleRefusal> {
        let bundle = next.first(&self.verifier())?;
        match bundle.version.checked_sub(self.version) {
            None => Err(BundleRefusal::Older),
            Some(0) if bundle == *self => Ok(bundle),
            Some(0) => Err(BundleRefusal::Differs),
            Some(1) => Ok(bundle),
            Some(_) => Err(BundleRefusal::Skips),
        }
    }

    /// Steps through every bundle that is news, oldest first, and stops at the first that is refused: what was stepped to
    /// by then, and why it went no further.
    #[must_use]
    pub fn step_through(&self, steps: &[SignedBundle]) -> (Self, Option<BundleRefusal>) {
        let mut current = self.clone();
        for step in steps {
            match current.step(step) {
                Ok(next) => current = next,
                Err(BundleRefusal::Older) => {}
                Err(refusal) => return (current, Some(refusal)),
            }
        }
        (current, None)
    }
}

#[cfg(test)]
mod tests;
