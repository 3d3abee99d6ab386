//! What anybody can cause is told seldom: a line once in a while, which says how often it happened, so that nobody fills a log.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Counts what happens, and says when it is time for a line.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    untold: u64,
    told: Option<Instant>,
}

impl Seldom {
    /// A line at once, and then one in `every` at most.
    #[must_use]
    pub const fn new(every: Duration) -> Self {
        Self { every, state: Mutex::new(State { untold: 0, told: None }) }
    }

    /// It happened. When it is time for a line, how often since the last one.
    pub fn happened(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.untold += 1;
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < self.every) {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_of_a_minute_are_one_line_and_none_is_uncounted() {
        let begin = Instant::now();
        let seldom = Seldom::new(Duration::from_secs(60));
        let lines = |second| {
            let now = begin + Duration::from_secs(second);
            (0..1_000).filter_map(|_| seldom.happened(now)).collect::<Vec<_>>()
        };
        assert_eq!(lines(0), [1], "the first is told at once");
        assert_eq!(lines(59), [0; 0]);
        assert_eq!(lines(60), [2_000]);
    }
}
