//! Facts about previews, revisions and what people stop by hand.

use axum::http::StatusCode;
use serde_json::{Value, json};
use store::{audit, plans, revisions, rollbacks, sources};

use super::Desk;
use crate::{
    apply::{self, Cause, Target},
    plan::plan,
    source::{CommitInfo, FLEET},
};
use schema::{fleet::Sources, id::WorkerId};

const FILES: [(&str, &str); 4] = [
    ("fleet.kdl", "fleet \"test\" {\n  format 1\n  trust-domain \"bc.local\"\n}\n"),
    ("sites/fra1.kdl", "site \"fra1\" {\n  region \"eu\"\n}\n"),
    ("profiles/base.kdl", "profile \"base\" {\n  sysctl {\n    \"vm.swappiness\" \"10\"\n  }\n}\n"),
    ("pools/h100.kdl", "pool \"h100\" {\n  site \"fra1\"\n  profile \"base\"\n}\n"),
];
const ONE: &str = "1111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222";

fn files() -> Vec<Value> {
    FILES.iter().map(|(path, text)| json!({ "path": path, "text": text })).collect()
}

fn swappiness(value: &str) -> Value {
    json!({ "path": "profiles/base.kdl", "text": FILES[2].1.replace("10", value) })
}

impl Desk {
    /// Brings these files into force as the source does.
    async fn in_force(&self, commit: &str, edit: Option<(&str, &str)>) {
        let db = &self.house.db;
        let files: Sources = FILES
            .iter()
            .map(|(path, text)| {
                let text = edit.filter(|edit| edit.0 == *path).map_or(*text, |edit| edit.1);
                (*path, text.as_bytes().to_vec())
            })
            .collect();
        let fleet = schema::fleet::load(&files).fleet.expect("a fleet");
        let worker = WorkerId::generate();
        let ttl = std::time::Duration::from_secs(300);
        store::workers::join(db, worker, store::Role::Source, "test", 1, ttl).await.expect("joins");
        let name = [store::leases::singleton("source")];
        let lease = store::leases::acquire(db, worker, &name, ttl).await.expect("asks").pop().expect("free");
        let observed = apply::observe(db, FLEET).await.expect("observes");
        let planned = plan(&fleet, &observed, db.now().await.expect("now")).at_commit(commit);
        let info = CommitInfo {
            id: commit.to_owned(),
            tree: "t".to_owned(),
            parents: Vec::new(),
            author: "Ada".to_owned(),
            committer: "Ada".to_owned(),
            subject: "a change".to_owned(),
            committed_at: jiff::Timestamp::UNIX_EPOCH,
            plan: None,
        };
        let target = Target {
            source: FLEET,
            branch: "main",
            commit: &info,
            since: std::slice::from_ref(&info),
            files: Some(&files),
            cause: Cause::Tip,
            shown: &[],
            plan: None,
            manifest: None,
            trust_domain: "bc.local",
            worker,
            lease: &lease,
        };
        apply::apply(db, &planned, &observed, &target).await.expect("applies");
        store::leases::release(db, worker, &name).await.expect("released");
    }

    async fn planner(&self) -> String {
        let new = json!({ "name": "ci", "scopes": ["plans:preview"], "idempotencyKey": "planner" });
        self.ok("tokens.createApi", new).await["token"].as_str().expect("a token").to_owned()
    }

    async fn rows(&self) -> (usize, usize, Option<sources::Source>) {
        let db = &self.house.db;
        (
            revisions::list(db, None, 100).await.expect("reads").items.len(),
            audit::list(db, None, None, 1_000).await.expect("reads").len(),
            sources::find(db, FLEET).await.expect("reads"),
        )
    }
}

