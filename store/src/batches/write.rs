//! Writing batches: each move is an event and a line of the audit log in the same transaction, and wakes the reconciler.

use std::collections::BTreeSet;

use jiff_sqlx::ToSqlx;
use schema::{
    digest::Digest,
    id::{BatchId, CommandId},
    name::Name,
};
use serde_json::{Value, json};

use super::{Batch, BatchState, NewBatch, NewLeaf, Origin, marks, read};
use crate::{DbError, Txn, audit, commands, convert, outbox, queue};

/// Who moves a batch, and on whose signed words.
#[derive(Debug, Clone)]
pub struct By<'a> {
    actor: &'a str,
    people: BTreeSet<&'a str>,
}

impl<'a> By<'a> {
    /// A part of the control plane that judged what these people said.
    pub fn word_of(actor: &'a str, people: impl IntoIterator<Item = &'a Name>) -> Self {
        Self { actor, people: people.into_iter().map(Name::as_str).collect() }
    }
}

impl<'a> From<&'a str> for By<'a> {
    fn from(actor: &'a str) -> Self {
        Self { actor, people: BTreeSet::new() }
    }
}

/// What became of a batch that was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Fresh(BatchId),
    /// It is there again: its text changed before anything of it began, and what people said of the old text does not count. Or the
    /// commit came that a caller had asked for.
    Again(BatchId),
    /// The same text is there already.
    Same(BatchId),
    /// The name was used.
    Used {
        /// By which batch.
        id: BatchId,
        /// Where that comes from.
        origin: Origin,
        /// Where that is.
        state: BatchState,
    },
}

/// Writes a batch down with its machines, in the state that it begins with: `proposed` where people have to approve, else
/// `approved`.
///
/// # Errors
/// When a statement fails.
pub async fn put(txn: &mut Txn, new: &NewBatch, leaves: &[NewLeaf], message: Option<&str>) -> Result<Put, DbError> {
    let document = Digest::of(new.doc.as_bytes());
    let known = read::find_for_update(txn, new.name.as_str()).await?;
    let id = match &known {
        None => BatchId::generate(),
        Some(known) if known.document == document && known.new.plan == new.plan => {
            return Ok(Put::Same(known.id));
        }
        // Only the text of one document becomes another; a name is nobody else's.
        Some(known)
            if matches!(known.state, BatchState::Proposed | BatchState::Approved)
                && (known.new.origin, new.origin) == (Origin::Document, Origin::Document) =>
        {
            let mut leaves = super::leaves(txn, known.id).await?;
            // Ending a command wakes its node, and whoever wakes several does so in their order.
            leaves.sort_by_key(|leaf| leaf.node_id);
            let waiting: Vec<CommandId> = leaves.into_iter().filter_map(|leaf| leaf.command).collect();
            commands::lock_all(txn, &[], &waiting).await?;
            for command in waiting {
                commands::cancel(txn, command).await?;
            }
            known.id
        }
        // Who asked for it stays who asked.
        Some(known) if known.waits_for_commit() && known.document == document && new.origin == Origin::Proposal => {
            known.id
        }
        Some(known) => return Ok(Put::Used { id: known.id, origin: known.new.origin, state: known.state }),
    };
    let begin = if new.quorum { BatchState::Proposed } else { BatchState::Approved };
    let (commit, tree) = new.plan.clone().unzip();
    let signed = new.signed.as_ref();
    let asked = known.as_ref().filter(|known| known.waits_for_commit());
    let mark = txn.marker().map(|marker| marker.batch(&marks::of_new(id, new, leaves)));
    if known.is_some() {
        sqlx::query!("DELETE FROM batches WHERE id = $1", id.as_uuid()).execute(txn.conn()).await?;
    }
    sqlx::query!(
        r#"INSERT INTO batches (id, name, origin, state, message, quorum, kind, doc, document, place, why, tier, plan_commit, plan_tree,
                                header, digest, trust_epoch, proposer, evidence, created_by, leaf_count, not_before, expires,
                                max_in_flight, max_failures, spread, created_at, mark)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
                   COALESCE($27, compute_now()), $28)"#,
        id.as_uuid(),
        new.name.as_str(),
        new.origin.as_str(),
        begin.as_str(),
        message,
        new.quorum,
        new.kind,
        new.doc,
        convert::digest_column(&document),
        new.place,
        new.why,
        signed.map(|signed| signed.tier.to_string()),
        commit,
        tree,
        signed.map(|signed| signed.header.clone()),
        signed.map(|signed| convert::digest_column(&signed.digest)),
        signed.map(|signed| i64::try_from(signed.trust_epoch).unwrap_or(i64::MAX)),
        new.proposer,
        new.evidence,
        asked.map_or(new.created_by.as_str(), |asked| asked.new.created_by.as_str()),
        convert::int(u32::try_from(leaves.len()).unwrap_or(u32::MAX)),
        new.not_before.to_sqlx() as _,
        new.expires.to_sqlx() as _,
        convert::int(new.max_in_flight),
        convert::int(new.max_failures),
        new.spread,
        convert::time_column(known.as_ref().map(|known| known.created_at)) as _,
        mark,
    )
    .execute(txn.conn())
    .await?;
    let indices: Vec<i32> = (0..leaves.len()).map(|index| i32::try_from(index).unwrap_or(i32::MAX)).collect();
    let ids: Vec<uuid::Uuid> = leaves.iter().map(|leaf| leaf.node_id.as_uuid()).collect();
    let nodes: Vec<String> = leaves.iter().map(|leaf| leaf.node.to_string()).collect();
    let bytes: Vec<Option<Vec<u8>>> = leaves.iter().map(|leaf| leaf.leaf.clone()).collect();
    let payloads: Vec<String> = leaves.iter().map(|leaf| leaf.payload.clone()).collect();
    sqlx::query!(
        r#"INSERT INTO batch_leaves (batch_id, index, node_id, node, leaf, payload)
           SELECT $1, l.index, l.node_id, l.node, l.leaf, l.payload
           FROM UNNEST($2::int[], $3::uuid[], $4::text[], $5::bytea[], $6::text[]) AS l (index, node_id, node, leaf, payload)"#,
        id.as_uuid(),
        &indices,
        &ids,
        &nodes,
        &bytes as &[Option<Vec<u8>>],
        &payloads,
    )
    .execute(txn.conn())
    .await?;
    let again = known.is_some();
    let reason = (again && asked.is_none()).then_some("text-changed");
    let asked_by = asked_by(new);
    let by = By { actor: &new.created_by, people: asked_by.iter().map(String::as_str).collect() };
    tell(txn, (id, new.name.as_str()), begin, reason, &by).await?;
    wake(txn, [&new.name]).await?;
    Ok(if again { Put::Again(id) } else { Put::Fresh(id) })
}

