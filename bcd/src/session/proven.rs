//! What is known of the time: signed time, and how old it may have been when it came.
//!
//! A signed time was true at some moment between the question and its arrival. So the time is between the signed one and
//! the signed one and that while. Deadlines are judged by the later of the two: nothing that is too late is ever in time,
//! however slow the wire was.

use std::time::Duration;

use schema::time::Timestamp;

/// How badly a machine measures time at worst: one part in so many.
const DRIFT: u32 = 5000;
/// The farthest that the time moves ahead on one word.
pub(super) const LEAP: Duration = Duration::from_secs(24 * 3600);
/// How close two words about the time are that confirm each other.
const CLOSE: Duration = Duration::from_secs(300);

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

    /// The same after a while that this machine measured, as well as such clocks measure.
    #[must_use]
    pub fn after(self, passed: Duration) -> Self {
        Self { from: later(self.from, passed), to: later(self.to, passed + passed / DRIFT) }
    }

    /// What both say. Signed time never runs backwards: a later word that contradicts this one moves nothing back. One that
    /// is ahead of this one shows that this one was measured badly, and stands alone.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        if self.to < next.from {
            return next;
        }
        let from = self.from.max(next.from);
        Self { from, to: self.to.min(next.to).max(from) }
    }

    /// Whether `next` is so far ahead that one word is not enough for it.
    #[must_use]
    pub fn leaps_to(self, next: Self) -> bool {
        next.from > later(self.to, LEAP)
    }

    /// Whether `next` is so far behind that no clock measured that badly: one of the two is wrong.
    #[must_use]
    pub fn contradicts(self, next: Self) -> bool {
        self.from > later(next.to, LEAP)
    }

    /// Whether both may be true.
    #[must_use]
    pub fn agrees_with(self, other: Self) -> bool {
        self.from <= later(other.to, CLOSE) && other.from <= later(self.to, CLOSE)
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
        assert_eq!(then.at_least(), at(100));
        assert!(then.at_most() >= at(120), "clocks drift");
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
    fn a_clock_that_ran_slow_takes_the_whole_of_a_later_word() {
        let slow = Proven::signed(at(0), seconds(0)).after(seconds(100));
        let next = Proven::signed(at(200), seconds(25));
        assert_eq!(slow.and(next), next, "the truth may be as late as the answer was old");
    }

    #[test]
    fn a_word_that_contradicts_moves_nothing_back() {
        let before = Proven::signed(at(100), seconds(1));
        let after = before.and(Proven::signed(at(40), seconds(1)));
        assert_eq!((after.at_least(), after.at_most()), (at(100), at(100)));
    }
}
