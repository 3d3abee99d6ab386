//! Keys: each is replaced while everything runs, a process reads only those that its roles need, and connects with no more
//! rights than those need.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::{
    Apart, Cli, Node, Repo, Up, World,
    apart::free_ports,
    process::{self, Process},
    until,
    up::{password, sql},
};

use crate::{
    batches::{Fleet, receipted},
    journey::change,
    secrets::{PROFILE, put},
};

/// The steps of a rotation, and what each says.
const STEPS: [(&str, &str); 3] = [("begin", "begun"), ("switch", "switched"), ("finish", "finished")];

/// Takes the next step, which waits until everybody followed the one before.
fn step(cli: &Cli, keys: &str, kind: &str, force: &[&str]) -> String {
    let said = cli.run(&[&["keys", "rotate", kind, "--keys", keys, "--wait", "3m"], force].concat());
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    said.out
}

fn status(cli: &Cli, keys: &str) -> Value {
    cli.json(&["keys", "status", "--keys", keys, "--format", "json"])
}

/// Somebody who works on rows, so that nobody else does.
fn holding(up: &Up, rows: &str) -> Child {
    let dir = up.data().join("postgres");
    let mut psql = Command::new("psql");
    psql.arg("-h").arg(&dir).args(["-U", "better_compute", "-d", "better_compute", "-Atqc"]);
    psql.arg(format!("BEGIN; {rows}; SELECT pg_sleep(600)"));
    let holder = psql.env("PGPASSWORD", password(up.data())).stdout(Stdio::null()).spawn().expect("psql");
    until("the rows are held", || {
        up.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'") == "2"
    });
    holder
}

/// Makes the machine ask for its value again.
fn asks_again(node: &mut Node, value: &str) {
    node.kill();
    std::fs::write(node.root().join("etc/ntp.key"), "mine").expect("written");
    node.run(&[]);
    until("the value is there again", || node.file("/etc/ntp.key").as_deref() == Some(value));
}

#[test]
fn values_are_sealed_anew_while_everything_runs_and_a_kill_in_the_middle_loses_none() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.write("profiles/keyed.kdl", PROFILE);
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"h100-host\"", "profile \"keyed\""));
    let commit = repo.commit("keyed");
    let mut up = Up::start(&world, "up", repo.dir());
    let keys = up.data().join("keys").display().to_string();
    put(&up, "ntp/key", "the value");
    for number in 0..20 {
        put(&up, &format!("other/{number}"), "another");
    }
    let mut one = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&commit, 1);
    let head = "encode(substr(envelope, 1, 9), 'hex')";
    let old = up.sql(&format!("SELECT DISTINCT {head} FROM secret_versions"));
    let before = up.sql("SELECT encode(envelope, 'hex') FROM secret_versions WHERE name = 'ntp/key'");
    let sealed_before = |up: &Up| up.sql(&format!("SELECT count(*) FROM secret_versions WHERE {head} = '{old}'"));

    assert!(step(&up.cli(), &keys, "secret-store", &[]).contains("begun"));
    assert!(step(&up.cli(), &keys, "secret-store", &[]).contains("switched"));
    until("the control plane follows", || {
        let status = status(&up.cli(), &keys);
        status["holders"].as_array().expect("holders").iter().all(|holder| holder["revision"] == status["revision"])
    });
    let early = up.cli().run(&["keys", "rotate", "secret-store"]);
    assert!(early.err.contains("put before the switch"), "{}", early.err);

    // One value cannot be worked on: somebody else does. Both processes end in the middle.
    let mut holder = holding(&up, "SELECT 1 FROM secret_versions WHERE name = 'ntp/key' FOR UPDATE");
    let refused = up.cli().run(&["keys", "rotate", "secret-store", "--force"]);
    assert!(refused.err.contains("1 value wait"), "{}{}", refused.out, refused.err);
    assert_eq!(sealed_before(&up), "1", "the others are sealed anew");
    up.process.kill();
    holder.kill().expect("killed");
    holder.wait().expect("ended");
    up.restart();
    assert_eq!(sealed_before(&up), "1");
    asks_again(&mut one, "the value");

    assert!(step(&up.cli(), &keys, "secret-store", &["--force"]).contains("finished"));
    assert_eq!(sealed_before(&up), "0");
    asks_again(&mut one, "the value");
    put(&up, "ntp/key", "the next value");
    until("a new value comes", || one.file("/etc/ntp.key").as_deref() == Some("the next value"));

    // Three steps in one breath, whoever follows: the last one waits for who still seals with the key that goes.
    for (name, said) in STEPS {
        assert!(step(&up.cli(), &keys, "secret-store", &["--force", "--step", name]).contains(said));
    }
    let again = up.cli().run(&["keys", "rotate", "secret-store"]);
    assert!(again.code != 0 && again.err.contains("the next step begins another"), "{}{}", again.out, again.err);
    assert!(step(&up.cli(), &keys, "secret-store", &["--step", "finish"]).contains("finished already"));
    asks_again(&mut one, "the next value");

    // The old key is gone: what it sealed opens nowhere, and a backup of then needs the keys of then.
    up.sql(&format!("UPDATE secret_versions SET envelope = decode('{before}', 'hex') WHERE name = 'ntp/key'"));
    one.kill();
    std::fs::write(one.root().join("etc/ntp.key"), "mine").expect("written");
    one.run(&[]);
    until("it is told why", || one.log().contains("does not open"));
}

