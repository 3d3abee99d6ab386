//! A pinned fleet: only what people signed comes into force, and whatever else happens, the last good revision stays.

mod asks;
mod kept;
mod looks;
mod proposing;
mod replicas;
mod twins;
mod words;

use std::{path::PathBuf, sync::Arc};

use pki::{
    checkpoint::CheckpointPurpose,
    keys::{Keys, RotationKind, TrustPin},
    trust::{
        object::{ObjectFormat, ObjectId},
        policy::{self, Policy},
        statement::{Body, FleetId, Statement, Under},
    },
};
use schema::{fleet::trust::FILE, name::Name};
use store::rollbacks::{self, RollbackState};

use super::{Git, SourceState, pass::World};
use crate::{
    custody::SourceCustody,
    source::{AcceptError, FLEET, Passed, Trouble, accept},
    trust::{Pinned, in_force},
};

/// A fleet with people who sign.
struct People {
    world: World,
    secrets: tempfile::TempDir,
    keys: Keys,
    custody: Arc<SourceCustody>,
    more: &'static str,
}

impl People {
    /// A fleet that Ada signs for, not pinned yet; `None` where a program is missing.
    async fn new(more: &'static str) -> Option<Self> {
        if std::process::Command::new("ssh-keygen").arg("-?").output().is_err() {
            eprintln!("skipped: there is no ssh-keygen");
            return None;
        }
        let secrets = tempfile::tempdir().expect("a directory");
        for who in ["ada", "bob", "eve"] {
            let mut make = std::process::Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-C", who, "-f"]).arg(secrets.path().join(who));
            assert!(make.status().expect("ssh-keygen runs").success());
        }
        let keys = Keys::generate("test.example", jiff::Timestamp::UNIX_EPOCH).expect("keys");
        let custody = SourceCustody::new(&keys.source(), "fleet_test");
        let mut git = Git::fleet();
        git.dir = moved(git.dir);
        let world = World::with(git).await;
        let people = Self { world, secrets, keys, custody, more };
        people.git().write(FILE, &people.policy(1, None, more));
        people.sign("ada", "trust: who may change what");
        Some(people)
    }

    /// The same, pinned and in force.
    async fn pinned(more: &'static str) -> Option<Self> {
        let mut people = Self::new(more).await?;
        people.pin(&people.head());
        assert!(matches!(people.run().await, Passed::InForce { .. }));
        Some(people)
    }

    fn git(&self) -> &Git {
        &self.world.git
    }

    fn head(&self) -> String {
        self.git().head()
    }

    fn line(&self, who: &str) -> String {
        std::fs::read_to_string(self.secrets.path().join(format!("{who}.pub"))).expect("a key").trim().to_owned()
    }

    fn policy(&self, epoch: u64, prev: Option<&Policy>, more: &str) -> String {
        let prev = prev.map_or_else(String::new, |prev| format!("prev \"{}\"", prev.digest()));
        let person = |who: &str, role: &str| {
            format!("principal \"{who}\" {{\n kind \"human\"\n roles \"{role}\"\n key \"{}\"\n}}\n", self.line(who))
        };
        format!(
            "policy {{\n format 1\n epoch {epoch}\n {prev}\n}}\n{}{}\
             path \"**\" {{ roles \"admin\" \"operator\"; }}\npath \"trust/**\" {{ roles \"admin\"; }}\n\
             trust {{ roles \"admin\"; threshold 1; }}\n{more}",
            person("ada", "admin"),
            person("bob", "operator")
        )
    }

    fn in_tree(&self) -> Policy {
        let text = std::fs::read(self.git().path().join(FILE)).expect("a policy");
        policy::check(&text).policy.expect("a policy")
    }

    /// Commits everything, signed.
    fn sign(&self, who: &str, subject: &str) -> String {
        let key = format!("user.signingKey={}", self.secrets.path().join(who).display());
        self.git().git(&["add", "-A"]);
        self.git().git(&["-c", "gpg.format=ssh", "-c", &key, "commit", "-q", "-S", "--allow-empty", "-m", subject]);
        self.head()
    }

