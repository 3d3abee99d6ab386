//! What goes: the next machines begin, few at a time, each with the proof that people agreed, and what is left is said.

use std::{collections::BTreeMap, time::Duration};

use pki::batch::{Approval, BatchApproval, BatchHeader, Leaf as SignedLeaf, merkle};
use schema::{
    command::{CommandKind, KINDS},
    digest::Digest,
    id::{CommandId, NodeId},
    time::Timestamp,
};
use store::{
    Txn,
    batches::{self, Batch, BatchState, Leaf, LeafState, Origin},
    commands::{self, NewCommand},
};

use super::{
    super::{
        choose::{self, Choice, WaitsFor},
        standing::Standing,
    },
    ACTOR, LOOK, SELDOM,
    decide::{Waiting, list},
    machines::{at_it, leave_the_rest, set, waits_for_the_last},
};
use crate::reconcile::{Failure, Outcome};

/// How long a command of a batch waits for its machine before the machine is waited for again.
const COMMAND_WAITS: schema::time::Duration = schema::time::Duration::from_secs(1_800);

/// Lets the next machines begin, unless too many failed; answers what it waits for then.
pub(super) async fn go(
    txn: &mut Txn,
    batch: &mut Batch,
    leaves: &mut [Leaf],
    standing: Option<&Standing>,
    now: Timestamp,
) -> Result<Outcome, Failure> {
    let failed: Vec<&str> =
        leaves.iter().filter(|leaf| leaf.state == LeafState::Failed).map(|leaf| leaf.node.as_str()).collect();
    let pace = Pace::of(batch, standing);
    if failed.len() > pace.max_failures as usize {
        let rest = leaves.iter().filter(|leaf| leaf.state == LeafState::Waiting).count();
        if rest > 0 || leaves.iter().any(|leaf| leaf.state == LeafState::Sent) {
            let text = format!(
                "it failed on {} and tolerates {}: nothing more of it begins, {rest} left",
                list(failed.into_iter()),
                pace.max_failures
            );
            batches::move_to(txn, batch, BatchState::Cancelled, Some("failures"), Some(&text), ACTOR).await?;
            leave_the_rest(txn, batch, leaves).await?;
            return Ok(waits_for_the_last(leaves));
        }
    }
    let proof = match (batch.new.origin, standing) {
        (Origin::Breakglass, _) => Proof::Emergency(batch.new.evidence.as_deref().unwrap_or_default()),
        (_, Some(Standing { header, statements, tally: Some(tally), .. })) => {
            let carry = tally.evidence.iter().filter_map(|place| statements.get(*place).cloned());
            Proof::People { header, statements: carry.collect() }
        }
        _ => Proof::None,
    };
    if let Proof::People { header, statements } = &proof
        && let Some(why) = too_large(header, statements, leaves)
    {
        return Ok(Outcome::wait_for(&Waiting::TooLarge(why), SELDOM));
    }
    // A call of the API queues its own commands where nobody has to approve.
    if batch.new.origin != Origin::Api {
        let closes = match standing.and_then(|standing| standing.tally.as_ref()) {
            Some(tally) => tally.closes.min(batch.new.expires),
            None => batch.new.expires,
        };
        let pools = batches::in_hand(txn, &choose::pools_of(leaves), &destructive()).await?;
        let choice = choose::choose(leaves, &pools, pace.max_in_flight, pace.spread);
        send(txn, batch, leaves, &choice, &proof, (now, closes)).await?;
        return go_on(txn, batch, leaves, &choice).await;
    }
    go_on(txn, batch, leaves, &Choice::default()).await
}

/// Why no machine that waits would read the approvals, in words.
fn too_large(header: &BatchHeader, statements: &[Vec<u8>], leaves: &[Leaf]) -> Option<String> {
    let waiting = leaves.iter().filter(|leaf| leaf.state == LeafState::Waiting);
    let longest = waiting.filter_map(|leaf| leaf.leaf.as_deref()).max_by_key(|leaf| leaf.len())?;
    let why = BatchApproval::fits(header, &SignedLeaf::read(longest)?, statements.to_vec()).err()?;
    Some(format!("no machine reads what would go to it: {why}"))
}