#[tokio::test]
async fn a_token_for_previews_shows_plans_and_does_nothing_else() {
    let desk = Desk::new().await;
    desk.in_force(ONE, None).await;
    let token = desk.planner().await;
    let before = desk.rows().await;

    let (status, answer) =
        desk.call_as(&token, "plans.preview", &json!({ "base": ONE, "changed": [swappiness("1")] })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!((&answer["valid"], &answer["base"], &answer["inForce"]), (&json!(true), &json!(ONE), &json!(ONE)));
    assert_eq!(answer["document"]["counts"]["update"], 1, "{answer}");
    let digest = answer["digest"].as_str().expect("a digest").parse().expect("a digest");
    let shown = plans::find_by_digest(&desk.house.db, FLEET, &digest).await.expect("reads").expect("a plan");
    assert_eq!((shown.state, Some(shown.id.to_string().as_str())), (plans::PlanState::Shown, answer["id"].as_str()));
    let (_, again) = desk.call_as(&token, "plans.preview", &json!({ "base": ONE, "changed": [swappiness("1")] })).await;
    assert_eq!((&again["digest"], &again["id"]), (&answer["digest"], &answer["id"]), "the same is shown once");
    let mut whole = files();
    whole[2] = swappiness("1");
    let (_, whole) = desk.call_as(&token, "plans.preview", &json!({ "changed": whole })).await;
    assert_eq!(whole["digest"], answer["digest"], "however the files came");

    assert_eq!(desk.rows().await, before, "nothing else is written");
    for method in super::super::table::METHODS.iter().filter(|method| method.full_name() != "plans.preview") {
        let (status, _) = desk.call_as(&token, &method.full_name(), &json!({ "idempotencyKey": "x" })).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method:?}");
    }
}

#[tokio::test]
async fn a_preview_of_what_is_not_here_says_what_to_send() {
    let desk = Desk::new().await;
    let nothing = desk.ok("plans.preview", json!({})).await;
    assert_eq!(nothing, json!({ "valid": false }));
    let first = desk.ok("plans.preview", json!({ "changed": files() })).await;
    assert_eq!((&first["valid"], first.get("base")), (&json!(true), None), "{first}");

    desk.in_force(ONE, None).await;
    for body in [json!({ "commit": TWO }), json!({ "base": TWO, "changed": [swappiness("1")] })] {
        let unknown = desk.ok("plans.preview", body).await;
        assert_eq!(unknown, json!({ "valid": false, "unknown": TWO, "inForce": ONE }));
    }
    let same = desk.ok("plans.preview", json!({ "commit": ONE })).await;
    assert_eq!((&same["valid"], &same["document"]["counts"]["update"]), (&json!(true), &json!(0)), "{same}");
}

#[tokio::test]
async fn a_preview_of_broken_or_hostile_files_is_a_report() {
    let desk = Desk::new().await;
    desk.in_force(ONE, None).await;
    let before = desk.rows().await;
    let typo = json!({ "path": "pools/h100.kdl", "text": FILES[3].1.replace("profile", "profil") });
    let answer = desk.ok("plans.preview", json!({ "base": ONE, "changed": [typo] })).await;
    assert_eq!(answer["valid"], false);
    assert!(answer["diagnostics"]["errors"].as_u64() > Some(0), "{answer}");
    assert_eq!((answer.get("id"), answer.get("document")), (None, None));

    let deep = json!({ "path": "deep.kdl", "text": "a {".repeat(100_000) });
    let bytes = json!({ "path": "raw.kdl", "base64": "/wD+" });
    let large = json!({ "path": "large.kdl", "text": "// x\n".repeat(400_000) });
    for hostile in [deep, bytes, large] {
        let answer = desk.ok("plans.preview", json!({ "base": ONE, "changed": [hostile] })).await;
        assert_eq!(answer["valid"], false);
    }
    for (body, field) in [
        (json!({ "base": ONE, "changed": [{ "path": "../x.kdl", "text": "" }] }), "changed[0].path"),
        (json!({ "base": ONE, "changed": [{ "path": "x.kdl" }] }), "changed[0].text"),
        (json!({ "base": ONE, "changed": [{ "path": "x.kdl", "base64": "?" }] }), "changed[0].base64"),
        (json!({ "base": ONE, "removed": ["/etc/passwd"] }), "removed[0]"),
        (json!({ "removed": ["a.kdl"] }), "removed"),
        (json!({ "commit": ONE, "changed": [swappiness("1")] }), "changed"),
        (json!({ "commit": ONE, "base": ONE }), "base"),
    ] {
        let error = desk.refused("plans.preview", body.clone()).await;
        assert_eq!((&error["code"], &error["fields"][0]["name"]), (&json!("INVALID_INPUT"), &json!(field)), "{body}");
    }
    assert_eq!(desk.rows().await, before);
}

