//! Commands from the API to the machine and back: none lost, none twice unless it may be, none late.
//!
//! What was done is counted on the machine: a described machine writes each of its boots into a file.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;
use tests::{Node, Proxy, Repo, Up, World, until, until_some};

/// A control plane with one machine.
struct Fleet {
    up: Up,
    node: Node,
    name: String,
    keys: u32,
    _repo: Repo,
    world: World,
}

impl Fleet {
    fn new() -> Self {
        Self::led(|_| Vec::new())
    }

    /// A fleet whose daemon reaches its gateway through a proxy.
    fn behind_proxy() -> (Self, Proxy) {
        let mut proxy = None;
        let fleet = Self::led(|up| {
            let before = proxy.insert(Proxy::before(up.gateway()));
            vec!["--gateway".to_owned(), format!("https://{}", before.address())]
        });
        (fleet, proxy.expect("a proxy"))
    }

    /// A fleet whose daemon is started with the words that `lead` finds.
    fn led(lead: impl FnOnce(&Up) -> Vec<String>) -> Self {
        let world = World::new();
        let repo = Repo::of_examples(&world, "fleet");
        let up = Up::start(&world, "up", repo.dir());
        let mut node = Node::new(&world, "one");
        let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
        assert_eq!(code, 0, "{words}");
        let lead = lead(&up);
        node.run(&lead.iter().map(String::as_str).collect::<Vec<_>>());
        up.wait_converged(&repo.head(), 1);
        let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
        Self { up, node, name, keys: 0, _repo: repo, world }
    }

    /// Queues a command and answers its id.
    fn ask(&mut self, kind: &str, more: &[&str]) -> String {
        self.keys += 1;
        let (node, kind, key) =
            (format!("node={}", self.name), format!("kind={kind}"), format!("idempotencyKey=key-{}", self.keys));
        let words = [&["api", "commands.run", &node, &kind, &key], more].concat();
        self.up.cli().json(&words)["id"].as_str().expect("an id").to_owned()
    }

    fn command(&self, id: &str) -> Value {
        self.up.cli().json(&["api", "commands.get", &format!("command={id}")])
    }

    /// How a command ended: state and reason.
    #[track_caller]
    fn ended(&self, id: &str) -> (String, String) {
        let command = until_some(&format!("{id} ends"), || {
            let command = self.command(id);
            let state = command["state"].as_str().expect("a state");
            ["succeeded", "failed", "rejected", "expired", "cancelled"].contains(&state).then_some(command)
        });
        let word = |key: &str| command[key].as_str().unwrap_or_default().to_owned();
        (word("state"), word("reason"))
    }

    #[track_caller]
    fn wait_state(&self, id: &str, states: &[&str]) {
        until(&format!("{id} is {states:?}"), || {
            states.contains(&self.command(id)["state"].as_str().expect("a state"))
        });
    }

    /// Starts the daemon anew, so that it kills itself at one step.
    fn restart_dying_at(&mut self, step: &str) {
        if self.node.daemon.is_some() {
            self.node.kill();
        }
        self.node.run_with(&[], &[("BCD_KILL_AT", step)]);
    }
}

fn ends(state: &str, reason: &str) -> (String, String) {
    (state.to_owned(), reason.to_owned())
}

#[test]
fn a_reboot_happens_once_and_succeeds_with_the_next_boot() {
    let mut fleet = Fleet::new();
    assert_eq!(fleet.node.boots(), 1);
    let id = fleet.ask("node.reboot", &[]);
    assert_eq!(fleet.ended(&id), ends("succeeded", ""));
    assert_eq!(fleet.command(&id)["result"]["rebooted"], true);
    assert_eq!(fleet.node.boots(), 2);

    // The same request is the same command.
    fleet.keys -= 1;
    assert_eq!(fleet.ask("node.reboot", &[]), id);
    assert_eq!(fleet.node.boots(), 2);
    let journal = fleet.node.journal();
    assert_eq!(journal["commands"].as_array().map(Vec::len), Some(1));
    assert_eq!(journal["commands"][0]["ended"]["state"], "succeeded");
    let (code, words) = fleet.node.said(&["status"]);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("1 in the journal, 0 of them open") && words.contains("node.reboot"), "{words}");
}