    /// Says something, on the branch where such words lie.
    fn say(&self, who: &str, body: Body) {
        let statement = self.statement(who, body);
        self.carry(who, &statement, &[], &statement.reference());
    }

    fn statement(&self, who: &str, body: Body) -> Statement {
        let who = Name::new(who).expect("a name");
        Statement::new("test.example", self.fleet(), who, Statement::fresh_nonce(), body).expect("a statement")
    }

    /// Puts a statement in a signed commit, under a reference.
    fn carry(&self, who: &str, statement: &Statement, more: &[&str], reference: &str) -> String {
        let file = self.secrets.path().join("statement.txt");
        std::fs::write(&file, statement.write("say so")).expect("a file");
        let (file, key) =
            (file.display().to_string(), format!("user.signingKey={}", self.secrets.path().join(who).display()));
        let empty = self.git().git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
        let commit = ["-c", "gpg.format=ssh", "-c", &key, "commit-tree", "-S", "-F", &file, &empty];
        let made = self.git().git(&[&commit, more].concat());
        self.git().git(&["update-ref", reference, &made]);
        made
    }

    fn anchor(&self) -> String {
        self.git().git(&["log", "--format=%H", "--reverse", "--", FILE]).lines().next().expect("an anchor").to_owned()
    }

    fn fleet(&self) -> FleetId {
        let anchor = self.keys.trust_pin().map_or_else(|| id(&self.anchor()), |pin| pin.commit);
        FleetId::of("test.example", &anchor)
    }

    fn pin(&mut self, anchor: &str) -> TrustPin {
        let commit = id(anchor);
        let pin = TrustPin { commit, fleet: FleetId::of("test.example", &commit), digest: self.in_tree().digest() };
        self.keys.pin_trust(pin).expect("pinned");
        self.custody.use_keys(&self.keys.source());
        pin
    }

    /// The policies that follow from the pin.
    async fn policies(&self) -> std::collections::BTreeMap<u64, Policy> {
        in_force(self.world.db.db(), &self.custody.pinned()).await.expect("reads").expect("a pin").0
    }

    async fn run(&self) -> Passed {
        let mut pass = self.world.pass().with_custody(Some(Arc::clone(&self.custody)));
        pass.run(&self.world.lease, true).await.expect("a pass")
    }

    async fn held(&self) -> Trouble {
        match self.run().await {
            Passed::Held(trouble) => trouble,
            other => panic!("{other:?}"),
        }
    }

    async fn applied(&self) -> Option<String> {
        self.world.source().await.applied.map(|at| at.commit)
    }

    /// Nothing but this commit is in force.
    async fn stays(&self, state: SourceState, commit: &str) -> Trouble {
        let trouble = self.held().await;
        assert_eq!(trouble.state, state, "{trouble}");
        assert_eq!(self.applied().await.as_deref(), Some(commit));
        trouble
    }

    async fn goes(&self) {
        let passed = self.run().await;
        assert!(matches!(passed, Passed::InForce { .. }), "{passed:?}");
        assert_eq!(self.applied().await, Some(self.head()));
    }

    fn under(&self) -> Under {
        let policy = self.in_tree();
        Under { epoch: policy.epoch(), digest: policy.digest() }
    }
}

/// The checkpoint beside the repositories is in the folder of the source: here that is the repository itself.
fn moved(dir: tempfile::TempDir) -> tempfile::TempDir {
    std::fs::write(dir.path().join(".git/info/exclude"), "/fleet.verified*\n/parses*\n").expect("a file");
    dir
}

fn id(text: &str) -> ObjectId {
    text.parse().expect("an id")
}

fn later() -> schema::time::Timestamp {
    "2099-01-01T00:00:00Z".parse().expect("a time")
}

