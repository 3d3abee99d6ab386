//! Claims: sessions with room ask for commands, and one statement takes them for many sessions.
//!
//! While a statement runs, others ask; what has asked by then goes with the next. A claim whose answer was lost may have
//! taken something, so what those sessions have in flight is read before they claim again. It may also still be on its way:
//! claims are numbered, and whoever reads what is in flight makes those before it void.
//!
//! A session whose node has many last words on their way to the database waits until they are there: it would have more to say
//! than is kept.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message as _;
use proto::agent::v1 as pb;
use schema::{cause::chain, command::Lane, generation::Epoch, id::NodeId};
use store::{DbError, Dedicated, commands};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    last_words::LastWords,
    registry::Registry,
    session::{Claimed, Dispatch, Input, Room},
    steps::Steps,
    writer::{self, Failure},
};

const SESSIONS_PER_STATEMENT: usize = 256;

/// Sessions that asked.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    asked: Mutex<HashMap<NodeId, Asked>>,
    wake: Notify,
    /// Of the claim that was made last.
    number: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    epoch: Epoch,
    room: Room,
    /// The answer to an earlier claim was lost.
    in_doubt: bool,
}

/// By node, in the order of their numbers.
type Taken = Vec<(NodeId, Vec<commands::Dispatch>)>;

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<NodeId, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has room.
    pub(crate) fn ask(&self, node_id: NodeId, epoch: Epoch, room: Room) {
        self.lock().insert(node_id, Asked { epoch, room, in_doubt: false });
        self.wake.notify_one();
    }

    /// Last words went to the database: who waited for that goes on.
    pub(crate) fn go_on(&self) {
        if !self.lock().is_empty() {
            self.wake.notify_one();
        }
    }

    /// Answers until it is cancelled.
    pub(crate) async fn run(
        &self,
        db: &Dedicated,
        registry: &Registry,
        (steps, words): (&Steps, &LastWords),
        cancel: CancellationToken,
    ) {
        // The first claim is planned, which takes as long as many others.
        let nobody =
            [commands::Claim { node: NodeId::generate(), epoch: Epoch(0), number: 0, room: [0; Lane::ALL.len()] }];
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = commands::claim(db, &nobody) => {}
        }
        let answer = |most| self.answer(db, registry, (steps, words), most);
        writer::run(SESSIONS_PER_STATEMENT, Duration::ZERO, &self.wake, cancel, answer).await;
    }

    async fn answer(
        &self,
        db: &Dedicated,
        registry: &Registry,
        (steps, words): (&Steps, &LastWords),
        most: usize,
    ) -> Result<usize, Failure> {
        let mut asked = self.take(registry, words, most);
        if asked.is_empty() {
            return Ok(0);
        }
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let taken = match writer::answer(take(db, &asked, number)).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(sessions = asked.len(), error = %chain(&error), "commands wait for PostgreSQL");
                if let Some(failure) = Failure::of(&error, most) {
                    self.doubt(asked);
                    return Err(failure);
                }
                // This one alone cannot be read: it asks again when the database says that something waits.
                asked.values_mut().for_each(|asked| asked.in_doubt = false);
                Taken::new()
            }
        };
        answer(registry, steps, &asked, taken);
        Ok(asked.len())
    }

    /// Some of those that asked and are still here: all in doubt, or none.
    fn take(&self, registry: &Registry, words: &LastWords, most: usize) -> HashMap<NodeId, Asked> {
        let mut waiting = self.lock();
        waiting.retain(|node_id, asked| registry.find(*node_id).is_some_and(|seat| seat.epoch == asked.epoch));
        let in_doubt = waiting.values().any(|asked| asked.in_doubt);
        let goes = |node_id: &NodeId, asked: &mut Asked| asked.in_doubt == in_doubt && !words.are_many(*node_id);
        waiting.extract_if(goes).take(most).collect()
    }

    fn doubt(&self, asked: HashMap<NodeId, Asked>) {
        let mut waiting = self.lock();
        for (node_id, asked) in asked {
            // A newer session of the node knows nothing of the claim.
            waiting.entry(node_id).or_insert(Asked { in_doubt: true, ..asked });
        }
    }
}

