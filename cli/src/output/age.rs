//! Ages as people say them: `4s`, `12m`, `3h`, `2d`.

use schema::time::{Duration, Timestamp};

/// The time between two moments in its largest whole unit.
#[must_use]
pub fn short(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The length, up to the next whole unit in which it is said.
const fn up(duration: Duration) -> Duration {
    let seconds = duration.as_secs();
    let unit = match seconds {
        0..120 => 1,
        120..7_200 => 60,
        7_200..172_800 => 3_600,
        _ => 86_400,
    };
    Duration::from_secs(seconds.div_ceil(unit) * unit)
}

/// How long ago `then` was, or in how long it will be.
#[must_use]
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    if then > now {
        // What ends in 23 hours and 59 minutes ends in a day.
        format!("in {}", short(up(Duration::between(now, then))))
    } else {
        format!("{} ago", short(Duration::between(then, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_use_the_largest_whole_unit() {
        let shown: Vec<String> =
            [0, 59, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|n| short(Duration::from_secs(n))).into();
        assert_eq!(shown, ["0s", "59s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }

    #[test]
    fn the_future_is_said_as_such() {
        let now = Timestamp::UNIX_EPOCH;
        for (seconds, said) in [(300, "in 5m"), (299, "in 5m"), (86_399, "in 24h"), (86_400 * 7 - 1, "in 7d")] {
            assert_eq!(ago(Duration::from_secs(seconds).after(now), now), said);
        }
    }
}
