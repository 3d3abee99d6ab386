//! What the database says about the nodes that have a session here: on a poke at once, and every few seconds for those of
//! which something changed, so that a lost poke costs time only.
//!
//! One statement asks for every node that is in question. What is news reaches the session, which decides. Asking what
//! changed costs what changed: an idle fleet of any size costs nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{
    cause::chain,
    id::NodeId,
    time::{Duration, Timestamp},
};
use store::{
    Db, DbError, nodes,
    poke::{Heard, Listener, Poke},
    sessions,
};
use tokio::{
    sync::Notify,
    time::{Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Timing,
    policies::Policies,
    refusal::Refusal,
    registry::{Registry, Seat},
    session::{Facts, Input},
    writer::{self, Failure},
};

/// A spec may be large; so many at most are in memory at the same time.
const SPECS_PER_STATEMENT: usize = 32;

/// Nodes to look at again, and nodes whose spec is wanted.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<Waiting>,
    wake_facts: Notify,
    wake_specs: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    facts: HashSet<NodeId>,
    specs: HashSet<NodeId>,
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a node again.
    pub(crate) fn look(&self, node_id: NodeId) {
        self.lock().facts.insert(node_id);
        self.wake_facts.notify_one();
    }

    /// Fetches the stored spec of a node for its session.
    pub(crate) fn fetch_spec(&self, node_id: NodeId) {
        self.lock().specs.insert(node_id);
        self.wake_specs.notify_one();
    }

    /// Hears pokes until it is cancelled.
    pub(crate) async fn listen(&self, db: &Db, registry: &Registry, policies: &Policies, cancel: CancellationToken) {
        let heard = async {
            let mut listener = Listener::new(db);
            loop {
                match listener.next().await {
                    Heard::Poke(Poke::Node(node_id)) if registry.find(node_id).is_some() => self.look(node_id),
                    Heard::Poke(Poke::Commands(node_id)) => {
                        if let Some(seat) = registry.find(node_id) {
                            seat.mailbox.put(Input::CommandsMayWait);
                        }
                    }
                    Heard::Poke(Poke::Policies) => policies.wake(),
                    Heard::Poke(_) => {}
                    Heard::Reconnected => {
                        policies.wake();
                        registry.all().iter().for_each(|seat| self.look(seat.node_id));
                    }
                }
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = heard => {}
        }
    }

    /// Answers questions until it is cancelled, asks every few moments what changed, and now and then about everybody.
    pub(crate) async fn answer_facts(&self, db: &Db, registry: &Registry, timing: &Timing, cancel: CancellationToken) {
        let (mut changes, mut everybody) = (every(timing.check), every(timing.check_all));
        let mut since = None;
        loop {
            let asked = tokio::select! {
                () = cancel.cancelled() => return,
                _ = everybody.tick() => Asked::Everybody,
                _ = changes.tick() => Asked::Changes,
                () = self.wake_facts.notified() => Asked::Some,
            };
            // What is missed while PostgreSQL is away is seen by the next look.
            if let Err(error) = writer::answer(self.answer_asked(db, registry, asked, &mut since)).await {
                tracing::warn!(error = %chain(&error), "sessions could not be checked");
            }
        }
    }

    async fn answer_asked(
        &self,
        db: &Db,
        registry: &Registry,
        asked: Asked,
        since: &mut Option<Timestamp>,
    ) -> Result<(), DbError> {
        if registry.is_empty() {
            return Ok(());
        }
        let nodes = match asked {
            Asked::Everybody => return look(db, registry, &registry.all()).await,
            Asked::Changes => {
                let news = sessions::news(db, *since).await?;
                look_at(db, registry, news.nodes).await?;
                // What was not looked at is news again.
                *since = Some(news.at);
                return Ok(());
            }
            Asked::Some => std::mem::take(&mut self.lock().facts),
        };
        look_at(db, registry, nodes).await
    }

    /// Fetches specs until it is cancelled, those of many sessions in one statement.
    pub(crate) async fn answer_specs(&self, db: &Db, registry: &Registry, cancel: CancellationToken) {
        let answer = |most| self.answer_some_specs(db, registry, most);
        writer::run(SPECS_PER_STATEMENT, writer::GATHERING, &self.wake_specs, cancel, answer).await;
    }

    async fn answer_some_specs(&self, db: &Db, registry: &Registry, most: usize) -> Result<usize, Failure> {
        let wanted: Vec<NodeId> = self.lock().specs.extract_if(|_| true).take(most).collect();
        if !wanted.is_empty()
            && let Err(error) = writer::answer(send_specs(db, registry, &wanted)).await
        {
            tracing::warn!(sessions = wanted.len(), error = %chain(&error), "specs could not be read");
            // One that alone cannot be read is wanted again with the next look at its node.
            if let Some(failure) = Failure::of(&error, most) {
                self.lock().specs.extend(wanted);
                return Err(failure);
            }
        }
        Ok(wanted.len())
    }
}

/// Whose facts are asked for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Some,
    Changes,
    Everybody,
}

fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period.to_std());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn look_at(db: &Db, registry: &Registry, nodes: impl IntoIterator<Item = NodeId>) -> Result<(), DbError> {
    let seats: Vec<_> = nodes.into_iter().filter_map(|node_id| registry.find(node_id)).collect();
    look(db, registry, &seats).await
}

async fn look(db: &Db, registry: &Registry, seats: &[Arc<Seat>]) -> Result<(), DbError> {
    if seats.is_empty() {
        return Ok(());
    }
    let rows: Vec<(NodeId, Vec<u8>)> = seats.iter().map(|seat| (seat.node_id, seat.serial.to_bytes())).collect();
    let mut facts: HashMap<NodeId, Facts> =
        sessions::check(db, &rows).await?.into_iter().map(|row| (row.node_id, Facts::from(row))).collect();
    for seat in seats {
        match facts.remove(&seat.node_id) {
            Some(facts) => registry.tell(seat.node_id, facts),
            None => registry.end(seat.node_id, seat.epoch, Refusal::NodeGone),
        }
    }
    Ok(())
}

impl From<sessions::SessionFacts> for Facts {
    fn from(row: sessions::SessionFacts) -> Self {
        Self {
            epoch: row.epoch,
            identity_generation: row.identity_generation,
            revoked: row.revoked,
            vacant: row.vacant,
            renamed: row.renamed,
            generation: row.generation,
            inventory_wanted: row.inventory_wanted,
            commands_waiting: row.commands_waiting,
            cancels: row.cancels,
        }
    }
}

async fn send_specs(db: &Db, registry: &Registry, wanted: &[NodeId]) -> Result<(), DbError> {
    for (node_id, generation, spec, signature) in nodes::find_specs(db, wanted).await? {
        let Some(seat) = registry.find(node_id) else { continue };
        match pb::Signature::decode(signature.as_slice()) {
            Ok(signature) => {
                let spec = pb::DesiredState { generation: generation.0, spec, signature: Some(signature) };
                seat.mailbox.put(Input::Spec(Box::new(spec)));
            }
            Err(error) => {
                tracing::error!(%node_id, %generation, %error, "a stored signature is not readable");
            }
        }
    }
    Ok(())
}
