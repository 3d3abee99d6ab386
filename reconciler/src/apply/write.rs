//! The transaction.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    fleet::Sources,
    id::{NodeId, PlanId, RevisionId, WorkerId},
    node::{Hold, HoldSource},
    object::ObjectRef,
};
use serde_json::json;
use store::{
    Db, DbError, Txn, audit,
    control_plane::{self, TrustDomainError},
    fleet_holds,
    leases::{self, FenceError, Lease},
    manifests, node_holds, nodes, placements, plans, pools, quarantine, queue,
    renames::{self, RenameError},
    revision_files, revisions,
    rollbacks::{self, Rollback, RollbackState},
    sources::{self, AdvanceError, Stage},
};

use super::observe::{ObserveError, machines, suspended};
use crate::{
    custody::Signed,
    plan::{Delta, GateWord, ObjectStanding, Observed, ObservedNode, Planned},
    source::{CommitInfo, SourceState},
};

/// Why something is brought into force.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// It is the tip of the branch.
    Tip,
    /// It is in force already, and the tip is held: machines are brought in line, the source keeps its state.
    Keep,
    /// Somebody asked for the way back to it.
    Rollback(&'a Rollback),
}

/// A plan that a trailer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Its digest.
    pub digest: Digest,
    /// Only an earlier commit named it.
    pub carried: bool,
}

/// What is applied, and by whom.
#[derive(Debug)]
pub struct Target<'a> {
    /// The source that the commit came from.
    pub source: &'a str,
    /// The branch it is on.
    pub branch: &'a str,
    /// The commit.
    pub commit: &'a CommitInfo,
    /// The commits since the one in force, oldest first.
    pub since: &'a [CommitInfo],
    /// Its files; `None` for those of the revision in force.
    pub files: Option<&'a Sources>,
    /// Why.
    pub cause: Cause<'a>,
    /// Plans that people were shown and that machines may yet wait for; those that only an earlier commit named are marked.
    pub shown: &'a [Named],
    /// The stored plan that this carries out.
    pub plan: Option<PlanId>,
    /// What the revision consists of, signed, for when there is one.
    pub(crate) manifest: Option<&'a Signed>,
    /// The fleet's trust domain.
    pub trust_domain: &'a str,
    /// Who applies it.
    pub worker: WorkerId,
    /// The lease of the source.
    pub lease: &'a Lease,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The new revision; `None` when only machines were brought in line, or nothing had to be done.
    pub revision: Option<RevisionId>,
    /// Machines whose assignment changed.
    pub assigned: Vec<NodeId>,
    /// Machines joined since the plan was made and are not brought in line yet: plan again.
    pub newcomers: bool,
}