#[tokio::test]
async fn until_it_is_pinned_a_fleet_is_unverified() {
    let Some(mut people) = People::new("").await else { return };
    people.git().commit("nobody signed this");
    people.goes().await;
    let unsigned = people.head();
    let anchor = people.anchor();
    people.pin(&anchor);
    let trouble = people.stays(SourceState::UnverifiedCommit, &unsigned).await;
    let detail = trouble.detail.expect("the commit");
    assert_eq!((detail["code"].as_str(), detail["commit"].as_str()), (Some("unsigned"), Some(unsigned.as_str())));
}

#[tokio::test]
async fn a_pinned_fleet_goes_back_to_what_was_verified_and_no_further() {
    let Some(mut people) = People::new("").await else { return };
    let anchor = people.head();
    people.git().git(&["reset", "-q", "--hard", "HEAD~1"]);
    people.goes().await;
    let before = people.world.newest().await.revision.id;
    people.git().git(&["reset", "-q", "--hard", &anchor]);
    people.pin(&anchor);
    people.goes().await;
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let good = people.sign("bob", "sites: fra2");
    people.goes().await;
    let verified = people.world.newest().await.revision.id;
    people.git().write("sites/fra3.kdl", "site \"fra3\" {\n    region \"eu\"\n}\n");
    people.sign("bob", "sites: fra3");
    people.goes().await;

    people.world.ask(before).await;
    people.goes().await;
    let ended = rollbacks::latest(people.world.db.db(), FLEET).await.expect("reads").expect("one");
    assert_eq!(ended.state, RollbackState::Refused);
    assert!(ended.message.contains("nobody has verified commit"), "{}", ended.message);

    people.world.ask(verified).await;
    assert_eq!(people.run().await, Passed::RolledBack { commit: good });
}

#[tokio::test]
async fn only_what_counts_comes_into_force() {
    let Some(people) = People::pinned("").await else { return };
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let good = people.sign("bob", "sites: fra2");
    people.goes().await;
    assert_eq!(people.world.source().await.verified.map(|at| at.commit), Some(good.clone()));

    people.git().write("sites/fra3.kdl", "site \"fra3\" {\n    region \"eu\"\n}\n");
    people.git().commit("in a hurry");
    people.stays(SourceState::UnverifiedCommit, &good).await;
    // What comes behind it does not count, whoever signs it.
    people.sign("ada", "on we go");
    people.stays(SourceState::UnverifiedCommit, &good).await;
    assert_eq!(people.world.source().await.verified.map(|at| at.commit), Some(good.clone()));

    people.git().git(&["reset", "-q", "--soft", &good]);
    people.sign("eve", "a stranger");
    assert!(people.stays(SourceState::UnverifiedCommit, &good).await.reason.contains("unknown-key"));
    people.git().git(&["reset", "-q", "--soft", &good]);
    people.sign("ada", "sites: fra3");
    people.goes().await;
}

#[tokio::test]
async fn a_tree_that_cannot_be_read_blinds_nobody() {
    let Some(people) = People::pinned("").await else { return };
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let good = people.sign("ada", "sites: fra2");
    people.goes().await;
    let blob = people.git().blob("fleet.kdl");
    let missing = "1".repeat(40);
    let raw = |tree: &str| {
        let who = "Eve <eve@test.example> 1767225600 +0000";
        let commit = format!("tree {tree}\nparent {good}\nauthor {who}\ncommitter {who}\n\nin the way\n");
        people.git().write(".git/raw", &commit);
        people.git().git(&["hash-object", "-t", "commit", "-w", "--literally", ".git/raw"])
    };
    for tree in [&missing, &blob] {
        people.git().git(&["update-ref", "refs/heads/main", &raw(tree)]);
        let trouble = people.stays(SourceState::UnverifiedCommit, &good).await;
        assert!(trouble.reason.contains("unsigned"), "{trouble}");
    }
}

