//! The time as the control plane proved it, measured on by a clock that never jumps and goes on while the machine sleeps.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};

use schema::{
    clock::{Clock, SharedClock},
    time::Timestamp,
};

use crate::{command::quorum::Clocks, session::Proven};

/// The machine's clock until the time is proven, and the proven time from then on.
#[derive(Debug)]
pub struct NodeClock {
    machine: SharedClock,
    proven: Mutex<Option<(Proven, Duration)>>,
}

impl NodeClock {
    /// A clock over the machine's.
    #[must_use]
    pub const fn new(machine: SharedClock) -> Self {
        Self { machine, proven: Mutex::new(None) }
    }

    /// What the machine's clock says.
    #[must_use]
    pub fn machine(&self) -> Timestamp {
        self.machine.now()
    }

    /// The time is this at least. It never runs backwards, and leaps ahead on the session's word only.
    pub fn prove(&self, time: Timestamp) {
        let measured = measured();
        let at_least = |known: Proven| {
            if known.leaps_to(Proven::signed(time, Duration::ZERO)) {
                tracing::warn!("the time {time} is more than a day ahead and not believed");
                return known;
            }
            let behind = time.duration_since(known.at_least()).max(jiff::SignedDuration::ZERO).unsigned_abs();
            // Both bounds move: how old the signed time was is not known here.
            known.after(behind)
        };
        self.change(measured, |known| known.map_or_else(|| Proven::signed(time, Duration::ZERO), at_least));
    }

    /// The time is between these bounds, as the session believes them.
    pub fn prove_between(&self, proven: Proven) {
        // The session takes a time back only when two words contradict the one that it rests on.
        let both = |known: Proven| if known.contradicts(proven) { proven } else { known.and(proven) };
        self.change(measured(), |known| known.map_or(proven, both));
    }

    fn change(&self, measured: Duration, change: impl FnOnce(Option<Proven>) -> Proven) {
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        let known = proven.map(|(known, at)| known.after(measured.saturating_sub(at)));
        *proven = Some((change(known), measured));
    }

    /// The proven time; `None` before it is proven. Nothing that is too late is in time by it.
    #[must_use]
    pub fn proven(&self) -> Option<Timestamp> {
        let proven = *self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        proven.map(|(known, at)| known.after(measured().saturating_sub(at)).at_most())
    }

    /// Both: the proven time, and what the machine's clock says.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        Clocks { now: self.now(), wall: self.machine() }
    }

    /// Whether the time is proven.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proven().is_some()
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        self.proven().unwrap_or_else(|| self.machine.now())
    }
}

/// How long the machine is up, sleep included.
fn measured() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).expect("the kernel measures")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schema::clock::ManualClock;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_proven_time_stays_whatever_the_machines_clock_does() {
        let proven = at("2026-03-01T12:00:00Z");
        for wrong in ["1970-01-01T00:00:00Z", "2011-01-01T00:00:00Z", "2026-03-01T11:50:00Z", "2026-03-01T12:10:00Z"] {
            let machine = ManualClock::new(at(wrong));
            let clock = NodeClock::new(Arc::new(machine.clone()));
            assert_eq!((clock.proven(), clock.now()), (None, at(wrong)));
            clock.prove(proven);
            for jump in ["1970-01-01T00:00:00Z", "2038-01-19T03:14:07Z", wrong] {
                machine.set(at(jump));
                let since = clock.now().duration_since(proven);
                assert!(since.as_secs() < 3600 && !since.is_negative(), "{wrong}, then {jump}: {since}");
            }
        }
    }

    #[test]
    fn a_proven_time_never_runs_backwards() {
        let clock = NodeClock::new(Arc::new(ManualClock::new(at("2026-03-01T12:00:00Z"))));
        clock.prove(at("2026-03-01T12:00:00Z"));
        clock.prove(at("2026-03-01T11:00:00Z"));
        assert!(clock.now() >= at("2026-03-01T12:00:00Z"));
        clock.prove(at("2026-03-01T13:00:00Z"));
        assert!(clock.now() >= at("2026-03-01T13:00:00Z"));
        clock.prove(at("2036-03-01T13:00:00Z"));
        assert!(clock.now() < at("2026-03-01T14:00:00Z"), "one word is not enough");
        // The session has two, and takes back what rested on one.
        clock.prove_between(Proven::signed(at("2026-02-20T12:00:00Z"), Duration::ZERO));
        assert!(clock.now() < at("2026-02-20T13:00:00Z"));
    }
}
