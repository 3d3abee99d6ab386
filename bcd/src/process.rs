//! Programs that are run, always with a deadline: a driver or a service that hangs never hangs the daemon.

use std::{
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use schema::command::Reason;

mod stream;

pub use stream::{Streamed, stream};

/// How much of a program's output is kept.
const MAX_OUTPUT: u64 = 8 * 1024 * 1024;
/// How long a child that was killed may take to end before it is left behind.
const DYING: Duration = Duration::from_millis(100);

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not there, or may not be run.
    #[error("{program} cannot be run")]
    Start {
        /// Which.
        program: String,
        /// What the system said.
        source: io::Error,
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

impl RunError {
    /// The stable word.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Start { .. } => Reason::PROGRAM_MISSING,
            Self::Deadline { .. } => Reason::PROGRAM_HUNG,
        }
    }
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
    let mut running = Running::start(program, args, deadline)?;
    let stdout = running.child.stdout.take();
    let stdout = match spawn(|| drain(stdout)) {
        Ok(stdout) => stdout,
        Err(source) => return Err(running.unread(source)),
    };
    let Ok(stdout) = stdout.recv_timeout(running.left()) else { return Err(running.late()) };
    let (success, stderr) = running.end()?;
    Ok(Output { success, stdout, stderr })
}

/// A program that runs until its deadline at most.
struct Running {
    name: String,
    child: Child,
    group: Pid,
    stderr: mpsc::Receiver<Vec<u8>>,
    /// Somebody waits for its end, and leaves it to be reaped here: until then nobody else has its number, and killing it
    /// means nobody else.
    ended: mpsc::Receiver<()>,
    begun: Instant,
    deadline: Duration,
}

impl Running {
    fn start(program: &Path, args: &[&str], deadline: Duration) -> Result<Self, RunError> {
        let name = program.display().to_string();
        let started = Command::new(program)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .and_then(|mut child| {
                let group = Pid::from_raw(child.id().cast_signed());
                let stderr = child.stderr.take();
                let watched = spawn(|| drain(stderr)).and_then(|stderr| Ok((stderr, spawn(move || wait(group))?)));
                let watched = watched.map(|(stderr, ended)| (child, group, stderr, ended));
                watched.inspect_err(|_| {
                    killpg(group, Signal::SIGKILL).ok();
                })
            });
        match started {
            Ok((child, group, stderr, ended)) => {
                Ok(Self { name, child, group, stderr, ended, begun: Instant::now(), deadline })
            }
            Err(source) => Err(RunError::Start { program: name, source }),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_sub(self.begun.elapsed())
    }

    fn kill(&mut self) {
        killpg(self.group, Signal::SIGKILL).ok();
        self.reap(DYING);
    }

    /// How it ended, if it does in time.
    fn reap(&mut self, limit: Duration) -> Option<ExitStatus> {
        self.ended.recv_timeout(limit).ok()?;
        self.child.try_wait().ok().flatten()
    }

    /// Kills it: its time is over.
    fn late(mut self) -> RunError {
        self.kill();
        RunError::Deadline { program: self.name, seconds: self.deadline.as_secs() }
    }

    /// Kills it: nobody can read what it says.
    fn unread(mut self, source: io::Error) -> RunError {
        self.kill();
        RunError::Start { program: self.name, source }
    }

    /// Waits for its end, once its output has ended: whether its exit code was zero, and what it complained.
    fn end(mut self) -> Result<(bool, String), RunError> {
        let Ok(stderr) = self.stderr.recv_timeout(self.left()) else { return Err(self.late()) };
        let left = self.left();
        match self.reap(left) {
            Some(status) => Ok((status.success(), String::from_utf8_lossy(&stderr).trim().to_owned())),
            None => Err(self.late()),
        }
    }
}

/// Does it on a thread of its own.
fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<mpsc::Receiver<T>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(work()).ok())?;
    Ok(receiver)
}

/// Waits until a child has ended, and does not reap it.
fn wait(child: Pid) {
    while waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
}

fn drain(pipe: Option<impl io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes).ok();
        io::copy(&mut pipe, &mut io::sink()).ok();
    }
    bytes
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
        let output = run(Path::new("sh"), &["-c", "echo out; echo err >&2; exit 3"], DEADLINE).expect("ran");
        assert_eq!((output.success, output.stdout.as_slice(), output.stderr.as_str()), (false, &b"out\n"[..], "err"));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let error = run(Path::new("sh"), &["-c", "sleep 600 & wait"], Duration::from_millis(50)).expect_err("hangs");
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    }

    #[test]
    fn a_program_that_closes_its_output_long_before_it_ends_is_waited_for() {
        let script = "exec >&- 2>&-; sleep 0.2; exit 3";
        let output = run(Path::new("sh"), &["-c", script], DEADLINE).expect("ran");
        assert!(!output.success);
        let script = "exec >&- 2>&-; sleep 600";
        let error = run(Path::new("sh"), &["-c", script], Duration::from_millis(50)).expect_err("hangs");
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_said() {
        let error = run(Path::new("/nowhere/tool"), &[], Duration::from_secs(1)).expect_err("missing");
        assert_eq!(error.to_string(), "/nowhere/tool cannot be run");
    }
}