#[tokio::test]
async fn a_commit_whose_files_are_missing_is_named_and_what_came_before_it_counts() {
    let Some(people) = People::pinned("").await else { return };
    let (good, before) = (people.head(), people.in_tree());
    people.git().write(FILE, &people.policy(2, Some(&before), "reseal { roles \"admin\"; threshold 1; }\n"));
    let second = people.sign("ada", "trust: who accepts a rewritten history");
    let after = people.in_tree();
    people
        .say("ada", Body::Trust(pki::trust::statement::Step { prev: before.digest(), next: after.digest(), epoch: 2 }));
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let tip = people.sign("ada", "sites: fra2");
    for object in ["HEAD:sites/fra2.kdl", "HEAD:sites"] {
        let object = people.git().git(&["rev-parse", object]);
        let bytes = std::fs::read(people.git().loose(&object)).expect("an object");
        std::fs::remove_file(people.git().loose(&object)).expect("it was there");
        let trouble = people.stays(SourceState::ObjectBroken, &good).await;
        assert!(trouble.reason.contains(&tip[..10]) && trouble.reason.contains(&object), "{trouble}");
        let detail = trouble.detail.expect("the commit");
        assert_eq!((detail["code"].as_str(), detail["commit"].as_str()), (Some("object-broken"), Some(tip.as_str())));
        assert_eq!(people.world.source().await.verified.map(|at| at.commit), Some(second.clone()));
        assert_eq!(people.policies().await.len(), 2, "what came before it is in force");
        std::fs::write(people.git().loose(&object), bytes).expect("it is there again");
    }
    people.goes().await;
}

#[tokio::test]
async fn without_a_policy_nothing_moves() {
    let Some(people) = People::pinned("").await else { return };
    let good = people.head();
    let text = std::fs::read_to_string(people.git().path().join(FILE)).expect("a policy");
    people.git().remove(FILE);
    people.sign("ada", "trust: who needs it");
    people.stays(SourceState::TrustRemoved, &good).await;
    people.git().git(&["reset", "-q", "--hard", &good]);
    assert_eq!(std::fs::read_to_string(people.git().path().join(FILE)).expect("a policy"), text);
    people.goes().await;
}

#[tokio::test]
async fn a_rewritten_branch_goes_on_only_when_people_sign_for_it() {
    let Some(people) = People::pinned("reseal { roles \"admin\" \"operator\"; threshold 2; }\n").await else { return };
    let anchor = people.head();
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    let old = people.sign("ada", "sites: fra2");
    people.goes().await;

    // Set back, and then a sibling, well signed.
    people.git().git(&["reset", "-q", "--hard", &anchor]);
    people.stays(SourceState::StaleSource, &old).await;
    people.git().write("sites/muc1.kdl", "site \"muc1\" {\n    region \"eu\"\n}\n");
    let new = people.sign("ada", "sites: muc1");
    let trouble = people.stays(SourceState::HistoryDiverged, &old).await;
    assert!(trouble.reason.contains(&format!("trust reseal {old} {new}")), "{trouble}");

    let mut txn = people.world.db.db().begin().await.expect("begins");
    let refused = accept(people.world.db.db(), &mut txn, &people.custody.pinned(), FLEET, &new, "ada").await;
    assert!(matches!(refused, Err(AcceptError::Pinned)));
    drop(txn);

    let reseal = || Body::Reseal {
        branch: "main".to_owned(),
        old: id(&old),
        new: id(&new),
        under: people.under(),
        expires: later(),
    };
    people.say("ada", reseal());
    people.stays(SourceState::HistoryDiverged, &old).await;
    people.say("eve", reseal());
    people.stays(SourceState::HistoryDiverged, &old).await;
    people.say("bob", reseal());
    people.goes().await;
    people.sign("bob", "and on");
    people.goes().await;
    // Who has lost the checkpoint remembers it all the same, by the statements.
    people.forget().await;
    people.goes().await;
}

impl People {
    /// Loses both copies of the checkpoint.
    async fn forget(&self) {
        std::fs::remove_file(self.file()).expect("a checkpoint");
        self.steal("DELETE FROM trust_checkpoints").await;
    }

    async fn steal(&self, sql: &str) {
        self.world.steal(sql).await;
    }

    /// What the audit log has of somebody, newest first.
    async fn log_of(&self, who: &str) -> Vec<String> {
        let filter = store::audit::Filter { actor: Some(who.to_owned()), ..Default::default() };
        let lines = store::audit::search(self.world.db.db(), &filter, 50).await.expect("reads");
        lines.iter().map(|line| format!("{} {}", line.action, line.subject)).collect()
    }

