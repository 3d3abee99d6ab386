//! The sessions of this gateway: who has a seat, who was heard, and how to reach each.
//!
//! Everything here is in memory and bounded: a mailbox holds one message of each kind, the newest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use pki::issue::Serial;
use schema::{
    generation::{Epoch, Generation, IdentityGeneration},
    id::NodeId,
    time::Timestamp,
};
use tokio::sync::Notify;

use crate::{
    limit::{Keyed, Rate},
    refusal::Refusal,
    session::{Facts, Input},
};

/// How many streams one identity may have at the same time: the old one, the new one, and one that is ending.
const STREAMS_PER_IDENTITY: usize = 3;
/// How often one identity may open a stream.
const OPENS_PER_IDENTITY: Rate = Rate { burst: 12, per_minute: 60 };

/// Every session of this gateway.
#[derive(Debug)]
pub(crate) struct Registry {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    seats: HashMap<NodeId, Arc<Seat>>,
    streams: HashMap<NodeId, usize>,
    total: usize,
    opens: Keyed<NodeId>,
}

/// One open session.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) node_id: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) identity_generation: IdentityGeneration,
    pub(crate) serial: Serial,
    pub(crate) mailbox: Mailbox,
    sent: AtomicU64,
    trust: AtomicU64,
    /// The epoch that Hello named, and what was told since; the largest number for a node that reads no policies.
    policies: (AtomicU64, AtomicU64),
    heard: AtomicBool,
}

impl Seat {
    pub(crate) fn new(
        node_id: NodeId,
        epoch: Epoch,
        identity_generation: IdentityGeneration,
        serial: Serial,
    ) -> Arc<Self> {
        Arc::new(Self {
            node_id,
            epoch,
            identity_generation,
            serial,
            mailbox: Mailbox::default(),
            sent: AtomicU64::new(0),
            trust: AtomicU64::new(u64::MAX),
            policies: (AtomicU64::new(0), AtomicU64::new(u64::MAX)),
            heard: AtomicBool::new(true),
        })
    }

    /// The node was heard.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// The node has this generation, or was sent it.
    pub(crate) fn has(&self, generation: Generation) {
        self.sent.store(generation.0, Ordering::Relaxed);
    }

    /// The epoch of the trust policy that Hello named, and the version of what the node was told since.
    pub(crate) fn policies(&self) -> (u64, u64) {
        (self.policies.0.load(Ordering::Relaxed), self.policies.1.load(Ordering::Relaxed))
    }

    /// The node reads trust policies, believes one of this epoch, and was told this much.
    pub(crate) fn believes(&self, epoch: u64, version: u64) {
        self.policies.0.store(epoch, Ordering::Relaxed);
        self.policies.1.store(version, Ordering::Relaxed);
    }

    /// The node was told this much.
    pub(crate) fn was_told_policies(&self, version: u64) {
        self.policies.1.store(version, Ordering::Relaxed);
    }

    /// The version of the trust bundle that the node was given.
    pub(crate) fn trust(&self) -> u64 {
        self.trust.load(Ordering::Relaxed)
    }

    /// The node is given this version.
    pub(crate) fn trusts(&self, version: u64) {
        self.trust.store(version, Ordering::Relaxed);
    }

    fn is_news(&self, facts: &Facts) -> bool {
        facts.epoch > self.epoch
            || facts.identity_generation > self.identity_generation
            || facts.revoked
            || facts.renamed
            || !facts.inventory_wanted.is_empty()
            || facts.commands_waiting
            || !facts.cancels.is_empty()
            || facts.generation.0 > self.sent.load(Ordering::Relaxed)
    }
}

