//! PostgreSQL is away, disks are full, and two of a kind want the same place.
//!
//! `BETTER_COMPUTE_OUTAGE` says for how many seconds PostgreSQL is away.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::{Signal, kill};
use tests::{Apart, Node, Repo, Up, World, process, process::is_alive, until};

use crate::journey::{change, has_change};

fn run(up: &Up, words: &[&str]) -> String {
    let said = up.cli().run(words);
    format!("{} {}{}", said.code, said.out, said.err)
}

#[test]
fn postgresql_is_away_for_a_while_and_what_was_on_its_way_arrives() {
    let seconds = std::env::var("BETTER_COMPUTE_OUTAGE").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 1);
    let url = format!("https://{}", apart.gateways[0].address);
    let mut node = Node::new(&world, "one");
    let (code, words) = node.join(&url, &apart.pin(), &apart.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    let converged = ["status", "--wait", "converged", "--nodes", "1", "--timeout", "90s"];
    assert_eq!(apart.cli().run(&converged).code, 0);
    let name = node.name_in_fleet();
    let ask = |kind: &str, key: &str| {
        let said = apart.cli().json(&["run", kind, &name, "--no-wait", "--format", "json", "--key", key]);
        said["commands"][0]["id"].as_str().expect("an id").to_owned()
    };
    // The machine has both, and PostgreSQL goes before it can say what came of them.
    node.daemon.as_ref().expect("a daemon").signal(Signal::SIGSTOP);
    let asked = [ask("logs.collect", "a"), ask("node.reboot", "b")];
    let sent = "SELECT count(*) FROM commands WHERE state = 'dispatched'";
    until("both are sent", || apart.sql(sent) == "2");
    // Who would start it again is frozen.
    apart.host().process.signal(Signal::SIGSTOP);
    let server = apart.host().postgres();
    kill(server, Signal::SIGQUIT).expect("PostgreSQL runs");
    until("PostgreSQL is gone", || !is_alive(server));
    node.daemon.as_ref().expect("a daemon").signal(Signal::SIGCONT);
    let (gone, away) = (Instant::now(), Duration::from_secs(seconds));
    until("the machine did it", || node.boots() == 2);
    assert_ne!(apart.cli().run(&["status"]).code, 0);
    while gone.elapsed() < away {
        assert!(apart.control.process.ended().is_none() && apart.gateways[0].process.ended().is_none());
        let said = apart.cli().run(&["commands", "show", &asked[0]]);
        assert_ne!(said.code, 0, "{}", said.out);
        assert!(said.err.contains("UNAVAILABLE"), "{}", said.err);
    }
    apart.host().process.signal(Signal::SIGCONT);
    for id in &asked {
        until("it has ended", || {
            let said = apart.cli().run(&["commands", "show", id, "--format", "json"]);
            said.code == 0 && said.out.contains("succeeded")
        });
    }
    assert_eq!((node.boots(), node.deeds().len()), (2, 1));
    assert_eq!(apart.cli().run(&converged).code, 0);
}

/// A small disk of its own for a directory; `None`, and a word about it, for who may not mount one.
struct Disk(std::path::PathBuf);

impl Disk {
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn of(path: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(path).expect("a directory");
        let size = format!("size={mib}m");
        let made = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).output();
        if made.is_ok_and(|made| made.status.success()) {
            return Some(Self(path.to_owned()));
        }
        println!("skipped: only root mounts a disk that can be filled");
        None
    }

    fn fill(&self) {
        let file = self.0.join("ballast");
        let filled = Command::new("dd").arg("if=/dev/zero").arg(format!("of={}", file.display())).arg("bs=4k").output();
        assert!(!filled.expect("dd").status.success(), "the disk is full");
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("ballast")).expect("removed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).output().ok();
    }
}

