//! A power cut at the n-th change: everything from there on fails, clean-up included.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

/// Counts down to the cut; zero: no cut is planned.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    left: AtomicU32,
    tripped: AtomicU32,
}

impl Fault {
    /// The `n`-th point from now (counted from 1) and all after it fail.
    pub(crate) fn cut_at(&self, n: u32) {
        self.left.store(n, Ordering::SeqCst);
        self.tripped.store(0, Ordering::SeqCst);
    }

    pub(crate) fn tripped(&self) -> bool {
        self.tripped.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn point(&self) -> io::Result<()> {
        if self.tripped() {
            return Err(io::Error::other("the power is off"));
        }
        match self.left.load(Ordering::SeqCst) {
            0 => Ok(()),
            1 => {
                self.tripped.store(1, Ordering::SeqCst);
                Err(io::Error::other("the power went off"))
            }
            n => {
                self.left.store(n - 1, Ordering::SeqCst);
                Ok(())
            }
        }
    }
}