impl Registry {
    /// A registry for at most `most` streams.
    pub(crate) fn new(most: usize, now: Timestamp) -> Self {
        let inner = Inner {
            seats: HashMap::new(),
            streams: HashMap::new(),
            total: 0,
            opens: Keyed::new(OPENS_PER_IDENTITY, most, now),
        };
        Self { most, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more stream of this identity, for as long as the guard lives.
    pub(crate) fn admit(self: &Arc<Self>, node_id: NodeId, now: Timestamp) -> Result<Admission, Refusal> {
        let mut inner = self.lock();
        if inner.total >= self.most {
            return Err(Refusal::TooManySessions("this gateway has all the sessions that it takes"));
        }
        if inner.streams.get(&node_id).is_some_and(|count| *count >= STREAMS_PER_IDENTITY) {
            return Err(Refusal::TooManySessions("this node has all the sessions that it may have"));
        }
        if !inner.opens.take(node_id, now) {
            return Err(Refusal::RateLimited("sessions of this node"));
        }
        inner.total += 1;
        *inner.streams.entry(node_id).or_default() += 1;
        drop(inner);
        Ok(Admission { registry: Arc::clone(self), node_id })
    }

    /// Seats a session. An older one of the same node ends; when a newer one is seated already, this one does.
    pub(crate) fn seat(&self, seat: &Arc<Seat>) {
        let mut inner = self.lock();
        match inner.seats.get(&seat.node_id) {
            Some(other) if other.epoch > seat.epoch => seat.mailbox.end(Refusal::Superseded),
            other => {
                if let Some(other) = other {
                    other.mailbox.end(Refusal::Superseded);
                }
                inner.seats.insert(seat.node_id, Arc::clone(seat));
            }
        }
    }

    /// Takes a session's seat away, unless a newer one has it.
    pub(crate) fn unseat(&self, seat: &Seat) {
        let mut inner = self.lock();
        if inner.seats.get(&seat.node_id).is_some_and(|other| other.epoch == seat.epoch) {
            inner.seats.remove(&seat.node_id);
        }
    }

    /// The seat of a node, if it has one here.
    pub(crate) fn find(&self, node_id: NodeId) -> Option<Arc<Seat>> {
        self.lock().seats.get(&node_id).cloned()
    }

    /// Whether nobody has a seat.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().seats.is_empty()
    }

    /// All seats.
    pub(crate) fn all(&self) -> Vec<Arc<Seat>> {
        self.lock().seats.values().cloned().collect()
    }

    /// The sessions that were heard since this was last asked.
    pub(crate) fn take_heard(&self) -> Vec<Arc<Seat>> {
        self.lock().seats.values().filter(|seat| seat.heard.swap(false, Ordering::Relaxed)).cloned().collect()
    }

    /// Tells a session what the database says about its node, if it does not know yet.
    pub(crate) fn tell(&self, node_id: NodeId, facts: Facts) {
        if let Some(seat) = self.find(node_id).filter(|seat| seat.is_news(&facts)) {
            seat.mailbox.put(Input::Facts(facts));
        }
    }

    /// Ends the session of a node if it still has this epoch.
    pub(crate) fn end(&self, node_id: NodeId, epoch: Epoch, refusal: Refusal) {
        if let Some(seat) = self.find(node_id).filter(|seat| seat.epoch == epoch) {
            seat.mailbox.end(refusal);
        }
    }
}

/// A stream that counts.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    node_id: NodeId,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        inner.total -= 1;
        if let Some(count) = inner.streams.get_mut(&self.node_id) {
            *count -= 1;
            if *count == 0 {
                inner.streams.remove(&self.node_id);
            }
        }
    }
}

