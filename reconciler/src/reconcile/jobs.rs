//! The reconcilers one deterministic pass at a time: nothing runs by itself, nothing runs beside anything.

use schema::{id::WorkerId, shard};
use std::time::Duration;
use store::{
    DbError, leases,
    outcomes::Verdict,
    queue::{self, Settlement},
};

use super::{Reconciler, Registry, Shared, execute};

/// One run of a pass, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The key.
    pub key: String,
    /// How it ended.
    pub verdict: Verdict,
    /// The place in the code that decided.
    pub place: String,
}

/// Runs reconcilers by hand, as one worker that holds every lease.
#[derive(Debug)]
pub struct Jobs {
    shared: Shared,
    registry: Registry,
    worker: WorkerId,
}

const TTL: Duration = Duration::from_secs(3_600);
const LIMIT: u32 = 10_000;

impl Jobs {
    /// Every reconciler of `registry`.
    #[must_use]
    pub fn new(shared: Shared, registry: Registry) -> Self {
        Self { shared, registry, worker: WorkerId::generate() }
    }

    /// Runs every key of the reconciler `name` that is due, in the order of the keys, and then its periodic keys.
    ///
    /// # Errors
    /// When the database does not answer.
    ///
    /// # Panics
    /// When no reconciler has this name.
    pub async fn tick(&self, name: &str) -> Result<Vec<Ran>, DbError> {
        let reconciler = self.find(name);
        self.take_leases(reconciler).await?;
        let mut claims = queue::claim(&self.shared.db, self.worker, &[reconciler.kind().name], LIMIT).await?;
        claims.sort_by(|a, b| a.key.cmp(&b.key));
        let mut ran = Vec::new();
        for claim in claims {
            let ended = execute::run(&self.shared, reconciler, self.worker, &claim.lease, &claim.key).await;
            let mut txn = self.shared.db.begin().await?;
            let settlement = Settlement { claim: &claim, verdict: ended.verdict.clone(), place: ended.place.clone() };
            queue::settle(&mut txn, &[settlement]).await?;
            txn.commit().await?;
            ran.push(Ran { key: claim.key, verdict: ended.verdict, place: ended.place });
        }
        for periodic in reconciler.periodic() {
            if !ran.iter().any(|ran| ran.key == periodic.key) {
                ran.push(self.run_unasked(reconciler, periodic.key).await?);
            }
        }
        Ok(ran)
    }

    /// Runs every key that the reconciler `name` has, whether or not anything woke it.
    ///
    /// # Errors
    /// When the database does not answer.
    ///
    /// # Panics
    /// When no reconciler has this name.
    pub async fn resync(&self, name: &str) -> Result<Vec<Ran>, DbError> {
        let reconciler = self.find(name);
        self.take_leases(reconciler).await?;
        let shards: Vec<u16> = (0..shard::COUNT).collect();
        let mut keys = execute::keys(&self.shared, reconciler, &shards).await?;
        keys.extend(reconciler.periodic().iter().map(|periodic| periodic.key.to_owned()));
        let mut ran = Vec::new();
        for key in keys {
            ran.push(self.run_unasked(reconciler, &key).await?);
        }
        Ok(ran)
    }

    /// Ticks every reconciler until nothing is due.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn settle(&self) -> Result<Vec<Ran>, DbError> {
        let mut all = Vec::new();
        loop {
            let mut due = Vec::new();
            for name in self.registry.names() {
                let periodic: Vec<&str> = self.find(name).periodic().iter().map(|periodic| periodic.key).collect();
                due.extend(self.tick(name).await?.into_iter().filter(|ran| !periodic.contains(&ran.key.as_str())));
            }
            if due.is_empty() {
                return Ok(all);
            }
            all.append(&mut due);
        }
    }

    async fn run_unasked(&self, reconciler: &dyn Reconciler, key: &str) -> Result<Ran, DbError> {
        let name = reconciler.kind().lease(key);
        let lease = leases::acquire(&self.shared.db, self.worker, &[name], TTL).await?.pop();
        let lease = lease.expect("nobody else holds leases beside these jobs");
        let ended = execute::run(&self.shared, reconciler, self.worker, &lease, key).await;
        execute::record_unasked(&self.shared, reconciler, key, &ended).await?;
        Ok(Ran { key: key.to_owned(), verdict: ended.verdict, place: ended.place })
    }

    async fn take_leases(&self, reconciler: &dyn Reconciler) -> Result<(), DbError> {
        let kind = reconciler.kind();
        let names: Vec<String> = match kind.shard_by {
            queue::ShardBy::Key => (0..shard::COUNT).map(|shard| leases::shard(kind.role, shard)).collect(),
            queue::ShardBy::None => vec![leases::singleton(kind.name)],
        };
        leases::acquire(&self.shared.db, self.worker, &names, TTL).await?;
        Ok(())
    }

    fn find(&self, name: &str) -> &dyn Reconciler {
        &**self.registry.find(name).expect("a reconciler of the registry")
    }
}
