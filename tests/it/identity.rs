//! Who gets in, and who does not.

use std::fs;

use tests::{Cli, Node, Repo, Up, World, until_some};

fn refused(up: &Up) -> Vec<serde_json::Value> {
    up.status()["joins"]["refused"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_wrong_token_and_a_wrong_pin_are_refused_with_a_reason() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());

    let node = Node::new(&world, "stranger");
    let (code, words) =
        node.join(&up.gateway_url(), &up.pin(), "bcjt_01m8krxsdweczrwqpdf04takqq.bm90LWEtdG9rZW4tYXQtYWxs");
    assert_ne!(code, 0, "{words}");
    assert!(words.contains("token"), "{words}");

    let token = up.token("h100", 1);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let (code, words) = node.join(&up.gateway_url(), &wrong, &token);
    assert_ne!(code, 0);
    assert!(words.contains("pin"), "{words}");

    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &token);
    assert_eq!(code, 0, "the token was not used up by failures: {words}");
}

#[test]
fn a_used_token_lets_nobody_else_in_and_the_refusal_is_in_status() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let token = up.token("h100", 1);
    let (code, words) = Node::new(&world, "first").join(&up.gateway_url(), &up.pin(), &token);
    assert_eq!(code, 0, "{words}");
    let (code, words) = Node::new(&world, "second").join(&up.gateway_url(), &up.pin(), &token);
    assert_ne!(code, 0);
    assert!(words.contains("used"), "{words}");
    let join = until_some("the refusal is in status", || refused(&up).into_iter().next());
    assert!(join["message"].as_str().is_some_and(|message| message.contains("used")), "{join}");
    assert!(up.cli().ok(&["status"]).contains("used"));
}

#[test]
fn an_expired_or_revoked_token_lets_nobody_in() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let token = up.token("h100", 1);
    let id =
        up.cli().json(&["token", "list", "--format", "json"])["tokens"][0]["id"].as_str().expect("an id").to_owned();
    let _ = up.cli().ok(&["token", "revoke", &id]);
    let (code, words) = Node::new(&world, "late").join(&up.gateway_url(), &up.pin(), &token);
    assert_ne!(code, 0);
    assert!(words.contains("revoked"), "{words}");

    let short = up.cli().ok(&["token", "create", "--quiet", "--pool", "h100", "--expires", "1s"]);
    let node = Node::new(&world, "later");
    let words = until_some("the token has expired", || {
        let other = Node::new(&world, "probe");
        let (code, words) = other.join(&up.gateway_url(), &up.pin(), short.trim());
        fs::remove_dir_all(other.state()).ok();
        (code != 0).then_some(words)
    });
    assert!(words.contains("expired") || words.contains("used"), "{words}");
    assert_ne!(node.join(&up.gateway_url(), &up.pin(), short.trim()).0, 0);
}

#[test]
fn a_machine_with_a_document_takes_its_name_and_labels_from_it() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let mut node = Node::new(&world, "declared").with("serial=PF3K0X91").with("board-serial=BRD-2231-0091");
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("fra1-r12-u04"), "{words}");
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    assert_eq!(up.node("fra1-r12-u04")["node"]["labels"]["rack"], "r12");
    let motd = node.file("/etc/motd").expect("a file made by a template");
    assert!(motd.starts_with("fra1-r12-u04 "), "{motd}");
}

#[test]
fn a_node_that_claims_another_ones_id_gets_no_session() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let mut first = Node::running(&world, "first", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let mut thief = Node::new(&world, "thief");
    let (code, words) = thief.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");

    // The thief keeps its own key and certificate and says that it is the first machine.
    let path = |node: &Node| node.state().join("identity.json");
    let read = |node: &Node| {
        serde_json::from_slice::<serde_json::Value>(&fs::read(path(node)).expect("an identity")).expect("JSON")
    };
    let (mine, mut forged) = (read(&first), read(&thief));
    assert_ne!(forged["identity"]["nodeId"], mine["identity"]["nodeId"]);
    forged["identity"]["nodeId"] = mine["identity"]["nodeId"].clone();
    fs::write(path(&thief), forged.to_string()).expect("a forged identity");
    thief.run(&[]);
    until_some("the thief is told why", || {
        thief.daemon.as_mut().and_then(tests::process::Process::ended);
        let log = thief.log().to_lowercase();
        ["identity", "another", "mismatch", "certificate"].iter().any(|word| log.contains(word)).then_some(())
    });
    assert!(first.daemon.as_mut().expect("a daemon").ended().is_none());
    assert_eq!(up.status()["nodes"]["connected"], 1);
}

#[test]
fn a_caller_without_a_token_and_one_without_the_right_are_refused() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let limited = up.cli().ok(&["token", "api", "create", "--scope", "nodes:read"]);
    let with = |token: &str, arguments: &[&str]| {
        let mut command = Cli::of(up.data()).command(arguments);
        command.env("BETTER_COMPUTE_TOKEN", token);
        tests::process::output(command)
    };
    assert_eq!(with(limited.trim(), &["get", "nodes"]).0, 0);
    let (code, _, words) = with(limited.trim(), &["token", "create", "--pool", "h100"]);
    assert_eq!(code, 4, "{words}");
    assert!(words.contains("ACCESS_DENIED"), "{words}");
    let (code, _, words) = with("bcat_nobody.knows", &["status"]);
    assert_eq!(code, 4, "{words}");
}

