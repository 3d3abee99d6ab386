//! `batch`: one step of one batch. Key: the batch's name; a word about nothing that is stored is about emergencies.
//!
//! ```text
//! proposed ── judge: enough ──▶ approved ── window open ──▶ dispatching ── every machine ended ──▶ done
//!     ▲                            │ withdrawn                  │ more failures than it tolerates ──▶ cancelled (failures)
//!     └────────────────────────────┘                            │ trust changed ──▶ void  · window over ──▶ expired
//! ```
//!
//! It runs in one process at a time, and takes a machine in hand under its pool's lock: budgets hold across batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use async_trait::async_trait;
use pki::batch::{Approval, BatchApproval, BatchHeader, Leaf as SignedLeaf, Tally, merkle};
use schema::{
    command::{CommandKind, CommandState, KINDS},
    digest::Digest,
    name::Name,
    time::Timestamp,
};
use store::{
    Txn,
    batches::{self, Batch, BatchState, By, Leaf, LeafState, Origin},
    commands::{self, NewCommand},
    queue::{self, Kind},
};

use super::{
    allowed,
    choose::{self, Choice, WaitsFor},
    emergency,
    proposal::Hindrance,
    resolve::Trust,
    standing::{self, Standing},
};
use crate::reconcile::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy, WaitReason};

#[cfg(test)]
mod tests;

/// The reconciler.
#[derive(Debug)]
pub struct Batches;

/// The key that looks at every batch that has not ended; no batch is called so.
const ALL: &str = "*";
/// What nobody wakes a batch for, such as a session that is back, is looked at so often.
const LOOK: Duration = Duration::from_secs(10);
/// A batch that waits for people is looked at so often.
const SELDOM: Duration = Duration::from_secs(60);
/// How long a command of a batch waits for its machine before the machine is waited for again.
const COMMAND_WAITS: schema::time::Duration = schema::time::Duration::from_secs(1_800);

/// What a batch waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    /// People.
    Approvals(String),
    /// Its time.
    NotBefore(Timestamp),
    /// Machines that work on it.
    InFlight(String),
    /// Machines that cannot begin.
    Machines(WaitsFor, String),
    /// The policy that people trust is not known here.
    NoPolicy(String),
    /// The commit that people approve.
    Commit(Hindrance, String),
}

impl WaitReason for Waiting {
    fn code(&self) -> &'static str {
        match self {
            Self::Approvals(_) => "batch-approvals",
            Self::NotBefore(_) => "batch-not-before",
            Self::InFlight(_) => "batch-in-flight",
            Self::Machines(..) => "batch-machines",
            Self::NoPolicy(_) => "batch-policy",
            Self::Commit(hindrance, _) => hindrance.code(),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approvals(text) | Self::InFlight(text) | Self::NoPolicy(text) | Self::Commit(_, text) => {
                f.write_str(text)
            }
            Self::NotBefore(at) => write!(f, "it begins at {at}"),
            Self::Machines(waits, text) => write!(f, "{text} ({})", waits.as_str()),
        }
    }
}

#[async_trait]
impl Reconciler for Batches {
    fn kind(&self) -> &'static Kind {
        &queue::BATCH
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    fn periodic(&self) -> &'static [Periodic] {
        const { &[Periodic { key: ALL, every: Duration::from_secs(30), settle: Duration::from_secs(5) }] }
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        let domain = context.realm().trust_domain.clone();
        let trust = standing::trust(context.db(), &context.custody().pinned(), &domain).await?;
        if key == ALL {
            return all(context, trust.as_ref()).await;
        }
        match batches::find(context.db(), key).await? {
            Some(batch) => step(context, trust.as_ref(), batch).await,
            None => {
                emergency::take(context, trust.as_ref()).await?;
                Ok(Outcome::done())
            }
        }
    }
}

