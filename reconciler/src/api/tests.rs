//! Facts about the API, through its router and through its socket, on a real database.

mod commands;
mod damaged;
mod drift;
mod generated;
mod plans;
mod port;
mod proposals;
mod secrets;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
};
use pki::hardware::JoinClaims;
use schema::{
    clock::ManualClock,
    digest::Digest,
    generation::IdentityGeneration,
    inventory::Dmi,
    node::{Hold, HoldSource},
};
use serde_json::{Value, json};
use store::{
    Db, audit,
    identities::{self, Hardware},
    joins, key_holders, node_certs, node_holds,
    poke::{Heard, Listener, Poke},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{App, Config, Webhook, dispatch, table, tokens};
use crate::reconcile::testing::{House, template};

struct Desk {
    house: House,
    router: Router,
    token: String,
}

fn app(house: &House) -> App {
    app_over(house.db.clone())
}

fn app_over(db: Db) -> App {
    App {
        db,
        gateways: vec!["https://gw.example.org:7443".to_owned()],
        pin: Digest::of("anchor").into(),
        pinned: crate::trust::Pinned::none(),
        signer: None,
        secrets: secrets::store(),
        webhook: Some(Webhook { source: "fleet".to_owned(), secret: "s3cret".to_owned() }),
        auditor: None,
        service: None,
    }
}

impl Desk {
    async fn new() -> Self {
        let house = House::new().await;
        let mut txn = house.db.begin().await.expect("begin");
        store::control_plane::ensure(&mut txn, true, Some("bc.local")).await.expect("a row");
        txn.commit().await.expect("commit");
        let token = tokens::bootstrap(&house.db, "first", &["*"], "test").await.expect("a token");
        Self { router: dispatch::router(app(&house)), house, token }
    }

    async fn call_as(&self, token: &str, method: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::post(format!("/api/compute/{}", method.replace('.', "/")))
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Body::from(body.to_string()))
            .expect("a request");
        self.send(request).await
    }

    async fn call(&self, method: &str, body: Value) -> (StatusCode, Value) {
        self.call_as(&self.token, method, &body).await
    }

    async fn ok(&self, method: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, body).await;
        assert_eq!(status, StatusCode::OK, "{method}: {answer}");
        answer
    }

    async fn refused(&self, method: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, body).await;
        assert_ne!(status, StatusCode::OK, "{method}");
        answer["error"].clone()
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