#[test]
fn described_hardware_is_refused_without_dev() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start_with(&world, "up", &repo.dir().display().to_string(), &[]);
    up.wait_applied(&repo.head());
    let (code, words) = Node::new(&world, "described").join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_ne!(code, 0);
    assert!(words.contains("described"), "{words}");
}

/// The epoch of a node's session: it rises whenever one opens.
fn epoch(up: &Up, node: &str) -> u64 {
    up.node(node)["session"]["epoch"].as_u64().expect("a session")
}

fn only_node(up: &Up) -> String {
    up.nodes()[0]["name"].as_str().expect("a name").to_owned()
}

fn trust_version(up: &Up, node: &str) -> u64 {
    up.node(node)["identity"]["trustVersion"].as_u64().unwrap_or_default()
}

#[test]
fn keys_rotate_under_an_open_session_and_a_machine_that_was_off_comes_back_by_itself() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let mut away = Node::running(&world, "away", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let away_name = only_node(&up);
    drop(away.daemon.take());

    let here = Node::running(&world, "here", &up, "h100");
    up.wait_converged(&repo.head(), 2);
    let is_here = |node: &&serde_json::Value| node["name"] != away_name.as_str();
    let here_name = up.nodes().iter().find(is_here).expect("two nodes")["name"].as_str().expect("a name").to_owned();
    let opened = epoch(&up, &here_name);

    let mut version = 1;
    for kind in ["node-ca", "command-root", "node-ca"] {
        let began = up.cli().ok(&["keys", "rotate", kind, "--step", "begin"]);
        assert!(began.contains("begun"), "{began}");
        version += 1;
        until_some("the node steps while its session is open", || {
            (trust_version(&up, &here_name) == version).then_some(())
        });
        let refused = up.cli().run(&["keys", "rotate", kind, "--wait", "0s"]);
        assert_eq!(refused.code, 4, "{} has not followed: {}{}", away_name, refused.out, refused.err);
        assert!(refused.err.contains(&away_name), "{}", refused.err);
        for step in ["switched", "finished"] {
            let done = up.cli().ok(&["keys", "rotate", kind, "--force"]);
            assert!(done.contains(step), "{done}");
        }
        version += 1;
        until_some("the node steps to the end", || (trust_version(&up, &here_name) == version).then_some(()));
    }
    assert_eq!(epoch(&up, &here_name), opened, "no session was dropped");
    drop(here);

    away.run(&[]);
    until_some("the machine that was off is back", || {
        (up.node(&away_name)["node"]["connectivity"] == "connected").then_some(())
    });
    until_some("it believes what is believed now", || (trust_version(&up, &away_name) == version).then_some(()));
}

#[test]
fn a_machine_is_adopted_by_its_pools_checks_and_one_with_a_fault_is_not_and_says_why() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    repo.replace("pools/h100.kdl", "  policy {\n", "  policy {\n    acceptance \"diag.nvml\"\n");
    let head = repo.commit("machines of this pool are checked");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&head);

    let _good = Node::running(&world, "good", &up, "h100");
    up.wait_converged(&head, 1);
    let name = only_node(&up);
    assert_eq!(up.node(&name)["node"]["provision"], "adopted");
    let checks = |node: &str| {
        let listed = up.cli().json(&["api", "commands.list", &format!("node={node}")]);
        listed["items"].as_array().cloned().expect("commands")
    };
    let done = checks(&name);
    assert_eq!(done.len(), 1, "{done:?}");
    for (key, value) in [("kind", "diag.nvml"), ("state", "succeeded"), ("createdBy", "acceptance")] {
        assert_eq!(done[0][key], value, "{key}");
    }

    let mut bad = Node::new(&world, "bad").with_fault("kind = \"lost\"\ngpu = 3");
    let (code, words) = bad.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{words}");
    bad.run(&[]);
    let failed = until_some("the machine with a lost GPU is not accepted", || {
        up.nodes().into_iter().find(|node| node["provision"] == "failed")
    });
    assert_eq!(failed["maintenance"], true);
    let name = failed["name"].as_str().expect("a name");
    let done = checks(name);
    assert_eq!((done.len(), &done[0]["state"], &done[0]["reason"]), (1, &"failed".into(), &"checks-failed".into()));
    let why = until_some("it says why", || {
        let why = up.cli().ok(&["why", &format!("node/{name}")]);
        why.contains("diag.nvml failed").then_some(why)
    });
    assert!(why.contains("checks-failed") && why.contains("gpus.visible"), "{why}");
    assert!(why.contains("node adopt"), "{why}");
}

#[test]
fn a_revoked_identity_loses_its_session_and_comes_back_only_as_its_token_says() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let name = only_node(&up);
    let id = up.node(&name)["node"]["id"].clone();

    let _ = up.cli().ok(&["node", "revoke", &name, "--reason", "its disk was stolen"]);
    until_some("its session ends", || (up.node(&name)["node"]["connectivity"] != "connected").then_some(()));
    until_some("it is told why", || node.log().contains("CERTIFICATE_REVOKED").then_some(()));
    drop(node.daemon.take());

    // The same machine with a new disk, by a token that reclaims.
    fs::remove_dir_all(node.state()).expect("a state directory");
    let token = up.cli().ok(&["token", "create", "--quiet", "--pool", "h100", "--reclaim"]);
    let (code, words) = node.join(&up.gateway_url(), &up.pin(), token.trim());
    assert_eq!(code, 0, "{words}");
    node.run(&[]);
    up.wait_converged(&repo.head(), 1);
    let back = up.node(&name);
    assert_eq!(back["node"]["id"], id);
    assert_eq!(back["identity"]["generation"], 3);
}
