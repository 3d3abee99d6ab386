//! What stands in the chain behind the last checkpoint that is ours, held against what its links say was chained.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use pki::{
    audit::{Checkpoint, link},
    checkpoint::AuditSigner,
};
use schema::{digest::Digest, time::Timestamp};
use store::{
    Db, DbError,
    audit::{self, Chained, Looked},
};

use super::row;
use crate::reconcile::WaitReason;

/// So many checkpoints are looked at in one go, when the last ones are not ours.
const PAGE: u32 = 256;

/// Why nothing is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Altered {
    /// A place of the chain.
    Line(u64),
    /// A checkpoint.
    Checkpoint(u64),
}

/// The stable word.
pub(crate) const ALTERED: &str = "audit-altered";

impl WaitReason for Altered {
    fn code(&self) -> &'static str {
        ALTERED
    }
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(pos) => {
                write!(f, "line {pos} of the audit log is not what was chained: somebody changed it in the database")?;
            }
            Self::Checkpoint(n) => write!(
                f,
                "checkpoint {n} of the audit log was signed by no key that this control plane holds: somebody wrote it into the database, or the database is from before the keys were replaced"
            )?,
        }
        f.write_str("; nothing is signed behind it. `better-compute audit mend --help` says how it goes on")
    }
}

/// Lines that are in no chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outside {
    count: u64,
    ids: Vec<String>,
}

/// The stable word.
pub(crate) const OUTSIDE: &str = "audit-outside";

/// So many are named.
const NAMED: u32 = 20;

/// How far a look came that is one of many.
#[derive(Debug, Default)]
pub(crate) struct Glances(Mutex<Looked>);

/// So many of the newest lines are looked at in one of them, and as many of the others, one after another.
const GLANCE: u32 = 20_000;

impl Glances {
    /// What the database has beside the chain. As long as nothing is known of such lines this looks at a part of all lines, and in
    /// the end at every one; from then on at all of them.
    pub(crate) async fn look(&self, db: &Db, known: bool) -> Result<Option<Outside>, DbError> {
        self.look_at(db, known, GLANCE).await
    }

    /// The same, at so many lines.
    pub(super) async fn look_at(&self, db: &Db, known: bool, lines: u32) -> Result<Option<Outside>, DbError> {
        if !known {
            let looked = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (found, upto) = audit::glance(db, looked, lines).await?;
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = upto;
            if !found {
                return Ok(None);
            }
        }
        Outside::look(db).await
    }
}

impl Outside {
    /// What the database has beside the chain: looks at every line.
    pub(crate) async fn look(db: &Db) -> Result<Option<Self>, DbError> {
        let audit::Outside { count, first } = audit::outside(db, NAMED).await?;
        Ok((count > 0).then(|| Self { count, ids: first.iter().map(|line| line.id.to_string()).collect() }))
    }
}

impl From<Outside> for pki::audit::Outside {
    fn from(Outside { count, ids }: Outside) -> Self {
        Self { count, ids }
    }
}

impl WaitReason for Outside {
    fn code(&self) -> &'static str {
        OUTSIDE
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = self.count.saturating_sub(self.ids.len() as u64);
        let (lines, are) = if self.count == 1 { ("line", "is") } else { ("lines", "are") };
        write!(
            f,
            "{} {lines} of the audit log {are} in no chain, written while somebody had its triggers switched off: ",
            self.count
        )?;
        f.write_str(&self.ids.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more")?;
        }
        f.write_str("; no export has them. `better-compute audit mend --help` says how they are named and set aside")
    }
}

/// A stored checkpoint, when a key that is held here signed it.
pub(crate) fn ours(stored: &audit::Checkpoint, signer: &AuditSigner) -> Option<Checkpoint> {
    let known = |key| Some(key) == signer.before() || key == signer.key() || Some(key) == signer.next();
    let read = std::str::from_utf8(&stored.body).ok().and_then(|text| Checkpoint::read(text).ok());
    read.filter(|checkpoint| {
        known(checkpoint.key)
            && checkpoint.key.signed_audit(signer.realm(), &stored.body, &stored.signature)
            && (checkpoint.n, checkpoint.rows) == (stored.n, stored.rows)
    })
}

/// The last checkpoint that is ours, as it is stored.
pub(crate) async fn last_of_ours(
    db: &Db,
    signer: &AuditSigner,
) -> Result<Option<(Checkpoint, audit::Checkpoint)>, DbError> {
    let mut before = None;
    loop {
        let page = audit::checkpoints_back(db, before, PAGE).await?;
        before = page.last().map(|stored| stored.n);
        if before.is_none() {
            return Ok(None);
        }
        let found = page.into_iter().find_map(|stored| Some((ours(&stored, signer)?, stored)));
        if found.is_some() {
            return Ok(found);
        }
    }
}

/// Lines behind a checkpoint that are what was chained.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// Their texts.
    pub(super) rows: Vec<String>,
    /// The link of the last of them, or of the checkpoint.
    pub(super) link: Option<Digest>,
    /// When the first of them was written.
    pub(super) since: Option<Timestamp>,
}

impl Region {
    /// Behind a checkpoint, before anything was read.
    pub(super) fn behind(checkpoint: Option<&Checkpoint>) -> Self {
        Self { link: checkpoint.map(|checkpoint| checkpoint.link), ..Self::default() }
    }

    /// Takes the next line in, and answers its link.
    pub(super) fn push(&mut self, text: String, at: Timestamp) -> Digest {
        let link = link(self.link, &text);
        self.link = Some(link);
        self.since.get_or_insert(at);
        self.rows.push(text);
        link
    }
}

/// The lines from a place on, up to `limit`, as long as each is what was chained; `standing` is how many places there are in all.
pub(super) async fn region(
    db: &Db,
    checkpoint: Option<&Checkpoint>,
    standing: u64,
    limit: u32,
) -> Result<Result<Region, Altered>, DbError> {
    let from = checkpoint.map_or(0, |checkpoint| checkpoint.rows);
    let mut region = Region::behind(checkpoint);
    let lines = audit::chained(db, from, limit).await?;
    for (expected, Chained { pos, link: stored, entry }) in (from..).zip(&lines) {
        if *pos != expected || region.push(row(expected, entry).text(), entry.at) != *stored {
            return Ok(Err(Altered::Line(expected)));
        }
    }
    let read = from + lines.len() as u64;
    // A place whose line is gone ends what can be read.
    let gone = lines.len() < limit as usize && read < standing;
    Ok(if gone { Err(Altered::Line(read)) } else { Ok(region) })
}
