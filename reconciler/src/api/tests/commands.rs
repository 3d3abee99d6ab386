//! Facts about `commands` and `events`.

use schema::command::{CommandKind, KINDS};
use store::{commands, outbox};

use super::*;
use crate::reconcile::command::FastSigner;

impl Desk {
    async fn with_node() -> Self {
        let desk = Self::new().await;
        desk.house.machine("gpu-1").await;
        desk
    }

    async fn run(&self, kind: &str, key: &str) -> Value {
        self.ok("commands.run", json!({ "node": "gpu-1", "kind": kind, "idempotencyKey": key })).await
    }
}

fn code(error: &Value) -> &str {
    error["code"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_command_is_queued_shown_listed_and_taken_back() {
    let desk = Desk::with_node().await;
    let queued = desk
        .ok(
            "commands.run",
            json!({
                "node": "gpu-1", "kind": "inventory.refresh", "payload": { "sections": ["gpus"] }, "notAfterSeconds": 300,
                "idempotencyKey": "refresh-1",
            }),
        )
        .await;
    assert_eq!((&queued["seq"], &queued["state"], &queued["node"]), (&json!(1), &json!("pending"), &json!("gpu-1")));
    assert_eq!((&queued["retrySafe"], &queued["payload"]["rescan"]), (&json!(true), &json!(false)));
    let at = |name: &str| queued[name].as_str().expect("a time").parse::<schema::time::Timestamp>().expect("a time");
    let window = schema::time::Duration::between(at("createdAt"), at("notAfter")).as_secs();
    assert!((299..=300).contains(&window), "{window}");

    let id = queued["id"].as_str().expect("an id");
    assert_eq!(desk.ok("commands.get", json!({ "command": id })).await, queued);
    let all = desk.ok("commands.list", json!({ "node": "gpu-1", "state": "pending" })).await;
    assert_eq!(all["items"], json!([queued]));
    assert_eq!(desk.ok("commands.list", json!({ "commands": [id] })).await["items"], json!([queued]));
    assert_eq!(desk.ok("commands.list", json!({ "kind": "node.reboot" })).await["items"], json!([]));

    let cancelled = desk.ok("commands.cancel", json!({ "command": id, "idempotencyKey": "c" })).await;
    assert_eq!((&cancelled["state"], &cancelled["reason"]), (&json!("cancelled"), &json!("cancelled")));
    let again = desk.ok("commands.cancel", json!({ "command": id, "idempotencyKey": "c2" })).await;
    assert_eq!(again, cancelled, "what has ended is returned unchanged");
    let lines = audit::list(&desk.house.db, Some(id), None, 9).await.expect("audit");
    let actions: Vec<&str> = lines.iter().map(|line| line.action.as_str()).collect();
    assert_eq!(actions, ["commands.cancel", "commands.cancel", "commands.cancelled", "commands.run"]);
}

#[tokio::test]
async fn a_boot_is_signed_at_once_but_for_a_machine_that_shows_other_hardware() {
    let mut desk = Desk::new().await;
    let machine = desk.house.machine("gpu-1").await;
    let now = desk.house.db.now().await.expect("time");
    let mut txn = desk.house.db.begin().await.expect("begin");
    commands::witness(&mut txn, machine.id, machine.boot, machine.journal, now).await.expect("witness");
    txn.commit().await.expect("commit");
    let changed = r#"UPDATE nodes SET conditions = '[{"type": "HardwareChanged", "status": "true", "reason": "OtherIdentifiers", "since": "2026-11-29T12:00:00Z"}]'"#;
    for (key, is_signed) in [("before", true), ("after", false)] {
        let authority = desk.house.shared.signer.clone().expect("a signer");
        let (signer, run) = FastSigner::new(desk.house.db.clone(), authority, None, CancellationToken::new());
        desk.router = dispatch::router(App { signer: Some(signer), ..app(&desk.house) });
        let id = desk.run("node.reboot", key).await["id"].as_str().expect("an id").parse().expect("an id");
        desk.router = dispatch::router(app(&desk.house));
        run.await;
        let row = commands::find(&desk.house.db, id).await.expect("find").expect("a command");
        assert_eq!(row.signed_at.is_some(), is_signed, "{key}");
        store::testing::steal(&desk.house.db, changed).await.expect("another board");
    }
}

#[tokio::test]
async fn a_key_stands_for_one_command() {
    let desk = Desk::with_node().await;
    let first = desk.run("diag.nvml", "k").await;
    assert_eq!(desk.run("diag.nvml", "k").await, first);
    let refused =
        desk.refused("commands.run", json!({ "node": "gpu-1", "kind": "node.reboot", "idempotencyKey": "k" })).await;
    assert_eq!(code(&refused), "CONFLICT");

    // The answer was forgotten; the command was not.
    desk.house.test.advance(std::time::Duration::from_secs(400 * 86_400)).await;
    store::idempotency::prune(&desk.house.db).await.expect("prune");
    let token = tokens::bootstrap(&desk.house.db, "first", &["*"], "test").await.expect("a token");
    let id: schema::id::CommandId = first["id"].as_str().expect("an id").parse().expect("an id");
    let stored = commands::find(&desk.house.db, id).await.expect("find").expect("a command");
    assert!(stored.idempotency_key.starts_with("api:") && stored.idempotency_key.ends_with(":k"));
    let (status, other) = desk
        .call_as(&token, "commands.run", &json!({ "node": "gpu-1", "kind": "diag.nvml", "idempotencyKey": "k" }))
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_ne!(other["id"], first["id"], "another caller's key is another key");
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let desk = Desk::with_node().await;
    let refused = async |input: Value| {
        let mut input = input;
        input["idempotencyKey"] = schema::id::RequestId::generate().to_string().into();
        desk.refused("commands.run", input).await
    };
    for row in KINDS.iter().filter(|row| !row.by_run) {
        let error = refused(json!({ "node": "gpu-1", "kind": row.kind })).await;
        assert_eq!(code(&error), "UNSUPPORTED", "{}", row.kind);
        assert!(error["why"].as_str().is_some_and(|why| why.contains("node.reboot")), "{error}");
    }
    let misspelt = refused(json!({ "node": "gpu-1", "kind": "diag.nvm" })).await;
    assert_eq!((code(&misspelt), &misspelt["why"]), ("UNSUPPORTED", &json!("did you mean diag.nvml?")));
    let nobody = refused(json!({ "node": "gpu-9", "kind": "diag.nvml" })).await;
    assert_eq!(code(&nobody), "NOT_FOUND");
    for seconds in [9, 3_601] {
        let error = refused(json!({ "node": "gpu-1", "kind": "diag.nvml", "notAfterSeconds": seconds })).await;
        assert_eq!((code(&error), &error["fields"][0]["name"]), ("INVALID_INPUT", &json!("notAfterSeconds")));
    }
    let payload = json!({ "node": "gpu-1", "kind": "inventory.refresh", "payload": { "sections": ["moon"] } });
    let error = refused(payload).await;
    assert_eq!(code(&error), "INVALID_INPUT");
    assert!(error["fields"][0]["name"].as_str().is_some_and(|name| name.starts_with("payload.sections")), "{error}");
    let batch = refused(json!({ "node": "gpu-1", "kind": "diag.nvml", "batch": "friday" })).await;
    assert_eq!((code(&batch), &batch["message"]), ("NOT_FOUND", &json!("there is no batch friday")));
    for bad in [
        json!({ "limit": 0 }),
        json!({ "limit": 201 }),
        json!({ "state": "lost" }),
        json!({ "commands": [], "limit": 3 }),
    ] {
        assert_eq!(code(&desk.refused("commands.list", bad).await), "INVALID_INPUT");
    }
    let error = desk.refused("fleet.why", json!({ "subject": "cmd_cut-off" })).await;
    assert_eq!((code(&error), &error["fields"][0]["name"]), ("INVALID_INPUT", &json!("subject")), "it is no node");
    let gone = schema::id::CommandId::generate();
    assert_eq!(code(&desk.refused("commands.get", json!({ "command": gone })).await), "NOT_FOUND");
}

#[tokio::test]
async fn where_logs_go_is_not_the_callers_to_say_nor_to_see() {
    let desk = Desk::with_node().await;
    let upload = json!({ "url": "https://elsewhere.example.org/x?signature=key" });
    let input = json!({
        "node": "gpu-1", "kind": "logs.collect", "payload": { "upload": upload }, "idempotencyKey": "logs-1",
    });
    let error = desk.refused("commands.run", input).await;
    assert_eq!((code(&error), &error["fields"][0]["name"]), ("INVALID_INPUT", &json!("payload.upload")));
    assert_eq!(desk.ok("commands.list", json!({})).await["items"], json!([]));

    // The control plane itself may, and whoever reads commands does not learn the key to that place.
    let node = desk.run("inventory.refresh", "k").await["nodeId"].as_str().expect("an id").parse().expect("an id");
    let mut txn = desk.house.db.begin().await.expect("begin");
    let now = txn.now().await.expect("now");
    let new = commands::NewCommand {
        node_id: node,
        kind: CommandKind::LogsCollect,
        payload: json!({ "upload": upload }),
        idempotency_key: "wf:1:logs".to_owned(),
        not_after: schema::time::Duration::from_secs(600).after(now),
        min_generation: None,
        batch_id: None,
        secrets: Vec::new(),
        created_by: "test".to_owned(),
    };
    let id = commands::enqueue(&mut txn, &new).await.expect("queued").command.id;
    txn.commit().await.expect("commit");
    for said in [
        desk.ok("commands.get", json!({ "command": id })).await,
        desk.ok("commands.list", json!({ "kind": "logs.collect" })).await,
    ] {
        assert!(said.to_string().contains("logs.collect") && !said.to_string().contains("elsewhere"), "{said}");
    }
}

#[tokio::test]
async fn without_a_trust_policy_a_batch_is_only_recorded() {
    let desk = Desk::with_node().await;
    let scope = json!([{ "subject": "gpu-1", "kind": "node.reboot" }]);
    let made = json!({ "reason": "a new kernel", "scope": scope, "idempotencyKey": "b" });
    let made = desk.ok("commandBatches.create", made).await;
    assert_eq!((&made["state"], &made["needsApproval"]), (&json!("approved"), &json!(false)));
    let batch = &made["batchId"];
    let run = |kind: &str, key: &str| json!({ "node": "gpu-1", "kind": kind, "batch": batch, "idempotencyKey": key });
    let name = desk.ok("commandBatches.list", json!({ "open": true })).await["items"][0]["name"].clone();
    let by_name = json!({ "node": "gpu-1", "kind": "node.reboot", "batch": name, "idempotencyKey": "k" });
    let queued = desk.ok("commands.run", by_name).await;
    assert_eq!(queued["batch"], *batch);
    assert!(queued.get("awaitingApproval").is_none() && queued.get("notBefore").is_some());
    let all = desk.ok("commandBatches.scope", json!({ "batch": batch })).await;
    assert_eq!((&all["items"][0]["state"], &all["items"][0]["command"]), (&json!("sent"), &queued["id"]));
    // One command of a batch on a machine, and only what is in its scope.
    assert_eq!(desk.refused("commands.run", run("node.reboot", "k2")).await["code"], "INVALID_STATE");
    assert_eq!(desk.refused("commands.run", run("diag.nvml", "k3")).await["code"], "INVALID_INPUT");
    let input = json!({ "batch": batch, "reason": "not yet", "idempotencyKey": "c" });
    assert_eq!(desk.ok("commandBatches.cancel", input).await["state"], "cancelled");
    assert_eq!(desk.ok("commandBatches.list", json!({ "open": true })).await["items"], json!([]));
}

#[tokio::test]
async fn reading_and_running_are_two_scopes() {
    let desk = Desk::with_node().await;
    let made = desk
        .ok(
            "tokens.createApi",
            json!({ "name": "look", "scopes": ["commands:read", "events:read"], "idempotencyKey": "1" }),
        )
        .await;
    let token = made["token"].as_str().expect("a token");
    assert_eq!(desk.call_as(token, "commands.list", &json!({})).await.0, StatusCode::OK);
    assert_eq!(desk.call_as(token, "events.list", &json!({})).await.0, StatusCode::OK);
    let run = json!({ "node": "gpu-1", "kind": "diag.nvml", "idempotencyKey": "k" });
    assert_eq!(desk.call_as(token, "commands.run", &run).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn events_are_followed_from_any_place_and_waited_for() {
    let desk = Desk::with_node().await;
    let queued = desk.run(CommandKind::DiagNvml.as_str(), "k").await;
    let id = queued["id"].as_str().expect("an id").to_owned();
    desk.ok("commands.cancel", json!({ "command": id, "idempotencyKey": "c" })).await;

    let settled = json!({ "kinds": ["command.settled"], "waitSeconds": 30 });
    let answer = desk.ok("events.list", settled).await;
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&answer["items"][0]["kind"], &answer["items"][0]["doc"]["commandId"]),
        (&json!("command.settled"), &json!(id))
    );
    let all = desk.ok("events.list", json!({ "limit": 2 })).await;
    let kinds: Vec<&str> =
        all["items"].as_array().expect("items").iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, ["node.command.queued", "node.command.cancel-requested"]);
    let rest = desk.ok("events.list", json!({ "after": all["next"] })).await;
    assert_eq!(rest["items"], answer["items"]);
    let end = desk.ok("events.list", json!({ "after": rest["next"] })).await;
    assert_eq!(end["items"], json!([]));

    let waiting = desk.ok("events.list", json!({ "after": end["next"], "waitSeconds": 30 }));
    let (heard, _) = tokio::join!(waiting, desk.run(CommandKind::DiagNvml.as_str(), "k2"));
    assert_eq!(heard["items"][0]["kind"], json!("node.command.queued"));
    assert_eq!(desk.ok("events.list", json!({ "after": "now" })).await["items"], json!([]));
    for bad in [json!({ "after": "then" }), json!({ "waitSeconds": 31 }), json!({ "limit": 0 })] {
        assert_eq!(code(&desk.refused("events.list", bad).await), "INVALID_INPUT");
    }
    assert!(outbox::newest(&desk.house.db).await.expect("newest") > outbox::Cursor::default());
}

#[tokio::test]
async fn what_is_meant_is_looked_up_before_anything_is_queued() {
    let desk = Desk::with_node().await;
    desk.ok("nodes.cordon", json!({ "node": "gpu-1", "reason": "fan", "owner": "ada", "idempotencyKey": "1" })).await;
    let suspended = json!({ "scope": "node/gpu-1", "reason": "exam", "owner": "ada", "idempotencyKey": "2" });
    desk.ok("fleet.suspend", suspended).await;
    let checked =
        desk.ok("commands.check", json!({ "kind": "node.reboot", "nodes": ["gpu-1", "typo"] })).await["nodes"].clone();
    assert!(checked[0].get("refused").is_none() && checked[0]["id"].is_string(), "{checked}");
    let held: Vec<_> = checked[0]["held"].as_array().expect("holds").iter().map(|hold| hold["gate"].clone()).collect();
    assert_eq!(held, [json!("suspend"), json!("cordon")]);
    assert_eq!((&checked[1]["said"], &checked[1]["refused"]["code"]), (&json!("typo"), &json!("NOT_FOUND")));
    assert_eq!(desk.ok("commands.list", json!({})).await["items"], json!([]), "nothing is queued");
    let unknown = desk.refused("commands.check", json!({ "kind": "node.rebot", "nodes": [] })).await;
    assert_eq!(unknown["why"], "did you mean node.reboot?");
}

#[tokio::test]
async fn a_revoked_node_says_why_and_takes_no_command() {
    let desk = Desk::new().await;
    let machine = desk.house.converged("gpu-1", &template("1", "a\n")).await;
    let input = json!({ "node": "gpu-1", "reason": "sold on ebay", "idempotencyKey": "1" });
    desk.ok("nodes.revokeIdentity", input).await;
    let identity = desk.ok("nodes.get", json!({ "node": machine.id })).await["identity"].clone();
    assert_eq!(identity["revoked"]["reason"], "sold on ebay", "{identity}");
    let error =
        desk.refused("commands.run", json!({ "node": "gpu-1", "kind": "diag.nvml", "idempotencyKey": "2" })).await;
    assert_eq!(code(&error), "INVALID_STATE");
    assert_eq!(error["message"], "the node's identity was revoked: sold on ebay");
    assert!(error["why"].as_str().is_some_and(|why| why.contains("--reclaim")), "{error}");
    let checked = desk.ok("commands.check", json!({ "kind": "diag.nvml", "nodes": ["gpu-1"] })).await;
    assert_eq!(checked["nodes"][0]["refused"]["code"], "INVALID_STATE");
}
