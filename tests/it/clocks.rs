//! Clocks that are wrong by minutes or by decades, and clocks that jump, on machines and on the control plane.
//!
//! The daemon runs under a time of day of its own; what measures time does not change, as on a machine whose clock somebody
//! sets. What was done is read from the machine.

use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::{Bucket, Cli, Node, Proxy, Repo, Time, Up, World, until, until_some};

use crate::journey::change;

const MINUTES: i64 = 60;
const DAYS: i64 = 24 * 60 * MINUTES;

fn ask(up: &Up, node: &str, kind: &str, not_after: u32) -> String {
    ask_with(up, node, kind, not_after, &[])
}

fn ask_with(up: &Up, node: &str, kind: &str, not_after: u32, more: &[&str]) -> String {
    let (node, kind) = (format!("node={node}"), format!("kind={kind}"));
    let key = format!("idempotencyKey={}", schema::id::RequestId::generate());
    let words = ["api", "commands.run", &node, &kind, &key, &format!("notAfterSeconds:={not_after}")];
    let said = up.cli().json(&[&words, more].concat());
    said["id"].as_str().expect("an id").to_owned()
}

fn command(up: &Up, id: &str) -> Value {
    up.cli().json(&["api", "commands.get", &format!("command={id}")])
}

/// How a command ended: state and reason.
#[track_caller]
fn ended(up: &Up, id: &str) -> String {
    let command = until_some(&format!("{id} ends"), || {
        let command = command(up, id);
        (!["pending", "dispatched", "acked", "running"].contains(&command["state"].as_str().expect("a state")))
            .then_some(command)
    });
    let word = |key: &str| command[key].as_str().unwrap_or_default().to_owned();
    format!("{} {}", word("state"), word("reason")).trim().to_owned()
}

fn epoch(up: &Up, node: &str) -> u64 {
    up.node(node)["session"]["epoch"].as_u64().expect("a session")
}

/// A machine whose clock is wrong in its own way.
struct Wrong {
    node: Node,
    time: Time,
    first: Clock,
    then: Clock,
}

