//! The page that a person reads before signing, on a narrow terminal and on a wide one.

use std::collections::{BTreeMap, BTreeSet};

use pki::{
    Realm,
    batch::{BatchHeader, Leaf},
    trust::{key::TrustKey, policy, statement::Under},
};
use schema::{
    digest::Digest,
    fleet::{Sources, load},
    generation::{Generation, IdentityGeneration},
    id::{JournalId, NodeId},
};
use serde_json::json;

use super::*;
use crate::output::Format;

const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINN5SnaLjilwx1NPjMccpVOPK1u+UftbvAubLwcV4M4I ada";
const BOB: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFILyrkyUgQzDrWQswl9NGOQBxevfiSmB43oGEQhkklW bob";
const CLEO: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAII+BDs5fnWztg8meNTAkVNBt2E37pxBkpZ5lAkUECBHn cleo";
const DOCUMENT: &str = r#"batch "kernel" {
  command "node.reboot"
  payload { reason "kernel 6.14" }
  scope { pools "h100"; }
  reason "kernel 6.14 waits for a boot, OPS-4188; it carries the fix for the ring buffer that hangs"
  not-before "2026-12-07T08:00:00Z"
  expires "2026-12-08T08:00:00Z"
  spread "rack"
}
"#;

fn people() -> String {
    let one = |(name, key)| format!("principal \"{name}\" {{ kind \"human\"; roles \"operator\"; key \"{key}\"; }}\n");
    let people: String = [("ada", ADA), ("bob", BOB), ("cleo", CLEO)].map(one).concat();
    format!(
        "policy {{ format 1; epoch 1; }}\n{people}path \"**\" {{ roles \"operator\"; }}\n\
         trust {{ roles \"operator\"; threshold 2; }}\nchange {{ roles \"operator\"; threshold 1; }}\n\
         tier \"reboot\" {{ commands \"node.reboot\"; roles \"operator\"; threshold 2; max-nodes 9; max-ttl \"24h\"; }}\n"
    )
}

fn machine(name: &str, serial: Result<&str, &'static str>, connectivity: &str) -> Machine {
    let leaf = Leaf {
        index: 0,
        name: name.parse().expect("a name"),
        node: NodeId::generate(),
        identity_generation: IdentityGeneration(1),
        hardware_key: "none".to_owned(),
        journal: JournalId::generate(),
        kind: "node.reboot".to_owned(),
        payload: Digest::of(b""),
        min_generation: Generation(1),
        preconditions: BTreeMap::from([(BOOT.to_owned(), "one".to_owned())]),
    };
    Machine {
        leaf,
        serial: serial.map(str::to_owned),
        declared: None,
        pool: Some("h100".to_owned()),
        connectivity: Some(connectivity.to_owned()),
        cordoned: false,
        staged: false,
        changed: None,
    }
}

/// A batch that Bob asked for and Ada looks at.
fn page(width: usize) -> String {
    let checked = policy::check(people().as_bytes());
    let policy = checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let mut sources = Sources::default();
    sources.insert_file("fleet.kdl", b"fleet \"acme\" { format 1; trust-domain \"acme.example\"; }".to_vec());
    let pool = "site \"fra1\"\nprofile \"base\"\npool \"h100\" { site \"fra1\"; profile \"base\"; }\n";
    sources.insert_file("pools/h100.kdl", pool.as_bytes().to_vec());
    sources.insert_file("batches/kernel.kdl", DOCUMENT.as_bytes().to_vec());
    let loaded = load(&sources);
    let fleet = loaded.fleet.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let document = fleet.batches["kernel"].clone();
    let id = |letter: &str| letter.repeat(40).parse().expect("an id");
    let header = BatchHeader {
        trust_domain: "acme.example".to_owned(),
        fleet: "f".repeat(64).parse().expect("a fleet"),
        name: "kernel".parse().expect("a name"),
        tier: "reboot".parse().expect("a name"),
        proposer: None,
        excluded: BTreeSet::from(["bob".parse().expect("a name")]),
        not_before: "2026-12-07T08:00:00Z".parse().expect("a time"),
        expires: "2026-12-08T08:00:00Z".parse().expect("a time"),
        plan_commit: id("a"),
        plan_tree: id("b"),
        under: Under { epoch: 1, digest: policy.digest() },
        reason: document.reason.value.clone(),
        max_in_flight: 1,
        max_failures: 0,
        spread: Some("rack".to_owned()),
        leaves: 2,
        root: Digest::of(b""),
    };
    let now: Timestamp = "2026-12-07T07:00:00Z".parse().expect("a time");
    let checked = Checked {
        header,
        policy,
        document,
        payload: json!({ "reason": "kernel 6.14" }),
        machines: vec![
            machine("h100-01", Ok("J7Q2X11"), "connected"),
            machine("h100-02-spare", Err("it signed no inventory yet"), "disconnected"),
        ],
        kinds: BTreeSet::from(["node.reboot".to_owned()]),
        statements: Vec::new(),
        revoked: BTreeSet::new(),
        now,
        budgets: vec![("h100".to_owned(), 2, Some("5%".to_owned()))],
        notes: vec!["of 1 of them no serial number is proven: know them by another way, or do not approve".to_owned()],
    };
    let asked = Asked { batch: json!({}), machines: Vec::new(), status: json!({}), realm: Realm::new("a", "b") };
    let speaker =
        Speaker { principal: "ada".parse().expect("a name"), key: TrustKey::from_ssh(ADA).expect("an admitted key") };
    render(&asked, &checked, &speaker, &Output { format: Format::Text, colour: false, width: Some(width), now })
}

#[test]
fn what_is_signed_fits_a_narrow_terminal_and_nothing_that_is_compared_is_cut() {
    let text = page(80);
    assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains('…'), "{text}");
    insta::assert_snapshot!("eighty_columns", text);
    insta::assert_snapshot!("wide", page(160));
    // Narrower than a digest, the terminal breaks it, and whoever copies it has it whole.
    let whole = page(80).lines().find(|line| line.contains("sha256:")).map(|line| line.trim().to_owned());
    assert!(whole.is_some_and(|digest| page(50).contains(&digest)));
}

#[test]
fn a_machine_of_another_serial_number_than_its_document_declares_shows_both() {
    let one = Machine { declared: Some("OTHER99".to_owned()), ..machine("n0", Ok("J7Q2X11"), "connected") };
    let output = Output { format: Format::Text, colour: false, width: None, now: Timestamp::UNIX_EPOCH };
    assert!(line(&one, 2, &output).contains("serial J7Q2X11, its document declares OTHER99"));
}
