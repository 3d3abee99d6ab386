//! Waiting for a condition, never for a time.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a condition may take on a busy machine before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// Looks again and again until the condition holds.
///
/// # Panics
/// When the deadline has passed.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_some(what, || holds().then_some(()));
}

/// Looks again and again until there is something.
///
/// # Panics
/// When the deadline has passed.
#[track_caller]
#[expect(clippy::panic, reason = "a test that waits in vain has failed")]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        if begin.elapsed() > DEADLINE {
            panic!("waited {}s in vain until {what}", DEADLINE.as_secs());
        }
        thread::sleep(Duration::from_millis(30));
    }
}
