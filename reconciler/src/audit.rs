//! `audit`: chains the audit log and signs its checkpoints. Key: `all`.
//!
//! Whoever writes a line waits for nobody: a line joins the tail in its own transaction, and one process takes the tail into
//! the chain, in the order in which it sees the lines. A checkpoint is due after `ROWS` lines, or once the first of them is
//! `AGE` old; an idle fleet makes none. Before it is signed the lines are read again: what was changed after it was chained
//! gets no signature, and that is told.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use pki::audit::{Checkpoint, Row, Vouch, is_due_for_keys, link, next};
use schema::{digest::Digest, time::Timestamp};
use store::{
    Db,
    audit::{self, Chained, Entry, Standing},
    queue::{self, Kind},
};

use crate::reconcile::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy, WaitReason};

/// So many lines are enough for a checkpoint, however young they are.
const ROWS: u64 = 1_000;
/// The oldest line without one waits for so long.
const AGE: Duration = Duration::from_secs(5);
/// So many lines are chained in one transaction, and stand behind one checkpoint at most.
const AT_ONCE: u32 = 2_000;
/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(3);

/// The reconciler.
#[derive(Debug)]
pub struct AuditChain;

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

/// Why nothing is signed.
#[derive(Debug)]
enum Altered {
    Line(u64),
    Checkpoint(u64),
}

impl WaitReason for Altered {
    fn code(&self) -> &'static str {
        "audit-altered"
    }
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(pos) => write!(
                f,
                "line {pos} of the audit log is not what was chained: somebody changed it in the database; no checkpoint is signed over it"
            ),
            Self::Checkpoint(n) => write!(
                f,
                "checkpoint {n} of the audit log was signed by no key of this control plane: somebody wrote it into the database; none is signed after it"
            ),
        }
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
        const { &[Periodic { key: "all", every: EVERY, settle: Duration::ZERO }] }
    }

    async fn run(&self, context: &Context, _key: &str) -> Result<Outcome, Failure> {
        let db = context.db();
        let more = chain(context).await?;
        let standing = audit::standing(db).await?;
        let last = audit::last_checkpoint(db).await?;
        let now = context.now().await?;
        let signer = context.custody().audit();
        let before = match &last {
            Some(stored) => {
                let known = |key| Some(key) == signer.before() || key == signer.key() || Some(key) == signer.next();
                let read = std::str::from_utf8(&stored.body).ok().and_then(|text| Checkpoint::read(text).ok());
                let ours = read.filter(|checkpoint| {
                    known(checkpoint.key)
                        && checkpoint.key.signed_audit(context.realm(), &stored.body, &stored.signature)
                        && (checkpoint.n, checkpoint.rows) == (stored.n, stored.rows)
                });
                match ours {
                    Some(checkpoint) => Some(checkpoint),
                    None => return Ok(told(&Altered::Checkpoint(stored.n))),
                }
            }
            None => None,
        };
        let for_keys = before.as_ref().is_some_and(|before| is_due_for_keys(&signer, before));
        if !for_keys && !is_due(&standing, now) {
            return Ok(if more { Outcome::again(Duration::ZERO, "more-lines") } else { Outcome::done() });
        }
        let from = before.as_ref().map_or(0, |before| before.rows);
        let (rows, link) = match checked(db, from, before.as_ref()).await? {
            Ok(checked) => checked,
            Err(altered) => return Ok(told(&altered)),
        };
        let Some(link) = link else { return Ok(Outcome::done()) };
        let texts: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (checkpoint, signature) = next(&signer, before.as_ref(), link, &texts, now);
        let stored = audit::vouches(db).await?.into_iter().find(|vouch| vouch.key == signer.key().as_bytes());
        let current = stored.is_some_and(|stored| {
            let vouch = std::str::from_utf8(&stored.vouch).ok().and_then(|text| Vouch::read(text).ok());
            vouch.is_some_and(|vouch| vouch.key == signer.key() && context.signer().is_vouch_current(&vouch))
        });
        let vouch = (!current).then(|| context.signer().vouch(signer.key(), now));
        let mut txn = context.begin().await?;
        if let Some(vouch) = vouch {
            audit::vouch(&mut txn, signer.key().as_bytes(), vouch.text().as_bytes()).await?;
        }
        audit::put_checkpoint(&mut txn, checkpoint.n, checkpoint.rows, checkpoint.text().as_bytes(), &signature)
            .await?;
        txn.commit().await?;
        tracing::debug!(n = checkpoint.n, rows = checkpoint.rows, "signed a checkpoint of the audit log");
        let more = more || checkpoint.rows < standing.chained || is_due_for_keys(&signer, &checkpoint);
        Ok(if more { Outcome::again(Duration::ZERO, "more-lines") } else { Outcome::done() })
    }
}

fn told(altered: &Altered) -> Outcome {
    tracing::error!("{altered}");
    Outcome::wait(altered)
}

fn is_due(standing: &Standing, now: Timestamp) -> bool {
    let unsigned = standing.chained.saturating_sub(standing.signed);
    let old = standing.unsigned_since.is_some_and(|since| schema::time::Duration::between(since, now).to_std() >= AGE);
    unsigned >= ROWS || (unsigned > 0 && old)
}

/// Takes the tail into the chain; answers whether there is more of it.
async fn chain(context: &Context) -> Result<bool, Failure> {
    let tail = audit::tail(context.db(), AT_ONCE).await?;
    if tail.is_empty() {
        return Ok(false);
    }
    let head = audit::head(context.db()).await?;
    let from = head.map_or(0, |(pos, _)| pos + 1);
    let mut last = head.map(|(_, link)| link);
    let links: Vec<(u64, Digest)> = (from..)
        .zip(&tail)
        .map(|(pos, entry)| {
            let link = link(last, &row(pos, entry).text());
            last = Some(link);
            (entry.seq, link)
        })
        .collect();
    let mut txn = context.begin().await?;
    audit::extend(&mut txn, from, &links).await?;
    txn.commit().await?;
    Ok(tail.len() >= AT_ONCE as usize)
}

type Checked = (Vec<String>, Option<Digest>);

/// The lines after a checkpoint, when each is what was chained, and the last link.
async fn checked(db: &Db, from: u64, before: Option<&Checkpoint>) -> Result<Result<Checked, Altered>, Failure> {
    let lines = audit::chained(db, from, AT_ONCE).await?;
    let mut last = before.map(|before| before.link);
    let mut rows = Vec::with_capacity(lines.len());
    for (expected, Chained { pos, link: stored, entry }) in (from..).zip(&lines) {
        let text = row(*pos, entry).text();
        let link = link(last, &text);
        if *pos != expected || link != *stored {
            return Ok(Err(Altered::Line(expected)));
        }
        last = Some(link);
        rows.push(text);
    }
    Ok(Ok((rows, last)))
}

#[cfg(test)]
mod tests;