#[test]
fn gateways_apart_follow_every_rotation_by_themselves() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 2);
    let (cli, keys) = (apart.cli(), world.path("keys").display().to_string());
    let converged = |nodes: &str| {
        let said = cli.run(&["status", "--wait", "converged", "--nodes", nodes, "--timeout", "90s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    };
    let mut one = join(&world, &apart, "one", 0);
    converged("1");
    until("both gateways are known", || status(&cli, &keys)["holders"].as_array().is_some_and(|all| all.len() == 3));

    for kind in ["internal-authority", "checkpoint", "node-ca"] {
        assert!(step(&cli, &keys, kind, &[]).contains("begun"));
        assert!(step(&cli, &keys, kind, &[]).contains("switched"));
        // A certificate of a node is renewed in half a day; whatever else has to follow did.
        until("all follow", || followed(&status(&cli, &keys)));
        assert!(step(&cli, &keys, kind, &["--force"]).contains("finished"));
        until("all follow to the end", || followed(&status(&cli, &keys)));
        assert!(one.daemon.as_mut().is_some_and(|daemon| daemon.ended().is_none()));
    }

    // What a gateway stored is enough to start with, and a machine that knows only the new root believes it.
    apart.gateways[1].process.kill();
    apart.gateways[1].restart();
    let _ = apart.control.process.stop();
    apart.control.restart();
    until("the API is back", || cli.run(&["status", "--format", "json"]).code == 0);
    let two = join(&world, &apart, "two", 1);
    converged("2");

    let name = status(&cli, &keys)["holders"].as_array().expect("holders").iter().find_map(|holder| {
        let is_gateway = holder["isGateway"] == true;
        is_gateway.then(|| holder["name"].as_str().expect("a name").to_owned())
    });
    let name = name.expect("a gateway");
    let _ = cli.ok(&["keys", "end-gateway", &name]);
    assert!(step(&cli, &keys, "internal-authority", &["--step", "begin"]).contains("begun"));
    until("the ended one is refused", || {
        apart.gateways.iter().any(|gateway| gateway.process.log().contains("this gateway was ended"))
    });
    assert!(step(&cli, &keys, "internal-authority", &[]).contains("switched"), "nobody waits for it");
    drop((one, two));
}

/// A machine that came in by one of the gateways.
fn join(world: &World, apart: &Apart, name: &str, gateway: usize) -> Node {
    let url = format!("https://{}", apart.gateways[gateway].address);
    let mut node = Node::new(world, name);
    let (code, words) = node.join(&url, &apart.pin(), &apart.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    node
}

/// Whether everybody works with the present keys.
fn followed(status: &Value) -> bool {
    let holders = status["holders"].as_array().expect("holders");
    holders.iter().all(|holder| holder["revision"] == status["revision"])
}

fn forced(cli: &Cli, keys: &str, kind: &str) -> String {
    let mut told = String::new();
    for (name, said) in STEPS {
        let done = cli.run(&["keys", "rotate", kind, "--keys", keys, "--step", name, "--force"]);
        assert!(done.code == 0 && done.out.contains(said), "{}{}", done.out, done.err);
        told.push_str(&done.err);
    }
    told
}

#[test]
fn rotations_that_are_forced_in_one_breath_leave_no_gateway_behind_that_runs() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 2);
    let (cli, keys) = (apart.cli(), world.path("keys").display().to_string());
    let converged = |nodes: &str| {
        let words = ["status", "--wait", "converged", "--commit", &repo.head(), "--nodes", nodes, "--timeout", "90s"];
        let said = cli.run(&words);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    };
    let mut one = join(&world, &apart, "one", 0);
    converged("1");
    until("both gateways are known", || status(&cli, &keys)["holders"].as_array().is_some_and(|all| all.len() == 3));
    for kind in ["internal-authority", "node-ca"] {
        let _ = forced(&cli, &keys, kind);
        until("all follow to the end", || followed(&status(&cli, &keys)));
    }
    one.kill();
    one.run(&[]);
    let two = join(&world, &apart, "two", 1);
    let _ = change(&repo, 12);
    converged("2");

    // What nodes see of a gateway that was off is replaced when it is back, however many steps it missed.
    apart.gateways[1].process.kill();
    let told = forced(&cli, &keys, "node-ca");
    assert!(told.contains("it follows when it is back"), "{told}");
    apart.gateways[1].restart();
    until("it follows by itself", || followed(&status(&cli, &keys)));

    // What it shows the control plane is not.
    apart.gateways[1].process.kill();
    let told = forced(&cli, &keys, "internal-authority");
    assert!(told.contains("needs new keys") && told.contains("better-compute keys gateway"), "{told}");
    apart.gateways[1].restart();
    until("it says what it needs", || apart.gateways[1].process.log().contains("better-compute keys gateway"));
    until("the control plane says so too", || {
        cli.ok(&["keys", "status", "--keys", &keys]).contains("it needs new keys")
            && cli.ok(&["status"]).contains("needs new keys")
    });
    let name = two.name_in_fleet();
    drop(two);
    until("its machine is away", || {
        cli.json(&["api", "nodes.get", &format!("node={name}")])["node"]["connectivity"] != "connected"
    });
    let said = cli.ok(&["why", &format!("node/{name}")]);
    assert!(said.contains("needs new keys"), "{said}");
}

#[test]
fn a_checkpoint_key_that_is_forced_out_takes_nothing_with_it() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let one = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let (cli, keys) = (up.cli(), up.data().join("keys").display().to_string());
    assert!(step(&cli, &keys, "checkpoint", &[]).contains("begun"));
    until("the control plane follows", || followed(&status(&cli, &keys)));
    // The source cannot sign anew what is in force, and the finish does not go on without that.
    let mut holder = holding(&up, "SELECT 1 FROM manifests FOR UPDATE");
    assert!(step(&cli, &keys, "checkpoint", &["--force"]).contains("switched"));
    let refused = cli.run(&["keys", "rotate", "checkpoint", "--force", "--wait", "5s"]);
    assert_eq!(refused.code, 4, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("every machine would wait"), "{}", refused.err);
    up.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()");
    holder.wait().expect("ended");
    assert!(step(&cli, &keys, "checkpoint", &["--force"]).contains("finished"));
    let commit = change(&repo, 12);
    up.wait_converged(&commit, 1);
    let unproven = "SELECT count(*) FROM outcomes WHERE reason LIKE '%unproven' OR reason LIKE '%altered'";
    assert_eq!(up.sql(unproven), "0");
    drop(one);
}

