//! Holds on nodes: a node is cordoned while any exists. Each source has at most one and lifts only its own.

use jiff_sqlx::ToSqlx;
use schema::{
    id::{HoldId, NodeId},
    node::{Hold, HoldSource},
    time::Timestamp,
};

use crate::{
    Db, DbError, Listed, Txn, convert,
    rows::{self, Stored},
};

/// A stored hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHold {
    /// What it says.
    pub hold: Hold,
    /// When it was placed.
    pub created_at: Timestamp,
}

/// Places the hold of its source, or replaces what that source held before. The node is locked by the caller.
///
/// # Errors
/// When the statement fails.
pub async fn place(txn: &mut Txn, id: NodeId, hold: &Hold) -> Result<(), DbError> {
    sqlx::query!(
        r#"INSERT INTO node_holds (id, node_id, source, owner, reason, until, place)
           VALUES ($1, $2, $3, $4, $5, $6, $7)
           ON CONFLICT (node_id, source) DO UPDATE
           SET owner = EXCLUDED.owner, reason = EXCLUDED.reason, until = EXCLUDED.until, place = EXCLUDED.place"#,
        HoldId::generate().as_uuid(),
        id.as_uuid(),
        hold.source.as_str(),
        hold.owner,
        hold.reason,
        hold.until.map(ToSqlx::to_sqlx) as _,
        hold.place,
    )
    .execute(txn.conn())
    .await?;
    mirror(txn, &[id.as_uuid()]).await
}

/// Lifts the hold of one source; `false` when it held nothing.
///
/// # Errors
/// When the statement fails.
pub async fn lift(txn: &mut Txn, id: NodeId, source: HoldSource) -> Result<bool, DbError> {
    let done = sqlx::query!("DELETE FROM node_holds WHERE node_id = $1 AND source = $2", id.as_uuid(), source.as_str())
        .execute(txn.conn())
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    mirror(txn, &[id.as_uuid()]).await?;
    Ok(true)
}

/// Makes the holds of git exactly these for these nodes: `None` lifts.
///
/// # Errors
/// When the statement fails.
pub async fn replace_git(txn: &mut Txn, holds: &[(NodeId, Option<Hold>)]) -> Result<(), DbError> {
    let lifted: Vec<uuid::Uuid> = holds.iter().filter(|(_, hold)| hold.is_none()).map(|(id, _)| id.as_uuid()).collect();
    sqlx::query!("DELETE FROM node_holds WHERE node_id = ANY($1) AND source = 'git'", &lifted)
        .execute(txn.conn())
        .await?;
    let placed: Vec<(NodeId, &Hold)> =
        holds.iter().filter_map(|(id, hold)| hold.as_ref().map(|hold| (*id, hold))).collect();
    let hold_ids: Vec<uuid::Uuid> = placed.iter().map(|_| HoldId::generate().as_uuid()).collect();
    let ids: Vec<uuid::Uuid> = placed.iter().map(|(id, _)| id.as_uuid()).collect();
    let owners: Vec<String> = placed.iter().map(|(_, hold)| hold.owner.clone()).collect();
    let reasons: Vec<String> = placed.iter().map(|(_, hold)| hold.reason.clone()).collect();
    let untils: Vec<Option<jiff_sqlx::Timestamp>> =
        placed.iter().map(|(_, hold)| convert::time_column(hold.until)).collect();
    let places: Vec<Option<String>> = placed.iter().map(|(_, hold)| hold.place.clone()).collect();
    sqlx::query!(
        r#"INSERT INTO node_holds (id, node_id, source, owner, reason, until, place)
           SELECT id, node_id, 'git', owner, reason, until, place
           FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::text[])
                AS h (id, node_id, owner, reason, until, place)
           ON CONFLICT (node_id, source) DO UPDATE
           SET owner = EXCLUDED.owner, reason = EXCLUDED.reason, until = EXCLUDED.until, place = EXCLUDED.place"#,
        &hold_ids,
        &ids,
        &owners,
        &reasons,
        &untils as _,
        &places as &[Option<String>],
    )
    .execute(txn.conn())
    .await?;
    let touched: Vec<uuid::Uuid> = holds.iter().map(|(id, _)| id.as_uuid()).collect();
    mirror(txn, &touched).await
}

