//! A clock that somebody set ahead. A machine is told the time when its session opens, and measures on from there: by what it was
//! told before, it would begin what is late by as much. So its session ends, and the next one begins with the time.

use std::time::{Duration, Instant};

use schema::{clock::Clock, time::Timestamp};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{registry::Registry, session::Input};

/// So far ahead, in milliseconds: half of the shortest deadline.
const COUNTS: i64 = 5_000;
/// By then whoever signs the time has seen it, too.
const SEEN_BY_ALL: Duration = Duration::from_secs(10);

/// A clock beside what was measured.
#[derive(Debug)]
struct Leaps {
    /// By how much it was ahead of what was measured, at least, in milliseconds.
    least: i64,
    due: Option<Duration>,
}

impl Leaps {
    fn new(now: Timestamp, measured: Duration) -> Self {
        Self { least: ahead(now, measured), due: None }
    }

    /// Whether those who were told the time before are to be told now.
    fn look(&mut self, now: Timestamp, measured: Duration) -> bool {
        let ahead = ahead(now, measured);
        self.least = self.least.min(ahead);
        if ahead - self.least > COUNTS {
            self.due.get_or_insert(measured + SEEN_BY_ALL);
        }
        let is_due = self.due.take_if(|due| *due <= measured).is_some();
        if is_due {
            self.least = ahead;
        }
        is_due
    }
}

fn ahead(now: Timestamp, measured: Duration) -> i64 {
    now.as_millisecond().saturating_sub(i64::try_from(measured.as_millis()).unwrap_or(i64::MAX))
}

/// Looks every `period` until it is cancelled.
pub(crate) async fn watch(clock: &dyn Clock, registry: &Registry, period: Duration, cancel: CancellationToken) {
    let begin = Instant::now();
    let mut leaps = Leaps::new(clock.now(), begin.elapsed());
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if leaps.look(clock.now(), begin.elapsed()) {
            let seats = registry.all();
            tracing::warn!(
                sessions = seats.len(),
                "PostgreSQL's clock was set ahead: sessions begin anew with the time"
            );
            for seat in seats {
                seat.mailbox.put(Input::Drain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At which seconds it is due, when a clock that is looked at each second says so much more than was measured.
    fn due(offsets: impl Fn(i64) -> i64) -> Vec<i64> {
        let at = |second: i64| {
            let now = Timestamp::from_second(1_800_000_000 + second + offsets(second)).expect("a time");
            (now, Duration::from_secs(second.unsigned_abs()))
        };
        let (now, measured) = at(0);
        let mut leaps = Leaps::new(now, measured);
        let is_due = |second: &i64| {
            let (now, measured) = at(*second);
            leaps.look(now, measured)
        };
        (1..200).filter(is_due).collect()
    }

    #[test]
    fn a_clock_that_goes_on_or_back_tells_nobody() {
        assert!(due(|_| 0).is_empty());
        assert!(due(|second| if second < 100 { 0 } else { 4 }).is_empty());
        assert!(due(|second| if second < 100 { 0 } else { -1_200 }).is_empty());
    }

    #[test]
    fn one_that_was_set_ahead_tells_everybody_once_when_all_have_seen_it() {
        assert_eq!(due(|second| if second < 100 { 0 } else { 600 }), [110]);
        assert_eq!(due(|second| [0, 600, 1_200][usize::from(second >= 50) + usize::from(second >= 100)]), [60, 110]);
    }

    #[test]
    fn one_that_went_back_and_is_put_right_tells_who_came_meanwhile() {
        assert_eq!(due(|second| if (50..100).contains(&second) { -600 } else { 0 }), [110]);
    }

    #[test]
    fn one_that_goes_too_fast_tells_now_and_then() {
        assert_eq!(due(|second| second / 10), [70, 140]);
    }
}
