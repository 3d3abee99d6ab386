//! What a thief of the database cannot write, and who checks it: manifests of revisions, places of machines, commands.
//!
//! | who | holds | does |
//! |---|---|---|
//! | source | [`SourceCustody`] | signs what each revision consists of, keeps the tags of places |
//! | controllers, api | [`Custody`] | composes and signs only what such a signature or tag stands behind |
//!
//! Both follow the rotations of the process's keys. Nothing here asks whether the fleet is pinned: the keys are there either
//! way, and what protects a verified fleet protects one that is not.

use std::sync::{Arc, PoisonError, RwLock};

use pki::{
    checkpoint::{AuditSigner, CheckpointSigner, CheckpointVerifier, Seal},
    keys::{SigningKeys, SourceKeys},
};
use store::{Db, DbError, manifests, marks::Marker, placements};

use crate::trust::Pinned;

mod attest;
mod book;
mod manifest;
#[cfg(test)]
mod tests;

pub(crate) use attest::{Drawing, attest, draw, proven};
pub(crate) use book::{Assigned, Book, Unproven, Who};
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
}

impl SourceHeld {
    fn of(keys: &SourceKeys, fleet: &str) -> Self {
        Self { signer: keys.checkpoint_signer(fleet), places: keys.placement_seal(fleet) }
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

    pub(crate) fn places(&self) -> Seal {
        self.held().places.clone()
    }
}

impl Marker for SourceCustody {
    fn command(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
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
    commands: Seal,
    audit: AuditSigner,
}

impl Held {
    fn of(keys: &SigningKeys, fleet: &str) -> Self {
        Self {
            manifests: keys.checkpoint_verifier(fleet),
            places: keys.placement_seal(fleet),
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

    /// Signs checkpoints of the audit log.
    #[must_use]
    pub fn audit(&self) -> AuditSigner {
        self.held().audit.clone()
    }

    /// How many manifests and places another key stands behind than the present one, and so none once that one is over.
    pub(crate) async fn signed_before(&self, db: &Db) -> Result<u64, DbError> {
        let held = self.held();
        let Some(present) = held.manifests.present() else { return Ok(0) };
        let manifests = manifests::count_of_other_keys(db, present.as_bytes()).await?;
        let mut txn = db.snapshot().await?;
        let before = |place: &placements::Placement| {
            let bytes = place.bytes();
            place
                .tag
                .as_ref()
                .is_some_and(|tag| held.places.is_tag(&bytes, tag) && !held.places.is_present(&bytes, tag))
        };
        let places = placements::list(&mut txn).await?.iter().filter(|place| before(place)).count();
        Ok(manifests + places as u64)
    }

    pub(crate) fn manifests(&self) -> CheckpointVerifier {
        self.held().manifests.clone()
    }
}

impl Marker for Custody {
    fn command(&self, body: &[u8]) -> Option<Vec<u8>> {
        Some(self.held().commands.tag(body))
    }

    fn placement(&self, place: &[u8]) -> Vec<u8> {
        self.held().places.tag(place)
    }

    fn is_placement(&self, place: &[u8], tag: &[u8]) -> bool {
        self.held().places.is_tag(place, tag)
    }
}
