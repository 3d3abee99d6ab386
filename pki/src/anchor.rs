//! The anchor: what a machine that knows nothing yet is told to trust, recognised by its pin.
//!
//! The anchor is fetched from a server that is not trusted yet; its SHA-256 must equal the pin that a person gave. The
//! bytes are hashed as they came and must be canonical, so one anchor has one pin.

use rustls_pki_types::CertificateDer;
use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    Realm,
    encoding::{Base64, bytes},
    trust::statement::FleetId,
    worker::{CommandRootKey, CommandVerifier},
};

/// The largest anchor that is looked at.
const MAX_BYTES: usize = 64 * 1024;

/// Why an anchor is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnchorRefusal {
    /// Its digest is not the pin: another control plane, or something in between.
    #[error("the server's anchor has the digest {found}, not the pinned {pinned}")]
    WrongPin {
        /// What was asked for.
        pinned: Digest,
        /// What came.
        found: Digest,
    },
    /// It is not an anchor in canonical form.
    #[error("the anchor is malformed")]
    Malformed,
}

/// The key to which join tokens are sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinPublicKey {
    /// Which key.
    pub id: String,
    /// The HPKE public key (X25519).
    #[serde(with = "bytes")]
    pub hpke: Vec<u8>,
}

/// Whose word on destructive work counts: the fleet that statements name, and the policy that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnchorTrust {
    /// The fleet.
    pub fleet: FleetId,
    /// The digest of its first policy.
    pub digest: Digest,
}

/// What a control plane is recognised by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Anchor {
    trust_domain: String,
    fleet_id: String,
    node_roots: Vec<Base64>,
    command_roots: Vec<CommandRootKey>,
    /// The key to which join tokens are sealed.
    pub join_key: JoinPublicKey,
    /// The fleet that people sign for, when the control plane is pinned to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<AnchorTrust>,
}

impl Anchor {
    pub(crate) fn new(
        realm: &Realm,
        roots: &[CertificateDer<'_>],
        command_roots: Vec<CommandRootKey>,
        join_key: JoinPublicKey,
        trust: Option<AnchorTrust>,
    ) -> Self {
        Self {
            trust_domain: realm.trust_domain.clone(),
            fleet_id: realm.fleet_id.clone(),
            node_roots: roots.iter().map(|root| Base64(root.to_vec())).collect(),
            command_roots,
            join_key,
            trust,
        }
    }

    /// The canonical bytes, as they are sent.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        schema::canonical::to_vec(self).expect("an anchor serialises")
    }

    /// What a person passes on to recognise this control plane.
    #[must_use]
    pub fn pin(&self) -> Digest {
        Digest::of(self.to_bytes())
    }

    /// The anchor in bytes from a server that nothing is known about, if it is the pinned one.
    ///
    /// # Errors
    /// When it is another one, or none.
    pub fn from_pinned(bytes: &[u8], pin: Digest) -> Result<Self, AnchorRefusal> {
        let found = Digest::of(bytes);
        if found != pin {
            return Err(AnchorRefusal::WrongPin { pinned: pin, found });
        }
        Self::from_bytes(bytes)
    }

    /// The anchor that this machine stored when it joined.
    ///
    /// # Errors
    /// When the bytes are no anchor in canonical form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AnchorRefusal> {
        if bytes.len() > MAX_BYTES {
            return Err(AnchorRefusal::Malformed);
        }
        let anchor: Self = serde_json::from_slice(bytes).map_err(|_| AnchorRefusal::Malformed)?;
        if anchor.to_bytes() != bytes {
            return Err(AnchorRefusal::Malformed);
        }
        Ok(anchor)
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

    /// Checks what this control plane's workers sign.
    #[must_use]
    pub fn verifier(&self) -> CommandVerifier {
        CommandVerifier::new(self.realm(), self.command_roots.clone())
    }
}

#[cfg(test)]
mod tests;