#[test]
fn the_checkpoint_key_is_replaced_to_its_end_while_people_and_machines_work() {
    let fleet = Fleet::new(true);
    let (cli, keys) = (fleet.up.cli(), fleet.up.data().join("keys").display().to_string());
    let commit = |value: u32| {
        let line = |value: u32| format!("vm.swappiness {value}\n");
        fleet.repo.replace("profiles/base.kdl", &line(value - 1), &line(value));
        fleet.commit_as("ada", "another value");
        fleet.repo.head()
    };
    let state = |id: &str| cli.json(&["api", "commands.get", &format!("command={id}")])["state"].clone();
    let pending = |number: u32| {
        let (node, key) = (format!("node={}", fleet.name), format!("idempotencyKey=beside-{number}"));
        let words = ["api", "commands.run", &node, "kind=inventory.refresh", &key];
        cli.json(&words)["id"].as_str().expect("an id").to_owned()
    };
    // What people approve in the end was asked for, and half of it said, under the key that goes.
    fleet.ask("bob", "kernel", "a new kernel");
    fleet.wait_state("kernel", "proposed");
    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    for (number, said) in [(2, "begun"), (3, "switched"), (4, "finished")] {
        let (command, tip) = (pending(number), commit(number));
        assert!(step(&cli, &keys, "checkpoint", &["--force"]).contains(said));
        until("the control plane follows", || {
            let status = status(&cli, &keys);
            status["holders"].as_array().expect("holders").iter().all(|holder| holder["revision"] == status["revision"])
        });
        fleet.up.wait_converged(&tip, 1);
        until("the command is done", || state(&command) == "succeeded");
    }
    let (code, words) = fleet.say("cleo", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    fleet.wait_state("kernel", "done");
    assert_eq!(fleet.node.boots(), 2);
    receipted(&fleet, "kernel", "by ada, cleo");
    let tip = commit(5);
    fleet.up.wait_converged(&tip, 1);
    let unproven = "SELECT count(*) FROM outcomes WHERE reason LIKE '%unproven' OR reason LIKE '%altered'";
    assert_eq!(fleet.up.sql(unproven), "0");
}

#[test]
fn a_command_root_is_not_finished_before_what_it_signed_has_ended() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let one = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let (cli, name) = (up.cli(), one.name_in_fleet());
    let keys = up.data().join("keys").display().to_string();
    let signal = |signal| one.daemon.as_ref().expect("a daemon").signal(signal);
    let state = |id: &str| cli.json(&["api", "commands.get", &format!("command={id}")])["state"].clone();
    let finish = || cli.run(&["keys", "rotate", "command-root", "--keys", &keys, "--wait", "0s"]);

    assert!(step(&cli, &keys, "command-root", &[]).contains("begun"));
    until("the machine believes the next one", || up.node(&name)["identity"]["trustVersion"] == 2);
    signal(Signal::SIGSTOP);
    let words = ["api", "commands.run", &format!("node={name}"), "kind=inventory.refresh", "idempotencyKey=before"];
    let id = cli.json(&words)["id"].as_str().expect("an id").to_owned();
    until("it is signed and sent", || state(&id) == "dispatched");
    assert!(step(&cli, &keys, "command-root", &[]).contains("switched"));
    until("the control plane follows", || {
        let status = status(&cli, &keys);
        status["holders"].as_array().expect("holders").iter().all(|holder| holder["revision"] == status["revision"])
    });
    let early = finish();
    assert!(
        early.code == 4 && early.err.contains("1 command that the root before signed has not ended"),
        "{}",
        early.err
    );
    assert!(early.err.contains("(signed-before)"), "{}", early.err);

    signal(Signal::SIGCONT);
    until("it ends as it was promised", || state(&id) == "succeeded");
    let later = finish();
    assert!(!later.err.contains("signed-before"), "{}", later.err);
    assert!(step(&cli, &keys, "command-root", &["--force"]).contains("finished"));
}

