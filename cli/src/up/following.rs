//! A process and the key directory: what changes there is taken over, and noted where everybody sees who is behind.

use std::time::{Duration, Instant};

use reconciler::join;
use schema::cause::chain;
use store::{Db, key_holders};
use tokio_util::sync::CancellationToken;

use super::keys::KeyDir;
use crate::exit::Failure;

/// How often the directory is looked at.
const LOOKED_AT: Duration = Duration::from_secs(2);
/// How often a process says which revision it works with.
const SAID_EVERY: Duration = Duration::from_secs(15);
/// A process that says nothing for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(45);

/// Follows one key directory.
pub(super) struct Following<F> {
    pub(super) db: Db,
    pub(super) place: KeyDir,
    /// What this process is called.
    pub(super) holder: String,
    pub(super) revision: u64,
    /// Works with what is there from then on, and says its revision.
    pub(super) take_over: F,
}

impl<F> Following<F>
where
    F: FnMut(&KeyDir) -> Result<Option<u64>, Failure>,
{
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut seen = self.place.stamp();
        let mut said = self.say().await;
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(LOOKED_AT) => {}
            }
            let stamp = self.place.stamp();
            if stamp != seen {
                match (self.take_over)(&self.place) {
                    Ok(Some(revision)) => {
                        (seen, self.revision) = (stamp, revision);
                        tracing::info!(revision, "the keys were changed, and are in use");
                        said = None;
                        self.wake_nodes().await;
                    }
                    Ok(None) => {}
                    Err(error) => tracing::error!(%error, "the changed keys cannot be used"),
                }
            }
            if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
                said = self.say().await;
            }
        }
        // Whoever rotates next need not wait for a process that is gone.
        tokio::time::timeout(LOOKED_AT, key_holders::leave(&self.db, &self.holder)).await.ok();
    }

    async fn say(&self) -> Option<Instant> {
        match key_holders::process(&self.db, &self.holder, self.revision, GONE_AFTER).await {
            Ok(()) => Some(Instant::now()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "which keys this process works with is said later");
                None
            }
        }
    }

    /// Whoever signs does so with another key from now on: specs that the one before signed are looked at.
    async fn wake_nodes(&self) {
        if let Err(error) = join::wake_nodes(&self.db).await {
            tracing::warn!(error = chain(&error), "specs are signed again later");
        }
    }
}
