//! When to try again: doubling, with a limit, spread out so that a fleet does not come back as one.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(400);
const LONGEST: Duration = Duration::from_secs(60);

/// Counts failures.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after one more failure; `chance` is in 0..1.
    pub fn next(&mut self, chance: f64) -> Duration {
        let ceiling = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1).min(16);
        // At least a quarter: a gateway that is restarting is not hit at once by everybody.
        ceiling.mul_f64(0.25 + 0.75 * chance.clamp(0.0, 1.0))
    }

    /// Something succeeded.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_begin_anew_after_success() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..20).map(|_| backoff.next(1.0)).collect();
        assert_eq!(waits[0], FIRST);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[19], LONGEST);
        backoff.reset();
        assert!(backoff.next(0.0) < FIRST);
    }
}
