//! The role `source`: one process at a time follows the fleet repository.
//!
//! A pass is due when the watch saw a change, when somebody poked (a webhook, a machine that joined, a suspension, a
//! rollback), when a freeze, a pin or a suspension begins or ends by the database's clock, and from time to time in any case. Polling is the truth; everything else only makes it sooner.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use schema::id::WorkerId;
use store::{
    Db, Role,
    leases::{self, Lease},
    poke::{Heard, Listener, Poke},
    workers,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::custody::SourceCustody;

use super::{FLEET, GitAccess, Pass, Passed, Place, SourceConfig, watch::Watch};

/// How long a membership and a lease last without renewal.
const TTL: Duration = Duration::from_secs(15);
/// How often they are renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How soon a database that did not answer is asked again, and how long it may take to answer.
const RETRY: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(10);
/// How soon machines are compared again while something is held that may go by itself.
const WAITING: Duration = Duration::from_secs(60);
/// A burst of changes is one change: how long to wait for its end.
const DEBOUNCE: Duration = Duration::from_millis(40);

/// How often the repository is looked at without being asked.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A local repository.
    pub local: Duration,
    /// A remote one.
    pub remote: Duration,
    /// How often machines are compared although the commit is the same.
    pub resync: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { local: Duration::from_secs(5), remote: Duration::from_secs(60), resync: Duration::from_secs(600) }
    }
}

/// What the role needs.
#[derive(Debug, Clone)]
pub struct SourceRole {
    /// The database.
    pub db: Db,
    /// Where the fleet is.
    pub config: SourceConfig,
    /// How it is reached.
    pub access: GitAccess,
    /// The folder in which a remote repository is kept, in a folder of its own.
    pub data: PathBuf,
    /// The name of this machine, for `status`.
    pub host: String,
    /// How often to look.
    pub timing: Timing,
    /// What it signs with.
    pub custody: Arc<SourceCustody>,
}

/// Asks for a look at the fleet repository, from any process. Carries no truth.
#[derive(Debug, Clone)]
pub struct SourcePoke {
    db: Db,
}

impl SourcePoke {
    /// Pokes through this database.
    #[must_use]
    pub const fn new(db: Db) -> Self {
        Self { db }
    }

    /// Pokes.
    pub async fn poke(&self) {
        self.db.poke([Poke::Source(FLEET.to_owned())]).await;
    }
}

/// Follows the fleet repository until cancelled. Whatever fails is tried again.
pub async fn run(role: SourceRole, cancel: CancellationToken) {
    let mut back_off = Duration::from_secs(1);
    while !cancel.is_cancelled() {
        let began = Instant::now();
        if let Err(error) = member(&role, &cancel).await {
            tracing::warn!(error = %super::git::chain(&error), "the source has to start over");
        }
        if began.elapsed() > Duration::from_secs(60) {
            back_off = Duration::from_secs(1);
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(back_off) => back_off = (back_off * 2).min(Duration::from_secs(5)),
        }
    }
}

/// One membership: from joining until it is lost or the end.
async fn member(role: &SourceRole, cancel: &CancellationToken) -> Result<(), store::DbError> {
    let worker = WorkerId::generate();
    crate::reconcile::bury_the_dead(&role.db, Role::Source, &role.host).await?;
    workers::join(&role.db, worker, Role::Source, &role.host, std::process::id(), TTL).await?;
    let ended = follow(role, worker, cancel).await;
    // Gives the lease back at once, so that the next process need not wait for its end.
    let lease = [leases::singleton("source")];
    let _ = tokio::time::timeout(Duration::from_secs(2), async {
        leases::release(&role.db, worker, &lease).await.ok();
        workers::leave(&role.db, worker).await.ok();
    })
    .await;
    ended
}

