//! The stolen database: whoever has PostgreSQL as a superuser writes whatever they like, and nothing of it is composed or
//! signed. The control plane and the machine are real; what is wrong is told under a name, and mended it is over.

use std::fs;

use tests::{Node, Repo, Up, World, until};

/// A control plane, its machine, and somebody who has its database.
struct Theft {
    up: Up,
    node: Node,
    repo: Repo,
    world: World,
    id: String,
    name: String,
}

impl Theft {
    fn new() -> Self {
        let world = World::new();
        let repo = Repo::of_examples(&world, "fleet");
        let up = Up::start(&world, "up", repo.dir());
        let node = Node::running(&world, "one", &up, "h100");
        up.wait_converged(&repo.head(), 1);
        let of = |key: &str| up.nodes()[0][key].as_str().expect("a text").to_owned();
        let (id, name) = (of("id"), of("name"));
        Self { up, node, repo, world, id, name }
    }

    fn steal(&self, statement: &str) {
        self.up.sql(statement);
    }

    /// Wakes the machine's reconciler, as whoever may write the queue can.
    fn look(&self) {
        self.steal(&format!(
            "INSERT INTO work_queue (kind, key, lease) SELECT 'nodespec', '{}', 'shard:' || shard FROM nodes
             ON CONFLICT (kind, key) DO UPDATE SET generation = work_queue.generation + 1, due_at = compute_now()",
            self.id
        ));
        self.steal("SELECT pg_notify('better_compute', 'work:controllers')");
    }

    /// Generation and digest of the spec in force.
    fn spec(&self) -> String {
        self.up.sql("SELECT generation || ' ' || encode(spec_digest, 'hex') FROM nodes")
    }

    /// Writes something, sees that nothing is made of it and that it is told, and puts it back.
    fn is_found_out(&self, code: &str, planted: &str, back: &str) {
        let before = self.spec();
        self.steal(planted);
        self.look();
        let reason = "SELECT reason FROM outcomes WHERE kind = 'nodespec'";
        until(&format!("{code} is told of {planted}"), || self.up.sql(reason) == code);
        let why = self.up.cli().ok(&["why", &self.id]);
        assert!(why.contains(code), "{why}");
        assert_eq!(self.spec(), before, "{planted}");
        self.steal(back);
        self.look();
        until("it is over", || self.up.sql(reason).is_empty());
        assert_eq!(self.spec(), before, "{back}");
    }
}

const CHANGED: &str = r#"replace(doc, '"vm.swappiness":"1"', '"vm.swappiness":"99"')"#;

