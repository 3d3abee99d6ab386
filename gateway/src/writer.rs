//! The loop of every task that carries what waits to the database, or answers from there, many at a time.
//!
//! While PostgreSQL is away what waits goes on waiting. What it refuses is tried one by one, so that what it does not take
//! costs only its own node.

use std::time::{Duration, Instant};

use schema::id::NodeId;
use store::{DbError, error::DbErrorKind};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const PAUSE: Duration = Duration::from_millis(500);
/// How long what comes may wait for more, where nobody sees so short a time.
pub(crate) const GATHERING: Duration = Duration::from_millis(10);
/// How long PostgreSQL may take for one batch: longer than anybody who stopped keeps a lock.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why what was taken was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// PostgreSQL is away.
    Later,
    /// One of them is not taken.
    Refused,
}

impl Failure {
    /// What an error means for a batch of at most `most`; `None`: it was alone, and is dropped.
    pub(crate) const fn of(error: &DbError, most: usize) -> Option<Self> {
        match error.kind() {
            DbErrorKind::Unavailable | DbErrorKind::Contention => Some(Self::Later),
            _ if most == 1 => None,
            _ => Some(Self::Refused),
        }
    }
}

/// What PostgreSQL answers. A wire that says nothing any more is PostgreSQL that is away, and what was asked of it may have
/// happened or not.
pub(crate) async fn answer<T>(asked: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    store::db::in_time(PATIENCE, asked).await
}

/// What became of what a node said, in a buffer that is bounded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed<T> {
    Fits,
    Full,
    /// It fits because nothing of this node waits any more.
    InPlaceOf(NodeId, T),
}

/// Whoever takes the most of a buffer that is full, if that is more than this node would take.
pub(crate) fn greediest(held: impl Iterator<Item = (NodeId, usize)>, node: NodeId, wants: usize) -> Option<NodeId> {
    let (most, bytes) = held.max_by_key(|(node, bytes)| (*bytes, *node))?;
    (most != node && bytes > wants).then_some(most)
}

/// How many to take next, after so many were tried.
fn next(at_once: usize, written: Result<usize, Failure>, most: usize) -> usize {
    match written {
        Ok(_) => (at_once * 2).min(most),
        Err(Failure::Refused) => 1,
        Err(Failure::Later) => most,
    }
}

/// Writes all that waits; `false` when PostgreSQL is away. `write` takes at most so many and says how many they were.
pub(crate) async fn flush<W>(most: usize, mut write: impl FnMut(usize) -> W) -> bool
where
    W: Future<Output = Result<usize, Failure>>,
{
    let mut at_once = most;
    loop {
        let written = write(at_once).await;
        match written {
            Ok(0) => return true,
            Err(Failure::Later) => return false,
            _ => at_once = next(at_once, written, most),
        }
    }
}

/// Writes what comes until it is cancelled. After a batch it rests as long as that took, up to `gathering`: under load what comes
/// meanwhile goes together, which costs less, and what comes alone does not wait.
pub(crate) async fn run<W>(
    most: usize,
    gathering: Duration,
    wake: &Notify,
    cancel: CancellationToken,
    mut write: impl FnMut(usize) -> W,
) where
    W: Future<Output = Result<usize, Failure>>,
{
    let mut at_once = most;
    loop {
        let begin = Instant::now();
        let written = write(at_once).await;
        at_once = next(at_once, written, most);
        let rests = async {
            match rest(written, begin.elapsed(), gathering) {
                None => wake.notified().await,
                Some(Duration::ZERO) => {}
                Some(rest) => tokio::time::sleep(rest).await,
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = rests => {}
        }
    }
}

/// How long to rest after a batch that took so long; `None`: until more comes.
fn rest(written: Result<usize, Failure>, took: Duration, gathering: Duration) -> Option<Duration> {
    match written {
        Ok(0) => None,
        Ok(_) => Some(took.min(gathering)),
        Err(Failure::Refused) => Some(Duration::ZERO),
        Err(Failure::Later) => Some(PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, future::ready};

    use super::*;

    #[tokio::test]
    async fn what_is_refused_is_found_one_by_one_and_costs_only_itself() {
        let waiting = RefCell::new((0..20).collect::<VecDeque<u32>>());
        let (written, dropped) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let write = |most: usize| {
            let mut waiting = waiting.borrow_mut();
            let count = most.min(waiting.len());
            let taken: Vec<u32> = waiting.drain(..count).collect();
            if !taken.contains(&7) {
                written.borrow_mut().extend(taken);
            } else if most == 1 {
                dropped.borrow_mut().extend(taken);
            } else {
                taken.into_iter().rev().for_each(|one| waiting.push_front(one));
                return ready(Err(Failure::Refused));
            }
            ready(Ok(count))
        };
        assert!(flush(8, write).await);
        assert_eq!(*dropped.borrow(), [7]);
        assert_eq!(*written.borrow(), (0..20).filter(|one| *one != 7).collect::<Vec<_>>());
        assert!(!flush(8, |_| ready(Err(Failure::Later))).await);
    }

    #[test]
    fn after_a_batch_more_is_waited_for_as_long_as_it_took_and_after_the_last_one_until_more_comes() {
        let millis = Duration::from_millis;
        assert_eq!(rest(Ok(3), millis(4), GATHERING), Some(millis(4)));
        assert_eq!(rest(Ok(3), millis(40), GATHERING), Some(GATHERING));
        assert_eq!(rest(Ok(3), millis(4), Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(rest(Ok(0), millis(4), GATHERING), None);
        assert_eq!(rest(Err(Failure::Refused), millis(4), GATHERING), Some(Duration::ZERO));
        assert_eq!(rest(Err(Failure::Later), millis(4), GATHERING), Some(PAUSE));
    }
}
