//! Gateways restart one after the other, as an upgrade does, while commands are on their way.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;
use tests::{Apart, Cli, Node, Repo, World, until};

const MACHINES: usize = 4;
const ROUNDS: usize = 3;
const KINDS: [&str; 4] = ["node.reboot", "logs.collect", "inventory.refresh", "diag.nvml"];

/// Asks for commands on all machines until it is told to stop, and answers their ids with the word of each reboot.
fn ask(cli: &Cli, names: &[String], stop: &AtomicBool) -> Vec<(String, String)> {
    let mut asked = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let kind = KINDS[number % KINDS.len()];
        let (word, most) = (format!("word-{number}"), MACHINES.to_string());
        let reason = format!("reason={word}");
        let mut line = vec!["run", kind, "--no-wait", "--format", "json", "--key", &word, "--most", &most];
        if kind == "node.reboot" {
            line.extend(["--payload", &reason]);
        }
        line.extend(names.iter().map(String::as_str));
        let queued: Value = serde_json::from_str(&cli.ok(&line)).expect("JSON");
        for command in queued["commands"].as_array().expect("commands") {
            let id = command["id"].as_str().expect("an id").to_owned();
            asked.push((id, if kind == "node.reboot" { word.clone() } else { String::new() }));
        }
    }
    asked
}

#[test]
fn gateways_restart_one_after_the_other_and_no_command_is_lost_or_done_twice() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 2);
    let (pin, token) = (apart.pin(), apart.token("h100", MACHINES));
    let urls: Vec<String> = apart.gateways.iter().map(|gateway| format!("https://{}", gateway.address)).collect();
    let mut nodes = Vec::new();
    for number in 0..MACHINES {
        let mut node = Node::new(&world, &format!("machine-{number}"));
        let (code, words) = node.join(&urls[number % 2], &pin, &token);
        assert_eq!(code, 0, "{words}");
        node.run(&["--gateway", &urls[number % 2], "--gateway", &urls[1 - number % 2]]);
        nodes.push(node);
    }
    let converged = ["status", "--wait", "converged", "--nodes", "4", "--timeout", "90s"];
    assert_eq!(apart.cli().run(&converged).code, 0);
    let names: Vec<String> = nodes.iter().map(Node::name_in_fleet).collect();

    let (cli, stop) = (apart.cli(), AtomicBool::new(false));
    let connected = || cli.json(&["status", "--format", "json"])["nodes"]["connected"] == MACHINES;
    let asked = thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&cli, &names, &stop));
        for _ in 0..ROUNDS {
            for gateway in &mut apart.gateways {
                assert!(gateway.process.stop().success(), "{}", gateway.process.log());
                gateway.restart();
                until("every machine has a session", connected);
            }
        }
        stop.store(true, Ordering::SeqCst);
        asking.join().expect("asked")
    });
    assert!(asked.len() >= ROUNDS * MACHINES, "{} commands were on their way", asked.len());

    let open = "SELECT count(*) FROM commands WHERE state IN ('pending', 'dispatched', 'acked', 'running')";
    until("every command has ended", || apart.sql(open) == "0");
    let others = "SELECT id, kind, state, reason, message FROM commands WHERE state <> 'succeeded'";
    assert_eq!(apart.sql(others), "", "nothing but success, for nothing was late");
    assert_eq!(apart.sql("SELECT count(*) FROM commands"), asked.len().to_string());
    for node in &nodes {
        let mut words: Vec<String> = node.deeds().into_iter().map(|deed| deed.to).collect();
        let did = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), did, "twice");
        let wanted = asked.iter().filter(|(_, word)| !word.is_empty()).count() / MACHINES;
        assert!(did <= wanted && node.boots() == did + 1, "{did} of {wanted}, {} boots", node.boots());
    }
    println!("{} commands over {} restarts", asked.len(), 2 * ROUNDS);
}
