//! What the database alone is enough for: keeping up what is in force, and going back to an earlier revision.

use std::{
    sync::{Arc, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use schema::{
    digest::Digest,
    fleet::{Fleet, Sources},
};
use serde_json::Value;
use store::{
    leases::Lease,
    quarantine::{self, Quarantined},
    renames::RenameError,
    revision_files, revisions,
    rollbacks::{self, NewRollback, Rollback, RollbackState},
    sources::Source,
};

use super::{Pass, PassError, Passed, Step, bring::Brought, bring::Candidate};
use crate::{
    apply::{ApplyError, Cause},
    custody,
    source::{CommitInfo, SourceState, history::short, read::load, tree::Brake},
};

/// How long reading stored files may take.
const READ_DEADLINE: Duration = Duration::from_secs(120);
/// How often machines may join while they are brought in line before that waits for the next pass.
const ROUNDS: usize = 5;

/// What is in force, as its files say it.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) fleet: Arc<Fleet>,
    info: CommitInfo,
    branch: String,
    /// The anchor that its commit was verified from.
    verified: Option<String>,
}

impl InForce {
    pub(super) fn of(candidate: &Candidate<'_>) -> Self {
        Self {
            fleet: Arc::clone(candidate.fleet),
            info: candidate.info.clone(),
            branch: candidate.branch.to_owned(),
            verified: candidate.verified.clone(),
        }
    }
}

/// Digests of plans in the summary of a revision.
pub(super) fn shown(digests: &Value) -> Vec<Digest> {
    digests.as_array().into_iter().flatten().filter_map(|one| one.as_str()?.parse().ok()).collect()
}

/// Why the tip stands after a rollback, and how it goes on.
pub(crate) fn rolled_back(rollback: &NewRollback, commit: &str) -> String {
    let NewRollback { revision, owner, reason, from_commit, .. } = rollback;
    format!(
        "{owner} went back to {revision} (commit {}): {reason}. A commit newer than {} comes into force as usual",
        short(commit),
        short(from_commit)
    )
}

/// Why a quarantined tip stands, and how it goes on.
pub(super) fn held(held: &Quarantined) -> String {
    let Quarantined { commit, owner, reason, .. } = held;
    let short = short(commit);
    format!(
        "{owner} put commit {short} in quarantine: {reason}. Push a newer commit, or let it go: better-compute quarantine --release {commit}"
    )
}

impl Pass {
    /// What is in force; `None` before the first revision, and when its files were not kept or are no fleet to this version.
    pub(super) async fn in_force(&mut self) -> Result<Option<Arc<InForce>>, PassError> {
        let Some(revision) = revisions::newest(&self.db, &self.name).await? else { return Ok(None) };
        if let Some(known) = &self.in_force
            && known.info.id == revision.revision.commit
            && Some(known.fleet.tree) == revision.tree_digest
        {
            return Ok(Some(Arc::clone(known)));
        }
        self.in_force = match self.stored(&revision).await? {
            Ok(fleet) => Some(Arc::new(fleet)),
            Err(why) => {
                tracing::debug!(revision = %revision.revision.id, why, "the revision in force is not planned without git");
                None
            }
        };
        Ok(self.in_force.clone())
    }

    /// Keeps the files of what is in force, when it came into force before files were kept.
    pub(super) async fn remember(&self, lease: &Lease, files: &Sources) -> Result<(), PassError> {
        let newest = revisions::newest(&self.db, &self.name).await?;
        let Some(newest) = newest.filter(|newest| newest.tree_digest.is_none()) else { return Ok(()) };
        let mut txn = self.begin(lease).await?;
        revision_files::write(&mut txn, newest.revision.id, files).await?;
        txn.commit().await?;
        Ok(())
    }

    /// A stored revision as a fleet, or why it is none.
    async fn stored(&self, revision: &revisions::Revision) -> Result<Result<InForce, String>, PassError> {
        let id = revision.revision.id;
        let files = match revision_files::read(&self.db, id).await {
            Ok(Some(files)) => files,
            Ok(None) => {
                return Ok(Err(format!(
                    "the files of {id} were not kept: it is older than this database's memory of files"
                )));
            }
            Err(error) if error.is_unavailable() => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let tree = files.digest();
        let remembered = Arc::clone(&self.remembered);
        let load = move |stop: &AtomicBool| {
            let brake = Brake { stop, deadline: Instant::now().checked_add(READ_DEADLINE) };
            let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
            load(&files, &mut remembered, &brake)
        };
        let loaded = self.blocking(READ_DEADLINE, load).await;
        let Ok(loaded) = loaded else { return Ok(Err("reading its files was interrupted".to_owned())) };
        let mut verified = None;
        if let Some(custody) = &self.custody {
            let manifest = custody::proven(&self.db, custody.signer().verifier(), id).await?;
            let signed = manifest.filter(|one| (one.files, &one.commit) == (tree, &revision.revision.commit));
            let Some(manifest) = signed else {
                return Ok(Err(format!(
                    "no manifest that this control plane signed stands behind the stored files of {id}"
                )));
            };
            let anchor = self.pinned.get().map(|pin| pin.commit.to_string());
            verified = anchor.filter(|anchor| manifest.is_verified_from(anchor));
        }
        let Some(fleet) = loaded.fleet else {
            let errors = loaded.diagnostics.iter().filter(|one| one.is_error());
            let first =
                errors.clone().next().map_or_else(String::new, |one| format!(", first {}: {}", one.at(), one.message));
            return Ok(Err(format!("this version reads {} errors in the files of {id}{first}", errors.count())));
        };
        let stored = &revision.revision;
        let info = CommitInfo {
            id: stored.commit.clone(),
            tree: stored.tree.clone(),
            parents: Vec::new(),
            author: stored.author.clone(),
            committer: stored.committer.clone(),
            subject: stored.subject.clone(),
            committed_at: stored.committed_at,
            plan: None,
        };
        Ok(Ok(InForce { fleet: Arc::new(fleet), info, branch: stored.branch.clone(), verified }))
    }

    /// Brings machines in line with what is in force, whatever the tip is: those that joined, and those that a freeze, a pin
    /// or a suspension let go.
    pub(super) async fn keep(&mut self, lease: &Lease, source: &Source) -> Result<(), PassError> {
        let Some(in_force) = self.in_force().await? else { return Ok(()) };
        let candidate = Candidate {
            fleet: &in_force.fleet,
            before: None,
            files: None,
            info: &in_force.info,
            since: &[],
            branch: &in_force.branch,
            shown: Vec::new(),
            verified: in_force.verified.clone(),
            cause: Cause::Keep,
        };
        for _ in 0..ROUNDS {
            match self.bring(lease, source, &candidate, Step::Apply).await? {
                Brought::Applied(applied) if applied.newcomers => {}
                Brought::Applied(_) | Brought::Settled | Brought::Stopped => break,
            }
        }
        Ok(())
    }

    /// Carries a rollback out. `None` when that cannot be done, which is stored with the reason; the pass then goes on.
    pub(super) async fn roll_back(
        &mut self,
        lease: &Lease,
        source: &Source,
        wanted: Rollback,
        last: Step,
    ) -> Result<Option<Passed>, PassError> {
        let Some(revision) = revisions::find(&self.db, wanted.new.revision).await? else {
            return self.refuse(lease, &wanted, "there is no such revision").await;
        };
        let commit = revision.revision.commit.clone();
        let in_force = source.applied.as_ref().map(|at| at.commit.as_str());
        if in_force == Some(commit.as_str()) {
            return self.refuse(lease, &wanted, "it is in force already").await;
        }
        if in_force != Some(wanted.new.from_commit.as_str()) {
            return self.refuse(lease, &wanted, "another commit came into force since it was asked for").await;
        }
        let (fleet, files) = match self.stored(&revision).await? {
            Ok(fleet) => (fleet, revision_files::read(&self.db, revision.revision.id).await?),
            Err(why) => return self.refuse(lease, &wanted, &why).await,
        };
        if self.pinned.get().is_some() && fleet.verified.is_none() {
            let why = format!(
                "nobody has verified commit {} from the anchor that the fleet is pinned to: make it the tip again by a signed commit",
                short(&commit)
            );
            return self.refuse(lease, &wanted, &why).await;
        }
        if let Some(trouble) = self.other_domain(&fleet.fleet.document.trust_domain.value).await? {
            return self.refuse(lease, &wanted, &trouble.reason).await;
        }
        if last < Step::Plan {
            return Ok(Some(Passed::Stopped(last)));
        }
        let candidate = Candidate {
            fleet: &fleet.fleet,
            before: None,
            files: files.as_ref(),
            info: &fleet.info,
            since: &[],
            branch: &fleet.branch,
            shown: wanted.new.plan.into_iter().collect(),
            verified: fleet.verified.clone(),
            cause: Cause::Rollback(&wanted),
        };
        match self.bring(lease, source, &candidate, last).await {
            Ok(Brought::Stopped) => Ok(Some(Passed::Stopped(last))),
            Ok(Brought::Settled | Brought::Applied(_)) => {
                tracing::warn!(commit, owner = %wanted.new.owner, reason = %wanted.new.reason, "the fleet is back at an earlier revision");
                self.in_force = Some(Arc::new(InForce::of(&candidate)));
                self.batches(lease, &fleet.fleet, None).await?;
                Ok(Some(Passed::RolledBack { commit }))
            }
            Err(PassError::Apply(ApplyError::Taken(error @ RenameError::Taken { .. }))) => {
                self.refuse(lease, &wanted, &error.to_string()).await
            }
            Err(error) => Err(error),
        }
    }

    async fn refuse(&self, lease: &Lease, wanted: &Rollback, why: &str) -> Result<Option<Passed>, PassError> {
        tracing::warn!(revision = %wanted.new.revision, why, state = %SourceState::Quarantined, "a rollback cannot be carried out");
        let mut txn = self.begin(lease).await?;
        rollbacks::end(&mut txn, wanted.new.id, RollbackState::Refused, why).await?;
        for commit in &wanted.new.quarantined {
            quarantine::lift(&mut txn, &self.name, commit).await?;
        }
        txn.commit().await?;
        Ok(None)
    }
}
