//! Batches that no person writes: asked for over the API and signed by the control plane as a service, or pushed by hand by a service.
//! People approve them as any other, and nobody else does.

use serde_json::{Value, json};
use tests::{until, until_some};

use super::batches::Fleet;

const PLACES: &str = "refs/heads/bc/proposals";

impl Fleet {
    fn keys(&self) -> String {
        self.up.data().join("keys").display().to_string()
    }

    /// The next step towards a control plane that proposes.
    fn service(&self) -> Value {
        let dir = self.repo.dir().display().to_string();
        self.up.cli().json(&["keys", "service", "--keys", &self.keys(), "--repo", &dir, "-o", "json"])
    }

    /// Asks for a boot of the machine, and says how that ended.
    fn create(&self, batch: &str, key: &str) -> Result<Value, String> {
        let scope = format!("scope:={}", json!([{ "subject": self.name, "kind": "node.reboot" }]));
        let (name, key) = (format!("name={batch}"), format!("idempotencyKey={key}"));
        let words = ["api", "commandBatches.create", &name, "reason=it hangs", &scope, "expiresSeconds:=3600", &key];
        let said = self.up.cli().run(&words);
        if said.code == 0 { Ok(serde_json::from_str(&said.out).expect("JSON")) } else { Err(said.err) }
    }

    fn place(&self, batch: &str) -> String {
        self.repo.git(&["for-each-ref", "--format=%(objectname)", &format!("{PLACES}/{batch}")])
    }

    /// A policy of the next epoch, with some lines more, that Ada agrees to.
    fn change_policy(&self, lines: &str) {
        let shown =
            self.up.cli().json(&["trust", "show", "--repo", &self.repo.dir().display().to_string(), "-o", "json"]);
        let (epoch, digest) = (
            shown["policy"]["epoch"].as_u64().expect("an epoch"),
            shown["policy"]["digest"].as_str().expect("a digest"),
        );
        let text = self.repo.read("trust/policy.kdl");
        let (_, rest) = text.split_once("}\n").expect("a head");
        let head = format!("policy {{\n    format 1\n    epoch {}\n    prev \"{digest}\"\n}}\n", epoch + 1);
        self.repo.write("trust/policy.kdl", format!("{head}{rest}{lines}"));
        self.sign_as("ada");
        self.repo.git(&["add", "--all"]);
        self.repo.git(&["commit", "--quiet", "-S", "--message", "trust: a service"]);
        let dir = self.repo.dir().display().to_string();
        let _ = self.up.cli().ok(&["trust", "agree", "--repo", &dir, "--yes"]);
    }

    fn epoch(&self, wanted: &str) {
        until(&format!("the policy of epoch {wanted} is in force"), || {
            self.up.sql("SELECT max(epoch) FROM trust_epochs") == wanted
        });
        until("its tip is in force", || {
            let source = self.up.status()["sources"][0].clone();
            source["state"] == "ok"
        });
    }

    /// A control plane whose service key the policy names.
    fn proposes(&self) {
        let made = self.service();
        assert_eq!((&made["made"], &made["state"]), (&json!(true), &json!("unnamed")), "{made}");
        let next = made["next"].as_str().expect("what is next");
        let lines = &next[next.find("principal").expect("a principal")..next.find("\nCommit").expect("an end")];
        self.change_policy(lines);
        let proven = self.service();
        assert_eq!((&proven["made"], &proven["state"]), (&json!(false), &json!("proven")), "{proven}");
        self.epoch("2");
        let ready = self.service();
        assert_eq!(ready["state"], "ready", "{ready}");
    }
}

#[test]
fn a_caller_asks_two_people_agree_and_the_machine_boots_once() {
    let fleet = Fleet::new(true);
    let refused = fleet.create("kernel", "one").expect_err("there is no key");
    assert!(refused.contains("service-key-missing") && refused.contains("better-compute keys service"), "{refused}");
    let tip = fleet.repo.head();
    fleet.proposes();
    assert_ne!(fleet.repo.head(), tip);

    let made = until_some("the key is known", || fleet.create("kernel", "one").ok());
    assert_eq!((&made["state"], &made["origin"]), (&json!("proposed"), &json!("proposal")), "{made}");
    let again = fleet.create("kernel", "one").expect("the same");
    assert_eq!(again["batchId"], made["batchId"], "a repeat is the same batch");
    assert!(fleet.create("kernel", "two").expect_err("used").contains("batch-name-used"));
    let batch =
        until_some("its commit is there", || fleet.batch("kernel").filter(|batch| batch["planCommit"].is_string()));
    let commit = fleet.place("kernel");
    assert_eq!(batch["planCommit"], commit.as_str());
    assert_eq!(
        (&batch["batchId"], &batch["createdBy"]),
        (&made["batchId"], &made["createdBy"]),
        "whoever asked stays who asked"
    );
    assert_eq!(fleet.repo.git(&["rev-parse", &format!("{commit}^")]), fleet.repo.head(), "one commit on the branch");
    assert_eq!(fleet.repo.git(&["diff", "--name-status", &format!("{commit}^"), &commit]), "A\tbatches/kernel.yaml");
    assert_eq!(fleet.repo.git(&["status", "--porcelain"]), "", "no work tree was touched");
    assert_eq!(batch["proposer"], "control-plane");

    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("control-plane"), "{words}");
    until("ada is heard", || fleet.batch("kernel").is_some_and(|batch| batch["approvals"]["yes"] == json!(["ada"])));
    assert_eq!(fleet.node.boots(), 1);
    let (code, words) = fleet.say("cleo", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    let batch = fleet.wait_state("kernel", "done");
    assert_eq!((&batch["counts"]["succeeded"], fleet.node.boots()), (&json!(1), 2), "{batch}");
    assert!(fleet.create("kernel", "three").expect_err("used").contains("batch-name-used"));
    assert_eq!(fleet.place("kernel"), commit, "what was proposed stays where it is");
}

