//! The work queue: keys to reconcile, coalesced, claimed under leases, never lost.
//!
//! ```text
//! enqueue ─▶ due ── claim ──▶ claimed ── settle, nothing new ──▶ (row gone)
//!             ▲                  │ └──── enqueue: generation + 1
//!             ├── settle, generation moved, or again, or failed ◀┘
//!             └── the lease's epoch rose: the claim is void
//! ```
//!
//! A row exists while there is something to do. Enqueueing an existing key moves its generation, and a settled run
//! removes the row only if the generation did not move since the claim, so no wake-up is lost. A claim names the epoch of
//! the lease it was made under; whoever holds the lease at a later epoch may claim over it, and the earlier claim settles
//! nothing.

use std::time::Duration;

use schema::{
    generation::{Epoch, Generation},
    id::WorkerId,
    shard,
    time::Timestamp,
};

use crate::{Db, DbError, Role, Txn, convert, leases, outcomes, poke::Poke};

pub use outcomes::Verdict;

/// How the keys of a reconciler are spread over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShardBy {
    /// By the hash of the key over the shards of the role: nodes, pools.
    Key,
    /// Not at all: one process at a time runs it.
    None,
}

/// A kind of work: the name of its reconciler, and who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The reconciler's name.
    pub name: &'static str,
    /// The role whose processes run it.
    pub role: Role,
    /// How its keys are spread.
    pub shard_by: ShardBy,
}

impl Kind {
    /// A kind whose keys are spread over the controllers.
    #[must_use]
    pub const fn sharded(name: &'static str) -> Self {
        Self { name, role: Role::Controllers, shard_by: ShardBy::Key }
    }

    /// A kind that one controllers process runs at a time.
    #[must_use]
    pub const fn singleton(name: &'static str) -> Self {
        Self { name, role: Role::Controllers, shard_by: ShardBy::None }
    }

    /// The lease under which a key of this kind is run.
    #[must_use]
    pub fn lease(&self, key: &str) -> String {
        match self.shard_by {
            ShardBy::Key => leases::shard(self.role, shard::of(key)),
            ShardBy::None => leases::singleton(self.name),
        }
    }
}

/// Takes over what a node reported. Key: the node's id.
pub const NODE: Kind = Kind::sharded("node");
/// Composes, signs and stores the spec of a node. Key: the node's id.
pub const NODESPEC: Kind = Kind::sharded("nodespec");
/// Signs the commands of a node, takes over its last words, and settles what its reconnect proves. Key: the node's id.
pub const COMMAND: Kind = Kind::sharded("command");
/// Ends commands that are past their time. Key: `all`.
pub const COMMAND_SWEEPER: Kind = Kind::singleton("command-sweeper");
/// Judges what people said about batches, and sends what they agreed to. Key: the batch's name.
pub const BATCH: Kind = Kind::singleton("batch");
/// Chains the audit log and signs its checkpoints. Key: `all`.
pub const AUDIT: Kind = Kind::singleton("audit");
/// Judges silence. Key: `all`.
pub const LIVENESS: Kind = Kind::singleton("liveness");

/// A key that this process runs now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The reconciler.
    pub kind: String,
    /// What to reconcile.
    pub key: String,
    /// The row's generation at the claim.
    pub generation: Generation,
    /// How often in a row it failed before.
    pub attempts: u32,
    /// The lease it is run under; [`leases::fence`] a write with it.
    pub lease: leases::Lease,
    /// Who claimed it.
    pub worker: WorkerId,
}

/// A claim that ended, and how.
#[derive(Debug, Clone)]
pub struct Settlement<'a> {
    /// What ended.
    pub claim: &'a Claim,
    /// How it ended.
    pub verdict: Verdict,
    /// The place in the code that decided, `file:line`.
    pub place: String,
}

/// Wakes keys of a reconciler in the transaction of the cause, and pokes its role after the commit.
///
/// # Errors
/// When the statement fails.
pub async fn enqueue<K: ToString>(
    txn: &mut Txn,
    kind: &Kind,
    keys: impl IntoIterator<Item = K>,
) -> Result<(), DbError> {
    if put(txn, kind, keys, Duration::ZERO).await? {
        txn.poke(Poke::Work(kind.role));
    }
    Ok(())
}

/// Wakes keys after a while, in the transaction of the cause and without a poke: for what somebody else has done by then,
/// unless it fails.
///
/// # Errors
/// When the statement fails.
pub async fn enqueue_later<K: ToString>(
    txn: &mut Txn,
    kind: &Kind,
    keys: impl IntoIterator<Item = K>,
    after: Duration,
) -> Result<(), DbError> {
    put(txn, kind, keys, after).await.map(|_| ())
}

