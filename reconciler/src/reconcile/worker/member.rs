//! Membership and leases: which keys this process may run.
//!
//! Each process of a role has a row; the 256 shards are divided among the live ones by rendezvous hashing, and each
//! singleton belongs to whoever got its lease first. [`Member::beat`] brings both up to date; it takes no time of its own
//! and is called at an interval well below the leases' life.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use schema::{generation::Epoch, id::WorkerId, shard};
use store::{
    Db, DbError, Role, leases,
    leases::Lease,
    queue,
    workers::{self, Membership},
};

use crate::reconcile::Registry;

/// One process in one role.
#[derive(Debug)]
pub struct Member {
    db: Db,
    role: Role,
    host: String,
    ttl: Duration,
    id: WorkerId,
    joined: bool,
    sharded: bool,
    singletons: Vec<String>,
    held: BTreeMap<String, Epoch>,
}

impl Member {
    /// A member that has not joined yet. Its leases follow from what it runs.
    #[must_use]
    pub fn new(db: Db, role: Role, host: &str, ttl: Duration, registry: &Registry) -> Self {
        let kinds: Vec<_> = registry.iter().map(|reconciler| reconciler.kind()).collect();
        Self {
            db,
            role,
            host: host.to_owned(),
            ttl,
            id: WorkerId::generate(),
            joined: false,
            sharded: kinds.iter().any(|kind| kind.shard_by == queue::ShardBy::Key),
            singletons: kinds
                .iter()
                .filter(|kind| kind.shard_by == queue::ShardBy::None)
                .map(|kind| leases::singleton(kind.name))
                .collect(),
            held: BTreeMap::new(),
        }
    }

    /// Its id; another one after it was silent for too long.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.id
    }

    /// The lease of this name, when it is held as far as this process knows.
    #[must_use]
    pub fn lease(&self, name: &str) -> Option<Lease> {
        self.held.get(name).map(|epoch| Lease { name: name.to_owned(), epoch: *epoch })
    }

    /// The shards whose leases are held.
    #[must_use]
    pub fn shards(&self) -> Vec<u16> {
        (0..shard::COUNT).filter(|shard| self.held.contains_key(&leases::shard(self.role, *shard))).collect()
    }

    /// Joins or says that it lives, renews, gives back what others should have unless it is `busy`, and takes what is its
    /// own and free. Answers whether leases were gained.
    ///
    /// # Errors
    /// When the database does not answer; what is held then runs out by itself.
    pub async fn beat(&mut self, busy: &BTreeSet<String>) -> Result<bool, DbError> {
        let known = if self.joined { self.say().await? } else { None };
        let membership = match known {
            Some(membership) => membership,
            None => self.join().await?,
        };
        self.held = by_name(membership.leases);
        if membership.dead && membership.live.first() == Some(&self.id) {
            workers::prune(&self.db).await?;
        }
        let live: Vec<String> = membership.live.iter().map(ToString::to_string).collect();
        let wanted = self.wanted(&live);
        let surplus: Vec<String> =
            self.held.keys().filter(|name| !wanted.contains(*name) && !busy.contains(*name)).cloned().collect();
        if !surplus.is_empty() {
            leases::release(&self.db, self.id, &surplus).await?;
            self.held.retain(|name, _| !surplus.contains(name));
        }
        let missing: Vec<String> = wanted.into_iter().filter(|name| !self.held.contains_key(name)).collect();
        if missing.is_empty() {
            return Ok(false);
        }
        let gained = leases::acquire(&self.db, self.id, &missing, self.ttl).await?;
        let any = !gained.is_empty();
        self.held.extend(by_name(gained));
        Ok(any)
    }

    async fn say(&self) -> Result<Option<Membership>, DbError> {
        workers::beat(&self.db, self.id, self.role, self.ttl).await
    }

    async fn join(&mut self) -> Result<Membership, DbError> {
        if self.joined {
            self.id = WorkerId::generate();
            self.joined = false;
        }
        bury_the_dead(&self.db, self.role, &self.host).await?;
        workers::join(&self.db, self.id, self.role, &self.host, std::process::id(), self.ttl).await?;
        self.joined = true;
        // Nobody takes a row away that is as young as this one.
        Ok(self.say().await?.unwrap_or_else(|| Membership { leases: Vec::new(), live: vec![self.id], dead: false }))
    }

    /// Gives everything back and leaves.
    ///
    /// # Errors
    /// When the database does not answer; everything then runs out by itself.
    pub async fn leave(&mut self) -> Result<(), DbError> {
        let names: Vec<String> = std::mem::take(&mut self.held).into_keys().collect();
        leases::release(&self.db, self.id, &names).await?;
        self.joined = false;
        workers::leave(&self.db, self.id).await
    }

    fn wanted(&self, live: &[String]) -> BTreeSet<String> {
        let me = self.id.to_string();
        let shards = (0..shard::COUNT).filter(|shard| self.sharded && shard::owner(*shard, live) == Some(&me));
        shards.map(|shard| leases::shard(self.role, shard)).chain(self.singletons.iter().cloned()).collect()
    }
}

/// A process of this very machine, seen from the same namespace, that is gone need not be waited for. Were it alive after
/// all, its writes are fenced.
pub(crate) async fn bury_the_dead(db: &Db, role: Role, host: &str) -> Result<(), DbError> {
    for worker in workers::live(db, Some(role)).await?.items {
        if is_gone_here(&worker, host) {
            let names: Vec<String> = leases::held(db, worker.id).await?.into_iter().map(|lease| lease.name).collect();
            leases::release(db, worker.id, &names).await?;
            workers::leave(db, worker.id).await?;
        }
    }
    Ok(())
}

/// Whether a process of this machine is gone, as far as this process can see it.
pub(super) fn is_gone_here(worker: &workers::Worker, host: &str) -> bool {
    worker.host == host && worker.pid_namespace == workers::pid_namespace() && is_gone(worker.pid)
}

fn is_gone(pid: u32) -> bool {
    Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{pid}")).exists()
}

fn by_name(leases: Vec<Lease>) -> BTreeMap<String, Epoch> {
    leases.into_iter().map(|lease| (lease.name, lease.epoch)).collect()
}