/// Messages for one session. A newer message takes the place of an older one of its kind, where it says all that the older
/// one did.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    inputs: VecDeque<Input>,
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message; gives it back when nobody reads any more.
    pub(crate) fn put(&self, input: Input) -> Option<Input> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Some(input);
        }
        let kind = std::mem::discriminant(&input);
        // An end is final: the first reason stands.
        let ended = matches!(input, Input::End(_)) && waiting.inputs.iter().any(|other| matches!(other, Input::End(_)));
        if !ended {
            if !matches!(input, Input::Claimed(_) | Input::Trust(_)) {
                waiting.inputs.retain(|other| std::mem::discriminant(other) != kind);
            }
            waiting.inputs.push_back(input);
        }
        drop(waiting);
        self.wake.notify_one();
        None
    }

    /// Ends the session, if it has not ended.
    pub(crate) fn end(&self, refusal: Refusal) {
        self.put(Input::End(refusal));
    }

    /// Nobody reads any more; what was not read is given back.
    pub(crate) fn close(&self) -> Vec<Input> {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.inputs.drain(..).collect()
    }

    /// The next message. Safe to cancel.
    pub(crate) async fn next(&self) -> Input {
        loop {
            let next = self.lock().inputs.pop_front();
            if let Some(input) = next {
                return input;
            }
            self.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Claimed;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).expect("a time")
    }

    fn seat(node_id: NodeId, epoch: u64) -> Arc<Seat> {
        let serial = serde_json::from_str("\"40ab\"").expect("a serial");
        Seat::new(node_id, Epoch(epoch), IdentityGeneration(1), serial)
    }

    fn facts(generation: u64) -> Facts {
        Facts {
            epoch: Epoch(2),
            identity_generation: IdentityGeneration(1),
            revoked: false,
            vacant: false,
            renamed: false,
            generation: Generation(generation),
            inventory_wanted: Vec::new(),
            commands_waiting: false,
            cancels: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_newer_session_ends_the_older_one_in_either_order() {
        let (registry, node) = (Registry::new(10, now()), NodeId::generate());
        let (old, new) = (seat(node, 1), seat(node, 2));
        registry.seat(&old);
        registry.seat(&new);
        assert_eq!(old.mailbox.next().await, Input::End(Refusal::Superseded));

        registry.seat(&old);
        assert_eq!(old.mailbox.next().await, Input::End(Refusal::Superseded));
        registry.unseat(&old);
        assert_eq!(registry.find(node).map(|seat| seat.epoch), Some(Epoch(2)));
    }

    #[tokio::test]
    async fn a_mailbox_keeps_the_newest_of_each_kind_and_the_first_end() {
        let mailbox = Mailbox::default();
        for generation in 0..1000 {
            assert_eq!(mailbox.put(Input::Facts(facts(generation))), None);
        }
        mailbox.end(Refusal::Superseded);
        mailbox.end(Refusal::SlowReader);
        assert_eq!(mailbox.next().await, Input::Facts(facts(999)));
        assert_eq!(mailbox.next().await, Input::End(Refusal::Superseded));
    }

    #[tokio::test]
    async fn a_closed_mailbox_gives_everything_back() {
        let mailbox = Mailbox::default();
        let claimed = || Input::Claimed(Claimed::default());
        assert_eq!(mailbox.put(claimed()), None);
        assert_eq!(mailbox.put(claimed()), None);
        assert_eq!(mailbox.next().await, claimed());
        assert_eq!(mailbox.close(), [claimed()]);
        assert_eq!(mailbox.put(claimed()), Some(claimed()));
    }

    #[test]
    fn only_news_reaches_a_session() {
        let (registry, node) = (Registry::new(10, now()), NodeId::generate());
        let seat = seat(node, 2);
        seat.has(Generation(5));
        registry.seat(&seat);
        registry.tell(node, facts(5));
        assert!(seat.mailbox.lock().inputs.is_empty());
        registry.tell(node, facts(6));
        assert_eq!(seat.mailbox.lock().inputs.len(), 1);
        registry.tell(node, Facts { commands_waiting: true, ..facts(5) });
        assert!(matches!(seat.mailbox.lock().inputs.front(), Some(Input::Facts(Facts { commands_waiting: true, .. }))));
    }

    #[test]
    fn streams_are_bounded_in_total_and_by_identity() {
        let registry = Arc::new(Registry::new(4, now()));
        let (one, two) = (NodeId::generate(), NodeId::generate());
        let held: Vec<_> = (0..3).map(|_| registry.admit(one, now()).expect("room")).collect();
        assert_eq!(registry.admit(one, now()).map(|_| ()).map_err(|r| r.code()), Err("TOO_MANY_SESSIONS"));
        let other = registry.admit(two, now()).expect("room");
        assert_eq!(
            registry.admit(NodeId::generate(), now()).map(|_| ()).map_err(|r| r.code()),
            Err("TOO_MANY_SESSIONS")
        );
        drop((held, other));
        assert!(registry.lock().streams.is_empty());
    }

    #[test]
    fn an_identity_that_reconnects_without_end_is_slowed_down() {
        let (registry, node) = (Arc::new(Registry::new(4, now())), NodeId::generate());
        let admitted = (0..100).filter(|_| registry.admit(node, now()).is_ok()).count();
        assert_eq!(admitted, 12);
        assert!(registry.admit(NodeId::generate(), now()).is_ok());
    }
}