#[tokio::test]
async fn a_preview_cannot_lift_the_limits_in_force() {
    let desk = Desk::new().await;
    let strict = FILES[0].1.replace("}", "  prune max-objects=0\n}");
    desk.in_force(ONE, Some(("fleet.kdl", &strict))).await;
    let loose = json!({ "path": "fleet.kdl", "text": FILES[0].1.replace("}", "  prune max-objects=50\n}") });
    let gone = json!({ "path": "gone.kdl", "text": "removed \"pool/h100\" reason=\"sold\"\n" });
    let answer =
        desk.ok("plans.preview", json!({ "base": ONE, "changed": [loose, gone], "removed": ["pools/h100.kdl"] })).await;
    assert_eq!(
        (&answer["document"]["counts"]["remove"], &answer["document"]["counts"]["held"]),
        (&json!(0), &json!(1)),
        "{answer}"
    );
}

#[tokio::test]
async fn other_methods_keep_their_short_body() {
    let desk = Desk::new().await;
    let long = "x".repeat(2 << 20);
    assert_eq!(desk.refused("nodes.list", json!({ "prefix": long })).await["code"], "TOO_LARGE");
    let answer = desk.refused("plans.preview", json!({ "commit": "x", "base": long })).await;
    assert_eq!(answer["fields"][0]["name"], "base", "it was read");
}

#[tokio::test]
async fn revisions_are_listed_with_what_they_brought() {
    let desk = Desk::new().await;
    desk.in_force(ONE, None).await;
    desk.in_force(TWO, Some(("profiles/base.kdl", &FILES[2].1.replace("10", "1")))).await;
    let listed = desk.ok("revisions.list", json!({ "limit": 1 })).await;
    assert_eq!((&listed["items"][0]["commit"], &listed["items"][0]["restorable"]), (&json!(TWO), &json!(true)));
    let next = desk.ok("revisions.list", json!({ "limit": 1, "after": listed["next"] })).await;
    assert_eq!(next["items"][0]["commit"], ONE);
    let of_profile = desk.ok("revisions.list", json!({ "object": "profile/base" })).await;
    assert_eq!(of_profile["items"].as_array().map(Vec::len), Some(2));
    let of_site = desk.ok("revisions.list", json!({ "object": "site/fra1" })).await;
    assert_eq!(of_site["items"][0]["commit"], ONE);

    let detail = desk.ok("revisions.get", json!({ "revision": &TWO[..8] })).await;
    assert_eq!(detail["objects"][0]["object"], "profile/base", "{detail}");
    assert_eq!(detail["files"], json!([{ "path": "profiles/base.kdl", "change": "changed" }]));
    assert_eq!(detail["commits"][0]["id"], TWO);
    let by_id = desk.ok("revisions.get", json!({ "revision": detail["revision"]["id"] })).await;
    assert_eq!(by_id, detail);
    assert_eq!(desk.refused("revisions.get", json!({ "revision": "3333333" })).await["code"], "NOT_FOUND");
    assert_eq!(desk.refused("revisions.get", json!({ "revision": "12" })).await["code"], "INVALID_INPUT");
}

