//! The command line that people use, run against one control plane.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{Time, process};

/// `better-compute`, with or without a control plane to talk to.
#[derive(Debug, Clone)]
pub struct Cli {
    data: Option<PathBuf>,
    time: Option<Time>,
}

/// What a command came to.
#[derive(Debug)]
pub struct Said {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Cli {
    /// Commands that need no control plane.
    #[must_use]
    pub const fn offline() -> Self {
        Self { data: None, time: None }
    }

    /// Commands about the control plane in a data directory.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        Self { data: Some(data.to_owned()), time: None }
    }

    /// The same with a clock of its own.
    #[must_use]
    pub fn under(mut self, time: &Time) -> Self {
        self.time = Some(time.clone());
        self
    }

    /// The command, ready to be run.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = process::command("better-compute");
        command.args(arguments);
        if let Some(data) = &self.data {
            command.env("BETTER_COMPUTE_DATA", data);
        }
        if let Some(time) = &self.time {
            time.over(&mut command);
        }
        command
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Said {
        let (code, out, err) = process::output(self.command(arguments));
        Said { code, out, err }
    }

    /// Runs it, expects it to succeed, and answers what it printed.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "better-compute {arguments:?} failed:\n{}{}", said.out, said.err);
        said.out
    }

    /// The same, as JSON.
    ///
    /// # Panics
    /// When it fails, or prints something else.
    #[must_use]
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(arguments);
        serde_json::from_str(&out)
            .unwrap_or_else(|error| unreachable!("better-compute {arguments:?} printed no JSON ({error}):\n{out}"))
    }
}
