//! Asking for batches where people approve: what is refused at once, and what is written down with a mark.

use pki::{
    batch::testing::Person,
    keys::{Keys, TrustPin},
    trust::{
        object::ObjectId,
        policy::{Policy, check},
        statement::FleetId,
    },
};
use schema::time::Timestamp;
use store::{
    batches::proposals::{self, AskedFor},
    trust::{Epoch, put_epoch},
};

use super::*;
use crate::{custody::SourceCustody, trust::Pinned};

const BATCHES: &str = "path \"batches/**\" { roles \"admin\" \"proposer\"; }\n";

/// A desk of a pinned fleet.
struct Bench {
    desk: Desk,
    keys: Keys,
    people: [Person; 3],
}

impl Bench {
    /// The policy names the service key when `named` says with which words behind it.
    async fn new(has_key: bool, named: Option<&str>) -> Self {
        let mut desk = Desk::new().await;
        let people = [Person::new("ada"), Person::new("bob"), Person::new("cleo")];
        let mut keys = Keys::generate("bc.local", Timestamp::UNIX_EPOCH).expect("keys");
        if has_key {
            keys.add_service_key();
        }
        let mut text = "policy { format 1; epoch 1; }\ntrust { roles \"admin\"; threshold 1; }\npath \"**\" { roles \"admin\"; }\n\
            tier \"reboot\" { commands \"node.reboot\"; roles \"admin\"; threshold 2; max-nodes 2; max-ttl \"4h\"; }\n"
            .to_owned();
        for one in &people {
            text.push_str(&format!(
                "principal \"{}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n",
                one.name,
                one.line()
            ));
        }
        if let Some(more) = named {
            let key = keys.service().iter().next().map_or_else(|| Person::new("robot").line(), |key| key.line());
            text.push_str(&format!(
                "principal \"robot\" {{ kind \"service\"; roles \"proposer\"; key \"{key}\"; }}\n{more}"
            ));
        }
        let policy: Policy = check(text.as_bytes()).policy.expect("a policy");
        let commit = ObjectId::Sha1([7; 20]);
        let pin = TrustPin { commit, fleet: FleetId::of("bc.local", &commit), digest: policy.digest() };
        keys.pin_trust(pin).expect("pinned");
        let mut txn = desk.house.db.begin().await.expect("begin");
        let first = Epoch {
            epoch: 1,
            digest: policy.digest(),
            policy: text.into_bytes(),
            commit: commit.to_string(),
            statements: Vec::new(),
            at: Timestamp::UNIX_EPOCH,
        };
        put_epoch(&mut txn, &first).await.expect("stored");
        txn.commit().await.expect("commit");
        let service = Some(SourceCustody::new(&keys.source(), "fleet_test"));
        let app = App { pinned: Pinned::new(Some(pin)), service, ..app(&desk.house) };
        desk.router = dispatch::router(app);
        for machine in ["gpu-1", "gpu-2", "gpu-3"] {
            desk.house.converged(machine, &template("1", "a\n")).await;
        }
        Self { desk, keys, people }
    }

    async fn proposing() -> Self {
        Self::new(true, Some(BATCHES)).await
    }

    async fn asked(&self) -> Vec<AskedFor> {
        proposals::asked(&self.desk.house.db, 10).await.expect("read")
    }
}

