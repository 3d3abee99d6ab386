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

/// The numbers of the lines behind `after`, up to `upto`, that are not in the chain, do not wait for it, and were not set aside:
/// whoever wrote them had switched the log's triggers off.
async fn seqs(db: impl sqlx::PgExecutor<'_>, after: i64, upto: i64) -> Result<Vec<i64>, DbError> {
    // Each table is told the bounds: what is read is no more than lies within them.
    let found = sqlx::query_scalar!(
        r#"SELECT a.seq AS "seq!" FROM audit a
           WHERE a.seq > $1 AND a.seq <= $2
             AND NOT EXISTS (SELECT FROM audit_chain c WHERE c.seq = a.seq AND c.seq > $1 AND c.seq <= $2)
             AND NOT EXISTS (SELECT FROM audit_tail t WHERE t.seq = a.seq AND t.seq > $1 AND t.seq <= $2)
             AND NOT EXISTS (SELECT FROM audit_aside s WHERE s.seq = a.seq AND s.seq > $1 AND s.seq <= $2)
           ORDER BY a.seq"#,
        after,
        upto,
    )
    .fetch_all(db)
    .await?;
    Ok(found)
}

/// Lines that are in no chain. At most `named` of them are read. Looks at every line there is.
///
/// # Errors
/// When a statement fails.
pub async fn outside(db: &Db, named: u32) -> Result<Outside, DbError> {
    let all = seqs(db.pool(), i64::MIN, i64::MAX).await?;
    let first = &all[..all.len().min(named as usize)];
    let first = lines!(Row, "", "WHERE a.seq = ANY($1) ORDER BY a.seq", first).fetch_all(db.pool()).await?;
    Ok(Outside { count: all.len() as u64, first: first.into_iter().map(Row::read).collect() })
}

/// How far lines were looked at that were in no chain: behind the line with this number, and from the beginning when there is none.
pub type Looked = Option<i64>;

/// Whether there are lines in no chain among the newest `lines`, and among as many behind `looked`. Also how far that was; who
/// goes on from there has looked at every line in the end.
///
/// # Errors
/// When a statement fails.
pub async fn glance(db: &Db, looked: Looked, lines: u32) -> Result<(bool, Looked), DbError> {
    let after = looked.unwrap_or(i64::MIN);
    let ends = sqlx::query!(
        r#"SELECT (SELECT seq FROM audit WHERE seq > $1 ORDER BY seq OFFSET $2::bigint - 1 LIMIT 1) AS upto,
                  (SELECT seq FROM audit ORDER BY seq DESC OFFSET $2 LIMIT 1) AS newest"#,
        after,
        i64::from(lines),
    )
    .fetch_one(db.pool())
    .await?;
    let found = !seqs(db.pool(), after, ends.upto.unwrap_or(i64::MAX)).await?.is_empty()
        || !seqs(db.pool(), ends.newest.unwrap_or(i64::MIN), i64::MAX).await?.is_empty();
    Ok((found, ends.upto))
}

/// Sets the lines aside that are in no chain. Answers how many.
///
/// # Errors
/// When a statement fails.
pub async fn set_outside_aside(txn: &mut Txn) -> Result<usize, DbError> {
    let all = seqs(txn.conn(), i64::MIN, i64::MAX).await?;
    sqlx::query!(
        r#"INSERT INTO audit_aside (what, place, seq, body)
           SELECT 'outside', a.seq, a.seq, uuid_send(a.id) FROM audit a WHERE a.seq = ANY($1) ORDER BY a.seq"#,
        &all,
    )
    .execute(txn.conn())
    .await?;
    Ok(all.len())
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
