//! The nodes' last words on commands, on their way to the database: a bounded buffer and the one task that empties it.
//!
//! Bytes go down as the node signed them; nobody here reads more of them than their heads. While PostgreSQL is away they
//! wait. A session whose last word does not fit ends, and the node says it again in its next one. When all room is taken,
//! the node that takes the most of it makes room.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use schema::{cause::chain, id::NodeId};
use store::{
    Db,
    commands::{self, RawUpdate},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    claims::Claims,
    refusal::Refusal,
    registry::Registry,
    writer::{self, Failure, Pushed, greediest},
};

const PER_NODE: usize = 64;
/// A node's first word always fits; from here on it has to wait.
const BYTES_PER_NODE: usize = 2 * 1024 * 1024;
const MAX_BYTES: usize = 64 * 1024 * 1024;
const PER_STATEMENT: usize = 128;
const BYTES_PER_STATEMENT: usize = 4 * 1024 * 1024;
const DROPPED: Refusal = Refusal::Unavailable("what this node said about a command could not be kept");
const FULL: Refusal = Refusal::Unavailable("too many last words of this node wait to be read");

/// What waits, in the order in which it came.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    buffer: Mutex<Buffer>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Buffer {
    waiting: VecDeque<RawUpdate>,
    by_node: HashMap<NodeId, Held>,
    bytes: usize,
}

/// What waits of one node.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    words: usize,
    bytes: usize,
}

impl Buffer {
    fn push(&mut self, word: RawUpdate) -> Pushed<Vec<RawUpdate>> {
        let size = word.payload.len();
        let held = self.by_node.get(&word.node).copied().unwrap_or_default();
        if held.words >= PER_NODE || held.words > 0 && held.bytes + size > BYTES_PER_NODE {
            return Pushed::Full;
        }
        let pushed = if self.bytes + size > MAX_BYTES {
            let all = self.by_node.iter().map(|(node, held)| (*node, held.bytes));
            match greediest(all, word.node, held.bytes + size) {
                Some(node) => Pushed::InPlaceOf(node, self.drop_all_of(node)),
                None => return Pushed::Full,
            }
        } else {
            Pushed::Fits
        };
        self.count(&word);
        self.waiting.push_back(word);
        pushed
    }

    fn drop_all_of(&mut self, node: NodeId) -> Vec<RawUpdate> {
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|word| word.node == node);
        self.waiting = kept;
        gone.iter().for_each(|word| self.discount(word));
        gone.into()
    }

    fn count(&mut self, word: &RawUpdate) {
        let held = self.by_node.entry(word.node).or_default();
        held.words += 1;
        held.bytes += word.payload.len();
        self.bytes += word.payload.len();
    }

    fn discount(&mut self, word: &RawUpdate) {
        self.bytes -= word.payload.len();
        if let Some(held) = self.by_node.get_mut(&word.node) {
            held.words -= 1;
            held.bytes -= word.payload.len();
            if held.words == 0 {
                self.by_node.remove(&word.node);
            }
        }
    }

    fn give_back(&mut self, words: Vec<RawUpdate>) {
        for word in words.into_iter().rev() {
            self.count(&word);
            self.waiting.push_front(word);
        }
    }

    fn take(&mut self, most: usize) -> Vec<RawUpdate> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < most
            && bytes < BYTES_PER_STATEMENT
            && let Some(word) = self.waiting.pop_front()
        {
            bytes += word.payload.len();
            self.discount(&word);
            taken.push(word);
        }
        taken
    }
}

impl LastWords {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many of a node wait that it should not get work that leads to more: what it has in flight still fits.
    pub(crate) fn are_many(&self, node: NodeId) -> bool {
        self.lock()
            .by_node
            .get(&node)
            .is_some_and(|held| held.words >= PER_NODE / 2 || held.bytes >= BYTES_PER_NODE / 2)
    }

    /// Takes over a last word, unless there is no room for it.
    pub(crate) fn put(&self, registry: &Registry, word: RawUpdate) -> bool {
        let pushed = self.lock().push(word);
        self.wake.notify_one();
        match pushed {
            Pushed::Fits => true,
            Pushed::Full => false,
            Pushed::InPlaceOf(node, dropped) => {
                tracing::warn!(node_id = %node, dropped = dropped.len(), "a node took the most room for last words and lost it");
                dropped.iter().for_each(|word| registry.end(node, word.epoch, DROPPED));
                true
            }
        }
    }

