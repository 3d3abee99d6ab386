//! A gateway that lies: it spoils, leaves out and swaps approvals, sends a command to another machine, sends an old one for a new
//! one, and sends the later one first. Nothing runs that was not approved, on no other machine and not twice; an honest gateway
//! makes good what it held up.
//!
//! It is the gateway as it is, and it reads lies: where it looks for commands is a view that says something else about them.

use serde_json::Value;
use tests::{Apart, Node, Repo, World, until, until_some};

use super::batches;

/// Machines behind one gateway.
struct Fleet {
    apart: Apart,
    nodes: Vec<Node>,
    names: Vec<String>,
    repo: Repo,
    world: World,
}

impl Fleet {
    /// Two machines; with people, destructive work is what they sign for.
    fn new(people: bool) -> Self {
        let world = World::new();
        let repo = Repo::of_examples(&world, "fleet");
        repo.remove("batches/2026-12-kernel.kdl");
        if people {
            batches::gather(&world, &repo);
        } else {
            repo.commit("no batches");
        }
        let apart = Apart::start(&world, &repo, 1);
        let (url, pin, token) = (format!("https://{}", apart.gateways[0].address), apart.pin(), apart.token("h100", 2));
        let nodes = ["one", "two"].map(|name| {
            let mut node = Node::new(&world, name);
            let (code, words) = node.join(&url, &pin, &token);
            assert_eq!(code, 0, "{words}");
            node.run(&[]);
            node
        });
        let nodes: Vec<Node> = nodes.into();
        let names = nodes.iter().map(Node::name_in_fleet).collect();
        let fleet = Self { apart, nodes, names, repo, world };
        let said = fleet.apart.cli().run(&["status", "--wait", "converged", "--nodes", "2", "--timeout", "90s"]);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        if people {
            fleet.pin();
        }
        fleet
    }

    /// Every machine starts again without its journal.
    fn lose_journals(&mut self) {
        for node in &mut self.nodes {
            node.kill();
            std::fs::remove_file(node.state().join("journal.redb")).expect("removed");
            node.run(&[]);
        }
    }

    fn pin(&self) {
        let (dir, keys) = (self.repo.dir().display().to_string(), self.world.path("keys").display().to_string());
        let words = ["trust", "pin", &self.repo.head(), "--repo", &dir, "--keys", &keys, "--yes"];
        let _ = self.apart.cli().ok(&words);
        let knows = |node: &Node| {
            let (_, words) = node.said(&["status", "--format", "json"]);
            serde_json::from_str::<Value>(words.trim()).is_ok_and(|status| status["people"]["epoch"] == 1)
        };
        until("the machines believe the policy", || self.nodes.iter().all(knows));
    }

    /// From now on the gateway reads these words about commands (`c`) in place of what its columns say.
    fn lies(&mut self, lies: &[(&str, &str)]) {
        let columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'commands'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
        let columns = self.apart.sql(columns);
        let said = columns.lines().map(|column| {
            let lie = lies.iter().find(|(name, _)| *name == column);
            lie.map_or_else(|| format!("c.{column}"), |(name, words)| format!("{words} AS {name}"))
        });
        let said = said.collect::<Vec<_>>().join(", ");
        self.apart.sql(&format!(
            "DROP SCHEMA IF EXISTS lies CASCADE; CREATE SCHEMA lies; CREATE VIEW lies.commands AS SELECT {said} FROM public.commands c"
        ));
        self.apart.gateways[0].process.kill();
        self.apart.gateways[0].restart_over("lies");
    }

    /// From now on it reads what there is.
    fn is_honest(&mut self) {
        self.apart.gateways[0].process.kill();
        self.apart.gateways[0].restart();
    }

    fn boots(&self) -> Vec<usize> {
        self.nodes.iter().map(Node::boots).collect()
    }

    /// Asks for something on some of the machines.
    fn ask(&self, kind: &str, key: &str, names: &[String]) {
        let mut line = vec!["run", kind, "--no-wait", "--key", key, "--most", "2"];
        line.extend(names.iter().map(String::as_str));
        let _ = self.apart.cli().ok(&line);
    }