fn destructive() -> Vec<&'static str> {
    KINDS.iter().filter(|row| row.destructive).map(|row| row.kind.as_str()).collect()
}

/// What a batch is sent with.
enum Proof<'a> {
    /// Nobody has to agree.
    None,
    /// People approved it.
    People { header: &'a BatchHeader, statements: Vec<Vec<u8>> },
    /// People called an emergency.
    Emergency(&'a [u8]),
}

/// How many machines are at it at a time, and when it stops.
pub(super) struct Pace<'a> {
    pub(super) max_in_flight: u32,
    pub(super) max_failures: u32,
    pub(super) spread: Option<&'a str>,
}

impl<'a> Pace<'a> {
    /// As people signed it, where they have to.
    pub(super) fn of(batch: &'a Batch, standing: Option<&'a Standing>) -> Self {
        let (new, header) = (&batch.new, standing.map(|standing| &standing.header));
        match header {
            Some(header) => Self {
                max_in_flight: header.max_in_flight,
                max_failures: header.max_failures,
                spread: header.spread.as_deref(),
            },
            None => {
                Self { max_in_flight: new.max_in_flight, max_failures: new.max_failures, spread: new.spread.as_deref() }
            }
        }
    }
}

/// Queues the commands of those that were chosen, and leaves those out that are others than were approved.
async fn send(
    txn: &mut Txn,
    batch: &Batch,
    leaves: &mut [Leaf],
    choice: &Choice,
    proof: &Proof<'_>,
    (now, closes): (Timestamp, Timestamp),
) -> Result<(), Failure> {
    // Machines before commands, and both in their order, as everybody locks them.
    let touched = choice.changed.iter().map(|(index, _)| index).chain(&choice.go);
    let touched: Vec<&Leaf> = touched.filter_map(|index| leaves.get(*index as usize)).collect();
    let nodes: Vec<NodeId> = touched.iter().map(|leaf| leaf.node_id).collect();
    let ids: Vec<CommandId> = touched.iter().filter_map(|leaf| leaf.command).collect();
    commands::lock_all(txn, &nodes, &ids).await?;
    for (index, why) in &choice.changed {
        tracing::warn!(batch = %batch.new.name, index, %why, "a machine of a batch is not the one that was resolved");
        if let Some(leaf) = leaves.get_mut(*index as usize) {
            if let Some(command) = leaf.command {
                commands::cancel(txn, command).await?;
            }
            set(txn, batch, leaf, LeafState::Left, Some(why.code())).await?;
        }
    }
    if choice.go.is_empty() {
        return Ok(());
    }
    let hashes: Vec<Digest> = match proof {
        Proof::People { .. } => {
            let read = |leaf: &Leaf| leaf.leaf.as_deref().and_then(SignedLeaf::read).map(|leaf| leaf.hash());
            leaves.iter().filter_map(read).collect()
        }
        Proof::None | Proof::Emergency(_) => Vec::new(),
    };
    let Ok(kind) = batch.new.kind.parse::<CommandKind>() else { return Ok(()) };
    // Each wakes its machine's key, in the order in which others wake several.
    let mut go = choice.go.clone();
    go.sort_by_key(|index| leaves.get(*index as usize).map(|leaf| leaf.node_id));
    for index in &go {
        let Some(leaf) = leaves.get_mut(*index as usize) else { continue };
        let approval = match proof {
            Proof::None => None,
            Proof::Emergency(evidence) => Some(evidence.to_vec()),
            Proof::People { header, statements } => {
                let parts =
                    leaf.leaf.as_deref().and_then(SignedLeaf::read).zip(merkle::proof(&hashes, leaf.index as usize));
                let Some((signed, proof)) = parts else {
                    set(txn, batch, leaf, LeafState::Failed, Some("leaf-unreadable")).await?;
                    continue;
                };
                let approval =
                    BatchApproval { header: (*header).clone(), leaf: signed, proof, statements: statements.clone() };
                Some(Approval::Batch(Box::new(approval)).to_bytes())
            }
        };
        let command = match leaf
            .command
            .filter(|_| leaf.command_state.as_ref().is_some_and(|(state, _)| state == "pending"))
        {
            Some(command) => command,
            None => {
                let new = NewCommand {
                    node_id: leaf.node_id,
                    kind,
                    payload: serde_json::from_str(&leaf.payload).map_err(|error| Failure::new("payload", error))?,
                    idempotency_key: format!("batch:{}:{}:{}", batch.id, leaf.index, leaf.attempt),
                    not_after: COMMAND_WAITS.after(now).min(closes),
                    min_generation: leaf.leaf.as_deref().and_then(SignedLeaf::read).map(|leaf| leaf.min_generation),
                    batch_id: Some(batch.id),
                    secrets: Vec::new(),
                    created_by: format!("batch/{}", batch.new.name),
                };
                match commands::enqueue(txn, &new).await {
                    Ok(queued) => queued.command.id,
                    Err(commands::EnqueueError::Db(error)) => return Err(error.into()),
                    Err(error) => {
                        tracing::warn!(batch = %batch.new.name, node = %leaf.node, %error, "a command of a batch was not queued");
                        set(txn, batch, leaf, LeafState::Failed, Some("not-queued")).await?;
                        continue;
                    }
                }
            }
        };
        commands::approve(txn, command, approval.as_deref()).await?;
        batches::set_leaf(txn, batch.id, leaf.index, LeafState::Sent, None, Some(command)).await?;
        leaf.state = LeafState::Sent;
        leaf.command = Some(command);
        tracing::info!(batch = %batch.new.name, node = %leaf.node, %command, "a machine of a batch begins");
    }
    Ok(())
}

