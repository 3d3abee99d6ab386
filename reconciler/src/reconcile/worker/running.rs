//! The runs of one worker: what is in flight, what ended, and what waits for a run of the same key.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use schema::id::WorkerId;
use store::{
    DbError,
    leases::Lease,
    outcomes::Verdict,
    queue::{self, Claim, Settlement},
};
use tokio::task::{Id, JoinSet};

use crate::reconcile::{
    Registry, Shared,
    execute::{self, Ended},
};

/// A key to run without a queue row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) key: String,
}

type Key = (String, String);

struct Flight {
    key: Key,
    lease: String,
    claim: Option<Claim>,
}

pub(super) struct Running {
    shared: Shared,
    registry: Registry,
    tasks: JoinSet<Ended>,
    flights: HashMap<Id, Flight>,
    keys: BTreeSet<Key>,
    // A claim whose key runs without a row at the moment; it starts when that run ends.
    deferred: BTreeMap<Key, Claim>,
    ended: Vec<(Flight, Ended)>,
}

impl Running {
    pub(super) fn new(shared: Shared, registry: Registry) -> Self {
        Self {
            shared,
            registry,
            tasks: JoinSet::new(),
            flights: HashMap::new(),
            keys: BTreeSet::new(),
            deferred: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// How many places are taken, by runs and by what they left to settle.
    pub(super) fn count(&self) -> usize {
        self.flights.len() + self.deferred.len() + self.ended.len()
    }

    pub(super) fn any(&self) -> bool {
        !self.flights.is_empty()
    }

    /// The leases that a run is under.
    pub(super) fn leases(&self) -> BTreeSet<String> {
        let claims = self.deferred.values().map(|claim| claim.lease.name.clone());
        let ended = self.ended.iter().map(|(flight, _)| flight.lease.clone());
        self.flights.values().map(|flight| flight.lease.clone()).chain(claims).chain(ended).collect()
    }

    /// The claims that this process knows of: of runs, of what they left to settle, and of keys that wait for a run.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let runs = self.flights.values().filter_map(|flight| flight.claim.as_ref());
        let ended = self.ended.iter().filter_map(|(flight, _)| flight.claim.as_ref());
        runs.chain(ended).chain(self.deferred.values()).cloned().collect()
    }

    pub(super) fn start_claim(&mut self, claim: Claim) {
        let key = (claim.kind.clone(), claim.key.clone());
        if self.keys.contains(&key) {
            self.deferred.insert(key, claim);
            return;
        }
        let (worker, lease) = (claim.worker, claim.lease.clone());
        self.start(key, worker, lease, Some(claim));
    }

    pub(super) fn start_unasked(&mut self, work: Work, worker: WorkerId, lease: Lease) {
        let key = (work.name.to_owned(), work.key);
        if !self.keys.contains(&key) {
            self.start(key, worker, lease, None);
        }
    }

    fn start(&mut self, key: Key, worker: WorkerId, lease: Lease, claim: Option<Claim>) {
        let reconciler = self.registry.find(&key.0).expect("only names of the registry are claimed").clone();
        let shared = self.shared.clone();
        let flight = Flight { key: key.clone(), lease: lease.name.clone(), claim };
        let name = key.1.clone();
        let task = self.tasks.spawn(async move { execute::run(&shared, &*reconciler, worker, &lease, &name).await });
        self.flights.insert(task.id(), flight);
        self.keys.insert(key);
    }

    /// Waits until at least one run ended. Safe to cancel.
    pub(super) async fn finished(&mut self) {
        let mut next = self.tasks.join_next_with_id().await;
        while let Some(result) = next {
            let (id, ended) = match result {
                Ok((id, ended)) => (id, ended),
                Err(error) => (error.id(), panicked(&error)),
            };
            if let Some(flight) = self.flights.remove(&id) {
                self.keys.remove(&flight.key);
                let waiting = self.deferred.remove(&flight.key);
                self.ended.push((flight, ended));
                if let Some(claim) = waiting {
                    self.start_claim(claim);
                }
            }
            next = self.tasks.try_join_next_with_id();
        }
    }

    /// Stores how the runs ended. Answers whether a claim was settled, after which something may be due at once.
    pub(super) async fn settle(&mut self, worker: WorkerId) -> Result<bool, DbError> {
        if self.ended.is_empty() {
            return Ok(false);
        }
        // A claim of a former id of this process is void already; its row is claimed again under another epoch.
        self.ended.retain(|(flight, _)| flight.claim.as_ref().is_none_or(|claim| claim.worker == worker));
        let settlements: Vec<Settlement<'_>> = self
            .ended
            .iter()
            .filter_map(|(flight, ended)| {
                let claim = flight.claim.as_ref()?;
                Some(Settlement { claim, verdict: ended.verdict.clone(), place: ended.place.clone() })
            })
            .collect();
        let any = !settlements.is_empty();
        if any {
            let mut txn = self.shared.db.begin().await?;
            queue::settle(&mut txn, &settlements).await?;
            txn.commit().await?;
        }
        self.ended.retain(|(flight, _)| flight.claim.is_none());
        while let Some((flight, ended)) = self.ended.last() {
            if let Some(reconciler) = self.registry.find(&flight.key.0) {
                execute::record_unasked(&self.shared, &**reconciler, &flight.key.1, ended).await?;
            }
            self.ended.pop();
        }
        Ok(any)
    }
}

fn panicked(error: &tokio::task::JoinError) -> Ended {
    tracing::error!(%error, "a run panicked");
    let message = "the run ended in a bug; the log of the process has it".to_owned();
    Ended {
        verdict: Verdict::Failed { reason: "panicked".to_owned(), message },
        place: format!("{}:{}", file!(), line!()),
    }
}