    fn file(&self) -> PathBuf {
        self.git().path().join("fleet.verified")
    }
}

#[tokio::test]
async fn a_thief_of_the_database_verifies_nothing() {
    let Some(people) = People::pinned("").await else { return };
    let good = people.head();
    people.git().write("sites/evil.kdl", "site \"evil\" {\n    region \"eu\"\n}\n");
    let evil = people.git().commit("from a thief");
    for sql in [
        format!("UPDATE sources SET verified_commit = '{evil}', accepted_commit = '{evil}', remote_commit = '{evil}'"),
        format!(
            "UPDATE trust_checkpoints SET commit = '{evil}', seq = 99, body = convert_to(replace(convert_from(body, 'UTF8'), '{good}', '{evil}'), 'UTF8')"
        ),
        "DELETE FROM trust_checkpoints".to_owned(),
        "DELETE FROM trust_epochs".to_owned(),
        "UPDATE trust_epochs SET digest = 'sha256:00', policy = 'x'".to_owned(),
    ] {
        people.steal(&sql).await;
        people.stays(SourceState::UnverifiedCommit, &good).await;
    }
    std::fs::write(people.file(), "{}").expect("a file");
    people.stays(SourceState::UnverifiedCommit, &good).await;
    people.git().git(&["reset", "-q", "--hard", &good]);
    people.goes().await;
    assert_eq!(people.policies().await.len(), 1, "what was there is there again");
}

#[tokio::test]
async fn how_far_history_was_verified_outlives_the_key_that_signed_it() {
    let Some(mut people) = People::pinned("").await else { return };
    let step = |people: &mut People| {
        people.keys.advance(RotationKind::Checkpoint, "fleet_test", jiff::Timestamp::UNIX_EPOCH);
        people.custody.use_keys(&people.keys.source());
    };
    for _ in 0..2 {
        step(&mut people);
    }
    let _ = people.run().await;
    step(&mut people);
    let stored = store::trust::checkpoint(people.world.db.db(), FLEET).await.expect("reads").expect("a checkpoint");
    let signer = people.custody.signer();
    let by = signer.verifier().verify(CheckpointPurpose::VerifiedCheckpoint, &stored.body, &stored.signature);
    assert_eq!(by, Ok(signer.key()));
}

