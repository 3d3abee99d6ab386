//! One pass over the source: look, judge, read, plan, apply. Each step leaves its mark in the database before the next
//! one begins, and all of it can be run again from any point: a process that dies in between costs time only.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use schema::{
    fleet::Fleet,
    id::{PlanId, WorkerId},
};
use store::{
    Db, DbError, Txn, control_plane,
    leases::{self, FenceError, Lease},
    plans,
    sources::{self, AdvanceError, Source, Stage},
};

use super::{
    GitAccess, GitError, SourceConfig, SourceState, Trouble,
    config::Place,
    fetch::{Look, look},
    git::chain,
    read::{Read, read},
    tree::Brake,
};
use crate::{
    apply::{self, Applied, ApplyError, ObserveError},
    plan::{Observed, Planned, plan},
};

/// How long a fetch may take.
const FETCH_DEADLINE: Duration = Duration::from_secs(600);
/// How long reading one commit may take.
const READ_DEADLINE: Duration = Duration::from_secs(120);
/// How often the facts may move under a plan before the pass gives up for now.
const REPLANS: usize = 5;

/// The steps of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The remote tip is stored.
    Look,
    /// The tip was judged and its tree is a fleet.
    Verify,
    /// The plan is stored.
    Plan,
    /// The plan is in force.
    Apply,
}

/// What a pass came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Passed {
    /// The tip is in force, and so is everything that follows from it.
    InForce {
        /// The tip.
        commit: String,
        /// What was done; `None` when nothing had to be.
        applied: Option<Applied>,
    },
    /// The tip does not come into force; what was before stays.
    Held(Trouble),
    /// The pass was told to stop after this step.
    Stopped(Step),
}

/// Why a pass could not be finished. Nothing was removed or half written; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Somebody else has the lease.
    #[error(transparent)]
    Fenced(#[from] FenceError),
    /// Another pass moved the source.
    #[error(transparent)]
    Moved(#[from] AdvanceError),
    /// What is in force cannot be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The plan was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// PostgreSQL did not do what was asked.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl PassError {
    /// Whether this process lost the lease and has to get it again.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced(FenceError::Stale(_)) | Self::Apply(ApplyError::Fenced(FenceError::Stale(_))))
    }

    /// Whether PostgreSQL was away, and nothing is wrong with the fleet.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Db(error)
            | Self::Fenced(FenceError::Db(error))
            | Self::Moved(AdvanceError::Db(error))
            | Self::Observe(ObserveError::Db(error))
            | Self::Apply(
                ApplyError::Db(error)
                | ApplyError::Fenced(FenceError::Db(error))
                | ApplyError::Moved(AdvanceError::Db(error))
                | ApplyError::Corrupt(ObserveError::Db(error)),
            ) => error.is_unavailable(),
            _ => false,
        }
    }
}

/// Follows one source. Between passes it remembers what it read, so that a pass over an unchanged tip is cheap.
#[derive(Debug)]
pub struct Pass {
    db: Db,
    name: String,
    config: SourceConfig,
    access: GitAccess,
    data: PathBuf,
    worker: WorkerId,
    stop: Arc<AtomicBool>,
    memory: Option<Memory>,
    touched: Option<Instant>,
}

/// What a commit turned out to be.
#[derive(Debug, Clone)]
struct Memory {
    commit: String,
    base: Option<String>,
    accepted: Option<String>,
    outcome: Result<Arc<Read>, Trouble>,
}

impl Pass {
    /// Follows `config` as the source `name`; `data` is where a remote repository is kept.
    #[must_use]
    pub fn new(db: Db, name: &str, config: SourceConfig, access: GitAccess, data: PathBuf, worker: WorkerId) -> Self {
        Self {
            db,
            name: name.to_owned(),
            config,
            access,
            data,
            worker,
            stop: Arc::new(AtomicBool::new(false)),
            memory: None,
            touched: None,
        }
    }

    /// The flag that stops reading.
    #[must_use]
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// One whole pass. `again` looks at the machines too when the tip is in force already.
    ///
    /// # Errors
    /// See [`PassError`].
    pub async fn run(&mut self, lease: &Lease, again: bool) -> Result<Passed, PassError> {
        let passed = self.run_to(lease, again, Step::Apply).await;
        if let Err(error) = &passed
            && !(error.is_fenced() || error.is_unavailable())
            && let Err(unsaid) = self.failed(lease, error).await
        {
            tracing::debug!(error = %chain(&unsaid), "the state of the source was not stored");
        }
        passed
    }

    /// Stores that a pass failed, for whoever looks; the next one that does not clears it.
    async fn failed(&self, lease: &Lease, error: &PassError) -> Result<(), PassError> {
        let mut txn = self.begin(lease).await?;
        let reason = chain(error);
        sources::set_state(&mut txn, &self.name, SourceState::ApplyFailed.as_str(), Some(&reason), None).await?;
        txn.commit().await?;
        Ok(())
    }