/// Moves a batch on. One that has ended stays as it is, and the answer is `false`. With its end it loses its mark: setting its state
/// back makes no batch of it.
///
/// # Errors
/// When a statement fails.
pub async fn move_to(
    txn: &mut Txn,
    batch: &Batch,
    to: BatchState,
    reason: Option<&str>,
    message: Option<&str>,
    by: impl Into<By<'_>>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"UPDATE batches
           SET state = $2, reason = $3, message = $4,
               decided_at = CASE WHEN $2 = 'approved' THEN compute_now() WHEN $2 = 'proposed' THEN NULL ELSE decided_at END,
               ended_at = CASE WHEN $5 THEN compute_now() END,
               mark = CASE WHEN NOT $5 THEN mark END
           WHERE id = $1 AND ended_at IS NULL"#,
        batch.id.as_uuid(),
        to.as_str(),
        reason,
        message,
        to.is_terminal(),
    )
    .execute(txn.conn())
    .await?;
    let moved = done.rows_affected() == 1;
    if moved && to != batch.state {
        tell(txn, (batch.id, batch.new.name.as_str()), to, reason, &by.into()).await?;
    }
    Ok(moved)
}

/// Who asks for a batch, as its header says: whoever proposes it, and whoever signed its document.
fn asked_by(new: &NewBatch) -> Vec<String> {
    let header = new.signed.as_ref().and_then(|signed| serde_json::from_slice::<Value>(&signed.header).ok());
    let header = header.unwrap_or_default();
    let signers = header["excluded"].as_array().into_iter().flatten();
    signers.chain([&header["proposer"]]).filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn tell(
    txn: &mut Txn,
    (id, name): (BatchId, &str),
    state: BatchState,
    reason: Option<&str>,
    by: &By<'_>,
) -> Result<(), DbError> {
    let doc = json!({ "batchId": id, "name": name, "state": state.as_str(), "reason": reason });
    outbox::append(txn, &[outbox::NewEvent::new(outbox::BATCH_MOVED, format!("batch/{name}"), doc)]).await?;
    let row = sqlx::query!("SELECT document, digest, plan_commit FROM batches WHERE id = $1", id.as_uuid())
        .fetch_one(txn.conn())
        .await?;
    let mut detail = json!({
        "batchId": id, "state": state.as_str(), "reason": reason, "planCommit": row.plan_commit,
        "document": convert::digest(&row.document)?, "digest": convert::maybe_digest(row.digest)?,
    });
    if !by.people.is_empty() {
        detail[audit::PEOPLE] = json!(by.people);
    }
    audit::append(txn, by.actor, &format!("batches.{state}"), &format!("batch/{name}"), &detail).await.map(drop)
}

/// Somebody looked at an emergency afterwards. `false` when there is none to look at.
///
/// # Errors
/// When a statement fails.
pub async fn close(txn: &mut Txn, name: &str, by: &str, note: &str) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"UPDATE batches SET closed_at = compute_now(), closed_by = $2, closed_note = $3
           WHERE name = $1 AND origin = 'breakglass' AND closed_at IS NULL AND ended_at IS NOT NULL"#,
        name,
        by,
        note,
    )
    .execute(txn.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Wakes batches.
///
/// # Errors
/// When the statement fails.
pub async fn wake<'n>(txn: &mut Txn, names: impl IntoIterator<Item = &'n Name>) -> Result<(), DbError> {
    queue::enqueue(txn, &queue::BATCH, names).await
}

/// Somebody said something about a batch, or about an emergency: whoever it is about is looked at.
///
/// # Errors
/// When the statement fails.
pub async fn heard(txn: &mut Txn, subject: &str) -> Result<(), DbError> {
    queue::enqueue(txn, &queue::BATCH, [subject]).await
}

/// The trust policy changed: every batch that has not ended is looked at.
///
/// # Errors
/// When the statement fails.
pub async fn trust_changed(txn: &mut Txn) -> Result<(), DbError> {
    let open = sqlx::query_scalar!("SELECT name FROM batches WHERE ended_at IS NULL ORDER BY name")
        .fetch_all(txn.conn())
        .await?;
    queue::enqueue(txn, &queue::BATCH, open).await
}