#[test]
fn a_machine_whose_disk_is_full_does_nothing_and_goes_on_when_there_is_room() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let node = Node::new(&world, "one");
    let Some(disk) = Disk::of(&node.state(), 32) else { return };
    let up = Up::start(&world, "up", repo.dir());
    let mut node = node;
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    disk.fill();
    let said = run(&up, &["run", "node.reboot", &name, "--no-wait", "--key", "full"]);
    assert!(said.starts_with("0 "), "{said}");
    let command = || up.cli().json(&["commands", &name, "--format", "json"])["commands"][0].take();
    // The journal may have room left in its own file: then the command was written down before it began.
    until("it was sent back, or written down", || command()["busyCount"].as_u64() >= Some(1) || node.boots() == 2);
    let commit = change(&repo, 10);
    up.wait_applied(&commit);
    disk.empty();
    up.wait_converged(&commit, 1);
    until("it did it", || command()["state"] == "succeeded");
    assert_eq!(node.boots(), 2, "once");
    assert!(has_change(&node, 10));
    drop(node);
    drop(disk);
}

#[test]
fn a_database_whose_disk_is_full_loses_nothing_and_goes_on_when_there_is_room() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let Some(disk) = Disk::of(&world.path("up"), 160) else { return };
    let mut up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    disk.fill();
    // The write-ahead log has room left in its segment, and then none.
    let mut taken = 0;
    until("nothing is taken any more", || {
        let key = format!("key-{taken}");
        let payload = format!("reason={}", "x".repeat(200));
        let said = up.cli().run(&["run", "node.reboot", &name, "--no-wait", "--key", &key, "--payload", &payload]);
        taken += u32::from(said.code == 0);
        said.code != 0
    });
    disk.empty();
    let said = || up.cli().run(&["run", "node.reboot", &name, "--key", "afterwards"]);
    until("it takes work again", || said().code == 0);
    up.wait_converged(&repo.head(), 1);
    let ended = up.sql("SELECT count(*) FROM commands WHERE state = 'succeeded'");
    assert_eq!(ended, (taken + 1).to_string(), "what was taken was done");
    assert_eq!(node.boots(), 1 + node.deeds().len());
    assert!(up.process.ended().is_none() && node.daemon.as_mut().expect("a daemon").ended().is_none());
    drop(node);
    drop(up);
    drop(disk);
}

#[test]
fn two_of_a_kind_do_not_share_a_place() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);

    let mut second = process::command("better-compute");
    second.args(["up", "--dev", "--fleet", &repo.dir().display().to_string(), "--data"]).arg(up.data());
    second.args(["--listen-api", "127.0.0.1:0", "--listen-gateway", "127.0.0.1:0"]);
    let (code, _, words) = process::output(second);
    assert_ne!(code, 0);
    assert!(words.contains("in use by process") && words.contains(&up.data().display().to_string()), "{words}");

    let (code, words) = node.again();
    assert_ne!(code, 0);
    assert!(words.contains("another"), "{words}");

    // The first ones did not notice.
    let commit = change(&repo, 10);
    up.wait_converged(&commit, 1);
    assert!(has_change(&node, 10));
}

#[test]
fn two_control_planes_over_one_database_do_everything_once() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut apart = Apart::start(&world, &repo, 1);
    let second = apart.second_control(&world, &repo);
    let url = format!("https://{}", apart.gateways[0].address);
    let mut node = Node::new(&world, "one");
    let (code, words) = node.join(&url, &apart.pin(), &apart.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    let converged = |commit: &str| {
        let said =
            apart.cli().run(&["status", "--wait", "converged", "--commit", commit, "--nodes", "1", "--timeout", "90s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    };
    converged(&repo.head());
    let name = node.name_in_fleet();
    for ratio in 10..13 {
        converged(&change(&repo, ratio));
        assert_eq!(apart.cli().run(&["run", "node.reboot", &name]).code, 0);
    }
    assert_eq!((node.boots(), node.deeds().len()), (4, 3));
    assert_eq!(apart.sql("SELECT count(*) FROM revisions"), "4", "each commit came into force once");

    // The one that held the leases dies; the other one takes over, the gateway's authority included.
    apart.control.process.kill();
    let commit = change(&repo, 20);
    until("the other one applied it", || {
        let applied = apart.sql("SELECT count(*) FROM revisions");
        applied == "5"
    });
    until("and the machine has it", || has_change(&node, 20));
    assert_eq!(apart.sql("SELECT commit FROM revisions ORDER BY seq DESC LIMIT 1"), commit);
    drop(second);
}
