//! A command that is part of a batch: it has a place there, and waits for the batch where people have to approve it.

use schema::{
    command::CommandKind,
    generation::Generation,
    id::{BatchId, NodeId},
    time::{Duration, Timestamp},
};
use serde_json::Value;
use store::{
    Txn,
    batches::{self, LeafState, Origin},
    commands::{self, Command},
};

use crate::api::{ApiError, App, Code};

/// A little less than a signature is good for.
const LONGEST: Duration = Duration::from_secs(11 * 3_600);

/// The place of a command in a batch.
#[derive(Debug)]
pub(super) struct Place {
    batch: batches::Batch,
    index: u32,
    /// What the command is told.
    pub(super) payload: Value,
    /// What its node must have applied.
    pub(super) min_generation: Option<Generation>,
    /// The batch lets it go.
    pub(super) held: bool,
    /// As long as it can wait for that.
    pub(super) not_after: Timestamp,
}

/// Finds it, or says why the batch has none.
pub(super) async fn place(
    app: &App,
    txn: &mut Txn,
    id: BatchId,
    node: NodeId,
    kind: CommandKind,
    payload: Option<&Value>,
) -> Result<Place, ApiError> {
    let found = batches::find_by_id(&app.db, id).await?.ok_or_else(|| ApiError::not_found(format!("batch {id}")))?;
    let batch = batches::find_for_update(txn, found.new.name.as_str()).await?;
    let batch = batch.ok_or_else(|| ApiError::not_found(format!("batch {id}")))?;
    let name = &batch.new.name;
    if batch.state.is_terminal() {
        let message = format!("batch/{name} has ended: {}", batch.state);
        return Err(ApiError::new(Code::InvalidState, message).why("batch-ended: what has ended runs nothing more"));
    }
    if !batch.new.quorum && app.pinned.get().is_some() {
        let message = format!("batch/{name} was written down before the fleet was pinned, and nobody approved it");
        return Err(ApiError::new(Code::InvalidState, message).why("batch-required: commit it under another name"));
    }
    if batch.waits_for_commit() {
        let message = format!("batch/{name} is not proposed yet: its commit is still to come");
        return Err(ApiError::new(Code::InvalidState, message)
            .why("proposal-pending: ask again once commandBatches.get shows a planCommit"));
    }
    let leaves = batches::leaves(txn, batch.id).await?;
    let leaf = leaves.into_iter().find(|leaf| leaf.node_id == node).filter(|_| batch.new.kind == kind.as_str());
    let Some(leaf) = leaf else {
        return Err(ApiError::field("batch", format!("batch/{name} has no {kind} of this machine in its scope")));
    };
    let told: Value = serde_json::from_str(&leaf.payload).map_err(ApiError::internal)?;
    if let Some(payload) = payload
        && kind.check_payload(payload).ok().as_ref() != Some(&told)
    {
        return Err(ApiError::field("payload", format!("batch/{name} binds another payload; leave it out")));
    }
    if let Some(command) = leaf.command.filter(|_| leaf.state != LeafState::Waiting || leaf.command_state.is_some()) {
        return Err(ApiError::new(Code::InvalidState, format!("batch/{name} has {command} for this machine"))
            .why("batch-has-command: one command of a batch runs on a machine, once"));
    }
    let now = txn.now().await?;
    Ok(Place {
        min_generation: leaf.leaf.as_deref().and_then(pki::batch::Leaf::read).map(|leaf| leaf.min_generation),
        index: leaf.index,
        payload: told,
        held: batch.new.origin != Origin::Api,
        not_after: LONGEST.after(now).min(batch.new.expires),
        batch,
    })
}

/// The command was queued: it waits for its batch, or goes.
pub(super) async fn took(txn: &mut Txn, place: &Place, command: &mut Command) -> Result<(), ApiError> {
    let state = if place.held { LeafState::Waiting } else { LeafState::Sent };
    if place.held {
        commands::hold(txn, command.id).await?;
        command.not_before = None;
    }
    batches::set_leaf(txn, place.batch.id, place.index, state, None, Some(command.id)).await?;
    batches::wake(txn, [&place.batch.new.name]).await?;
    Ok(())
}
