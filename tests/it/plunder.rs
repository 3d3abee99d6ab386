//! The stolen database of a fleet that people sign for: whatever is written into the rows of batches, of policies, of machines
//! and of the source, no machine boots by it and no spec is made of it. Where the rows are right again it goes on.

use tests::{Node, until, until_some};

use super::batches::Fleet;

/// What puts tables back as they were kept.
fn kept(tables: &[&str]) -> String {
    let back = |table: &&str| {
        format!("DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{table};")
    };
    tables.iter().map(back).collect()
}

impl Fleet {
    fn steal(&self, statement: &str) {
        self.up.sql(&format!("SET session_replication_role = replica; {statement}"));
    }

    /// Keeps tables as they are.
    fn keep(&self, tables: &[&str]) {
        for table in tables {
            self.steal(&format!(
                "DROP TABLE IF EXISTS kept_{table}; CREATE TABLE kept_{table} AS SELECT * FROM {table}"
            ));
        }
    }

    /// Puts back what was kept.
    fn give_back(&self, tables: &[&str]) {
        self.steal(&kept(tables));
    }

    /// Puts back what was kept, as if the batch had never ended, and takes something else out of it: at once, so that nobody looks at
    /// the rows in between, and each theft is judged by itself.
    fn steal_again(&self, tables: &[&str], batch: &str, theft: &str) {
        let unsaid = format!(
            "DELETE FROM audit WHERE subject = 'batch/{batch}' AND action IN ('batches.void', 'batches.expired')"
        );
        self.steal(&format!("{} {unsaid}; {theft}", kept(tables)));
    }

    /// Makes whoever looks after a batch look at it, as whoever may write the queue can, and waits until it was looked at.
    fn look_at(&self, batch: &str) {
        self.steal(&format!(
            "INSERT INTO work_queue (kind, key, lease) VALUES ('batch', '{batch}', 'singleton:batch')
             ON CONFLICT (kind, key) DO UPDATE SET generation = work_queue.generation + 1, due_at = compute_now()"
        ));
        self.steal("SELECT pg_notify('better_compute', 'work:controllers')");
        self.passed("batch");
        self.passed("command");
    }

    /// Nothing of a kind is due any more.
    fn passed(&self, kind: &str) {
        let due = format!("SELECT count(*) FROM work_queue WHERE kind = '{kind}' AND due_at <= compute_now()");
        until(&format!("{kind} was looked at"), || self.up.sql(&due) == "0");
    }

    /// What is asked for after a boot that was sent is done after it.
    fn does_something_else(&self, number: usize) {
        let (node, key) = (format!("node={}", self.name), format!("idempotencyKey=else-{number}"));
        let words = ["api", "commands.run", &node, "kind=inventory.refresh", &key];
        let id = self.up.cli().json(&words)["id"].as_str().expect("an id").to_owned();
        until("it is done", || {
            self.up.cli().json(&["api", "commands.get", &format!("command={id}")])["state"] == "succeeded"
        });
    }
}

#[test]
fn no_row_of_a_batch_or_of_a_policy_boots_a_machine() {
    const ROWS: [&str; 5] = ["batches", "batch_leaves", "trust_epochs", "trust_checkpoints", "statements"];
    let fleet = Fleet::new(true);
    fleet.ask("bob", "kernel", "a new kernel");
    fleet.wait_state("kernel", "proposed");
    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    until("ada is heard", || fleet.batch("kernel").is_some_and(|batch| batch["approvals"]["yes"][0] == "ada"));
    fleet.keep(&ROWS);
    let one_is_enough =
        "policy = convert_to(replace(convert_from(policy, 'UTF8'), 'threshold 2', 'threshold 1'), 'UTF8')";
    let forged_epoch = format!(
        "INSERT INTO trust_epochs (epoch, digest, policy, commit, statements)
         SELECT 2, digest, policy, commit, statements FROM trust_epochs; UPDATE trust_epochs SET {one_is_enough} WHERE epoch = 2"
    );
    let header = |from: &str, to: &str| {
        format!(
            "UPDATE batches SET header = convert_to(regexp_replace(convert_from(header, 'UTF8'), '{from}', '{to}'), 'UTF8');
             UPDATE batches SET digest = sha256(header)"
        )
    };
    let thefts: Vec<String> = [
        "UPDATE batches SET state = 'approved'",
        "UPDATE batches SET state = 'dispatching', reason = 'planted'",
        "UPDATE batches SET quorum = false, state = 'approved'",
        "UPDATE batches SET origin = 'api', quorum = false, state = 'approved'",
        "UPDATE batches SET origin = 'breakglass', evidence = (SELECT raw FROM statements WHERE kind = 'approve/v1')",
        "UPDATE batches SET header = NULL, digest = NULL, quorum = false, trust_epoch = 0, state = 'approved'",
        "UPDATE batches SET tier = 'none', proposer = NULL, plan_commit = repeat('0', 40), plan_tree = repeat('0', 40)",
        "UPDATE batches SET not_before = compute_now() - interval '1 day', expires = compute_now() + interval '7 days'",
        "UPDATE batch_leaves SET leaf = NULL, payload = '{\"reason\":\"planted\"}'; UPDATE batches SET quorum = false",
        "UPDATE batch_leaves SET state = 'sent', command_id = gen_random_uuid()",
        "UPDATE statements SET principal = 'cleo'",
        "DELETE FROM trust_epochs",
        "DELETE FROM trust_epochs; DELETE FROM trust_checkpoints; UPDATE batches SET quorum = false",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("UPDATE trust_epochs SET {one_is_enough}"),
        forged_epoch,
        header("\"proposer\":[^,]*,", ""),
        header("\"excluded\":[[][^]]*[]]", "\"excluded\":[]"),
    ])
    .collect();
    for (number, theft) in thefts.iter().enumerate() {
        fleet.steal_again(&ROWS, "kernel", theft);
        fleet.look_at("kernel");
        assert_eq!(fleet.node.boots(), 1, "{theft}");
        if number % 4 == 0 || number + 1 == thefts.len() {
            fleet.does_something_else(number);
            assert_eq!(fleet.node.boots(), 1, "after {theft}");
        }
    }
    fleet.steal_again(&ROWS, "kernel", "");
    let (_, words) = fleet.node.said(&["commands"]);
    assert!(!words.contains("approved in"), "{words}");

    // With the rows as they were, one more person is all that it takes.
    fleet.wait_state("kernel", "proposed");
    let (code, words) = fleet.say("cleo", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    fleet.wait_state("kernel", "done");
    assert_eq!(fleet.node.boots(), 2);
}