#[tokio::test]
async fn without_a_token_that_works_nobody_is_known() {
    let desk = Desk::new().await;
    let (status, answer) =
        desk.send(Request::post("/api/compute/nodes/list").body(Body::empty()).expect("a request")).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::UNAUTHORIZED, &json!("UNAUTHENTICATED")));
    assert!(answer["error"]["requestId"].as_str().is_some_and(|id| id.starts_with("req_")));

    let made = desk
        .ok(
            "tokens.createApi",
            json!({ "name": "short", "scopes": ["nodes:read"], "expires": "1h", "idempotencyKey": "1" }),
        )
        .await;
    let token = made["token"].as_str().expect("a token").to_owned();
    assert_eq!(desk.call_as(&token, "nodes.list", &json!({})).await.0, StatusCode::OK);
    let wrong_secret = format!("{}x", &token[..token.len() - 1]);
    for bad in ["", "bcat_x.y", "bcjt_a.b", wrong_secret.as_str()] {
        let (status, answer) = desk.call_as(bad, "nodes.list", &json!({})).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{bad}");
        assert_eq!(answer["error"]["message"], "the token is not known, has expired or was revoked");
    }
    desk.house.test.advance(std::time::Duration::from_secs(3_601)).await;
    assert_eq!(desk.call_as(&token, "nodes.list", &json!({})).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_restored_database_is_told_of_for_a_day() {
    let desk = Desk::new().await;
    let db = &desk.house.db;
    let told = async || desk.ok("fleet.status", json!({})).await.get("restoredAt").is_some();
    store::outbox::begin_life(db).await.expect("a first start");
    assert!(!told().await);
    store::testing::probes::restored_beside(db).await.expect("restored");
    store::outbox::begin_life(db).await.expect("a start");
    assert!(told().await);
    desk.house.test.advance(std::time::Duration::from_secs(86_400)).await;
    assert!(!told().await);
}

#[tokio::test]
async fn a_damaged_row_of_the_control_plane_is_named_and_left_out() {
    let desk = Desk::new().await;
    assert_eq!(desk.ok("fleet.status", json!({})).await["trustDomain"], "bc.local");
    for damage in [
        "ALTER TABLE control_plane DROP CONSTRAINT control_plane_times_check",
        "UPDATE control_plane SET created_at = 'infinity'",
    ] {
        store::testing::steal(&desk.house.db, damage).await.expect("whoever has the database may do all of it");
    }
    let status = desk.ok("fleet.status", json!({})).await;
    assert_eq!((&status["fleetId"], &status["dev"]), (&Value::Null, &Value::Null));
    for answer in [status, desk.ok("commandBatches.list", json!({})).await] {
        let row = &answer["unreadable"][0];
        assert_eq!((&row["code"], &row["table"]), (&json!("row-unreadable"), &json!("control_plane")), "{answer}");
        assert!(row["why"].as_str().is_some_and(|why| why.contains("created_at")), "{answer}");
    }
}

#[tokio::test]
async fn a_full_disk_under_postgresql_is_told_as_that_with_what_to_do() {
    let desk = Desk::new().await;
    for full in [
        "CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER no_room BEFORE INSERT ON api_tokens FOR EACH ROW EXECUTE FUNCTION is_full()",
    ] {
        store::testing::steal(&desk.house.db, full).await.expect("a stand-in for a full disk");
    }
    let input = json!({ "name": "ci", "scopes": ["nodes:read"], "idempotencyKey": "1" });
    let error = desk.refused("tokens.createApi", input).await;
    let (message, why) = (error["message"].as_str().expect("a text"), error["why"].as_str().expect("what to do"));
    assert_eq!(error["code"], "UNAVAILABLE");
    assert!(message.contains("no room left on its disk") && message.contains("No space left on device"), "{message}");
    assert!(why.contains("make room"), "{why}");
}

#[tokio::test]
async fn what_people_said_in_a_way_that_nobody_hears_stands_beside_the_batches() {
    use store::outcomes::{Record, Verdict, record};

    let desk = Desk::new().await;
    assert_eq!(desk.ok("commandBatches.list", json!({})).await.get("overlooked"), None);
    let reason = "statements-overlooked".to_owned();
    let verdict = Verdict::Wait { reason, message: "x is not heard: it is too large".to_owned(), again: None };
    let key = crate::source::overlooked_key(crate::source::FLEET);
    let record_of = Record { kind: crate::source::STATEMENTS, key: &key, verdict: &verdict, place: "a test" };
    let mut txn = desk.house.db.begin().await.expect("begin");
    record(&mut txn, &[record_of]).await.expect("recorded");
    txn.commit().await.expect("commit");
    assert_eq!(desk.ok("commandBatches.list", json!({})).await["overlooked"], "x is not heard: it is too large");
    let problems = desk.ok("fleet.status", json!({})).await["problems"].clone();
    assert_eq!(
        (&problems[0]["key"], &problems[0]["reason"]),
        (&json!("fleet/statements"), &json!("statements-overlooked"))
    );
}

#[tokio::test]
async fn a_revoked_token_stops_working_and_a_token_gives_no_more_than_it_has() {
    let desk = Desk::new().await;
    let made = desk
        .ok(
            "tokens.createApi",
            json!({ "name": "ci", "scopes": ["nodes:read", "tokens:write"], "idempotencyKey": "1" }),
        )
        .await;
    let token = made["token"].as_str().expect("a token").to_owned();
    let (status, answer) =
        desk.call_as(&token, "nodes.cordon", &json!({ "node": "x", "reason": "y", "idempotencyKey": "k" })).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::FORBIDDEN, &json!("ACCESS_DENIED")));
    assert!(answer["error"]["why"].as_str().is_some_and(|why| why.contains("nodes:write")), "{answer}");
    let wider = json!({ "name": "more", "scopes": ["nodes:write"], "idempotencyKey": "k" });
    assert_eq!(desk.call_as(&token, "tokens.createApi", &wider).await.0, StatusCode::FORBIDDEN);

    desk.ok("tokens.revokeApi", json!({ "id": made["id"], "idempotencyKey": "2" })).await;
    assert_eq!(desk.call_as(&token, "nodes.list", &json!({})).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        desk.refused("tokens.revokeApi", json!({ "id": made["id"], "idempotencyKey": "3" })).await["code"],
        "NOT_FOUND"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let desk = Desk::new().await;
    for (method, body, code, field) in [
        ("nodes.list", json!({ "pol": "h100" }), "INVALID_INPUT", Some("pol")),
        ("nodes.get", json!({}), "INVALID_INPUT", Some("node")),
        ("nodes.list", json!({ "limit": "ten" }), "INVALID_INPUT", Some("limit")),
        ("nodes.list", json!({ "limit": 0 }), "INVALID_INPUT", Some("limit")),
        ("nodes.list", json!({ "connectivity": "sometimes" }), "INVALID_INPUT", Some("connectivity")),
        ("tokens.create", json!({ "pool": "h100" }), "INVALID_INPUT", Some("idempotencyKey")),
        (
            "tokens.create",
            json!({ "pool": "h100", "expires": "soon", "idempotencyKey": "k" }),
            "INVALID_INPUT",
            Some("expires"),
        ),
        (
            "tokens.create",
            json!({ "pool": "h100", "expires": "90d", "idempotencyKey": "k" }),
            "INVALID_INPUT",
            Some("expires"),
        ),
        (
            "tokens.createApi",
            json!({ "name": "x", "scopes": ["nodes:read", "root"], "idempotencyKey": "k" }),
            "INVALID_INPUT",
            Some("scopes[1]"),
        ),
        ("tokens.create", json!({ "pool": "h10", "idempotencyKey": "k" }), "NOT_FOUND", None),
        ("nodes.get", json!({ "node": "nobody" }), "NOT_FOUND", None),
        ("nodes.get", json!({ "node": "a\0b" }), "INVALID_INPUT", None),
    ] {
        let error = desk.refused(method, body.clone()).await;
        assert_eq!(error["code"], code, "{method} {body}: {error}");
        assert_eq!(error["fields"][0]["name"].as_str(), field, "{method} {body}: {error}");
    }
    assert_eq!(
        desk.refused("tokens.create", json!({ "pool": "h10", "idempotencyKey": "k" })).await["why"],
        "did you mean h100?"
    );
    let error = desk.refused("node.list", json!({})).await;
    assert_eq!((&error["code"], &error["why"]), (&json!("NOT_FOUND"), &json!("did you mean nodes.list?")));
    let error = desk.refused("nodes.list", json!({ "prefix": "x".repeat(table::MAX_BODY) })).await;
    assert_eq!(error["code"], "TOO_LARGE");
}

