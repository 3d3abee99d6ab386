//! A control plane and its gateways as processes of their own over one PostgreSQL, with a wire wherever two of them meet.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
};

use serde_json::Value;

use crate::{
    Cli, Proxy, Repo, Up, World,
    process::{self, Process},
    sealed::Sealed,
    until,
    up::{ask, password, second_database, sql},
};

const DATABASE: &str = "apart";

/// A process with what it is started with, and its wires.
#[derive(Debug)]
pub struct Part {
    /// The process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its wire to PostgreSQL.
    pub database: Proxy,
    /// Its wire to what has authority; that of the control plane leads nowhere.
    pub authority: Proxy,
    name: String,
    arguments: Vec<String>,
    log: std::path::PathBuf,
}

impl Part {
    fn start(world: &World, name: &str, address: SocketAddr, wires: [Proxy; 2], arguments: Vec<String>) -> Self {
        let log = world.path(format!("{name}.log"));
        let [database, authority] = wires;
        let process = run(name, &arguments, &log);
        Self { process, address, database, authority, name: name.to_owned(), arguments, log }
    }

    /// Starts it again after it ended, at the same address.
    pub fn restart(&mut self) {
        self.process = run(&self.name, &self.arguments, &self.log);
    }

    /// Starts it again after it ended. Where this schema has a table of the same name, it finds that one.
    pub fn restart_over(&mut self, schema: &str) {
        let place = self.arguments.iter().position(|word| word == "--database").expect("a database") + 1;
        let honest = self.arguments[place].clone();
        self.arguments[place] = format!("{honest}&options=-c%20search_path={schema},public");
        self.restart();
        self.arguments[place] = honest;
    }

    /// Fair weather on its wires.
    pub fn clear(&self) {
        for wire in [&self.database, &self.authority] {
            wire.clear();
        }
    }
}

fn run(name: &str, arguments: &[String], log: &std::path::Path) -> Process {
    let mut command = process::command("better-compute");
    command.arg("serve").args(arguments);
    Process::start(name, command, log)
}

/// The parts.
#[derive(Debug)]
pub struct Apart {
    /// The gateways.
    pub gateways: Vec<Part>,
    /// Everything else, in one process.
    pub control: Part,
    // It lends its PostgreSQL, and is stopped last.
    host: Up,
    sealed: Sealed,
    data: std::path::PathBuf,
}

impl Apart {
    /// Starts a control plane with so many gateways for a repository, and waits until it has applied what is in it.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start(world: &World, repo: &Repo, gateways: usize) -> Self {
        // The first control plane lends its PostgreSQL; its own rows are in another database.
        let empty = Repo::of_examples(world, "lender");
        let host = Up::start(world, "host", empty.dir());
        let path = |name: &str| world.path(name).display().to_string();
        let database = second_database(host.data());
        let cli = Cli::offline();
        let _ = cli.ok(&[
            "keys",
            "init",
            "--keys",
            &path("keys"),
            "--trust-domain",
            "acme.example",
            "--dev",
            "--database",
            &database,
        ]);
        let ports: Vec<SocketAddr> = free_ports(2 + gateways);
        let (api, internal, at) = (ports[0], ports[1], &ports[2..]);
        let sealed = Sealed::before(host.data().join("postgres/.s.PGSQL.5432"));
        let before_database = || wire_to_database(&host, &sealed);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();

        let data = world.path("served");
        fs::create_dir_all(&data).expect("a directory");
        let (wire, url) = before_database();
        let mut arguments =
            words(&["--roles", "api,source,controllers,scheduler,sinks", "--keys", &path("keys"), "--database", &url]);
        arguments.extend(words(&[
            "--fleet",
            &repo.dir().display().to_string(),
            "--data",
            &path("served"),
            "--client",
            &path("served/client.json"),
        ]));
        arguments.extend(words(&["--listen-api", &api.to_string(), "--listen-internal", &internal.to_string()]));
        for gateway in at {
            arguments.extend(words(&["--gateway", &format!("https://{gateway}")]));
        }
        let control = Part::start(world, "control", api, [wire, Proxy::before(internal)], arguments);

