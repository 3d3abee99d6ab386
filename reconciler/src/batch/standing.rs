//! How a batch stands: what people said so far, and what is missing. The API shows it, and the reconciler acts on it.

use std::collections::BTreeSet;

use pki::{
    batch::{BatchHeader, Question, Tally, judge},
    trust::policy::Policy,
};
use schema::time::Timestamp;
use store::{Db, DbError, batches::Batch};

use super::resolve::Trust;
use crate::trust::{self, Pinned};

/// Kinds of statements about batches.
pub const KINDS: [&str; 3] = ["approve/v1", "reject/v1", "withdraw/v1"];

/// Whom people trust; `None` while nobody pinned an anchor.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn trust(db: &Db, pinned: &Pinned, trust_domain: &str) -> Result<Option<Trust>, DbError> {
    let Some(pin) = pinned.get() else { return Ok(None) };
    let Some((policies, revoked)) = trust::in_force(db, pinned).await? else { return Ok(None) };
    Ok(Some(Trust { trust_domain: trust_domain.to_owned(), fleet: pin.fleet, policies, revoked }))
}

/// How a batch stands with people.
#[derive(Debug, Clone)]
pub struct Standing {
    /// What people sign.
    pub header: BatchHeader,
    /// What they said, as it came.
    pub statements: Vec<Vec<u8>>,
    /// What that comes to; `None` when the policy that it names is not in force any more.
    pub tally: Option<Tally>,
}

/// Judges a stored batch; `None` when nobody has to approve it, and when what is stored is no header.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn standing(db: &Db, trust: &Trust, batch: &Batch, now: Timestamp) -> Result<Option<Standing>, DbError> {
    let (Some(signed), Some(_)) = (&batch.new.signed, trust.present()) else { return Ok(None) };
    let Some(header) = BatchHeader::read(&signed.header).filter(|header| header.digest() == signed.digest) else {
        return Ok(None);
    };
    let statements = store::trust::statements_of(db, &KINDS, Some(batch.new.name.as_str())).await?;
    let statements: Vec<Vec<u8>> = statements.into_iter().map(|statement| statement.raw).collect();
    let tally = tally(trust, &header, &batch.new.kind, &statements, now);
    Ok(Some(Standing { header, statements, tally }))
}

fn tally(trust: &Trust, header: &BatchHeader, kind: &str, statements: &[Vec<u8>], now: Timestamp) -> Option<Tally> {
    let present: &Policy = trust.present()?;
    if (header.under.epoch, header.under.digest) != (present.epoch(), present.digest()) {
        return None;
    }
    let kinds = BTreeSet::from([kind.to_owned()]);
    Some(judge(&Question { header, kinds: &kinds, statements, named: present, present, revoked: &trust.revoked, now }))
}