/// Answers whether there was a key.
async fn put<K: ToString>(
    txn: &mut Txn,
    kind: &Kind,
    keys: impl IntoIterator<Item = K>,
    after: Duration,
) -> Result<bool, DbError> {
    // Sorted, so that two transactions lock the same keys in the same order.
    let mut keys: Vec<String> = keys.into_iter().map(|key| key.to_string()).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return Ok(false);
    }
    let leases: Vec<String> = keys.iter().map(|key| kind.lease(key)).collect();
    sqlx::query!(
        r#"INSERT INTO work_queue AS q (kind, key, lease, due_at)
           SELECT $1, key, lease, compute_now() + $4 * interval '1 millisecond'
           FROM UNNEST($2::text[], $3::text[]) AS wanted (key, lease)
           ON CONFLICT (kind, key) DO UPDATE
           SET generation = q.generation + 1,
               due_at = LEAST(q.due_at, EXCLUDED.due_at)"#,
        kind.name,
        &keys,
        &leases,
        convert::millis(after),
    )
    .execute(txn.conn())
    .await?;
    Ok(true)
}

/// Claims up to `limit` due keys of these kinds, oldest first, under the leases that `worker` holds now. A key that
/// somebody runs under the current epoch is never among them.
///
/// # Errors
/// When the statement fails.
pub async fn claim(db: &Db, worker: WorkerId, kinds: &[&str], limit: u32) -> Result<Vec<Claim>, DbError> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let rows = sqlx::query!(
        r#"WITH due AS MATERIALIZED (
               SELECT q.kind, q.key, l.epoch
               FROM work_queue q
               JOIN leases l ON l.name = q.lease
               WHERE l.holder = $1
                 AND l.expires_at > compute_now()
                 AND q.kind = ANY($2)
                 AND q.due_at <= compute_now()
                 AND (q.claim_epoch IS NULL OR q.claim_epoch < l.epoch)
               ORDER BY q.due_at
               LIMIT $3
               FOR UPDATE OF q SKIP LOCKED
           )
           UPDATE work_queue q
           SET claimed_by = $1, claim_epoch = due.epoch
           FROM due
           WHERE q.kind = due.kind AND q.key = due.key
           RETURNING q.kind, q.key, q.generation, q.attempts, q.lease, due.epoch"#,
        worker.as_uuid(),
        &kinds,
        i64::from(limit),
    )
    .fetch_all(db.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Claim {
            kind: row.kind,
            key: row.key,
            generation: Generation::from_i64(row.generation),
            attempts: convert::count(row.attempts),
            lease: leases::Lease { name: row.lease, epoch: Epoch::from_i64(row.epoch) },
            worker,
        })
        .collect())
}

/// How long a key that failed `attempts` times in a row rests: a second, doubling, at most five minutes.
#[must_use]
pub fn backoff(attempts: u32) -> Duration {
    Duration::from_secs(1_u64.checked_shl(attempts.min(9)).unwrap_or(512).min(300))
}

