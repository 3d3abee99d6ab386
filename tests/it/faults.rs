//! Things die in the middle; nothing is lost, and nothing is half done.

use nix::sys::signal::{Signal, kill};
use tests::{
    Node, Proxy, Repo, Up, World,
    process::{is_alive, mentioning},
    until, until_some,
};

use crate::journey::{change, has_change};

#[test]
fn a_control_plane_that_is_killed_takes_nothing_with_it() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let nodes: Vec<Node> = ["one", "two"].iter().map(|name| Node::running(&world, name, &up, "h100")).collect();
    up.wait_converged(&repo.head(), 2);

    let commit = change(&repo, 10);
    up.process.kill();
    up.restart();
    up.wait_converged(&commit, 2);
    assert!(nodes.iter().all(|node| has_change(node, 10)));
    let ids: Vec<_> = up.nodes().iter().map(|node| node["id"].clone()).collect();
    assert_eq!(ids.len(), 2, "the machines are the same ones");
}

#[test]
fn postgresql_is_killed_and_sessions_stay() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let epoch = up.node(&name_of(&up))["session"]["epoch"].clone();

    let server = up.postgres();
    kill(server, Signal::SIGKILL).expect("PostgreSQL runs");
    until("that server is gone", || !is_alive(server));
    let commit = change(&repo, 10);
    up.wait_converged(&commit, 1);
    assert!(has_change(&node, 10));
    assert!(up.process.ended().is_none() && node.daemon.as_mut().expect("a daemon").ended().is_none());
    assert_eq!(up.node(&name_of(&up))["session"]["epoch"], epoch, "the session stayed");
}

#[test]
fn postgresql_is_killed_while_everything_starts() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let data = world.path("up").display().to_string();
    let killer = std::thread::spawn(move || {
        let server = until_some("PostgreSQL starts", || {
            let found = mentioning(&data).into_iter().find(|(_, line)| line.contains("bin/postgres "));
            found.map(|(pid, _)| pid)
        });
        kill(server, Signal::SIGKILL).ok();
    });
    let up = Up::start(&world, "up", repo.dir());
    killer.join().expect("the server was killed");
    up.wait_applied(&repo.head());
}

fn name_of(up: &Up) -> String {
    up.nodes()[0]["name"].as_str().expect("a name").to_owned()
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_leaves_whole_files_and_converges() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    for ratio in 10..16 {
        let before = node.file("/etc/extra.conf");
        let commit = change(&repo, ratio);
        up.wait_applied(&commit);
        node.kill();
        let now = node.file("/etc/extra.conf");
        assert!(now == before || has_change(&node, ratio), "half a file: {now:?}");
        node.run(&[]);
        up.wait_converged(&commit, 1);
        assert!(has_change(&node, ratio));
    }
}

#[test]
fn a_node_that_was_away_gets_the_newest_spec_and_not_the_ones_between() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    node.kill();
    for ratio in [10, 11, 12] {
        up.wait_applied(&change(&repo, ratio));
    }
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    assert!(has_change(&node, 12));
}

#[test]
fn a_wire_that_is_cut_or_slow_costs_time_only() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let proxy = Proxy::before(up.gateway());
    let mut node = Node::new(&world, "one");
    let through = format!("https://{}", proxy.address());
    let (code, words) = node.join(&through, &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    node.run(&["--gateway", &through]);
    up.wait_converged(&repo.head(), 1);

    proxy.refuse(true);
    proxy.cut();
    let commit = change(&repo, 10);
    up.wait_applied(&commit);
    proxy.drip(true);
    proxy.refuse(false);
    up.wait_converged(&commit, 1);
    assert!(has_change(&node, 10));
}