fn reboot(batch: &str, key: &str, more: Value) -> Value {
    let mut body = json!({
        "name": batch, "reason": "it hangs", "idempotencyKey": key,
        "scope": [{ "subject": "gpu-2", "kind": "node.reboot" }, { "subject": "gpu-1", "kind": "node.reboot" }],
    });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn what_is_asked_for_is_written_down_as_it_will_be_and_marked() {
    let bench = Bench::proposing().await;
    let more = json!({ "proposer": "bob", "maxInFlight": 2, "spread": "rack", "expiresSeconds": 3600 });
    let made = bench.desk.ok("commandBatches.create", reboot("kernel", "one", more.clone())).await;
    assert_eq!(
        (&made["state"], &made["origin"], &made["needsApproval"]),
        (&json!("proposed"), &json!("proposal"), &json!(true))
    );
    assert_eq!((&made["proposer"], &made["counts"]["machines"]), (&json!("bob"), &json!(2)), "{made}");
    assert_eq!(made["document"]["scope"]["nodes"], json!(["gpu-1", "gpu-2"]), "{made}");
    assert!(made.get("planCommit").is_none() && made.get("header").is_none(), "{made}");
    let asked = bench.asked().await;
    let [one] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(
        (one.name.as_str(), one.batch.to_string()),
        ("kernel", made["batchId"].as_str().expect("an id").to_owned())
    );
    let custody = SourceCustody::new(&bench.keys.source(), "fleet_test");
    let seal = bench.keys.service().seal(custody.realm()).expect("a seal");
    assert!(seal.is_tag(&one.words(), &one.mark));
    assert!(one.text.contains("name: kernel") && one.text.contains("reason: it hangs"), "{}", one.text);

    assert_eq!(bench.desk.ok("commandBatches.create", reboot("kernel", "one", more.clone())).await, made);
    let other = bench.desk.refused("commandBatches.create", reboot("kernel", "two", more)).await;
    assert_eq!(other["code"], "CONFLICT", "{other}");
    assert_eq!(bench.asked().await.len(), 1, "a repeat asks for nothing more");

    // It waits, is shown, and is taken back.
    bench.desk.house.jobs.tick(store::queue::BATCH.name).await.expect("looked at");
    let shown = bench.desk.ok("commandBatches.get", json!({ "batch": "kernel" })).await;
    assert_eq!(shown["waitsFor"]["reason"], "proposal-pending", "{shown}");
    let scope = bench.desk.ok("commandBatches.scope", json!({ "batch": "kernel" })).await;
    assert_eq!(scope["items"].as_array().map(Vec::len), Some(2));
    let run = json!({ "node": "gpu-1", "kind": "node.reboot", "batch": made["batchId"], "idempotencyKey": "r" });
    let early = bench.desk.refused("commands.run", run).await;
    assert!(early["why"].as_str().is_some_and(|why| why.starts_with("proposal-pending")), "{early}");
    let cancel = json!({ "batch": "kernel", "reason": "a fan it was", "idempotencyKey": "c" });
    let gone = bench.desk.ok("commandBatches.cancel", cancel).await;
    assert_eq!(gone["state"], "cancelled");
    assert!(bench.asked().await.is_empty(), "nobody proposes it any more");
    let again = bench.desk.refused("commandBatches.create", reboot("kernel", "three", json!({}))).await;
    assert_eq!(again["code"], "CONFLICT", "{again}");
}

#[tokio::test]
async fn without_a_key_that_the_policy_lets_propose_it_says_what_is_missing() {
    for (has_key, named, code) in
        [(false, None, "service-key-missing"), (true, None, "service-unknown"), (true, Some(""), "service-path")]
    {
        let bench = Bench::new(has_key, named).await;
        let error = bench.desk.refused("commandBatches.create", reboot("kernel", "one", json!({}))).await;
        assert_eq!(error["code"], "UNSUPPORTED", "{error}");
        let why = error["why"].as_str().expect("why");
        assert!(why.starts_with(&format!("{code}: ")) && why.contains("kind: batch"), "{why}");
        assert!(bench.asked().await.is_empty());
        assert_eq!(bench.people.len(), 3);
    }
}

#[tokio::test]
async fn what_can_come_to_nothing_is_refused_at_once() {
    let bench = Bench::proposing().await;
    bench.desk.house.machine("gpu-9").await;
    let three = json!([{ "subject": "gpu-1", "kind": "node.reboot" }, { "subject": "gpu-2", "kind": "node.reboot" }, { "subject": "gpu-3", "kind": "node.reboot" }]);
    for (more, code, says) in [
        (json!({ "expiresSeconds": 86_400 }), "INVALID_STATE", "window"),
        (json!({ "scope": three }), "INVALID_STATE", "too-many-nodes"),
        (json!({ "proposer": "eve" }), "INVALID_INPUT", "names no principal eve"),
        (json!({ "maxInFlight": 0 }), "INVALID_INPUT", "one machine at least"),
        (json!({ "spread": "no label!" }), "INVALID_INPUT", "label"),
        (json!({ "name": "all" }), "INVALID_INPUT", "another name"),
        (json!({ "name": "breakglass-0123456789ab" }), "INVALID_INPUT", "another name"),
        (json!({ "notBefore": "2099-01-01T00:00:00Z" }), "INVALID_INPUT", "14 days"),
        (
            json!({ "scope": [{ "subject": "gpu-1", "kind": "node.reboot" }, { "subject": "gpu-2", "kind": "node.reboot", "payload": { "reason": "x" } }] }),
            "INVALID_INPUT",
            "one text",
        ),
    ] {
        let error = bench.desk.refused("commandBatches.create", reboot("kernel", "one", more.clone())).await;
        assert_eq!(error["code"], code, "{more}: {error}");
        assert!(error.to_string().contains(says), "{more}: {error}");
    }
    assert!(bench.asked().await.is_empty());
    // Nothing said about its time: as long as people's approvals hold at most.
    let made = bench.desk.ok("commandBatches.create", reboot("kernel", "one", json!({}))).await;
    let time = |key: &str| made[key].as_str().expect("a time").parse::<Timestamp>().expect("a time").as_second();
    assert!((4 * 3600 - 1..=4 * 3600).contains(&(time("expires") - time("notBefore"))), "{made}");
}
