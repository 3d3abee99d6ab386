//! Times and durations as types.
//!
//! [`Timestamp`] is an instant, and [`Moment`] how people read one; a [`Duration`] is a length that people write as `10m` and
//! machines count in seconds.

use std::{fmt, str::FromStr};

pub use jiff::Timestamp;

/// An instant as people read it: `2026-12-19 16:00Z`, with its seconds where there are any. Programs get the [`Timestamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.0.as_second() % 60 == 0 { "%Y-%m-%d %H:%MZ" } else { "%Y-%m-%d %H:%M:%SZ" };
        write!(f, "{}", self.0.strftime(form))
    }
}

/// A length of time in whole seconds, written `90s`, `10m`, `24h`, `7d` or a sum such as `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 90s, 10m, 24h, 7d or 1h30m")]
pub struct ParseDurationError(pub String);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A length in seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The length in seconds.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    /// The same length for timers.
    #[must_use]
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_secs(self.0)
    }

    /// The instant this long after `from`, or the last representable one.
    #[must_use]
    pub fn after(self, from: Timestamp) -> Timestamp {
        from.saturating_add(self.to_std()).unwrap_or(Timestamp::MAX)
    }

    /// How long `later` is after `earlier`; zero when it is not.
    #[must_use]
    pub fn between(earlier: Timestamp, later: Timestamp) -> Self {
        Self(u64::try_from(later.as_second().saturating_sub(earlier.as_second())).unwrap_or(0))
    }
}

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseDurationError(text.chars().take(80).collect());
        let (mut total, mut number, mut last_unit) = (0_u64, None::<u64>, u64::MAX);
        for letter in text.chars() {
            if let Some(digit) = letter.to_digit(10) {
                let sum = number.unwrap_or(0).checked_mul(10).and_then(|n| n.checked_add(u64::from(digit)));
                number = Some(sum.ok_or_else(refuse)?);
                continue;
            }
            let (_, unit) = UNITS.iter().find(|(name, _)| *name == letter).ok_or_else(refuse)?;
            if *unit >= last_unit {
                return Err(refuse());
            }
            let length = number.take().and_then(|n| n.checked_mul(*unit)).ok_or_else(refuse)?;
            total = total.checked_add(length).ok_or_else(refuse)?;
            last_unit = *unit;
        }
        if number.is_some() || last_unit == u64::MAX || total > 100 * 365 * 86_400 {
            return Err(refuse());
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut text = String::new();
        for (name, unit) in UNITS {
            if rest >= unit {
                text.push_str(&(rest / unit).to_string());
                text.push(name);
                rest %= unit;
            }
        }
        f.pad(if text.is_empty() { "0s" } else { &text })
    }
}

crate::as_text!(Duration = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_no_more_digits_than_people_read() {
        for (at, read) in [
            ("2026-11-30T01:03:06.066095955Z", "2026-11-30 01:03:06Z"),
            ("2026-12-19T16:00:00.5Z", "2026-12-19 16:00Z"),
        ] {
            assert_eq!(Moment(at.parse().expect(at)).to_string(), read);
        }
    }

    #[test]
    fn durations_read_and_print() {
        for (text, seconds, printed) in [
            ("10m", 600, "10m"),
            ("90s", 90, "1m30s"),
            ("24h", 86_400, "1d"),
            ("0s", 0, "0s"),
            ("1h30m", 5_400, "1h30m"),
        ] {
            let duration: Duration = text.parse().expect(text);
            assert_eq!((duration.as_secs(), duration.to_string().as_str()), (seconds, printed));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "10", "m", "10 m", "1m1h", "1m1m", "-1s", "1.5h", "99999999999999999999s", "40000d"] {
            assert!(text.parse::<Duration>().is_err(), "{text}");
        }
    }
}
