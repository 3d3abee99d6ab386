//! `audit`: chains the audit log and signs its checkpoints. Key: `all`; `outside`, for lines that are in no chain.
//!
//! Whoever writes a line waits for nobody: a line joins the tail in its own transaction, and one process takes the tail into
//! the chain, in the order in which it sees the lines. A checkpoint is due after `ROWS` lines, or once the first of them is
//! `AGE` old; an idle fleet makes none. Before anything is chained or signed the lines behind the last checkpoint are read again:
//! what was changed after it was chained gets no signature, and that is told until an operator has it set aside (`mend`).

pub(crate) mod look;
pub(crate) mod mend;
pub(crate) mod people;

use std::time::Duration;

use async_trait::async_trait;
use pki::{
    audit::{Row, Vouch, is_due_for_keys, next},
    checkpoint::AuditSigner,
};
use schema::{digest::Digest, time::Timestamp};
use store::{
    audit::{self, Entry},
    outcomes,
    queue::{self, Kind},
};

use self::look::{Altered, Glances, Region, ours};
use crate::reconcile::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy, WaitReason};

/// So many lines are enough for a checkpoint, however young they are.
const ROWS: usize = 1_000;
/// The oldest line without one waits for so long.
const AGE: Duration = Duration::from_secs(5);
/// So many lines are chained in one transaction; twice as many stand behind one checkpoint at most.
const AT_ONCE: u32 = 2_000;
/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(3);

/// How often lines are looked for that are in no chain.
const OUTSIDE_EVERY: Duration = Duration::from_secs(300);
/// The key of that.
pub(crate) const OUTSIDE_KEY: &str = "outside";

/// The reconciler.
#[derive(Debug, Default)]
pub struct AuditChain {
    glances: Glances,
}

/// A line as it is chained and exported.
pub(crate) fn row(pos: u64, entry: &Entry) -> Row {
    let Entry { id, seq: _, at, actor, action, subject, detail } = entry;
    Row {
        pos,
        id: id.to_string(),
        at: *at,
        actor: actor.clone(),
        action: action.clone(),
        subject: subject.clone(),
        detail: detail.clone(),
    }
}

#[async_trait]
impl Reconciler for AuditChain {
    fn kind(&self) -> &'static Kind {
        &queue::AUDIT
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    fn periodic(&self) -> &'static [Periodic] {
        const {
            &[
                Periodic { key: "all", every: EVERY, settle: Duration::ZERO },
                Periodic { key: OUTSIDE_KEY, every: OUTSIDE_EVERY, settle: Duration::ZERO },
            ]
        }
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        let db = context.db();
        if key == OUTSIDE_KEY {
            let before = outcomes::find(db, self.kind().name, key).await?;
            let known = before.is_some_and(|before| before.state != "done");
            let found = self.glances.look(db, known).await?;
            return Ok(found.map_or_else(Outcome::done, |outside| told(&outside)));
        }
        let signer = context.custody().audit();
        stand_by(context, &signer).await?;
        let last = audit::checkpoints_back(db, None, 1).await?.pop();
        let before = match last {
            Some(stored) => match ours(&stored, &signer) {
                Some(checkpoint) => Some(checkpoint),
                None => return Ok(told(&Altered::Checkpoint(stored.n))),
            },
            None => None,
        };
        let for_keys = before.as_ref().is_some_and(|before| is_due_for_keys(&signer, before));
        let standing = audit::standing(db).await?;
        let signed = before.as_ref().map_or(0, |before| before.rows);
        if standing.chained <= signed && standing.tail == 0 && !for_keys {
            return Ok(Outcome::done());
        }
        let mut region = match look::region(db, before.as_ref(), standing.chained, AT_ONCE).await? {
            Ok(region) => region,
            Err(altered) => return Ok(told(&altered)),
        };
        let whole = signed + region.rows.len() as u64 >= standing.chained;
        let more = if whole { chain(context, signed, &mut region).await? } else { true };
        let now = context.now().await?;
        let Some(link) = region.link.filter(|_| for_keys || is_due(&region, now)) else {
            return Ok(if more { Outcome::again(Duration::ZERO, "more-lines") } else { Outcome::done() });
        };
        let texts: Vec<&str> = region.rows.iter().map(String::as_str).collect();
        let (checkpoint, signature) = next(&signer, before.as_ref(), link, &texts, now);
        let mut txn = context.begin().await?;
        audit::put_checkpoint(&mut txn, checkpoint.n, checkpoint.rows, checkpoint.text().as_bytes(), &signature)
            .await?;
        txn.commit().await?;
        tracing::debug!(n = checkpoint.n, rows = checkpoint.rows, "signed a checkpoint of the audit log");
        let more = more || is_due_for_keys(&signer, &checkpoint);
        Ok(if more { Outcome::again(Duration::ZERO, "more-lines") } else { Outcome::done() })
    }
}

/// Sees that a worker under the root in force vouches for the key that signs, whether or not there is anything to sign.
async fn stand_by(context: &Context, signer: &AuditSigner) -> Result<(), Failure> {
    let key = signer.key();
    let stored = audit::vouches(context.db()).await?.into_iter().find(|vouch| vouch.key == key.as_bytes());
    let read = stored.and_then(|stored| Vouch::read(std::str::from_utf8(&stored.vouch).ok()?).ok());
    if read.is_some_and(|vouch| vouch.key == key && context.signer().is_vouch_current(&vouch)) {
        return Ok(());
    }
    let vouch = context.signer().vouch(key, context.now().await?);
    let mut txn = context.begin().await?;
    audit::vouch(&mut txn, key.as_bytes(), vouch.text().as_bytes()).await?;
    txn.commit().await?;
    Ok(())
}

fn told(found: &impl WaitReason) -> Outcome {
    tracing::error!("{found}");
    Outcome::wait(found)
}

fn is_due(region: &Region, now: Timestamp) -> bool {
    let old = |since| since > now || schema::time::Duration::between(since, now).to_std() >= AGE;
    region.rows.len() >= ROWS || region.since.is_some_and(old)
}

/// Takes the tail into the chain, behind the lines of `region`; answers whether there is more of it.
async fn chain(context: &Context, signed: u64, region: &mut Region) -> Result<bool, Failure> {
    let tail = audit::tail(context.db(), AT_ONCE).await?;
    if tail.is_empty() {
        return Ok(false);
    }
    let from = signed + region.rows.len() as u64;
    let links: Vec<(i64, Digest)> =
        (from..).zip(&tail).map(|(pos, entry)| (entry.seq, region.push(row(pos, entry).text(), entry.at))).collect();
    let mut txn = context.begin().await?;
    audit::extend(&mut txn, from, &links).await?;
    txn.commit().await?;
    Ok(tail.len() >= AT_ONCE as usize)
}

#[cfg(test)]
mod tests;