#[test]
fn a_daemon_that_is_killed_at_any_step_of_its_journal_does_it_once_or_says_that_it_did_not() {
    let mut fleet = Fleet::new();
    let table = [
        ("before:accept", "succeeded", ""),
        ("after:accept", "failed", "interrupted"),
        ("before:start", "failed", "interrupted"),
        ("after:start", "failed", "interrupted"),
        ("before:effect", "failed", "interrupted"),
        ("after:effect", "failed", "interrupted"),
        ("before:settle", "succeeded", ""),
        ("after:settle", "succeeded", ""),
    ];
    for (step, state, reason) in table {
        let boots = fleet.node.boots();
        fleet.restart_dying_at(step);
        let id = fleet.ask("node.reboot", &[]);
        fleet.node.wait_dead();
        fleet.node.run(&[]);
        assert_eq!(fleet.ended(&id), ends(state, reason), "{step}");
        assert_eq!(fleet.node.boots() - boots, usize::from(state == "succeeded"), "{step}");
    }
}

#[test]
fn what_is_safe_to_run_again_ends_well_wherever_the_daemon_is_killed() {
    let mut fleet = Fleet::new();
    for step in ["accept", "start", "settle"] {
        for side in ["before", "after"] {
            let step = format!("{side}:{step}");
            fleet.restart_dying_at(&step);
            let id = fleet.ask("logs.collect", &[]);
            fleet.node.wait_dead();
            fleet.node.run(&[]);
            assert_eq!(fleet.ended(&id), ends("succeeded", ""), "{step}");
            let journal = fleet.node.journal();
            let runs =
                journal["commands"].as_array().and_then(|all| all.iter().find(|entry| entry["id"] == id.as_str()));
            let runs = runs.and_then(|entry| entry["runs"].as_array()).map_or(0, Vec::len);
            let again = ["after:start", "before:settle"].contains(&step.as_str());
            assert_eq!(runs, 1 + usize::from(again), "{step}");
        }
    }
}

#[test]
fn a_refusal_that_was_written_down_is_the_same_after_a_kill() {
    for step in ["before:refuse", "after:refuse"] {
        let mut fleet = Fleet::new();
        fleet.restart_dying_at(step);
        // It presupposes a generation that never comes.
        let id = fleet.ask("node.reboot", &["minGeneration:=99", "notAfterSeconds:=10"]);
        fleet.node.wait_dead();
        fleet.node.run(&[]);
        assert_eq!(fleet.ended(&id), ends("rejected", "STALE_GENERATION"), "{step}");
        assert_eq!(fleet.node.boots(), 1);
    }
}

#[test]
fn a_frozen_daemon_does_nothing_late() {
    let mut fleet = Fleet::new();
    let daemon = fleet.node.daemon.as_ref().expect("a daemon").pid();
    nix::sys::signal::kill(daemon, Signal::SIGSTOP).expect("frozen");
    let id = fleet.ask("node.reboot", &["notAfterSeconds:=10"]);
    fleet.wait_state(&id, &["dispatched"]);
    let not_after: schema::time::Timestamp =
        fleet.command(&id)["notAfter"].as_str().expect("a deadline").parse().expect("a time");
    until("the deadline has passed", || schema::clock::Clock::now(&schema::clock::SystemClock) > not_after);
    nix::sys::signal::kill(daemon, Signal::SIGCONT).expect("thawed");
    assert_eq!(fleet.ended(&id), ends("rejected", "EXPIRED"));
    assert_eq!(fleet.node.boots(), 1);
    let next = fleet.ask("node.reboot", &[]);
    assert_eq!(fleet.ended(&next), ends("succeeded", ""));
    assert_eq!(fleet.node.boots(), 2);
}

#[test]
fn a_command_for_a_machine_that_is_away_expires_and_is_not_done_when_it_comes_back() {
    let mut fleet = Fleet::new();
    fleet.node.kill();
    let late = fleet.ask("node.reboot", &["notAfterSeconds:=10"]);
    assert_eq!(fleet.ended(&late).0, "expired");
    let early = fleet.ask("node.reboot", &[]);
    fleet.node.run(&[]);
    assert_eq!(fleet.ended(&early), ends("succeeded", ""));
    assert_eq!(fleet.node.boots(), 2);
}

