//! `command`: signs what waits for a node, takes over its last words, and settles what its reconnect proves. Key: the node's id.
//!
//! ```text
//! pending without a signature ─▶ ours? batch open? journal known? allowed? ─▶ sign with the worker key, outside any transaction ─▶ put down, poke the gateway
//!                                  │ cancelled  │ cancelled   └──────────────└ withheld, with the reason
//! last words, unread           ─▶ verify (key, node, command, state) ─▶ settled, with its evidence │ late │ refused
//! signed boot and journal      ─▶ in flight before them ─▶ rebooted: succeeded │ journal lost: failed
//! ```
//!
//! Nothing that a gateway wrote ends a command: only what a node signed does, or a deadline. What an API process signed
//! straight after its commit ([`FastSigner`]) is done already when this runs.

mod quorum;
mod signing;
#[cfg(test)]
mod tests;
mod verify;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use pki::node_key::NodePublicKey;
use schema::{
    command::{CommandBody, CommandEvent, CommandState, CommandUpdate, Reason},
    digest::Digest,
    id::{CommandId, NodeId},
};
use serde_json::json;
use store::{
    Txn, audit,
    commands::{self, Ending, Evidence, Proved, Queued, Resume, Settled, StoredUpdate, Unsigned},
    node_certs, nodes,
    queue::{self, Kind},
};

use self::{
    signing::{Journals, Signing},
    verify::UpdateRefusal,
};
use super::{Context, Failure, Outcome, Reconciler, ShardBy, WaitReason, node::HARDWARE_CHANGED};
use crate::{
    batch::{self, standing},
    custody::BEHIND_PIN,
};

pub use quorum::{BatchRequired, QuorumPolicy, may_queue};
pub use signing::FastSigner;

/// The reconciler.
#[derive(Debug)]
pub struct Command;

/// Why commands of a node stay where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    /// A last word does not count.
    UpdateRefused(String),
    /// People do not allow it.
    NotAllowed(String),
    /// Its machine has not said yet which journal it has.
    JournalUnknown(String),
    /// What has its key is another machine, or has another board.
    OtherHardware(String),
}

impl WaitReason for Waiting {
    fn code(&self) -> &'static str {
        match self {
            Self::UpdateRefused(_) => "update-refused",
            Self::NotAllowed(_) => NOT_ALLOWED,
            Self::JournalUnknown(_) => JOURNAL_UNKNOWN,
            Self::OtherHardware(_) => OTHER_HARDWARE,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::UpdateRefused(why) | Self::NotAllowed(why) | Self::JournalUnknown(why) | Self::OtherHardware(why)) =
            self;
        f.write_str(why)
    }
}

/// The stable word for a destructive command that is not signed.
pub(crate) const NOT_ALLOWED: &str = "not-allowed";
/// The stable word for a command that may not run twice, whose machine has not said yet which journal it has.
pub(crate) const JOURNAL_UNKNOWN: &str = "journal-unknown";
/// The same for people; stored beside the command.
pub(crate) const NO_JOURNAL: &str =
    "its machine has signed no report yet, so that nobody knows which journal it is for";
/// The stable word for a destructive command whose machine shows other hardware than the node is known by.
pub(crate) const OTHER_HARDWARE: &str = "hardware-changed";
/// The same for people; stored beside the command.
pub(crate) const IS_ANOTHER: &str = "its machine shows other hardware than the node is known by";
/// Approvals wake their node's key. What else lets a command go, such as a report of its machine or the time, is looked for so often.
const LOOK: Duration = Duration::from_secs(10);

#[async_trait]
impl Reconciler for Command {
    fn kind(&self) -> &'static Kind {
        &queue::COMMAND
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::Node
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        let id: NodeId = key.parse().map_err(|e| Failure::new("bad-key", e))?;
        let Looked { more, withheld } = sign(context, id).await?;
        let updates = commands::updates(context.db(), id).await?;
        let more = more || updates.len() >= commands::UPDATES_AT_ONCE;
        let refused = take(context, id, updates).await?;
        settle_proved(context, id).await?;
        Ok(match (refused, withheld) {
            _ if more => Outcome::again(Duration::ZERO, "more-commands"),
            (None, Some(waiting)) => Outcome::wait_for(&waiting, LOOK),
            (Some(why), Some(_)) => Outcome::wait_for(&Waiting::UpdateRefused(why), LOOK),
            (Some(why), None) => Outcome::wait(&Waiting::UpdateRefused(why)),
            (None, None) => Outcome::done(),
        })
    }
}

