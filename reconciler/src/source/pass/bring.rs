//! From a fleet to what is in force: observe, plan, store the plan, apply; again when the facts moved in between.

use std::sync::Arc;

use schema::{
    digest::Digest,
    fleet::{Fleet, Sources},
    id::{PlanId, RevisionId},
};
use serde_json::Value;
use store::{
    leases::Lease,
    plans, revisions,
    sources::{self, Source, Stage},
};

use super::{Pass, PassError, Step};
use crate::{
    apply::{self, Applied, ApplyError, Cause, Named},
    custody::{self, Drawing},
    join,
    plan::{Observed, Plan, Planned, Shown, Verification, plan},
    source::CommitInfo,
};

/// How often the facts may move under a plan before the pass gives up for now.
const REPLANS: usize = 5;
/// Who is shown a plan that the source makes again.
const OURSELVES: &str = "source";
/// How many shown plans count at once.
const SHOWN: usize = 20;

/// A fleet that may come into force.
pub(super) struct Candidate<'a> {
    pub(super) fleet: &'a Arc<Fleet>,
    /// The fleet of the first parent, for a plan that was made offline.
    pub(super) before: Option<&'a Arc<Fleet>>,
    /// Its files; `None` for those that are in force.
    pub(super) files: Option<&'a Sources>,
    pub(super) info: &'a CommitInfo,
    pub(super) since: &'a [CommitInfo],
    pub(super) branch: &'a str,
    /// The plans that people were shown.
    pub(super) shown: Vec<Digest>,
    /// The anchor that its commit was verified from.
    pub(super) verified: Option<String>,
    pub(super) cause: Cause<'a>,
}

/// What became of it.
pub(super) enum Brought {
    /// There was nothing to do.
    Settled,
    /// It is in force.
    Applied(Applied),
    /// The pass ends after the plan.
    Stopped,
}

/// The plans that count for a candidate: those that its commits name, and those that machines of earlier ones wait for.
fn named(candidate: &Candidate<'_>, newest: Option<&Value>, again: bool) -> Vec<Named> {
    let mut named: Vec<Named> = Vec::new();
    let mut add = |digest, carried| {
        if named.len() < SHOWN && !named.iter().any(|known| known.digest == digest) {
            named.push(Named { digest, carried });
        }
    };
    candidate.shown.iter().for_each(|digest| add(*digest, false));
    if let Some(summary) = newest.filter(|_| !matches!(candidate.cause, Cause::Rollback(_))) {
        super::stored::shown(&summary["shown"]).into_iter().for_each(|digest| add(digest, !again));
        super::stored::shown(&summary["carried"]).into_iter().for_each(|digest| add(digest, true));
    }
    named
}

