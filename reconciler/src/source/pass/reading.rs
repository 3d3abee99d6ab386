//! What a pass reads: the remote, and the tip's tree.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use store::sources::Source;

use super::{Memory, Pass};
use crate::source::{
    GitError, SourceState, Trouble,
    config::Place,
    fetch::{Look, forget, look},
    read::{Read, read},
    tree::Brake,
};

/// How long a fetch may take.
const FETCH_DEADLINE: Duration = Duration::from_secs(600);
/// How long reading one commit may take.
const READ_DEADLINE: Duration = Duration::from_secs(120);

impl Pass {
    pub(super) async fn look(&mut self, source: &Source) -> Result<Look, GitError> {
        let (config, access, data) = (self.config.clone(), self.access.clone(), self.data.clone());
        let verified = self.trusted.branch().map(str::to_owned);
        let pinned = verified.or_else(|| Some(source.branch.clone()).filter(|branch| !branch.is_empty()));
        let deadline = if matches!(config.place, Place::Local(_)) { READ_DEADLINE } else { FETCH_DEADLINE };
        let anew = self.anew.take();
        let work = move |stop: &AtomicBool| {
            if anew {
                forget(&config, &data)?;
            }
            look(&config, &access, &data, pinned.as_deref(), stop)
        };
        self.blocking(deadline, work).await
    }

    /// Judges the tip and reads its tree, unless that was done before with the same facts.
    pub(super) async fn read(
        &mut self,
        seen: Look,
        base: Option<String>,
        accepted: Option<String>,
    ) -> Result<Arc<Read>, Trouble> {
        // Once it is in force, the commit is its own base.
        if let Some(memory) = &self.memory
            && (&memory.commit, &memory.accepted) == (&seen.tip, &accepted)
            && (memory.base == base || (memory.outcome.is_ok() && base.as_ref() == Some(&seen.tip)))
        {
            return memory.outcome.clone();
        }
        let commit = seen.tip.clone();
        let facts = (base.clone(), accepted.clone());
        let remembered = Arc::clone(&self.remembered);
        let done = self
            .blocking(READ_DEADLINE, move |stop| {
                let brake = Brake { stop, deadline: Instant::now().checked_add(READ_DEADLINE) };
                let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(read(&seen, facts.0.as_deref(), facts.1.as_deref(), &mut remembered, &brake))
            })
            .await;
        let outcome = match done {
            Ok(outcome) => outcome.map(Arc::new),
            Err(error) => return Err(error.into()),
        };
        // Damage may be mended without a new commit: look again each time.
        let lasting = !matches!(&outcome, Err(trouble) if matches!(trouble.state, SourceState::ObjectBroken | SourceState::Unreachable));
        self.memory = lasting.then(|| Memory { commit, base, accepted, outcome: outcome.clone() });
        outcome
    }

    /// Runs work that blocks, and tells it to stop when its time is over.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        deadline: Duration,
        work: impl FnOnce(&AtomicBool) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let (stop, late) = (Arc::clone(&self.stop), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&late);
        let mut running = tokio::task::spawn_blocking(move || work(&flag));
        let ended =
            |done: Result<Result<T, GitError>, tokio::task::JoinError>| done.unwrap_or(Err(GitError::Interrupted));
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        let until = tokio::time::Instant::now() + deadline;
        loop {
            tokio::select! {
                done = &mut running => return ended(done),
                _ = ticks.tick() => {
                    if stop.load(Ordering::Relaxed) || tokio::time::Instant::now() >= until {
                        late.store(true, Ordering::Relaxed);
                        // A thread that waits for a silent remote ends by its own timeouts; nobody waits for it here.
                        let grace = tokio::time::timeout(Duration::from_secs(2), &mut running).await;
                        return grace.map_or(Err(GitError::Interrupted), ended);
                    }
                }
            }
        }
    }
}
