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
pub fn until_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, look).unwrap_or_else(|| panic!("waited {}s in vain until {what}", DEADLINE.as_secs()))
}

/// How long a look is waited after at least, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(300));

/// Looks again and again until there is something; `None` when there is nothing for so long. Other processes tell nobody. A pause
/// is as long as the look was: whoever looks by a program of its own leaves half of its core to what it waits for.
pub(crate) fn within<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let looked = Instant::now();
        let found = look();
        if found.is_some() || begin.elapsed() > time {
            return found;
        }
        thread::sleep(looked.elapsed().clamp(PAUSE.0, PAUSE.1));
    }
}