async fn all(context: &Context, trust: Option<&Trust>) -> Result<Outcome, Failure> {
    emergency::take(context, trust).await?;
    let open = batches::open_names(context.db()).await?;
    if !open.is_empty() {
        let mut txn = context.begin().await?;
        queue::enqueue(&mut txn, &queue::BATCH, open).await?;
        txn.commit().await?;
    }
    Ok(Outcome::done())
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

async fn step(context: &Context, trust: Option<&Trust>, found: Batch) -> Result<Outcome, Failure> {
    let now = context.now().await?;
    let standing = match (trust, found.state.is_terminal()) {
        (Some(trust), false) => standing::standing(context.db(), trust, &found, now).await?,
        _ => None,
    };
    let mut txn = context.begin().await?;
    let Some(mut batch) = batches::find_for_update(&mut txn, found.new.name.as_str()).await? else {
        return Ok(Outcome::done());
    };
    if batch.resolved_at != found.resolved_at {
        return Ok(Outcome::again(Duration::ZERO, "resolved-anew"));
    }
    let mut leaves = batches::leaves(&mut txn, batch.id).await?;
    heard_of(&mut txn, &batch, &mut leaves).await?;
    let outcome = if batch.state.is_terminal() {
        leave_the_rest(&mut txn, &batch, &mut leaves).await?;
        waits_for_the_last(&leaves)
    } else {
        let machines: Vec<String> = leaves.iter().map(|leaf| leaf.node.to_string()).collect();
        let called = trust.is_some_and(|trust| allowed::is_called(trust, &batch, &machines, now));
        let tally = standing.as_ref().and_then(|standing| standing.tally.as_ref());
        let on_word_of = |people: fn(&Tally) -> &BTreeSet<Name>| By::word_of(ACTOR, tally.into_iter().flat_map(people));
        let decision = if context.custody().is_put_here(&batch, &leaves) {
            decide(&batch, (trust.is_some(), called), standing.as_ref(), now)
        } else {
            tracing::error!(batch = %batch.new.name, "a batch that no process of this control plane put down as it stands there goes nowhere");
            not_ours()
        };
        match decision {
            Decision::End(state, reason, message) => {
                let by = if state == BatchState::Rejected { on_word_of(|tally| &tally.no) } else { ACTOR.into() };
                batches::move_to(&mut txn, &batch, state, Some(reason), Some(&message), by).await?;
                leave_the_rest(&mut txn, &batch, &mut leaves).await?;
                waits_for_the_last(&leaves)
            }
            Decision::Wait(waiting, after) => {
                take_back(&mut txn, &batch, &mut leaves).await?;
                if batch.state == BatchState::Approved && matches!(waiting, Waiting::Approvals(_)) {
                    let said = Some("somebody took an approval back before anything was sent");
                    let by = on_word_of(|tally| &tally.withdrawn);
                    batches::move_to(&mut txn, &batch, BatchState::Proposed, Some("withdrawn"), said, by).await?;
                }
                Outcome::wait_for(&waiting, after)
            }
            Decision::Go { opens } => {
                if batch.state == BatchState::Proposed {
                    let by = on_word_of(|tally| &tally.yes);
                    batches::move_to(&mut txn, &batch, BatchState::Approved, None, batch.message.as_deref(), by)
                        .await?;
                    batch.state = BatchState::Approved;
                }
                if now < opens {
                    let wait = Duration::try_from(opens.duration_since(now)).unwrap_or(LOOK).min(SELDOM);
                    Outcome::wait_for(&Waiting::NotBefore(opens), wait.max(Duration::from_secs(1)))
                } else {
                    go(&mut txn, &mut batch, &mut leaves, standing.as_ref(), now).await?
                }
            }
        }
    };
    txn.commit().await?;
    Ok(outcome)
}

const ACTOR: &str = "batch";

/// What follows from what people said and from the time, whatever machines do.
enum Decision {
    End(BatchState, &'static str, String),
    Wait(Waiting, Duration),
    Go { opens: Timestamp },
}

/// Whoever has no key writes no batch.
fn not_ours() -> Decision {
    let why = "no process of this control plane put it down as it stands there: somebody changed it in the database, or it is from before batches were marked; ask for it again under another name";
    Decision::End(BatchState::Void, "not-ours", why.to_owned())
}

fn decide(batch: &Batch, (pinned, called): (bool, bool), standing: Option<&Standing>, now: Timestamp) -> Decision {
    let new = &batch.new;
    if now >= new.expires {
        let reason = if batch.state == BatchState::Proposed { "not-approved" } else { "window-over" };
        return Decision::End(BatchState::Expired, reason, format!("its time was over at {}", new.expires));
    }
    if new.origin == Origin::Breakglass && !called {
        let why = "the statements that are stored with it call no emergency under the trust policy in force";
        return Decision::End(BatchState::Void, "not-called", why.to_owned());
    }
    if new.origin == Origin::Breakglass || !(pinned || new.quorum) {
        return Decision::Go { opens: new.not_before };
    }
    if !new.quorum {
        let why = "a trust anchor was pinned since, and nobody approved it; commit it again under another name";
        return Decision::End(BatchState::Void, "trust-changed", why.to_owned());
    }
    if batch.waits_for_commit() {
        let hindrance = Hindrance::of(batch.reason.as_deref().unwrap_or_default());
        let why = batch.message.clone().unwrap_or_else(|| "its commit is not signed and pushed yet".to_owned());
        return Decision::Wait(Waiting::Commit(hindrance, why), SELDOM);
    }
    let Some(standing) = standing else {
        return Decision::Wait(Waiting::NoPolicy("the trust policy is not known here yet".to_owned()), LOOK);
    };
    let Some(tally) = &standing.tally else {
        let epoch = standing.header.under.epoch;
        let why = format!(
            "it was to be approved under the trust policy of epoch {epoch}, which is not in force any more; commit it again under another name"
        );
        return Decision::End(BatchState::Void, "trust-changed", why);
    };
    if let Some(flaw) = &tally.flaw {
        return Decision::End(BatchState::Void, flaw.code(), flaw.to_string());
    }
    if !tally.no.is_empty() {
        return Decision::End(
            BatchState::Rejected,
            "rejected",
            format!("{} rejected it", list(tally.no.iter().map(|name| name.as_str()))),
        );
    }
    if !tally.approved {
        return Decision::Wait(Waiting::Approvals(missing(tally)), SELDOM);
    }
    if now > tally.closes {
        return Decision::Wait(Waiting::Approvals("an approval that it needs ran out".to_owned()), SELDOM);
    }
    Decision::Go { opens: tally.opens }
}

/// Who is missing, and who said yes.
fn missing(tally: &Tally) -> String {
    let needs = format!("it needs {}", tally.missing.join(" and "));
    match tally.yes.len() {
        0 => needs,
        _ => format!("{needs}; {} said yes", list(tally.yes.iter().map(|name| name.as_str()))),
    }
}

/// Some names, and how many more there are.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0..=3 => names.join(", "),
        more => format!("{} and {} more", names[..3].join(", "), more - 3),
    }
}

