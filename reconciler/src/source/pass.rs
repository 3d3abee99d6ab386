//! One pass over the source: look, judge, read, plan, apply. Each step leaves its mark in the database before the next
//! one begins, and all of it can be run again from any point: a process that dies in between costs time only.

//!
//! What is in force does not need git: while the tip is held, or its host away, machines are brought in line with the
//! files of the revision in force, and a rollback brings an earlier one back into force ([`stored`]).

mod anew;
mod batches;
mod bring;
mod checkpoint;
mod hear;
mod marks;
mod overlooked;
mod plans;
mod propose;
mod reading;
mod stored;
mod verify;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Instant,
};

use schema::{id::WorkerId, time::Timestamp};
use store::{
    Db, DbError, control_plane,
    leases::{FenceError, Lease},
    quarantine,
    renames::RenameError,
    rollbacks,
    sources::{AdvanceError, Source, Stage},
};

use super::{
    GitAccess, SourceConfig, SourceState, Trouble,
    git::chain,
    read::{Read, Remembered},
};
use crate::{
    apply::{Applied, ApplyError, Cause, ObserveError},
    custody::SourceCustody,
    plan::Shown,
    trust::Pinned,
};
use anew::Anew;
use batches::{At, Refused};
use bring::{Brought, Candidate};
use stored::InForce;

use verify::{Tip, Trusted};

pub(crate) use overlooked::{STATEMENTS, key as overlooked_key};
pub(crate) use stored::rolled_back;

/// How often a pass begins again because somebody stopped what it was about to do.
const RESTARTS: usize = 3;

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
    /// Somebody asked for the way back, and the revision of this commit is in force. The tip was not looked at.
    RolledBack {
        /// The commit.
        commit: String,
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
                | ApplyError::Taken(RenameError::Db(error))
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
    remembered: Arc<Mutex<Remembered>>,
    in_force: Option<Arc<InForce>>,
    custody: Option<Arc<SourceCustody>>,
    pinned: Pinned,
    refused: Refused,
    trusted: Trusted,
    anew: Anew,
    shown: Vec<Shown>,
    waits: bool,
    next_edge: Option<Timestamp>,
    touched: Option<Instant>,
}