#[tokio::test]
async fn a_repeat_replays_and_another_request_under_the_key_is_a_conflict() {
    let desk = Desk::new().await;
    let request = json!({ "pool": "h100", "uses": 8, "expires": "24h", "idempotencyKey": "one" });
    let first = desk.ok("tokens.create", request.clone()).await;
    assert!(first["token"].as_str().is_some_and(|token| token.starts_with("bcjt_")));
    // Where machines are admitted that a file describes, the host that it is pasted into is none of them.
    let described =
        format!("bcd join https://gw.example.org:7443 --pin {} --root DIR --hardware FILE", Digest::of("anchor"));
    assert_eq!((&first["dev"], &first["command"]), (&json!(true), &json!(described)));
    let mut again = desk.ok("tokens.create", request).await;
    assert_eq!(again["token"], Value::Null);
    again["token"] = first["token"].clone();
    assert_eq!(again, first);
    assert_eq!(desk.ok("tokens.list", json!({})).await["items"].as_array().map(Vec::len), Some(1));

    let error = desk.refused("tokens.create", json!({ "pool": "h100", "uses": 9, "idempotencyKey": "one" })).await;
    assert_eq!(error["code"], "CONFLICT");
    let log = audit::list(&desk.house.db, first["id"].as_str(), None, 10).await.expect("read");
    assert_eq!(log.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["tokens.create"]);
    assert!(log[0].actor.starts_with("token/tok_"));
    let secret = first["token"].as_str().expect("a token");
    assert!(!log[0].detail.to_string().contains(secret));
}