/// A database on the PostgreSQL of a control plane, with a login for each kind of process.
struct Database {
    host: Up,
    name: &'static str,
}

impl Database {
    fn url(&self, user: &str) -> String {
        let (password, dir) = match user {
            "better_compute" => (password(self.host.data()), self.host.data().join("postgres")),
            other => (other.to_owned(), self.host.data().join("postgres")),
        };
        format!("postgresql://{user}:{password}@localhost/{}?host={}", self.name, dir.display())
    }

    fn make(world: &World, name: &'static str, dev: &[&str]) -> Self {
        let host = Up::start(world, "host", Repo::of_examples(world, "lender").dir());
        let database = Self { host, name };
        let data = database.host.data();
        sql(data, "better_compute", &format!("CREATE DATABASE {name}"));
        for (login, role) in [("control", "bc_control"), ("edge", "bc_gateway")] {
            sql(data, "better_compute", &format!("CREATE ROLE {login} LOGIN PASSWORD '{login}' IN ROLE {role}"));
        }
        let (keys, url) = (world.path("keys").display().to_string(), database.url("better_compute"));
        let words = ["keys", "init", "--keys", &keys, "--trust-domain", "acme.example", "--database", &url];
        let _ = Cli::offline().ok(&[&words[..], dev].concat());
        database
    }

