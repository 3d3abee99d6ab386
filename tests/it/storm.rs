//! Many commands while everything around them is cut, harmed, frozen and killed: none lost, none twice, none late.
//!
//! A control plane, two gateways, PostgreSQL and some machines run as processes of their own, and between any two of them is
//! a wire ([`weather`] says what befalls them, by numbers that follow from a seed). What came of each command is judged by
//! what the machines kept of it themselves ([`promise`]).
//!
//! `BETTER_COMPUTE_STORM` says how many commands, `BETTER_COMPUTE_STORM_SEED` which storm, `BETTER_COMPUTE_STORM_MACHINES` on
//! how many machines.

use std::{fs, thread};

use schema::{
    clock::{Clock as _, SystemClock},
    time::Timestamp,
};
use serde_json::Value;
use tests::{Apart, Cli, Node, Proxy, Repo, World, until, until_some};

mod promise;
mod weather;

use promise::Uptime;
use weather::{Dice, Sky};

const KINDS: [&str; 5] = ["node.reboot", "node.reboot", "logs.collect", "inventory.refresh", "diag.nvml"];
const OPEN: &str = "('pending', 'dispatched', 'acked', 'running')";

/// So many ask at the same time.
const AT_ONCE: usize = 5;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A machine behind a wire of its own.
#[derive(Debug)]
struct Machine {
    node: Node,
    name: String,
    wire: Proxy,
    frozen: bool,
    /// What stood in journals that it lost.
    lost: Vec<Value>,
    /// When its power failed.
    outages: Vec<Timestamp>,
}

impl Machine {
    /// Everything that its journals ever kept of commands, those that were lost among them.
    fn entries(&self) -> Vec<Value> {
        let kept = self.node.journal()["commands"].as_array().cloned().unwrap_or_default();
        self.lost.iter().cloned().chain(kept).collect()
    }

    /// Takes its journal away while its daemon does not run.
    fn lose_journal(&mut self) {
        let file = self.node.state().join("journal.redb");
        if file.exists() {
            self.lost = self.entries();
            fs::remove_file(file).expect("removed");
        }
    }

    /// Its power failed while its daemon does not run: it boots.
    fn lose_power(&mut self) {
        bcd::hardware::boot::next(&self.node.root()).expect("it boots");
        self.outages.push(SystemClock.now());
    }

    /// Starts its daemon, which kills itself at a step of its journal when one is named.
    fn start(&mut self, dying_at: Option<&str>) {
        let environment: Vec<(&str, &str)> = dying_at.iter().map(|step| ("BCD_KILL_AT", *step)).collect();
        self.node.run_with(&["--gateway", &self.through()], &environment);
        self.frozen = false;
    }

    /// Starts a second daemon on the same state. One of the two goes.
    fn double(&mut self) {
        let mut second = self.node.beside(&["--gateway", &self.through()], &[]);
        let first = self.node.daemon.as_mut().expect("a daemon");
        let is_first = until_some("one of two daemons goes", || match (first.ended(), second.ended()) {
            (None, None) => None,
            (Some(_), _) => Some(true),
            (None, Some(status)) => Some({
                assert!(!status.success(), "a second daemon ends as if nothing was wrong");
                false
            }),
        });
        if is_first {
            self.node.daemon = Some(second);
        }
    }

    fn through(&self) -> String {
        format!("https://{}", self.wire.address())
    }
}

/// A command that is to be asked for, on some machines.
struct Intent {
    kind: &'static str,
    machines: Vec<usize>,
    word: String,
    line: Vec<String>,
}

impl Intent {
    /// Asks as often as it takes until somebody hears it, and answers what was queued.
    fn ask(&self, cli: &Cli) -> Value {
        let line: Vec<&str> = self.line.iter().map(String::as_str).collect();
        let mut said = cli.run(&line);
        until("the control plane takes the command", || {
            said.code == 0 || {
                said = cli.run(&line);
                said.code == 0
            }
        });
        serde_json::from_str(&said.out).expect("JSON")
    }
}

/// A command that was asked for.
#[derive(Debug)]
struct Asked {
    id: String,
    machine: usize,
    kind: &'static str,
    /// The word that the machine keeps with what the command did.
    word: String,
}

struct Storm {
    apart: Apart,
    machines: Vec<Machine>,
    repo: Repo,
    asked: Vec<Asked>,
    uptime: Uptime,
    words: u32,
    _world: World,
}

impl Storm {
    fn new(machines: usize) -> Self {
        let world = World::new();
        let repo = Repo::of_examples(&world, "fleet");
        let apart = Apart::start(&world, &repo, 2);
        let (pin, token) = (apart.pin(), apart.token("h100", machines));
        let gateways: Vec<_> = apart.gateways.iter().map(|gateway| gateway.address).collect();
        let joins = |number: usize| {
            let node = Node::new(&world, &format!("machine-{number}"));
            let wire = Proxy::before_any(gateways.clone());
            let (code, words) = node.join(&format!("https://{}", wire.address()), &pin, &token);
            assert_eq!(code, 0, "{words}");
            let (name, lost, outages) = (node.name_in_fleet(), Vec::new(), Vec::new());
            let mut machine = Machine { name, node, wire, frozen: false, lost, outages };
            machine.start(None);
            machine
        };
        let machines = thread::scope(|scope| {
            let joins = &joins;
            let joining: Vec<_> = (0..machines).map(|number| scope.spawn(move || joins(number))).collect();
            joining.into_iter().map(|one| one.join().expect("it joins")).collect()
        });
        let storm = Self { apart, machines, repo, asked: Vec::new(), uptime: Uptime::now(), words: 0, _world: world };
        storm.wait_converged();
        storm
    }

