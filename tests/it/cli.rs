//! What people type, without a control plane and against one.

use std::fs;

use tests::{Cli, Node, Repo, Up, World, repo};

#[test]
fn the_example_fleet_has_no_mistake() {
    let said = Cli::offline().run(&["check", &repo::examples().display().to_string()]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("ok: fleet acme"), "{}", said.out);
}

#[test]
fn every_mistake_is_reported_at_once_with_its_place_and_help() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.replace("pools/h100.kdl", "site \"fra1\"", "site \"fra9\"");
    repo.replace("profiles/base.kdl", "  sysctl {", "  sysclt {");
    let dir = repo.dir().display().to_string();
    let said = Cli::offline().run(&["check", &dir]);
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("pools/h100.kdl:3:")
            && said.out.contains("profiles/base.kdl:5:")
            && said.out.contains("2 errors"),
        "{}",
        said.out
    );

    for format in ["json", "github", "sarif"] {
        let said = Cli::offline().run(&["check", &dir, "--format", format]);
        assert_eq!(said.code, 3);
        assert!(
            said.out.contains("pools/h100.kdl") && said.out.contains("profiles/base.kdl"),
            "{format}: {}",
            said.out
        );
    }
}

#[test]
fn a_plan_between_two_commits_needs_no_control_plane() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let base = repo.head();
    repo.replace("profiles/h100-host.kdl", "\"2MiB\" 8192", "\"2MiB\" 9000");
    let dir = repo.dir().display().to_string();
    let cli = Cli::offline();

    let tree = cli.run(&["plan", &dir, "--exit-code"]);
    assert_eq!(tree.code, 2, "{}{}", tree.out, tree.err);
    let head = repo.commit("more huge pages");
    let between = cli.ok(&["plan", "--base", &base, "--head", &head, "--repo", &dir]);
    assert!(between.contains("profile/h100-host") && between.contains("h100"), "{between}");
    let again = cli.ok(&["plan", "--base", &base, "--head", &head, "--repo", &dir]);
    assert_eq!(between, again, "the same input gives the same bytes");
    let nothing = cli.run(&["plan", "--base", &head, "--head", &head, "--repo", &dir, "--exit-code"]);
    assert_eq!(nothing.code, 0, "{}", nothing.out);

    repo.replace("profiles/h100-host.kdl", "hugepages", "hugepagse");
    let broken = repo.commit("a typo");
    let said = cli.run(&["plan", "--base", &base, "--head", &broken, "--repo", &dir]);
    assert_eq!(said.code, 3, "{}", said.out);
    assert_eq!(cli.run(&["plan", "--base", &base, "--head", &broken, "--repo", &dir, "--exit-code"]).code, 1);
}

#[test]
fn a_value_is_explained_by_its_place_and_layer() {
    let dir = repo::examples().display().to_string();
    let said = Cli::offline().ok(&["explain", "node/fra1-r12-u04", "sysctl.net.core.somaxconn", "--dir", &dir]);
    assert!(
        said.contains("profile/gpu-host")
            && said.contains("profiles/gpu-host.kdl:")
            && said.contains("profiles/base.kdl:"),
        "{said}"
    );
    assert!(Cli::offline().ok(&["explain", "BC0203"]).starts_with("# BC0203"));
    assert_eq!(Cli::offline().run(&["explain", "BC9999"]).code, 2);
}

#[test]
fn a_control_plane_that_is_not_there_is_said_in_one_sentence() {
    let world = World::new();
    let said = Cli::of(&world.path("nothing")).run(&["status"]);
    assert_eq!(said.code, 5);
    assert!(said.err.contains("no control plane is known") && said.err.contains("hint:"), "{}", said.err);
}

#[test]
fn what_is_running_can_be_listed_and_held() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let cli = up.cli();
    for kind in ["nodes", "pools", "sites", "plans", "joins", "tokens"] {
        let text = cli.ok(&["get", kind]);
        assert!(text.lines().count() >= 2, "{kind}: {text}");
        assert!(
            cli.json(&["get", kind, "--format", "json"])[kind].as_array().is_some_and(|items| !items.is_empty()),
            "{kind}"
        );
    }
    let plan = cli.ok(&["plan", "--newest"]);
    assert!(plan.contains("applied"), "{plan}");
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    let _ = cli.ok(&["api", "nodes.cordon", &format!("node={name}"), "reason=fan 3", "idempotencyKey=fan-3"]);
    assert_eq!(up.node(&name)["node"]["cordoned"], true);
    let _ = cli.ok(&["api", "nodes.uncordon", &format!("node={name}"), "idempotencyKey=fan-3-back"]);
    assert_eq!(up.node(&name)["node"]["cordoned"], false);
}

#[test]
fn a_damaged_client_file_is_made_anew() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    let path = up.data().join("client.json");
    let whole = fs::read_to_string(&path).expect("client.json");
    fs::write(&path, &whole[..whole.len() / 2]).expect("half a file");
    assert_eq!(up.cli().run(&["status"]).code, 1);
    up.process.kill();
    up.restart_anywhere();
    up.wait_applied(&repo.head());
}

#[test]
fn keys_and_tokens_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    for path in ["client.json", "keys/secret", "keys/control-plane.sealed"] {
        let mode = fs::metadata(up.data().join(path))
            .unwrap_or_else(|error| unreachable!("{path}: {error}"))
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}
