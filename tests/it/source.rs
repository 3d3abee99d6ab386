//! The repository misbehaves, and the last good revision stays in force.

use serde_json::Value;
use tests::{Node, Repo, Up, World, until};

use crate::journey::change;

#[test]
fn an_empty_repository_is_a_state_and_its_first_commit_is_applied() {
    let world = World::new();
    let repo = Repo::empty(&world, "fleet");
    let mut up = Up::start(&world, "up", repo.dir());
    up.wait_source("repository-empty");
    let guessed = up.pin();
    let examples = Repo::of_examples(&world, "examples");
    repo.git(&["pull", "--quiet", &examples.dir().display().to_string(), "main"]);
    up.wait_applied(&repo.head());
    // The keys were made anew for the trust domain that the fleet names, and a machine can join.
    assert_eq!(up.status()["trustDomain"], "acme.example");
    assert_ne!(up.pin(), guessed);
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    up.process.kill();
    up.restart();
    up.wait_converged(&repo.head(), 1);
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
fn a_rewritten_history_that_a_person_accepts_is_applied() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&change(&repo, 10));
    repo.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    let rewritten = change(&repo, 30);
    up.wait_refused(&rewritten);
    let _ = up.cli().ok(&["api", "fleet.accept", &format!("commit={rewritten}"), "idempotencyKey=accept"]);
    up.wait_applied(&rewritten);
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
    // Nothing else may name the pool.
    repo.replace("tenants/inference.yaml", "pool: l40s", "pool: h200");
    repo.remove("pools/l40s.kdl");
    up.wait_applied(&repo.commit("absent"));
    assert_eq!(pools(), ["h100", "h200", "l40s"]);
    let plan = up.cli().ok(&["plan", "--newest"]);
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
    let mut good = repo.head();
    up.wait_applied(&good);
    let deep = format!("pool \"deep\" {}{}", "{ a ".repeat(200), "}".repeat(200));
    let cycle = b"profile \"a\" { extends \"b\"; }\nprofile \"b\" { extends \"a\"; }\n".to_vec();
    let undefined = b"profile \"c\" { extends \"h100-host\"; file \"/etc/c\" template=\"templates/c.j2\"; }\npool \"c\" { site \"fra1\"; profile \"c\"; }\n".to_vec();
    repo.write("templates/c.j2", "{{ site.nothing.there }}\n");
    let bad: [(&str, Vec<u8>); 9] = [
        ("pools/deep.kdl", deep.into_bytes()),
        ("pools/large.kdl", vec![b' '; 50 << 20]),
        ("pools/anchor.yaml", b"kind: pool\nname: &a b\n".to_vec()),
        ("pools/twice.yaml", b"kind: pool\nname: x\nname: y\n".to_vec()),
        ("pools/latin.kdl", b"pool \"\xff\"\n".to_vec()),
        ("pools/nowhere.kdl", b"pool \"x\" {\n  site \"nowhere\"\n  profile \"gpu-host\"\n}\n".to_vec()),
        ("pools/type.kdl", b"pool \"x\" {\n  site #true\n  profile \"gpu-host\"\n}\n".to_vec()),
        ("profiles/cycle.kdl", cycle),
        ("pools/undefined.kdl", undefined),
    ];
    for (path, text) in bad {
        repo.write(path, text);
        is_refused(&up, &repo.commit(path), path, &good);
        repo.remove(path);
        good = repo.commit("without it");
        up.wait_applied(&good);
    }
    assert!(up.process.ended().is_none());
}

#[test]
fn a_link_and_a_submodule_are_errors_and_are_never_followed() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let good = repo.head();
    up.wait_applied(&good);
    std::os::unix::fs::symlink("/etc/passwd", repo.dir().join("pools/link.kdl")).expect("a link");
    is_refused(&up, &repo.commit("a link"), "pools/link.kdl", &good);
    repo.remove("pools/link.kdl");
    let mended = repo.commit("without it");
    up.wait_applied(&mended);
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{good},vendor")]);
    repo.git(&["commit", "--quiet", "--message", "a submodule"]);
    is_refused(&up, &repo.head(), "vendor", &mended);
}

#[track_caller]
fn is_refused(up: &Up, commit: &str, path: &str, good: &str) {
    up.wait_refused(commit);
    let source = up.wait_source("fleet-invalid");
    let findings = source["diagnostics"]["report"]["diagnostics"].as_array().cloned().unwrap_or_default();
    let placed =
        |finding: &Value| finding["severity"] == "error" && (finding["file"] == path || path.contains("undefined"));
    assert!(findings.iter().any(placed), "{path}: {findings:?}");
    assert_eq!(source["applied"]["commit"], good);
}

#[test]
fn a_byte_order_mark_and_crlf_change_no_machine() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let path = "profiles/base.kdl";
    repo.write(path, format!("\u{feff}{}", repo.read(path).replace('\n', "\r\n")));
    repo.git(&["config", "core.autocrlf", "false"]);
    up.wait_converged(&repo.commit("from another editor"), 1);
    assert_eq!(up.nodes()[0]["generation"], 1);
}
