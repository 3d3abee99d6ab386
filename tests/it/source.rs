//! The repository misbehaves, and the last good revision stays in force.

use tests::{Repo, Up, World, until};

use crate::journey::change;

#[test]
fn an_empty_repository_is_a_state_and_its_first_commit_is_applied() {
    let world = World::new();
    let repo = Repo::empty(&world, "fleet");
    let up =
        Up::start_with(&world, "up", &repo.dir().display().to_string(), &["--dev", "--trust-domain", "acme.example"]);
    up.wait_source("repository-empty");
    let examples = Repo::of_examples(&world, "examples");
    repo.git(&["pull", "--quiet", &examples.dir().display().to_string(), "main"]);
    up.wait_applied(&repo.head());
}

#[test]
fn a_deleted_branch_changes_nothing() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start_with(
        &world,
        "up",
        &format!("{}#release", repo.dir().display()),
        &["--dev", "--trust-domain", "acme.example"],
    );
    up.wait_source("branch-missing");
    repo.git(&["branch", "release"]);
    up.wait_applied(&repo.head());
    repo.git(&["branch", "--quiet", "-D", "release"]);
    let source = up.wait_source("branch-missing");
    assert_eq!(source["applied"]["commit"], repo.head().as_str());
    assert_eq!(up.cli().json(&["get", "pools", "--format", "json"])["pools"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_rewritten_history_is_refused_and_going_on_from_the_applied_commit_is_not() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let applied = change(&repo, 10);
    up.wait_applied(&applied);
    repo.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    let rewritten = change(&repo, 30);
    up.wait_refused(&rewritten);
    let source = up.wait_source("history-diverged");
    assert_eq!(source["applied"]["commit"], applied.as_str());

    repo.git(&["reset", "--quiet", "--hard", &applied]);
    up.wait_applied(&change(&repo, 20));
}

#[test]
fn a_pool_whose_document_is_gone_is_retained_and_one_that_is_removed_goes() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let pools = || {
        let answer = up.cli().json(&["get", "pools", "--format", "json"]);
        answer["pools"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pool| pool["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    repo.remove("pools/l40s.kdl");
    up.wait_applied(&repo.commit("absent"));
    assert_eq!(pools(), ["h100", "h200", "l40s"]);
    let plan = up.cli().ok(&["plan", "--live"]);
    assert!(plan.contains("pool/l40s") && plan.contains("removed \"pool/l40s\""), "{plan}");

    repo.write("removed.kdl", "removed \"pool/l40s\" { reason \"sold\"; }\n");
    up.wait_applied(&repo.commit("removed"));
    until("the pool is gone", || pools() == ["h100", "h200"]);
}

#[test]
fn every_kind_of_bad_input_is_a_positioned_error_and_the_process_lives() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let mut good = repo.head();
    let deep = format!("pool \"deep\" {}{}", "{ a ".repeat(200), "}".repeat(200));
    let bad: [(&str, Vec<u8>); 6] = [
        ("pools/deep.kdl", deep.into_bytes()),
        ("pools/large.kdl", vec![b' '; 3 << 20]),
        ("pools/anchor.yaml", b"kind: pool\nname: &a b\n".to_vec()),
        ("pools/twice.yaml", b"kind: pool\nname: x\nname: y\n".to_vec()),
        ("pools/latin.kdl", b"pool \"\xff\"\n".to_vec()),
        ("pools/nowhere.kdl", b"pool \"x\" {\n  site \"nowhere\"\n  profile \"gpu-host\"\n}\n".to_vec()),
    ];
    for (path, text) in bad {
        repo.write(path, text);
        let commit = repo.commit(path);
        up.wait_refused(&commit);
        let source = up.wait_source("fleet-invalid");
        let findings = source["diagnostics"]["report"]["diagnostics"].as_array().cloned().unwrap_or_default();
        assert!(
            findings.iter().any(|finding| finding["file"] == path && finding["severity"] == "error"),
            "{path}: {findings:?}"
        );
        assert_eq!(source["applied"]["commit"], good.as_str());
        repo.remove(path);
        good = repo.commit("without it");
        up.wait_applied(&good);
    }
    assert!(up.process.ended().is_none());
}
