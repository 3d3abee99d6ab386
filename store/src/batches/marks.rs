//! What the mark of a batch is made over: everything that acts, and nothing that becomes of it.

use schema::{
    digest::Digest,
    id::{BatchId, NodeId},
    name::Name,
};
use serde_json::json;

use super::{Batch, Leaf, NewBatch, NewLeaf};
use crate::{DbError, Txn, convert};

/// The part of a machine in it.
struct Machine<'a> {
    node_id: NodeId,
    node: &'a Name,
    leaf: Option<&'a [u8]>,
    payload: &'a str,
}

impl<'a> From<&'a NewLeaf> for Machine<'a> {
    fn from(new: &'a NewLeaf) -> Self {
        Self { node_id: new.node_id, node: &new.node, leaf: new.leaf.as_deref(), payload: &new.payload }
    }
}

impl<'a> From<&'a Leaf> for Machine<'a> {
    fn from(stored: &'a Leaf) -> Self {
        Self { node_id: stored.node_id, node: &stored.node, leaf: stored.leaf.as_deref(), payload: &stored.payload }
    }
}

impl Batch {
    /// What its mark is made over, as its rows have it.
    #[must_use]
    pub fn words(&self, leaves: &[Leaf]) -> Vec<u8> {
        words(self.id, &self.new, leaves.iter().map(Machine::from))
    }
}

/// What the mark of a batch that is put is made over.
pub(super) fn of_new(id: BatchId, new: &NewBatch, leaves: &[NewLeaf]) -> Vec<u8> {
    words(id, new, leaves.iter().map(Machine::from))
}

fn words<'a>(id: BatchId, new: &NewBatch, machines: impl Iterator<Item = Machine<'a>>) -> Vec<u8> {
    let machine = |Machine { node_id, node, leaf, payload }: Machine<'a>| {
        json!([node_id, node, leaf.map(Digest::of), Digest::of(payload)])
    };
    // Times and counts as their columns have them.
    json!({
        "id": id,
        "name": new.name,
        "origin": new.origin.as_str(),
        "quorum": new.quorum,
        "kind": new.kind,
        "document": Digest::of(new.doc.as_bytes()),
        "plan": new.plan,
        "header": new.signed.as_ref().map(|signed| Digest::of(&signed.header)),
        "evidence": new.evidence.as_deref().map(Digest::of),
        "notBefore": new.not_before.as_microsecond(),
        "expires": new.expires.as_microsecond(),
        "maxInFlight": convert::int(new.max_in_flight),
        "maxFailures": convert::int(new.max_failures),
        "spread": new.spread,
        "machines": machines.map(machine).collect::<Vec<_>>(),
    })
    .to_string()
    .into_bytes()
}

/// Puts another mark on a batch that still has the one that it was read with.
///
/// # Errors
/// When the statement fails.
pub async fn mark_anew(txn: &mut Txn, batch: &Batch, mark: &[u8]) -> Result<(), DbError> {
    sqlx::query!(
        "UPDATE batches SET mark = $2 WHERE id = $1 AND mark = $3 AND ended_at IS NULL",
        batch.id.as_uuid(),
        mark,
        batch.mark,
    )
    .execute(txn.conn())
    .await?;
    Ok(())
}