/// Lifts every hold whose end has passed, and answers the nodes that had one.
///
/// # Errors
/// When the statement fails.
pub async fn expire(txn: &mut Txn) -> Result<Vec<NodeId>, DbError> {
    let mut ids = sqlx::query_scalar!("DELETE FROM node_holds WHERE until <= compute_now() RETURNING node_id")
        .fetch_all(txn.conn())
        .await?;
    if !ids.is_empty() {
        ids.sort_unstable();
        ids.dedup();
        mirror(txn, &ids).await?;
    }
    Ok(ids.into_iter().map(NodeId::from_uuid).collect())
}

/// The nodes that have a hold whose end has passed: whether [`expire`] has anything to do.
///
/// # Errors
/// When the statement fails.
pub async fn expired(db: &Db) -> Result<Vec<NodeId>, DbError> {
    let ids = sqlx::query_scalar!("SELECT DISTINCT node_id FROM node_holds WHERE until <= compute_now()")
        .fetch_all(db.pool())
        .await?;
    Ok(ids.into_iter().map(NodeId::from_uuid).collect())
}

// The columns of a Row, once; `$tail` is the rest of the statement.
macro_rules! select {
    ($tail:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            Row,
            r#"SELECT n.name, h.source, h.owner, h.reason, h.until, h.place, h.created_at
               FROM node_holds h
               JOIN nodes n ON n.id = h.node_id "# + $tail
            $(, $arg)*
        )
    };
}

/// The holds on one node.
///
/// # Errors
/// When the statement fails.
pub async fn list(db: &Db, id: NodeId) -> Result<Listed<NodeHold>, DbError> {
    let listed = rows::list(db.pool(), select!("WHERE h.node_id = $1 ORDER BY h.source", id.as_uuid())).await?;
    Ok(Listed { items: listed.items.into_iter().map(|(_, hold)| hold).collect(), unreadable: listed.unreadable })
}

/// The holds on one node, inside a transaction that locked it.
///
/// # Errors
/// When the statement fails, and when one of them cannot be read.
pub async fn list_locked(txn: &mut Txn, id: NodeId) -> Result<Vec<NodeHold>, DbError> {
    let listed = rows::list(txn.conn(), select!("WHERE h.node_id = $1 ORDER BY h.source", id.as_uuid())).await?;
    Ok(listed.whole()?.into_iter().map(|(_, hold)| hold).collect())
}

/// Every hold whose end has not passed, with the node's name, by name.
///
/// # Errors
/// When the statement fails.
pub async fn list_all(txn: &mut Txn) -> Result<Listed<(String, NodeHold)>, DbError> {
    let statement = select!("WHERE h.until IS NULL OR h.until > compute_now() ORDER BY n.name, h.source");
    rows::list(txn.conn(), statement).await
}

// Keeps `nodes.cordoned` what it mirrors. Any change of holds also moves the version.
async fn mirror(txn: &mut Txn, ids: &[uuid::Uuid]) -> Result<(), DbError> {
    sqlx::query!(
        r#"UPDATE nodes n
           SET cordoned = EXISTS (SELECT FROM node_holds h WHERE h.node_id = n.id), version = version + 1, updated_at = compute_now()
           WHERE n.id = ANY($1)"#,
        ids,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    source: String,
    owner: String,
    reason: String,
    until: Option<jiff_sqlx::Timestamp>,
    place: Option<String>,
    created_at: jiff_sqlx::Timestamp,
}

impl Stored for Row {
    type Item = (String, NodeHold);
    const TABLE: &'static str = "node_holds";
    const KEY: &'static [&'static str] = &["name", "source"];

    fn read(self) -> Result<(String, NodeHold), DbError> {
        let hold = NodeHold {
            hold: Hold {
                source: convert::word("hold source", &self.source)?,
                owner: self.owner,
                reason: self.reason,
                until: convert::time(self.until),
                place: self.place,
            },
            created_at: self.created_at.to_jiff(),
        };
        Ok((self.name, hold))
    }
}
