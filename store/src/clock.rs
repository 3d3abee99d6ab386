//! The clock of a process that works on a database: the database's own.
//!
//! Leases, deadlines and windows are judged by `compute_now()`. What a process signs and dates (server time, certificates) has
//! to be of the same time, so it asks the database from time to time and measures on with a clock of its machine that never
//! jumps and goes on in sleep. The host's clock is compared with it, and told when it says something else; nothing goes by it.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use schema::{
    clock::{Clock, SharedClock},
    time::{self, Timestamp},
};

use crate::{Db, DbError};

/// A host's clock that is further off than this is worth a word.
const TOO_FAR: Duration = Duration::from_secs(60);

/// The database's clock, as far as this process knows it.
#[derive(Debug)]
pub struct DatabaseClock {
    host: SharedClock,
    /// The database's time when the measuring clock showed nothing, in nanoseconds.
    zero: Mutex<i128>,
}

impl DatabaseClock {
    /// Asks a database for the first time. `host` is the clock of this machine.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn ask(db: &Db, host: SharedClock) -> Result<Self, DbError> {
        Ok(Self { host, zero: Mutex::new(Answer::of(db).await?.middle()) })
    }

    /// Asks again, and follows.
    ///
    /// # Errors
    /// When the database does not answer; what is known is measured on.
    pub async fn follow(&self, db: &Db) -> Result<(), DbError> {
        let answer = Answer::of(db).await?;
        let mut zero = self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        *zero = answer.closest(*zero);
        Ok(())
    }

    /// How far the host's clock is from the database's, in milliseconds; positive when it is ahead.
    #[must_use]
    pub fn host_is_off(&self) -> i64 {
        i64::try_from(self.host.now().duration_since(self.now()).as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let zero = *self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        let now = zero.saturating_add(nanoseconds(measured()));
        let most = Timestamp::MAX.as_nanosecond();
        Timestamp::from_nanosecond(now.clamp(-most, most)).unwrap_or(Timestamp::MAX)
    }
}

/// What the database said, between two moments of the measuring clock: it looked at its own in between.
#[derive(Debug, Clone, Copy)]
struct Answer {
    said: Timestamp,
    before: Duration,
    after: Duration,
}

impl Answer {
    async fn of(db: &Db) -> Result<Self, DbError> {
        // Waiting for a connection is no part of it.
        let mut connection = db.pool().acquire().await?;
        let before = measured();
        let said = sqlx::query_scalar!(r#"SELECT compute_now() AS "now!""#).fetch_one(&mut *connection).await?;
        Ok(Self { said: said.to_jiff(), before, after: measured() })
    }

    fn bounds(self) -> (i128, i128) {
        let said = self.said.as_nanosecond();
        (said - nanoseconds(self.after), said - nanoseconds(self.before))
    }

    fn middle(self) -> i128 {
        let (first, last) = self.bounds();
        first.midpoint(last)
    }

    /// What was known, as long as the answer allows it: a slow answer does not undo a quick one.
    fn closest(self, known: i128) -> i128 {
        let (first, last) = self.bounds();
        known.clamp(first, last)
    }
}

/// How long the machine is up, sleep included.
fn measured() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).expect("the kernel measures")
}

fn nanoseconds(of: Duration) -> i128 {
    i128::try_from(of.as_nanos()).unwrap_or(i128::MAX)
}

/// A host whose clock is apart from the database's by more than counts as none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Apart {
    milliseconds: i64,
}

impl Apart {
    /// The stable word.
    pub const CODE: &'static str = "clock-apart";

    /// What so many milliseconds are; `None` when they are few.
    #[must_use]
    pub fn of(milliseconds: i64) -> Option<Self> {
        (u128::from(milliseconds.unsigned_abs()) >= TOO_FAR.as_millis()).then_some(Self { milliseconds })
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let far = time::Duration::from_secs(self.milliseconds.unsigned_abs().saturating_add(500) / 1_000);
        let way = if self.milliseconds < 0 { "behind" } else { "ahead of" };
        write!(
            f,
            "the clock of its host is {far} {way} PostgreSQL's; everything goes by PostgreSQL's, and one of the two is wrong"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    fn answer(said: i64, before: u64, after: u64) -> Answer {
        let said = Timestamp::from_second(said).expect("a time");
        Answer { said, before: Duration::from_secs(before), after: Duration::from_secs(after) }
    }

    #[test]
    fn a_slow_answer_undoes_no_quick_one_and_a_clock_that_was_set_is_followed() {
        let known = answer(1_000, 100, 102).middle();
        assert_eq!(known, 899 * SECOND);
        // It was asked for a minute, and says nothing that is not known better.
        let slow = answer(1_040, 110, 170);
        assert_eq!(slow.closest(known), known);
        // What lies outside of an answer is wrong, however slow that was.
        assert_eq!(answer(5_000, 110, 170).closest(known), 4_830 * SECOND);
        assert_eq!(answer(1_000, 2_000, 2_001).closest(known), -SECOND * 1_000);
        // A quick one narrows what a slow one left open.
        let first = answer(1_000, 0, 100).middle();
        assert_eq!((first, answer(1_110, 110, 110).closest(first)), (950 * SECOND, 1_000 * SECOND));
    }

    #[test]
    fn a_host_is_apart_from_a_minute_on() {
        let said = |milliseconds| Apart::of(milliseconds).map(|apart| apart.to_string());
        assert_eq!((said(59_999), said(-59_999), said(0)), (None, None, None));
        let tail = "PostgreSQL's; everything goes by PostgreSQL's, and one of the two is wrong";
        assert_eq!(said(60_000), Some(format!("the clock of its host is 1m ahead of {tail}")));
        assert_eq!(said(-1_200_400), Some(format!("the clock of its host is 20m behind {tail}")));
        assert!(said(i64::MIN).is_some());
    }
}
