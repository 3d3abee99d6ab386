//! The main job: a commit becomes converged machines.

use tests::{Node, Repo, Up, World, until};

/// A profile on top of the one that the pool has, with a sysctl and a file.
pub(crate) fn change(repo: &Repo, ratio: u32) -> String {
    let profile = format!(
        "profile \"extra\" {{\n  extends \"h100-host\"\n  sysctl {{ vm.dirty_ratio {ratio}; }}\n  file \"/etc/extra.conf\" mode=\"0640\" {{ content \"ratio = {ratio}\\n\"; }}\n}}\n"
    );
    repo.write("profiles/extra.kdl", profile);
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"h100-host\"", "profile \"extra\""));
    repo.commit(&format!("ratio {ratio}"))
}

/// What the machine has of [`change`].
pub(crate) fn has_change(node: &Node, ratio: u32) -> bool {
    node.file("/etc/extra.conf").as_deref() == Some(format!("ratio = {ratio}\n").as_str())
}

#[test]
fn a_commit_reaches_three_machines_and_a_broken_one_changes_nothing() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let nodes: Vec<Node> =
        ["one", "two", "three"].iter().map(|name| Node::running(&world, name, &up, "h100")).collect();
    up.wait_converged(&repo.head(), 3);
    let generations = || up.nodes().iter().map(|node| node["generation"].as_u64().unwrap_or(0)).collect::<Vec<_>>();
    assert_eq!(generations(), [1, 1, 1]);

    let commit = change(&repo, 10);
    up.wait_converged(&commit, 3);
    for node in &nodes {
        assert!(has_change(node, 10), "{}", node.log());
    }
    assert_eq!(generations(), [2, 2, 2]);
    for node in up.nodes() {
        assert_eq!(
            (node["generation"].as_u64(), &node["converged"]),
            (node["observed"].as_u64(), &serde_json::json!(true))
        );
    }

    repo.replace("profiles/extra.kdl", "sysctl {", "sysclt {");
    let broken = repo.commit("a typo");
    up.wait_refused(&broken);
    let source = up.wait_source("fleet-invalid");
    assert_eq!(source["applied"]["commit"], commit.as_str());
    let text = up.cli().ok(&["status"]);
    assert!(text.contains("profiles/extra.kdl:3:") && text.contains("sysctl"), "{text}");
    assert_eq!(generations(), [2, 2, 2]);

    repo.replace("profiles/extra.kdl", "sysclt {", "sysctl {");
    repo.replace("profiles/extra.kdl", "ratio = 10", "ratio = 20");
    let mended = repo.commit("mended");
    up.wait_converged(&mended, 3);
    until("the file has its new text", || nodes.iter().all(|node| has_change(node, 20)));
}

#[test]
fn what_leaves_the_spec_is_undone() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&change(&repo, 10), 1);
    assert!(has_change(&node, 10));
    repo.write("pools/h100.kdl", repo.read("pools/h100.kdl").replace("profile \"extra\"", "profile \"h100-host\""));
    up.wait_converged(&repo.commit("back"), 1);
    assert_eq!(node.file("/etc/extra.conf"), None);
}

#[test]
fn a_commit_that_changes_no_machine_moves_no_generation() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    repo.write(
        "profiles/base.kdl",
        format!("// A comment moves lines and nothing else.\n\n{}", repo.read("profiles/base.kdl")),
    );
    up.wait_converged(&repo.commit("a comment"), 1);
    assert_eq!(up.nodes()[0]["generation"], 1);
}