#[tokio::test]
async fn a_policy_follows_another_one_and_a_second_person_vouches() {
    let Some(people) = People::pinned("change { roles \"operator\"; threshold 1; }\n").await else { return };
    let (good, before) = (people.head(), people.in_tree());
    let unit = "profile \"base\" {\n    unit \"a.service\" {\n        enable #true\n    }\n}\n";
    people.git().write("profiles/base.kdl", unit);
    let unit_commit = people.sign("ada", "profiles: a unit");
    assert!(people.stays(SourceState::UnverifiedCommit, &good).await.reason.contains("not-vouched"));
    let tree = id(&people.git().git(&["rev-parse", "HEAD^{tree}"]));
    let vouch = |expires: &str| Body::Change {
        branch: "main".to_owned(),
        base: id(&good),
        tree,
        under: people.under(),
        expires: expires.parse().expect("a time"),
    };
    people.say("bob", vouch("2020-01-01T00:00:00Z"));
    people.stays(SourceState::UnverifiedCommit, &good).await;
    people.say("bob", vouch("2099-01-01T00:00:00Z"));
    people.goes().await;
    let said = format!("statements.change {good}");
    assert_eq!(people.log_of("bob").await, ["history.verified fleet", said.as_str(), said.as_str()]);

    people.git().write(FILE, &people.policy(2, Some(&before), people.more));
    people.sign("ada", "trust: the same again");
    let trouble = people.stays(SourceState::UnverifiedCommit, &unit_commit).await;
    assert!(trouble.reason.contains("trust-threshold"), "{trouble}");
    let after = people.in_tree();
    let step = pki::trust::statement::Step { prev: before.digest(), next: after.digest(), epoch: 2 };
    people.say("ada", Body::Trust(step));
    people.goes().await;
    let stored = people.policies().await;
    assert_eq!(stored.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(stored[&2], after);
    let log = people.log_of("ada").await;
    assert_eq!(log[..3], ["trust.policy policy/2", "history.verified fleet", "statements.trust policy/2"]);
    // Whoever begins with nothing gets to the same.
    people.forget().await;
    people.goes().await;
}

#[tokio::test]
async fn a_revocation_is_heard_and_never_forgotten() {
    let Some(people) = People::pinned("revoke { roles \"admin\"; }\n").await else { return };
    let good = people.head();
    let key = pki::trust::key::TrustKey::from_ssh(&people.line("bob")).expect("a key").name();
    let reason = pki::trust::statement::RevokeReason::Compromised;
    people.say("ada", Body::Revoke { key, reason, last_good: id(&good), trust_epoch: 1 });
    people.goes().await;
    people.sign("bob", "is this still good?");
    assert!(people.stays(SourceState::UnverifiedCommit, &good).await.reason.contains("key-revoked"));
    // Withheld from now on, everywhere.
    let reference = people.git().git(&["for-each-ref", "--format=%(refname)", "refs/heads/bc"]);
    people.git().git(&["update-ref", "-d", &reference]);
    people.steal("DELETE FROM statements").await;
    assert!(people.stays(SourceState::UnverifiedCommit, &good).await.reason.contains("key-revoked"));
}

#[tokio::test]
async fn a_history_that_is_not_the_pinned_one_says_so() {
    let Some(mut people) = People::new("").await else { return };
    let commit = id(&people.head());
    let digest = schema::digest::Digest::of("another");
    let pin = TrustPin { commit, fleet: FleetId::of("test.example", &commit), digest };
    people.keys.pin_trust(pin).expect("pinned");
    people.custody.use_keys(&people.keys.source());
    assert_eq!(people.held().await.state, SourceState::OtherHistory);
    assert_eq!(people.applied().await, None);
}

#[tokio::test]
async fn a_shallow_clone_has_no_history_to_verify() {
    let Some(mut people) = People::new("").await else { return };
    let anchor = people.head();
    people.sign("ada", "one");
    people.sign("ada", "two");
    people.pin(&anchor);
    let other = tempfile::tempdir().expect("a directory");
    let from = format!("file://{}", people.git().path().display());
    super::run(other.path(), &["clone", "-q", "--depth", "1", &from, "shallow"]);
    let config = super::config(&other.path().join("shallow"));
    let mut pass = people.world.pass_over(config).with_custody(Some(Arc::clone(&people.custody)));
    let passed = pass.run(&people.world.lease, true).await.expect("a pass");
    assert!(matches!(&passed, Passed::Held(trouble) if trouble.state == SourceState::HistoryIncomplete), "{passed:?}");
}

#[test]
fn trees_are_read_as_everybody_reads_them() {
    use pki::trust::walk::History as _;

    let git = Git::fleet();
    let blob = git.git(&["rev-parse", "HEAD:fleet.kdl"]);
    let tree = |entries: &[String]| {
        let file = git.path().join(".git/entries");
        std::fs::write(&file, entries.join("\n") + "\n").expect("a file");
        let shell = format!("git mktree --missing < {}", file.display());
        let out =
            std::process::Command::new("sh").current_dir(git.path()).args(["-c", &shell]).output().expect("a shell");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        id(String::from_utf8(out.stdout).expect("text").trim())
    };
    let repo = crate::source::Repo::open(git.path()).expect("a repository");
    let history = repo.trust_history("");
    let empty = git.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let base = tree(&[format!("100644 blob {blob}\tfleet.kdl")]);
    let changes = |name: &str, mode: &str, kind: &str, id: &str| {
        history.changes(base, tree(&[format!("100644 blob {blob}\tfleet.kdl"), format!("{mode} {kind} {id}\t{name}")]))
    };
    for (name, mode, kind) in [
        ("git~1", "100644", "blob"),
        ("a\\\\b", "100644", "blob"),
        ("CON", "100644", "blob"),
        (".g\u{200c}it", "100644", "blob"),
        ("x\u{202e}y", "100644", "blob"),
        ("Trust", "040000", "tree"),
        ("tru\u{17f}t", "040000", "tree"),
        ("TRUST~1", "040000", "tree"),
        ("com1.kdl", "100644", "blob"),
        ("CONIN$", "100644", "blob"),
        ("a.", "100644", "blob"),
        ("link", "120000", "blob"),
        ("sub", "160000", "commit"),
    ] {
        let id = match kind {
            "tree" => empty.as_str(),
            "commit" => "1111111111111111111111111111111111111111",
            _ => blob.as_str(),
        };
        let refused = changes(name, mode, kind, id);
        assert!(
            matches!(&refused, Err(error) if <crate::source::TrustHistory<'_> as pki::trust::walk::History>::unfit(error).is_some()),
            "{name}: {refused:?}"
        );
    }
    // Out of git's order: others read such a tree by halves.
    let raw = |name: &str| [format!("100644 {name}\0").as_bytes(), &hex::decode(&blob).expect("hex")].concat();
    std::fs::write(git.path().join(".git/raw"), [raw("z.kdl"), raw("a.kdl")].concat()).expect("a file");
    let unsorted = id(&git.git(&["hash-object", "-t", "tree", "-w", "--literally", ".git/raw"]));
    let refused = history.changes(base, unsorted).expect_err("not git's order");
    assert!(<crate::source::TrustHistory<'_> as pki::trust::walk::History>::unfit(&refused).is_some(), "{refused}");
    // Of a form that nobody writes.
    for (mode, name) in [("100644", ".."), ("100644", "fleet.kdl"), ("100664", "b.kdl"), ("0", "b.kdl")] {
        let odd = [format!("{mode} {name}\0").as_bytes(), &hex::decode(&blob).expect("hex")].concat();
        std::fs::write(git.path().join(".git/raw"), [odd, raw("fleet.kdl")].concat()).expect("a file");
        let odd = id(&git.git(&["hash-object", "-t", "tree", "-w", "--literally", ".git/raw"]));
        let refused = history.changes(base, odd).expect_err("nobody reads it alike");
        assert!(
            <crate::source::TrustHistory<'_> as pki::trust::walk::History>::unfit(&refused).is_some(),
            "{mode} {name}: {refused}"
        );
    }
    let refused = history.changes(base, id(&blob)).expect_err("a file is no tree");
    assert!(<crate::source::TrustHistory<'_> as pki::trust::walk::History>::unfit(&refused).is_some(), "{refused}");
    // A folder without files is a change, and somebody answers for it.
    let found = changes("trust", "040000", "tree", &empty).expect("a change");
    assert_eq!(found.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["trust"]);
}

#[test]
fn a_sha256_repository_is_read_as_one() {
    use pki::trust::walk::History as _;

    let git = Git { dir: tempfile::tempdir().expect("a directory") };
    git.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    git.write("fleet.kdl", crate::source::fixture::FLEET);
    let head = git.commit("first");
    assert_eq!(head.len(), 64);
    let seen = super::look_at(&git.path().display().to_string()).expect("a repository");
    assert_eq!(seen.tip, head);
    let history = seen.repo.trust_history("");
    assert_eq!(history.format(), ObjectFormat::Sha256);
    let raw = history.commit(id(&head)).expect("reads").expect("a commit");
    assert_eq!(ObjectId::of_commit(ObjectFormat::Sha256, &raw).expect("a name"), id(&head));
    let tree = id(&git.git(&["rev-parse", "HEAD^{tree}"]));
    assert_eq!(history.trust_domain(tree).expect("reads").as_deref(), Some("test.example"));
    assert_eq!(super::files(&super::read_tree(&seen.repo, &seen.tip, "").expect("a tree")), ["fleet.kdl"]);
    assert_eq!(Pinned::none().get(), None);
}
