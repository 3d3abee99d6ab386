//! A process and the key directory: what changes there is taken over, and noted where everybody sees who is behind, beside how
//! far the clock of its host is off.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reconciler::{join, source::SourcePoke};
use schema::cause::chain;
use store::{
    Db,
    clock::DatabaseClock,
    key_holders::{self, Said},
};
use tokio_util::sync::CancellationToken;

use super::keys::{KeyDir, Stamp};
use crate::exit::Failure;

/// How often the directory is looked at.
const LOOKED_AT: Duration = Duration::from_secs(2);
/// How often a process says which revision it works with.
const SAID_EVERY: Duration = Duration::from_secs(15);
/// A process that says nothing for so long is gone.
const GONE_AFTER: Duration = Duration::from_secs(45);

/// One key directory, and the revision of it that this process works with.
pub(super) struct Watched<F> {
    pub(super) place: KeyDir,
    pub(super) revision: u64,
    /// Works with what is there from then on, and says its revision.
    pub(super) take_over: F,
    /// The state of the directory that was taken over. What was read before anybody followed may be older than it looks.
    seen: Option<Stamp>,
}

impl<F> Watched<F>
where
    F: FnMut(&KeyDir) -> Result<Option<u64>, Failure>,
{
    pub(super) const fn new(place: KeyDir, revision: u64, take_over: F) -> Self {
        Self { place, revision, take_over, seen: None }
    }

    /// Takes over what changed; whether this process works with another revision since.
    fn look(&mut self) -> Result<bool, Failure> {
        let stamp = self.place.stamp();
        if self.seen == Some(stamp) {
            return Ok(false);
        }
        let Some(revision) = (self.take_over)(&self.place)? else { return Ok(false) };
        self.seen = Some(stamp);
        Ok(std::mem::replace(&mut self.revision, revision) != revision)
    }
}

/// Follows it.
pub(super) struct Following<F> {
    pub(super) db: Db,
    /// What this process is called.
    pub(super) holder: String,
    /// The clock that it goes by.
    pub(super) clock: Arc<DatabaseClock>,
    pub(super) watched: Watched<F>,
}

impl<F> Following<F>
where
    F: FnMut(&KeyDir) -> Result<Option<u64>, Failure>,
{
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut said = None;
        loop {
            match self.watched.look() {
                Ok(true) => {
                    tracing::info!(revision = self.watched.revision, "the keys were changed, and are in use");
                    said = None;
                    self.wake_nodes().await;
                }
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the changed keys cannot be used"),
            }
            if said.is_none_or(|at: Instant| at.elapsed() >= SAID_EVERY) {
                said = self.say().await;
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                () = tokio::time::sleep(LOOKED_AT) => {}
            }
        }
        // Whoever rotates next need not wait for a process that is gone.
        tokio::time::timeout(LOOKED_AT, key_holders::leave(&self.db, &self.holder)).await.ok();
    }

    async fn say(&self) -> Option<Instant> {
        let Self { holder, watched, clock, .. } = self;
        let said = Said { name: holder, revision: watched.revision, clock_off: clock.host_is_off() };
        match key_holders::process(&self.db, said, GONE_AFTER).await {
            Ok(()) => Some(Instant::now()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "which keys this process works with is said later");
                None
            }
        }
    }

    /// Whoever signs does so with another key from now on: specs and revisions that the one before signed are looked at.
    async fn wake_nodes(&self) {
        SourcePoke::new(self.db.clone()).poke().await;
        if let Err(error) = join::wake_nodes(&self.db).await {
            tracing::warn!(error = chain(&error), "specs are signed again later");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_between_reading_the_keys_and_following_them_is_taken_over() {
        pki::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let place = KeyDir::at(dir.path());
        let now = "2026-11-29T12:00:00Z".parse().unwrap();
        let mut keys = pki::keys::Keys::generate("bc.local", now).unwrap();
        place.store_control_plane(&keys).unwrap();
        let read = place.control_plane().unwrap().unwrap();
        keys.advance(pki::keys::RotationKind::Checkpoint, "fleet", now);
        place.store_control_plane(&keys).unwrap();

        let mut taken = 0;
        let mut watched = Watched::new(place, read.revision(), |place: &KeyDir| {
            taken += 1;
            Ok(place.control_plane()?.map(|keys| keys.revision()))
        });
        assert!(watched.look().unwrap(), "the step is not missed");
        assert_eq!(watched.revision, keys.revision());
        assert!(!watched.look().unwrap());
        assert_eq!(taken, 1, "what did not change is not read again");
    }
}
