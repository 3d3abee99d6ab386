//! Facts about `secrets`: values go in, and nothing that is stored or said has them.

use pki::{keys::Keys, secret::SecretStore};
use schema::{object::Kind, secret::SecretName};
use store::secrets;

use super::*;

const VALUE: &str = "hunter2-hunter2";
const ENCODED: &str = "aHVudGVyMi1odW50ZXIy";

/// The store of the control plane under test.
pub(super) fn store() -> SecretStore {
    static KEYS: std::sync::LazyLock<SecretStore> = std::sync::LazyLock::new(|| {
        pki::install_provider();
        let now = "2026-11-29T12:00:00Z".parse().expect("a time");
        Keys::generate("bc.local", now).expect("keys").secret_store("fleet-one")
    });
    KEYS.clone()
}

fn put(value: &str, key: &str) -> Value {
    json!({ "name": "ntp/key", "value": value, "idempotencyKey": key })
}

#[tokio::test]
async fn a_put_is_a_version_and_no_answer_has_a_value() {
    let desk = Desk::new().await;
    assert_eq!(desk.ok("secrets.put", put(ENCODED, "1")).await, json!({ "name": "ntp/key", "version": 1 }));
    assert_eq!(desk.ok("secrets.put", put(ENCODED, "1")).await["version"], 1, "a repeat puts nothing");
    for (key, version) in [("2", 2), ("3", 3), ("4", 4)] {
        assert_eq!(desk.ok("secrets.put", put(ENCODED, key)).await["version"], version);
    }
    let listed = desk.ok("secrets.list", json!({})).await;
    assert_eq!(listed["items"][0]["versions"], json!([4, 3, 2]));
    let members: Vec<&String> = listed["items"][0].as_object().expect("an object").keys().collect();
    assert_eq!(members, ["name", "version", "versions", "createdBy", "createdAt"]);

    let name = SecretName::new("ntp/key").expect("a name");
    let envelope = secrets::find_envelope(&desk.house.db, &name, 4).await.expect("read").expect("kept");
    let at = pki::secret::Address { name: &name, version: 4, tenant: None };
    assert_eq!(store().open(at, &envelope).expect("opens").as_slice(), VALUE.as_bytes());
}

#[tokio::test]
async fn a_version_never_comes_back_with_another_value() {
    let desk = Desk::new().await;
    desk.ok("secrets.put", put(ENCODED, "1")).await;
    let gone = json!({ "name": "ntp/key", "idempotencyKey": "2" });
    assert_eq!(desk.ok("secrets.delete", gone).await, json!({ "name": "ntp/key" }));
    assert_eq!(desk.ok("secrets.list", json!({})).await["items"], json!([]));
    let again = desk.refused("secrets.delete", json!({ "name": "ntp/key", "idempotencyKey": "3" })).await;
    assert_eq!(again["code"], "NOT_FOUND");
    assert_eq!(desk.ok("secrets.put", put(ENCODED, "4")).await["version"], 2);
}

#[tokio::test]
async fn a_key_stands_for_one_value() {
    let desk = Desk::new().await;
    desk.ok("secrets.put", put(ENCODED, "1")).await;
    assert_eq!(desk.refused("secrets.put", put("b3RoZXI=", "1")).await["code"], "CONFLICT");
}

#[tokio::test]
async fn rows_hold_neither_a_value_nor_its_digest() {
    let desk = Desk::new().await;
    desk.ok("secrets.put", put(ENCODED, "1")).await;
    let lines = audit::list(&desk.house.db, Some("ntp/key"), None, 9).await.expect("audit");
    assert_eq!(lines[0].detail, json!({ "name": "ntp/key", "version": 1 }));
    let dump = store::testing::dump(&desk.house.db).await.expect("a dump");
    assert!(dump.contains("ntp/key"), "the dump has the rows");
    let whole = json!({ "method": "secrets.put", "input": { "name": "ntp/key", "value": ENCODED } });
    let digests = [Digest::of(VALUE), Digest::of(ENCODED), schema::canonical::digest(&whole).expect("a digest")];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for needle in [VALUE.to_owned(), ENCODED.to_owned(), hex(VALUE.as_bytes())]
        .into_iter()
        .chain(digests.iter().map(|digest| hex(digest.as_bytes())))
    {
        assert!(!dump.contains(&needle), "{needle}");
    }
}

