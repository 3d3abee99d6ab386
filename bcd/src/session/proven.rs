//! What is known of the time: signed time, and how old it may have been when it came.
//!
//! A signed time was true at some moment between the question and its arrival. So the time is between the signed one and
//! the signed one and that while. Deadlines are judged by the later of the two: nothing that is too late is ever in time,
//! however slow the wire was.

use std::time::Duration;

use schema::time::Timestamp;

/// The time, between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proven {
    from: Timestamp,
    to: Timestamp,
}

impl Proven {
    /// A signed time that came at most `while` after it was signed.
    #[must_use]
    pub fn signed(time: Timestamp, age: Duration) -> Self {
        Self { from: time, to: later(time, age) }
    }

    /// The same after a while.
    #[must_use]
    pub fn after(self, passed: Duration) -> Self {
        Self { from: later(self.from, passed), to: later(self.to, passed) }
    }

    /// What both say. Signed time never runs backwards: a later word that contradicts this one moves nothing back.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        let from = self.from.max(next.from);
        Self { from, to: self.to.min(next.to).max(from) }
    }

    /// It is this at least.
    #[must_use]
    pub const fn at_least(self) -> Timestamp {
        self.from
    }

    /// It is this at most: by this deadlines are judged.
    #[must_use]
    pub const fn at_most(self) -> Timestamp {
        self.to
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_slow_answer_makes_deadlines_earlier_and_a_quick_one_afterwards_mends_it() {
        let slow = Proven::signed(at(0), seconds(20));
        assert_eq!((slow.at_least(), slow.at_most()), (at(0), at(20)));
        let then = slow.after(seconds(100));
        assert_eq!((then.at_least(), then.at_most()), (at(100), at(120)));
        let mended = then.and(Proven::signed(at(105), seconds(1)));
        assert_eq!((mended.at_least(), mended.at_most()), (at(105), at(106)));
    }

    #[test]
    fn what_both_bounds_say_is_true_whenever_each_was() {
        for truth in 0..30 {
            for (signed, age) in [(truth, 0), (truth - 3, 3), (truth - 3, 9)] {
                let first = Proven::signed(at(signed), seconds(age));
                let second = Proven::signed(at(truth - 1), seconds(2));
                let both = first.and(second);
                assert!(both.at_least() <= at(truth) && at(truth) <= both.at_most());
            }
        }
    }

    #[test]
    fn a_word_that_contradicts_moves_nothing_back() {
        let before = Proven::signed(at(100), seconds(1));
        let after = before.and(Proven::signed(at(40), seconds(1)));
        assert_eq!((after.at_least(), after.at_most()), (at(100), at(100)));
    }
}