async fn take(db: &Dedicated, asked: &HashMap<NodeId, Asked>, number: u64) -> Result<Taken, DbError> {
    if asked.values().any(|asked| asked.in_doubt) {
        let sessions: Vec<(NodeId, Epoch)> = asked.iter().map(|(node_id, asked)| (*node_id, asked.epoch)).collect();
        return commands::in_flight(db.pooled(), &sessions, number).await;
    }
    let mut claims: Vec<commands::Claim> = asked
        .iter()
        .map(|(node_id, asked)| commands::Claim {
            node: *node_id,
            epoch: asked.epoch,
            number,
            room: asked.room.map(|room| u32::try_from(room).unwrap_or(u32::MAX)),
        })
        .collect();
    claims.sort_unstable_by_key(|claim| claim.node);
    commands::claim(db, &claims).await
}

fn answer(registry: &Registry, steps: &Steps, asked: &HashMap<NodeId, Asked>, taken: Taken) {
    let mut taken: HashMap<NodeId, Vec<commands::Dispatch>> = taken.into_iter().collect();
    for (node_id, asked) in asked {
        let commands = taken.remove(node_id).unwrap_or_default().into_iter().filter_map(dispatch).collect();
        let claimed = Claimed { commands, recalled: asked.in_doubt };
        let seat = registry.find(*node_id).filter(|seat| seat.epoch == asked.epoch);
        let left = match seat {
            Some(seat) => seat.mailbox.put(Input::Claimed(claimed)),
            None => Some(Input::Claimed(claimed)),
        };
        if let Some(Input::Claimed(claimed)) = left {
            steps.give_back(*node_id, asked.epoch, &claimed);
        }
    }
}

/// A stored command as the core has it; `None`, and a line in the log, when its signature is not readable.
pub(crate) fn dispatch(stored: commands::Dispatch) -> Option<Dispatch> {
    let commands::Dispatch { id, seq, lane, kind, body, signature, approval, cancel } = stored;
    match pb::Signature::decode(signature.as_slice()) {
        Ok(signature) => {
            let frame = pb::Command { body, signature: Some(signature), approval };
            Some(Dispatch { id, seq, lane, kind, frame, cancel })
        }
        Err(error) => {
            tracing::error!(command = %id, %error, "a stored signature is not readable");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use schema::{generation::IdentityGeneration, id::CommandId, time::Timestamp};
    use store::commands::RawUpdate;

    use super::*;
    use crate::registry::Seat;

    #[tokio::test]
    async fn who_alone_cannot_be_answered_is_told_that_nothing_waits_and_does_not_ask_again_at_once() {
        let test = store::testing::TestDb::create().await;
        // A role that may read nothing of commands.
        let url = format!("{}&options=-c%20role=pg_monitor", test.config().url());
        let db =
            store::Db::connect(&store::DbConfig::from_url(&url).expect("a URL")).await.expect("a pool").dedicated();
        let registry = Registry::new(10, Timestamp::UNIX_EPOCH);
        let serial = serde_json::from_str("\"40ab\"").expect("a serial");
        let seat = Seat::new(NodeId::generate(), Epoch(1), IdentityGeneration(1), serial);
        registry.seat(&seat);
        let (claims, steps, words) = (Claims::default(), Steps::default(), LastWords::default());
        claims.ask(seat.node_id, seat.epoch, [1; 3]);
        assert_eq!(
            claims.answer(&db, &registry, (&steps, &words), SESSIONS_PER_STATEMENT).await,
            Err(Failure::Refused)
        );
        assert!(claims.lock().values().all(|asked| asked.in_doubt));
        assert_eq!(claims.answer(&db, &registry, (&steps, &words), 1).await, Ok(1));
        assert!(claims.lock().is_empty());
        assert_eq!(seat.mailbox.next().await, Input::Claimed(Claimed::default()));
    }

    #[tokio::test]
    async fn who_has_many_last_words_on_their_way_claims_when_they_have_gone() {
        let registry = Registry::new(10, Timestamp::UNIX_EPOCH);
        let serial = serde_json::from_str("\"40ab\"").expect("a serial");
        let seat = Seat::new(NodeId::generate(), Epoch(1), IdentityGeneration(1), serial);
        registry.seat(&seat);
        let (claims, words) = (Claims::default(), LastWords::default());
        let word = || RawUpdate {
            node: seat.node_id,
            epoch: seat.epoch,
            id: CommandId::generate(),
            payload: vec![1],
            signature: vec![2],
        };
        (0..32).for_each(|_| assert!(words.put(&registry, word())));
        claims.ask(seat.node_id, seat.epoch, [1; 3]);
        assert!(claims.take(&registry, &words, 9).is_empty());
        claims.wake.notified().await;
        words.taken_of(seat.node_id);
        claims.go_on();
        claims.wake.notified().await;
        assert_eq!(claims.take(&registry, &words, 9).len(), 1);
    }
}
