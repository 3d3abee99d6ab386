//! One run, from a key under a lease to a verdict; and what becomes of a run that no queue row asked for.

use std::{error::Error as _, time::Duration};

use schema::id::{NodeId, WorkerId};
use store::{
    DbError,
    leases::Lease,
    nodes,
    outcomes::{self, Verdict},
    queue,
};

use super::{
    Context, Reconciler, ShardBy, Shared,
    outcome::{Failure, LEASE_LOST},
};

/// How a run ended, ready to be stored.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) verdict: Verdict,
    pub(super) place: String,
}

/// A run may take this long. What hangs longer is given up, and the key backs off.
const LIMIT: Duration = Duration::from_secs(60);
const PAGE: u32 = 1_000;
const LONGEST_MESSAGE: usize = 2_000;

pub(super) async fn run(
    shared: &Shared,
    reconciler: &dyn Reconciler,
    worker: WorkerId,
    lease: &Lease,
    key: &str,
) -> Ended {
    let context = Context::new(shared.clone(), worker, lease.clone());
    let result = match tokio::time::timeout(LIMIT, reconciler.run(&context, key)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new("timed-out", "the run took longer than a minute")),
    };
    let (verdict, place) = match result {
        Ok(outcome) => (outcome.verdict, outcome.place),
        Err(failure) => {
            log(reconciler.kind().name, key, &failure);
            failure.into_verdict()
        }
    };
    Ended { verdict: storable(verdict), place: format!("{}:{}", place.file(), place.line()) }
}

/// A message that can be stored: of a bounded length and without NUL, whatever a template or a node put into it.
fn storable(verdict: Verdict) -> Verdict {
    let text = |message: String| message.replace('\0', "\u{fffd}").chars().take(LONGEST_MESSAGE).collect();
    match verdict {
        Verdict::Wait { reason, message, again } => Verdict::Wait { reason, message: text(message), again },
        Verdict::Failed { reason, message } => Verdict::Failed { reason, message: text(message) },
        Verdict::Done | Verdict::Again { .. } => verdict,
    }
}

fn log(reconciler: &str, key: &str, failure: &Failure) {
    let mut chain = String::new();
    let mut cause = failure.source();
    while let Some(error) = cause {
        if !chain.is_empty() {
            chain.push_str(": ");
        }
        chain.push_str(&error.to_string());
        cause = error.source();
    }
    if failure.reason() == LEASE_LOST {
        tracing::debug!(reconciler, key, error = chain, "a run lost its lease");
    } else {
        tracing::warn!(reconciler, key, reason = failure.reason(), error = chain, "a run failed");
    }
}

/// Stores how a run without a queue row ended, when that is news. What has to come back by itself gets a row,
/// unless its period brings it back.
pub(super) async fn record_unasked(
    shared: &Shared,
    reconciler: &dyn Reconciler,
    key: &str,
    ended: &Ended,
) -> Result<(), DbError> {
    let kind = reconciler.kind();
    let periodic = reconciler.periodic().iter().any(|periodic| periodic.key == key);
    let comes_back = ended.verdict.rest(0).is_some() && !periodic;
    let stored = outcomes::find(&shared.db, kind.name, key).await?;
    if !comes_back && !is_news(stored.as_ref(), ended) {
        return Ok(());
    }
    let mut txn = shared.db.begin().await?;
    outcomes::record(
        &mut txn,
        &[outcomes::Record { kind: kind.name, key, verdict: &ended.verdict, place: &ended.place }],
    )
    .await?;
    if comes_back {
        queue::enqueue(&mut txn, kind, [key]).await?;
    }
    txn.commit().await
}

/// Every key that a reconciler has in these shards, read from the tables that have them and not from the queue.
pub(super) async fn keys(shared: &Shared, reconciler: &dyn Reconciler, shards: &[u16]) -> Result<Vec<String>, DbError> {
    match reconciler.shard_by() {
        ShardBy::None => Ok(Vec::new()),
        ShardBy::Node => {
            let mut ids: Vec<NodeId> = Vec::new();
            loop {
                let page = nodes::ids_in_shards(&shared.db, shards, ids.last().copied(), PAGE).await?;
                let last = page.len() < PAGE as usize;
                ids.extend(page);
                if last {
                    return Ok(ids.iter().map(ToString::to_string).collect());
                }
            }
        }
    }
}

fn is_news(stored: Option<&outcomes::Outcome>, ended: &Ended) -> bool {
    let (state, reason, message) = match &ended.verdict {
        Verdict::Done => ("done", "", ""),
        Verdict::Again { reason, .. } => ("again", reason.as_str(), ""),
        Verdict::Wait { reason, message, .. } => ("wait", reason.as_str(), message.as_str()),
        Verdict::Failed { reason, message } => ("error", reason.as_str(), message.as_str()),
    };
    match stored {
        None => state != "done",
        Some(stored) if state == "done" => stored.state != "done",
        Some(stored) => {
            (stored.state.as_str(), stored.reason.as_str(), stored.message.as_str()) != (state, reason, message)
        }
    }
}
