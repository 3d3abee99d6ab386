//! A machine that was switched off for weeks: its certificate is over, and what it trusted was replaced twice.
//!
//! The control plane runs under a clock that leaps, and so does its database; the machine's own clock runs with them.

use tests::{Node, Repo, Time, Up, World, until, until_some};

use crate::journey::change;

const DAYS: i64 = 24 * 3600;

/// Leaps to so many days from now.
fn leap(up: &mut Up, node: &Time, days: i64) {
    node.be_off(days * DAYS);
    up.be_off(days * DAYS);
    // It was restarted now and then in all that time.
    up.process.stop();
    up.restart();
}

fn rotate(up: &Up, kind: &str) {
    for step in ["begun", "switched", "finished"] {
        let force: &[&str] = if step == "begun" { &[] } else { &["--force"] };
        let said = up.cli().ok(&[&["keys", "rotate", kind], force].concat());
        assert!(said.contains(step), "{said}");
    }
}

fn trust(up: &Up, node: &str) -> u64 {
    up.node(node)["identity"]["trustVersion"].as_u64().unwrap_or_default()
}

fn is_connected(up: &Up, node: &str) -> bool {
    up.node(node)["node"]["connectivity"] == "connected"
}

#[test]
fn a_machine_that_was_off_across_three_rotations_comes_back_by_itself_and_after_a_month_with_one_yes() {
    let world = World::new();
    let (Some(time), Some(machine)) = (Time::new(&world, "up"), Time::new(&world, "machine")) else { return };
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start_under(&world, "up", repo.dir(), &time);
    up.wait_applied(&repo.head());
    let mut node = Node::new(&world, "away").under(&machine);
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    let id = up.node(&name)["node"]["id"].clone();

    // Off for four weeks, over an authority of nodes, the root of commands and the next authority of nodes.
    node.daemon.as_mut().expect("a daemon").stop();
    until("it is gone", || !is_connected(&up, &name));
    leap(&mut up, &machine, 9);
    rotate(&up, "node-ca");
    leap(&mut up, &machine, 18);
    rotate(&up, "command-root");
    rotate(&up, "node-ca");
    leap(&mut up, &machine, 28);
    let commit = change(&repo, 12);
    up.wait_applied(&commit);
    node.run(&[]);
    until("it is back by itself", || is_connected(&up, &name));
    up.wait_converged(&commit, 1);
    until("it believes what is believed now", || trust(&up, &name) == 7);
    let boots = node.boots();
    let said = up.cli().run(&["run", "node.reboot", &name]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(node.boots(), boots + 1);

    // Off for seven weeks: it waits for one yes, and then it is back.
    node.daemon.as_mut().expect("a daemon").stop();
    leap(&mut up, &machine, 28 + 25);
    rotate(&up, "node-ca");
    leap(&mut up, &machine, 28 + 50);
    node.run(&[]);
    let join = until_some("it asks to come back", || {
        let joins = up.cli().json(&["api", "joins.list"]);
        let waits = |join: &&serde_json::Value| join["state"] == "waiting";
        joins["items"].as_array()?.iter().find(waits).cloned()
    });
    assert_eq!(join["reason"], "renewal-too-late");
    assert!(!is_connected(&up, &name));
    let why = up.cli().ok(&["why", &format!("node/{name}")]);
    let yes = format!("better-compute joins approve {}", join["id"].as_str().expect("an id"));
    assert!(why.contains(&yes), "{why}");
    let told = until_some("bcd status says so too", || {
        let told = node.said(&["status"]).1;
        told.contains("renewal-too-late").then_some(told)
    });
    assert!(told.contains("\ncertificate     end") && told.contains("session         none"), "{told}");
    let _ = up.cli().ok(&["joins", "approve", join["id"].as_str().expect("an id")]);
    node.kill();
    node.run(&[]);
    until("it is back after one yes", || is_connected(&up, &name));
    up.wait_converged(&commit, 1);
    assert_eq!(up.node(&name)["node"]["id"], id, "it is the machine that it was");
}