/// So many commands are signed at a time.
const SIGNED_AT_ONCE: u32 = 64;

/// What a look at the commands of a node that wait for a signature came to.
#[derive(Debug, Default)]
struct Looked {
    /// There are more.
    more: bool,
    /// Which are not signed, and why the first of them is not.
    withheld: Option<Waiting>,
}

/// A command that is not signed for now, and why.
type Withheld = (Queued, String);

/// Signs the next commands that may be; those that may not be keep nobody waiting behind them.
async fn sign(context: &Context, node: NodeId) -> Result<Looked, Failure> {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let waiting = commands::unsigned(context.db(), node, after, SIGNED_AT_ONCE).await?;
        let more = waiting.len() >= SIGNED_AT_ONCE as usize;
        let Some(last) = waiting.last() else { break };
        after = last.seq;
        let now = context.now().await?;
        let ours = |queued: &Queued| context.custody().is_queued_here(&queued.command.body, queued.mark.as_deref());
        let (ours, forged): (Vec<Queued>, Vec<Queued>) = waiting.into_iter().partition(ours);
        let (open, over) = of_open_batches(context, ours).await?;
        let journals = Journals::read(context.db(), open.iter().map(|queued| &queued.command)).await?;
        let (known, unknown): (Vec<Queued>, Vec<Queued>) =
            open.into_iter().partition(|queued| journals.know(&queued.command));
        let (allowed, mut withheld) = judged(context, node, known, now).await?;
        withheld.extend(unknown.into_iter().map(|queued| (queued, NO_JOURNAL.to_owned())));
        let signed = Signing { signer: context.signer(), logs: context.logs() }.all(&allowed, &journals, now);
        let mut txn = context.begin().await?;
        commands::sign(&mut txn, &signed).await?;
        refuse_forged(&mut txn, node, &forged).await?;
        refuse_over(&mut txn, node, &over).await?;
        tell_withheld(&mut txn, node, &withheld).await?;
        txn.commit().await?;
        all.extend(withheld.into_iter().map(|(queued, why)| (queued.command.id, why)));
        let nothing_moved = signed.is_empty() && forged.is_empty() && over.is_empty();
        if !(more && nothing_moved) {
            return Ok(Looked { more, withheld: summary(&all) });
        }
    }
    Ok(Looked { more: false, withheld: summary(&all) })
}

fn summary(withheld: &[(CommandId, String)]) -> Option<Waiting> {
    let (id, why) = withheld.first()?;
    let more = if withheld.len() > 1 { format!("; {} more wait likewise", withheld.len() - 1) } else { String::new() };
    let says = format!("{id} is destructive and is not signed: {why}{more}");
    Some(match why.as_str() {
        NO_JOURNAL => Waiting::JournalUnknown(says),
        IS_ANOTHER => Waiting::OtherHardware(says),
        _ => Waiting::NotAllowed(says),
    })
}

/// Those whose batch has not ended or that are in none, and the others. The audit log says which have, and no row of a batch.
async fn of_open_batches(context: &Context, queued: Vec<Queued>) -> Result<(Vec<Queued>, Vec<Queued>), Failure> {
    let batch_of = |queued: &Queued| CommandBody::read(&queued.command.body).ok().and_then(|body| body.batch);
    let ended = store::batches::ended_among(context.db(), &queued.iter().filter_map(batch_of).collect()).await?;
    Ok(queued.into_iter().partition(|queued| batch_of(queued).is_none_or(|batch| !ended.contains(&batch))))
}