impl Pass {
    pub(super) async fn bring(
        &mut self,
        lease: &Lease,
        source: &Source,
        candidate: &Candidate<'_>,
        last: Step,
    ) -> Result<Brought, PassError> {
        let commit = candidate.info.id.as_str();
        let expected = source.applied.as_ref().map(|at| at.commit.as_str());
        for _ in 0..REPLANS {
            let mut observed = apply::observe(&self.db, &self.name).await?;
            if observed.commit.as_deref() != expected {
                return Err(ApplyError::Overtaken.into());
            }
            let newest = revisions::newest(&self.db, &self.name).await?.map(|newest| newest.revision.summary);
            let again = expected == Some(commit);
            if again {
                observed.policy = newest.as_ref().map(|summary| summary["policy"].clone()).filter(Value::is_object);
            }
            if let Cause::Rollback(rollback) = candidate.cause
                && let Some(to) = revisions::find(&self.db, rollback.new.revision).await?
            {
                observed.back = apply::renamed_since(&self.db, &self.name, to.seq).await?;
            }
            let named = named(candidate, newest.as_ref(), again);
            observed.shown = self.shown(lease, candidate, &named).await?;
            let known = |one: &&Named| !observed.shown.iter().any(|shown| shown.digest == one.digest);
            observed.missing = named.iter().filter(known).map(|one| one.digest).collect();
            let now = self.db.now().await?;
            let mut planned = plan(candidate.fleet, &observed, now).at_commit(commit);
            if candidate.verified.is_some() {
                planned.plan.verification = Verification::Verified;
            }
            self.next_edge = planned.delta.next_edge;
            self.waits = !planned.delta.holds.is_empty();
            let waiting = planned.plan.nodes.iter().any(|node| !node.held.is_empty());
            let stored = self.store_plan(lease, source, &observed, &planned, candidate).await?;
            if last == Step::Plan {
                return Ok(Brought::Stopped);
            }
            if expected == Some(commit) && planned.is_settled() && !matches!(candidate.cause, Cause::Rollback(_)) {
                self.attest(lease, candidate, &observed, &planned).await?;
                return Ok(Brought::Settled);
            }
            let manifest = match &self.custody {
                Some(custody) if apply::makes_revision(&planned, &observed, candidate.info) => {
                    let drawing = Drawing {
                        source: &self.name,
                        revision: RevisionId::generate(),
                        commit: candidate.info,
                        verified: candidate.verified.clone(),
                        fleet: candidate.fleet,
                        observed: &observed,
                        planned: &planned,
                    };
                    Some(custody::draw(&self.db, custody, &drawing).await?)
                }
                _ => None,
            };
            let target = apply::Target {
                source: &self.name,
                branch: candidate.branch,
                commit: candidate.info,
                since: candidate.since,
                files: candidate.files,
                cause: candidate.cause,
                shown: if waiting { &named } else { &[] },
                plan: stored,
                manifest: manifest.as_ref(),
                trust_domain: &candidate.fleet.document.trust_domain.value,
                worker: self.worker,
                lease,
            };
            match apply::apply(&self.db, &planned, &observed, &target).await {
                Ok(applied) => return Ok(Brought::Applied(applied)),
                Err(ApplyError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApplyError::Stale.into())
    }

    /// Sees that what is in force is signed as it should be. Only what was read from git can make good what is missing.
    async fn attest(
        &self,
        lease: &Lease,
        candidate: &Candidate<'_>,
        observed: &Observed,
        planned: &Planned,
    ) -> Result<(), PassError> {
        let (Some(custody), Cause::Tip) = (&self.custody, candidate.cause) else { return Ok(()) };
        let Some(newest) = revisions::newest(&self.db, &self.name).await? else { return Ok(()) };
        let drawing = Drawing {
            source: &self.name,
            revision: newest.revision.id,
            commit: candidate.info,
            verified: candidate.verified.clone(),
            fleet: candidate.fleet,
            observed,
            planned,
        };
        let Some(attested) = custody::attest(&self.db, custody, &drawing).await? else { return Ok(()) };
        let mut txn = self.begin(lease).await?;
        attested.write(&mut txn).await?;
        txn.commit().await?;
        tracing::info!(revision = %newest.revision.id, "what is in force is signed anew");
        Ok(join::wake_nodes(&self.db).await?)
    }

    /// The plans that people were shown: stored ones, and ones that were made offline from the same files.
    async fn shown(
        &mut self,
        lease: &Lease,
        candidate: &Candidate<'_>,
        named: &[Named],
    ) -> Result<Vec<Shown>, PassError> {
        let mut shown = Vec::new();
        for Named { digest: wanted, carried } in named {
            if let Some(known) = self.shown.iter().find(|known| known.digest == *wanted) {
                shown.push(Shown { carried: *carried, ..known.clone() });
                continue;
            }
            let stored = plans::find_by_digest(&self.db, &self.name, wanted).await?;
            let stored = stored.and_then(|stored| serde_json::from_str::<Plan>(&stored.doc).ok());
            let found = match stored.filter(|plan| plan.digest() == *wanted) {
                Some(plan) => Some(plan),
                None => self.shown_offline(lease, candidate, *wanted).await?,
            };
            shown.extend(found.map(|plan| Shown { carried: *carried, ..Shown::of(&plan) }));
        }
        self.shown.clone_from(&shown);
        Ok(shown)
    }

    /// Makes the plan that the trailer names again, from the first parent or from what is in force, and keeps it: its base
    /// is gone once the commit is in force.
    async fn shown_offline(
        &mut self,
        lease: &Lease,
        candidate: &Candidate<'_>,
        wanted: Digest,
    ) -> Result<Option<Plan>, PassError> {
        let in_force = self.in_force().await?;
        let now = self.db.now().await?;
        for base in candidate.before.into_iter().chain(in_force.as_ref().map(|in_force| &in_force.fleet)) {
            let plan = plan(candidate.fleet, &Observed::from_fleet(base), now).at_commit(&candidate.info.id).plan;
            if plan.digest() == wanted {
                let new = plans::NewPlan {
                    id: PlanId::generate(),
                    source: self.name.clone(),
                    commit: Some(candidate.info.id.clone()),
                    base_commit: None,
                    digest: wanted,
                    doc: String::from_utf8(plan.to_bytes()).expect("canonical JSON is UTF-8"),
                };
                let mut txn = self.begin(lease).await?;
                plans::show(&mut txn, &new, OURSELVES).await?;
                txn.commit().await?;
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// Stores the plan unless the same one is stored. A plan that changes nothing of a commit in force is not kept.
    async fn store_plan(
        &self,
        lease: &Lease,
        source: &Source,
        observed: &Observed,
        planned: &Planned,
        candidate: &Candidate<'_>,
    ) -> Result<Option<PlanId>, PassError> {
        let tip = candidate.info.id.as_str();
        let advances =
            matches!(candidate.cause, Cause::Tip) && source.planned.as_ref().map(|at| at.commit.as_str()) != Some(tip);
        if !advances && planned.is_settled() {
            return Ok(None);
        }
        let doc = String::from_utf8(planned.plan.to_bytes()).expect("canonical JSON is UTF-8");
        let known = plans::find_by_commit(&self.db, &self.name, tip).await?;
        let known =
            known.filter(|known| known.state == plans::PlanState::Open && known.doc == doc).map(|known| known.id);
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
                let new = plans::NewPlan {
                    id,
                    source: self.name.clone(),
                    commit: Some(tip.to_owned()),
                    base_commit: observed.commit.clone(),
                    digest: planned.plan.digest(),
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
}