#[tokio::test]
async fn the_api_lifts_only_its_own_hold() {
    let desk = Desk::new().await;
    let machine = desk.house.converged("gpu-1", &template("1", "a\n")).await;
    let version = desk.ok("nodes.get", json!({ "node": "gpu-1" })).await["node"]["version"].clone();
    let held = desk
        .ok("nodes.cordon", json!({ "node": machine.id, "reason": "fan", "version": version, "idempotencyKey": "1" }))
        .await;
    assert_eq!((&held["cordoned"], &held["bucket"]), (&json!(true), &json!("maintenance")));
    let error = desk
        .refused("nodes.cordon", json!({ "node": "gpu-1", "reason": "fan", "version": version, "idempotencyKey": "2" }))
        .await;
    assert_eq!(error["code"], "CONFLICT");
    let error = desk
        .refused("nodes.cordon", json!({ "node": "gpu-1", "reason": "disk", "owner": "bob", "idempotencyKey": "5" }))
        .await;
    assert_eq!(error["code"], "INVALID_STATE");
    let again = desk.ok("nodes.cordon", json!({ "node": "gpu-1", "reason": "fan 2", "idempotencyKey": "6" })).await;
    assert_eq!(again["replaced"]["reason"], "fan", "what is gone is said");
    let other = json!({ "node": "gpu-1", "reason": "disk", "owner": "bob", "replace": true, "idempotencyKey": "7" });
    let replaced = desk.ok("nodes.cordon", other).await["replaced"].clone();
    assert_eq!((&replaced["reason"], replaced["owner"].is_string()), (&json!("fan 2"), true));
    desk.ok("nodes.uncordon", json!({ "node": "gpu-1", "idempotencyKey": "3" })).await;

    let place = Some("nodes.kdl:7".to_owned());
    let hold = Hold { source: HoldSource::Git, owner: "ada".into(), reason: "fan".into(), until: None, place };
    let mut txn = desk.house.db.begin().await.expect("begin");
    node_holds::place(&mut txn, machine.id, &hold).await.expect("placed");
    txn.commit().await.expect("commit");
    let error = desk.refused("nodes.uncordon", json!({ "node": "gpu-1", "idempotencyKey": "4" })).await;
    assert_eq!(error["code"], "INVALID_STATE");
    assert!(error["why"].as_str().is_some_and(|why| why.contains("nodes.kdl:7")), "{error}");
    let holds = node_holds::list(&desk.house.db, machine.id).await.expect("read").items;
    assert_eq!(holds.iter().map(|stored| stored.hold.source).collect::<Vec<_>>(), [HoldSource::Git]);
}