#[tokio::test]
async fn a_rollback_is_asked_for_once_and_quarantines_the_commit_in_force() {
    let desk = Desk::new().await;
    desk.in_force(ONE, None).await;
    desk.in_force(TWO, Some(("profiles/base.kdl", &FILES[2].1.replace("10", "1")))).await;
    for (revision, code) in [(TWO, "INVALID_STATE"), ("3333333", "NOT_FOUND")] {
        let body = json!({ "revision": revision, "reason": "r", "idempotencyKey": revision });
        assert_eq!(desk.refused("fleet.rollback", body).await["code"], code);
    }
    let elsewhere = json!({ "revision": ONE, "from": ONE, "reason": "r", "idempotencyKey": "elsewhere" });
    assert_eq!(desk.refused("fleet.rollback", elsewhere).await["code"], "CONFLICT");
    let preview = desk.ok("plans.preview", json!({ "revision": ONE })).await;
    let (usual, shown) =
        (desk.ok("plans.list", json!({})).await, desk.ok("plans.list", json!({ "state": "shown" })).await);
    assert_eq!(
        (&usual["items"], &shown["items"][0]["id"]),
        (&json!([]), &preview["id"]),
        "a preview is no plan of the source"
    );
    assert_eq!((&preview["valid"], &preview["document"]["commit"]), (&json!(true), &json!(ONE)), "{preview}");
    let body = json!({ "revision": &ONE[..10], "reason": "it swaps", "owner": "ada", "idempotencyKey": "1" });
    let asked = desk.ok("fleet.rollback", body.clone()).await;
    assert_eq!((&asked["commit"], &asked["quarantined"]), (&json!(ONE), &json!([TWO])));
    assert_eq!(desk.ok("fleet.rollback", body).await, asked, "the same call is the same rollback");
    let waiting = rollbacks::waiting(&desk.house.db, FLEET).await.expect("reads").expect("one");
    assert_eq!((Some(waiting.new.id.to_string().as_str()), waiting.new.owner.as_str()), (asked["id"].as_str(), "ada"));

    let status = desk.ok("fleet.status", json!({})).await;
    assert_eq!(status["sources"][0]["rollback"]["state"], "requested");
    assert_eq!(status["held"]["quarantined"][0]["commit"], TWO);
    let back = desk.refused("fleet.rollback", json!({ "revision": TWO, "reason": "r", "idempotencyKey": "2" })).await;
    assert_eq!(back["code"], "INVALID_STATE");
    for code in [None, Some("NOT_FOUND")] {
        let key = format!("release-{code:?}");
        let (_, answer) = desk.call("fleet.release", json!({ "commit": TWO, "idempotencyKey": key })).await;
        assert_eq!(answer["error"]["code"].as_str(), code);
    }
    let short = json!({ "commit": "2222", "reason": "r", "idempotencyKey": "q" });
    assert_eq!(desk.refused("fleet.quarantine", short).await["fields"][0]["name"], "commit");
}

#[tokio::test]
async fn suspensions_and_freezes_are_held_in_one_list() {
    let desk = Desk::new().await;
    let pool = FILES[3].1.replace("  site", "  suspend \"audit\" owner=\"grace\"\n  site");
    desk.in_force(ONE, Some(("pools/h100.kdl", &pool))).await;
    let place = |scope: &str, owner: &str, key: &str| json!({ "scope": scope, "reason": "power", "owner": owner, "idempotencyKey": key });
    desk.ok("fleet.suspend", place("site/fra1", "ada", "1")).await;
    for (body, code) in [
        (place("site/fra1", "grace", "2"), "INVALID_STATE"),
        (place("site/nowhere", "ada", "3"), "NOT_FOUND"),
        (place("profile/base", "ada", "4"), "INVALID_INPUT"),
        (
            json!({ "scope": "fleet", "reason": "r", "until": "2020-01-01T00:00:00Z", "idempotencyKey": "5" }),
            "INVALID_INPUT",
        ),
    ] {
        assert_eq!(desk.refused("fleet.suspend", body.clone()).await["code"], code, "{body}");
    }
    let error = desk.refused("fleet.suspend", place("site/fra1", "grace", "again")).await;
    assert_eq!(error["message"], "ada suspends site/fra1 already");
    assert!(error["why"].as_str().is_some_and(|why| why.starts_with("power, no end")), "{error}");
    let mut over = place("site/fra1", "grace", "replace");
    over["replace"] = true.into();
    assert_eq!(desk.ok("fleet.suspend", over).await["replaced"], json!({ "owner": "ada", "reason": "power" }));
    let own = desk.ok("fleet.suspend", place("site/fra1", "grace", "own")).await;
    assert_eq!(own["replaced"]["owner"], "grace");
    let mut back = place("site/fra1", "ada", "back");
    back["replace"] = true.into();
    desk.ok("fleet.suspend", back).await;
    let holds = desk.ok("fleet.holds", json!({})).await;
    let found: Vec<[&str; 4]> = holds["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|hold| ["subject", "gate", "source", "owner"].map(|member| hold[member].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(found, [["pool/h100", "suspend", "git", "grace"], ["site/fra1", "suspend", "api", "ada"]], "{holds}");

    let error = desk.refused("fleet.resume", json!({ "scope": "pool/h100", "idempotencyKey": "6" })).await;
    assert_eq!(error["code"], "INVALID_STATE");
    assert!(error["why"].as_str().is_some_and(|why| why.contains("pools/h100.kdl")), "{error}");
    desk.ok("fleet.resume", json!({ "scope": "site/fra1", "idempotencyKey": "7" })).await;
    let error = desk.refused("fleet.resume", json!({ "scope": "site/fra1", "idempotencyKey": "8" })).await;
    assert_eq!(error["code"], "NOT_FOUND");
}
