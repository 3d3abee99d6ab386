//! A release of the daemon, from the manifest to what a machine says of it.
//!
//! Nobody runs the kind by hand, and nothing of the control plane queues it: the test does, with the control plane's own keys.

use pki::keys::Keys;
use schema::{
    command::{CommandBody, CommandKind},
    id::CommandId,
};
use serde_json::{Value, json};
use tests::{until, until_some};

use super::batches::Fleet;

const POLICY: &str = "releases { roles \"admin\" \"operator\"; threshold 2; }\nrevoke { roles \"admin\"; }\n";

/// Queues the kind for the machine, and answers how the command ended: reason and message.
fn offer(fleet: &Fleet, version: &str, manifest: &str) -> (String, String) {
    let (up, cli) = (&fleet.up, fleet.up.cli());
    let file = |name: &str| std::fs::read(up.data().join("keys").join(name)).expect("keys");
    let keys = Keys::open(&file("control-plane.sealed"), &file("secret")).expect("they open");
    let column = |column: &str| up.sql(&format!("SELECT {column} FROM nodes WHERE name = '{}'", fleet.name));
    let (node, kind) = (column("id"), CommandKind::DaemonUpgrade);
    let body = CommandBody {
        id: CommandId::generate(),
        node_id: up.nodes()[0]["id"].as_str().expect("an id").parse().expect("an id"),
        kind,
        seq: column("next_cmd_seq").parse().expect("a number"),
        payload: kind.check_payload(&json!({ "version": version, "manifest": manifest })).expect("a payload"),
        not_after: up.sql("SELECT to_char(compute_now() AT TIME ZONE 'UTC' + interval '10 minutes', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").parse().expect("a time"),
        min_generation: None,
        batch: None,
        secrets: Vec::new(),
        journal: None,
    };
    let bytes = body.to_bytes();
    let fleet_id = fleet.up.status()["fleetId"].as_str().expect("a fleet").to_owned();
    let mark = keys.signing().command_seal(&fleet_id).tag(&bytes);
    let (id, row) = (body.id.as_uuid(), kind.row());
    let text = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    up.sql(&format!(
        "WITH next AS (UPDATE nodes SET next_cmd_seq = next_cmd_seq + 1 WHERE id = '{node}')
         INSERT INTO commands (id, node_id, seq, kind, retry_safe, lane, payload, idempotency_key, not_after, body, created_by, mark)
         VALUES ('{id}', '{node}', {}, '{kind}', {}, '{}', '{{}}', '{id}', '{}', decode('{}', 'hex'), 'test', decode('{}', 'hex'))",
        body.seq,
        row.retry_safe,
        row.lane.as_str(),
        body.not_after,
        text(&bytes),
        text(&mark),
    ));
    // Another command wakes whoever signs.
    let _ = cli.ok(&["run", "inventory.refresh", &fleet.name]);
    let command = body.id.to_string();
    let ended = until_some("the machine says what it thinks of it", || {
        let seen = cli.json(&["api", "commands.get", &format!("command={command}")]);
        ["failed", "succeeded", "rejected", "cancelled"].contains(&seen["state"].as_str()?).then_some(seen)
    });
    let word = |name: &str| ended[name].as_str().unwrap_or_default().to_owned();
    (word("reason"), word("message"))
}

/// What a verb about the manifest says, by whoever sits in the clone.
fn release(fleet: &Fleet, words: &[&str]) -> (i32, String) {
    let said =
        fleet.up.cli().run(&[&["release"], words, &["--repo", &fleet.repo.dir().display().to_string()]].concat());
    (said.code, format!("{}{}", said.out, said.err))
}

#[test]
fn a_machine_takes_a_release_that_enough_of_its_people_signed_and_none_that_counts_on_a_revoked_key() {
    let fleet = Fleet::whose_policy_says(POLICY);
    let file = fleet.world.path("bcd.json").display().to_string();
    let bytes = fleet.world.write("bcd", "the daemon").display().to_string();
    let [amd64, arm64] = ["amd64", "arm64"].map(|arch| format!("{arch}={bytes}"));
    let make = ["release", "make", "--version", "9.9.9", "--binary", &amd64, "--binary", &arm64, "--out", &file];
    let _ = fleet.up.cli().ok(&make);
    let manifest = || std::fs::read_to_string(&file).expect("a manifest");
    let offered = || offer(&fleet, "9.9.9", manifest().trim());
    let believes = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        until(what, || {
            let (_, words) = fleet.node.said(&["status", "--format", "json"]);
            serde_json::from_str::<Value>(words.trim()).is_ok_and(|status| holds(&status["people"]))
        });
    };
    believes("the machine believes the policy", &|people| people["epoch"] == 1);

    fleet.sign_as("ada");
    let (code, words) = release(&fleet, &["sign", &file, "--yes"]);
    assert!(code == 0 && words.contains("1 more signed it, of bob, cleo, robot"), "{words}");
    let (code, words) = release(&fleet, &["verify", &file]);
    assert!(code == 4 && words.contains("ada signed it") && words.contains("(release-untrusted)"), "{words}");
    let (reason, message) = offered();
    assert_eq!(reason, "release-untrusted", "{message}");
    assert!(message.contains("ada signed it") && message.contains("asks for 2"), "{message}");

    // The second is a service: whoever builds releases may vouch for them, next to a person.
    fleet.sign_as("robot");
    let (code, words) = release(&fleet, &["sign", &file, "--yes"]);
    assert_eq!(code, 0, "{words}");
    let (code, words) = release(&fleet, &["verify", &file]);
    assert!(code == 0 && words.contains("signed by ada, robot"), "{words}");
    let (reason, message) = offered();
    assert_eq!(reason, "unsupported-here", "{message}");
    assert!(message.contains("the release is good"), "{message}");

    let robot = std::fs::read_to_string(fleet.world.path("robot.pub")).expect("a key");
    let robot = pki::trust::key::TrustKey::from_ssh(robot.trim()).expect("a key").name();
    fleet.sign_as("ada");
    let dir = fleet.repo.dir().display().to_string();
    let _ = fleet.up.cli().ok(&["trust", "revoke", &robot, "--reason", "compromised", "--repo", &dir, "--yes"]);
    believes("the machine hears of the revocation", &|people| people["revoked"] != json!([]));
    let (reason, message) = offered();
    assert_eq!(reason, "release-untrusted", "{message}");
    let gone = format!("robot does not count: the key {robot} is revoked");
    assert!(message.contains("ada signed it") && message.contains(&gone), "{message}");
    let (code, words) = release(&fleet, &["verify", &file]);
    assert!(code == 4 && words.contains(&gone), "{words}");
    let why = fleet.up.cli().ok(&["why", "release-untrusted"]);
    assert!(why.contains("better-compute release sign"), "{why}");
}
