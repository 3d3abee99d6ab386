//! Destructive work that people sign for, from the document to the boot; and without a pin, written down and gone at once.

use std::process::Command;

use serde_json::Value;
use tests::{Node, Repo, Up, World, process, until, until_some};

/// A control plane with one machine.
pub(super) struct Fleet {
    pub(super) up: Up,
    pub(super) node: Node,
    pub(super) name: String,
    pub(super) repo: Repo,
    pub(super) world: World,
}

const PEOPLE: [&str; 3] = ["ada", "bob", "cleo"];
/// A service that may write what operators write, and approves nothing.
const SERVICE: &str = "robot";

impl Fleet {
    /// A fleet; with people, its trust anchor is pinned.
    pub(super) fn new(pinned: bool) -> Self {
        let fleet = Self::of(pinned);
        if pinned {
            fleet.pin();
        }
        fleet
    }

    /// A pinned fleet whose policy says this as well.
    pub(super) fn whose_policy_says(more: &str) -> Self {
        let fleet = Self::begin(Some(more));
        fleet.pin();
        fleet
    }

    /// A fleet, perhaps with people; nobody has pinned it.
    pub(super) fn of(people: bool) -> Self {
        Self::begin(people.then_some(""))
    }

    fn begin(policy: Option<&str>) -> Self {
        let world = World::new();
        let repo = Repo::of_examples(&world, "fleet");
        repo.remove("batches/2026-12-kernel.kdl");
        match policy {
            Some(more) => gather_under(&world, &repo, more),
            None => drop(repo.commit("trust: who may do what")),
        }
        let up = Up::start(&world, "up", repo.dir());
        let mut node = Node::new(&world, "one");
        let (code, words) = node.join(&up.gateway_url(), &up.pin(), &up.token("h100", 1));
        assert_eq!(code, 0, "{words}");
        node.run(&[]);
        up.wait_converged(&repo.head(), 1);
        let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
        Self { up, node, name, repo, world }
    }

    /// Pins the trust anchor, which is the tip.
    pub(super) fn pin(&self) {
        let dir = self.repo.dir().display().to_string();
        let keys = self.up.data().join("keys").display().to_string();
        let _ = self.up.cli().ok(&["trust", "pin", &self.repo.head(), "--repo", &dir, "--keys", &keys, "--yes"]);
        until("the pin is known", || self.up.status()["verification"] != "unverified");
        until("the policy of the anchor is in force", || self.up.sql("SELECT count(*) FROM trust_epochs") != "0");
    }

    /// Commits a batch that boots the machine, signed by somebody.
    pub(super) fn ask(&self, who: &str, batch: &str, reason: &str) {
        self.write(batch, &format!("reason \"{reason}\""));
        self.commit_as(who, "boot it");
    }

    /// The same, not before a while from now.
    pub(super) fn ask_from(&self, who: &str, batch: &str, from: &str) {
        self.write(batch, &format!("reason \"a new kernel\"\n  not-before \"{}\"", date(from)));
        self.commit_as(who, "boot it later");
    }

    /// Writes the document of a batch that boots the machine.
    pub(super) fn write(&self, batch: &str, more: &str) {
        write(&self.repo, batch, &[&self.name], more);
    }

    /// Commits the work tree, signed by somebody.
    pub(super) fn commit_as(&self, who: &str, subject: &str) {
        commit_as(&self.world, &self.repo, who, subject);
    }

    pub(super) fn sign_as(&self, who: &str) {
        sign_as(&self.world, &self.repo, who);
    }

    pub(super) fn batch(&self, name: &str) -> Option<Value> {
        let said = self.up.cli().run(&["batches", name, "-o", "json"]);
        (said.code == 0).then(|| serde_json::from_str(&said.out).expect("JSON"))
    }

    #[track_caller]
    pub(super) fn wait_state(&self, name: &str, wanted: &str) -> Value {
        until_some(&format!("batch/{name} is {wanted}"), || self.batch(name).filter(|batch| batch["state"] == wanted))
    }

    pub(super) fn say(&self, who: &str, word: &str, batch: &str) -> (i32, String) {
        self.sign_as(who);
        let dir = self.repo.dir().display().to_string();
        let said = self.up.cli().run(&[word, &format!("batch/{batch}"), "--repo", &dir, "--yes"]);
        (said.code, format!("{}{}", said.out, said.err))
    }
}

