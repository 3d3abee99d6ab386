//! The way on where somebody wrote into the chain: everything behind the last checkpoint that is ours is looked at, what is not
//! what was chained is set aside and named, and the rest is chained anew. Nothing is believed by that which was not believed
//! before, and nothing of the log is deleted.

use pki::{
    audit::{Checkpoint, link},
    checkpoint::AuditSigner,
};
use schema::digest::Digest;
use serde::Serialize;
use serde_json::{Value, json};
use store::{
    Db, DbError, Txn,
    audit::{self, Chained},
    queue,
};

use super::{OUTSIDE_KEY, look::last_of_ours, row};

/// So many are named in the line that says what was set aside; the rest is counted.
const NAMED: usize = 50;
/// So much of a line's text is told.
const TOLD: usize = 500;
/// Lines that are read at a time.
const PAGE: u32 = 2_000;

/// What was set aside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mended {
    /// The checkpoint that the chain goes on from; none when it begins anew.
    pub(crate) checkpoint: Option<u64>,
    /// The lines that it stands by.
    pub(crate) rows: u64,
    /// Lines behind it that are what was chained, and are chained anew.
    pub(crate) again: usize,
    /// Places that are not, with the first of them.
    pub(crate) lines: Aside<Line>,
    /// Checkpoints that are not ours, with the first of them.
    pub(crate) checkpoints: Aside<Planted>,
    /// Lines that are in no chain, with the first of them.
    pub(crate) outside: Aside<Beside>,
}

/// Some things, the first of them by name.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Aside<T> {
    /// How many.
    pub(crate) count: usize,
    /// The first of them.
    pub(crate) named: Vec<T>,
}

impl<T> Default for Aside<T> {
    fn default() -> Self {
        Self { count: 0, named: Vec::new() }
    }
}

impl<T> Aside<T> {
    fn put(&mut self, one: impl FnOnce() -> T) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(one());
        }
    }
}

/// A place of the chain, as it was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    /// The place.
    pub(crate) pos: u64,
    /// The line's id.
    pub(crate) id: String,
    /// The digest of its text as it stands there.
    pub(crate) digest: Digest,
    /// How that begins.
    pub(crate) text: String,
}

/// A checkpoint, as it was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Planted {
    /// Its number.
    pub(crate) n: u64,
    /// The digest of what it says.
    pub(crate) digest: Digest,
}

/// A line that is in no chain, as it was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Beside {
    /// Its id.
    pub(crate) id: String,
    /// The digest of its text, as if it stood at the place of its number.
    pub(crate) digest: Digest,
    /// How that begins.
    pub(crate) text: String,
}

impl Mended {
    /// Whether nothing had to be set aside.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.lines.count == 0 && self.checkpoints.count == 0 && self.outside.count == 0
    }

    /// What the log says of it.
    pub(crate) fn detail(&self, owner: &str, reason: &str) -> Value {
        json!({
            "owner": owner, "reason": reason, "checkpoint": self.checkpoint, "rows": self.rows, "again": self.again,
            "lines": self.lines, "checkpoints": self.checkpoints, "outside": self.outside,
        })
    }
}

/// Sets aside what keeps the chain from going on, and lets it go on. Where that is nothing, nothing is to be committed.
pub(crate) async fn mend(db: &Db, txn: &mut Txn, signer: &AuditSigner) -> Result<Mended, DbError> {
    audit::lock(txn).await?;
    let last = last_of_ours(db, signer).await?.map(|(checkpoint, _)| checkpoint);
    let mut mended = Mended {
        checkpoint: last.as_ref().map(|last| last.n),
        rows: last.as_ref().map_or(0, |last| last.rows),
        ..Mended::default()
    };
    planted(db, &mut mended).await?;
    beside(db, txn, &mut mended).await?;
    let again = held_against(db, last.as_ref(), &mut mended).await?;
    // A place whose line is gone is read by nobody, and is counted all the same.
    mended.lines.count = audit::set_aside(txn, mended.checkpoint, mended.rows, &again).await?;
    mended.again = again.len();
    queue::enqueue(txn, &queue::AUDIT, ["all", OUTSIDE_KEY]).await?;
    Ok(mended)
}

/// Checkpoints behind the last one that is ours.
async fn planted(db: &Db, mended: &mut Mended) -> Result<(), DbError> {
    let mut from = mended.checkpoint.map_or(0, |n| n + 1);
    loop {
        let page = audit::checkpoints(db, from, PAGE).await?;
        for stored in &page {
            mended.checkpoints.put(|| Planted { n: stored.n, digest: Digest::of(&stored.body) });
            from = stored.n.saturating_add(1);
        }
        if page.len() < PAGE as usize {
            return Ok(());
        }
    }
}

/// Lines that are in no chain.
async fn beside(db: &Db, txn: &mut Txn, mended: &mut Mended) -> Result<(), DbError> {
    for entry in audit::outside(db, u32::try_from(NAMED).unwrap_or(u32::MAX)).await?.first {
        let text = row(u64::try_from(entry.seq).unwrap_or_default(), &entry).text();
        mended.outside.put(|| Beside {
            id: entry.id.to_string(),
            digest: Digest::of(&text),
            text: text.chars().take(TOLD).collect(),
        });
    }
    mended.outside.count = audit::set_outside_aside(txn).await?;
    Ok(())
}

/// Holds each place behind a checkpoint against its link and the one before it. Answers the lines that are what was chained.
async fn held_against(db: &Db, last: Option<&Checkpoint>, mended: &mut Mended) -> Result<Vec<i64>, DbError> {
    let (mut from, mut before) = (mended.rows, last.map(|last| last.link));
    let (mut expected, mut again) = (from, Vec::new());
    loop {
        let page = audit::chained(db, from, PAGE).await?;
        for Chained { pos, link: stored, entry } in &page {
            let text = row(*pos, entry).text();
            if *pos == expected && link(before, &text) == *stored {
                again.push(entry.seq);
            } else {
                mended.lines.put(|| Line {
                    pos: *pos,
                    id: entry.id.to_string(),
                    digest: Digest::of(&text),
                    text: text.chars().take(TOLD).collect(),
                });
            }
            (expected, before) = (pos.saturating_add(1), Some(*stored));
        }
        from = expected;
        if page.len() < PAGE as usize {
            return Ok(again);
        }
    }
}