#[test]
fn no_spec_is_composed_of_what_a_thief_of_the_database_wrote() {
    let theft = Theft::new();
    theft.steal("CREATE TABLE kept AS SELECT * FROM targets; CREATE TABLE was AS SELECT * FROM nodes");
    let node = "UPDATE nodes n SET assigned_digest = was.assigned_digest, target_digest = was.target_digest,
                assigned_overlay = was.assigned_overlay, assigned_name = was.assigned_name, name = was.name, pool = was.pool,
                placement = was.placement, hardware_key = was.hardware_key FROM was WHERE was.id = n.id";

    let template = format!("UPDATE targets SET doc = {CHANGED}");
    theft.is_found_out(
        "target-altered",
        &template,
        "UPDATE targets t SET doc = k.doc FROM kept k WHERE k.digest = t.digest",
    );

    // A template of their own, with the digest that it has, under the whole path from the pool to the machine; and a manifest
    // that names it, with the signature of the genuine one.
    let planted = format!(
        "INSERT INTO targets (digest, pool, profile, doc)
         SELECT sha256(convert_to(d, 'UTF8')), pool, profile, d FROM (SELECT pool, profile, {CHANGED} AS d FROM kept) AS k
         ON CONFLICT DO NOTHING;
         UPDATE nodes SET (assigned_digest, target_digest) =
             (SELECT sha256(convert_to({CHANGED}, 'UTF8')), sha256(convert_to({CHANGED}, 'UTF8')) FROM kept
              WHERE kept.digest = nodes.assigned_digest);
         UPDATE pools SET target_digest = (SELECT assigned_digest FROM nodes LIMIT 1) WHERE name = 'h100'"
    );
    let manifest = "INSERT INTO manifest_parts (digest, body)
             SELECT sha256(b), b FROM (SELECT convert_to(replace(convert_from(p.body, 'UTF8'), encode(w.assigned_digest, 'hex'),
                                                                 encode(n.assigned_digest, 'hex')), 'UTF8') AS b
                                       FROM manifest_parts p, nodes n JOIN was w ON w.id = n.id) AS forged ON CONFLICT DO NOTHING;
         INSERT INTO manifest_targets (target, part, manifest)
             SELECT n.assigned_digest, p.digest, (SELECT revision FROM manifests LIMIT 1) FROM nodes n, manifest_parts p
             ON CONFLICT DO NOTHING";
    let back = format!(
        "{node}; UPDATE pools SET target_digest = (SELECT assigned_digest FROM nodes LIMIT 1) WHERE name = 'h100'"
    );
    theft.is_found_out("assignment-unproven", &format!("{planted}; {manifest}"), &back);

    for (code, change) in [
        ("assignment-unproven", r#"assigned_overlay = '{"labels":{"rack":"planted"}}'"#),
        ("assignment-unproven", "assigned_name = 'somebody-else'"),
        ("place-unproven", "name = 'somebody-else'"),
        ("place-unproven", "pool = 'h200'"),
        ("place-unproven", "placement = NULL"),
    ] {
        theft.is_found_out(code, &format!("UPDATE nodes SET {change}"), node);
    }

    // Revision rows, and how far the history was verified: nothing follows from them.
    let before = theft.spec();
    theft.steal(
        "UPDATE revisions SET digest = sha256('planted'), tree_digest = sha256('planted'), applied_by = 'planted'",
    );
    theft.steal("UPDATE nodes SET hardware_key = sha256('planted')");
    theft.look();
    until("it was looked at", || theft.up.sql("SELECT count(*) FROM work_queue WHERE kind = 'nodespec'") == "0");
    assert_eq!(theft.spec(), before);
    theft.steal(node);

    // What people commit goes on, and what was planted is nowhere.
    theft.repo.replace("profiles/base.kdl", "vm.swappiness 1", "vm.swappiness 2");
    let commit = theft.repo.commit("a change of people");
    theft.up.wait_converged(&commit, 1);
    let applied = theft.node.file("/etc/sysctl.d/60-better-compute.conf").expect("the file");
    assert!(applied.contains("swappiness") && !applied.contains("99"), "{applied}");
    let told = theft.up.cli().ok(&["audit", "--action", "nodes.specRefused"]);
    assert!(told.contains("target-altered") && told.contains("place-unproven"), "{told}");
}

#[test]
fn no_command_is_signed_that_a_thief_of_the_database_wrote() {
    let theft = Theft::new();
    let run = |theft: &Theft, key: &str| {
        let words = [format!("node={}", theft.name), format!("idempotencyKey={key}")];
        let id = theft.up.cli().json(&["api", "commands.run", "kind=inventory.refresh", &words[0], &words[1]])["id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let state = |id: &str| theft.up.cli().json(&["api", "commands.get", &format!("command={id}")])["state"].clone();
        until("it ended", || state(&id) == "succeeded");
    };
    run(&theft, "genuine");
    let plant = |key: &str, mark: &str| {
        theft.steal(&format!(
            "INSERT INTO commands (id, node_id, seq, kind, retry_safe, lane, payload, idempotency_key, not_after, body, created_by, mark)
             SELECT gen_random_uuid(), c.node_id, n.next_cmd_seq, 'node.reboot', false, c.lane, c.payload, '{key}',
                    compute_now() + interval '1 hour',
                    convert_to(replace(convert_from(c.body, 'UTF8'), 'inventory.refresh', 'node.reboot'), 'UTF8'), 'ada', {mark}
             FROM commands c JOIN nodes n ON n.id = c.node_id WHERE c.kind = 'inventory.refresh' LIMIT 1"
        ));
        theft.steal("UPDATE nodes SET next_cmd_seq = next_cmd_seq + 1");
    };
    plant("bare", "NULL");
    plant("copied", "c.mark");
    run(&theft, "another");
    for key in ["bare", "copied"] {
        let found = format!(
            "SELECT state || ' ' || COALESCE(reason, '') || ' ' || (signature IS NULL) FROM commands WHERE idempotency_key = '{key}'"
        );
        until("it is refused", || theft.up.sql(&found) == "cancelled not-ours true");
    }
    theft.steal(
        "WITH planted AS (
             INSERT INTO batches (id, name, origin, state, quorum, kind, doc, document, why, created_by, leaf_count, not_before, expires,
                                  max_in_flight, max_failures)
             VALUES (gen_random_uuid(), 'planted', 'document', 'approved', false, 'node.reboot', '{}', sha256('{}'), 'because', 'source', 1,
                     compute_now(), compute_now() + interval '1 hour', 20000, 2147483647)
             RETURNING id)
         INSERT INTO batch_leaves (batch_id, index, node_id, node, payload) SELECT planted.id, 0, n.id, n.name, '{}' FROM planted, nodes n",
    );
    let batch = "SELECT state || ' ' || COALESCE(reason, '') FROM batches WHERE name = 'planted'";
    until("the batch is refused", || theft.up.sql(batch) == "void not-ours");
    let told = theft.up.cli().ok(&["audit", "--action", "commands.cancelled"]);
    assert!(told.contains("not-ours"), "{told}");
    assert_eq!(theft.node.boots(), 1, "it did not reboot");

    // The log proves itself, and a thief's line in it breaks it.
    let file = theft.world.path("audit.log").display().to_string();
    let pin = theft.up.pin();
    let _ = theft.up.cli().ok(&["audit", "export", "--out", &file]);
    let proven = theft.up.cli().ok(&["audit", "verify", &file, "--pin", &pin]);
    assert!(proven.contains("every line is there"), "{proven}");
    let text = fs::read_to_string(&file).expect("the export");
    assert!(text.contains("not-ours"));
    fs::write(&file, text.replacen("not-ours", "no-ours!", 1)).expect("written");
    let broken = theft.up.cli().run(&["audit", "verify", &file, "--pin", &pin]);
    assert_ne!(broken.code, 0);
    assert!(broken.err.contains("is not what the control plane signed: line "), "{}", broken.err);

    theft.steal(
        "ALTER TABLE audit DISABLE TRIGGER ALL; UPDATE audit SET actor = 'nobody' WHERE action = 'commands.cancelled'",
    );
    let file = theft.world.path("later.log").display().to_string();
    let said = theft.up.cli().run(&["audit", "export", "--out", &file]);
    assert!(said.code == 1 && said.err.contains("is not what was signed"), "{}{}", said.out, said.err);
    let broken = theft.up.cli().run(&["audit", "verify", &file, "--pin", &pin]);
    assert!(broken.err.contains("one of them was changed"), "{}{}", broken.out, broken.err);
}

#[test]
fn who_writes_into_the_audit_log_stops_it_until_an_operator_has_that_set_aside() {
    let theft = Theft::new();
    until("something is signed", || theft.up.sql("SELECT count(*) > 0 FROM audit_checkpoints") == "t");
    theft.steal(
        "INSERT INTO audit_checkpoints (n, rows, body, signature) SELECT max(n) + 1, max(rows) + 1, 'planted', 'x' FROM audit_checkpoints",
    );
    let cli = theft.up.cli();
    until("it is told", || cli.ok(&["why", "audit"]).contains("audit-altered"));
    let status = cli.ok(&["status"]);
    assert!(status.contains("audit log stands still") && status.contains("signed by no key"), "{status}");
    let said = cli.run(&["api", "audit.mend", "reason=", "idempotencyKey=1"]);
    assert_ne!(said.code, 0, "somebody says why");
    let done = cli.ok(&["audit", "mend", "--reason", "a stolen password", "--owner", "ada"]);
    assert!(done.contains("1 checkpoint"), "{done}");
    let unsigned = || cli.json(&["api", "audit.status"])["altered"].clone();
    until("it goes on", || unsigned().is_null() && cli.ok(&["why", "audit"]).contains("nothing stands in its way"));
    assert!(!cli.ok(&["status"]).contains("stands still"));
    let file = theft.world.path("mended.log").display().to_string();
    let _ = cli.ok(&["audit", "export", "--out", &file]);
    let proven = cli.run(&["audit", "verify", &file, "--pin", &theft.up.pin()]);
    assert!(
        proven.code == 0 && proven.err.contains("BREAK") && proven.err.contains("a stolen password"),
        "{}{}",
        proven.out,
        proven.err
    );
    assert_ne!(cli.run(&["audit", "mend", "--reason", "once more"]).code, 0, "nothing stands in the way");
}
