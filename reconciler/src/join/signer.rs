//! The worker key of this process: certified by the command-signing root, in memory, replaced before half its life.

use std::sync::{Arc, PoisonError, RwLock};

use pki::{
    Realm,
    worker::{CommandRoot, Signature, WorkerKey},
};
use schema::{generation::Generation, id::NodeId, time::Timestamp};

use crate::reconcile::SpecSigner;

/// Signs for this process.
#[derive(Debug)]
pub struct Signer {
    root: CommandRoot,
    realm: Realm,
    current: RwLock<Arc<WorkerKey>>,
}

impl Signer {
    /// A signer with a fresh worker key.
    #[must_use]
    pub fn new(root: CommandRoot, realm: Realm, now: Timestamp) -> Self {
        let first = Arc::new(root.certify(&realm, now));
        Self { root, realm, current: RwLock::new(first) }
    }

    /// The worker key for signatures that are made now.
    #[must_use]
    pub fn worker(&self, now: Timestamp) -> Arc<WorkerKey> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        if is_fit(&current, now) {
            return current;
        }
        let mut slot = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if !is_fit(&slot, now) {
            *slot = Arc::new(self.root.certify(&self.realm, now));
            tracing::info!(worker = slot.certificate().serial, until = %slot.certificate().not_after, "made the next worker key");
        }
        Arc::clone(&slot)
    }
}

fn is_fit(worker: &WorkerKey, now: Timestamp) -> bool {
    worker.certificate().not_before <= now && !worker.certificate().is_past_half_life(now)
}

impl SpecSigner for Signer {
    fn sign_spec(&self, node: NodeId, generation: Generation, spec: &[u8], now: Timestamp) -> Signature {
        self.worker(now).sign_desired_state(node, generation, spec)
    }
}

#[cfg(test)]
mod tests {
    use pki::{keys::Keys, verify::Validity};
    use schema::time::Duration;

    use super::*;

    #[test]
    fn the_worker_key_is_replaced_at_half_life_and_old_signatures_stay_good() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        let keys = Keys::generate("bc.local", now).expect("keys");
        let realm = Realm::new("bc.local", "fleet-one");
        let signer = Signer::new(keys.command_root().clone(), realm, now);
        let verifier = keys.anchor("fleet-one").verifier();
        let node = NodeId::generate();

        let old = signer.sign_spec(node, Generation(1), b"{}", now);
        let later = Duration::from_secs(13 * 3600).after(now);
        let new = signer.sign_spec(node, Generation(1), b"{}", later);
        assert_ne!(old.worker, new.worker);
        for signature in [&old, &new] {
            assert_eq!(verifier.desired_state(node, Generation(1), b"{}", signature, Validity::At(later)), Ok(()));
        }
        let again = signer.sign_spec(node, Generation(1), b"{}", later);
        assert_eq!(again.worker, new.worker);
    }
}