/// What a clock says.
#[derive(Debug, Clone, Copy)]
enum Clock {
    Says(&'static str),
    OffBy(i64),
}

impl Clock {
    fn set(self, time: &Time) {
        match self {
            Self::Says(text) => time.be(text),
            Self::OffBy(seconds) => time.be_off(seconds),
        }
    }
}

const FIRST: &str = "1970-01-01T00:01:00Z";
const OLD: &str = "2011-03-01T00:00:00Z";
const FAR: &str = "2040-01-01T00:00:00Z";

/// What each machine's clock says at first, and what it says later.
const TABLE: [(Clock, Clock); 6] = [
    (Clock::Says(FIRST), Clock::OffBy(0)),
    (Clock::Says(OLD), Clock::Says(FAR)),
    (Clock::Says(FAR), Clock::Says(FIRST)),
    (Clock::OffBy(10 * MINUTES), Clock::OffBy(-10 * MINUTES)),
    (Clock::OffBy(-10 * MINUTES), Clock::OffBy(400 * DAYS)),
    (Clock::OffBy(0), Clock::Says(OLD)),
];

#[test]
fn whatever_a_machines_clock_says_it_joins_converges_and_does_nothing_late() {
    let world = World::new();
    if Time::new(&world, "any").is_none() {
        return;
    }
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let (url, pin, token) = (up.gateway_url(), up.pin(), up.token("h100", 6));
    let joins = |(number, (first, then)): (usize, (Clock, Clock))| {
        let name = format!("clock-{number}");
        let time = Time::new(&world, &name).expect("libfaketime is here");
        first.set(&time);
        let mut node = Node::new(&world, &name).under(&time);
        let (code, words) = node.join(&url, &pin, &token);
        assert_eq!(code, 0, "{first:?}: {words}");
        node.run(&[]);
        Wrong { node, time, first, then }
    };
    let mut machines: Vec<Wrong> = thread::scope(|scope| {
        let joins = &joins;
        let joining: Vec<_> = TABLE.into_iter().enumerate().map(|row| scope.spawn(move || joins(row))).collect();
        joining.into_iter().map(|one| one.join().expect("it joins")).collect()
    });
    up.wait_converged(&repo.head(), 6);
    let names: Vec<String> = machines.iter().map(|machine| machine.node.name_in_fleet()).collect();

    // What destroys something waits for proven time, and the time was proven.
    let reboots: Vec<String> = names.iter().map(|name| ask(&up, name, "node.reboot", 600)).collect();
    for (machine, id) in machines.iter().zip(&reboots) {
        assert_eq!(ended(&up, id), "succeeded", "{:?}", machine.first);
        assert_eq!(machine.node.boots(), 2, "{:?}", machine.first);
    }

    // A clock that jumps under an open session ends nothing and makes nothing expire.
    let probes: Vec<String> = names.iter().map(|name| ask(&up, name, "inventory.refresh", 600)).collect();
    assert!(probes.iter().all(|id| ended(&up, id) == "succeeded"));
    let opened: Vec<u64> = names.iter().map(|name| epoch(&up, name)).collect();
    for machine in &machines {
        machine.then.set(&machine.time);
    }
    let probes: Vec<String> = names.iter().map(|name| ask(&up, name, "diag.nvml", 600)).collect();
    for (machine, id) in machines.iter().zip(&probes) {
        assert_eq!(ended(&up, id), "succeeded", "{:?}, then {:?}", machine.first, machine.then);
    }
    assert_eq!(names.iter().map(|name| epoch(&up, name)).collect::<Vec<_>>(), opened, "no session ended");

    // A deadline is judged by proven time, also when the clock jumps while the command waits.
    let daemon = |machine: &Wrong, signal| machine.node.daemon.as_ref().expect("a daemon").signal(signal);
    machines.iter().for_each(|machine| daemon(machine, Signal::SIGSTOP));
    let late: Vec<String> = names.iter().map(|name| ask(&up, name, "node.reboot", 10)).collect();
    let early: Vec<String> = names.iter().map(|name| ask(&up, name, "diag.nvml", 600)).collect();
    for id in &late {
        until("it was sent", || command(&up, id)["state"] == "dispatched");
    }
    for machine in &machines {
        machine.first.set(&machine.time);
    }
    let last: schema::time::Timestamp =
        command(&up, late.last().expect("some"))["notAfter"].as_str().expect("a deadline").parse().expect("a time");
    until("the deadlines have passed", || schema::clock::Clock::now(&schema::clock::SystemClock) > last);
    machines.iter().for_each(|machine| daemon(machine, Signal::SIGCONT));
    for ((machine, late), early) in machines.iter().zip(&late).zip(&early) {
        let told = format!("{:?} and back to {:?}", machine.then, machine.first);
        assert_eq!(ended(&up, late), "rejected EXPIRED", "{told}");
        assert_eq!(ended(&up, early), "succeeded", "{told}");
        assert_eq!(machine.node.boots(), 2, "{told}");
    }

    // And a daemon that begins anew with such a clock is back at once.
    for machine in &mut machines {
        machine.then.set(&machine.time);
        machine.node.kill();
        machine.node.run(&[]);
    }
    let again: Vec<String> = names.iter().map(|name| ask(&up, name, "node.reboot", 600)).collect();
    for (machine, id) in machines.iter().zip(&again) {
        assert_eq!(ended(&up, id), "succeeded", "{:?}", machine.then);
        assert_eq!(machine.node.boots(), 3, "{:?}", machine.then);
        let log = machine.node.log();
        assert!(!log.contains("removed /etc/ssh"), "{:?}: a key that is not over was taken away: {log}", machine.then);
    }
}

#[test]
fn a_control_plane_goes_by_postgresqls_clock_and_says_that_its_hosts_is_another() {
    let world = World::new();
    let Some(time) = Time::new(&world, "up") else { return };
    let repo = Repo::of_examples(&world, "fleet");
    // The host is twenty minutes ahead, and PostgreSQL is not.
    time.be_off(20 * MINUTES);
    let up = Up::start_under(&world, "up", repo.dir(), &time).seen_from_afar();
    up.wait_applied(&repo.head());
    let mut node = Node::new(&world, "node");
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    let reboots = || {
        let boots = node.boots();
        assert_eq!(ended(&up, &ask(&up, &name, "node.reboot", 600)), "succeeded");
        assert_eq!(node.boots(), boots + 1);
    };
    let apart = |how: &str| {
        let problems = up.status()["problems"].as_array().cloned().unwrap_or_default();
        let clock = problems.iter().find(|problem| problem["reason"] == "clock-apart");
        clock.is_some_and(|problem| problem["message"].as_str().is_some_and(|text| text.contains(how)))
    };
    assert!(apart("ahead of PostgreSQL's") && up.process.log().contains("clock-apart"), "{}", up.process.log());
    assert!(up.cli().ok(&["status"]).contains("clocks differ"));
    reboots();
    // It is set back under everything that runs, and is as far off as before.
    time.be_off(-20 * MINUTES);
    until("it says so", || apart("behind PostgreSQL's"));
    reboots();
    time.be_off(0);
    until("both are the same", || !apart(""));
}

#[test]
fn a_control_plane_whose_clock_is_wrong_and_jumps_makes_nothing_late_and_bricks_nobody() {
    let world = World::new();
    let Some(time) = Time::new(&world, "up") else { return };
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start_under(&world, "up", repo.dir(), &time).seen_from_afar();
    up.wait_applied(&repo.head());
    up.be_off(10 * MINUTES);
    let (url, pin, token) = (up.gateway_url(), up.pin(), up.token("h100", 2));
    let mut nodes: Vec<Node> = ["right", "restarted", "fresh"].iter().map(|name| Node::new(&world, name)).collect();
    for node in &mut nodes[..2] {
        let (code, words) = node.join(&url, &pin, &token);
        assert_eq!(code, 0, "{words}");
        node.run(&[]);
    }
    up.wait_converged(&repo.head(), 2);
    let names: Vec<String> = nodes[..2].iter().map(Node::name_in_fleet).collect();
    assert_eq!(ended(&up, &ask(&up, &names[0], "node.reboot", 600)), "succeeded");

    // Twenty minutes back: what it calls ten minutes from now is past for whoever was told a later time.
    up.be_off(-10 * MINUTES);
    until("it answers again", || up.cli().run(&["status"]).code == 0);
    let boots = nodes[1].boots();
    assert_eq!(ended(&up, &ask(&up, &names[1], "node.reboot", 600)), "rejected EXPIRED");
    assert_eq!(nodes[1].boots(), boots);
    assert_eq!(ended(&up, &ask(&up, &names[1], "node.reboot", 3600)), "succeeded");
    assert_eq!(nodes[1].boots(), boots + 1);

    // It says 2036 for a minute. Who knows the time does not believe it, and who knows nothing does not keep it for good.
    up.be_off(3320 * DAYS);
    // People whose clock says so too.
    let there = Cli::of(up.data()).under(&time);
    let token = until_some("it answers again", || {
        let said = there.run(&["token", "create", "--quiet", "--pool", "h100"]);
        (said.code == 0).then(|| said.out.trim().to_owned())
    });
    nodes[1].kill();
    nodes[1].run(&[]);
    let (code, words) = nodes[2].join(&url, &pin, &token);
    assert_eq!(code, 0, "{words}");
    nodes[2].run(&[]);
    until("a machine that knows the time is turned away", || nodes[0].log().contains("CERTIFICATE_EXPIRED"));
    until("the new machine is there in 2036", || nodes[2].log().contains("is open with"));
    up.be_off(0);
    until("it answers again", || up.cli().run(&["status"]).code == 0);
    // Whether two words convince it or it begins anew: its certificate of 2036 keeps it from nothing.
    nodes[2].kill();
    nodes[2].run(&[]);
    up.wait_converged(&repo.head(), 3);
    for node in &nodes {
        let boots = node.boots();
        assert_eq!(ended(&up, &ask(&up, &node.name_in_fleet(), "node.reboot", 3600)), "succeeded", "{}", node.log());
        assert_eq!(node.boots(), boots + 1);
    }
}

/// A store of logs behind a wire: while that is frozen, collecting them goes on.
struct Store {
    bucket: Bucket,
    wire: Proxy,
}

impl Store {
    fn start(world: &World) -> Self {
        let bucket = Bucket::start(world);
        let wire = Proxy::before(bucket.address());
        Self { bucket, wire }
    }