/// What became of the batch is proven by one file, and by no other.
pub(super) fn receipted(fleet: &Fleet, batch: &str, by: &str) {
    let (file, pin) = (fleet.world.path("receipt").display().to_string(), fleet.up.pin());
    let subject = format!("batch/{batch}");
    until("every line about it is signed", || {
        let _gone = std::fs::remove_file(&file);
        let said = fleet.up.cli().run(&["receipt", &subject, "--out", &file]);
        let whole = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("batches.done"));
        said.code == 0 && !said.err.contains("not signed yet") && whole()
    });
    let proven = fleet.up.cli().ok(&["receipt", "--verify", &file, "--pin", &pin]);
    assert!(proven.contains(by) && proven.contains("succeeded") && proven.contains("batches.done"), "{proven}");
    let bytes = std::fs::read(&file).expect("a receipt");
    for at in (0..bytes.len()).step_by(bytes.len() / 12) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        std::fs::write(&file, changed).expect("written");
        assert_ne!(fleet.up.cli().run(&["receipt", "--verify", &file, "--pin", &pin]).code, 0, "byte {at}");
    }
}

/// Gives a repository people and what they may, in a commit of one of them.
pub(super) fn gather(world: &World, repo: &Repo) {
    gather_under(world, repo, "");
}

/// The same, where the policy says this as well.
fn gather_under(world: &World, repo: &Repo, more: &str) {
    for who in PEOPLE.into_iter().chain([SERVICE]) {
        key(world, who);
    }
    repo.write("trust/policy.kdl", policy(world) + more);
    for (name, value) in [("gpg.format", "ssh"), ("user.name", "Ada"), ("user.email", "ada@example.com")] {
        repo.git(&["config", name, value]);
    }
    commit_as(world, repo, "ada", "trust: who may do what");
}

/// Writes the document of a batch that boots machines.
pub(super) fn write(repo: &Repo, batch: &str, nodes: &[&str], more: &str) {
    let (nodes, expires) = (nodes.join("\" \""), date("+8 hours"));
    let scope = format!("command \"node.reboot\"\n  scope {{ nodes \"{nodes}\" }}");
    let text = format!("batch \"{batch}\" {{\n  {scope}\n  {more}\n  expires \"{expires}\"\n}}\n");
    repo.write(&format!("batches/{batch}.kdl"), text);
}

/// Commits the work tree, signed by somebody, or by nobody.
pub(super) fn commit_as(world: &World, repo: &Repo, who: &str, subject: &str) {
    repo.git(&["add", "--all"]);
    sign_as(world, repo, who);
    let signed: &[&str] = if who.is_empty() { &[] } else { &["-S"] };
    repo.git(&[&["commit", "--quiet", "--message", subject], signed].concat());
}

/// Signs as somebody from now on.
pub(super) fn sign_as(world: &World, repo: &Repo, who: &str) {
    if !who.is_empty() {
        repo.git(&["config", "user.signingKey", &world.path(format!("{who}.pub")).display().to_string()]);
    }
}

/// A time, in the words of `date`.
fn date(when: &str) -> String {
    let out = Command::new("date").args(["-u", "-d", when, "+%Y-%m-%dT%H:%M:%SZ"]).output().expect("date");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}

fn key(world: &World, who: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", who, "-f"]).arg(world.path(who));
    let (code, out, err) = process::output(command);
    assert_eq!(code, 0, "{out}{err}");
}

fn policy(world: &World) -> String {
    let mut text = "policy {\n    format 1\n    epoch 1\n}\n".to_owned();
    let people = PEOPLE.map(|who| (who, "human", "\"admin\" \"operator\""));
    for (who, kind, roles) in people.into_iter().chain([(SERVICE, "service", "\"operator\"")]) {
        let key = std::fs::read_to_string(world.path(format!("{who}.pub"))).expect("a key");
        text.push_str(&format!(
            "principal \"{who}\" {{\n    kind \"{kind}\"\n    roles {roles}\n    key \"{}\"\n}}\n",
            key.trim()
        ));
    }
    text + r#"path "**" { roles "admin" "operator"; }
trust { roles "admin"; threshold 1; }
change { roles "admin"; threshold 1; }
tier "reboot" {
    commands "node.reboot"
    roles "operator"
    threshold 2
    max-nodes 10
    max-ttl "24h"
}
breakglass {
    commands "node.reboot"
    roles "admin"
    threshold 1
    max-nodes 1
    max-ttl "1h"
}
"#
}

