//! What is left of a server whose parent, or whose first process, was killed. Nothing else starts while it is there: the
//! directory is still open in it.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long processes may take to notice by themselves that they are on their own.
const NOTICE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// Waits for a server that is still there although its parent is gone (the lock is ours), and stops it when it does not
/// stop by itself.
pub(super) fn end_orphan(data: &Path) {
    let running = || -> Option<Pid> {
        let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid: i32 = text.lines().next()?.trim().parse().ok()?;
        // The number may belong to another process by now.
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let ours = command.split(|byte| *byte == 0).any(|argument| argument == data.as_os_str().as_encoded_bytes());
        ours.then(|| Pid::from_raw(pid))
    };
    for (signal, patience) in
        [(None, 2), (Some(Signal::SIGINT), 10), (Some(Signal::SIGQUIT), 5), (Some(Signal::SIGKILL), 2)]
    {
        let Some(pid) = running() else { break };
        if let Some(signal) = signal {
            tracing::warn!(%pid, %signal, "stopping the postgresql of a parent that is gone");
            // It may end between the look and the signal.
            let _gone = kill(pid, signal);
        }
        let until = Instant::now() + Duration::from_secs(patience);
        while running().is_some() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
    end_rest(data);
}

/// Ends the processes of a server whose first process is gone. One that is frozen, or waits for a slow disk, does not notice
/// that by itself; its work is lost already, and recovery begins where the log ends.
pub(super) fn end_rest(data: &Path) {
    let mut until = Instant::now() + NOTICE;
    let mut told = false;
    loop {
        let rest = of(data);
        if rest.is_empty() {
            return;
        }
        if Instant::now() >= until {
            if told {
                tracing::warn!(?rest, "processes of a postgresql that ended do not go away");
                return;
            }
            for pid in rest {
                tracing::warn!(%pid, "stopping a process that its postgresql left behind");
                // It may end between the look and the signal.
                let _gone = kill(pid, Signal::SIGKILL);
            }
            (told, until) = (true, Instant::now() + NOTICE);
        }
        std::thread::sleep(LOOK);
    }
}

/// The processes of a server: they work in its data directory and have its name.
fn of(data: &Path) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let named = fs::read_to_string(entry.path().join("comm")).ok()?.trim() == "postgres";
            (named && fs::read_link(entry.path().join("cwd")).ok()? == data).then(|| Pid::from_raw(pid))
        })
        .collect()
}
