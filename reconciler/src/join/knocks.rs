//! How many refusals are stored: anybody may knock, and a stranger with a loop must not fill the database.
//!
//! A bucket of refusals that refills with time. One that finds it empty is answered as ever and logged, but not stored.

use std::sync::{Mutex, PoisonError};

use schema::time::{Duration, Timestamp};

/// Stored at once, after a quiet time.
const BURST: u64 = 120;
/// Refilled in each second.
const PER_SECOND: u64 = 1;

/// The bucket.
#[derive(Debug)]
pub(super) struct Knocks(Mutex<State>);

#[derive(Debug)]
struct State {
    left: u64,
    at: Timestamp,
}

impl Knocks {
    /// A full bucket.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self(Mutex::new(State { left: BURST, at: now }))
    }

    /// Takes one; `false` when none is left.
    pub(super) fn take(&self, now: Timestamp) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = Duration::between(state.at, now).as_secs();
        if quiet > 0 {
            state.left = state.left.saturating_add(quiet.saturating_mul(PER_SECOND)).min(BURST);
            state.at = now;
        }
        let taken = state.left > 0;
        state.left = state.left.saturating_sub(1);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_stored_then_one_a_second() {
        let start: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        let knocks = Knocks::new(start);
        let stored = (0..1000).filter(|_| knocks.take(start)).count();
        assert_eq!(stored, 120);
        let later = Duration::from_secs(3).after(start);
        assert_eq!((0..10).filter(|_| knocks.take(later)).count(), 3);
        assert!(!knocks.take(start));
        let much_later = Duration::from_secs(86_400).after(start);
        assert_eq!((0..1000).filter(|_| knocks.take(much_later)).count(), 120);
    }
}
