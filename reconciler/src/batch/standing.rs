//! How a batch stands: what people said so far, and what is missing. The API shows it, and the reconciler acts on it.

use std::collections::BTreeSet;

use pki::{
    batch::{BatchHeader, NoVote, Question, RefusedVote, Tally, attainable, candidates, judge},
    trust::statement::Under,
};
use schema::{name::Name, time::Timestamp};
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
    /// What was said under a policy that is not in force any more, and why each of it does not count.
    pub lapsed: Vec<RefusedVote>,
    /// Who could still approve it.
    pub candidates: BTreeSet<Name>,
    /// Whether they and those who did would be enough.
    pub attainable: bool,
    /// Keys that count no more, by name, as far as this control plane heard.
    pub revoked: BTreeSet<String>,
}

/// Judges a stored batch; `None` when nobody has to approve it, and when what is stored is no header.
///
/// # Errors
/// When PostgreSQL does not answer.
pub async fn standing(db: &Db, trust: &Trust, batch: &Batch, now: Timestamp) -> Result<Option<Standing>, DbError> {
    let (Some(signed), Some(present)) = (&batch.new.signed, trust.present()) else { return Ok(None) };
    let Some(header) = BatchHeader::read(&signed.header).filter(|header| header.digest() == signed.digest) else {
        return Ok(None);
    };
    let statements = store::trust::statements_of(db, &KINDS, Some(batch.new.name.as_str())).await?;
    let statements: Vec<Vec<u8>> = statements.into_iter().map(|statement| statement.raw).collect();
    let kinds = BTreeSet::from([batch.new.kind.clone()]);
    let question = Question {
        header: &header,
        kinds: &kinds,
        statements: &statements,
        named: present,
        present,
        revoked: &trust.revoked,
        now,
    };
    let (tally, lapsed, candidates, attainable) = if header.under
        == (Under { epoch: present.epoch(), digest: present.digest() })
    {
        let tally = judge(&question);
        let (candidates, attainable) = (candidates(&question, &tally), attainable(&question, &tally));
        (Some(tally), Vec::new(), candidates, attainable)
    } else {
        let named = trust.policies.get(&header.under.epoch).filter(|named| named.digest() == header.under.digest);
        (None, named.map(|named| lapsed(&Question { named, ..question })).unwrap_or_default(), BTreeSet::new(), false)
    };
    Ok(Some(Standing { header, statements, tally, lapsed, candidates, attainable, revoked: trust.revoked.clone() }))
}

/// Why nothing of what people said under a policy counts any more: what is wrong with each of them under the present one, and that
/// it is another one.
#[must_use]
pub fn lapsed(question: &Question<'_>) -> Vec<RefusedVote> {
    let mut tally = judge(question);
    if tally.flaw.is_some() {
        tally = judge(&Question { present: question.named, now: question.header.not_before, ..*question });
    }
    let epoch = question.header.under.epoch;
    let spoke = tally.yes.into_iter().chain(tally.no).chain(tally.withdrawn);
    let over = spoke.map(|who| RefusedVote { who: Some(who), why: NoVote::OtherPolicy(epoch) });
    over.chain(tally.refused).collect()
}
