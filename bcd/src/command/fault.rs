//! Where a test kills the daemon or fills its disk: at every write of the journal, before and after. Nothing of it is in
//! a release.

#[cfg(debug_assertions)]
mod points {
    use std::sync::LazyLock;

    use nix::sys::signal::{Signal, raise};

    /// `before:STEP` or `after:STEP`: the process kills itself there.
    static KILL: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("BCD_KILL_AT").ok());
    /// While this file is there, the journal's disk is full.
    static FULL: LazyLock<Option<std::path::PathBuf>> =
        LazyLock::new(|| std::env::var_os("BCD_DISK_FULL_WHILE").map(Into::into));

    fn die_at(side: &str, step: &str) {
        if KILL.as_deref().and_then(|at| at.strip_prefix(side)).is_some_and(|at| at == step) {
            raise(Signal::SIGKILL).ok();
        }
    }

    pub(in crate::command) fn before(step: &str) {
        die_at("before:", step);
    }

    pub(in crate::command) fn after(step: &str) {
        die_at("after:", step);
    }

    pub(in crate::command) fn disk() -> Result<(), redb::StorageError> {
        if FULL.as_ref().is_some_and(|path| path.exists()) {
            return Err(redb::StorageError::Io(std::io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }
}

#[cfg(not(debug_assertions))]
mod points {
    pub(in crate::command) const fn before(_: &str) {}

    pub(in crate::command) const fn after(_: &str) {}

    #[expect(clippy::unnecessary_wraps, reason = "the same shape as in a build with faults")]
    pub(in crate::command) const fn disk() -> Result<(), redb::StorageError> {
        Ok(())
    }
}

pub(super) use points::{after, before, disk};
