//! How many calls of a kind are forwarded: so many of one caller in a while, and so many at the same time.

use std::{
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use schema::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;

use crate::limit::{Keyed, Rate};

/// What a gate lets through, and what it says to whom it does not.
#[derive(Debug)]
pub(crate) struct Width {
    /// Of one caller.
    pub(crate) each: Rate,
    /// So many callers are told apart.
    pub(crate) callers: usize,
    /// At the same time.
    pub(crate) at_once: usize,
    /// Said to a caller who comes too often.
    pub(crate) too_often: &'static str,
    /// Said to everybody while too many come.
    pub(crate) too_many: &'static str,
}

/// Lets calls through.
#[derive(Debug)]
pub(crate) struct Gate<K> {
    width: Width,
    callers: Mutex<Keyed<K>>,
    at_once: Semaphore,
}

impl<K: Eq + Hash> Gate<K> {
    pub(crate) fn new(width: Width, now: Timestamp) -> Self {
        let callers = Mutex::new(Keyed::new(width.each, width.callers, now));
        Self { callers, at_once: Semaphore::new(width.at_once), width }
    }

    /// A place for one call, for as long as the permit lives.
    pub(crate) fn enter(&self, caller: K, now: Timestamp) -> Result<SemaphorePermit<'_>, Status> {
        if !self.callers.lock().unwrap_or_else(PoisonError::into_inner).take(caller, now) {
            return Err(Status::resource_exhausted(self.width.too_often));
        }
        self.at_once.try_acquire().map_err(|_| Status::resource_exhausted(self.width.too_many))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_who_comes_too_often_and_a_crowd_are_told_so_and_nobody_else() {
        let each = Rate { burst: 2, per_minute: 60 };
        let width = Width { each, callers: 10, at_once: 2, too_often: "often", too_many: "many" };
        let (gate, now) = (Gate::new(width, Timestamp::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
        let said = |caller: u8| gate.enter(caller, now).map_err(|status| status.message().to_owned());
        let held = [said(1), said(2)];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(said(3).map(drop), Err("many".to_owned()));
        drop(held);
        assert!(said(1).is_ok());
        assert_eq!(said(1).map(drop), Err("often".to_owned()));
        assert!(said(4).is_ok());
    }
}