#[test]
fn what_people_took_back_or_rejected_boots_nothing_when_somebody_sets_it_back() {
    let fleet = Fleet::new(true);
    for (number, name) in ["cancelled", "rejected"].into_iter().enumerate() {
        fleet.ask_from("bob", name, "+1 hour");
        fleet.wait_state(name, "proposed");
        for who in ["ada", "cleo"] {
            let (code, words) = fleet.say(who, "approve", name);
            assert_eq!(code, 0, "{words}");
        }
        fleet.wait_state(name, "approved");
        fleet.keep(&["batches", "batch_leaves"]);
        if name == "cancelled" {
            let _ = fleet.up.cli().ok(&["batches", "cancel", name, "--reason", "do not"]);
        } else {
            assert_eq!(fleet.say("cleo", "reject", name).0, 0);
        }
        fleet.wait_state(name, name);
        // Whoever copied the rows while it was open puts them back, opens its window, and takes the no away.
        fleet.steal("DELETE FROM statements WHERE kind = 'reject/v1'");
        fleet.give_back(&["batches", "batch_leaves"]);
        fleet.look_at(name);
        let batch = fleet.wait_state(name, name);
        assert_eq!(batch["reason"], "ended-before", "{batch}");
        assert!(fleet.up.cli().ok(&["why", &format!("batch/{name}")]).contains("the audit log says"));
        let told = fleet.up.cli().ok(&["audit", "--subject", &format!("batch/{name}"), "--format", "json"]);
        assert!(told.contains("ended-before"), "{told}");
        fleet.does_something_else(number);
        assert_eq!(fleet.node.boots(), 1);
    }
}

#[test]
fn what_people_approved_happens_in_its_window_and_on_its_machine_whatever_rows_say() {
    let fleet = Fleet::new(true);
    let two = Node::running(&fleet.world, "two", &fleet.up, "h100");
    fleet.up.wait_converged(&fleet.repo.head(), 2);
    fleet.ask_from("bob", "later", "+1 hour");
    fleet.wait_state("later", "proposed");
    for who in ["ada", "cleo"] {
        let (code, words) = fleet.say(who, "approve", "later");
        assert_eq!(code, 0, "{words}");
    }
    fleet.wait_state("later", "approved");
    fleet.keep(&["batches", "batch_leaves", "nodes"]);
    let nodes = "UPDATE nodes SET name = id::text; UPDATE nodes n SET name = k.name, hardware_key = k.hardware_key,
                 identity_generation = k.identity_generation FROM kept_nodes k WHERE k.id = n.id";
    let (one_id, other) = (format!("(SELECT id FROM nodes WHERE name = '{}')", fleet.name), two.name_in_fleet());
    for theft in [
        "UPDATE batches SET not_before = compute_now() - interval '1 hour'".to_owned(),
        // The machines change places, by name, by hardware, by id.
        format!("UPDATE batch_leaves SET node_id = (SELECT id FROM nodes WHERE name = '{other}')"),
        format!(
            "UPDATE nodes SET name = 'somebody' WHERE name = '{other}'; UPDATE nodes SET name = '{other}' WHERE id = {one_id};
             UPDATE nodes SET name = '{}' WHERE name = 'somebody'; UPDATE batch_leaves SET node = '{other}'",
            fleet.name
        ),
        "UPDATE nodes SET hardware_key = sha256(convert_to(name, 'UTF8'))".to_owned(),
        "UPDATE nodes SET identity_generation = identity_generation + 1".to_owned(),
    ] {
        let open = "UPDATE batches SET not_before = compute_now() - interval '1 hour', state = 'approved'";
        fleet.steal_again(&["batches", "batch_leaves"], "later", &format!("{nodes}; {theft}; {open}"));
        fleet.look_at("later");
        assert_eq!((fleet.node.boots(), two.boots()), (1, 1), "{theft}");
    }
    fleet.steal_again(&["batches", "batch_leaves"], "later", nodes);
    fleet.does_something_else(0);
    assert_eq!((fleet.node.boots(), two.boots()), (1, 1));
}

