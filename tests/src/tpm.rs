//! A TPM of its own: `swtpm` on a socket, asked through tpm2-tools as `bcd` asks a real one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{World, process::Process, until};

/// A software TPM that runs.
#[derive(Debug)]
pub struct Tpm {
    _process: Process,
    dir: PathBuf,
}

impl Tpm {
    /// Starts one; `None`, said on standard output, where its programs are not installed.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    pub fn start(world: &World, name: &str) -> Option<Self> {
        let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !there("swtpm") || !there("tpm2_createek") {
            println!("skipped: swtpm and tpm2-tools are not installed; scripts/setup.sh installs them");
            return None;
        }
        let dir = world.path(name);
        std::fs::create_dir_all(dir.join("state")).expect("a directory");
        let mut command = Command::new("swtpm");
        let unix = |name: &str| format!("type=unixio,path={}", dir.join(name).display());
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear", "--tpmstate"]);
        command.arg(format!("dir={}", dir.join("state").display()));
        command.args(["--server", &unix("socket"), "--ctrl", &unix("socket.ctrl")]);
        let tpm = Self { _process: Process::start(name, command, &dir.join("log")), dir };
        until("the TPM listens", || tpm.dir.join("socket").exists() && tpm.dir.join("socket.ctrl").exists());
        Some(tpm)
    }

    /// How it is reached, as tpm2-tools take it.
    #[must_use]
    pub fn tcti(&self) -> String {
        format!("swtpm:path={}", self.dir.join("socket").display())
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs one of tpm2-tools in its directory.
    ///
    /// # Panics
    /// When it fails.
    pub fn tool(&self, program: &str, arguments: &[&str]) {
        assert!(self.tries(program, arguments), "{program} {arguments:?} fails");
    }

    /// Runs one of tpm2-tools in its directory, and answers whether it did what it should.
    ///
    /// # Panics
    /// When it cannot be run.
    #[must_use]
    pub fn tries(&self, program: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(program);
        command.args(["-T", &self.tcti()]).args(arguments).current_dir(&self.dir);
        let done = command.output().expect("it runs").status.success();
        // It has room for three objects.
        Command::new("tpm2_flushcontext").args(["-T", &self.tcti(), "-t"]).output().expect("it runs");
        done
    }
}