#[test]
fn without_a_pin_a_batch_is_written_down_and_goes_at_once() {
    let fleet = Fleet::new(false);
    fleet.ask("", "kernel", "a new kernel");
    let batch = fleet.wait_state("kernel", "done");
    assert_eq!(batch["needsApproval"], false);
    assert_eq!(batch["counts"]["succeeded"], 1);
    assert_eq!(fleet.node.boots(), 2);
    receipted(&fleet, "kernel", "nobody was asked");
    // A name is used once.
    fleet.ask("", "kernel", "once more");
    until("the text is refused", || fleet.up.cli().ok(&["why", "batch/kernel"]).contains("a name is used once"));
    let all = fleet.up.cli().json(&["batches", "-o", "json"]);
    assert_eq!((&all["asks"][0]["name"], &all["asks"][0]["reason"]), (&"kernel".into(), &"name-used".into()), "{all}");
    assert!(fleet.up.cli().ok(&["status"]).contains("batch/kernel refused"));
    assert_eq!(fleet.node.boots(), 2);
}

#[test]
fn what_covers_no_machine_boots_none_that_joins_later_and_goes_under_its_name_once_it_is_asked_for_again() {
    let fleet = Fleet::new(false);
    let ask = |reason: &str| {
        let scope = "command \"node.reboot\"\n  scope { pools \"l40s\" }";
        let text =
            format!("batch \"early\" {{\n  {scope}\n  reason \"{reason}\"\n  expires \"{}\"\n}}\n", date("+8 hours"));
        fleet.repo.write("batches/early.kdl", text);
        fleet.repo.commit(reason)
    };
    ask("nobody is there yet");
    until("it is told", || fleet.up.cli().run(&["why", "batch/early"]).out.contains("no-machine"));
    assert!(fleet.up.cli().ok(&["status"]).contains("batch/early refused"));

    let two = Node::running(&fleet.world, "two", &fleet.up, "l40s");
    fleet.up.wait_converged(&fleet.repo.head(), 2);
    // The source looks at the fleet once more with the machine in it.
    fleet.repo.write("batches/note.txt", "not a document\n");
    fleet.repo.commit("something else");
    fleet.up.wait_converged(&fleet.repo.head(), 2);
    assert_eq!((fleet.batch("early"), two.boots()), (None, 1));

    ask("it is there");
    assert_eq!(fleet.wait_state("early", "done")["counts"]["succeeded"], 1);
    assert_eq!((fleet.node.boots(), two.boots()), (1, 2));
}

#[test]
fn people_sign_for_a_boot_and_the_machine_believes_nobody_else() {
    let fleet = Fleet::new(true);
    let refused = fleet.up.cli().run(&["run", "node.reboot", &fleet.name]);
    assert!(refused.code != 0 && refused.err.contains("batch"), "{}{}", refused.out, refused.err);

    fleet.ask("bob", "kernel", "a new kernel");
    let batch = fleet.wait_state("kernel", "proposed");
    assert_eq!((&batch["tier"], &batch["needsApproval"]), (&Value::from("reboot"), &Value::from(true)));
    let (code, words) = fleet.say("bob", "approve", "kernel");
    assert!(code == 4 && words.contains("(excluded)") && words.contains("ada, cleo"), "{words}");
    let (code, words) = fleet.say("ada", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("serial") && words.contains("made again from this clone"), "{words}");
    until("ada is heard", || {
        fleet.batch("kernel").is_some_and(|batch| batch["approvals"]["yes"] == serde_json::json!(["ada"]))
    });
    assert_eq!(fleet.node.boots(), 1);
    let why = fleet.up.cli().ok(&["why", "batch/kernel"]);
    assert!(why.contains("one more person with the role operator"), "{why}");

    let (code, words) = fleet.say("cleo", "approve", "kernel");
    assert_eq!(code, 0, "{words}");
    let batch = fleet.wait_state("kernel", "done");
    assert_eq!(batch["counts"]["succeeded"], 1, "{batch}");
    assert_eq!(fleet.node.boots(), 2);
    for word in ["approve", "reject", "withdraw"] {
        let (code, words) = fleet.say("ada", word, "kernel");
        assert!(code == 4 && words.contains("batch/kernel is done") && words.contains("(batch-over)"), "{words}");
    }
    receipted(&fleet, "kernel", "by ada, cleo");
}

