//! Fights: something else changes a value back as often as the daemon puts it right. Pure.

use schema::time::Timestamp;
use serde::{Deserialize, Serialize};

/// So many corrections…
const OFTEN: usize = 5;
/// …within so many seconds are a fight, and so long without a change ends it.
const WINDOW: i64 = 10 * 60;
/// The first pause between corrections, in seconds; it doubles up to the longest one.
const FIRST_PAUSE: i64 = 2 * 60;
const LONGEST_PAUSE: i64 = 60 * 60;

/// The corrections of one field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Corrections {
    /// The latest ones, oldest first.
    recent: Vec<Timestamp>,
    /// The pause in force, in seconds; 0 while nobody fights.
    pause: i64,
}

impl Corrections {
    /// Whether there was one at all.
    pub(super) const fn any(&self) -> bool {
        !self.recent.is_empty()
    }

    pub(super) const fn is_fight(&self) -> bool {
        self.pause > 0
    }

    /// How long corrections pause, in minutes.
    pub(super) const fn pause_minutes(&self) -> i64 {
        self.pause / 60
    }

    /// Whether the next correction has to wait. A clock that was set back holds nothing off for longer than a pause.
    pub(super) fn holds_off(&self, now: Timestamp) -> bool {
        self.recent.last().is_some_and(|last| {
            let since = seconds(*last, now);
            (0..self.pause).contains(&since)
        })
    }

    /// A correction was made.
    pub(super) fn corrected(&mut self, now: Timestamp) {
        if self.recent.len() == OFTEN {
            self.recent.remove(0);
        }
        self.recent.push(now);
        let often = self.recent.len() == OFTEN && (0..=WINDOW).contains(&seconds(self.recent[0], now));
        if self.is_fight() {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        } else if often {
            self.pause = FIRST_PAUSE;
        }
    }

    /// The field is as wished. Whether that ends a fight.
    pub(super) fn as_wished(&mut self, now: Timestamp) -> bool {
        let quiet = self.recent.last().is_none_or(|last| !(0..WINDOW).contains(&seconds(*last, now)));
        let ends = self.is_fight() && quiet;
        if ends {
            *self = Self { recent: self.recent.last().copied().into_iter().collect(), pause: 0 };
        }
        ends
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    #[test]
    fn a_change_every_minute_is_a_fight_and_one_every_three_minutes_is_none() {
        for (every, fights) in [(60, true), (150, true), (180, false)] {
            let mut corrections = Corrections::default();
            for n in 0..OFTEN {
                corrections.corrected(at(i64::try_from(n).expect("small") * every));
            }
            assert_eq!(corrections.is_fight(), fights, "every {every} s");
        }
    }

    #[test]
    fn a_fight_ends_when_nothing_changes_for_ten_minutes() {
        let mut corrections = Corrections::default();
        (0..5).for_each(|n| corrections.corrected(at(n * 60)));
        assert!(corrections.holds_off(at(4 * 60 + 119)));
        assert!(!corrections.holds_off(at(4 * 60 + 120)));
        assert!(!corrections.as_wished(at(4 * 60 + 599)));
        assert!(corrections.as_wished(at(4 * 60 + 600)));
        assert!(!corrections.is_fight());
        assert!(corrections.any());
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nothing_off() {
        let mut corrections = Corrections::default();
        (0..5).for_each(|n| corrections.corrected(at(n * 60)));
        assert!(!corrections.holds_off(at(-1_000_000)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whoever fights is answered ever more seldom, and never less often than once an hour.
        #[test]
        fn corrections_slow_down_and_never_stop(minutes in 60i64..3000) {
            let mut corrections = Corrections::default();
            let (mut made, mut last, mut longest) = (0i64, 0i64, 0i64);
            for minute in 0..minutes {
                let now = at(minute * 60);
                // It is changed back at once, every time.
                if !corrections.holds_off(now) {
                    corrections.corrected(now);
                    longest = longest.max(minute - last);
                    (made, last) = (made + 1, minute);
                }
            }
            prop_assert!(made <= 12 + minutes / 60, "{} corrections in {} minutes", made, minutes);
            prop_assert!(longest <= 60);
        }
    }
}
