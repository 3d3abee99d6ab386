//! What a reconciler is, and the list of them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use store::{Role, queue::Kind};

use crate::{audit::AuditChain, batch::Batches};

use super::{
    Context, Failure, Outcome, command::Command, housekeeping::Housekeeping, liveness::Liveness, node::Node,
    nodespec::NodeSpec, sweeper::CommandSweeper,
};

/// What the keys of a reconciler are. Resync lists them from here, not from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardBy {
    /// Every node's id, spread over the shards.
    Node,
    /// Only the periodic keys; one process at a time runs them.
    None,
}

/// A key that is run on a fixed period, whether or not anything woke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    /// The key.
    pub key: &'static str,
    /// How often.
    pub every: Duration,
    /// How long to wait after this process could not look: what it would see is what nobody could write meanwhile.
    pub settle: Duration,
}

/// A level-triggered loop over keys.
#[async_trait]
pub trait Reconciler: Send + Sync {
    /// Its name, its role, and the lease that its keys are run under.
    fn kind(&self) -> &'static Kind;

    /// What its keys are.
    fn shard_by(&self) -> ShardBy;

    /// Keys that are also run on a fixed period.
    fn periodic(&self) -> &'static [Periodic] {
        &[]
    }

    /// One step for one key.
    ///
    /// # Errors
    /// When something broke; waiting is not an error but an [`Outcome`].
    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure>;
}

/// The reconcilers of this program.
#[derive(Clone, Default)]
pub struct Registry {
    all: Vec<Arc<dyn Reconciler>>,
}

impl Registry {
    /// Every reconciler there is.
    #[must_use]
    pub fn standard() -> Self {
        Self::default()
            .with(NodeSpec::standard())
            .with(Node)
            .with(Command)
            .with(Liveness)
            .with(CommandSweeper)
            .with(Batches::default())
            .with(AuditChain::default())
            .with(Housekeeping)
    }

    /// One more.
    #[must_use]
    pub fn with(mut self, reconciler: impl Reconciler + 'static) -> Self {
        self.all.push(Arc::new(reconciler));
        self
    }

    /// Those of one role.
    #[must_use]
    pub fn of_role(&self, role: Role) -> Self {
        Self { all: self.all.iter().filter(|reconciler| reconciler.kind().role == role).cloned().collect() }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Reconciler>> {
        self.all.iter().find(|reconciler| reconciler.kind().name == name)
    }

    /// All of them, in the order in which they were registered.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Reconciler>> {
        self.all.iter()
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|reconciler| reconciler.kind().name).collect()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
