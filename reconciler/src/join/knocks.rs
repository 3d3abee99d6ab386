//! How often somebody may cause a row: a stranger with a loop must not fill the database, nor a stolen gateway.
//!
//! A bucket that refills with time. A refusal that finds it empty is answered as ever and logged, but not stored.

use std::sync::{Mutex, PoisonError};

use schema::time::{Duration, Timestamp};

/// Refusals that are stored at once, after a quiet time.
const BURST: u64 = 120;

/// The bucket.
#[derive(Debug)]
pub(super) struct Knocks {
    burst: u64,
    /// One more after so many seconds.
    every: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u64,
    at: Timestamp,
}

impl Knocks {
    /// A full bucket for refusals, one more each second.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self::of(BURST, Duration::from_secs(1), now)
    }

    /// A full bucket.
    pub(super) const fn of(burst: u64, every: Duration, now: Timestamp) -> Self {
        Self { burst, every: every.as_secs(), state: Mutex::new(State { left: burst, at: now }) }
    }

    /// Takes one; `false` when none is left.
    pub(super) fn take(&self, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was ahead for once: nothing waits until it is there again.
        state.at = state.at.min(now);
        let more = Duration::between(state.at, now).as_secs().checked_div(self.every).unwrap_or(0);
        if more > 0 {
            state.left = state.left.saturating_add(more).min(self.burst);
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

    #[test]
    fn a_clock_that_was_ahead_for_once_stops_nothing() {
        let start: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        let at = |seconds| Duration::from_secs(seconds).after(start);
        let knocks = Knocks::new(start);
        assert_eq!((0..1000).filter(|_| knocks.take(at(86_400))).count(), 120);
        assert!(!knocks.take(at(1)));
        assert_eq!((0..10).filter(|_| knocks.take(at(4))).count(), 3);
    }

    #[test]
    fn a_slow_bucket_fills_by_whole_turns() {
        let start: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a time");
        let at = |seconds| Duration::from_secs(seconds).after(start);
        let slow = Knocks::of(2, Duration::from_secs(600), start);
        assert_eq!((0..9).filter(|_| slow.take(start)).count(), 2);
        assert!(!slow.take(at(300)) && !slow.take(at(599)), "asking does not put the clock back");
        assert!(slow.take(at(600)) && !slow.take(at(601)));
    }
}
