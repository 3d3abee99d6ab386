//! Trustworthy plans, end to end: what is renamed keeps its life, what is held goes when it may, and the way back.

use serde_json::{Value, json};
use tests::{Node, Repo, Up, World, process, until, until_some};

const POOL: &str = "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\n";

/// A small fleet of one pool, with these words in its fleet document.
fn fleet(world: &World, words: &str) -> Repo {
    let repo = Repo::empty(world, "fleet");
    repo.write("fleet.kdl", format!("fleet \"small\" {{\n  format 1\n  trust-domain \"small.example\"\n{words}}}\n"));
    repo.write("sites/fra1.kdl", "site \"fra1\" {\n  region \"eu\"\n}\n");
    repo.write("pools/h100.kdl", POOL);
    profile(&repo, "one", "");
    repo.commit("first");
    repo
}

/// What its hosts look like: a file with this text, and these kernel arguments.
fn profile(repo: &Repo, text: &str, arguments: &str) {
    let kernel =
        if arguments.is_empty() { String::new() } else { format!("  kernel {{\n    args {arguments}\n  }}\n") };
    repo.write(
        "profiles/base.kdl",
        format!(
            "profile \"base\" {{\n  file \"/etc/said\" mode=\"0644\" {{\n    content \"{text}\"\n  }}\n{kernel}}}\n"
        ),
    );
}

fn said(node: &Node, text: &str) -> bool {
    node.file("/etc/said").is_some_and(|found| found.trim_end() == text)
}

fn only(up: &Up) -> Value {
    let nodes = up.nodes();
    assert_eq!(nodes.len(), 1, "{nodes:#?}");
    up.node(nodes[0]["name"].as_str().expect("a name"))
}

fn holds(up: &Up) -> Vec<Value> {
    up.status()["held"]["items"].as_array().cloned().unwrap_or_default()
}

/// Calls the API with a token of its own.
fn call_as(up: &Up, token: &str, method: &str, body: &[(&str, Value)]) -> Value {
    let words: Vec<String> = body.iter().map(|(key, value)| format!("{key}:={value}")).collect();
    let arguments: Vec<&str> = ["api", method].into_iter().chain(words.iter().map(String::as_str)).collect();
    let mut command = up.cli().command(&arguments);
    command.env("BETTER_COMPUTE_TOKEN", token);
    let (code, out, err) = process::output(command);
    assert_eq!(code, 0, "{method}: {out}{err}");
    serde_json::from_str(&out).expect("JSON")
}

fn planner(up: &Up) -> String {
    let answer =
        up.cli().json(&["api", "tokens.createApi", "name=ci", "scopes:=[\"plans:preview\"]", "idempotencyKey=planner"]);
    answer["token"].as_str().expect("a token").to_owned()
}

#[test]
fn a_renamed_pool_was_shown_as_such_and_its_machine_keeps_its_session() {
    let world = World::new();
    let repo = fleet(&world, "");
    let up = Up::start(&world, "up", repo.dir());
    let _node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let before = only(&up);
    let waiting = up.token("h100", 1);

    let hopper = POOL.replace("h100", "hopper");
    let moved = "moved from=\"pool/h100\" to=\"pool/hopper\"\n";
    let changed = json!([{ "path": "pools/hopper.kdl", "text": hopper }, { "path": "moved.kdl", "text": moved }]);
    let body = [("base", json!(repo.head())), ("changed", changed), ("removed", json!(["pools/h100.kdl"]))];
    let shown = call_as(&up, &planner(&up), "plans.preview", &body);
    let counts = &shown["document"]["counts"];
    assert_eq!((&counts["moved"], &counts["remove"], &counts["retain"]), (&json!(1), &json!(0), &json!(0)), "{shown}");

    repo.remove("pools/h100.kdl");
    repo.write("pools/hopper.kdl", &hopper);
    repo.write("moved.kdl", moved);
    up.wait_converged(&repo.commit("hopper"), 1);
    let after = only(&up);
    assert_eq!((&after["node"]["id"], &after["node"]["pool"]), (&before["node"]["id"], &json!("hopper")));
    assert_eq!(after["node"]["name"], before["node"]["name"]);
    assert_eq!(after["session"]["epoch"], before["session"]["epoch"], "the session goes on");
    let plan = up.cli().json(&["api", "plans.get", &format!("commit={}", repo.head())]);
    assert_eq!(plan["plan"]["digest"], shown["digest"], "the merge is what was shown");
    assert_eq!(plan["document"]["counts"]["remove"], 0);

    // A token that was made for the old name lets a machine into the pool under its new one.
    let late = Node::new(&world, "late");
    let (code, words) = late.join(&up.gateway_url(), &up.pin(), &waiting);
    assert_eq!(code, 0, "{words}");
    until("it is in the pool", || up.nodes().iter().filter(|node| node["pool"] == "hopper").count() == 2);
}

