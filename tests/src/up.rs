//! A control plane under test: `better-compute up` on free ports, in a data directory of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use nix::unistd::Pid;
use serde_json::Value;

use crate::{
    Cli, World,
    process::{self, Process},
    wait::{until, until_some},
};

/// A running control plane.
#[derive(Debug)]
pub struct Up {
    /// The process.
    pub process: Process,
    data: PathBuf,
    fleet: String,
    arguments: Vec<String>,
    log: PathBuf,
}

impl Up {
    /// Starts one for a repository and waits until it answers. It admits described hardware.
    #[must_use]
    pub fn start(world: &World, name: &str, fleet: &Path) -> Self {
        Self::start_with(world, name, &fleet.display().to_string(), &["--dev"])
    }

    /// The same with other arguments.
    #[must_use]
    pub fn start_with(world: &World, name: &str, fleet: &str, arguments: &[&str]) -> Self {
        let (data, log) = (world.path(name), world.path(format!("{name}.log")));
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = spawn(name, &data, fleet, &arguments, &log, ["127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned()]);
        let mut up = Self { process, data, fleet: fleet.to_owned(), arguments, log };
        up.wait_until_it_answers();
        up
    }

    /// Starts it again after it ended, on the same ports, and waits until it answers.
    pub fn restart(&mut self) {
        let addresses = [self.api().to_string(), self.gateway().to_string()];
        self.process = spawn("up", &self.data, &self.fleet, &self.arguments, &self.log, addresses);
        self.wait_until_it_answers();
    }

    /// Starts it again on free ports, when its client file cannot be read.
    pub fn restart_anywhere(&mut self) {
        let addresses = ["127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned()];
        self.process = spawn("up", &self.data, &self.fleet, &self.arguments, &self.log, addresses);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        let pid = self.process.pid();
        until("the control plane answers", || {
            assert!(self.process.ended().is_none(), "the control plane ended:\n{}", self.process.log());
            let own = fs::read_to_string(self.data.join("lock")).is_ok_and(|text| text.trim() == pid.to_string());
            own && self.data.join("client.json").is_file() && self.cli().run(&["status", "--format", "json"]).code == 0
        });
    }

    /// Commands about it.
    #[must_use]
    pub fn cli(&self) -> Cli {
        Cli::of(&self.data)
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    fn client(&self) -> Value {
        let text = fs::read_to_string(self.data.join("client.json")).expect("client.json");
        serde_json::from_str(&text).expect("client.json is JSON")
    }

    fn client_text(&self, key: &str) -> String {
        self.client()[key].as_str().unwrap_or_else(|| unreachable!("client.json has no {key}")).to_owned()
    }

    /// Where nodes join.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        self.client_text("gateway")
    }

    /// What joining nodes pin.
    #[must_use]
    pub fn pin(&self) -> String {
        self.client_text("pin")
    }

    /// The socket of the gateway.
    #[must_use]
    pub fn gateway(&self) -> SocketAddr {
        socket(&self.gateway_url())
    }

    /// The socket of the API.
    #[must_use]
    pub fn api(&self) -> SocketAddr {
        socket(&self.client_text("url"))
    }

    /// A fresh join token, as soon as the pool is known.
    #[must_use]
    pub fn token(&self, pool: &str, uses: u32) -> String {
        let uses = uses.to_string();
        until_some(&format!("there is a pool {pool}"), || {
            let said = self.cli().run(&["token", "create", "--quiet", "--pool", pool, "--uses", &uses]);
            assert!(said.code == 0 || said.err.contains("NOT_FOUND"), "{}", said.err);
            (said.code == 0).then(|| said.out.trim().to_owned())
        })
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> Value {
        self.cli().json(&["status", "--format", "json"])
    }

    /// Waits until a commit is applied and at least `nodes` machines, and all there are, have converged on it.
    pub fn wait_converged(&self, commit: &str, nodes: u32) {
        let nodes = nodes.to_string();
        let said = self.cli().run(&[
            "status",
            "--wait",
            "converged",
            "--commit",
            commit,
            "--nodes",
            &nodes,
            "--timeout",
            "90s",
        ]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }

    /// Waits until a commit is applied.
    pub fn wait_applied(&self, commit: &str) {
        let said = self.cli().run(&["status", "--wait", "applied", "--commit", commit, "--timeout", "90s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }

    /// Waits until a commit was found to be wrong.
    pub fn wait_refused(&self, commit: &str) {
        let said = self.cli().run(&["status", "--wait", "refused", "--commit", commit, "--timeout", "90s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }

    /// Waits until the source has a state.
    #[track_caller]
    pub fn wait_source(&self, state: &str) -> Value {
        until_some(&format!("the source is {state}"), || {
            let status = self.status();
            let source = status.pointer("/sources/0")?;
            (source["state"] == state).then(|| source.clone())
        })
    }

    /// Everything known about a node: the node, its session, sections and holds.
    #[must_use]
    pub fn node(&self, name: &str) -> Value {
        self.cli().json(&["get", "node", name, "--format", "json"])
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<Value> {
        self.cli().json(&["get", "nodes", "--format", "json"])["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// The process id of its PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Pid {
        let found = process::mentioning(&format!("{}", self.data.display()));
        let server = found.iter().find(|(_, line)| line.contains("bin/postgres"));
        server.unwrap_or_else(|| unreachable!("no PostgreSQL among {found:?}")).0
    }
}

fn spawn(
    name: &str,
    data: &Path,
    fleet: &str,
    arguments: &[String],
    log: &Path,
    [api, gateway]: [String; 2],
) -> Process {
    let mut command = process::command("better-compute");
    command
        .args(["up", "--fleet", fleet, "--listen-api", &api, "--listen-gateway", &gateway])
        .arg("--data")
        .arg(data)
        .args(arguments);
    Process::start(name, command, log)
}

fn socket(url: &str) -> SocketAddr {
    url.trim_start_matches("https://")
        .trim_end_matches('/')
        .parse()
        .unwrap_or_else(|_| unreachable!("{url} holds no socket address"))
}

/// Makes another, empty database on the PostgreSQL that a control plane runs, and answers its URL.
///
/// # Panics
/// When there is no `psql`, or the server refuses.
#[must_use]
pub fn second_database(data: &Path) -> String {
    let dir = data.join("postgres");
    let password = fs::read_to_string(dir.join("password")).expect("the password of the private PostgreSQL");
    let mut psql = std::process::Command::new("psql");
    psql.arg("-h").arg(&dir).args(["-U", "better_compute", "-d", "better_compute", "-qc", "CREATE DATABASE apart"]);
    let (code, out, err) = process::output({
        psql.env("PGPASSWORD", password.trim());
        psql
    });
    assert_eq!(code, 0, "{out}{err}");
    format!("postgresql://better_compute:{}@localhost/apart?host={}", password.trim(), dir.display())
}