#[test]
fn a_service_proposes_beside_the_branch_and_people_decide() {
    let fleet = Fleet::new(true);
    let main = fleet.repo.head();
    let repo = &fleet.repo;
    repo.git(&["checkout", "--quiet", "--detach"]);
    fleet.write("health-42", "reason \"it hangs\"");
    fleet.commit_as(SERVICE, "boot what hangs");
    let proposal = repo.head();
    repo.git(&["checkout", "--quiet", "main"]);
    repo.git(&["push", "--quiet", ".", &format!("{proposal}:refs/heads/bc/proposals/health-42")]);
    let batch = fleet.wait_state("health-42", "proposed");
    assert_eq!((&batch["origin"], &batch["needsApproval"]), (&Value::from("proposal"), &Value::from(true)), "{batch}");
    let (code, words) = fleet.say(SERVICE, "approve", "health-42");
    assert!(code != 0 && words.contains("no-person"), "{words}");
    let (code, words) = fleet.say("ada", "approve", "health-42");
    assert!(code == 0 && words.contains("by robot"), "{words}");
    assert_eq!(fleet.node.boots(), 1);
    let (code, words) = fleet.say("bob", "approve", "health-42");
    assert_eq!(code, 0, "{words}");
    fleet.wait_state("health-42", "done");
    assert_eq!((fleet.node.boots(), repo.head()), (2, main), "nothing was merged");
    receipted(&fleet, "health-42", "by ada, bob");
}

#[test]
fn a_yes_is_taken_back_one_no_is_enough_and_an_emergency_is_loud() {
    let fleet = Fleet::new(true);
    fleet.ask_from("bob", "later", "+1 hour");
    fleet.wait_state("later", "proposed");
    for (who, word, state) in
        [("ada", "approve", "proposed"), ("cleo", "approve", "approved"), ("cleo", "withdraw", "proposed")]
    {
        let (code, words) = fleet.say(who, word, "later");
        assert_eq!(code, 0, "{words}");
        fleet.wait_state("later", state);
    }
    fleet.ask("bob", "kernel", "a new kernel");
    fleet.wait_state("kernel", "proposed");
    for word in ["approve", "withdraw"] {
        let (code, words) = fleet.say("ada", word, "kernel");
        assert_eq!(code, 0, "{words}");
    }
    for word in ["approve", "withdraw"] {
        let (code, words) = fleet.say("ada", word, "kernel");
        assert!(code == 4 && words.contains("(taken-back)"), "{words}");
    }
    let (code, words) = fleet.say("cleo", "reject", "kernel");
    assert_eq!(code, 0, "{words}");
    let batch = fleet.wait_state("kernel", "rejected");
    assert_eq!(batch["reason"], "rejected");
    assert_eq!(fleet.node.boots(), 1);

    fleet.sign_as("ada");
    let dir = fleet.repo.dir().display().to_string();
    let node = format!("node/{}", fleet.name);
    let break_glass = |node: &str| {
        let words = ["breakglass", node, "--kind", "node.reboot", "--reason", "it hangs", "--repo", &dir, "--yes"];
        fleet.up.cli().ok(&words)
    };
    let called = |but: &str| {
        until_some("the emergency is there", || {
            let all = fleet.up.cli().json(&["batches", "-o", "json"]);
            let mut named = all["batches"].as_array()?.iter().filter(|batch| batch["origin"] == "breakglass");
            Some(named.find(|batch| batch["name"] != but)?["name"].as_str().expect("a name").to_owned())
        })
    };
    let said = break_glass(&node);
    assert!(said.contains("enough people say it"), "{said}");
    let name = called("");
    fleet.wait_state(&name, "done");
    assert_eq!(fleet.node.boots(), 2);
    assert!(fleet.up.cli().ok(&["status"]).contains("emergency"));
    let _ = fleet.up.cli().ok(&["breakglass", "close", &name, "--note", "a fan"]);
    assert!(!fleet.up.cli().ok(&["status"]).contains("emergency"));

    // A typo is found out before anything is signed. Where nobody can be asked, people decide.
    let typo = format!("node/{}x", fleet.name);
    let words = ["breakglass", &typo, "--kind", "node.reboot", "--reason", "it hangs", "--repo", &dir, "--yes"];
    let refused = fleet.up.cli().run(&words);
    assert!(refused.code == 4 && refused.err.contains("(no-machine)"), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains(&format!("did you mean {node}?")), "{}", refused.err);
    let said = fleet.up.cli().run(&[&words[..], &["--url", "https://127.0.0.1:1"]].concat());
    assert!(said.code == 0 && said.err.contains("could not be looked up"), "{}{}", said.out, said.err);
    let batch = fleet.wait_state(&called(&name), "void");
    assert_eq!(batch["reason"], "no-machine");
}