#[test]
fn a_freeze_holds_and_lets_go_at_its_end_without_a_commit() {
    let world = World::new();
    let repo = fleet(&world, "");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let now: schema::time::Timestamp = up.status()["now"].as_str().expect("a time").parse().expect("a time");
    let until_then = schema::time::Duration::from_secs(30).after(now);
    repo.write(
        "freezes/exam.kdl",
        format!(
            "freeze \"exam\" {{\n  scope \"pool/h100\"\n  reason \"an exam\"\n  owner \"ada\"\n  from \"{now}\"\n  until \"{until_then}\"\n}}\n"
        ),
    );
    profile(&repo, "two", "");
    let commit = repo.commit("during the freeze");
    up.wait_applied(&commit);
    let hold = holds(&up).into_iter().find(|hold| hold["gate"] == "freeze").expect("it is told");
    assert_eq!((&hold["by"], &hold["owner"], &hold["active"]), (&json!("freeze/exam"), &json!("ada"), &json!(true)));
    let held = only(&up);
    assert_ne!(held["node"]["target"], held["node"]["assigned"]);
    assert!(said(&node, "one"));

    until("the machine goes on", || said(&node, "two"));
    assert_eq!(up.status()["sources"][0]["applied"]["commit"], commit.as_str());
    until("nothing is held", || holds(&up).is_empty());
}

#[test]
fn a_bound_effect_waits_for_a_commit_that_names_the_plan_that_was_shown() {
    let world = World::new();
    let repo = fleet(&world, "  apply {\n    bind \"reboot\"\n  }\n");
    let up = Up::start(&world, "up", repo.dir());
    let one = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    let waits = |name: &str| {
        let node = up.node(name);
        node["node"]["target"] != node["node"]["assigned"]
    };

    profile(&repo, "two", "\"quiet\"");
    let unseen = repo.commit("arguments for the kernel");
    up.wait_applied(&unseen);
    assert!(waits(&name));
    assert!(said(&one, "one"), "what goes together waits together");
    assert!(holds(&up).iter().any(|hold| hold["gate"] == "bind"), "{:#?}", holds(&up));

    let shown = up.cli().json(&["api", "plans.preview", &format!("commit={unseen}")]);
    // A machine that joins meanwhile is told everything at once, and makes nothing stale.
    let _two = Node::running(&world, "two", &up, "h100");
    until("the other machine is in", || up.nodes().len() == 2);
    let digest = shown["digest"].as_str().expect("a digest");
    let bound = repo.commit(&format!("seen\n\nbc-plan: {digest}"));
    up.wait_applied(&bound);
    until("the machine goes", || said(&one, "two"));
    assert!(!waits(&name));

    // Another change than the one that was shown is not what was agreed to.
    let preview =
        json!([{ "path": "profiles/base.kdl", "text": repo.read("profiles/base.kdl").replace("quiet", "splash") }]);
    let other = call_as(&up, &planner(&up), "plans.preview", &[("base", json!(bound)), ("changed", preview)]);
    profile(&repo, "three", "\"nosplash\"");
    let stale = repo.commit(&format!("stale\n\nbc-plan: {}", other["digest"].as_str().expect("a digest")));
    up.wait_applied(&stale);
    assert!(waits(&name));
    assert!(said(&one, "two"));
}

#[test]
fn the_way_back_needs_no_repository_and_a_newer_commit_goes_on() {
    let world = World::new();
    let repo = fleet(&world, "");
    let mut up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    let first = repo.head();
    up.wait_converged(&first, 1);
    profile(&repo, "bad", "");
    let bad = repo.commit("bad");
    up.wait_converged(&bad, 1);
    assert!(said(&node, "bad"));

    let away = world.path("away");
    std::fs::rename(repo.dir(), &away).expect("the repository goes away");
    up.wait_source("unreachable");
    let asked = up.cli().json(&[
        "api",
        "fleet.rollback",
        &format!("revision={first}"),
        "reason=it is bad",
        "owner=ada",
        "idempotencyKey=back",
    ]);
    assert_eq!(asked["quarantined"], json!([bad]));
    until("the machine is back", || said(&node, "one"));
    let source = up.status()["sources"][0].clone();
    assert_eq!((&source["applied"]["commit"], &source["rolledBackFrom"]), (&json!(first), &json!(bad)));
    up.process.kill();
    up.restart();
    assert_eq!(up.status()["sources"][0]["applied"]["commit"], first.as_str());

    std::fs::rename(&away, repo.dir()).expect("the repository is back");
    let source = up.wait_source("quarantined");
    assert!(source["reason"].as_str().is_some_and(|reason| reason.contains("it is bad")), "{source}");
    assert!(said(&node, "one"));

    // A commit that is in quarantine before it is seen never comes into force; the next one does.
    repo.git(&["checkout", "--quiet", "-b", "next"]);
    profile(&repo, "worse", "");
    let worse = repo.commit("worse");
    let _ =
        up.cli().ok(&["api", "fleet.quarantine", &format!("commit={worse}"), "reason=worse", "idempotencyKey=worse"]);
    repo.git(&["checkout", "--quiet", "main"]);
    repo.git(&["merge", "--quiet", "--ff-only", "next"]);
    until_some("the newer commit is seen and held", || {
        let source = up.status()["sources"][0].clone();
        (source["remote"]["commit"] == worse.as_str() && source["state"] == "quarantined").then_some(())
    });
    profile(&repo, "good", "");
    up.wait_converged(&repo.commit("good"), 1);
    assert!(said(&node, "good"));
    assert_eq!(up.status()["sources"][0].get("rolledBackFrom"), None);
}