    fn batch_is(&self, batch: &str, wanted: &str) -> bool {
        let said = self.apart.cli().run(&["batches", batch, "-o", "json"]);
        serde_json::from_str::<Value>(&said.out).is_ok_and(|batch| batch["state"] == wanted)
    }

    /// How often something is so in the rows of commands.
    fn count(&self, condition: &str) -> String {
        self.apart.sql(&format!("SELECT count(*) FROM commands WHERE {condition}"))
    }

    #[track_caller]
    fn wait(&self, count: usize, condition: &str) {
        let what = format!("{count} commands are such that {condition}");
        until_some(&what, || (self.count(condition) == count.to_string()).then_some(()));
    }

    /// Everything that was asked for has succeeded, and each machine did what it was asked to.
    fn all_went_well(&self) {
        self.wait(0, "state IN ('pending', 'dispatched', 'acked', 'running')");
        let others = "SELECT kind, state, reason, message FROM commands WHERE state <> 'succeeded'";
        assert_eq!(self.apart.sql(others), "");
        for node in &self.nodes {
            assert_eq!(node.boots(), 1 + node.deeds().len());
        }
    }
}

#[test]
fn approvals_that_a_gateway_leaves_out_spoils_or_swaps_run_nothing_and_an_honest_one_makes_it_good() {
    let mut fleet = Fleet::new(true);
    let spoilt = "set_byte(c.approval, length(c.approval) / 2, get_byte(c.approval, length(c.approval) / 2) # 1)";
    let swapped = "(SELECT o.approval FROM public.commands o WHERE o.id <> c.id AND o.node_id = c.node_id ORDER BY o.seq LIMIT 1)";
    let of_another =
        "(SELECT o.approval FROM public.commands o WHERE o.node_id <> c.node_id ORDER BY o.seq DESC LIMIT 1)";
    for (number, lie) in ["NULL::bytea", spoilt, swapped, of_another].into_iter().enumerate() {
        let (batch, before) = (format!("kernel-{number}"), fleet.boots());
        fleet.lies(&[("approval", lie)]);
        let names: Vec<&str> = fleet.names.iter().map(String::as_str).collect();
        batches::write(&fleet.repo, &batch, &names, "reason \"a new kernel\"");
        batches::commit_as(&fleet.world, &fleet.repo, "bob", "boot them");
        until("the batch is proposed", || fleet.batch_is(&batch, "proposed"));
        for who in ["ada", "cleo"] {
            batches::sign_as(&fleet.world, &fleet.repo, who);
            let dir = fleet.repo.dir().display().to_string();
            let said = fleet.apart.cli().run(&["approve", &format!("batch/{batch}"), "--repo", &dir, "--yes"]);
            assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        }
        let refused = "state IN ('pending', 'dispatched') AND busy_reason = 'approvals-spoilt' AND busy_count > 1";
        until(&format!("it is refused: {lie}"), || fleet.count(refused) != "0");
        assert_eq!(fleet.boots(), before, "{lie}");

        fleet.is_honest();
        until(&format!("the batch is done after {lie}"), || fleet.batch_is(&batch, "done"));
        let after: Vec<usize> = before.iter().map(|boots| boots + 1).collect();
        assert_eq!(fleet.boots(), after, "{lie}");
        fleet.all_went_well();
    }

    // A machine that lost its journal is sent what it did, with its approvals, while all of that still counts.
    let before = fleet.boots();
    fleet.sends("c.kind = 'inventory.refresh' AND o.kind = 'node.reboot' AND o.node_id = c.node_id");
    fleet.lose_journals();
    fleet.ask("inventory.refresh", "look", &fleet.names);
    let refuses = |node: &Node| node.log().contains("is refused: it was signed for the journal");
    until("it is refused", || fleet.nodes.iter().all(refuses));
    assert_eq!(fleet.boots(), before);
}

impl Fleet {
    /// From now on the gateway sends what another command (`o`) says in place of this one (`c`), where there is one.
    fn sends(&mut self, other: &str) {
        let words = ["body", "signature", "approval"].map(|column| {
            let other = format!("SELECT o.{column} FROM public.commands o WHERE {other} ORDER BY o.seq LIMIT 1");
            (column, format!("COALESCE(({other}), c.{column})"))
        });
        self.lies(&words.each_ref().map(|(column, words)| (*column, words.as_str())));
    }
}