        let gateways = at.iter().enumerate().map(|(index, address)| {
            let (name, keys) = (format!("gateway-{index}"), path(&format!("gateway-{index}-keys")));
            let _ = cli.ok(&["keys", "gateway", "--keys", &path("keys"), "--out", &keys, "--name", "127.0.0.1"]);
            let ((wire, url), authority) = (before_database(), Proxy::before(internal));
            let mut arguments = words(&["--roles", "gateway", "--keys", &keys, "--database", &url]);
            arguments.extend(words(&[
                "--listen-gateway",
                &address.to_string(),
                "--authority",
                &authority.address().to_string(),
            ]));
            Part::start(world, &name, *address, [wire, authority], arguments)
        });
        let apart = Self { gateways: gateways.collect(), control, host, sealed, data };
        until("the served API answers", || apart.cli().run(&["status", "--format", "json"]).code == 0);
        let said = apart.cli().run(&["status", "--wait", "applied", "--commit", &repo.head(), "--timeout", "60s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        apart
    }

    /// Starts another control plane over the same database, with a data directory of its own.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn second_control(&self, world: &World, repo: &Repo) -> Part {
        let ports = free_ports(2);
        let (wire, url) = wire_to_database(&self.host, &self.sealed);
        let path = |name: &str| world.path(name).display().to_string();
        let arguments = [
            "--roles",
            "api,source,controllers,scheduler,sinks",
            "--keys",
            &path("keys"),
            "--database",
            &url,
            "--fleet",
            &repo.dir().display().to_string(),
            "--data",
            &path("second"),
            "--listen-api",
            &ports[0].to_string(),
            "--listen-internal",
            &ports[1].to_string(),
        ];
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        fs::create_dir_all(world.path("second")).expect("a directory");
        let second = Part::start(world, "second", ports[0], [wire, Proxy::before(ports[1])], arguments);
        until("the second one is a member", || {
            self.sql("SELECT count(DISTINCT host || pid::text) FROM workers") != "1"
        });
        second
    }

    /// Commands about it.
    #[must_use]
    pub fn cli(&self) -> Cli {
        Cli::of(&self.data)
    }

    /// What joining nodes pin.
    ///
    /// # Panics
    /// When the control plane has not said it.
    #[must_use]
    pub fn pin(&self) -> String {
        let text = fs::read_to_string(self.data.join("client.json")).expect("client.json");
        let client: Value = serde_json::from_str(&text).expect("JSON");
        client["pin"].as_str().expect("a pin").to_owned()
    }

    /// A token that lets so many machines join.
    #[must_use]
    pub fn token(&self, pool: &str, uses: usize) -> String {
        self.cli().ok(&["token", "create", "--quiet", "--pool", pool, "--uses", &uses.to_string()]).trim().to_owned()
    }

    /// The process that lends its PostgreSQL.
    #[must_use]
    pub const fn host(&self) -> &Up {
        &self.host
    }

    /// What the database answers.
    pub fn sql(&self, statement: &str) -> String {
        sql(self.host.data(), DATABASE, statement)
    }

    /// The same, `None` while the server is away.
    #[must_use]
    pub fn sql_if_there(&self, statement: &str) -> Option<String> {
        let (code, out, _) = ask(self.host.data(), DATABASE, statement);
        (code == 0).then(|| out.trim().to_owned())
    }

    /// Ends about so many percent of the database's connections, if it is there.
    pub fn end_backends(&self, percent: u32) {
        let statement = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = '{DATABASE}' AND pid <> pg_backend_pid() AND random() * 100 < {percent}"
        );
        let _ = ask(self.host.data(), DATABASE, &statement);
    }
}

/// A wire to PostgreSQL, and the URL that leads through it.
fn wire_to_database(host: &Up, sealed: &Sealed) -> (Proxy, String) {
    let wire = Proxy::before(sealed.address());
    let who = format!("better_compute:{}@{}", password(host.data()), wire.address());
    (wire, format!("postgresql://{who}/{DATABASE}?sslmode=require"))
}

/// Ports that nobody had when this was called.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn free_ports(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("its address")).collect()
}
