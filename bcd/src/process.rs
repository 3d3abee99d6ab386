//! Programs that are run, always with a deadline: a driver or a service that hangs never hangs the daemon.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

mod stream;

pub use stream::{Streamed, stream};

/// How much of a program's output is kept.
const MAX_OUTPUT: u64 = 8 * 1024 * 1024;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not there, or may not be run.
    #[error("{program} cannot be run")]
    Start {
        /// Which.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{program} gave no answer within {seconds} s")]
    Deadline {
        /// Which.
        program: String,
        /// The deadline.
        seconds: u64,
    },
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether its exit code was zero.
    pub success: bool,
    /// What it wrote, cut at a limit.
    pub stdout: Vec<u8>,
    /// What it complained.
    pub stderr: String,
}

/// Runs a program in a process group of its own and kills the group at the deadline. A child that cannot even be killed,
/// as one that hangs in a driver, is left behind.
///
/// # Errors
/// When it cannot be started or does not end.
pub fn run(program: &Path, args: &[&str], deadline: Duration) -> Result<Output, RunError> {
    let name = program.display().to_string();
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|source| RunError::Start { program: name.clone(), source })?;
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());

    let begun = Instant::now();
    let left = || deadline.saturating_sub(begun.elapsed());
    let late = || RunError::Deadline { program: name.clone(), seconds: deadline.as_secs() };
    let Ok(out) = stdout.recv_timeout(left()) else {
        kill(&mut child);
        return Err(late());
    };
    let Ok(err) = stderr.recv_timeout(left()) else {
        kill(&mut child);
        return Err(late());
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let stderr = String::from_utf8_lossy(&err).trim().to_owned();
                return Ok(Output { success: status.success(), stdout: out, stderr });
            }
            Ok(None) if !left().is_zero() => thread::sleep(Duration::from_millis(5)),
            _ => {
                kill(&mut child);
                return Err(late());
            }
        }
    }
}

fn drain(pipe: Option<impl std::io::Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes).ok();
            std::io::copy(&mut pipe, &mut std::io::sink()).ok();
        }
        sender.send(bytes).ok();
    });
    receiver
}

fn kill(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
    for _ in 0..20 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The programs of the host that is worked on.
pub trait Runner: Send + Sync + std::fmt::Debug {
    /// Whether systemd runs here.
    fn is_systemd(&self) -> bool;

    /// Whether a unit runs; `None` when nobody can say.
    fn is_active(&self, unit: &str) -> Option<bool>;

    /// Runs a program.
    ///
    /// # Errors
    /// With what it complained, for people.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), String>;
}

/// A directory that stands for a root: no program of its own can be run.
#[derive(Debug, Clone, Copy)]
pub struct Staged;

impl Runner for Staged {
    fn is_systemd(&self) -> bool {
        false
    }

    fn is_active(&self, _: &str) -> Option<bool> {
        None
    }

    fn run(&self, program: &str, _: &[&str]) -> Result<(), String> {
        Err(format!("{program} is not run for a directory that stands for a root"))
    }
}

/// This machine's own programs.
#[derive(Debug, Clone, Copy)]
pub struct Live;

const DEADLINE: Duration = Duration::from_secs(90);

impl Runner for Live {
    fn is_systemd(&self) -> bool {
        Path::new("/run/systemd/system").is_dir()
    }

    fn is_active(&self, unit: &str) -> Option<bool> {
        let args = ["show", "--property=ActiveState", "--value", "--", unit];
        let output = run(Path::new("systemctl"), &args, DEADLINE).ok().filter(|output| output.success)?;
        let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Some(matches!(state.as_str(), "active" | "activating" | "reloading"))
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        match run(Path::new(program), args, DEADLINE) {
            Ok(output) if output.success => Ok(()),
            Ok(output) => Err(format!("{program} {}: {}", args.join(" "), output.stderr)),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_code_are_kept() {
        let output =
            run(Path::new("sh"), &["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(20)).expect("ran");
        assert_eq!((output.success, output.stdout.as_slice(), output.stderr.as_str()), (false, &b"out\n"[..], "err"));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let error = run(Path::new("sh"), &["-c", "sleep 600 & wait"], Duration::from_millis(50)).expect_err("hangs");
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_said() {
        let error = run(Path::new("/nowhere/tool"), &[], Duration::from_secs(1)).expect_err("missing");
        assert_eq!(error.to_string(), "/nowhere/tool cannot be run");
    }
}