    /// Writes what comes until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, registry: &Registry, claims: &Claims, cancel: CancellationToken) {
        let write = async |most| {
            let written = self.write(db, registry, most).await;
            claims.go_on();
            written
        };
        writer::run(PER_STATEMENT, writer::GATHERING, &self.wake, cancel, write).await;
    }

    /// Writes what still waits, as long as that works.
    pub(crate) async fn flush(&self, db: &Db, registry: &Registry) {
        writer::flush(PER_STATEMENT, |most| self.write(db, registry, most)).await;
        let left = self.lock().waiting.len();
        if left > 0 {
            tracing::warn!(left, "last words on commands were not written; their nodes will say them again");
        }
    }

    #[cfg(test)]
    pub(crate) fn taken_of(&self, node: NodeId) {
        self.lock().drop_all_of(node);
    }

    async fn write(&self, db: &Db, registry: &Registry, most: usize) -> Result<usize, Failure> {
        let taken = self.lock().take(most);
        if taken.is_empty() {
            return Ok(0);
        }
        match writer::answer(commands::store_updates(db, &taken)).await {
            Ok(full) => {
                for word in taken.iter().filter(|word| full.contains(&word.node)) {
                    registry.end(word.node, word.epoch, FULL);
                }
            }
            Err(error) => {
                if let Some(failure) = Failure::of(&error, most) {
                    tracing::warn!(waiting = taken.len(), error = %chain(&error), "last words on commands wait for PostgreSQL");
                    self.lock().give_back(taken);
                    return Err(failure);
                }
                for word in &taken {
                    tracing::error!(node_id = %word.node, command = %word.id, error = %chain(&error), "a last word was dropped");
                    registry.end(word.node, word.epoch, DROPPED);
                }
            }
        }
        Ok(taken.len())
    }
}

#[cfg(test)]
mod tests {
    use schema::{generation::Epoch, id::CommandId};

    use super::*;

    fn word(node: NodeId, bytes: usize) -> RawUpdate {
        RawUpdate { node, epoch: Epoch(1), id: CommandId::generate(), payload: vec![0; bytes], signature: vec![1] }
    }

    #[test]
    fn a_node_has_its_share_of_words_and_of_bytes() {
        let mut buffer = Buffer::default();
        let node = NodeId::generate();
        let kept = (0..100).filter(|_| buffer.push(word(node, 10)) == Pushed::Fits).count();
        assert_eq!(kept, PER_NODE);
        let large = NodeId::generate();
        let kept = (0..100).filter(|_| buffer.push(word(large, 256 * 1024)) == Pushed::Fits).count();
        assert_eq!(kept, 8);
        assert_eq!(buffer.push(word(NodeId::generate(), 10)), Pushed::Fits);
    }

    #[test]
    fn when_all_room_is_taken_the_greediest_makes_room_for_the_others() {
        let mut buffer = Buffer::default();
        let hostile: Vec<NodeId> = (0..32).map(|_| NodeId::generate()).collect();
        for node in &hostile {
            assert_eq!((0..64).filter(|_| buffer.push(word(*node, 256 * 1024)) == Pushed::Fits).count(), 8);
        }
        assert_eq!(buffer.bytes, MAX_BYTES);
        let honest = word(NodeId::generate(), 1000);
        let Pushed::InPlaceOf(loser, dropped) = buffer.push(honest.clone()) else { panic!("there is room for it") };
        assert!(hostile.contains(&loser) && dropped.len() == 8 && dropped.iter().all(|word| word.node == loser));
        assert_eq!(buffer.waiting.back(), Some(&honest));
        assert_eq!(buffer.bytes, MAX_BYTES - BYTES_PER_NODE + 1000);
    }

    #[test]
    fn what_is_given_back_keeps_its_place() {
        let mut buffer = Buffer::default();
        let node = NodeId::generate();
        let words: Vec<RawUpdate> = (0..5).map(|_| word(node, 10)).collect();
        words.iter().for_each(|word| assert_eq!(buffer.push(word.clone()), Pushed::Fits));
        let taken = buffer.take(3);
        buffer.give_back(taken);
        assert_eq!(buffer.take(10), words);
        assert_eq!((buffer.bytes, buffer.by_node.len()), (0, 0));
    }
}