#[tokio::test]
async fn the_log_is_asked_for_a_machine_by_its_name_and_by_its_id() {
    let desk = Desk::new().await;
    let (machine, other) = (desk.house.machine("gpu-1").await, desk.house.machine("gpu-2").await);
    for (node, key) in [("gpu-1", "1"), ("gpu-2", "2")] {
        desk.ok("nodes.cordon", json!({ "node": node, "reason": "a fan", "idempotencyKey": key })).await;
    }
    let by_name = desk.ok("audit.list", json!({ "subject": "node/gpu-1" })).await;
    let subjects = |list: &Value| {
        list["items"].as_array().expect("lines").iter().map(|line| line["subject"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(subjects(&by_name), [json!(machine.id)]);
    assert_eq!(by_name, desk.ok("audit.list", json!({ "subject": machine.id })).await);
    assert_eq!(
        subjects(&desk.ok("audit.list", json!({ "subject": format!("node/{}", other.id) })).await),
        [json!(other.id)]
    );
    assert_eq!(desk.refused("audit.list", json!({ "subject": "node/nope" })).await["code"], "NOT_FOUND");
}

#[tokio::test]
async fn a_join_with_the_hardware_of_another_node_becomes_that_node_or_none() {
    let desk = Desk::new().await;
    let (machine, _) = (desk.house.machine("gpu-1").await, desk.house.machine("gpu-2").await);
    let serials = Dmi {
        serial: Some("A5M2DG769504".to_owned()),
        board_serial: Some("279397357009883".to_owned()),
        ..Dmi::default()
    };
    let claims = JoinClaims { dmi: serials, ..JoinClaims::default() };
    let key = claims.hardware_key().digest.expect("two serials");
    let join = joins::NewJoin {
        kind: joins::JoinKind::Join,
        csr_hash: Digest::of("a request"),
        state: joins::JoinState::Held,
        reason: "duplicate-hardware".to_owned(),
        message: String::new(),
        pool: None,
        token_id: None,
        hardware_key: Some(key),
        claims: serde_json::to_value(&claims).expect("JSON"),
        attested: Vec::new(),
        node_id: None,
        conflict_with: Some(machine.id),
        peer: None,
    };
    let mut txn = desk.house.db.begin().await.expect("begin");
    identities::set_hardware(&mut txn, machine.id, Hardware { key: Some(key), trusted: true })
        .await
        .expect("known by it");
    joins::upsert(&mut txn, &join).await.expect("held");
    txn.commit().await.expect("commit");
    let join = desk.ok("joins.list", json!({})).await["items"][0]["id"].clone();
    let error = desk.refused("nodes.rebind", json!({ "node": "gpu-2", "join": join, "idempotencyKey": "1" })).await;
    assert_eq!(error["code"], "CONFLICT", "{error}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("gpu-1")), "{error}");
}

#[tokio::test]
async fn a_restricted_identity_is_shown_with_the_kinds_that_it_accepts() {
    let desk = Desk::new().await;
    let machine = desk.house.machine("gpu-1").await;
    let why = async || desk.ok("fleet.why", json!({ "subject": "node/gpu-1" })).await["summary"].clone();
    assert_eq!(desk.ok("nodes.get", json!({ "node": "gpu-1" })).await["identity"].get("kinds"), None);
    assert!(!why().await.as_str().expect("text").contains("accepts"), "every kind is nothing to say");
    let now = desk.house.db.now().await.expect("time");
    let mut txn = desk.house.db.begin().await.expect("begin");
    let restricted = node_certs::NodeCert {
        serial: vec![7; 16],
        node_id: machine.id,
        public_key: machine.key.public().as_bytes().to_vec(),
        identity_generation: IdentityGeneration(1),
        not_before: now,
        not_after: schema::time::Duration::from_secs(86_400).after(now),
        revoked_at: None,
        allowed_kinds: Some(vec!["diag.nvml".to_owned()]),
        node_name: None,
    };
    node_certs::insert(&mut txn, &restricted).await.expect("certificate");
    txn.commit().await.expect("commit");
    let shown = desk.ok("nodes.get", json!({ "node": "gpu-1" })).await["identity"]["kinds"].clone();
    assert_eq!(shown, json!(["diag.nvml"]));
    assert!(why().await.as_str().expect("text").ends_with("accepts diag.nvml alone"));
}

#[tokio::test]
async fn a_deleted_node_leaves_nothing_and_its_name_is_free() {
    let desk = Desk::new().await;
    let machine = desk.house.converged("gpu-1", &template("1", "a\n")).await;
    desk.house.machine("gpu-2").await;
    let version = desk.ok("nodes.get", json!({ "node": "gpu-1" })).await["node"]["version"].clone();
    let stale = json!({ "node": "gpu-1", "version": 0, "idempotencyKey": "1" });
    assert_eq!(desk.refused("nodes.delete", stale).await["code"], "CONFLICT");
    let connected = json!({ "node": "gpu-1", "version": version, "idempotencyKey": "2" });
    assert_eq!(desk.refused("nodes.delete", connected).await["code"], "INVALID_STATE");
    let forced = json!({ "node": "gpu-1", "version": version, "force": true, "idempotencyKey": "3" });
    let gone = desk.ok("nodes.delete", forced).await;
    assert_eq!(gone, json!({ "id": machine.id, "name": "gpu-1" }));
    assert_eq!(desk.refused("nodes.get", json!({ "node": "gpu-1" })).await["code"], "NOT_FOUND");
    let told =
        desk.ok("audit.list", json!({ "subject": format!("node/{}", machine.id), "action": "nodes.delete" })).await;
    assert_eq!(told["items"].as_array().map(Vec::len), Some(1), "{told}");
    let by_name = desk.refused("audit.list", json!({ "subject": "node/gpu-1" })).await;
    assert!(by_name["why"].as_str().is_some_and(|why| why.contains("audit --action nodes.delete")), "{by_name}");
    desk.house.machine("gpu-1").await;
}

#[tokio::test]
async fn status_shows_what_is_there_and_what_waits() {
    let desk = Desk::new().await;
    desk.house.converged("gpu-1", &template("1", "a\n")).await;
    desk.house.machine("gpu-2").await;
    desk.house.jobs.settle().await.expect("settled");
    let status = desk.ok("fleet.status", json!({})).await;
    assert_eq!((&status["dev"], &status["verification"]), (&json!(true), &json!("unverified")));
    assert_eq!(status["nodes"], json!({ "total": 2, "connected": 2, "disconnected": 0, "unreachable": 0, "lost": 0 }));
    let pool = &status["pools"][0];
    assert_eq!((&pool["name"], &pool["total"], &pool["converged"]), (&json!("h100"), &json!(2), &json!(1)));
    let waits: Vec<_> = status["problems"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| (p["node"].as_str(), p["reason"].as_str()))
        .collect();
    assert!(waits.contains(&(Some("gpu-2"), Some("inventory-incomplete"))), "{waits:?}");

    let node = desk.ok("nodes.get", json!({ "node": "gpu-1" })).await;
    assert_eq!(
        (&node["node"]["converged"], node["inventory"]["gpus"].as_array().map(Vec::len)),
        (&json!(true), Some(8))
    );
    let page = desk.ok("nodes.list", json!({ "limit": 1 })).await;
    let rest = desk.ok("nodes.list", json!({ "limit": 1, "after": page["next"] })).await;
    assert_eq!((&page["items"][0]["name"], &rest["items"][0]["name"]), (&json!("gpu-1"), &json!("gpu-2")));
    for (method, input) in [
        ("sites.list", json!({})),
        ("sites.get", json!({ "name": "fra1" })),
        ("pools.list", json!({})),
        ("pools.get", json!({ "name": "h100" })),
        ("joins.list", json!({})),
        ("plans.list", json!({})),
        ("tokens.listApi", json!({})),
    ] {
        desk.ok(method, input).await;
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_no_secret_and_no_sql() {
    let desk = Desk::new().await;
    desk.house.db.close().await;
    let (status, answer) = desk.call("nodes.list", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("UNAVAILABLE")));
    assert!(!answer.to_string().to_lowercase().contains("select"));
    let (status, _) = desk.send(Request::get("/healthz").body(Body::empty()).expect("a request")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_webhook_is_a_poke_and_only_for_those_who_know_its_secret() {
    let desk = Desk::new().await;
    let mut listener = Listener::connect(&desk.house.db).await.expect("a listener");
    let hook = |token: &str| {
        Request::post("/hooks/source")
            .header("x-gitlab-token", token)
            .body(Body::from("{ not json"))
            .expect("a request")
    };
    assert_eq!(desk.send(hook("wrong")).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(desk.send(hook("s3cret")).await.0, StatusCode::ACCEPTED);
    assert_eq!(listener.next().await, Heard::Poke(Poke::Source("fleet".to_owned())));
}

#[tokio::test]
async fn it_is_served_over_tls_and_stops_clean() {
    let house = House::new().await;
    pki::install_provider();
    let now = house.db.now().await.expect("time");
    let keys = pki::keys::Keys::generate("bc.local", now).expect("keys");
    let identity = keys.issue_serving(&["localhost".to_owned()], now).expect("a certificate");
    let serving = pki::tls::ServingCertificate::new(&identity).expect("a certificate");
    let tls = Arc::new(pki::tls::api_server(serving, Arc::new(ManualClock::new(now))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let cancel = CancellationToken::new();
    let server = tokio::spawn(super::run(Config { listener, tls, app: app(&house) }, cancel.clone()));

    let mut client = pki::tls::bootstrap_client_that_believes_any_server();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let name = "localhost".try_into().expect("a name");
    let mut stream =
        tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, stream).await.expect("a handshake");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"status":"ok"}"#), "{answer}");

    cancel.cancel();
    server.await.expect("no panic").expect("a clean end");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_host_whose_clock_is_another_than_the_databases_is_a_problem_and_a_few_seconds_are_none() {
    let desk = Desk::new().await;
    for (name, clock_off) in [("vm/1", 1_200_000), ("vm/2", -5_000)] {
        let said = key_holders::Said { name, revision: 0, clock_off };
        key_holders::process(&desk.house.db, said, std::time::Duration::from_secs(60)).await.expect("noted");
    }
    let status = desk.ok("fleet.status", json!({})).await;
    let problems = status["problems"].as_array().expect("problems");
    let clocks: Vec<&Value> = problems.iter().filter(|problem| problem["reason"] == "clock-apart").collect();
    assert_eq!(clocks.len(), 1, "{problems:?}");
    assert_eq!(clocks[0]["key"], "vm/1");
    assert!(clocks[0]["message"].as_str().is_some_and(|text| text.contains("20m ahead of PostgreSQL's")));
}