#[test]
fn a_machine_is_told_no_name_that_a_thief_wrote_and_takes_part_in_nothing_by_it() {
    let mut fleet = Fleet::new(true);
    let mut two = Node::running(&fleet.world, "two", &fleet.up, "h100");
    fleet.up.wait_converged(&fleet.repo.head(), 2);
    let (one, other) = (fleet.name.clone(), two.name_in_fleet());
    fleet.steal(&format!(
        "UPDATE nodes SET name = 'somebody' WHERE name = '{other}'; UPDATE nodes SET name = '{other}' WHERE name = '{one}';
         UPDATE nodes SET name = '{one}' WHERE name = 'somebody'"
    ));
    // Each is told its name when it comes again, and asked to renew for it.
    for node in [&mut fleet.node, &mut two] {
        node.kill();
        node.run(&[]);
    }
    for name in [&one, &other] {
        until("what was written is found out", || {
            fleet.up.cli().ok(&["why", &format!("node/{name}")]).contains("place-unproven")
        });
    }
    fleet.ask("bob", "swapped", "it hangs");
    let why = until_some("nobody can take part in it", || {
        let said = fleet.up.cli().run(&["why", "batch/swapped"]).out;
        said.contains("no-machine").then_some(said)
    });
    assert!(why.contains("place-unproven"), "{why}");
    assert_eq!((fleet.node.name_in_fleet(), two.name_in_fleet()), (one, other), "each goes by its own name");
    assert_eq!((fleet.node.boots(), two.boots()), (1, 1));
}

#[test]
fn no_row_of_the_source_brings_into_force_what_nobody_signed_for_this_branch() {
    let fleet = Fleet::new(true);
    let good = fleet.repo.head();
    let branch = |name: &str, value: &str, signed: bool| {
        fleet.repo.git(&["checkout", "--quiet", "-b", name]);
        fleet.repo.replace("profiles/base.kdl", "vm.swappiness 1", &format!("vm.swappiness {value}"));
        fleet.repo.git(&["add", "--all"]);
        let sign: &[&str] = if signed { &["-S"] } else { &[] };
        fleet.repo.git(&[&["commit", "--quiet", "--message", name], sign].concat());
        let tip = fleet.repo.head();
        fleet.repo.git(&["checkout", "--quiet", "main"]);
        tip
    };
    let (evil, wip) = (branch("evil", "98", false), branch("wip", "99", true));
    let spec = || fleet.up.sql("SELECT generation, encode(spec_digest, 'hex') FROM nodes");
    let before = spec();
    fleet.keep(&["sources", "revisions", "trust_checkpoints"]);
    for theft in [
        format!(
            "UPDATE sources SET verified_commit = '{evil}', accepted_commit = '{evil}', applied_commit = '{evil}', branch = 'evil'"
        ),
        "DELETE FROM trust_checkpoints; UPDATE sources SET branch = 'evil', verified_commit = NULL".to_owned(),
        "UPDATE sources SET branch = 'wip'".to_owned(),
        format!("UPDATE sources SET branch = 'wip', verified_commit = '{wip}', applied_commit = '{wip}', state = 'ok'"),
        format!(
            "UPDATE revisions SET commit = '{evil}', digest = sha256('planted'), tree_digest = sha256('planted');
             UPDATE sources SET rolled_back_from = '{evil}', state = 'ok', reason = NULL"
        ),
    ] {
        fleet.steal(&theft);
        // A second look begins when the first one has ended.
        for _ in 0..2 {
            fleet.steal("UPDATE sources SET remote_commit = 'planted'");
            fleet.steal("SELECT pg_notify('better_compute', 'source:fleet')");
            until("the source was looked at", || fleet.up.sql("SELECT remote_commit FROM sources") != "planted");
        }
        fleet.passed("nodespec");
        assert_eq!(spec(), before, "{theft}");
        fleet.give_back(&["sources", "revisions", "trust_checkpoints"]);
    }
    // What people sign on the branch goes on, and nothing of the other branches is anywhere.
    fleet.repo.replace("profiles/base.kdl", "vm.swappiness 1", "vm.swappiness 2");
    fleet.commit_as("ada", "a change of people");
    assert_ne!(fleet.repo.head(), good);
    fleet.up.wait_converged(&fleet.repo.head(), 1);
    let host = fleet.node.file("/etc/sysctl.d/60-better-compute.conf").expect("the file");
    assert!(host.contains("swappiness") && !host.contains("98") && !host.contains("99"), "{host}");
}
