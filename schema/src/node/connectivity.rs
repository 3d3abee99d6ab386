//! The connectivity axis: whether the machine's session is there.
//!
//! ```text
//! any ── session opens ──▶ connected ── session closes ──▶ disconnected
//! connected, disconnected ── silent for 90 s ──▶ unreachable ── for the pool's grace ──▶ lost
//! any ── heard again in an open session ──▶ connected
//! ```
//!
//! The gateway writes what it sees of the session; only the liveness controller judges silence.

use super::words;
use crate::time::{Duration, Timestamp};

/// How long a machine may be silent before it is unreachable.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(90);

/// How long an unreachable machine may stay so before it is lost, when its pool does not say.
pub const DEFAULT_LOST_GRACE: Duration = Duration::from_secs(15 * 60);

words! {
    /// Whether the machine's session is there.
    Connectivity {
        /// A session is open.
        Connected = "connected",
        /// The session closed a moment ago, or none was ever open.
        Disconnected = "disconnected",
        /// Silent for 90 seconds.
        Unreachable = "unreachable",
        /// Unreachable for longer than its pool's grace.
        Lost = "lost",
    }
}

/// What is known of a machine's latest session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When the machine was last heard.
    pub at: Timestamp,
    /// The session is open.
    pub open: bool,
}

impl Connectivity {
    /// The state after silence is judged at `now`.
    ///
    /// `seen` is when the machine was last heard and whether its session is open; `None` when it never had one, and then
    /// `since` (when the axis last changed) counts. A clock that went backwards is no silence. The store judges by a twin
    /// of this in SQL.
    #[must_use]
    pub fn judge(self, seen: Option<Seen>, since: Timestamp, grace: Duration, now: Timestamp) -> Self {
        let silent = Duration::between(seen.map_or(since, |seen| seen.at), now);
        match self {
            _ if seen.is_some_and(|seen| seen.open) && silent < UNREACHABLE_AFTER => Self::Connected,
            Self::Lost => Self::Lost,
            _ if silent >= Duration::from_secs(UNREACHABLE_AFTER.as_secs().saturating_add(grace.as_secs())) => {
                Self::Lost
            }
            Self::Unreachable => Self::Unreachable,
            _ if silent >= UNREACHABLE_AFTER => Self::Unreachable,
            Self::Connected => Self::Connected,
            Self::Disconnected => Self::Disconnected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Seen = Seen { at: Timestamp::constant(1000, 0), open: false };
    const OPEN: Seen = Seen { open: true, ..CLOSED };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn silence_leads_to_unreachable_and_then_to_lost() {
        let grace = Duration::from_secs(60);
        let judged = |state: Connectivity, now| state.judge(Some(CLOSED), at(0), grace, at(now));
        assert_eq!(judged(Connectivity::Connected, 1089), Connectivity::Connected);
        assert_eq!(judged(Connectivity::Connected, 1090), Connectivity::Unreachable);
        assert_eq!(judged(Connectivity::Disconnected, 1149), Connectivity::Unreachable);
        assert_eq!(judged(Connectivity::Unreachable, 1150), Connectivity::Lost);
    }

    #[test]
    fn lost_stays_lost_until_a_session_opens() {
        assert_eq!(Connectivity::Lost.judge(Some(CLOSED), at(0), Duration::ZERO, at(1000)), Connectivity::Lost);
    }

    #[test]
    fn an_open_session_that_is_heard_connects_from_anywhere() {
        for state in Connectivity::ALL {
            assert_eq!(state.judge(Some(OPEN), at(0), Duration::ZERO, at(1089)), Connectivity::Connected);
            assert_ne!(state.judge(Some(OPEN), at(0), Duration::ZERO, at(1090)), Connectivity::Connected);
        }
    }

    #[test]
    fn a_clock_that_goes_backwards_changes_nothing() {
        for state in Connectivity::ALL {
            assert_eq!(state.judge(Some(CLOSED), at(0), Duration::ZERO, at(10)), *state);
        }
    }
}