    /// A pass that stops after a step, as a process does that dies there.
    ///
    /// # Errors
    /// See [`PassError`].
    pub async fn run_to(&mut self, lease: &Lease, again: bool, last: Step) -> Result<Passed, PassError> {
        let source = self.ensure(lease).await?;
        let seen = match self.look(&source).await {
            Ok(seen) => seen,
            Err(error) => return self.hold(lease, &source, None, error.into()).await,
        };
        let tip = seen.tip.clone();
        self.saw(lease, &source, &seen.branch, &seen.tip).await?;
        if last == Step::Look {
            return Ok(Passed::Stopped(last));
        }
        let in_force = source.applied.as_ref().map(|at| at.commit.clone());
        if in_force.as_deref() == Some(tip.as_str()) && source.state == SourceState::Ok.as_str() && !again {
            self.touch(lease).await?;
            return Ok(Passed::InForce { commit: tip, applied: None });
        }
        let branch = seen.branch.clone();
        let read = match self.read(seen, in_force.clone(), source.accepted.clone()).await {
            Ok(read) => read,
            Err(trouble) => return self.hold(lease, &source, Some(&tip), trouble).await,
        };
        self.advance(lease, Stage::Verified, source.verified.as_ref().map(|at| at.commit.as_str()), &tip).await?;
        if last == Step::Verify {
            return Ok(Passed::Stopped(last));
        }
        if let Some(trouble) = self.other_domain(&read.fleet.document.trust_domain.value).await? {
            return self.hold(lease, &source, Some(&tip), trouble).await;
        }
        for _ in 0..REPLANS {
            let (observed, planned) = self.plan(&read.fleet, in_force.as_deref(), &tip).await?;
            let stored = self.store_plan(lease, &source, &observed, &planned, &tip).await?;
            if last == Step::Plan {
                return Ok(Passed::Stopped(last));
            }
            if in_force.as_deref() == Some(tip.as_str()) && planned.is_settled() {
                self.settle(lease).await?;
                return Ok(Passed::InForce { commit: tip, applied: None });
            }
            let target = apply::Target {
                source: &self.name,
                branch: &branch,
                commit: &read.info,
                since: &read.since,
                plan: stored,
                trust_domain: &read.fleet.document.trust_domain.value,
                worker: self.worker,
                lease,
            };
            match apply::apply(&self.db, &planned, &observed, &target).await {
                Ok(applied) => {
                    tracing::info!(commit = %tip, assigned = applied.assigned.len(), "the fleet is in force");
                    return Ok(Passed::InForce { commit: tip, applied: Some(applied) });
                }
                Err(ApplyError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApplyError::Stale.into())
    }

    /// The fleet names another trust domain than the certificates that were issued for it.
    async fn other_domain(&self, wanted: &str) -> Result<Option<Trouble>, PassError> {
        let stored =
            control_plane::find(&self.db).await?.and_then(|row| row.trust_domain).filter(|stored| stored != wanted);
        Ok(stored.map(|stored| {
            let error = ApplyError::TrustDomain { stored, wanted: wanted.to_owned() };
            Trouble::new(SourceState::Refused, error.to_string())
        }))
    }

    async fn begin(&self, lease: &Lease) -> Result<Txn, PassError> {
        let mut txn = self.db.begin().await?;
        leases::fence(&mut txn, self.worker, lease).await?;
        Ok(txn)
    }

    /// The row of the source, pointing where the configuration points.
    async fn ensure(&self, lease: &Lease) -> Result<Source, PassError> {
        let url = self.config.url();
        let path = self.config.path.as_str();
        let stored = sources::find(&self.db, &self.name).await?;
        let pinned = stored.as_ref().filter(|stored| stored.url == url).map(|stored| stored.branch.clone());
        let branch = self.config.branch.clone().or(pinned).unwrap_or_default();
        match stored {
            Some(stored) if stored.url == url && stored.path == path && stored.branch == branch => Ok(stored),
            _ => {
                let mut txn = self.begin(lease).await?;
                let source = sources::ensure(&mut txn, &self.name, &url, &branch, path).await?;
                txn.commit().await?;
                Ok(source)
            }
        }
    }

    async fn look(&self, source: &Source) -> Result<Look, GitError> {
        let (config, access, data) = (self.config.clone(), self.access.clone(), self.data.clone());
        let pinned = Some(source.branch.clone()).filter(|branch| !branch.is_empty());
        let deadline = if matches!(config.place, Place::Local(_)) { READ_DEADLINE } else { FETCH_DEADLINE };
        self.blocking(deadline, move |stop| look(&config, &access, &data, pinned.as_deref(), stop)).await
    }

    async fn saw(&self, lease: &Lease, source: &Source, branch: &str, tip: &str) -> Result<(), PassError> {
        let before = source.remote.as_ref().map(|at| at.commit.as_str());
        if before == Some(tip) && source.branch == branch {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::set_branch(&mut txn, &self.name, branch).await?;
        sources::advance(&mut txn, &self.name, Stage::Remote, before, tip).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Judges the tip and reads its tree, unless that was done before with the same facts.
    async fn read(&mut self, seen: Look, base: Option<String>, accepted: Option<String>) -> Result<Arc<Read>, Trouble> {
        // Once it is in force, the commit is its own base.
        if let Some(memory) = &self.memory
            && (&memory.commit, &memory.accepted) == (&seen.tip, &accepted)
            && (memory.base == base || (memory.outcome.is_ok() && base.as_ref() == Some(&seen.tip)))
        {
            return memory.outcome.clone();
        }
        let commit = seen.tip.clone();
        let facts = (base.clone(), accepted.clone());
        let done = self
            .blocking(READ_DEADLINE, move |stop| {
                let brake = Brake { stop, deadline: Instant::now().checked_add(READ_DEADLINE) };
                Ok(read(&seen, facts.0.as_deref(), facts.1.as_deref(), &brake))
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

    async fn plan(&self, fleet: &Fleet, in_force: Option<&str>, tip: &str) -> Result<(Observed, Planned), PassError> {
        let observed = apply::observe(&self.db, in_force).await?;
        let now = self.db.now().await?;
        let planned = plan(fleet, &observed, now).at_commit(tip);
        Ok((observed, planned))
    }

    /// Stores the plan unless the same one is stored. A plan that changes nothing of a commit in force is not kept.
    async fn store_plan(
        &self,
        lease: &Lease,
        source: &Source,
        observed: &Observed,
        planned: &Planned,
        tip: &str,
    ) -> Result<Option<PlanId>, PassError> {
        let advances = source.planned.as_ref().map(|at| at.commit.as_str()) != Some(tip);
        if !advances && planned.is_settled() {
            return Ok(None);
        }
        let doc = planned.plan.to_bytes();
        let digest = schema::digest::Digest::of(&doc);
        let known = plans::find_by_commit(&self.db, &self.name, tip).await?;
        let known =
            known.filter(|known| known.digest == digest && known.state == plans::PlanState::Open).map(|known| known.id);
        if let Some(known) = known
            && !advances
        {
            return Ok(Some(known));
        }
        let planned_before =
            sources::find(&self.db, &self.name).await?.and_then(|source| source.planned).map(|at| at.commit);
        let mut txn = self.begin(lease).await?;
        let id = match known {
            Some(known) => known,
            None => {
                let id = PlanId::generate();
                let doc = String::from_utf8(doc).expect("canonical JSON is UTF-8");
                let new = plans::NewPlan {
                    id,
                    source: self.name.clone(),
                    commit: tip.to_owned(),
                    base_commit: observed.commit.clone(),
                    digest,
                    doc,
                };
                plans::insert(&mut txn, &new).await?;
                id
            }
        };
        if advances {
            sources::advance(&mut txn, &self.name, Stage::Planned, planned_before.as_deref(), tip).await?;
        }
        txn.commit().await?;
        Ok(Some(id))
    }

    async fn advance(
        &self,
        lease: &Lease,
        stage: Stage,
        expected: Option<&str>,
        commit: &str,
    ) -> Result<(), PassError> {
        if expected == Some(commit) {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::advance(&mut txn, &self.name, stage, expected, commit).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Everything is in force: says so when something else is stored.
    async fn settle(&self, lease: &Lease) -> Result<(), PassError> {
        let mut txn = self.begin(lease).await?;
        sources::set_state(&mut txn, &self.name, SourceState::Ok.as_str(), None, None).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Stores why the tip does not come into force. Nothing else changes.
    async fn hold(
        &mut self,
        lease: &Lease,
        source: &Source,
        tip: Option<&str>,
        trouble: Trouble,
    ) -> Result<Passed, PassError> {
        let same = source.state == trouble.state.as_str() && source.reason.as_deref() == Some(trouble.reason.as_str());
        if !(same && source.detail == trouble.detail) {
            tracing::warn!(source = %self.name, state = %trouble.state, reason = %trouble.reason, commit = tip, "the source is held; the last good revision stays in force");
            let mut txn = self.begin(lease).await?;
            sources::set_state(
                &mut txn,
                &self.name,
                trouble.state.as_str(),
                Some(&trouble.reason),
                trouble.detail.as_ref(),
            )
            .await?;
            txn.commit().await?;
        } else if !matches!(trouble.state, SourceState::Unreachable | SourceState::AuthFailed) {
            self.touch(lease).await?;
        }
        Ok(Passed::Held(trouble))
    }

    /// Notes now and then that the remote was looked at, so that an idle source writes next to nothing.
    async fn touch(&mut self, lease: &Lease) -> Result<(), PassError> {
        if self.touched.is_some_and(|touched| touched.elapsed() < Duration::from_secs(60)) {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::touch_checked(&mut txn, &self.name).await?;
        txn.commit().await?;
        self.touched = Some(Instant::now());
        Ok(())
    }

    /// Runs work that blocks, and tells it to stop when its time is over.
    async fn blocking<T: Send + 'static>(
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
