//! A control plane under test: `better-compute up` on free ports, in a data directory of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use nix::unistd::Pid;
use serde_json::Value;

use crate::{
    Cli, Time, World,
    process::{self, Process},
    wait::{until, until_some},
};

/// A running control plane.
#[derive(Debug)]
pub struct Up {
    /// The process.
    pub process: Process,
    words: Words,
    afar: bool,
}

/// What it is started with, again and again.
#[derive(Debug)]
struct Words {
    data: PathBuf,
    fleet: String,
    arguments: Vec<String>,
    log: PathBuf,
    time: Option<Time>,
}

const ANY_PORT: &str = "127.0.0.1:0";

impl Up {
    /// Starts one for a repository and waits until it answers. It admits described hardware.
    #[must_use]
    pub fn start(world: &World, name: &str, fleet: &Path) -> Self {
        Self::start_with(world, name, &fleet.display().to_string(), &["--dev"])
    }

    /// The same with a clock of its own, and people who have the same.
    #[must_use]
    pub fn start_under(world: &World, name: &str, fleet: &Path, time: &Time) -> Self {
        Self::start_under_with(world, name, fleet, time, &["--dev"])
    }

    /// The same with other arguments.
    #[must_use]
    pub fn start_under_with(world: &World, name: &str, fleet: &Path, time: &Time, arguments: &[&str]) -> Self {
        Self::launch(world, name, &fleet.display().to_string(), arguments, Some(time))
    }

    /// The same with other arguments.
    #[must_use]
    pub fn start_with(world: &World, name: &str, fleet: &str, arguments: &[&str]) -> Self {
        Self::launch(world, name, fleet, arguments, None)
    }

    fn launch(world: &World, name: &str, fleet: &str, arguments: &[&str], time: Option<&Time>) -> Self {
        let words = Words {
            data: world.path(name),
            fleet: fleet.to_owned(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            log: world.path(format!("{name}.log")),
            time: time.cloned(),
        };
        let mut up =
            Self { process: words.start(name, &[ANY_PORT.to_owned(), ANY_PORT.to_owned()]), words, afar: false };
        up.wait_until_it_answers();
        up
    }

    /// Starts it again after it ended, on the same ports, and waits until it answers.
    pub fn restart(&mut self) {
        let addresses = [self.api().to_string(), self.gateway().to_string()];
        self.restart_on(&addresses);
    }

    /// Starts it again on free ports, when its client file cannot be read.
    pub fn restart_anywhere(&mut self) {
        self.restart_on(&[ANY_PORT.to_owned(), ANY_PORT.to_owned()]);
    }

    fn restart_on(&mut self, addresses: &[String; 2]) {
        self.process = self.words.start("up", addresses);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        let pid = self.process.pid();
        until("the control plane answers", || {
            assert!(self.process.ended().is_none(), "the control plane ended:\n{}", self.process.log());
            let own = fs::read_to_string(self.words.data.join("lock")).is_ok_and(|text| text.trim() == pid.to_string());
            own && self.words.data.join("client.json").is_file()
                && self.cli().run(&["status", "--format", "json"]).code == 0
        });
    }

    /// People have the right time from now on, whatever the control plane has.
    #[must_use]
    pub const fn seen_from_afar(mut self) -> Self {
        self.afar = true;
        self
    }

    /// Commands about it.
    #[must_use]
    pub fn cli(&self) -> Cli {
        let cli = Cli::of(&self.words.data);
        match self.words.time.as_ref().filter(|_| !self.afar) {
            Some(time) => cli.under(time),
            None => cli,
        }
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.words.data
    }

    fn client(&self) -> Value {
        let text = fs::read_to_string(self.words.data.join("client.json")).expect("client.json");
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

    /// Makes the clocks of the control plane and of its database wrong by so many seconds, from now on.
    ///
    /// # Panics
    /// When it has no clock of its own.
    pub fn be_off(&self, seconds: i64) {
        let time = self.words.time.as_ref().expect("a clock of its own");
        // The database first: no process acts at a time that its rows have not seen.
        self.sql(&format!("ALTER DATABASE better_compute SET compute.clock_offset = '{seconds} seconds'"));
        time.be_off(seconds);
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = 'better_compute' AND pid <> pg_backend_pid()",
        );
    }

    /// What its database answers.
    pub fn sql(&self, statement: &str) -> String {
        sql(&self.words.data, "better_compute", statement)
    }

    /// The process id of its PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> Pid {
        let found = process::mentioning(&format!("{}", self.words.data.display()));
        let server = found.iter().find(|(_, line)| line.contains("bin/postgres"));
        server.unwrap_or_else(|| unreachable!("no PostgreSQL among {found:?}")).0
    }
}

impl Words {
    fn start(&self, name: &str, [api, gateway]: &[String; 2]) -> Process {
        let mut command = process::command("better-compute");
        command
            .args(["up", "--fleet", &self.fleet, "--listen-api", api, "--listen-gateway", gateway])
            .arg("--data")
            .arg(&self.data)
            .args(&self.arguments);
        if let Some(time) = &self.time {
            time.over(&mut command);
        }
        Process::start(name, command, &self.log)
    }
}

fn socket(url: &str) -> SocketAddr {
    url.trim_start_matches("https://")
        .trim_end_matches('/')
        .parse()
        .unwrap_or_else(|_| unreachable!("{url} holds no socket address"))
}

/// What the owner of a data directory's private PostgreSQL is answered by one of its databases.
///
/// # Panics
/// When there is no `psql`, or the server refuses.
pub fn sql(data: &Path, database: &str, statement: &str) -> String {
    let (code, out, err) = ask(data, database, statement);
    assert_eq!(code, 0, "{statement}: {out}{err}");
    out.trim().to_owned()
}

/// The same, when nobody minds that the server is away.
pub fn ask(data: &Path, database: &str, statement: &str) -> (i32, String, String) {
    let dir = data.join("postgres");
    let mut psql = std::process::Command::new("psql");
    psql.arg("-h").arg(&dir).args(["-U", "better_compute", "-d", database, "-Atqc", statement]);
    psql.env("PGPASSWORD", password(data));
    process::output(psql)
}

/// The password of the one user of a data directory's private PostgreSQL.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn password(data: &Path) -> String {
    let text = fs::read_to_string(data.join("postgres/password")).expect("the password of the private PostgreSQL");
    text.trim().to_owned()
}

/// Makes another, empty database on the PostgreSQL that a control plane runs, and answers its URL.
#[must_use]
pub fn second_database(data: &Path) -> String {
    sql(data, "better_compute", "CREATE DATABASE apart");
    format!("postgresql://better_compute:{}@localhost/apart?host={}", password(data), data.join("postgres").display())
}