/// Ends claims: removes what is done and did not move, makes the rest due again, and stores the outcomes that changed.
/// The answer counts the claims that were still good; a claim that was taken over changes nothing.
///
/// # Errors
/// When a statement fails.
pub async fn settle(txn: &mut Txn, settlements: &[Settlement<'_>]) -> Result<usize, DbError> {
    let Some(first) = settlements.first() else { return Ok(0) };
    let mut sorted: Vec<&Settlement<'_>> = settlements.iter().collect();
    sorted.sort_by(|a, b| (&a.claim.kind, &a.claim.key).cmp(&(&b.claim.kind, &b.claim.key)));
    let worker = first.claim.worker.as_uuid();
    let kinds: Vec<String> = sorted.iter().map(|s| s.claim.kind.clone()).collect();
    let keys: Vec<String> = sorted.iter().map(|s| s.claim.key.clone()).collect();
    let generations: Vec<i64> = sorted.iter().map(|s| s.claim.generation.to_i64()).collect();
    let epochs: Vec<i64> = sorted.iter().map(|s| s.claim.lease.epoch.to_i64()).collect();
    let rests: Vec<Option<f64>> =
        sorted.iter().map(|s| s.verdict.rest(s.claim.attempts).map(convert::millis)).collect();
    let failed: Vec<bool> = sorted.iter().map(|s| matches!(s.verdict, Verdict::Failed { .. })).collect();

    // Locked in the order in which `enqueue` locks, so that neither waits for the other in a circle.
    let removed = sqlx::query!(
        r#"WITH s AS MATERIALIZED (
               SELECT s.*
               FROM UNNEST($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::float8[]) AS s (kind, key, generation, epoch, rest)
               JOIN work_queue q ON q.kind = s.kind AND q.key = s.key
               ORDER BY s.kind COLLATE "C", s.key COLLATE "C"
               FOR UPDATE OF q
           )
           DELETE FROM work_queue q
           USING s
           WHERE q.kind = s.kind AND q.key = s.key
             AND q.claimed_by = $1 AND q.claim_epoch = s.epoch
             AND EXISTS (SELECT FROM leases l WHERE l.name = q.lease AND l.holder = $1 AND l.epoch = s.epoch)
             AND s.rest IS NULL AND q.generation = s.generation
           RETURNING q.kind, q.key"#,
        worker,
        &kinds,
        &keys,
        &generations,
        &epochs,
        &rests as &[Option<f64>],
    )
    .fetch_all(txn.conn())
    .await?;
    // A statement of its own: what the first one left is still claimed, whatever happened to it since.
    let kept = sqlx::query!(
        r#"UPDATE work_queue q
           SET claimed_by = NULL,
               claim_epoch = NULL,
               attempts = CASE WHEN s.failed THEN q.attempts + 1 ELSE 0 END,
               due_at = CASE WHEN q.generation = s.generation
                             THEN compute_now() + COALESCE(s.rest, 0) * interval '1 millisecond'
                             ELSE compute_now() END
           FROM UNNEST($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::float8[], $7::bool[])
                AS s (kind, key, generation, epoch, rest, failed)
           WHERE q.kind = s.kind AND q.key = s.key
             AND q.claimed_by = $1 AND q.claim_epoch = s.epoch
             AND EXISTS (SELECT FROM leases l WHERE l.name = q.lease AND l.holder = $1 AND l.epoch = s.epoch)
           RETURNING q.kind, q.key"#,
        worker,
        &kinds,
        &keys,
        &generations,
        &epochs,
        &rests as &[Option<f64>],
        &failed,
    )
    .fetch_all(txn.conn())
    .await?;
    let good: std::collections::BTreeSet<(&str, &str)> = removed
        .iter()
        .map(|r| (r.kind.as_str(), r.key.as_str()))
        .chain(kept.iter().map(|r| (r.kind.as_str(), r.key.as_str())))
        .collect();
    let records: Vec<outcomes::Record<'_>> = sorted
        .iter()
        .filter(|s| good.contains(&(s.claim.kind.as_str(), s.claim.key.as_str())))
        .map(|s| outcomes::Record { kind: &s.claim.kind, key: &s.claim.key, verdict: &s.verdict, place: &s.place })
        .collect();
    outcomes::record(txn, &records).await?;
    Ok(good.len())
}

/// Makes every claim of `worker` that is not in `running` due again, after a settlement could not be stored.
///
/// # Errors
/// When the statement fails.
pub async fn give_back(db: &Db, worker: WorkerId, running: &[Claim]) -> Result<u64, DbError> {
    let kinds: Vec<String> = running.iter().map(|claim| claim.kind.clone()).collect();
    let keys: Vec<String> = running.iter().map(|claim| claim.key.clone()).collect();
    let done = sqlx::query!(
        r#"UPDATE work_queue
           SET claimed_by = NULL, claim_epoch = NULL
           WHERE claimed_by = $1 AND (kind, key) NOT IN (SELECT * FROM UNNEST($2::text[], $3::text[]))"#,
        worker.as_uuid(),
        &kinds,
        &keys,
    )
    .execute(db.pool())
    .await?;
    Ok(done.rows_affected())
}

/// When the next key of these kinds under the leases of `worker` is due; `None` when nothing waits. A time in the past
/// means now.
///
/// # Errors
/// When the statement fails.
pub async fn next_due(db: &Db, worker: WorkerId, kinds: &[&str]) -> Result<Option<Timestamp>, DbError> {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    let due = sqlx::query_scalar!(
        r#"SELECT q.due_at
           FROM work_queue q
           JOIN leases l ON l.name = q.lease
           WHERE l.holder = $1 AND l.expires_at > compute_now() AND q.kind = ANY($2)
             AND (q.claim_epoch IS NULL OR q.claim_epoch < l.epoch)
           ORDER BY q.due_at
           LIMIT 1"#,
        worker.as_uuid(),
        &kinds,
    )
    .fetch_optional(db.pool())
    .await?;
    Ok(due.map(jiff_sqlx::Timestamp::to_jiff))
}

/// How many keys wait or run, by reconciler.
///
/// # Errors
/// When the statement fails.
pub async fn depth(db: &Db) -> Result<Vec<(String, u64)>, DbError> {
    let rows = sqlx::query!(r#"SELECT kind, count(*) AS "count!" FROM work_queue GROUP BY kind ORDER BY kind"#)
        .fetch_all(db.pool())
        .await?;
    Ok(rows.into_iter().map(|row| (row.kind, u64::try_from(row.count).unwrap_or(0))).collect())
}
