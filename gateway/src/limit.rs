//! Rates: token buckets, alone and by key. Pure; time is an argument.

use std::{collections::HashMap, hash::Hash};

use schema::time::Timestamp;

/// How much may come at once, and how much in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At once, after a pause.
    pub burst: u32,
    /// Per minute in the long run; never zero.
    pub per_minute: u32,
}

const WHOLE: u64 = 60_000;

impl Rate {
    const fn full(self) -> u64 {
        self.burst as u64 * WHOLE
    }
}

/// Counts one thing against a [`Rate`]. A clock that goes backwards gives nothing and takes nothing.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    rate: Rate,
    // In parts of 1/60,000: one millisecond refills `per_minute` of them.
    level: u64,
    at: Timestamp,
}

impl Bucket {
    pub(crate) const fn new(rate: Rate, now: Timestamp) -> Self {
        Self { rate, level: rate.full(), at: now }
    }

    fn refill(&mut self, now: Timestamp) {
        let elapsed = u64::try_from(now.as_millisecond() - self.at.as_millisecond()).unwrap_or(0);
        let gained = elapsed.saturating_mul(u64::from(self.rate.per_minute));
        self.level = self.level.saturating_add(gained).min(self.rate.full());
        self.at = now;
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        let enough = self.level >= WHOLE;
        if enough {
            self.level -= WHOLE;
        }
        enough
    }

    /// When there is one to take, as far as is known now.
    pub(crate) fn next(&self) -> Timestamp {
        let missing = WHOLE.saturating_sub(self.level).div_ceil(u64::from(self.rate.per_minute.max(1)));
        self.at.saturating_add(std::time::Duration::from_millis(missing)).unwrap_or(Timestamp::MAX)
    }

    fn is_full(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        self.level == self.rate.full()
    }
}

/// A bucket per key, for at most `most` keys that are not at rest. When there are more, the others share one bucket, so
/// that a flood of keys costs no memory and is itself limited.
#[derive(Debug)]
pub(crate) struct Keyed<K> {
    rate: Rate,
    most: usize,
    buckets: HashMap<K, Bucket>,
    shared: Bucket,
}

impl<K: Eq + Hash> Keyed<K> {
    pub(crate) fn new(rate: Rate, most: usize, now: Timestamp) -> Self {
        let shared = Rate { burst: rate.burst.saturating_mul(4), per_minute: rate.per_minute.saturating_mul(4) };
        Self { rate, most, buckets: HashMap::new(), shared: Bucket::new(shared, now) }
    }

    /// Takes one of this key's, if there is one.
    pub(crate) fn take(&mut self, key: K, now: Timestamp) -> bool {
        if self.buckets.len() >= self.most && !self.buckets.contains_key(&key) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            if self.buckets.len() >= self.most {
                return self.shared.take(now);
            }
        }
        self.buckets.entry(key).or_insert_with(|| Bucket::new(self.rate, now)).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 2, per_minute: 60 };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millis).expect("a time")
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(RATE, at(0));
        assert_eq!(
            [0, 0, 0, 999, 1000, 1000].map(|millis| bucket.take(at(millis))),
            [true, true, false, false, true, false]
        );
        assert_eq!(bucket.next(), at(2000));
    }

    #[test]
    fn a_clock_that_goes_backwards_gives_nothing() {
        let mut bucket = Bucket::new(RATE, at(0));
        assert!(bucket.take(at(0)) && bucket.take(at(0)));
        assert!(!bucket.take(at(-5000)));
        assert!(bucket.take(at(-4000)));
    }

    #[test]
    fn keys_do_not_pay_for_one_another() {
        let mut keyed = Keyed::new(RATE, 10, at(0));
        assert_eq!(["a", "a", "a", "b"].map(|key| keyed.take(key, at(0))), [true, true, false, true]);
    }

    #[test]
    fn a_flood_of_keys_shares_one_bucket_and_costs_no_memory() {
        let mut keyed = Keyed::new(RATE, 10, at(0));
        let allowed = (0..1000).filter(|key| keyed.take(*key, at(0))).count();
        assert_eq!((allowed, keyed.buckets.len()), (10 + 8, 10));
        assert!(keyed.take(5000, at(60_000)), "buckets at rest make room");
    }
}