    /// What a process says that does not start.
    fn refused(&self, roles: &str, keys: &str, user: &str) -> String {
        let mut command = process::command("better-compute");
        command.args(["serve", "--roles", roles, "--keys", keys, "--database", &self.url(user), "--fleet", "/nowhere"]);
        let port = free_ports(1)[0].to_string();
        command.args(["--authority", "127.0.0.1:9", "--listen-gateway", &port, "--listen-api", &port]);
        let (code, out, err) = process::output(command);
        assert_ne!(code, 0, "{out}");
        err
    }
}

#[test]
fn no_process_starts_by_a_row_of_another_fleet_or_without_one() {
    let world = World::new();
    let database = Database::make(&world, "swapped", &["--dev"]);
    let path = |name: &str| world.path(name).display().to_string();
    let (keys, edge, signing, following) = (path("keys"), path("edge"), path("signing"), path("following"));
    let _ = Cli::offline().ok(&["keys", "gateway", "--keys", &keys, "--out", &edge, "--name", "127.0.0.1"]);
    let _ = Cli::offline().ok(&["keys", "signing", "--keys", &keys, "--out", &signing]);
    let _ = Cli::offline().ok(&["keys", "source", "--keys", &keys, "--out", &following]);
    for (theft, told) in [
        ("UPDATE control_plane SET fleet_id = gen_random_uuid()", "the row of control_plane in the database says"),
        ("DELETE FROM control_plane", "control_plane of the database has no row"),
    ] {
        sql(database.host.data(), database.name, theft);
        for (roles, keys) in [("api", &keys), ("controllers", &signing), ("source", &following), ("gateway", &edge)] {
            let said = database.refused(roles, keys, "better_compute");
            assert!(said.contains(told) && said.contains("fleet_id"), "{theft}, {roles}: {said}");
        }
    }
}

#[test]
fn a_process_with_more_rights_than_its_roles_need_does_not_start() {
    let world = World::new();
    let database = Database::make(&world, "strict", &[]);
    let path = |name: &str| world.path(name).display().to_string();
    let (keys, edge) = (path("keys"), path("edge"));
    let _ = Cli::offline().ok(&["keys", "gateway", "--keys", &keys, "--out", &edge, "--name", "127.0.0.1"]);
    for (roles, keys, user, why) in [
        ("api", &keys, "better_compute", "the database role is a superuser"),
        ("scheduler", &keys, "better_compute", "the database role is a superuser"),
        ("api", &keys, "edge", "may do less than these roles need"),
        ("gateway", &edge, "better_compute", "may do more than a gateway needs"),
        ("gateway", &edge, "control", "may do more than a gateway needs"),
        ("api", &edge, "control", "whose keys are not in"),
        ("controllers", &edge, "control", "holds no keys that sign"),
        ("gateway", &keys, "edge", "holds no keys of a gateway"),
    ] {
        let said = database.refused(roles, keys, user);
        assert!(said.contains(why), "{roles} as {user}: {said}");
    }
    let said = database.refused("api", &keys, "better_compute");
    assert!(said.contains("IN ROLE bc_control"), "{said}");
}

