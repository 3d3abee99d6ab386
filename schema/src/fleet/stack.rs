//! Work on a stack of a known size.
//!
//! The parsers of KDL and of templates recurse with their input, and a stack that overflows ends the process. So they run
//! on threads of their own, whose stacks are as large as the input can make them need; memory that is not touched costs
//! nothing.

use std::{
    panic::{self, AssertUnwindSafe},
    thread,
};

/// Does work on a stack of `bytes`. `None` when the system has no room for it, or the work panicked.
pub(super) fn on<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("fleet".to_owned()).stack_size(bytes);
        let thread = builder.spawn_scoped(scope, || panic::catch_unwind(AssertUnwindSafe(work)));
        thread.ok()?.join().ok()?.ok()
    })
}