/// Where a batch is after a step, and what it waits for; it is done when every machine came to an end.
pub(super) async fn go_on(
    txn: &mut Txn,
    batch: &mut Batch,
    leaves: &[Leaf],
    choice: &Choice,
) -> Result<Outcome, Failure> {
    let of = |state: LeafState| leaves.iter().filter(|leaf| leaf.state == state).count();
    let (waiting, sent) = (of(LeafState::Waiting), of(LeafState::Sent));
    if waiting == 0 && sent == 0 {
        let (good, bad, left) = (of(LeafState::Succeeded), of(LeafState::Failed), of(LeafState::Left));
        let text = format!("{good} succeeded, {bad} failed, {left} never began");
        let reason = if bad + left > 0 { Some("with-failures") } else { None };
        batches::move_to(txn, batch, BatchState::Done, reason, Some(&text), ACTOR).await?;
        return Ok(Outcome::done());
    }
    if batch.state == BatchState::Approved && (sent > 0 || waiting < leaves.len()) {
        batches::move_to(txn, batch, BatchState::Dispatching, None, batch.message.as_deref(), ACTOR).await?;
        batch.state = BatchState::Dispatching;
    }
    if choice.go.len() == choose::AT_A_STEP {
        return Ok(Outcome::again(Duration::ZERO, "more-to-begin"));
    }
    let name = |index: u32| leaves.get(index as usize).map_or("", |leaf| leaf.node.as_str());
    let mut by: BTreeMap<WaitsFor, Vec<&str>> = BTreeMap::new();
    for (index, waits) in &choice.waits {
        by.entry(*waits).or_default().push(name(*index));
    }
    // What can be mended is said before what only takes time.
    let stuck = by.iter().find(|(waits, _)| !matches!(waits, WaitsFor::Turn | WaitsFor::Domain));
    Ok(match stuck {
        Some((waits, names)) if sent == 0 => {
            Outcome::wait_for(&Waiting::Machines(*waits, list(names.iter().copied())), LOOK)
        }
        _ => {
            let text = match at_it(leaves) {
                Some(names) => format!("{names} at it, {waiting} to come"),
                None => format!("{waiting} to come"),
            };
            Outcome::wait_for(&Waiting::InFlight(text), LOOK)
        }
    })
}