/// Why nothing was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A fact that the plan was made of changed since: plan again.
    #[error("what the plan was made of has changed; it has to be made again")]
    Stale,
    /// Meanwhile somebody put the commit in quarantine or asked for the way back to another: look again.
    #[error("somebody stopped the commit meanwhile")]
    Overtaken,
    /// A name that `moved` gives is taken.
    #[error(transparent)]
    Taken(#[from] RenameError),
    /// The fleet names another trust domain than its certificates.
    #[error("the fleet says trust-domain {wanted:?}, and its certificates were issued for {stored:?}")]
    TrustDomain {
        /// What is in force.
        stored: String,
        /// What the document says.
        wanted: String,
    },
    /// Somebody else has the lease of the source.
    #[error(transparent)]
    Fenced(#[from] FenceError),
    /// The commit in force is another one by now.
    #[error(transparent)]
    Moved(#[from] AdvanceError),
    /// A stored document does not decode.
    #[error(transparent)]
    Corrupt(#[from] ObserveError),
    /// PostgreSQL did not do what was asked.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl From<TrustDomainError> for ApplyError {
    fn from(error: TrustDomainError) -> Self {
        match error {
            TrustDomainError::Differs { stored, wanted } => Self::TrustDomain { stored, wanted },
            TrustDomainError::Db(error) => Self::Db(error),
            TrustDomainError::Missing => Self::Stale,
        }
    }
}

/// Brings a plan into force. `observed` is what the plan was made of.
///
/// # Errors
/// See [`ApplyError`]; nothing is written then.
pub async fn apply(
    db: &Db,
    planned: &Planned,
    observed: &Observed,
    target: &Target<'_>,
) -> Result<Applied, ApplyError> {
    let delta = &planned.delta;
    let mut txn = db.begin().await?;
    leases::fence(&mut txn, target.worker, target.lease).await?;
    let moves_on = moves_on(observed, target.commit);
    advance(&mut txn, observed, target, moves_on).await?;
    if suspended(&mut txn, observed).await? != observed.suspensions {
        return Err(ApplyError::Stale);
    }
    // From here on nobody joins a pool until the commit: a join reads its pool's row under a shared lock.
    pools::lock_all(&mut txn).await?;
    let mut present = machines(&mut txn).await?;
    let places = placements::list(&mut txn).await?;
    let newcomers = present != observed.nodes;
    if newcomers && !(only_joined(&present, &observed.nodes) && takes_nothing_away(delta)) {
        return Err(ApplyError::Stale);
    }
    control_plane::set_trust_domain(&mut txn, target.trust_domain).await?;
    if !delta.moved.is_empty() {
        // A machine is known by its id, which is all that its certificate names: the session goes on.
        renames::apply(&mut txn, &delta.moved).await?;
        present = machines(&mut txn).await?;
    }

    let targets: Vec<pools::Target> = delta
        .targets
        .iter()
        .map(|(digest, row)| pools::Target {
            digest: *digest,
            pool: row.pool.clone(),
            profile: row.profile.clone(),
            doc: row.doc.clone(),
        })
        .collect();
    pools::insert_targets(&mut txn, &targets).await?;
    let revision = is_revision(planned, moves_on)
        .then(|| target.manifest.map_or_else(RevisionId::generate, |signed| signed.manifest.revision));
    if let Some(revision) = revision {
        write_revision(&mut txn, revision, planned, observed, target).await?;
        if let Some(signed) = target.manifest {
            manifests::put(&mut txn, &signed.rows()).await?;
        }
    }
    let assigned = write_machines(&mut txn, delta, &present).await?;
    placements::follow(&mut txn, &places).await?;
    write_holds(&mut txn, delta).await?;
    if let Some(plan) = target.plan {
        plans::set_state(&mut txn, plan, plans::PlanState::Applied).await?;
    }
    match target.cause {
        Cause::Tip => {
            sources::follow(&mut txn, target.source).await?;
            sources::set_state(&mut txn, target.source, SourceState::Ok.as_str(), None, None).await?;
        }
        Cause::Keep => {}
        Cause::Rollback(rollback) => {
            let reason = crate::source::rolled_back(&rollback.new, &target.commit.id);
            sources::set_state(&mut txn, target.source, SourceState::Quarantined.as_str(), Some(&reason), None).await?;
        }
    }
    if revision.is_some() || !delta.is_empty() {
        let detail = json!({
            "commit": target.commit.id,
            "base": observed.commit,
            "plan": target.plan,
            "revision": revision,
            "counts": planned.plan.counts,
            "assigned": assigned.len(),
            "rollback": target.rollback().map(|rollback| rollback.new.id),
        });
        audit::append(&mut txn, "source", "fleet.apply", target.source, &detail).await?;
    }
    txn.commit().await?;
    Ok(Applied { revision, assigned, newcomers })
}

fn moves_on(observed: &Observed, commit: &CommitInfo) -> bool {
    observed.commit.as_deref() != Some(commit.id.as_str())
}

/// Whether applying a plan makes a revision, and does not only bring machines in line.
pub(crate) fn makes_revision(planned: &Planned, observed: &Observed, commit: &CommitInfo) -> bool {
    is_revision(planned, moves_on(observed, commit))
}

const fn is_revision(planned: &Planned, moves_on: bool) -> bool {
    let delta = &planned.delta;
    moves_on || !(delta.objects.is_empty() && delta.pools.is_empty() && delta.moved.is_empty())
}

impl<'a> Target<'a> {
    const fn rollback(&self) -> Option<&'a Rollback> {
        match self.cause {
            Cause::Rollback(rollback) => Some(rollback),
            Cause::Tip | Cause::Keep => None,
        }
    }
}

/// Moves the source to the commit, unless somebody stopped that: both lock the row of the source.
async fn advance(txn: &mut Txn, observed: &Observed, target: &Target<'_>, moves_on: bool) -> Result<(), ApplyError> {
    let (source, commit, expected) = (target.source, &target.commit.id, observed.commit.as_deref());
    let Some(rollback) = target.rollback() else {
        sources::advance(txn, source, Stage::Applied, expected, commit).await?;
        let stopped = moves_on
            && (quarantine::find_in(txn, source, commit).await?.is_some()
                || rollbacks::waiting_in(txn, source).await?.is_some());
        return if stopped { Err(ApplyError::Overtaken) } else { Ok(()) };
    };
    sources::roll_back(txn, source, expected, commit).await?;
    if !rollbacks::end(txn, rollback.new.id, RollbackState::Done, "").await? {
        return Err(ApplyError::Overtaken);
    }
    if let Some(before) = expected
        && quarantine::find_in(txn, source, before).await?.is_none()
    {
        let new = &rollback.new;
        let reason = format!("rolled back: {}", new.reason);
        quarantine::place(txn, source, before, &new.owner, &reason, &new.requested_by).await?;
    }
    Ok(())
}

/// Whether every machine that the plan was made of is there unchanged, beside others.
fn only_joined(present: &[ObservedNode], planned: &[ObservedNode]) -> bool {
    let present: BTreeMap<Option<NodeId>, &ObservedNode> = present.iter().map(|node| (node.id, node)).collect();
    planned.iter().all(|node| present.get(&node.id) == Some(&node))
}

/// Whether a machine that the plan does not know can still have everything that its pool and its document give it.
fn takes_nothing_away(delta: &Delta) -> bool {
    delta.removed_pools.is_empty()
        && delta.moved.is_empty()
        && delta.objects.iter().all(|row| row.standing == ObjectStanding::Declared)
}

fn named(all: &[Named], carried: bool) -> Vec<Digest> {
    all.iter().filter(|one| one.carried == carried).map(|one| one.digest).collect()
}

async fn write_revision(
    txn: &mut Txn,
    revision: RevisionId,
    planned: &Planned,
    observed: &Observed,
    target: &Target<'_>,
) -> Result<(), DbError> {
    let delta = &planned.delta;
    let commit = target.commit;
    let rollback = target.rollback();
    let new = revisions::NewRevision {
        id: revision,
        source: target.source.to_owned(),
        commit: commit.id.clone(),
        tree: commit.tree.clone(),
        branch: target.branch.to_owned(),
        author: commit.author.clone(),
        committer: commit.committer.clone(),
        subject: commit.subject.clone(),
        committed_at: commit.committed_at,
        applied_by: rollback.map_or_else(|| "source".to_owned(), |rollback| rollback.new.owner.clone()),
        digest: in_force(delta, observed),
        summary: json!({
            "base": observed.commit,
            "counts": planned.plan.counts,
            "since": target.since.iter().rev().take(100).collect::<Vec<_>>(),
            "shown": named(target.shown, false),
            "carried": named(target.shown, true),
            "policy": delta.policy,
            "moved": delta.moved,
            "rollback": rollback.map(|rollback| json!({
                "id": rollback.new.id,
                "to": rollback.new.revision,
                "from": observed.commit,
                "owner": rollback.new.owner,
                "reason": rollback.new.reason,
            })),
        }),
        plan: target.plan,
    };
    let mut changes: Vec<revisions::ObjectChange> = delta
        .objects
        .iter()
        .map(|row| revisions::ObjectChange {
            object: row.object.clone(),
            digest: row.digest,
            doc: row.doc.clone(),
            file: row.file.clone(),
            line: row.line,
            state: match row.standing {
                ObjectStanding::Declared => revisions::ObjectState::Declared,
                ObjectStanding::Retained => revisions::ObjectState::Retained,
                ObjectStanding::Removed => revisions::ObjectState::Removed,
            },
        })
        .collect();
    changes.extend(delta.moved.iter().filter_map(|(from, _)| {
        let held = observed.objects.get(from)?;
        Some(revisions::ObjectChange {
            object: from.clone(),
            digest: held.digest,
            doc: String::from_utf8(schema::canonical::to_vec(&held.doc).ok()?).ok()?,
            file: held.file.clone(),
            line: held.line,
            state: revisions::ObjectState::Moved,
        })
    }));
    revisions::insert(txn, &new, &changes).await?;
    match target.files {
        Some(files) => revision_files::write(txn, revision, files).await?,
        None => revision_files::keep(txn, revision).await?,
    }
    let rows: Vec<pools::NewPool> = delta
        .pools
        .iter()
        .map(|row| pools::NewPool {
            name: row.name.clone(),
            site: row.site.clone(),
            class: row.class,
            owner_tenant: None,
            policy: row.policy.clone(),
            target: Some(row.target),
            profile_targets: row.profile_targets.clone(),
        })
        .collect();
    pools::upsert(txn, revision, &rows).await?;
    pools::delete(txn, &delta.removed_pools).await
}

/// The digest over the address and the digest of every object that is in force afterwards.
fn in_force(delta: &Delta, observed: &Observed) -> Digest {
    let mut objects: BTreeMap<&ObjectRef, Digest> =
        observed.objects.iter().map(|(object, held)| (object, held.digest)).collect();
    for row in &delta.objects {
        match row.standing {
            ObjectStanding::Removed => objects.remove(&row.object),
            ObjectStanding::Declared | ObjectStanding::Retained => objects.insert(&row.object, row.digest),
        };
    }
    let objects: BTreeMap<String, Digest> =
        objects.into_iter().map(|(object, digest)| (object.to_string(), digest)).collect();
    schema::canonical::digest(&objects).expect("digests serialise")
}

/// Writes what documents say about machines and wakes their reconcilers.
async fn write_machines(txn: &mut Txn, delta: &Delta, present: &[ObservedNode]) -> Result<Vec<NodeId>, DbError> {
    let rows: Vec<nodes::Declared> = delta
        .nodes
        .iter()
        .map(|row| nodes::Declared {
            id: row.id,
            site: row.site.clone(),
            pool: row.pool.clone(),
            role: row.role,
            labels: row.labels.clone(),
            declared: row.declared,
            target: row.target,
            target_overlay: row.overlay.clone(),
            assign: row.assign,
        })
        .collect();
    let assigned = if rows.is_empty() { Vec::new() } else { nodes::declare(txn, &rows).await? };
    let holds: Vec<(NodeId, Option<Hold>)> =
        delta.nodes.iter().filter(|row| row.hold_changes).map(|row| (row.id, row.hold.clone())).collect();
    if !holds.is_empty() {
        node_holds::replace_git(txn, &holds).await?;
    }
    queue::enqueue(txn, &queue::NODESPEC, assigned.iter()).await?;
    let changed = |node: &&ObservedNode| {
        node.pool.as_ref().is_some_and(|pool| delta.pools.iter().any(|row| row.document_changes && row.name == *pool))
    };
    let judged = delta.nodes.iter().map(|row| row.id).chain(present.iter().filter(changed).filter_map(|node| node.id));
    queue::enqueue(txn, &queue::NODE, judged).await?;
    Ok(assigned)
}

async fn write_holds(txn: &mut Txn, delta: &Delta) -> Result<(), DbError> {
    if !delta.holds_change {
        return Ok(());
    }
    for gate in GateWord::ALL {
        let holds: Vec<fleet_holds::NewFleetHold> = delta
            .holds
            .iter()
            .filter(|hold| hold.gate == gate)
            .map(|hold| fleet_holds::NewFleetHold {
                subject: hold.subject.to_string(),
                hold: Hold {
                    source: HoldSource::Git,
                    owner: hold.owner.clone(),
                    reason: hold.reason.clone(),
                    until: hold.until,
                    place: hold.place.clone(),
                },
            })
            .collect();
        fleet_holds::replace(txn, gate.as_str(), HoldSource::Git, &holds).await?;
    }
    Ok(())
}