async fn follow(role: &SourceRole, worker: WorkerId, cancel: &CancellationToken) -> Result<(), store::DbError> {
    let mut pass =
        Pass::new(role.db.clone(), FLEET, role.config.clone(), role.access.clone(), role.data.clone(), worker)
            .with_custody(Some(Arc::clone(&role.custody)));
    let stop = pass.stopper();
    let changed = Arc::new(Notify::new());
    let mut listener = Listener::new(&role.db);
    let mut watch: Option<Watch> = None;
    let mut lease: Option<Lease> = None;
    let mut renew = tokio::time::interval(RENEW);
    let mut next_look = Instant::now();
    let mut next_resync = Instant::now();
    let mut failures = 0_u32;
    let mut edge: Option<Instant> = None;
    loop {
        tokio::select! {
            () = cancel.cancelled() => {
                stop.store(true, Ordering::Relaxed);
                return Ok(());
            }
            _ = renew.tick() => {
                let held = match tokio::time::timeout(ANSWER, renewed(role, worker)).await {
                    Ok(Ok(Some(held))) => held.lease,
                    Ok(Ok(None)) => return Ok(()),
                    // Whoever is a member still when the database is back goes on at once.
                    away => {
                        if lease.take().is_some() {
                            let error = away.ok().and_then(Result::err).map(|error| super::git::chain(&error));
                            tracing::warn!(error, "the source waits for the database");
                        }
                        renew.reset_after(RETRY);
                        continue;
                    }
                };
                if held.is_some() && held != lease {
                    tracing::info!(source = %role.config, "this process follows the fleet repository");
                    next_look = Instant::now();
                    next_resync = Instant::now();
                }
                lease = held;
                // The database's clock decides, and it may be set.
                if lease.is_some() && pass.next_edge().is_some() {
                    edge = tokio::time::timeout(ANSWER, until_edge(role, &pass)).await.unwrap_or(edge);
                }
                continue;
            }
            heard = listener.next() => match heard {
                Heard::Poke(Poke::Source(name)) if name == FLEET => {
                    // Many at once are one.
                    let _ = tokio::time::timeout(DEBOUNCE, async { loop { listener.next().await; } }).await;
                    next_resync = Instant::now();
                }
                Heard::Reconnected => next_resync = Instant::now(),
                Heard::Poke(_) => continue,
            },
            () = changed.notified() => tokio::time::sleep(DEBOUNCE).await,
            () = tokio::time::sleep_until(next_look), if lease.is_some() => {}
            () = tokio::time::sleep_until(edge.unwrap_or(next_look)), if lease.is_some() && edge.is_some() => {
                next_resync = Instant::now();
            }
        }
        let Some(held) = lease.clone() else { continue };
        if watch.is_none()
            && let Place::Local(dir) = &role.config.place
        {
            watch = Watch::start(dir, Arc::clone(&changed))
                .inspect_err(|error| tracing::debug!(%error, "not watched; polled only"))
                .ok();
        }
        let resync = Instant::now() >= next_resync;
        let ended = one(&mut pass, &held, resync, role, worker, cancel).await;
        edge = tokio::time::timeout(ANSWER, until_edge(role, &pass)).await.unwrap_or(None);
        match ended {
            Some(Ok(passed)) => {
                failures = 0;
                if matches!(passed, Passed::RolledBack { .. }) {
                    next_look = Instant::now();
                    continue;
                }
                if matches!(&passed, Passed::InForce { applied: Some(applied), .. } if applied.newcomers) {
                    next_resync = Instant::now();
                    next_look = Instant::now();
                    continue;
                }
                if resync {
                    next_resync = Instant::now() + jitter(role.timing.resync);
                }
                if pass.waits() {
                    next_resync = next_resync.min(Instant::now() + jitter(WAITING));
                }
                if matches!(&passed, Passed::Held(trouble) if trouble.state == super::SourceState::Unreachable) {
                    // The repository may be another one when it is back.
                    watch = None;
                }
            }
            Some(Err(error)) if error.is_unavailable() => {
                tracing::warn!(error = %super::git::chain(&error), "the source waits for the database");
                lease = None;
                renew.reset_after(RETRY);
                continue;
            }
            Some(Err(error)) => {
                failures = failures.saturating_add(1);
                tracing::warn!(error = %super::git::chain(&error), failures, "a pass over the fleet repository failed and is tried again");
                if error.is_fenced() {
                    lease = None;
                }
                next_resync = Instant::now();
            }
            None => return Ok(()),
        }
        let every = if matches!(role.config.place, Place::Local(_)) { role.timing.local } else { role.timing.remote };
        next_look = Instant::now()
            + if failures == 0 {
                jitter(every)
            } else {
                Duration::from_secs(1 << failures.min(6)).min(jitter(every).max(Duration::from_secs(2)))
            };
    }
}

/// When the last plan changes by itself, by this process's clock; never in the same moment, so that a plan of a moment too
/// early is made again soon and not at once.
async fn until_edge(role: &SourceRole, pass: &Pass) -> Option<Instant> {
    let edge = pass.next_edge()?;
    let now = role.db.now().await.ok()?;
    let left = Duration::try_from(edge.duration_since(now)).unwrap_or_default();
    Some(Instant::now() + left.clamp(Duration::from_millis(100), Duration::from_secs(86_400)))
}

/// A membership that was renewed, and the lease when it is this process's.
struct Renewed {
    lease: Option<Lease>,
}

/// `None` when this process was silent for too long and has to join again.
async fn renewed(role: &SourceRole, worker: WorkerId) -> Result<Option<Renewed>, store::DbError> {
    let Some(mut membership) = workers::beat(&role.db, worker, Role::Source, TTL).await? else { return Ok(None) };
    let lease = match membership.leases.pop() {
        Some(held) => Some(held),
        None => leases::acquire(&role.db, worker, &[leases::singleton("source")], TTL).await?.pop(),
    };
    Ok(Some(Renewed { lease }))
}

/// One pass, during which the lease is kept. `None` when the end came in between.
async fn one(
    pass: &mut Pass,
    lease: &Lease,
    resync: bool,
    role: &SourceRole,
    worker: WorkerId,
    cancel: &CancellationToken,
) -> Option<Result<Passed, super::PassError>> {
    let stop = pass.stopper();
    let keep = async {
        loop {
            tokio::time::sleep(RENEW).await;
            // A lost lease shows at the next fenced write.
            workers::beat(&role.db, worker, Role::Source, TTL).await.ok();
        }
    };
    tokio::select! {
        passed = pass.run(lease, resync) => Some(passed),
        () = cancel.cancelled() => {
            stop.store(true, Ordering::Relaxed);
            None
        }
        () = keep => None,
    }
}

/// A fifth more or less, so that many fleets do not ask one host at the same moment.
fn jitter(every: Duration) -> Duration {
    every.mul_f64(0.8 + 0.4 * rand::random::<f64>())
}