/// Those that may be signed; and those that are for another machine than the one that shows itself, or that people do not
/// allow, once a trust anchor is pinned.
async fn judged(
    context: &Context,
    node: NodeId,
    queued: Vec<Queued>,
    now: schema::time::Timestamp,
) -> Result<(Vec<Unsigned>, Vec<Withheld>), Failure> {
    let (asked, harmless): (Vec<Queued>, Vec<Queued>) =
        queued.into_iter().partition(|queued| needs_people(&queued.command.body));
    let mut allowed: Vec<Unsigned> = harmless.into_iter().map(|queued| queued.command).collect();
    let mut withheld = Vec::new();
    if asked.is_empty() {
        return Ok((allowed, withheld));
    }
    if nodes::find(context.db(), node).await?.is_some_and(|node| node.has_condition(HARDWARE_CHANGED)) {
        withheld.extend(asked.into_iter().map(|queued| (queued, IS_ANOTHER.to_owned())));
        return Ok((allowed, withheld));
    }
    if context.custody().is_behind_pin(context.db()).await? {
        withheld.extend(asked.into_iter().map(|queued| (queued, BEHIND_PIN.to_owned())));
        return Ok((allowed, withheld));
    }
    let trust = standing::trust(context.db(), &context.custody().pinned(), &context.realm().trust_domain).await?;
    for queued in asked {
        let why = match &trust {
            Some(trust) => {
                let (body, approval) = (&queued.command.body, queued.approval.as_deref());
                batch::allowed::withheld(context.db(), trust, body, approval, now).await?
            }
            None => None,
        };
        match why {
            None => allowed.push(queued.command),
            Some(why) => withheld.push((queued, why)),
        }
    }
    Ok((allowed, withheld))
}

/// Whether people have a say in it.
fn needs_people(body: &[u8]) -> bool {
    CommandBody::read(body).map_or(true, |body| body.kind.row().destructive)
}

/// Why something is not signed is told once, and stays beside it.
async fn tell_withheld(txn: &mut Txn, node: NodeId, withheld: &[Withheld]) -> Result<(), Failure> {
    let mut fresh: Vec<(CommandId, &str)> = withheld
        .iter()
        .filter(|(queued, why)| queued.withheld.as_ref() != Some(why))
        .map(|(queued, why)| (queued.command.id, why.as_str()))
        .collect();
    if fresh.is_empty() {
        return Ok(());
    }
    fresh.sort_unstable();
    let ids: Vec<CommandId> = fresh.iter().map(|(id, _)| *id).collect();
    commands::lock(txn, node, &ids).await?;
    for (id, why) in &fresh {
        tracing::warn!(node_id = %node, command = %id, why, "a destructive command is not signed");
    }
    Ok(commands::withhold(txn, &fresh).await?)
}

/// What nobody here queued is never signed; it ends, and that is told.
async fn refuse_forged(txn: &mut Txn, node: NodeId, forged: &[Queued]) -> Result<(), Failure> {
    let why = "no process of this control plane queued it: somebody wrote it into the database";
    for id in cancelled(txn, node, forged, Reason::NOT_OURS, why).await? {
        tracing::error!(node_id = %node, command = %id, "a command that no process of this control plane queued is not signed");
    }
    Ok(())
}

/// Neither is what is left of a batch that has ended.
async fn refuse_over(txn: &mut Txn, node: NodeId, over: &[Queued]) -> Result<(), Failure> {
    let why = "the batch that it is part of ended before it was signed";
    for id in cancelled(txn, node, over, Reason::BATCH_ENDED, why).await? {
        tracing::warn!(node_id = %node, command = %id, "a command of a batch that has ended is not signed");
    }
    Ok(())
}

/// Ends commands that are not signed; answers those that had not ended.
async fn cancelled(
    txn: &mut Txn,
    node: NodeId,
    queued: &[Queued],
    reason: Reason,
    why: &str,
) -> Result<Vec<CommandId>, Failure> {
    let mut ids: Vec<CommandId> = queued.iter().map(|queued| queued.command.id).collect();
    let mut ended = Vec::new();
    if ids.is_empty() {
        return Ok(ended);
    }
    ids.sort_unstable();
    commands::lock(txn, node, &ids).await?;
    for id in ids {
        let ending = Ending { message: Some(why.to_owned()), ..Ending::because(CommandEvent::Cancel, reason.clone()) };
        if commands::settle(txn, node, id, &ending).await? == Settled::Moved(CommandState::Cancelled) {
            ended.push(id);
        }
    }
    Ok(ended)
}

/// A last word that counts.
struct Word {
    row: i64,
    update: CommandUpdate,
    evidence: Evidence,
}

