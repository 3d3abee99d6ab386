//! `batch`: one step of one batch. Key: the batch's name; a word about nothing that is stored is about emergencies.
//!
//! ```text
//! proposed ── judge: enough ──▶ approved ── window open ──▶ dispatching ── every machine ended ──▶ done
//!     ▲                            │ withdrawn                  │ more failures than it tolerates ──▶ cancelled (failures)
//!     └────────────────────────────┘                            │ trust changed ──▶ void  · window over ──▶ expired
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `decide` | what follows from what people said, from the log and from the time: pure |
//! | `dispatch` | the next machines begin, with the proof that people agreed |
//! | `machines` | what became of those that have begun, and what becomes of the others |
//!
//! It runs in one process at a time, and takes a machine in hand under its pool's lock: budgets hold across batches.

mod decide;
mod dispatch;
mod machines;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use async_trait::async_trait;
use pki::batch::Tally;
use schema::{name::Name, time::Timestamp};
use store::{
    Txn,
    batches::{self, Batch, BatchState, By, Leaf},
    queue::{self, Kind},
};

use self::decide::{Decision, ENDED_BEFORE, Known, NOT_OURS, Waiting, decide};
use super::{
    allowed,
    choose::Choice,
    emergency,
    resolve::Trust,
    standing::{self, Standing},
};
use crate::reconcile::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy};

/// The reconciler, with what it heard of emergencies.
#[derive(Debug, Default)]
pub struct Batches(Mutex<emergency::Heard>);

/// The key that looks at every batch that has not ended; no batch is called so.
const ALL: &str = "*";
/// What nobody wakes a batch for, such as a session that is back, is looked at so often.
const LOOK: Duration = Duration::from_secs(10);
/// A batch that waits for people is looked at so often.
const SELDOM: Duration = Duration::from_secs(60);
/// Who moves batches, as the audit log says it.
const ACTOR: &str = "batch";

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
            return all(context, trust.as_ref(), &self.0).await;
        }
        match batches::find(context.db(), key).await? {
            Some(batch) => step(context, trust.as_ref(), batch).await,
            None => {
                emergency::take(context, trust.as_ref(), &self.0).await?;
                Ok(Outcome::done())
            }
        }
    }
}

async fn all(context: &Context, trust: Option<&Trust>, heard: &Mutex<emergency::Heard>) -> Result<Outcome, Failure> {
    emergency::take(context, trust, heard).await?;
    let open = batches::open_names(context.db()).await?;
    if !open.is_empty() {
        let mut txn = context.begin().await?;
        queue::enqueue(&mut txn, &queue::BATCH, open).await?;
        txn.commit().await?;
    }
    Ok(Outcome::done())
}

async fn step(context: &Context, trust: Option<&Trust>, found: Batch) -> Result<Outcome, Failure> {
    let now = context.now().await?;
    let standing = match (trust, found.state.is_terminal()) {
        (Some(trust), false) => standing::standing(context.db(), trust, &found, now).await?,
        _ => None,
    };
    let mut txn = context.begin().await?;
    let Some(batch) = batches::find_for_update(&mut txn, found.new.name.as_str()).await? else {
        return Ok(Outcome::done());
    };
    if batch.resolved_at != found.resolved_at {
        return Ok(Outcome::again(Duration::ZERO, "resolved-anew"));
    }
    let mut leaves = batches::leaves(&mut txn, batch.id).await?;
    machines::heard_of(&mut txn, &batch, &mut leaves).await?;
    let outcome = if batch.state.is_terminal() {
        machines::leave_the_rest(&mut txn, &batch, &mut leaves).await?;
        machines::waits_for_the_last(&leaves)
    } else {
        let names: Vec<String> = leaves.iter().map(|leaf| leaf.node.to_string()).collect();
        let known = Known {
            ended: batches::ended(&mut txn, &batch.new.name).await?,
            ours: context.custody().is_put_here(&batch, &leaves),
            pinned: trust.is_some(),
            called: trust.is_some_and(|trust| allowed::is_called(trust, &batch, &names, now)),
            standing: standing.as_ref(),
        };
        let decision = decide(&batch, &known, now);
        act(&mut txn, batch, &mut leaves, standing.as_ref(), decision, now).await?
    };
    txn.commit().await?;
    Ok(outcome)
}

/// Does what was decided.
async fn act(
    txn: &mut Txn,
    mut batch: Batch,
    leaves: &mut [Leaf],
    standing: Option<&Standing>,
    decision: Decision,
    now: Timestamp,
) -> Result<Outcome, Failure> {
    let tally = standing.and_then(|standing| standing.tally.as_ref());
    let on_word_of = |people: fn(&Tally) -> &BTreeSet<Name>| By::word_of(ACTOR, tally.into_iter().flat_map(people));
    match decision {
        Decision::End(state, reason, message) => {
            if matches!(reason, ENDED_BEFORE | NOT_OURS) {
                tracing::error!(batch = %batch.new.name, reason, "a batch goes nowhere: {message}");
            }
            let by = if reason == decide::REJECTED { on_word_of(|tally| &tally.no) } else { ACTOR.into() };
            batches::move_to(txn, &batch, state, Some(reason), Some(&message), by).await?;
            machines::leave_the_rest(txn, &batch, leaves).await?;
            Ok(machines::waits_for_the_last(leaves))
        }
        // Nobody's word is needed any more.
        Decision::Wait(..) if batch.state == BatchState::Dispatching && machines::all_ended(leaves) => {
            dispatch::go_on(txn, &mut batch, leaves, &Choice::default()).await
        }
        Decision::Wait(waiting, after) => {
            machines::take_back(txn, &batch, leaves).await?;
            if batch.state == BatchState::Approved && waiting.is_for_people() {
                let said = Some("somebody took an approval back before anything was sent");
                let by = on_word_of(|tally| &tally.withdrawn);
                batches::move_to(txn, &batch, BatchState::Proposed, Some("withdrawn"), said, by).await?;
            }
            Ok(Outcome::wait_for(&waiting.with(machines::at_it(leaves)), after))
        }
        Decision::Go { opens } => {
            if batch.state == BatchState::Proposed {
                let by = on_word_of(|tally| &tally.yes);
                batches::move_to(txn, &batch, BatchState::Approved, None, batch.message.as_deref(), by).await?;
                batch.state = BatchState::Approved;
            }
            if now < opens {
                let wait = Duration::try_from(opens.duration_since(now)).unwrap_or(LOOK).min(SELDOM);
                return Ok(Outcome::wait_for(&Waiting::NotBefore(opens), wait.max(Duration::from_secs(1))));
            }
            dispatch::go(txn, &mut batch, leaves, standing, now).await
        }
    }
}
