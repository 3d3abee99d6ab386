//! Facts about `nodes.drift`, and where else drift is shown.

use schema::report::{DriftCause, DriftEntry, DriftKind, DriftMode};
use serde_json::json;

use super::Desk;
use crate::reconcile::testing::template;

fn entry(path: &str, observed: &str, corrected: bool) -> DriftEntry {
    DriftEntry {
        path: path.to_owned(),
        mode: if corrected { DriftMode::Enforce } else { DriftMode::Adopt },
        kind: DriftKind::Changed,
        cause: DriftCause::WhileRunning,
        observed: Some(observed.to_owned()),
        observed_digest: None,
        observed_bytes: u64::try_from(observed.len()).ok(),
        desired: None,
        first_seen: "2026-11-29T12:00:00Z".parse().expect("a time"),
        last_seen: "2026-11-29T12:00:00Z".parse().expect("a time"),
        corrected,
        times: 1,
    }
}

#[tokio::test]
async fn drift_is_listed_by_machine_pool_and_path() {
    let desk = Desk::new().await;
    let long = "x".repeat(5_000);
    for (name, seq, drift) in [
        ("gpu-1", 3, vec![entry("files./etc/motd.content", &long, false), entry("sysctl.vm.swappiness", "10", true)]),
        ("gpu-2", 3, vec![entry("sysctl.vm.swappiness", "10", true)]),
        ("gpu-3", 3, Vec::new()),
    ] {
        let machine = desk.house.converged(name, &template("1", "a\n")).await;
        let mut status = machine.status(seq, 1);
        status.drift = drift;
        for entry in &mut status.drift {
            entry.last_seen = desk.house.db.now().await.expect("a time");
        }
        desk.house.report_status(&machine, &status).await;
    }
    desk.house.jobs.settle().await.expect("settled");

    let all = desk.ok("nodes.drift", json!({})).await;
    let told: Vec<_> =
        all["items"].as_array().expect("a list").iter().map(|item| (&item["node"], &item["path"])).collect();
    let motd = json!("files./etc/motd.content");
    let swappiness = json!("sysctl.vm.swappiness");
    let (one, two) = (json!("gpu-1"), json!("gpu-2"));
    assert_eq!(told, [(&one, &motd), (&one, &swappiness), (&two, &swappiness)]);
    assert_eq!(all["items"][0]["observed"].as_str().map(str::len), Some(200), "a list is short");

    let first = desk.ok("nodes.drift", json!({ "limit": 1 })).await;
    let second = desk.ok("nodes.drift", json!({ "limit": 5, "after": first["next"] })).await;
    assert_eq!(second["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(second["next"], json!(null));

    let whole = desk.ok("nodes.drift", json!({ "node": "gpu-1", "path": "files./etc/motd" })).await;
    assert_eq!(whole["items"][0]["observed"], json!(long));
    assert_eq!((&whole["items"][0]["desiredText"], &whole["items"][0]["template"]), (&json!("a\n"), &json!("motd.j2")));
    assert_eq!(all["items"][0]["desiredText"], json!(null), "whole texts are for who names one");
    let pool = whole["items"][0]["pool"].clone();
    assert_eq!(desk.ok("nodes.drift", json!({ "pool": pool })).await["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(desk.ok("nodes.drift", json!({ "pool": "none" })).await["items"], json!([]));
    assert_eq!(desk.refused("nodes.drift", json!({ "node": "stranger" })).await["code"], "NOT_FOUND");

    let detail = desk.ok("nodes.get", json!({ "node": "gpu-1" })).await;
    assert_eq!(detail["drift"].as_array().map(Vec::len), Some(2));
    assert!(detail["specEffect"].is_string());
    let counts = json!({ "drifted": 1, "corrected": 1, "rebootRequired": 0 });
    assert_eq!(desk.ok("fleet.status", json!({})).await["drift"], counts);
}