#[tokio::test]
async fn a_process_seals_anew_with_the_key_that_is_named_and_with_no_other() {
    let desk = Desk::new().await;
    desk.ok("secrets.put", put(ENCODED, "1")).await;
    let now = "2026-11-29T12:00:00Z".parse().expect("a time");
    let next = Keys::generate("bc.local", now).expect("keys").secret_store("fleet-one");
    let call = |store: &SecretStore, key: &str| json!({ "key": store.key_name(), "idempotencyKey": key });
    let refused = desk.refused("keys.reseal", call(&next, "2")).await;
    assert_eq!(refused["code"], "INVALID_STATE");
    assert_eq!(desk.ok("keys.reseal", call(&store(), "3")).await, json!({ "resealed": 0, "left": 0 }));
}

#[tokio::test]
async fn versions_that_no_key_opens_are_named_at_once_and_block_a_rotation_only_while_they_are_the_newest() {
    let desk = Desk::new().await;
    let lost = [
        "INSERT INTO secrets (name, counter) VALUES ('a', 1), ('b', 1)",
        "INSERT INTO secret_versions (name, version, envelope, created_by) SELECT name, 1, '\\x01', 'test' FROM secrets",
    ];
    for statement in lost {
        store::testing::steal(&desk.house.db, statement).await.expect("another key sealed them");
    }
    let call = |key: &str| json!({ "key": store().key_name(), "idempotencyKey": key });
    let refused = desk.refused("keys.reseal", call("1")).await;
    assert!(refused["message"].as_str().is_some_and(|text| text.ends_with("does not open: a, b")), "{refused}");
    let sealed = async || desk.ok("keys.holders", json!({})).await["sealedBefore"].clone();
    assert_eq!(sealed().await, 2);
    for name in ["a", "b"] {
        desk.ok("secrets.put", json!({ "name": name, "value": ENCODED, "idempotencyKey": name })).await;
    }
    assert_eq!(desk.ok("keys.reseal", call("2")).await, json!({ "resealed": 0, "left": 0 }));
    assert_eq!(sealed().await, 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_value_is_said_without_it() {
    let desk = Desk::new().await;
    let too_long = "QUFB".repeat(22_000);
    for bad in [json!("hunter2!"), json!(1_234_567), json!(["hunter2"]), json!(""), json!(too_long)] {
        let refused = desk.refused("secrets.put", json!({ "name": "a", "value": bad, "idempotencyKey": "1" })).await;
        assert_eq!((&refused["code"], &refused["fields"][0]["name"]), (&json!("INVALID_INPUT"), &json!("value")));
        let text = refused.to_string();
        assert!(!text.contains("hunter2") && !text.contains("1234567") && text.len() < 400, "{text}");
    }
    let refused = desk.refused("secrets.put", json!({ "name": "A", "value": ENCODED, "idempotencyKey": "1" })).await;
    assert_eq!(refused["fields"][0]["name"], "name");
}

#[tokio::test]
async fn who_may_read_names_may_not_put() {
    let desk = Desk::new().await;
    let reader = tokens::bootstrap(&desk.house.db, "reader", &["secrets:read"], "test").await.expect("a token");
    assert_eq!(desk.call_as(&reader, "secrets.list", &json!({})).await.0, StatusCode::OK);
    assert_eq!(desk.call_as(&reader, "secrets.put", &put(ENCODED, "1")).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_secret_that_only_a_document_names_is_not_deleted_by_accident() {
    let desk = Desk::new().await;
    desk.ok("secrets.put", put(ENCODED, "1")).await;
    let profile = json!({ "name": "keyed", "files": [{ "path": "/etc/ntp.key", "secret": "secret://ntp/key" }] });
    desk.house.apply(json!({ "name": "h100", "site": "fra1", "profile": "keyed" }), &[(Kind::Profile, profile)]).await;
    let refused = desk.refused("secrets.delete", json!({ "name": "ntp/key", "idempotencyKey": "2" })).await;
    assert_eq!(refused["code"], "INVALID_STATE");
    assert!(refused["message"].as_str().expect("words").starts_with("profile/keyed ("), "{refused}");
    desk.ok("secrets.put", json!({ "name": "ntp/other", "value": ENCODED, "idempotencyKey": "3" })).await;
    desk.ok("secrets.delete", json!({ "name": "ntp/other", "idempotencyKey": "4" })).await;
    desk.ok("secrets.delete", json!({ "name": "ntp/key", "force": true, "idempotencyKey": "5" })).await;
}
