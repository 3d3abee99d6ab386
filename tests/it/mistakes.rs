//! Mistakes that people and their tools make in a fleet repository. Whatever happens, nothing goes that nobody removed.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use tests::{Node, Repo, Up, World};

/// Sites, pools and machines that the control plane has, and how many objects any plan of it took away. Batches are not
/// counted: one whose document is gone asks for nothing any more, which is the careful side.
fn in_force(up: &Up) -> (BTreeSet<String>, usize) {
    let names = |kind: &str| {
        let listed = up.cli().json(&["get", kind, "--format", "json"]);
        let items = listed[kind].as_array().cloned().unwrap_or_default();
        items
            .into_iter()
            .map(move |item| format!("{kind}/{}", item["name"].as_str().expect("a name")))
            .collect::<Vec<_>>()
    };
    let all = ["sites", "pools", "nodes"].into_iter().flat_map(names).collect();
    let plans = up.cli().json(&["api", "plans.list", "limit:=200"]);
    let plans = plans["items"].as_array().cloned().expect("plans");
    let removed = |plan: &Value| {
        let id = plan["id"].as_str().expect("an id");
        let document = up.cli().json(&["api", "plans.get", &format!("id={id}")])["document"].take();
        let goes =
            |one: &&Value| one["change"] == "remove" && !one["object"].as_str().expect("a name").starts_with("batch/");
        document["objects"].as_array().expect("objects").iter().filter(goes).count()
    };
    (all, plans.iter().map(removed).sum())
}

#[test]
fn no_mistake_in_a_repository_removes_anything() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.write("sites/spare.kdl", "site \"spare\" {\n  region \"eu\"\n}\n");
    repo.commit("a site that nothing needs");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "machine", &up, "h100");
    let good = repo.head();
    up.wait_converged(&good, 1);
    let (before, _) = in_force(&up);
    let motd = node.file("/etc/motd");
    let kept = |mistake: &str| {
        let (after, removed) = in_force(&up);
        assert!(before.is_subset(&after), "{mistake}: {before:?} became {after:?}");
        assert_eq!(removed, 0, "{mistake}");
        assert_eq!(node.file("/etc/motd"), motd, "{mistake}");
    };
    let back = |mistake: &str| {
        kept(mistake);
        repo.git(&["checkout", "--quiet", &good, "--", "."]);
        let mended = repo.commit("back");
        up.wait_converged(&mended, 1);
        kept(&format!("{mistake}, and back"));
    };

    repo.git(&["rm", "--quiet", "-r", "."]);
    up.wait_refused(&repo.commit("everything is gone"));
    back("an empty tree");

    repo.git(&["rm", "--quiet", "-r", "."]);
    repo.git(&["checkout", "--quiet", &good, "--", "fleet.kdl", "rollouts"]);
    let lone = repo.commit("only who we are");
    up.wait_applied(&lone);
    let plan = up.cli().json(&["api", "plans.get", &format!("commit={lone}")]);
    assert_eq!(plan["document"]["counts"]["moves"], json!(0), "{plan}");
    assert!(plan["document"]["counts"]["retain"].as_u64() > Some(5), "{plan}");
    back("all files but one are gone");

    repo.replace("pools/h100.kdl", "pool \"h100\"", "pol \"h100\"");
    up.wait_refused(&repo.commit("a typing error in the kind"));
    back("a typing error in the kind");

    for file in ["profiles/base.kdl", "sites/fra1.kdl", "pools/h200.yaml", "nodes/ams1.yaml"] {
        repo.write(file, b"\xff\xfe\x00broken");
    }
    up.wait_refused(&repo.commit("half of the files cannot be read"));
    back("half of the files cannot be read");

    let (one, two) = (repo.read("sites/fra1.kdl"), repo.read("sites/ams1.yaml"));
    repo.write("sites/fra1.kdl", one.replace("site \"fra1\"", "site \"ams1\""));
    repo.write("sites/ams1.yaml", two.replace("name: ams1", "name: fra1"));
    let swapped = repo.commit("the sites have each other's name");
    up.wait_applied(&swapped);
    let counts = up.cli().json(&["api", "plans.get", &format!("commit={swapped}")])["document"]["counts"].clone();
    assert_eq!(
        (&counts["create"], &counts["retain"], &counts["remove"]),
        (&json!(0), &json!(0), &json!(0)),
        "{counts}"
    );
    let (after, removed) = in_force(&up);
    assert_eq!((after, removed), (before.clone(), 0));
    repo.git(&["checkout", "--quiet", &good, "--", "."]);
    up.wait_converged(&repo.commit("back"), 1);
    kept("names are swapped, and back");

    for file in ["pools/h100.kdl", "nodes/fra1-r12.kdl", "batches/2026-12-kernel.kdl", "tenants/research.kdl"] {
        let text = repo.read(file);
        repo.write(
            file,
            text.replace("pool \"h100\"", "pool \"hopper\"").replace("pools \"h100\"", "pools \"hopper\""),
        );
    }
    let _ = repo.commit("a pool has another name");
    let plan = up.cli().json(&[
        "plan",
        "--base",
        &good,
        "--head",
        "HEAD",
        "--format",
        "json",
        &repo.dir().display().to_string(),
    ]);
    let old =
        plan["objects"].as_array().and_then(|objects| objects.iter().find(|object| object["object"] == "pool/h100"));
    let old = old.unwrap_or_else(|| unreachable!("the old name is told: {plan:#}"));
    assert_eq!((&old["change"], &old["renamedTo"]), (&json!("retain"), &json!("pool/hopper")), "{old}");
    assert!(old["paste"].as_str().is_some_and(|line| line.starts_with("moved ")), "{old}");
    back("a pool has another name");

    repo.git(&["mv", "pools", "machines"]);
    let renamed = repo.commit("a folder has another name");
    up.wait_converged(&renamed, 1);
    kept("a folder has another name");

    let in_the_end = repo.head();
    repo.git(&["checkout", "--quiet", "--orphan", "other"]);
    repo.git(&["rm", "--quiet", "-r", "--cached", "."]);
    for directory in ["pools", "machines", "sites", "profiles", "nodes"] {
        fs::remove_dir_all(repo.dir().join(directory)).ok();
    }
    repo.write("fleet.kdl", "fleet \"acme\" {\n  format 1\n  trust-domain \"acme.example\"\n}\n");
    repo.git(&["add", "fleet.kdl"]);
    repo.git(&["commit", "--quiet", "-m", "a history of its own"]);
    repo.git(&["branch", "--quiet", "-f", "main", "other"]);
    let source = up.wait_source("history-diverged");
    assert_eq!(source["applied"]["commit"], in_the_end.as_str());
    kept("another history was pushed over it");
    // What is meant to go goes, and this test would have seen it.
    repo.git(&["checkout", "--quiet", "--force", "-B", "main", &in_the_end]);
    repo.write("sites/spare.kdl", "removed \"site/spare\" reason=\"nobody needs it\"\n");
    up.wait_applied(&repo.commit("a site is removed"));
    let (after, removed) = in_force(&up);
    assert_eq!((before.difference(&after).map(String::as_str).collect::<Vec<_>>(), removed), (vec!["sites/spare"], 1));
}