    fn words(&self) -> Vec<String> {
        [vec!["--dev".to_owned()], self.bucket.words_through(self.wire.address())].concat()
    }

    /// Starts a daemon that believes it.
    fn run(&self, node: &mut Node) {
        let (name, authority) = self.bucket.trust();
        node.run_with(&[], &[(&name, &authority)]);
    }

    /// Asks for logs and waits until the machine collects them.
    fn begin(&self, up: &Up, node: &str) -> String {
        self.wire.freeze(true);
        let id = ask(up, node, "logs.collect", 10);
        until("it runs", || command(up, &id)["state"] == "running");
        id
    }
}

#[test]
fn a_machines_clock_that_jumps_ends_nothing_that_waits_or_runs_and_lengthens_no_deadline() {
    let world = World::new();
    let Some(time) = Time::new(&world, "machine") else { return };
    let (repo, store) = (Repo::of_examples(&world, "fleet"), Store::start(&world));
    let words = store.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let up = Up::start_with(&world, "up", &repo.dir().display().to_string(), &words);
    let mut node = Node::new(&world, "one").under(&time);
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    store.run(&mut node);
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();

    let runs = store.begin(&up, &name);
    let next = up.node(&name)["node"]["generation"].as_u64().expect("a generation") + 1;
    let next = format!("minGeneration:={next}");
    let waits = ask_with(&up, &name, "inventory.refresh", 600, &[&next]);
    let late = ask_with(&up, &name, "node.reboot", 10, &[&next]);
    for jump in [
        Clock::OffBy(60 * MINUTES),
        Clock::Says(FIRST),
        Clock::Says(FAR),
        Clock::OffBy(-10 * MINUTES),
        Clock::OffBy(10 * MINUTES),
        Clock::OffBy(-60 * MINUTES),
    ] {
        jump.set(&time);
        // What it does after the jump it does with that clock.
        assert_eq!(ended(&up, &ask(&up, &name, "diag.nvml", 600)), "succeeded", "{jump:?}");
        assert_eq!(command(&up, &runs)["state"], "running", "{jump:?}");
        assert!(command(&up, &waits)["settledAt"].is_null(), "{jump:?}");
    }
    // An hour behind, it is as late as it is.
    assert_ne!(ended(&up, &late), "succeeded");
    up.wait_converged(&change(&repo, 12), 1);
    assert_eq!(ended(&up, &waits), "succeeded");
    store.wire.freeze(false);
    assert_eq!(ended(&up, &runs), "succeeded");
    assert_eq!(node.boots(), 1);
}

#[test]
fn a_control_planes_clock_that_is_set_ahead_is_told_to_machines_that_have_a_session() {
    let world = World::new();
    let Some(time) = Time::new(&world, "up") else { return };
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start_under(&world, "up", repo.dir(), &time).seen_from_afar();
    up.wait_applied(&repo.head());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    let opened = epoch(&up, &name);
    up.be_off(20 * MINUTES);
    until("it answers again", || up.cli().run(&["status"]).code == 0);
    until("the machine is told the time", || epoch(&up, &name) > opened);

    // What was sent to it in time and is past its deadline by PostgreSQL's clock is not begun.
    let daemon = |signal| node.daemon.as_ref().expect("a daemon").signal(signal);
    daemon(Signal::SIGSTOP);
    let late = ask(&up, &name, "node.reboot", 10);
    until("it was sent", || command(&up, &late)["state"] == "dispatched");
    until("its deadline has passed", || up.sql("SELECT bool_and(not_after < compute_now()) FROM commands") == "t");
    daemon(Signal::SIGCONT);
    assert_ne!(ended(&up, &late), "succeeded");
    assert_eq!(ended(&up, &ask(&up, &name, "node.reboot", 600)), "succeeded");
    assert_eq!(node.boots(), 2);
}

#[test]
fn a_control_planes_clock_that_jumps_over_a_deadline_and_back_ends_what_waits_for_good_and_nothing_that_runs() {
    let world = World::new();
    let Some(time) = Time::new(&world, "up") else { return };
    let (repo, store) = (Repo::of_examples(&world, "fleet"), Store::start(&world));
    let words = store.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let up = Up::start_under_with(&world, "up", repo.dir(), &time, &words).seen_from_afar();
    up.wait_applied(&repo.head());
    let (url, pin, token) = (up.gateway_url(), up.pin(), up.token("h100", 2));
    let mut nodes: Vec<Node> = ["there", "away"].iter().map(|name| Node::new(&world, name)).collect();
    for node in &mut nodes {
        let (code, words) = node.join(&url, &pin, &token);
        assert_eq!(code, 0, "{words}");
        store.run(node);
    }
    up.wait_converged(&repo.head(), 2);
    let names: Vec<String> = nodes.iter().map(Node::name_in_fleet).collect();

    let runs = store.begin(&up, &names[0]);
    nodes[1].kill();
    let waits = ask(&up, &names[1], "node.reboot", 600);
    up.be_off(12 * MINUTES);
    assert_eq!(ended(&up, &waits), "expired not-after");
    assert_eq!(command(&up, &runs)["state"], "running");
    up.be_off(0);
    until("it answers again", || up.cli().run(&["status"]).code == 0);
    store.wire.freeze(false);
    assert_eq!(ended(&up, &runs), "succeeded");
    store.run(&mut nodes[1]);
    // Whatever was sent before this was sent by now.
    for name in &names {
        assert_eq!(ended(&up, &ask(&up, name, "inventory.refresh", 3600)), "succeeded");
    }
    assert_eq!((nodes[0].boots(), nodes[1].boots()), (1, 1));
}

#[test]
fn a_person_whose_clock_is_years_off_is_told_of_the_clock() {
    let world = World::new();
    let Some(time) = Time::new(&world, "person") else { return };
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    for (clock, told) in [(OLD, "behind"), (FAR, "ahead")] {
        time.be(clock);
        let said = up.cli().under(&time).run(&["status"]);
        assert!(
            said.code != 0 && said.err.contains("your clock is") && said.err.contains(told),
            "{clock}: {}",
            said.err
        );
    }
}
