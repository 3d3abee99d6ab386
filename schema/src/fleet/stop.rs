//! [`Stop`]: how whoever waits for a tree says that nobody waits for it any more. This module has no clock and no
//! threads of its own to end; it asks now and then.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether reading a tree is to stop: asked before every file and every machine that is rendered, so it should cost
/// little. Once it said yes it is not asked again.
pub struct Stop<'a> {
    asked: &'a (dyn Fn() -> bool + Sync),
    said: AtomicBool,
}

/// Reading a tree was stopped: nothing is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading the tree was stopped")]
pub struct Stopped;

impl<'a> Stop<'a> {
    /// Stops when `asked` says so.
    #[must_use]
    pub const fn when(asked: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { asked, said: AtomicBool::new(false) }
    }

    /// Reads to the end.
    #[must_use]
    pub const fn never() -> Self {
        Self::when(&|| false)
    }

    /// Whether to stop.
    pub(super) fn is_said(&self) -> bool {
        let said = self.said.load(Ordering::Relaxed) || (self.asked)();
        if said {
            self.said.store(true, Ordering::Relaxed);
        }
        said
    }
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("said", &self.said).finish_non_exhaustive()
    }
}
