//! What machines are called and where they belong, with the tag over it. Whoever has no key writes no tag.

use schema::id::NodeId;

use crate::{Db, DbError, Txn, marks};

/// A machine's place as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The machine.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: Option<String>,
    /// The tag; `None` when there is none.
    pub tag: Option<Vec<u8>>,
}

impl Placement {
    /// What the tag is made over.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        marks::placement(self.id, &self.name, self.pool.as_deref())
    }
}

/// Tags the places of machines that a revision moved or renamed, where they were tagged before: a place that nobody stood by
/// stays without a tag. `before` is what [`list`] answered before the revision was written.
///
/// # Errors
/// When a statement fails.
pub async fn follow(txn: &mut Txn, before: &[Placement]) -> Result<(), DbError> {
    let before: std::collections::HashMap<NodeId, &Placement> = before.iter().map(|place| (place.id, place)).collect();
    let after = list(txn).await?;
    let Some(marker) = txn.marker() else { return Ok(()) };
    let good = |was: &&&Placement| was.tag.as_ref().is_some_and(|tag| marker.is_placement(&was.bytes(), tag));
    let moved: Vec<Placement> = after
        .into_iter()
        .filter(|place| {
            let was = before.get(&place.id).filter(good);
            was.is_some_and(|was| (&was.name, &was.pool) != (&place.name, &place.pool))
        })
        .map(|place| Placement { tag: Some(marker.placement(&place.bytes())), ..place })
        .collect();
    if moved.is_empty() { Ok(()) } else { tag(txn, &moved).await }
}

/// Tags a machine's place as its row has it: somebody stands by it.
///
/// # Errors
/// When a statement fails.
pub async fn vouch(txn: &mut Txn, id: NodeId) -> Result<(), DbError> {
    let row = sqlx::query!("SELECT name, pool FROM nodes WHERE id = $1", id.as_uuid()).fetch_one(txn.conn()).await?;
    let place = Placement { id, name: row.name, pool: row.pool, tag: None };
    let made = txn.marker().map(|marker| marker.placement(&place.bytes()));
    tag(txn, &[Placement { tag: made, ..place }]).await
}

/// Whether somebody stands by a machine's place as its row has it. A process without keys believes what stands there.
///
/// # Errors
/// When the statement fails, and when there is no such machine.
pub async fn is_vouched(txn: &mut Txn, id: NodeId) -> Result<bool, DbError> {
    let Some(marker) = txn.marker() else { return Ok(true) };
    let row = sqlx::query!("SELECT name, pool, placement FROM nodes WHERE id = $1", id.as_uuid())
        .fetch_one(txn.conn())
        .await?;
    let place = Placement { id, name: row.name, pool: row.pool, tag: row.placement };
    Ok(place.tag.as_ref().is_some_and(|tag| marker.is_placement(&place.bytes(), tag)))
}

/// One machine's place.
///
/// # Errors
/// When the statement fails.
pub async fn find(db: &Db, id: NodeId) -> Result<Option<Placement>, DbError> {
    let row = sqlx::query!("SELECT name, pool, placement FROM nodes WHERE id = $1", id.as_uuid())
        .fetch_optional(db.pool())
        .await?;
    Ok(row.map(|row| Placement { id, name: row.name, pool: row.pool, tag: row.placement }))
}

/// Every machine's place.
///
/// # Errors
/// When the statement fails.
pub async fn list(txn: &mut Txn) -> Result<Vec<Placement>, DbError> {
    let rows = sqlx::query!("SELECT id, name, pool, placement FROM nodes").fetch_all(txn.conn()).await?;
    Ok(rows
        .into_iter()
        .map(|row| Placement { id: NodeId::from_uuid(row.id), name: row.name, pool: row.pool, tag: row.placement })
        .collect())
}

/// Tags the places of machines. One whose name or pool is another one by now keeps what it has.
///
/// # Errors
/// When the statement fails.
pub async fn tag(txn: &mut Txn, placements: &[Placement]) -> Result<(), DbError> {
    let ids: Vec<uuid::Uuid> = placements.iter().map(|placement| placement.id.as_uuid()).collect();
    let names: Vec<String> = placements.iter().map(|placement| placement.name.clone()).collect();
    let pools: Vec<Option<String>> = placements.iter().map(|placement| placement.pool.clone()).collect();
    let tags: Vec<Option<Vec<u8>>> = placements.iter().map(|placement| placement.tag.clone()).collect();
    sqlx::query!(
        r#"UPDATE nodes n SET placement = p.tag
           FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::bytea[]) AS p (id, name, pool, tag)
           WHERE n.id = p.id AND n.name = p.name AND n.pool IS NOT DISTINCT FROM p.pool"#,
        &ids,
        &names,
        &pools as &[Option<String>],
        &tags as &[Option<Vec<u8>>],
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
