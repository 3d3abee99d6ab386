//! What was done to a described machine, as the machine itself keeps it: a line for each deed, in `var/lib/described/deeds`.
//!
//! Whoever wants to know what a command did reads it here, and not in what the daemon or the control plane says about it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One line of the file.
#[derive(Debug, Serialize)]
struct Deed<'a> {
    /// By the clock of the kernel that runs this, in milliseconds since it was started: no wrong time of day moves it.
    up: u64,
    did: &'a str,
    to: &'a str,
}

/// Keeps that something is done.
pub(super) fn keep(root: &Path, did: &str, to: &str) -> io::Result<()> {
    let up = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?).as_millis();
    let deed = Deed { up: u64::try_from(up).unwrap_or(u64::MAX), did, to };
    let path = root.join("var/lib/described/deeds");
    fs::create_dir_all(path.parent().expect("the file lies in a directory"))?;
    // One write: who is killed in it leaves a whole line or none.
    let line = format!("{}\n", serde_json::to_string(&deed)?);
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_kept_in_order_and_measured_by_a_clock_that_goes_on() {
        let root = tempfile::tempdir().expect("a temporary directory");
        keep(root.path(), "reboot", "new kernel").expect("kept");
        keep(root.path(), "reset", "GPU-\"1\"").expect("kept");
        let text = fs::read_to_string(root.path().join("var/lib/described/deeds")).expect("read");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((&lines[0]["did"], &lines[0]["to"]), (&"reboot".into(), &"new kernel".into()));
        assert_eq!((&lines[1]["did"], &lines[1]["to"]), (&"reset".into(), &"GPU-\"1\"".into()));
        assert!(lines[0]["up"].as_u64() <= lines[1]["up"].as_u64());
    }
}