#[test]
fn what_a_caller_takes_back_is_never_done_and_a_stolen_database_proposes_nothing() {
    let fleet = Fleet::new(true);
    fleet.proposes();
    until("the key is known", || fleet.create("kernel", "one").is_ok());
    until("its commit is there", || fleet.batch("kernel").is_some_and(|batch| batch["planCommit"].is_string()));
    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    let _ = fleet.up.cli().ok(&["batches", "cancel", "kernel", "--reason", "a fan it was"]);
    fleet.wait_state("kernel", "cancelled");

    // Whoever has the database asks in everybody's name: a row is no word of this control plane.
    fleet.up.sql(
        "INSERT INTO batches (id, name, origin, state, quorum, kind, doc, document, why, created_by, leaf_count, not_before, expires, max_in_flight, max_failures)
         SELECT gen_random_uuid(), 'planted', origin, 'proposed', quorum, kind, replace(doc, 'kernel', 'planted'),
                sha256(convert_to(replace(doc, 'kernel', 'planted'), 'UTF8')), why, created_by, 0, not_before, expires, 1, 0 FROM batches WHERE name = 'kernel';
         INSERT INTO proposals (batch_id, text, mark) SELECT id, 'batch \"planted\" { command \"node.reboot\"; }', sha256('planted') FROM batches WHERE name = 'planted'",
    );
    fleet.up.sql("SELECT pg_notify('better_compute', 'source:fleet')");
    let planted = fleet.wait_state("planted", "void");
    assert_eq!((planted["reason"].as_str(), fleet.place("planted")), (Some("not-ours"), String::new()), "{planted}");
    let (_, words) = fleet.say("cleo", "approve", "kernel");
    let state = fleet.batch("kernel").expect("a batch")["state"].clone();
    assert_eq!((state, fleet.node.boots()), (json!("cancelled"), 1), "{words}");
}

#[test]
fn a_person_proposes_by_hand_and_the_words_of_a_service_approve_nothing() {
    let fleet = Fleet::new(true);
    fleet.propose_by_hand("bob", "health-42");
    let batch = fleet.wait_state("health-42", "proposed");
    assert_eq!((&batch["origin"], &batch["proposer"]), (&json!("proposal"), &json!("bob")), "{batch}");
    let (code, words) = fleet.say("bob", "approve", "health-42");
    assert!(code != 0 && words.contains("does not count"), "{words}");
    let (code, words) = fleet.say("ada", "approve", "health-42");
    assert_eq!(code, 0, "{words}");
    let heard = || fleet.batch("health-42").is_some_and(|batch| batch["approvals"]["yes"] == json!(["ada"]));
    until("ada is heard", heard);
    // Her words again, signed by a service, in its own name and in a person's.
    let hers =
        fleet.repo.git(&["for-each-ref", "--format=%(objectname)", "refs/heads/bc/statements/approve/health-42"]);
    let words = fleet.repo.git(&["cat-file", "commit", &hers]);
    let (_, message) = words.split_once("\n\n").expect("a message");
    fleet.sign_as("robot");
    for who in ["robot", "cleo"] {
        let message = format!("{}\n", message.replace("principal: ada", &format!("principal: {who}")));
        fleet.says(&message, &format!("approve/health-42/{who}/00000000"), &fleet.place("health-42"));
    }
    // What is proposed after that is seen: had the words counted, they had before.
    fleet.propose_by_hand("robot", "health-43");
    fleet.wait_state("health-43", "proposed");
    let batch = fleet.batch("health-42").expect("a batch");
    assert!(heard() && batch["state"] == "proposed", "{batch}");
    let (code, words) = fleet.say("cleo", "approve", "health-42");
    assert_eq!(code, 0, "{words}");
    fleet.wait_state("health-42", "done");
    assert_eq!(fleet.node.boots(), 2);
}

impl Fleet {
    /// A signed commit with the files of a plan, at a place of statements.
    fn says(&self, message: &str, place: &str, plan: &str) {
        let file = self.world.path("message");
        std::fs::write(&file, message).expect("a file");
        let file = file.display().to_string();
        let made = self.repo.git(&["commit-tree", "-S", "-p", plan, "-F", &file, &format!("{plan}^{{tree}}")]);
        self.repo.git(&["update-ref", &format!("refs/heads/bc/statements/{place}"), &made]);
    }

    /// A proposal beside the branch, as the guide says to make one.
    fn propose_by_hand(&self, who: &str, batch: &str) {
        self.repo.git(&["switch", "--quiet", "--detach"]);
        self.ask(who, batch, "it hangs");
        self.repo.git(&["update-ref", &format!("{PLACES}/{batch}"), "HEAD"]);
        self.repo.git(&["switch", "--quiet", "main"]);
    }
}
