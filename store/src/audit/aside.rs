//! What the chain is continued without. Whoever writes into the database writes places and checkpoints that nothing stands by: an
//! operator has them set aside, where they stay for people to look at.

use std::collections::BTreeSet;

use super::{Entry, Row, chain::column};
use crate::{Db, DbError, Txn};

/// Lines that are in no chain.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outside {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Entry>,
}

/// Lines that are not in the chain, do not wait for it, and were not set aside: whoever wrote them had switched the log's triggers
/// off. At most `named` of them are read. Looks at every line there is.
///
/// # Errors
/// When a statement fails.
pub async fn outside(db: &Db, named: u32) -> Result<Outside, DbError> {
    let first: Vec<Entry> = lines!(
        Row,
        "",
        r#"WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_tail t WHERE t.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_aside s WHERE s.seq = a.seq)
           ORDER BY a.seq LIMIT $1"#,
        i64::from(named),
    )
    .fetch_all(db.pool())
    .await?
    .into_iter()
    .map(Row::read)
    .collect();
    if first.len() < named as usize {
        return Ok(Outside { count: first.len() as u64, first });
    }
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM audit a
           WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_tail t WHERE t.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_aside s WHERE s.seq = a.seq)"#
    )
    .fetch_one(db.pool())
    .await?;
    Ok(Outside { count: u64::try_from(count).unwrap_or_default(), first })
}

/// Sets the lines aside that are in no chain. Answers how many.
///
/// # Errors
/// When the statement fails.
pub async fn set_outside_aside(txn: &mut Txn) -> Result<usize, DbError> {
    let done = sqlx::query!(
        r#"INSERT INTO audit_aside (what, place, seq, body)
           SELECT 'outside', a.seq, a.seq, uuid_send(a.id) FROM audit a
           WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_tail t WHERE t.seq = a.seq)
             AND NOT EXISTS (SELECT FROM audit_aside s WHERE s.seq = a.seq)
           ORDER BY a.seq"#
    )
    .execute(txn.conn())
    .await?;
    Ok(usize::try_from(done.rows_affected()).unwrap_or(usize::MAX))
}

/// Keeps the chain as it is for everybody else until the commit.
///
/// # Errors
/// When the statement fails.
pub async fn lock(txn: &mut Txn) -> Result<(), DbError> {
    sqlx::query!("LOCK TABLE audit_chain, audit_checkpoints IN SHARE ROW EXCLUSIVE MODE").execute(txn.conn()).await?;
    Ok(())
}

/// Sets aside every checkpoint behind a number, and every place from `from` on. The lines of `again` go back to the tail, to be
/// chained anew. Nothing of the log itself changes. Answers how many places were set aside.
///
/// # Errors
/// When a statement fails.
pub async fn set_aside(txn: &mut Txn, checkpoint: Option<u64>, from: u64, again: &[i64]) -> Result<usize, DbError> {
    let (checkpoint, from) = (checkpoint.map_or(-1, column), column(from));
    let lines = sqlx::query!(
        r#"INSERT INTO audit_aside (what, place, seq, body)
           SELECT 'line', pos, seq, link FROM audit_chain WHERE pos >= $1 AND NOT seq = ANY($2) ORDER BY pos"#,
        from,
        again,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!(
        r#"INSERT INTO audit_aside (what, place, body, signature)
           SELECT 'checkpoint', n, body, signature FROM audit_checkpoints WHERE n > $1 ORDER BY n"#,
        checkpoint,
    )
    .execute(txn.conn())
    .await?;
    sqlx::query!("SELECT set_config('better_compute.sets_aside', 'on', true) AS set").fetch_one(txn.conn()).await?;
    sqlx::query!("DELETE FROM audit_chain WHERE pos >= $1", from).execute(txn.conn()).await?;
    sqlx::query!("DELETE FROM audit_checkpoints WHERE n > $1", checkpoint).execute(txn.conn()).await?;
    sqlx::query!("SELECT set_config('better_compute.sets_aside', '', true) AS set").fetch_one(txn.conn()).await?;
    sqlx::query!("INSERT INTO audit_tail (seq) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING", again)
        .execute(txn.conn())
        .await?;
    Ok(usize::try_from(lines.rows_affected()).unwrap_or(usize::MAX))
}

/// Which of some lines are set aside.
///
/// # Errors
/// When the statement fails.
pub async fn were_set_aside(db: &Db, seqs: &[i64]) -> Result<BTreeSet<i64>, DbError> {
    let found = sqlx::query_scalar!(
        r#"SELECT s.seq AS "seq!" FROM audit_aside s
           WHERE s.seq = ANY($1) AND NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = s.seq)"#,
        seqs
    )
    .fetch_all(db.pool())
    .await?;
    Ok(found.into_iter().collect())
}