#[test]
fn a_wire_that_is_cut_and_slow_costs_time_only() {
    let (mut fleet, proxy) = Fleet::behind_proxy();
    let mut reboots = Vec::new();
    for round in 0..6 {
        let frozen = round % 3 == 2;
        if frozen {
            // A machine that has answered has a session, and on a frozen wire none would open.
            let asked = fleet.ask("inventory.refresh", &[]);
            assert_eq!(fleet.ended(&asked), ends("succeeded", ""), "round {round}");
            proxy.freeze(true);
        }
        let id = fleet.ask("node.reboot", &[]);
        match round % 3 {
            0 => proxy.cut(),
            1 => proxy.drip(true),
            _ => {
                fleet.wait_state(&id, &["dispatched"]);
                proxy.cut();
                proxy.freeze(false);
            }
        }
        assert_eq!(fleet.ended(&id), ends("succeeded", ""), "round {round}");
        proxy.drip(false);
        reboots.push(id);
    }
    assert_eq!(fleet.node.boots(), 1 + reboots.len());
}

#[test]
fn a_control_plane_that_is_killed_with_commands_in_flight_loses_none() {
    let mut fleet = Fleet::new();
    for _ in 0..3 {
        let reboot = fleet.ask("node.reboot", &[]);
        let logs = fleet.ask("logs.collect", &[]);
        let boots = fleet.node.boots();
        fleet.up.process.kill();
        fleet.up.restart();
        assert_eq!(fleet.ended(&logs), ends("succeeded", ""));
        assert_eq!(fleet.ended(&reboot), ends("succeeded", ""));
        assert!(fleet.node.boots() - boots <= 1);
    }
    assert_eq!(fleet.node.boots(), 4);
}

#[test]
fn a_lost_or_broken_journal_is_said_and_nothing_runs_twice() {
    let mut fleet = Fleet::new();
    let file = fleet.node.state().join("journal.redb");
    for round in 0..2 {
        fleet.restart_dying_at("after:accept");
        let reboot = fleet.ask("node.reboot", &[]);
        fleet.node.wait_dead();
        let journal = fleet.node.journal()["journalId"].clone();
        match round {
            0 => fs::remove_file(&file).expect("removed"),
            _ => {
                let bytes = fs::read(&file).expect("read");
                fs::write(&file, &bytes[..bytes.len() / 2]).expect("cut short");
            }
        }
        fleet.node.run(&[]);
        assert_eq!(fleet.ended(&reboot), ends("failed", "journal-lost"));
        assert_eq!(fleet.node.boots(), 1);
        assert_ne!(fleet.node.journal()["journalId"], journal);
        assert!(fleet.node.log().contains("another one begins"), "{}", fleet.node.log());
    }
    assert!(fleet.node.state().join("journal.redb.broken-1").exists(), "it is kept aside");
}

#[test]
fn a_full_disk_refuses_commands_and_loses_none() {
    let mut fleet = Fleet::new();
    let full = fleet.world.path("full");
    fs::write(&full, "").expect("written");
    fleet.node.kill();
    fleet.node.run_with(&[], &[("BCD_DISK_FULL_WHILE", full.to_str().expect("text"))]);
    let id = fleet.ask("node.reboot", &[]);
    until("it was sent back", || fleet.command(&id)["busyCount"].as_u64().unwrap_or(0) > 0);
    let why = fleet.up.cli().ok(&["why", &id]);
    assert!(why.contains("journal-unusable"), "{why}");
    let node = fleet.up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    until("the node says so itself", || fleet.up.cli().ok(&["why", &node]).contains("state-unwritable"));
    assert_eq!(fleet.node.boots(), 1);
    fs::remove_file(&full).expect("removed");
    assert_eq!(fleet.ended(&id), ends("succeeded", ""));
    assert_eq!(fleet.node.boots(), 2);
    until("that is over", || !fleet.up.cli().ok(&["why", &node]).contains("state-unwritable"));
    assert!(fleet.node.daemon.as_mut().expect("a daemon").ended().is_none(), "it stayed");
}
