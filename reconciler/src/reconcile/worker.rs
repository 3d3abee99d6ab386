//! Runs the reconcilers of one role in one process.
//!
//! ```text
//!            poke, due time, lease gained                resync, periodic keys
//!                        │                                        │
//!  beat ──▶ leases ──▶ claim ──▶ run (bounded) ◀── keys without a row
//!                                   │
//!                                   ▼
//!                        settle claims in batches; a run without a row is stored only when it is news
//! ```
//!
//! One task decides everything; runs are tasks of one set. A key never runs twice at a time here, and a run whose lease
//! went to another process can write nothing. Cancelled, the worker claims nothing more, lets the runs end, settles them
//! and gives its leases back. Idle, it writes nothing but its membership and its leases.

mod member;
mod running;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use rand::RngExt as _;
use store::{
    DbError, Role,
    poke::{Heard, Listener, Poke},
    queue,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub use member::Member;
pub(crate) use member::bury_the_dead;

use super::{Registry, Shared, execute};
use running::{Running, Work};

/// How a worker behaves. [`WorkerConfig::new`] has the values of production.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// The role.
    pub role: Role,
    /// Where this process runs, for people.
    pub host: String,
    /// How long membership and leases outlive the last sign of life.
    pub ttl: Duration,
    /// How often they are renewed.
    pub beat: Duration,
    /// How many runs at a time.
    pub concurrency: usize,
    /// How often every key that this process owns is run without being asked.
    pub resync: Duration,
    /// Up to this much is added to each such pause.
    pub jitter: Duration,
    /// How long the runs may take to end when the worker stops.
    pub drain: Duration,
}

impl WorkerConfig {
    /// The values of production.
    #[must_use]
    pub fn new(role: Role, host: impl Into<String>) -> Self {
        Self {
            role,
            host: host.into(),
            ttl: Duration::from_secs(12),
            beat: Duration::from_secs(4),
            concurrency: 32,
            resync: Duration::from_secs(300),
            jitter: Duration::from_secs(300),
            drain: Duration::from_secs(10),
        }
    }
}

/// How long to wait before asking a database again that did not answer.
const RETRY: Duration = Duration::from_secs(1);
/// A database that takes longer for one step is as good as away.
const ANSWER: Duration = Duration::from_secs(60);
/// How long the last words of a worker may take.
const FAREWELL: Duration = Duration::from_secs(5);
/// A key that is due but could not be claimed is being claimed by somebody else; look again after this.
const CONTENDED: Duration = Duration::from_millis(100);
/// Without a poke the queue is looked at this often.
const LOOK: Duration = Duration::from_secs(30);

/// Runs the reconcilers of `config.role` among `registry` until `cancel`.
///
/// A database that is away is waited for; nothing else ends the worker.
pub async fn run(shared: Shared, registry: &Registry, config: WorkerConfig, cancel: CancellationToken) {
    let registry = registry.of_role(config.role);
    if registry.names().is_empty() {
        tracing::info!(role = %config.role, "this role has no reconcilers yet and only holds its membership");
    } else {
        tracing::info!(role = %config.role, reconcilers = ?registry.names(), "the worker starts");
    }
    // Nobody wakes a role without reconcilers.
    let listener = (!registry.names().is_empty()).then(|| Listener::new(&shared.db));
    let mut worker = Worker::new(shared, registry, config);
    worker.serve(listener, &cancel).await;
    worker.drain().await;
}

struct Worker {
    shared: Shared,
    registry: Registry,
    config: WorkerConfig,
    member: Member,
    running: Running,
    unasked: VecDeque<Work>,
    periodic: Vec<(&'static str, super::Periodic, Instant)>,
    next_beat: Instant,
    next_look: Instant,
    next_resync: Instant,
    database_away: bool,
}

impl Worker {
    fn new(shared: Shared, registry: Registry, config: WorkerConfig) -> Self {
        let start = Instant::now();
        let member = Member::new(shared.db.clone(), config.role, &config.host, config.ttl, &registry);
        let periodic = registry
            .iter()
            .flat_map(|reconciler| {
                reconciler.periodic().iter().map(|periodic| (reconciler.kind().name, *periodic, start))
            })
            .collect();
        let mut worker = Self {
            running: Running::new(shared.clone(), registry.clone()),
            shared,
            registry,
            member,
            unasked: VecDeque::new(),
            periodic,
            next_beat: start,
            next_look: start,
            next_resync: start,
            database_away: false,
            config,
        };
        worker.next_resync = start + worker.resync_pause();
        worker
    }

    fn resync_pause(&self) -> Duration {
        self.config.resync + rand::rng().random_range(Duration::ZERO..=self.config.jitter)
    }

    async fn serve(&mut self, mut listener: Option<Listener>, cancel: &CancellationToken) {
        while !cancel.is_cancelled() {
            let step = tokio::select! {
                () = cancel.cancelled() => break,
                step = tokio::time::timeout(ANSWER, self.step()) => step,
            };
            match step {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.database_failed(&error),
                Err(late) => self.database_failed(&late),
            }
            let wake = self.next_wake();
            tokio::select! {
                () = cancel.cancelled() => break,
                () = sleep_until(wake) => {}
                heard = hear(&mut listener) => {
                    if matches!(&heard, Heard::Reconnected) || heard == Heard::Poke(Poke::Work(self.config.role)) {
                        self.next_look = Instant::now();
                    }
                }
                () = self.running.finished(), if self.running.any() => {}
            }
        }
    }

