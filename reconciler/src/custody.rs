//! What a thief of the database cannot write, and who checks it: manifests of revisions, places of machines, batches, commands.
//!
//! | who | holds | does |
//! |---|---|---|
//! | source | [`SourceCustody`] | signs what each revision consists of, keeps the tags of places and batches, proposes as a service |
//! | controllers, api | [`Custody`] | composes and signs only what such a signature or tag stands behind |
//!
//! Both follow the rotations of the process's keys. The keys are there whether the fleet is pinned or not, and what protects a
//! verified fleet protects one that is not; in a pinned one a manifest counts only when its commit was verified from the anchor.

use std::sync::{Arc, PoisonError, RwLock};

use pki::{
    Realm,
    checkpoint::{AuditSigner, CheckpointPurpose, CheckpointSigner, CheckpointVerifier, Seal},
    keys::{SigningKeys, SourceKeys},
    trust::service::ServiceKeys,
};
use store::{
    Db, DbError,
    batches::{Batch, Leaf},
    marks::Marker,
};

use crate::{source::FLEET, trust::Pinned};

mod attest;
mod book;
mod manifest;
mod rotation;
#[cfg(test)]
mod tests;

pub(crate) use attest::{Drawing, attest, draw, proven};
pub(crate) use book::{Assigned, BEHIND_PIN, Book, Unproven, Who};
#[cfg(test)]
pub(crate) use manifest::Part;
pub(crate) use manifest::{Manifest, Signed};

/// What the source works with.
#[derive(Debug)]
pub struct SourceCustody {
    fleet: String,
    trust_domain: String,
    pinned: Pinned,
    held: RwLock<Arc<SourceHeld>>,
}

#[derive(Debug)]
struct SourceHeld {
    signer: CheckpointSigner,
    places: Seal,
    batches: Seal,
    service: ServiceKeys,
}

impl SourceHeld {
    fn of(keys: &SourceKeys, fleet: &str) -> Self {
        let service = keys.service().clone();
        let (places, batches) = (keys.placement_seal(fleet), keys.batch_seal(fleet));
        Self { signer: keys.checkpoint_signer(fleet), places, batches, service }
    }
}

impl SourceCustody {
    /// With these keys, for a fleet.
    #[must_use]
    pub fn new(keys: &SourceKeys, fleet: &str) -> Arc<Self> {
        let held = Arc::new(SourceHeld::of(keys, fleet));
        let (pinned, trust_domain) = (Pinned::new(keys.trust_pin()), keys.trust_domain().to_owned());
        Arc::new(Self { fleet: fleet.to_owned(), trust_domain, pinned, held: RwLock::new(held) })
    }

    /// Works with these keys from now on.
    pub fn use_keys(&self, keys: &SourceKeys) {
        self.pinned.set(keys.trust_pin());
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(SourceHeld::of(keys, &self.fleet));
    }

    fn held(&self) -> Arc<SourceHeld> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the keys say of the trust anchor.
    #[must_use]
    pub fn pinned(&self) -> Pinned {
        self.pinned.clone()
    }

    /// The trust domain of the keys.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// Signs how far history was verified, and what its revisions consist of.
    #[must_use]
    pub fn signer(&self) -> CheckpointSigner {
        self.held().signer.clone()
    }

    /// What it signs with as a service of the trust policy.
    #[must_use]
    pub fn service(&self) -> ServiceKeys {
        self.held().service.clone()
    }

    /// Whose fleet this is.
    #[must_use]
    pub fn realm(&self) -> Realm {
        Realm::new(&self.trust_domain, &self.fleet)
    }

    pub(crate) fn places(&self) -> Seal {
        self.held().places.clone()
    }
}

