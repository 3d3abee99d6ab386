//! The worker key of this process: certified by the command-signing root, in memory, replaced before half its life.

use std::sync::{Arc, PoisonError, RwLock};

use pki::{
    Realm,
    audit::Vouch,
    checkpoint::CheckpointKey,
    worker::{CommandRoot, CommandVerifier, Signature, WorkerKey},
};
use schema::{generation::Generation, id::NodeId, time::Timestamp};

use crate::reconcile::SpecSigner;

/// Signs for this process.
#[derive(Debug)]
pub struct Signer {
    realm: Realm,
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: CommandRoot,
    current: Arc<WorkerKey>,
}

impl Signer {
    /// A signer with a fresh worker key.
    #[must_use]
    pub fn new(root: CommandRoot, realm: Realm, now: Timestamp) -> Self {
        let current = Arc::new(root.certify(&realm, now));
        Self { realm, inner: RwLock::new(Inner { root, current }) }
    }

    /// Signs under another root from now on, when it is another one.
    pub fn use_root(&self, root: &CommandRoot, now: Timestamp) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.root.public() != root.public() {
            *inner = Inner { root: root.clone(), current: Arc::new(root.certify(&self.realm, now)) };
            tracing::info!(worker = inner.current.certificate().serial, "signs under another command-signing root");
        }
    }

    /// The worker key for signatures that are made now.
    #[must_use]
    pub fn worker(&self, now: Timestamp) -> Arc<WorkerKey> {
        let current = Arc::clone(&self.inner.read().unwrap_or_else(PoisonError::into_inner).current);
        if is_fit(&current, now) {
            return current;
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if !is_fit(&inner.current, now) {
            inner.current = Arc::new(inner.root.certify(&self.realm, now));
            let certificate = inner.current.certificate();
            tracing::info!(worker = certificate.serial, until = %certificate.not_after, "made the next worker key");
        }
        Arc::clone(&inner.current)
    }
}

fn is_fit(worker: &WorkerKey, now: Timestamp) -> bool {
    worker.certificate().not_before <= now && !worker.certificate().is_past_half_life(now)
}

impl SpecSigner for Signer {
    fn is_current(&self, signature: &Signature) -> bool {
        let root = self.inner.read().unwrap_or_else(PoisonError::into_inner).root.public();
        signature.is_under(&root, &self.realm)
    }

    fn sign_spec(&self, node: NodeId, generation: Generation, spec: &[u8], now: Timestamp) -> Signature {
        self.worker(now).sign_desired_state(node, generation, spec)
    }

    fn sign_command(&self, node: NodeId, body: &[u8], now: Timestamp) -> Signature {
        self.worker(now).sign_command(node, body)
    }

    fn vouch(&self, key: CheckpointKey, now: Timestamp) -> Vouch {
        Vouch::make(&self.worker(now), key)
    }

    fn is_vouch_current(&self, vouch: &Vouch) -> bool {
        let root = self.inner.read().unwrap_or_else(PoisonError::into_inner).root.public();
        vouch.verify(&CommandVerifier::new(self.realm.clone(), vec![root])).is_ok()
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
