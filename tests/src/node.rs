//! A machine under test: `bcd` with described hardware, a state directory and a root directory of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Time, Up, World,
    process::{self, Process},
};

/// The machine that the project describes: eight H100s.
#[must_use]
pub fn described() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bcd/hardware/8xh100.toml")
}

/// Something that was done to a machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct Deed {
    /// When, in milliseconds since the kernel that runs all of this was started.
    pub up: u64,
    /// What: `reboot` or `reset`.
    pub did: String,
    /// Why, or to what.
    pub to: String,
}

/// A machine, whether its daemon runs or not.
#[derive(Debug)]
pub struct Node {
    name: String,
    dir: PathBuf,
    words: Vec<String>,
    hardware: PathBuf,
    time: Option<Time>,
    /// The daemon; `None` while it does not run.
    pub daemon: Option<Process>,
}

impl Node {
    /// A machine that has not joined. Its identifiers follow from its name.
    #[must_use]
    pub fn new(world: &World, name: &str) -> Self {
        let dir = world.path(name);
        fs::create_dir_all(dir.join("root")).expect("a root directory");
        Self { name: name.to_owned(), dir, words: Vec::new(), hardware: described(), time: None, daemon: None }
    }

    /// The same with a fault from its start on, in the words of a description, as `kind = "lost"`.
    ///
    /// # Panics
    /// When its description cannot be written.
    #[must_use]
    pub fn with_fault(mut self, words: &str) -> Self {
        let sound = fs::read_to_string(&self.hardware).expect("a description");
        self.hardware = self.dir.join("hardware.toml");
        fs::write(&self.hardware, format!("{sound}\n[[faults]]\n{words}\n")).expect("a description");
        self
    }

    /// The same with one of its identifiers set, as `serial=PF3K0X91`.
    #[must_use]
    pub fn with(mut self, word: &str) -> Self {
        self.words.extend(["--set".to_owned(), word.to_owned()]);
        self
    }

    /// The same with a clock of its own.
    #[must_use]
    pub fn under(mut self, time: &Time) -> Self {
        self.time = Some(time.clone());
        self
    }

    /// A machine that has joined and runs.
    #[must_use]
    pub fn running(world: &World, name: &str, up: &Up, pool: &str) -> Self {
        let mut node = Self::new(world, name);
        let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token(pool, 1));
        assert_eq!(code, 0, "{name} does not join: {words}");
        node.run(&[]);
        node
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// A file below its root; `None` when it is not there.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path.trim_start_matches('/'))).ok()
    }

    /// What the fleet calls it, once it has joined.
    ///
    /// # Panics
    /// When it has not.
    #[must_use]
    pub fn name_in_fleet(&self) -> String {
        let text = fs::read_to_string(self.state().join("identity.json")).expect("an identity");
        let identity: Value = serde_json::from_str(&text).expect("JSON");
        identity["identity"]["nodeName"].as_str().expect("a name").to_owned()
    }

    /// Its state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Joins, and answers the exit code and everything it said.
    #[must_use]
    pub fn join(&self, gateway: &str, pin: &str, token: &str) -> (i32, String) {
        let mut command = self.command("join");
        command.args([gateway, "--pin", pin]).env("BCD_JOIN_TOKEN", token);
        let (code, out, err) = process::output(command);
        (code, format!("{out}{err}"))
    }

    /// Joins by what it proves, without a token, and answers the exit code and everything it said.
    #[must_use]
    pub fn prove(&self, gateway: &str, pin: &str, arguments: &[&str]) -> (i32, String) {
        self.prove_with(gateway, pin, None, arguments)
    }

    /// The same, with a token besides when there is one.
    #[must_use]
    pub fn prove_with(&self, gateway: &str, pin: &str, token: Option<&str>, arguments: &[&str]) -> (i32, String) {
        let mut command = self.command("join");
        command.args([gateway, "--pin", pin]).args(arguments);
        token.map(|token| command.env("BCD_JOIN_TOKEN", token));
        let (code, out, err) = process::output(command);
        (code, format!("{out}{err}"))
    }

    /// Begins to join by what it proves: a machine that is held or waits goes on asking.
    #[must_use]
    pub fn proving(&self, gateway: &str, pin: &str, arguments: &[String]) -> Process {
        let mut command = self.command("join");
        command.args([gateway, "--pin", pin]).args(arguments);
        Process::start(&self.name, command, &self.dir.join("join.log"))
    }

    /// Starts its daemon.
    pub fn run(&mut self, arguments: &[&str]) {
        self.run_with(arguments, &[]);
    }

    /// Starts its daemon with something in its environment.
    pub fn run_with(&mut self, arguments: &[&str], environment: &[(&str, &str)]) {
        self.daemon = Some(self.beside(arguments, environment));
    }

    /// Starts a daemon beside the one that may run.
    #[must_use]
    pub fn beside(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        let mut command = self.command("run");
        command.arg("--root").arg(self.root()).args(arguments).envs(environment.iter().copied());
        Process::start(&self.name, command, &self.dir.join("log"))
    }

    /// Starts a second daemon beside the first, and answers how that ends: its exit code and everything it said.
    #[must_use]
    pub fn again(&self) -> (i32, String) {
        let mut command = self.command("run");
        command.arg("--root").arg(self.root());
        let (code, out, err) = process::output(command);
        (code, format!("{out}{err}"))
    }

    /// Waits until its daemon has died by itself.
    ///
    /// # Panics
    /// When none runs, or it does not die.
    pub fn wait_dead(&mut self) {
        self.daemon.take().expect("a daemon").wait();
    }

    /// How often the machine has booted, the first time included.
    #[must_use]
    pub fn boots(&self) -> usize {
        self.file("/var/lib/described/boots").map_or(0, |text| text.lines().count())
    }

    /// What was done to the machine, as the machine itself keeps it, in order.
    ///
    /// # Panics
    /// When its own file makes no sense.
    #[must_use]
    pub fn deeds(&self) -> Vec<Deed> {
        let text = self.file("/var/lib/described/deeds").unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("a deed")).collect()
    }

    /// What its own journal of commands holds, newest first.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn journal(&self) -> Value {
        let (code, words) = self.said(&["commands", "--format", "json"]);
        assert_eq!(code, 0, "{words}");
        serde_json::from_str(&words).expect("JSON")
    }

    /// Kills its daemon the hard way.
    ///
    /// # Panics
    /// When none runs.
    pub fn kill(&mut self) {
        self.daemon.take().expect("a daemon").kill();
    }

    /// What its daemon has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Runs `bcd` about its state and root, and answers the exit code and everything it said.
    #[must_use]
    pub fn said(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = process::command("bcd");
        command.args(arguments).arg("--state").arg(self.state()).arg("--root").arg(self.root());
        let (code, out, err) = process::output(command);
        (code, format!("{out}{err}"))
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = process::command("bcd");
        command.arg(verb).arg("--state").arg(self.state()).arg("--hardware").arg(&self.hardware);
        command.args(["--hardware-seed", &self.name]).args(&self.words);
        if let Some(time) = &self.time {
            time.over(&mut command);
        }
        command
    }
}
