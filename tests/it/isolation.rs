//! A control plane keeps to itself, and leaves nothing.

use std::fs;

use tests::{Node, Repo, Up, World, process, until};

#[test]
fn two_control_planes_run_side_by_side() {
    let world = World::new();
    let (first, second) = (Repo::of_examples(&world, "fleet-1"), Repo::of_examples(&world, "fleet-2"));
    let (one, two) = (Up::start(&world, "up-1", first.dir()), Up::start(&world, "up-2", second.dir()));
    let _node = Node::running(&world, "machine", &one, "h100");
    one.wait_converged(&first.head(), 1);
    two.wait_applied(&second.head());
    assert_eq!((one.nodes().len(), two.nodes().len()), (1, 0));
    assert_ne!(one.pin(), two.pin());
}

#[test]
fn a_second_control_plane_in_the_same_directory_is_refused() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let data = up.data().display().to_string();
    let said = up.cli().run(&[
        "up",
        "--dev",
        "--fleet",
        &repo.dir().display().to_string(),
        "--data",
        &data,
        "--listen-api",
        "127.0.0.1:0",
        "--listen-gateway",
        "127.0.0.1:0",
    ]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("in use by process") && said.err.contains("hint:"), "{}", said.err);
    assert!(up.process.ended().is_none());
}

#[test]
fn a_control_plane_that_is_told_to_stop_leaves_no_process_and_no_file_elsewhere() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    assert!(node.daemon.take().expect("a daemon").stop().success());
    assert!(up.process.stop().success(), "{}", up.process.log());
    let data = up.data().display().to_string();
    let left: Vec<_> = process::mentioning(&data);
    assert!(left.is_empty(), "{left:?}");
    let mut names: Vec<String> = fs::read_dir(world.path("."))
        .expect("the world")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["fleet", "one", "up", "up.log"]);
}

#[test]
fn a_control_plane_that_is_killed_takes_its_postgresql_with_it() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let server = up.postgres();
    up.process.kill();
    until("PostgreSQL has noticed", || !process::is_alive(server));
}
