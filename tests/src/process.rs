//! Processes under test: in a group of their own, with their words in a file, gone when their owner is.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::time;

/// Where the binaries under test are: beside the test binary, or where `BETTER_COMPUTE_BIN_DIR` says.
///
/// # Panics
/// When the binary was not built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let dir = std::env::var_os("BETTER_COMPUTE_BIN_DIR").map_or_else(
        || {
            let test = std::env::current_exe().expect("the path of this test");
            test.parent().and_then(Path::parent).expect("target/debug/deps/it").to_owned()
        },
        PathBuf::from,
    );
    let path = dir.join(name);
    assert!(path.is_file(), "{} is not there: cargo build --workspace --bins", path.display());
    path
}

/// A command of ours that sees nothing of the environment that could lead it astray.
#[must_use]
pub fn command(name: &str) -> Command {
    let mut command = Command::new(binary(name));
    for (key, _) in std::env::vars_os() {
        let text = key.to_string_lossy();
        if text.starts_with("BETTER_COMPUTE_")
            || text.starts_with("BCD_")
            || text.starts_with("GIT_")
            || text == "DATABASE_URL"
        {
            command.env_remove(&key);
        }
    }
    if let Some(bindir) = std::env::var_os("BETTER_COMPUTE_PG_BINDIR") {
        command.env("BETTER_COMPUTE_PG_BINDIR", bindir);
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// A process that runs in the background.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
    /// It has a time of its own.
    timed: bool,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command; what it says goes to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log file");
        command.process_group(0).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let timed = time::is_over(&command);
        let child = command.spawn().unwrap_or_else(|error| unreachable!("{name} does not start: {error}"));
        Self { child, name: name.to_owned(), log: log.to_owned(), timed, ended: None }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    /// Everything it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be waited for");
            if self.ended.is_some() && self.timed {
                time::forget(self.pid());
            }
        }
        self.ended
    }

    /// Sends a signal to it alone.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).ok();
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    /// When it does not.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Kills it the hard way, and waits until it is gone.
    ///
    /// # Panics
    /// When it does not go.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::SIGKILL);
        self.wait()
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        crate::wait::until_some(&format!("{name} ends"), || self.ended())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln_tail(&self.name, &lines);
        }
        if self.ended().is_some() {
            return;
        }
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        if crate::wait::within(Duration::from_secs(15), || self.ended()).is_none() {
            self.signal(Signal::SIGKILL);
            self.child.wait().ok();
            self.ended();
        }
    }
}

#[expect(clippy::print_stderr, reason = "a failed test shows what its processes said")]
fn eprintln_tail(name: &str, lines: &[&str]) {
    let from = lines.len().saturating_sub(80);
    eprintln!("--- the last words of {name} ---\n{}\n---", lines[from..].join("\n"));
}

/// A process id as the kernel's calls want it.
///
/// # Panics
/// When the number is none.
#[must_use]
pub fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a process id"))
}

/// Whether a process exists and is no zombie.
#[must_use]
pub fn is_alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// Every process whose command line mentions a text.
#[must_use]
pub fn mentioning(text: &str) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
        if line.contains(text) && is_alive(Pid::from_raw(number)) {
            found.push((Pid::from_raw(number), line));
        }
    }
    found
}

/// Runs a command to its end and answers its code and its words.
///
/// # Panics
/// When it cannot be started.
pub fn output(mut command: Command) -> (i32, String, String) {
    let program = command.get_program().to_owned();
    let done =
        command.output().unwrap_or_else(|error| unreachable!("{} does not start: {error}", OsStr::display(&program)));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
}