/// Acts on last words; answers why the last one that does not count does not.
async fn take(context: &Context, node: NodeId, updates: Vec<StoredUpdate>) -> Result<Option<String>, Failure> {
    if updates.is_empty() {
        return Ok(None);
    }
    let keys: Vec<NodePublicKey> =
        node_certs::keys(context.db(), node).await?.iter().map(|key| NodePublicKey::from_bytes(key)).collect();
    let (mut words, mut spoilt, mut refused, mut unread) = (Vec::new(), Vec::new(), None, Vec::new());
    for stored in updates {
        let (row, command) = (stored.row, stored.update.id);
        let verified = match verify::verify(context.realm(), &keys, &stored.update) {
            Ok((update, evidence)) => match verify::check_copy(context.db(), &update).await? {
                Ok(()) => Ok(Word { row, update, evidence }),
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        match verified {
            Ok(word) => words.push(word),
            Err(refusal) => {
                if refusal == UpdateRefusal::SpoiltApprovals {
                    spoilt.push(command);
                }
                refused = Some(refuse(node, command, &refusal));
                unread.push(row);
            }
        }
    }
    let mut txn = context.begin().await?;
    // In the order of the ids, as everybody locks them.
    words.sort_by_key(|word| word.update.command);
    let all: Vec<CommandId> = words.iter().map(|word| word.update.command).chain(spoilt.iter().copied()).collect();
    commands::lock(&mut txn, node, &all).await?;
    for command in spoilt {
        commands::send_again(&mut txn, node, command).await?;
    }
    for word in &words {
        if let Err(refusal) = apply(&mut txn, node, word).await? {
            refused = Some(refuse(node, word.update.command, &refusal));
        }
        unread.push(word.row);
    }
    commands::remove_updates(&mut txn, &unread).await?;
    txn.commit().await?;
    Ok(refused)
}

fn refuse(node: NodeId, command: CommandId, refusal: &UpdateRefusal) -> String {
    tracing::warn!(node_id = %node, %command, error = %refusal, "a last word does not count");
    format!("an update of {command} does not count: {refusal}")
}

async fn apply(txn: &mut Txn, node: NodeId, word: &Word) -> Result<Result<(), UpdateRefusal>, Failure> {
    let update = &word.update;
    let ending = Ending {
        event: update.state.event(),
        reason: update.reason.clone(),
        message: update.message.as_ref().map(|message| message.replace('\0', "\u{fffd}")),
        result: update.result.as_ref().map(ToString::to_string),
        evidence: Some(word.evidence.clone()),
    };
    match commands::settle(txn, node, update.command, &ending).await? {
        Settled::Moved(state) => {
            tracing::info!(node_id = %node, command = %update.command, %state, "a command ended");
            Ok(Ok(()))
        }
        Settled::Final { state, reason } => {
            let said = update.state.state();
            if (said, update.reason.as_ref().map(Reason::as_str)) != (state, reason.as_deref()) {
                late(txn, node, word, state).await?;
            }
            Ok(Ok(()))
        }
        Settled::Illegal(state) => Ok(Err(UpdateRefusal::Illegal { state, said: update.state })),
        Settled::Unknown => Ok(Err(UpdateRefusal::UnknownCommand)),
    }
}

/// What came after the end is kept beside it, in the audit log and in the outbox; the first time.
async fn late(txn: &mut Txn, node: NodeId, word: &Word, settled: CommandState) -> Result<(), Failure> {
    let update = &word.update;
    let said = update.state.state();
    if commands::record_late(txn, node, update.command, said, update.reason.as_ref()).await? {
        let detail = json!({
            "settled": settled,
            "said": said,
            "reason": update.reason,
            "resultDigest": update.result_digest,
            "update": Digest::of(&word.evidence.payload),
        });
        audit::append(txn, &node.to_string(), "commands.late", &update.command.to_string(), &detail).await?;
    }
    Ok(())
}

async fn settle_proved(context: &Context, node: NodeId) -> Result<(), Failure> {
    let mut proved = commands::proved(context.db(), node).await?;
    if proved.is_empty() {
        return Ok(());
    }
    proved.sort_by_key(|proved| proved.id);
    let all: Vec<CommandId> = proved.iter().map(|proved| proved.id).collect();
    let mut txn = context.begin().await?;
    commands::lock(&mut txn, node, &all).await?;
    for Proved { id, how } in proved {
        let ending = match how {
            Resume::Rebooted => Ending {
                event: CommandEvent::Succeed,
                reason: None,
                message: None,
                result: Some(json!({ "rebooted": true }).to_string()),
                evidence: None,
            },
            Resume::JournalLost => Ending::because(CommandEvent::Fail, Reason::JOURNAL_LOST),
            Resume::Replay => continue,
        };
        if let Settled::Moved(state) = commands::settle(&mut txn, node, id, &ending).await? {
            tracing::info!(node_id = %node, command = %id, %state, "a reconnect ended a command");
        }
    }
    txn.commit().await?;
    Ok(())
}