#[test]
fn every_role_works_with_the_least_keys_and_rights() {
    let world = World::new();
    let database = Database::make(&world, "least", &["--dev"]);
    let repo = Repo::of_examples(&world, "fleet");
    let path = |name: &str| world.path(name).display().to_string();
    let (keys, edge, signing, following) = (path("keys"), path("edge"), path("signing"), path("following"));
    let _ = Cli::offline().ok(&["keys", "gateway", "--keys", &keys, "--out", &edge, "--name", "127.0.0.1"]);
    let _ = Cli::offline().ok(&["keys", "signing", "--keys", &keys, "--out", &signing]);
    let _ = Cli::offline().ok(&["keys", "source", "--keys", &keys, "--out", &following]);
    std::fs::create_dir_all(world.path("served")).expect("a directory");
    let ports: Vec<String> = free_ports(3).iter().map(ToString::to_string).collect();
    let start = |name: &str, user: &str, words: &[&str]| {
        let mut command = process::command("better-compute");
        command.args(["serve", "--roles", name, "--database", &database.url(user)]).args(words);
        Process::start(name, command, &world.path(format!("{}.log", name.replace(',', "-"))))
    };
    let (fleet, gateway) = (repo.dir().display().to_string(), format!("https://{}", ports[2]));
    let mut parts = [
        start(
            "api",
            "control",
            &[
                "--keys",
                &keys,
                "--client",
                &path("served/client.json"),
                "--gateway",
                &gateway,
                "--listen-api",
                &ports[0],
                "--listen-internal",
                &ports[1],
            ],
        ),
        start("source", "control", &["--fleet", &fleet, "--data", &path("source"), "--keys", &following]),
        // These have no keys at all.
        start("scheduler,sinks", "control", &[]),
        start("controllers", "control", &["--keys", &signing]),
        start("gateway", "edge", &["--keys", &edge, "--listen-gateway", &ports[2], "--authority", &ports[1]]),
    ];
    let cli = Cli::of(&world.path("served"));
    until("the API answers", || {
        world.path("served/client.json").is_file() && cli.run(&["status", "--format", "json"]).code == 0
    });
    let said = cli.run(&["status", "--wait", "applied", "--commit", &repo.head(), "--timeout", "90s"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let client: Value =
        serde_json::from_str(&std::fs::read_to_string(world.path("served/client.json")).expect("a file"))
            .expect("JSON");
    let token = cli.ok(&["token", "create", "--quiet", "--pool", "h100"]);
    let mut node = Node::new(&world, "one");
    until("the machine joins", || node.join(&gateway, client["pin"].as_str().expect("a pin"), token.trim()).0 == 0);
    node.run(&[]);
    let said = cli.run(&["status", "--wait", "converged", "--nodes", "1", "--timeout", "90s"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);

    // A command root that is rotated is taken over by whoever signs, once its keys are handed out anew.
    assert!(step(&cli, &keys, "command-root", &[]).contains("begun"));
    until("only those whose keys are of before are waited for", || {
        let behind = cli.run(&["keys", "rotate", "command-root", "--keys", &keys, "--wait", "1s"]);
        behind.code != 0 && behind.err.contains("2 followers have not followed")
    });
    let _ = Cli::offline().ok(&["keys", "signing", "--keys", &keys, "--out", &signing]);
    let _ = Cli::offline().ok(&["keys", "source", "--keys", &keys, "--out", &following]);
    assert!(step(&cli, &keys, "command-root", &[]).contains("switched"));
    drop(node);
    for part in &mut parts {
        assert!(part.stop().success(), "{}", part.log());
    }
}
