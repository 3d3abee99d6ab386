//! The time as the control plane proved it, measured on by a clock that never jumps.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use schema::{
    clock::{Clock, SharedClock},
    time::Timestamp,
};

/// The machine's clock until the time is proven, and the proven time from then on.
#[derive(Debug)]
pub struct NodeClock {
    machine: SharedClock,
    proven: Mutex<Option<(Timestamp, Instant)>>,
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

    /// From now on the time is this.
    pub fn prove(&self, time: Timestamp) {
        *self.proven.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
    }

    /// Whether the time is proven.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let proven = *self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        proven.map_or_else(
            || self.machine.now(),
            |(time, at)| time.saturating_add(at.elapsed()).unwrap_or(Timestamp::MAX),
        )
    }
}
