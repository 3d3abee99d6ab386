//! What kinds of commands come to with real processes: where bundles of logs go, one machine after the other, and a state
//! directory that is put back from an old copy.

use std::{fs, path::Path, process::Command};

use schema::digest::Digest;
use serde_json::Value;
use tests::{Bucket, Node, Repo, Up, World, until, until_some};

fn api(up: &Up, words: &[&str]) -> Value {
    up.cli().json(&[&["api"], words].concat())
}

fn queue(up: &Up, kind: &str, node: &str, key: &str) -> String {
    let (kind, node, key) = (format!("kind={kind}"), format!("node={node}"), format!("idempotencyKey={key}"));
    api(up, &["commands.run", &kind, &node, &key])["id"].as_str().expect("an id").to_owned()
}

fn command(up: &Up, id: &str) -> Value {
    api(up, &["commands.get", &format!("command={id}")])
}

/// A command once it has ended.
#[track_caller]
fn ended(up: &Up, id: &str) -> Value {
    until_some(&format!("{id} ends"), || Some(command(up, id)).filter(|command| command["settledAt"].is_string()))
}

#[test]
fn a_bundle_goes_to_the_store_by_a_url_that_nobody_else_sees() {
    let world = World::new();
    let bucket = Bucket::start(&world);
    let repo = Repo::of_examples(&world, "fleet");
    let words = [vec!["--dev".to_owned()], bucket.words()].concat();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let up = Up::start_with(&world, "up", &repo.dir().display().to_string(), &words);
    let mut node = Node::new(&world, "one");
    let (code, said) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
    assert_eq!(code, 0, "{said}");
    let (name, authority) = bucket.trust();
    node.run_with(&[], &[(&name, &authority)]);
    up.wait_converged(&repo.head(), 1);
    let machine = up.nodes()[0]["name"].as_str().expect("a name").to_owned();

    let id = queue(&up, "logs.collect", &machine, "one");
    let done = ended(&up, &id);
    assert_eq!(done["state"], "succeeded", "{done} {:?}", bucket.refused());
    let object = format!("support-bundles/{}/{id}.tar", done["nodeId"].as_str().expect("an id"));
    assert_eq!(done["result"]["object"], format!("s3://bundles/{object}"));
    let stored = bucket.objects();
    let bundle = stored.get(&format!("/bundles/{object}")).expect("the bundle");
    assert_eq!(done["result"]["digest"], Digest::of(bundle).to_string());
    assert!(bundle.windows(15).any(|bytes| bytes == b"bcd/about.json\0"), "it is the archive");
    let shown = up.cli().ok(&["commands", "show", &id]);
    assert!(shown.contains(&format!("aws s3 cp s3://bundles/{object} .")), "{shown}");
    for text in [done.to_string(), shown, up.process.log(), node.log()] {
        assert!(!text.contains("X-Amz-") && !text.contains(Bucket::secret()), "{text}");
    }

    // Whoever runs it does not say where it goes.
    let payload = "payload:={\"upload\":{\"url\":\"https://elsewhere.example.org/x\"}}";
    let machine = format!("node={machine}");
    let words = ["api", "commands.run", "kind=logs.collect", &machine, "idempotencyKey=two", payload];
    let refused = up.cli().run(&words);
    assert!(refused.code != 0 && refused.err.contains("payload.upload"), "{}", refused.err);
}

#[test]
fn without_a_store_a_bundle_stays_on_its_machine_and_says_how_it_is_fetched() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let id = queue(&up, "logs.collect", &node.name_in_fleet(), "one");
    let done = ended(&up, &id);
    let path = done["result"]["path"].as_str().expect("a place").to_owned();
    assert!(Path::new(&path).is_file() && done["result"]["uploaded"] == false);
    let shown = up.cli().ok(&["commands", "show", &id]);
    assert!(shown.contains(&format!("scp '{}:{path}' .", node.name_in_fleet())), "{shown}");
}

#[test]
fn machines_that_take_turns_reboot_one_after_the_other_until_one_does_not() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let mut nodes: Vec<Node> = ["a", "b", "c"].map(|name| Node::running(&world, name, &up, "h100")).into();
    up.wait_converged(&repo.head(), 3);
    let names: Vec<String> = nodes.iter().map(Node::name_in_fleet).collect();
    let words = |names: &[String], more: &[&str]| -> Vec<String> {
        let fixed = ["run", "node.reboot", "--most", "3", "--one-at-a-time", "--format", "json"];
        fixed.iter().chain(more).map(|word| (*word).to_owned()).chain(names.iter().cloned()).collect()
    };
    let run = |words: &[String]| up.cli().run(&words.iter().map(String::as_str).collect::<Vec<_>>());

    let said = run(&words(&names, &[]));
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    let commands = document["commands"].as_array().expect("commands");
    let word = |command: &Value, name: &str| command[name].as_str().expect("a time").to_owned();
    assert_eq!(commands.iter().map(|command| word(command, "node")).collect::<Vec<_>>(), names);
    for pair in commands.windows(2) {
        assert!(word(&pair[0], "settledAt") <= word(&pair[1], "createdAt"), "{document}");
    }
    assert!(nodes.iter().all(|node| node.boots() == 2));

    // One that is away does not end well, and those behind it are left alone.
    nodes[1].kill();
    let said = run(&words(&names, &["--not-after", "10s"]));
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let document: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(document["notBegun"], serde_json::json!([names[2]]));
    assert_eq!(nodes.iter().map(Node::boots).collect::<Vec<_>>(), [3, 2, 2]);
}

#[test]
fn a_described_machine_has_booted_with_what_it_was_set_up_with() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let found = api(&up, &["nodes.get", &format!("node={}", node.name_in_fleet())]);
    let conditions = found["node"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().all(|condition| condition["type"] != "RebootRequired"), "{conditions:?}");
    let kernel = node.file("/proc/cmdline").expect("a kernel runs");
    assert!(kernel.contains("iommu=pt"), "{kernel}");
    assert_eq!(node.boots(), 1);
}

/// Copies a directory as `cp -a` does.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success());
}

#[test]
fn a_state_directory_that_is_put_back_from_an_old_copy_is_a_lost_journal() {
    let world = World::new();
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    let mut node = Node::running(&world, "one", &up, "h100");
    up.wait_converged(&repo.head(), 1);
    let name = node.name_in_fleet();
    node.kill();
    let old = world.path("old");
    copy(&node.state(), &old);

    // It dies when a reboot is written down and before it is done, after the control plane heard that it runs.
    node.run_with(&[], &[("BCD_KILL_AT", "after:effect")]);
    let id = queue(&up, "node.reboot", &name, "one");
    node.wait_dead();
    until("the control plane has heard of it", || command(&up, &id)["ackedAt"].is_string());
    fs::remove_dir_all(node.state()).expect("removed");
    copy(&old, &node.state());
    node.run(&[]);

    let lost = ended(&up, &id);
    assert_eq!((&lost["state"], &lost["reason"]), (&Value::from("failed"), &Value::from("journal-lost")), "{lost}");
    assert_eq!(node.boots(), 1, "what an old copy does not know is not done again");
    assert!(node.log().contains("JOURNAL_OLD"), "{}", node.log());
    let next = queue(&up, "node.reboot", &name, "two");
    assert_eq!(ended(&up, &next)["state"], "succeeded");
    assert_eq!(node.boots(), 2);
}
