//! Facts about the store of bundles.

use std::{fs, os::unix::fs::PermissionsExt as _};

use schema::id::{CommandId, NodeId};
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn place() -> Place {
    Place {
        bucket: "bundles".to_owned(),
        endpoint: "https://s3.example.org".to_owned(),
        region: "eu-central-1".to_owned(),
        prefix: "fra1/".to_owned(),
    }
}

/// A store with keys of its own; the directory holds them.
fn shop(place: Place) -> (Result<LogStore, LogStoreError>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("keys");
    fs::write(&path, format!("[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = {SECRET}\n"))
        .expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    (LogStore::new(place, Keys::File(path)), dir)
}

fn unsigned(kind: CommandKind, payload: &Value) -> Unsigned {
    let (id, node_id) = (CommandId::generate(), NodeId::generate());
    let body = CommandBody {
        id,
        node_id,
        kind,
        seq: 1,
        payload: kind.check_payload(payload).expect("a payload"),
        not_after: at("2026-03-01T12:10:00Z"),
        min_generation: None,
        batch: None,
        secrets: Vec::new(),
        journal: None,
    };
    Unsigned { id, node_id, body: body.to_bytes() }
}

#[test]
fn a_bundle_gets_one_object_until_its_command_can_be_under_way_no_more() {
    let (store, _dir) = shop(place());
    let command = unsigned(CommandKind::LogsCollect, &json!({"maxBytes": 100_000}));
    let bytes = store.expect("a store").complete(&command, at("2026-03-01T12:00:00Z")).expect("completed");
    let body = CommandBody::read(&bytes).expect("a body");
    assert_eq!(body.to_bytes(), bytes, "canonical");
    let upload: Upload = serde_json::from_value(body.payload["upload"].clone()).expect("a place");
    let object = format!("fra1/{}/{}.tar", command.node_id, command.id);
    assert_eq!(upload.object, Some(format!("s3://bundles/{object}")));
    assert_eq!(upload.max_bytes, Some(100_000));
    assert!(
        upload.url.starts_with(&format!("https://s3.example.org/bundles/{object}?X-Amz-Algorithm=AWS4-HMAC-SHA256"))
    );
    // Ten minutes until the deadline and the half hour of the kind.
    assert!(upload.url.contains("&X-Amz-Date=20260301T120000Z&X-Amz-Expires=2400&"), "{}", upload.url);
    assert!(!upload.url.contains("wJalr"));
}

#[test]
fn only_commands_that_collect_logs_get_one_and_each_one_once() {
    let (store, _dir) = shop(place());
    let (store, now) = (store.expect("a store"), at("2026-03-01T12:00:00Z"));
    for (kind, payload) in [(CommandKind::InventoryRefresh, Value::Null), (CommandKind::NodeReboot, Value::Null)] {
        assert!(store.complete(&unsigned(kind, &payload), now).is_none(), "{kind}");
    }
    let given = json!({"upload": {"url": "https://other.example.org/x?y"}});
    assert!(store.complete(&unsigned(CommandKind::LogsCollect, &given), now).is_none());
    let strange = Unsigned { body: b"{}".to_vec(), ..unsigned(CommandKind::NodeReboot, &Value::Null) };
    assert!(store.complete(&strange, now).is_none());
}

#[test]
fn keys_that_cannot_be_read_cost_the_upload_and_not_the_command() {
    let (store, dir) = shop(place());
    let store = store.expect("a store");
    fs::remove_file(dir.path().join("keys")).expect("removed");
    assert!(store.complete(&unsigned(CommandKind::LogsCollect, &Value::Null), at("2026-03-01T12:00:00Z")).is_none());
}

#[test]
fn a_store_that_makes_no_sense_is_told_at_the_start() {
    let wrong = |place: Place| shop(place).0.expect_err("refused");
    let insecure = Place { endpoint: "http://s3.example.org".to_owned(), ..place() };
    assert!(matches!(wrong(insecure), LogStoreError::Insecure(_)));
    for other in [
        Place { endpoint: "https://ada:hunter2@s3.example.org".to_owned(), ..place() },
        Place { endpoint: "https://s3.example.org/?list-type=2".to_owned(), ..place() },
        Place { endpoint: "s3.example.org".to_owned(), ..place() },
        Place { bucket: String::new(), ..place() },
        Place { bucket: "a b".to_owned(), ..place() },
        Place { prefix: "../x".to_owned(), ..place() },
    ] {
        assert!(matches!(wrong(other.clone()), LogStoreError::Place(_)), "{other:?}");
    }
    let (store, _dir) = shop(place());
    assert!(!format!("{:?}", store.expect("a store")).contains("wJalr"));
}
