//! What people do by hand to a running fleet: let a part stand still, go back, keep a commit out, look at what was.

use std::fs;

use serde_json::Value;
use tests::{Node, Repo, Up, World, until};

fn held(up: &Up) -> Vec<(String, String)> {
    let holds = up.cli().json(&["holds", "--active", "--format", "json"]);
    let items = holds["items"].as_array().cloned().unwrap_or_default();
    let text = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
    items.iter().map(|item| (text(item, "gate"), text(item, "by"))).collect()
}

#[test]
fn a_suspended_pool_waits_and_goes_on_when_it_is_resumed() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let cli = up.cli();

    let said = cli.ok(&["suspend", "pool/h100", "--reason", "benchmark runs", "--owner", "ada", "--until", "4h"]);
    assert!(said.contains("pool/h100 stands still until"), "{said}");
    assert!(held(&up).contains(&("suspend".to_owned(), "pool/h100".to_owned())));
    repo.replace("profiles/base.kdl", "  sysctl {", "  sysctl {\n    \"vm.laptop_mode\" \"0\"");
    let commit = repo.commit("a change that waits");
    up.wait_applied(&commit);
    let plan = cli.json(&["plan", "--newest", "--format", "json"]);
    assert_eq!(plan["nodes"][0]["held"][0]["gate"], "suspend", "{plan}");
    let text = cli.ok(&["plan", "--newest"]);
    assert!(text.contains("1 machine waits for the suspension of pool/h100"), "{text}");
    assert!(text.contains("ada: benchmark runs"), "{text}");
    let status = cli.ok(&["status"]);
    assert!(status.contains("benchmark runs (ada)"), "{status}");
    let holds = cli.ok(&["holds"]);
    assert!(holds.contains("when it ends: 1 live"), "{holds}");

    let _ = cli.ok(&["resume", "pool/h100"]);
    up.wait_converged(&commit, 1);
    until("nothing waits", || {
        let nodes = cli.json(&["get", "nodes", "--format", "json"]);
        nodes["nodes"][0]["converged"] == true && nodes["nodes"][0]["generation"].as_u64() == Some(2)
    });
    assert!(!held(&up).contains(&("suspend".to_owned(), "pool/h100".to_owned())));
}

#[test]
fn the_way_back_needs_no_git_host_and_a_bad_commit_stays_away() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let good = repo.head();
    let up = Up::start(&world, "up", repo.dir());
    let cli = up.cli();
    up.wait_applied(&good);
    repo.replace("profiles/base.kdl", "  sysctl {", "  sysctl {\n    \"vm.laptop_mode\" \"5\"");
    let bad = repo.commit("a mistake");
    up.wait_applied(&bad);
    let applied = || up.status()["sources"][0]["applied"]["commit"].as_str().unwrap_or_default().to_owned();

    let away = world.path("away");
    fs::rename(repo.dir(), &away).expect("the git host goes down");
    let dry = cli.ok(&["rollback", &good[..9], "--dry-run"]);
    assert!(dry.contains("sysctl.vm.laptop_mode") && dry.contains("- 5"), "{dry}");
    assert_eq!(applied(), bad);
    assert_eq!(cli.run(&["rollback", &good[..9], "--reason", "chrony"]).code, 2);
    let other = format!("from={good}");
    let id = format!("revision={}", &good[..9]);
    let moved = cli.run(&["api", "fleet.rollback", &id, "reason=x", &other, "idempotencyKey=moved"]);
    assert!(moved.code != 0 && applied() == bad, "what was not shown is not taken back: {}", moved.out);
    let said = cli.ok(&["rollback", &good[..9], "--reason", "chrony does not start", "--owner", "ada", "--yes"]);
    assert!(said.contains(&format!("in quarantine: {bad}")), "{said}");
    until("the rollback is in force", || applied() == good);

    let history = cli.json(&["history", "--format", "json"]);
    let revisions = history["revisions"].as_array().expect("revisions");
    assert_eq!(revisions.len(), 3, "{history}");
    assert_eq!(revisions[0]["reason"], "chrony does not start");
    let changed = cli.json(&["history", "profile/base", "--format", "json"]);
    assert_eq!(changed["revisions"].as_array().map(Vec::len), Some(3), "{changed}");
    assert!(cli.ok(&["history"]).contains("back to rev_"));

    fs::rename(&away, repo.dir()).expect("the git host is back");
    assert!(cli.ok(&["holds"]).contains("chrony does not start"));
    repo.replace("profiles/base.kdl", "\"vm.laptop_mode\" \"5\"", "\"vm.laptop_mode\" \"0\"");
    let next = repo.commit("the right value");
    up.wait_applied(&next);

    let _ = cli.ok(&["quarantine", "--release", &bad]);
    let _ = cli.ok(&["quarantine", &next[..10], "--reason", "not this one either"]);
    assert_eq!(applied(), next);
    assert!(cli.ok(&["status"]).contains("not this one either"));
}

#[test]
fn going_back_over_a_rename_leaves_no_pool_and_no_machine_behind() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let old = repo.head();
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&old, 1);
    let cli = up.cli();
    for path in ["pools/h100.kdl", "nodes/fra1-r12.kdl", "tenants/research.kdl", "batches/2026-12-kernel.kdl"] {
        let text = repo.read(path).replace("\"h100\"", "\"hopper\"").replace("pool/h100", "pool/hopper");
        repo.write(path, text);
    }
    repo.write("moved.kdl", "moved from=\"pool/h100\" to=\"pool/hopper\"\n");
    let renamed = repo.commit("the pool has another name");
    up.wait_applied(&renamed);
    let pool = || cli.json(&["get", "nodes", "--format", "json"])["nodes"][0]["pool"].clone();
    assert_eq!(pool(), "hopper");

    let _ = cli.ok(&["rollback", "--previous", "--reason", "the old name was better", "--owner", "ada", "--yes"]);
    until("the rollback is in force", || up.status()["sources"][0]["applied"]["commit"] == old.as_str());
    assert_eq!(pool(), "h100");
    let names = |value: Value| -> Vec<String> {
        let pools = value["pools"].as_array().cloned().unwrap_or_default();
        pools.iter().filter_map(|pool| pool["name"].as_str().map(str::to_owned)).collect()
    };
    assert!(!names(cli.json(&["get", "pools", "--format", "json"])).contains(&"hopper".to_owned()));
    assert_eq!(up.status()["retained"]["count"], 0);
}
