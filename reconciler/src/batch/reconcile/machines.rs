//! The machines of a batch: what became of those that have begun, and what becomes of the others.

use schema::{command::CommandState, id::CommandId};
use store::{
    Txn,
    batches::{self, Batch, Leaf, LeafState},
    commands,
};

use super::{
    LOOK,
    decide::{Waiting, list},
};
use crate::reconcile::{Failure, Outcome};

/// Takes over what became of commands.
pub(super) async fn heard_of(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
    for leaf in leaves.iter_mut().filter(|leaf| !leaf.state.is_terminal()) {
        let Some((state, reason)) = leaf.command_state.clone() else {
            // Commands are kept for 90 days; one that is gone says nothing any more.
            if leaf.state == LeafState::Sent {
                set(txn, batch, leaf, LeafState::Failed, Some("command-gone")).await?;
            }
            continue;
        };
        let Ok(state) = state.parse::<CommandState>() else { continue };
        let held = leaf.state == LeafState::Waiting;
        match state {
            CommandState::Succeeded => set(txn, batch, leaf, LeafState::Succeeded, None).await?,
            CommandState::Failed | CommandState::Rejected => {
                set(txn, batch, leaf, LeafState::Failed, Some(reason.as_deref().unwrap_or("failed"))).await?;
            }
            // What a gateway had may have begun, unless its machine signed that it was taken back before it did.
            CommandState::Cancelled if leaf.handed_over && !leaf.unbegun => {
                set(txn, batch, leaf, LeafState::Failed, Some("cancelled-midway")).await?;
            }
            CommandState::Cancelled => set(txn, batch, leaf, LeafState::Left, Some("cancelled")).await?,
            // Only its machine knows whether it began: nobody else is begun with on a gateway's word.
            CommandState::Expired if !held && leaf.handed_over => {
                set(txn, batch, leaf, LeafState::Failed, Some("not-heard-of")).await?;
            }
            // It waited for its machine past its deadline, so it never began.
            CommandState::Expired if !held => set(txn, batch, leaf, LeafState::Waiting, None).await?,
            CommandState::Expired
            | CommandState::Pending
            | CommandState::Dispatched
            | CommandState::Acked
            | CommandState::Running => {}
        }
    }
    Ok(())
}

/// Writes down where one is.
pub(super) async fn set(
    txn: &mut Txn,
    batch: &Batch,
    leaf: &mut Leaf,
    to: LeafState,
    reason: Option<&str>,
) -> Result<(), Failure> {
    batches::set_leaf(txn, batch.id, leaf.index, to, reason, None).await?;
    leaf.state = to;
    leaf.reason = reason.map(str::to_owned);
    Ok(())
}

/// What has not begun never begins; commands that wait are taken back.
pub(super) async fn leave_the_rest(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
    commands::lock_all(txn, &[], &in_hand(leaves)).await?;
    // Ending a command wakes its node, and whoever wakes several does so in their order.
    let mut all: Vec<&mut Leaf> = leaves.iter_mut().collect();
    all.sort_by_key(|leaf| leaf.node_id);
    for leaf in all {
        match leaf.state {
            LeafState::Waiting => {
                if let Some(command) = leaf.command {
                    commands::cancel(txn, command).await?;
                }
                set(txn, batch, leaf, LeafState::Left, Some("batch-ended")).await?;
            }
            // What its machine does not have yet is taken back; the machine keeps the last word on the rest.
            LeafState::Sent => {
                if let Some(command) = leaf.command
                    && leaf.command_state.as_ref().is_some_and(|(state, _)| state == CommandState::Pending.as_str())
                {
                    commands::cancel(txn, command).await?;
                }
            }
            LeafState::Succeeded | LeafState::Failed | LeafState::Left => {}
        }
    }
    Ok(())
}

/// What its machine was not sent yet waits until the batch lets it go again.
pub(super) async fn take_back(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
    commands::lock_all(txn, &[], &in_hand(leaves)).await?;
    for leaf in leaves.iter_mut().filter(|leaf| leaf.state == LeafState::Sent) {
        if let Some(command) = leaf.command
            && commands::hold(txn, command).await?
        {
            set(txn, batch, leaf, LeafState::Waiting, None).await?;
        }
    }
    Ok(())
}

/// The commands of machines that have not ended, as far as they may still be changed.
fn in_hand(leaves: &[Leaf]) -> Vec<CommandId> {
    let open = |leaf: &&Leaf| {
        let state = leaf.command_state.as_ref().and_then(|(state, _)| state.parse::<CommandState>().ok());
        !leaf.state.is_terminal() && state.is_some_and(|state| !state.is_terminal())
    };
    leaves.iter().filter(open).filter_map(|leaf| leaf.command).collect()
}

/// Whether every machine came to an end.
pub(super) fn all_ended(leaves: &[Leaf]) -> bool {
    leaves.iter().all(|leaf| leaf.state.is_terminal())
}

/// The machines that are at it, in words; `None` when none is.
pub(super) fn at_it(leaves: &[Leaf]) -> Option<String> {
    let sent = leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).map(|leaf| leaf.node.as_str());
    Some(list(sent)).filter(|names| !names.is_empty())
}

/// Where a batch is that has ended.
pub(super) fn waits_for_the_last(leaves: &[Leaf]) -> Outcome {
    match at_it(leaves) {
        None => Outcome::done(),
        Some(names) => Outcome::wait_for(&Waiting::InFlight(format!("{names} still at it")), LOOK),
    }
}