    async fn step(&mut self) -> Result<(), DbError> {
        if Instant::now() >= self.next_beat {
            let asleep = Instant::now() >= self.next_beat + self.config.ttl;
            let gained = self.member.beat(&self.running.leases()).await?;
            self.next_beat = Instant::now() + self.config.beat;
            if gained || asleep || self.database_away {
                self.put_off_periodic();
            }
            if gained {
                self.next_look = Instant::now();
                // What its keys need after all, such as a fresh signature, nobody may have looked at for long.
                self.next_resync = Instant::now();
            }
        }
        if self.running.settle(self.member.id()).await? {
            self.next_look = self.next_look.min(Instant::now() + CONTENDED);
        }
        let resync = Instant::now() >= self.next_resync;
        if self.database_away || resync {
            // The answer to a claim may have been lost: nobody runs such a key.
            if queue::give_back(&self.shared.db, self.member.id(), &self.running.claims()).await? > 0 {
                self.next_look = Instant::now();
            }
        }
        if resync {
            self.next_resync = Instant::now() + self.resync_pause();
            self.list_unasked().await?;
        }
        self.claim().await?;
        self.start_periodic();
        self.start_unasked();
        if self.database_away {
            self.database_away = false;
            tracing::info!(role = %self.config.role, "the database is back");
        }
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), DbError> {
        let free = self.config.concurrency.saturating_sub(self.running.count());
        let names = self.registry.names();
        if names.is_empty() {
            self.next_look = Instant::now() + LOOK;
        }
        if Instant::now() < self.next_look || free == 0 {
            return Ok(());
        }
        let claims =
            queue::claim(&self.shared.db, self.member.id(), &names, u32::try_from(free).unwrap_or(u32::MAX)).await?;
        let full = claims.len() == free;
        for claim in claims {
            self.running.start_claim(claim);
        }
        if full {
            return Ok(());
        }
        let pause = match queue::next_due(&self.shared.db, self.member.id(), &names).await? {
            Some(due) => {
                let now = self.shared.db.now().await?;
                Duration::try_from(due.duration_since(now)).unwrap_or_default().clamp(CONTENDED, LOOK)
            }
            None => LOOK,
        };
        self.next_look = Instant::now() + pause;
        Ok(())
    }

    /// Lets others write first what they could not write while nobody could look.
    fn put_off_periodic(&mut self) {
        for (_, periodic, due) in &mut self.periodic {
            *due = (*due).max(Instant::now() + periodic.settle);
        }
    }

    fn start_periodic(&mut self) {
        for (name, periodic, due) in &mut self.periodic {
            if Instant::now() < *due {
                continue;
            }
            *due = Instant::now() + periodic.every;
            self.unasked.push_front(Work { name, key: periodic.key.to_owned() });
        }
    }

    /// Every key of the shards that this process owns, read from the tables that have them.
    async fn list_unasked(&mut self) -> Result<(), DbError> {
        let shards = self.member.shards();
        let mut keys: Vec<Work> = Vec::new();
        for reconciler in self.registry.iter() {
            let name = reconciler.kind().name;
            let of_this = execute::keys(&self.shared, &**reconciler, &shards).await?;
            keys.extend(of_this.into_iter().map(|key| Work { name, key }));
        }
        // What the last resync left is among these.
        self.unasked = keys.into();
        Ok(())
    }

    fn start_unasked(&mut self) {
        while self.running.count() < self.config.concurrency {
            let Some(work) = self.unasked.pop_front() else { return };
            let Some(reconciler) = self.registry.find(work.name) else { continue };
            if let Some(lease) = self.member.lease(&reconciler.kind().lease(&work.key)) {
                self.running.start_unasked(work, self.member.id(), lease);
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let busy = self.running.count() >= self.config.concurrency;
        let periodic = self.periodic.iter().map(|(_, _, due)| *due).min();
        let look = if busy { self.next_beat } else { self.next_look };
        let wake = periodic.into_iter().chain([self.next_beat, look, self.next_resync]).min().unwrap_or(self.next_beat);
        if self.database_away { wake.max(Instant::now() + RETRY) } else { wake }
    }

    fn database_failed(&mut self, error: &dyn std::error::Error) {
        if !self.database_away {
            tracing::warn!(role = %self.config.role, %error, "the worker waits for the database");
        }
        self.database_away = true;
    }

    async fn drain(&mut self) {
        let deadline = Instant::now() + self.config.drain;
        while self.running.any() {
            tokio::select! {
                () = sleep_until(deadline) => break,
                () = self.running.finished() => {}
            }
        }
        let leave = async {
            let settled = self.running.settle(self.member.id()).await;
            self.member.leave().await.and(settled.map(|_| ()))
        };
        let left: Result<(), Box<dyn std::error::Error + Send + Sync>> =
            match tokio::time::timeout(FAREWELL, leave).await {
                Ok(left) => left.map_err(Into::into),
                Err(late) => Err(late.into()),
            };
        if let Err(error) = left {
            tracing::warn!(role = %self.config.role, %error, "the worker left without a word; its leases run out by themselves");
        }
        tracing::info!(role = %self.config.role, "the worker stopped");
    }
}

/// The next poke; never, for a worker that hears none.
async fn hear(listener: &mut Option<Listener>) -> Heard {
    match listener {
        Some(listener) => listener.next().await,
        None => std::future::pending().await,
    }
}
