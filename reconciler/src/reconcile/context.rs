//! What a run may use.

use std::{fmt, sync::Arc};

use pki::{Realm, audit::Vouch, checkpoint::CheckpointKey, worker::Signature};
use schema::{generation::Generation, id::NodeId, id::WorkerId, time::Timestamp};
use store::{Db, Txn, leases, leases::Lease};

use super::Failure;
use crate::{custody::Custody, logs::LogStore};

/// Signs specs and commands with a worker key that the command-signing root certified.
pub trait SpecSigner: Send + Sync {
    /// Signs the exact bytes of one generation of a node's spec.
    fn sign_spec(&self, node: NodeId, generation: Generation, spec: &[u8], now: Timestamp) -> Signature;

    /// Whether the root that signs now stands behind a signature. What another one stands behind is signed again.
    fn is_current(&self, signature: &Signature) -> bool;

    /// Signs the exact bytes of a command to a node.
    fn sign_command(&self, node: NodeId, body: &[u8], now: Timestamp) -> Signature;

    /// Vouches for the key that signs checkpoints of the audit log.
    fn vouch(&self, key: CheckpointKey, now: Timestamp) -> Vouch;

    /// Whether the root that signs now stands behind such a word.
    fn is_vouch_current(&self, vouch: &Vouch) -> bool;
}

/// What every run of a process shares.
#[derive(Clone)]
pub struct Shared {
    /// The database.
    pub db: Db,
    /// Whom everything signed must name.
    pub realm: Realm,
    /// Who signs specs and commands; `None` in a process without controllers.
    pub signer: Option<Arc<dyn SpecSigner>>,
    /// What rows have to follow from before a spec is composed of them or a command signed; `None` as with the signer.
    pub custody: Option<Arc<Custody>>,
    /// Where bundles of logs go; `None`: they stay on their machines.
    pub logs: Option<Arc<LogStore>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("realm", &self.realm).finish_non_exhaustive()
    }
}

/// What one run has: the shared parts, and the lease that it runs under.
#[derive(Debug, Clone)]
pub struct Context {
    shared: Shared,
    worker: WorkerId,
    lease: Lease,
}

impl Context {
    pub(super) const fn new(shared: Shared, worker: WorkerId, lease: Lease) -> Self {
        Self { shared, worker, lease }
    }

    /// The database, for reads.
    #[must_use]
    pub const fn db(&self) -> &Db {
        &self.shared.db
    }

    /// Whom everything signed must name.
    #[must_use]
    pub const fn realm(&self) -> &Realm {
        &self.shared.realm
    }

    /// Who signs specs and commands.
    #[must_use]
    pub fn signer(&self) -> &dyn SpecSigner {
        self.shared.signer.as_deref().expect("a process that runs controllers has a signer")
    }

    /// What rows have to follow from.
    #[must_use]
    pub fn custody(&self) -> &Custody {
        self.shared.custody.as_deref().expect("a process that runs controllers has their keys")
    }

    /// Where bundles of logs go.
    #[must_use]
    pub fn logs(&self) -> Option<&LogStore> {
        self.shared.logs.as_deref()
    }

    /// The database's time.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.shared.db.now().await?)
    }

    /// Begins the transaction of this run's writes, conditional on its lease.
    ///
    /// # Errors
    /// When the lease was taken over, or the database does not answer.
    pub async fn begin(&self) -> Result<Txn, Failure> {
        let mut txn = self.shared.db.begin().await?;
        leases::fence(&mut txn, self.worker, &self.lease).await?;
        Ok(txn)
    }
}