/// Takes over what became of commands.
async fn heard_of(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
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

async fn set(
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
async fn leave_the_rest(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
    for leaf in leaves.iter_mut() {
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
async fn take_back(txn: &mut Txn, batch: &Batch, leaves: &mut [Leaf]) -> Result<(), Failure> {
    for leaf in leaves.iter_mut().filter(|leaf| leaf.state == LeafState::Sent) {
        if let Some(command) = leaf.command
            && commands::hold(txn, command).await?
        {
            set(txn, batch, leaf, LeafState::Waiting, None).await?;
        }
    }
    Ok(())
}

fn waits_for_the_last(leaves: &[Leaf]) -> Outcome {
    let sent: Vec<&str> =
        leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).map(|leaf| leaf.node.as_str()).collect();
    if sent.is_empty() {
        return Outcome::done();
    }
    let text = format!("{} still at it", list(sent.into_iter()));
    Outcome::wait_for(&Waiting::InFlight(text), LOOK)
}

/// How many machines are at it at a time, and when it stops.
struct Pace<'a> {
    max_in_flight: u32,
    max_failures: u32,
    spread: Option<&'a str>,
}

impl<'a> Pace<'a> {
    /// As people signed it, where they have to.
    fn of(batch: &'a Batch, standing: Option<&'a Standing>) -> Self {
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

async fn go(
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
    // A call of the API queues its own commands where nobody has to approve.
    if batch.new.origin != Origin::Api {
        let closes = match standing.and_then(|standing| standing.tally.as_ref()) {
            Some(tally) => tally.closes.min(batch.new.expires),
            None => batch.new.expires,
        };
        let pools = batches::in_hand(txn, &choose::pools_of(leaves), &destructive()).await?;
        let choice = choose::choose(leaves, &pools, pace.max_in_flight, pace.spread);
        send(txn, batch, leaves, &choice, &proof, (now, closes)).await?;
        return after(txn, batch, leaves, &choice).await;
    }
    after(txn, batch, leaves, &Choice::default()).await
}

fn destructive() -> Vec<&'static str> {
    KINDS.iter().filter(|row| row.destructive).map(|row| row.kind.as_str()).collect()
}

/// Where a batch is after a step.
async fn after(txn: &mut Txn, batch: &mut Batch, leaves: &[Leaf], choice: &Choice) -> Result<Outcome, Failure> {
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
            let at_it = leaves.iter().filter(|leaf| leaf.state == LeafState::Sent).map(|leaf| leaf.node.as_str());
            let text = if sent > 0 {
                format!("{} at it, {waiting} to come", list(at_it))
            } else {
                format!("{waiting} to come")
            };
            Outcome::wait_for(&Waiting::InFlight(text), LOOK)
        }
    })
}

async fn send(
    txn: &mut Txn,
    batch: &Batch,
    leaves: &mut [Leaf],
    choice: &Choice,
    proof: &Proof<'_>,
    (now, closes): (Timestamp, Timestamp),
) -> Result<(), Failure> {
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
    for index in &choice.go {
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
