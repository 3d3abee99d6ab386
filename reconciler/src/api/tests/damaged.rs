//! Whatever somebody writes into one row, what is asked about many rows is answered.

use serde_json::json;
use store::testing::{spoil, steal, tables};

use super::Desk;
use crate::api::table::METHODS;

/// A row in tables that are empty otherwise.
const ROWS: [&str; 6] = [
    "INSERT INTO outcomes (kind, key, state, reason, message, place)
     SELECT 'session', 'node', 'wait', 'r', 'm', 'p' FROM nodes",
    "INSERT INTO key_holders (name, is_gateway, revision, expires_at) VALUES ('gw', true, 1, now() + interval '1 hour')",
    "INSERT INTO sources (name, url, branch, path, state, detail) VALUES ('other', '/srv', 'main', '', 'fleet-invalid', '{}')",
    "INSERT INTO api_tokens (id, hash, name, scopes, created_by)
     VALUES (gen_random_uuid(), sha256('x'), 'ci', '{*}', 'ada')",
    "INSERT INTO workers (id, role, host, pid, expires_at)
     VALUES (gen_random_uuid(), 'sinks', 'one', 1, now() + interval '4 minutes')",
    "UPDATE node_certs SET revoked_at = now(), revoked_reason = 'lost'",
];

async fn desk() -> Desk {
    let desk = Desk::new().await;
    let machine = desk.house.machine("k1").await;
    for row in ROWS {
        steal(&desk.house.db, row).await.expect(row);
    }
    let key = format!("UPDATE outcomes SET key = '{}' WHERE key = 'node'", machine.id);
    steal(&desk.house.db, &key).await.expect("the machine's");
    desk
}

#[tokio::test]
async fn no_endless_time_and_no_other_json_in_one_row_takes_what_is_asked_about_many_down() {
    let sound = desk().await;
    let mut looks = Vec::new();
    for method in METHODS.iter().filter(|method| !method.is_mutation()) {
        let name = method.full_name();
        // A plan is of everything that is in force, and none is made without a part of it.
        if name != "plans.preview" && sound.call(&name, json!({})).await.0.is_success() {
            looks.push(name);
        }
    }
    assert!(looks.len() > 12, "{looks:?}");
    let mut down = Vec::new();
    for table in tables(&sound.house.db).await.expect("tables") {
        let desk = desk().await;
        if spoil(&desk.house.db, &table).await.expect(&table) == 0 {
            continue;
        }
        for look in &looks {
            let (status, answer) = desk.call(look, json!({})).await;
            if !status.is_success() {
                down.push(format!("{look} by {table}: {answer}"));
            }
        }
    }
    assert!(down.is_empty(), "{down:#?}");
}