impl Marker for SourceCustody {
    fn command(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn batch(&self, batch: &[u8]) -> Vec<u8> {
        self.held().batches.tag(batch)
    }

    fn placement(&self, place: &[u8]) -> Vec<u8> {
        self.held().places.tag(place)
    }

    fn is_placement(&self, place: &[u8], tag: &[u8]) -> bool {
        self.held().places.is_tag(place, tag)
    }
}

/// What whoever composes, queues and signs works with.
#[derive(Debug)]
pub struct Custody {
    fleet: String,
    pinned: Pinned,
    held: RwLock<Arc<Held>>,
    book: Book,
}

#[derive(Debug)]
struct Held {
    manifests: CheckpointVerifier,
    places: Seal,
    batches: Seal,
    commands: Seal,
    audit: AuditSigner,
}

impl Held {
    fn of(keys: &SigningKeys, fleet: &str) -> Self {
        Self {
            manifests: keys.checkpoint_verifier(fleet),
            places: keys.placement_seal(fleet),
            batches: keys.batch_seal(fleet),
            commands: keys.command_seal(fleet),
            audit: keys.audit_signer(fleet),
        }
    }
}

impl Custody {
    /// With these keys, for a fleet.
    #[must_use]
    pub fn new(keys: &SigningKeys, fleet: &str) -> Arc<Self> {
        let held = RwLock::new(Arc::new(Held::of(keys, fleet)));
        let pinned = Pinned::new(keys.trust_pin());
        Arc::new(Self { fleet: fleet.to_owned(), pinned, held, book: Book::default() })
    }

    /// Works with these keys from now on.
    pub fn use_keys(&self, keys: &SigningKeys) {
        self.pinned.set(keys.trust_pin());
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Held::of(keys, &self.fleet));
    }

    fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the keys say of the trust anchor.
    #[must_use]
    pub fn pinned(&self) -> Pinned {
        self.pinned.clone()
    }

    /// Whether a process of this control plane queued a command.
    #[must_use]
    pub fn is_queued_here(&self, body: &[u8], mark: Option<&[u8]>) -> bool {
        mark.is_some_and(|mark| self.held().commands.is_tag(body, mark))
    }

    /// Whether a process of this control plane put a batch down as it stands there.
    #[must_use]
    pub fn is_put_here(&self, batch: &Batch, leaves: &[Leaf]) -> bool {
        batch.mark.as_ref().is_some_and(|mark| self.held().batches.is_tag(&batch.words(leaves), mark))
    }

    /// The anchor that revisions have to be verified from; `None` while the fleet is unverified.
    pub(crate) fn anchor(&self) -> Option<String> {
        self.pinned.get().map(|pin| pin.commit.to_string())
    }

    /// Whether these keys are from before the fleet was pinned: they know of no anchor, and this control plane signed how far
    /// history was verified from one.
    pub(crate) async fn is_behind_pin(&self, db: &Db) -> Result<bool, DbError> {
        if self.pinned.get().is_some() {
            return Ok(false);
        }
        let (verifier, purpose) = (self.manifests(), CheckpointPurpose::VerifiedCheckpoint);
        let stored = store::trust::checkpoint(db, FLEET).await?;
        Ok(stored.is_some_and(|stored| verifier.verify(purpose, &stored.body, &stored.signature).is_ok()))
    }

    /// Signs checkpoints of the audit log.
    #[must_use]
    pub fn audit(&self) -> AuditSigner {
        self.held().audit.clone()
    }

    pub(crate) fn manifests(&self) -> CheckpointVerifier {
        self.held().manifests.clone()
    }
}

impl Marker for Custody {
    fn command(&self, body: &[u8]) -> Option<Vec<u8>> {
        Some(self.held().commands.tag(body))
    }

    fn batch(&self, batch: &[u8]) -> Vec<u8> {
        self.held().batches.tag(batch)
    }

    fn placement(&self, place: &[u8]) -> Vec<u8> {
        self.held().places.tag(place)
    }

    fn is_placement(&self, place: &[u8], tag: &[u8]) -> bool {
        self.held().places.is_tag(place, tag)
    }
}
