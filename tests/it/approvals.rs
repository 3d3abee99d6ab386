//! What a machine does by itself against whoever has the database, the gateway or an old frame: real git, real keys, a real
//! daemon. It boots when people approved it, and once.

use serde_json::Value;
use tests::{until, until_some};

use super::batches::Fleet;

impl Fleet {
    /// How the machine's only open or newest command ended.
    #[track_caller]
    fn ended(&self, id: &str) -> (String, String) {
        let command = until_some(&format!("{id} ends"), || {
            let command = self.up.cli().json(&["api", "commands.get", &format!("command={id}")]);
            ["succeeded", "failed", "rejected", "expired"].contains(&command["state"].as_str()?).then_some(command)
        });
        let word = |key: &str| command[key].as_str().unwrap_or_default().to_owned();
        (word("state"), word("reason"))
    }

    /// The batch's one command.
    fn command(&self) -> String {
        let all = self.up.cli().json(&["api", "commands.list"]);
        all["items"][0]["id"].as_str().expect("a command").to_owned()
    }

    /// Writes into the database that the command was never sent, with the signature and the approval that it had.
    fn sends_it_again(&self) {
        self.up.sql(
            "SET session_replication_role = replica; UPDATE commands SET state = 'pending', reason = NULL, message = NULL, settled_at = NULL, dispatched_at = NULL,
             acked_at = NULL, started_at = NULL, epoch = NULL, boot_id = NULL, journal_id = NULL,
             not_before = compute_now() WHERE kind = 'node.reboot'",
        );
    }

    fn policy_epoch(&self) -> Value {
        let (_, words) = self.node.said(&["status", "--format", "json"]);
        let status: Value = serde_json::from_str(words.trim()).unwrap_or_default();
        status["people"]["epoch"].clone()
    }

    fn people(&self, batch: &str) {
        self.ask("bob", batch, "a new kernel");
        self.wait_state(batch, "proposed");
        for who in ["ada", "cleo"] {
            let (code, words) = self.say(who, "approve", batch);
            assert_eq!(code, 0, "{words}");
        }
    }
}

#[test]
fn a_machine_that_joined_before_the_pin_learns_the_policy_and_refuses_what_was_queued_before() {
    let mut fleet = Fleet::of(true);
    assert_eq!(fleet.policy_epoch(), Value::Null, "nobody told it of a policy");
    fleet.node.kill();
    let name = format!("node={}", fleet.name);
    let words = ["api", "commands.run", &name, "kind=node.reboot", "idempotencyKey=early"];
    let id = fleet.up.cli().json(&words)["id"].as_str().expect("an id").to_owned();
    fleet.pin();
    until("the policy is in force", || fleet.up.sql("SELECT count(*) FROM trust_epochs") == "1");
    // Whoever holds the queue says that it may go: the genuine command, signed, without anybody's approval.
    fleet.node.run(&[]);
    let (state, reason) = fleet.ended(&id);
    assert_ne!(state, "succeeded", "{reason}");
    assert_eq!(fleet.node.boots(), 1);
    until("the machine believes the policy", || fleet.policy_epoch() == 1);
    let (code, words) = fleet.node.said(&["status"]);
    assert!(code == 0 && words.contains("epoch 1, sha256:"), "{words}");
}

#[test]
fn what_people_approved_happens_once_however_often_it_is_sent() {
    let mut fleet = Fleet::new(true);
    until("the machine believes the policy", || fleet.policy_epoch() == 1);
    fleet.people("kernel");
    fleet.wait_state("kernel", "done");
    assert_eq!(fleet.node.boots(), 2);
    let (_, words) = fleet.node.said(&["commands"]);
    assert!(words.contains("approved in batch/kernel (tier reboot, leaf 0) by ada, cleo"), "{words}");

    // The stolen database sends the same frame again, to this daemon and to the next one.
    let id = fleet.command();
    for again in [false, true] {
        fleet.sends_it_again();
        if again {
            fleet.node.kill();
            fleet.node.run(&[]);
        }
        assert_eq!(fleet.ended(&id).0, "succeeded", "the journal has the word");
        assert_eq!(fleet.node.boots(), 2);
    }
}

#[test]
fn an_approval_is_used_up_before_the_act_and_a_crash_in_between_gives_nothing_back() {
    let mut fleet = Fleet::new(true);
    until("the machine believes the policy", || fleet.policy_epoch() == 1);
    fleet.node.kill();
    fleet.node.run_with(&[], &[("BCD_KILL_AT", "after:start")]);
    fleet.people("kernel");
    fleet.node.wait_dead();
    fleet.node.run(&[]);
    let batch = fleet.wait_state("kernel", "done");
    assert_eq!((&batch["counts"]["failed"], fleet.node.boots()), (&Value::from(1), 1), "{batch}");
    let id = fleet.command();
    fleet.sends_it_again();
    assert_eq!(fleet.ended(&id).0, "failed");
    assert_eq!(fleet.node.boots(), 1);
}

#[test]
fn no_row_of_the_database_stands_for_a_person() {
    let fleet = Fleet::new(true);
    until("the machine believes the policy", || fleet.policy_epoch() == 1);
    fleet.ask("bob", "kernel", "a new kernel");
    fleet.wait_state("kernel", "proposed");
    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    until("ada is heard", || {
        fleet.batch("kernel").is_some_and(|batch| batch["approvals"]["yes"] == serde_json::json!(["ada"]))
    });
    // Ada's word under other names, another policy, another state.
    fleet.up.sql(
        "INSERT INTO statements (digest, kind, subject, principal, commit, raw)
         SELECT 'sha256:' || repeat('0', 64), kind, subject, 'cleo', commit, raw FROM statements WHERE kind = 'approve/v1'",
    );
    fleet.up.sql("UPDATE trust_epochs SET policy = convert_to(replace(convert_from(policy, 'UTF8'), 'threshold 2', 'threshold 1'), 'UTF8')");
    fleet.up.sql("UPDATE batches SET state = 'approved'");
    fleet.up.sql("SELECT pg_notify('better_compute', 'work:controllers')");
    // What is asked for after that is done: had the boot been sent, it had been before.
    for number in 0..2 {
        let (node, key) = (format!("node={}", fleet.name), format!("idempotencyKey=after-{number}"));
        let words = ["api", "commands.run", &node, "kind=inventory.refresh", &key];
        let id = fleet.up.cli().json(&words)["id"].as_str().expect("an id").to_owned();
        assert_eq!(fleet.ended(&id).0, "succeeded");
    }
    assert_eq!(fleet.node.boots(), 1, "{:?}", fleet.batch("kernel"));
    let (_, words) = fleet.node.said(&["commands"]);
    assert!(!words.contains("approved in"), "{words}");
}
