//! A time of day of their own for processes under test, that may jump while they run.
//!
//! libfaketime does it. What measures time (the monotonic clocks, and the one that goes on in sleep) stays as it is, as on
//! a machine whose clock somebody sets.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use schema::{
    clock::{Clock as _, SystemClock},
    time::Timestamp,
};

use crate::World;

/// What a process needs to see a time of its own.
#[derive(Debug, Clone)]
pub struct Time {
    file: PathBuf,
    library: PathBuf,
}

impl Time {
    /// The right time, to begin with; `None`, and a word about it, where libfaketime is not installed.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    pub fn new(world: &World, name: &str) -> Option<Self> {
        let Some(library) = library() else {
            println!("skipped: libfaketime is not installed; scripts/setup.sh installs it");
            return None;
        };
        let time = Self { file: world.path(format!("{name}.time")), library };
        time.be_off(0);
        Some(time)
    }

    /// Makes the clock wrong by so many seconds from now on.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn be_off(&self, seconds: i64) {
        let fresh = self.file.with_extension("fresh");
        fs::write(&fresh, format!("{seconds:+}\n")).expect("written");
        fs::rename(&fresh, &self.file).expect("renamed");
    }

    /// Makes the clock say this now; from there it goes on.
    ///
    /// # Panics
    /// When it is no time.
    pub fn be(&self, time: &str) {
        let time: Timestamp = time.parse().expect("a time");
        self.be_off(time.as_second() - SystemClock.now().as_second());
    }

    /// Puts a command under it.
    pub fn over(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            // What lies on the disk was written when it was written.
            .env("NO_FAKE_STAT", "1");
    }
}

fn library() -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].iter().map(PathBuf::from).collect();
    dirs.extend(fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path()));
    // The one for programs with threads.
    dirs.iter().map(|dir| dir.join("faketime/libfaketimeMT.so.1")).find(|path| path.is_file())
}

/// Whether a command was put under a time of its own.
pub(crate) fn is_over(command: &Command) -> bool {
    command.get_envs().any(|(key, value)| key == "LD_PRELOAD" && value.is_some())
}

/// Removes what the library leaves in memory for a process that was killed.
pub(crate) fn forget(pid: nix::unistd::Pid) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        fs::remove_file(Path::new("/dev/shm").join(name)).ok();
    }
}