/// That a branch whose tip is in force named another commit before, which is not.
fn set_back(source: &Source, tip: &str) -> Option<String> {
    match &source.remote {
        Some(before) if before.commit != tip => Some(format!(
            "the branch was set back to this commit from {}, which never came into force",
            super::history::short(&before.commit)
        )),
        _ => source.reason.clone().filter(|_| source.state == SourceState::Ok.as_str()),
    }
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
            remembered: Arc::new(Mutex::new(Remembered::at(&data))),
            data,
            worker,
            stop: Arc::new(AtomicBool::new(false)),
            memory: None,
            in_force: None,
            custody: None,
            pinned: Pinned::none(),
            refused: Refused::new(),
            trusted: Trusted::default(),
            anew: Anew::default(),
            shown: Vec::new(),
            waits: false,
            next_edge: None,
            touched: None,
        }
    }

    /// Signs what each revision consists of, and believes no stored file that it did not sign for.
    #[must_use]
    pub fn with_custody(mut self, custody: Option<Arc<SourceCustody>>) -> Self {
        self.pinned = custody.as_ref().map_or_else(Pinned::none, |custody| custody.pinned());
        self.custody = custody;
        self
    }

    /// The flag that stops reading.
    #[must_use]
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// When the last plan changes by itself: a freeze, a pin or a suspension begins or ends.
    #[must_use]
    pub const fn next_edge(&self) -> Option<Timestamp> {
        self.next_edge
    }

    /// Whether something is held that may go by itself once other things changed.
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits
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

    /// A pass that stops after a step, as a process does that dies there.
    ///
    /// # Errors
    /// See [`PassError`].
    pub async fn run_to(&mut self, lease: &Lease, again: bool, last: Step) -> Result<Passed, PassError> {
        for _ in 1..RESTARTS {
            match self.once(lease, again, last).await {
                Err(PassError::Apply(ApplyError::Overtaken)) => {}
                other => return other,
            }
        }
        self.once(lease, again, last).await
    }

    async fn once(&mut self, lease: &Lease, again: bool, last: Step) -> Result<Passed, PassError> {
        let source = self.ensure(lease).await?;
        if let Some(wanted) = rollbacks::waiting(&self.db, &self.name).await?
            && let Some(passed) = self.roll_back(lease, &source, wanted, last).await?
        {
            return Ok(passed);
        }
        self.recall().await?;
        let seen = match self.look(&source).await {
            Ok(seen) => seen,
            Err(error) => return self.held(lease, &source, None, error.into(), again).await,
        };
        let tip = seen.tip.clone();
        self.saw(lease, &source, &seen.branch, &seen.tip).await?;
        if last == Step::Look {
            return Ok(Passed::Stopped(last));
        }
        // Before anything else is asked: what people said is heard whatever becomes of the tip.
        if let Err(trouble) = self.verify(lease, &source, &Tip::of(&seen)).await? {
            return self.held(lease, &source, Some(&tip), trouble, again).await;
        }
        if let Some(trouble) = self.quarantined(&source, &tip).await? {
            return self.held(lease, &source, Some(&tip), trouble, again).await;
        }
        let in_force = source.applied.as_ref().map(|at| at.commit.clone());
        let is_in_force = in_force.as_deref() == Some(tip.as_str());
        let set_back = set_back(&source, &tip).filter(|_| is_in_force);
        if is_in_force && source.state == SourceState::Ok.as_str() && !again && set_back == source.reason {
            self.touch(lease).await?;
            self.proposals(lease, At::of(&seen)).await?;
            self.keep_plans(lease, At::of(&seen)).await?;
            self.propose(lease, At::of(&seen)).await?;
            return Ok(Passed::InForce { commit: tip, applied: None });
        }
        let (branch, at, beside) = (seen.branch.clone(), At::of(&seen), At::of(&seen));
        let base = source.rolled_back_from.clone().or(in_force);
        // A verified tip is meant, whatever it takes the place of.
        let verified = self.pinned.get().is_some();
        let accepted = if verified { Some(tip.clone()) } else { source.accepted.clone() };
        let read = match self.read(seen, base, accepted).await {
            Ok(read) => read,
            Err(trouble) => return self.held(lease, &source, Some(&tip), trouble, again).await,
        };
        if !verified {
            self.advance(lease, Stage::Verified, source.verified.as_ref().map(|at| at.commit.as_str()), &tip).await?;
        }
        if last == Step::Verify {
            return Ok(Passed::Stopped(last));
        }
        if let Some(trouble) = self.other_domain(&read.fleet.document.trust_domain.value).await? {
            return self.held(lease, &source, Some(&tip), trouble, again).await;
        }
        let candidate = Candidate {
            fleet: &read.fleet,
            before: read.before.as_ref(),
            files: Some(&read.sources),
            info: &read.info,
            since: &read.since,
            branch: &branch,
            shown: read.since.iter().rev().chain([&read.info]).filter_map(|commit| commit.plan).collect(),
            verified: self.verified(&tip),
            cause: Cause::Tip,
        };
        match self.bring(lease, &source, &candidate, last).await {
            Ok(Brought::Stopped) => Ok(Passed::Stopped(last)),
            Ok(Brought::Settled) => {
                self.settle(lease, set_back.as_deref()).await?;
                self.remember(lease, &read.sources).await?;
                self.in_force = Some(Arc::new(InForce::of(&candidate)));
                self.batches(lease, &read.fleet, Some(at)).await?;
                self.keep_plans(lease, beside.again()).await?;
                self.propose(lease, beside).await?;
                Ok(Passed::InForce { commit: tip, applied: None })
            }
            Ok(Brought::Applied(applied)) => {
                tracing::info!(commit = %tip, assigned = applied.assigned.len(), "the fleet is in force");
                self.in_force = Some(Arc::new(InForce::of(&candidate)));
                self.batches(lease, &read.fleet, Some(at)).await?;
                self.keep_plans(lease, beside.again()).await?;
                self.propose(lease, beside).await?;
                Ok(Passed::InForce { commit: tip, applied: Some(applied) })
            }
            Err(PassError::Apply(ApplyError::Taken(error @ RenameError::Taken { .. }))) => {
                let way = format!("{error}; remove what has the name, or choose another one in `moved`");
                let trouble = Trouble::new(SourceState::Refused, way);
                self.held(lease, &source, Some(&tip), trouble, again).await
            }
            Err(error) => Err(error),
        }
    }

    /// Stores why the tip is held, and brings machines in line with what is in force all the same.
    async fn held(
        &mut self,
        lease: &Lease,
        source: &Source,
        tip: Option<&str>,
        trouble: Trouble,
        again: bool,
    ) -> Result<Passed, PassError> {
        self.mend(trouble.state);
        let passed = self.hold(lease, source, tip, trouble).await?;
        if again {
            match self.keep(lease, source).await {
                Err(error) if error.is_fenced() || error.is_unavailable() => return Err(error),
                Err(error) => tracing::warn!(error = %chain(&error), "what is in force was not looked at again"),
                Ok(()) => {}
            }
        }
        Ok(passed)
    }

    /// The anchor that the tip was verified from.
    fn verified(&self, tip: &str) -> Option<String> {
        let pin = self.pinned.get().filter(|_| self.trusted.has_reached(tip))?;
        Some(pin.commit.to_string())
    }

    /// Somebody keeps the tip from coming into force.
    async fn quarantined(&self, source: &Source, tip: &str) -> Result<Option<Trouble>, PassError> {
        let Some(held) = quarantine::find(&self.db, &self.name, tip).await? else { return Ok(None) };
        let back = match (&source.rolled_back_from, &source.applied) {
            (Some(_), Some(applied)) => {
                let done = rollbacks::latest_done(&self.db, &self.name).await?;
                done.map(|rollback| rolled_back(&rollback.new, &applied.commit))
            }
            _ => None,
        };
        let reason = back.unwrap_or_else(|| stored::held(&held));
        Ok(Some(Trouble::new(SourceState::Quarantined, reason)))
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
}