    fn wait_converged(&self) {
        let (commit, count) = (self.repo.head(), self.machines.len().to_string());
        let said = self.apart.cli().run(&[
            "status",
            "--wait",
            "converged",
            "--commit",
            &commit,
            "--nodes",
            &count,
            "--timeout",
            "90s",
        ]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    }

    /// What to ask for next.
    fn intent(&mut self, dice: &mut Dice) -> Intent {
        let kind = dice.one_of(&KINDS);
        let count = 1 + dice.below(self.machines.len());
        let first = dice.below(self.machines.len());
        let machines: Vec<usize> = (0..count).map(|step| (first + step) % self.machines.len()).collect();
        let not_after = ["10s", "20s", "10m"][dice.below(3)];
        self.words += 1;
        let word = format!("word-{}", self.words);
        let (most, reason) = (count.to_string(), format!("reason={word}"));
        let mut line = vec!["run", kind, "--no-wait", "--format", "json", "--key", &word];
        line.extend(["--not-after", not_after, "--most", &most]);
        if kind == "node.reboot" {
            line.extend(["--payload", &reason]);
        }
        line.extend(machines.iter().map(|machine| self.machines[*machine].name.as_str()));
        let line = line.into_iter().map(str::to_owned).collect();
        Intent { kind, machines, word, line }
    }

    /// Asks for so many things at once.
    fn ask(&mut self, dice: &mut Dice, count: usize) {
        let intents: Vec<Intent> = (0..count).map(|_| self.intent(dice)).collect();
        let cli = self.apart.cli();
        let queued: Vec<Value> = thread::scope(|scope| {
            let asking: Vec<_> = intents.iter().map(|intent| scope.spawn(|| intent.ask(&cli))).collect();
            asking.into_iter().map(|one| one.join().expect("asked")).collect()
        });
        for (intent, queued) in intents.into_iter().zip(queued) {
            let Intent { kind, machines, word, .. } = intent;
            for command in queued["commands"].as_array().expect("commands") {
                let name = command["node"].as_str().expect("a node");
                let machine = machines.iter().find(|machine| self.machines[**machine].name == name);
                let id = command["id"].as_str().expect("an id").to_owned();
                self.asked.push(Asked { id, machine: *machine.expect("asked for"), kind, word: word.clone() });
            }
        }
    }

    /// Takes back one of the newest commands, if somebody hears it.
    fn take_back(&self, dice: &mut Dice) {
        let newest = self.asked.len().min(10);
        if let Some(asked) = newest.checked_sub(1).map(|_| &self.asked[self.asked.len() - 1 - dice.below(newest)]) {
            let _ = self.apart.cli().run(&["commands", "cancel", &asked.id]);
        }
    }

    /// What stands in the database about every command, by the API and in the order in which they were asked for.
    fn ended(&self) -> Vec<Value> {
        until("every command has ended", || {
            let open = format!("SELECT count(*) FROM commands WHERE state IN {OPEN}");
            self.apart.sql_if_there(&open).is_some_and(|count| count == "0")
        });
        let pages = self.asked.chunks(200).flat_map(|page| {
            let ids: Vec<&str> = page.iter().map(|asked| asked.id.as_str()).collect();
            let exactly = format!("commands:={}", serde_json::to_string(&ids).expect("JSON"));
            let said = self.apart.cli().json(&["api", "commands.list", &exactly]);
            let found = said["items"].as_array().cloned().unwrap_or_default();
            ids.iter()
                .map(|id| found.iter().find(|command| command["id"] == *id).cloned().unwrap_or_default())
                .collect::<Vec<_>>()
        });
        pages.collect()
    }
}

#[test]
fn whatever_happens_nothing_is_lost_twice_or_late() {
    let (count, seed) = (number("BETTER_COMPUTE_STORM", 400), number("BETTER_COMPUTE_STORM_SEED", 7));
    let machines = usize::try_from(number("BETTER_COMPUTE_STORM_MACHINES", 6)).expect("a number");
    let again = format!(
        "BETTER_COMPUTE_STORM={count} BETTER_COMPUTE_STORM_SEED={seed} BETTER_COMPUTE_STORM_MACHINES={machines} \
         cargo test -p tests --test it storm"
    );
    println!("to run it again: {again}");
    let mut storm = Storm::new(machines);
    let (mut dice, mut sky) = (Dice(seed), Sky::default());
    while storm.asked.len() < usize::try_from(count).expect("a number") {
        if !sky.is_dark() {
            let count = 1 + dice.below(AT_ONCE);
            storm.ask(&mut dice, count);
        }
        if !sky.is_dark() && dice.below(3) == 0 {
            storm.take_back(&mut dice);
        }
        sky.change(&mut storm, &mut dice);
    }
    sky.clear(&mut storm);
    let ended = storm.ended();
    storm.wait_converged();
    let broken = promise::broken(&storm, &ended);
    assert!(
        broken.is_empty(),
        "{} promises are broken:\n{}\n{}\nto run it again: {again}",
        broken.len(),
        broken.join("\n"),
        sky.told()
    );
    println!("{}", promise::summary(&ended, &sky));
}