/// The word under which a command was asked for.
fn word(command: &str) -> String {
    format!("substring({command}.idempotency_key FROM '([^:]+):[^:]+$')")
}

/// The commands that were asked for under a word, in a state.
fn of(asked: &str, state: &str) -> String {
    format!("{} = '{asked}' AND state = '{state}'", word("commands"))
}

#[test]
fn a_command_that_a_gateway_sends_elsewhere_or_in_place_of_another_runs_where_it_belongs_and_once() {
    let mut fleet = Fleet::new(false);
    fleet.ask("node.reboot", "first", &fleet.names);
    fleet.wait(2, &of("first", "succeeded"));
    assert_eq!(fleet.boots(), [2, 2]);
    for (number, lie) in [
        // Each machine gets what is for the other one.
        &format!("{} = {} AND o.node_id <> c.node_id", word("o"), word("c")),
        // It gets once more what it did.
        "o.node_id = c.node_id",
        // It gets what the other one did.
        "o.node_id <> c.node_id",
    ]
    .into_iter()
    .enumerate()
    {
        let (before, reboot, after) = (fleet.boots(), format!("reboot-{number}"), format!("after-{number}"));
        fleet.sends(&format!("c.kind = 'node.reboot' AND o.kind = c.kind AND {lie}"));
        fleet.ask("node.reboot", &reboot, &fleet.names);
        fleet.wait(2, &of(&reboot, "dispatched"));
        // What is asked for now comes to the machines after what was sent before.
        fleet.ask("inventory.refresh", &after, &fleet.names);
        fleet.wait(2, &of(&after, "succeeded"));
        assert_eq!(fleet.count(&of(&reboot, "dispatched")), "2", "{lie}");
        assert_eq!(fleet.boots(), before, "{lie}");

        fleet.is_honest();
        fleet.wait(2, &of(&reboot, "succeeded"));
        assert_eq!(fleet.boots(), before.iter().map(|boots| boots + 1).collect::<Vec<_>>(), "{lie}");
        fleet.all_went_well();
    }
}

#[test]
fn commands_that_a_gateway_sends_in_another_order_run_once_each() {
    let mut fleet = Fleet::new(false);
    let swapped = format!("{} = translate({}, '12', '21')", word("o"), word("c"));
    fleet.sends(&format!("o.node_id = c.node_id AND {swapped}"));
    fleet.apart.gateways[0].process.kill();
    for (kind, key) in [("inventory.refresh", "1"), ("node.reboot", "2")] {
        fleet.ask(kind, key, &fleet.names);
    }
    fleet.apart.gateways[0].restart_over("lies");
    until("the machines boot", || fleet.boots() == [2, 2]);
    fleet.is_honest();
    fleet.all_went_well();
    assert_eq!(fleet.boots(), [2, 2]);
}

#[test]
fn a_machine_that_lost_its_journal_does_not_repeat_what_a_lying_gateway_sends_it_again() {
    let mut fleet = Fleet::new(false);
    fleet.ask("node.reboot", "first", &fleet.names);
    fleet.wait(2, &of("first", "succeeded"));
    assert_eq!(fleet.boots(), [2, 2]);

    fleet.sends("c.kind = 'inventory.refresh' AND o.kind = 'node.reboot' AND o.node_id = c.node_id");
    fleet.lose_journals();
    fleet.ask("inventory.refresh", "look", &fleet.names);
    let refuses = |node: &Node| node.log().contains("is refused: it was signed for the journal");
    let answers = |node: &Node| refuses(node) || node.boots() != 2;
    until("what was sent again is answered", || fleet.nodes.iter().all(answers));
    assert_eq!(fleet.boots(), [2, 2]);
    assert!(fleet.nodes.iter().all(refuses));

    // What is asked for from now on is for the journal that each machine has now.
    fleet.is_honest();
    fleet.wait(2, &of("look", "succeeded"));
    fleet.ask("node.reboot", "again", &fleet.names);
    fleet.wait(2, &of("again", "succeeded"));
    assert_eq!(fleet.boots(), [3, 3]);
    fleet.all_went_well();
}
