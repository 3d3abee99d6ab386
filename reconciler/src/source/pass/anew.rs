//! Our copy of a remote repository, when something of it is missing or damaged: it is fetched anew, and seldom, for what the remote itself
//! lacks is not mended by that.

use std::time::{Duration, Instant};

use super::Pass;
use crate::source::{SourceState, config::Place};

/// How long it is left as it is after the first time; twice as long after each.
const PAUSE: Duration = Duration::from_secs(300);
/// It is left as it is at most so many times twice as long.
const LONGEST_PAUSE: u32 = 6;

/// How often it was fetched anew, and whether the next look does it.
#[derive(Debug, Clone, Default)]
pub(super) struct Anew {
    wanted: bool,
    times: u32,
    not_before: Option<Instant>,
}

impl Anew {
    fn ask(&mut self, now: Instant) {
        if self.wanted || self.not_before.is_some_and(|until| now < until) {
            return;
        }
        let pause = PAUSE.saturating_mul(1 << self.times.min(LONGEST_PAUSE));
        (self.wanted, self.times, self.not_before) = (true, self.times.saturating_add(1), now.checked_add(pause));
    }

    /// Whether this look is the one.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.wanted)
    }
}

impl Pass {
    /// Has the next look fetch everything anew, when that may mend what is wrong.
    pub(super) fn mend(&mut self, state: SourceState) {
        if state == SourceState::ObjectBroken && matches!(self.config.place, Place::Remote(_)) {
            self.anew.ask(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mended_by_it_is_fetched_anew_more_and_more_seldom() {
        let (begin, mut anew) = (Instant::now(), Anew::default());
        let asked = |anew: &mut Anew, seconds: u64| {
            anew.ask(begin + Duration::from_secs(seconds));
            anew.take()
        };
        let minutes = |number: u64| number * 60;
        assert!(asked(&mut anew, 0) && !asked(&mut anew, minutes(5) - 1) && asked(&mut anew, minutes(5)));
        assert!(!asked(&mut anew, minutes(15) - 1) && asked(&mut anew, minutes(15)));
        let times = (minutes(16)..minutes(16 + 7 * 24 * 60)).step_by(60).filter(|at| asked(&mut anew, *at)).count();
        assert!((30..40).contains(&times), "{times} times in a week");
    }
}
