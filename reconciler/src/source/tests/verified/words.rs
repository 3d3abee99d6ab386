//! What people say is heard, whatever whoever may push puts beside it, and whatever becomes of the tip.

use pki::trust::{
    key::TrustKey,
    statement::{RevokeReason, Step},
};
use store::trust::statements_of;

use super::*;

const RULES: &str = "revoke { roles \"admin\"; }\n";

impl People {
    fn key(&self, who: &str) -> String {
        TrustKey::from_ssh(&self.line(who)).expect("a key").name()
    }

    fn revoking(&self, whose: &str) -> Statement {
        let (key, reason, last_good) = (self.key(whose), RevokeReason::Compromised, id(&self.anchor()));
        self.statement("ada", Body::Revoke { key, reason, last_good, trust_epoch: 1 })
    }

    /// How many revocations are stored.
    async fn revocations(&self) -> usize {
        statements_of(self.world.db.db(), &["revoke/v1"], None).await.expect("reads").len()
    }

    /// A commit that says nothing, of somebody without a key.
    fn junk(&self, number: usize) -> String {
        let empty = self.git().git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
        self.git().git(&["commit-tree", "-m", &format!("junk {number}"), &empty])
    }

    fn put(&self, reference: &str, commit: &str) {
        self.git().git(&["update-ref", reference, commit]);
    }
}

/// The folder that all words of one kind of somebody about one thing lie in.
fn folder(statement: &Statement) -> String {
    let reference = statement.reference();
    reference.rsplit_once('/').expect("a folder").0.to_owned()
}

#[tokio::test]
async fn what_could_not_be_stored_is_heard_by_the_next_pass() {
    let Some(people) = People::pinned(RULES).await else { return };
    let mut pass = people.world.pass().with_custody(Some(Arc::clone(&people.custody)));
    pass.run(&people.world.lease, true).await.expect("a pass");
    let revoking = people.revoking("bob");
    people.carry("ada", &revoking, &[], &revoking.reference());
    people.steal("ALTER TABLE statements ADD CONSTRAINT away CHECK (false) NOT VALID").await;
    pass.run(&people.world.lease, true).await.expect_err("it cannot be stored");
    people.steal("ALTER TABLE statements DROP CONSTRAINT away").await;
    people.sign("bob", "is this still good?");
    match pass.run(&people.world.lease, true).await.expect("a pass") {
        Passed::Held(trouble) => assert!(trouble.reason.contains("key-revoked"), "{trouble}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_somebody_deletes_from_the_database_is_heard_again() {
    let Some(people) = People::pinned(RULES).await else { return };
    let mut pass = people.world.pass().with_custody(Some(Arc::clone(&people.custody)));
    let revoking = people.revoking("bob");
    people.carry("ada", &revoking, &[], &revoking.reference());
    pass.run(&people.world.lease, true).await.expect("a pass");
    assert_eq!(people.revocations().await, 1);
    people.steal("DELETE FROM statements").await;
    pass.run(&people.world.lease, true).await.expect("a pass");
    assert_eq!(people.revocations().await, 1);
}

#[tokio::test]
async fn whoever_may_push_keeps_nobody_from_being_heard() {
    let Some(people) = People::pinned(RULES).await else { return };
    let revoking = people.revoking("bob");
    for number in 0..40 {
        people.put(&format!("{}/{number:08x}", folder(&revoking)), &people.junk(number));
    }
    people.carry("ada", &revoking, &[], &format!("{}/ffffffff", folder(&revoking)));
    people.goes().await;
    assert_eq!(people.revocations().await, 1);
}

#[tokio::test]
async fn one_key_says_so_much_about_one_thing_and_keeps_no_other_out() {
    let Some(people) = People::pinned(RULES).await else { return };
    for number in 0..40 {
        let said = people.revoking("bob");
        people.carry("ada", &said, &[], &format!("{}/{number:08x}", folder(&said)));
    }
    people.goes().await;
    assert_eq!(people.revocations().await, 32);
    let other = people.revoking("ada");
    people.carry("ada", &other, &[], &other.reference());
    people.goes().await;
    assert_eq!(people.revocations().await, 33);
}

#[tokio::test]
async fn an_old_key_says_nothing_in_place_of_the_present_one() {
    let Some(mut people) = People::new("").await else { return };
    // Bob had the key that Eve found.
    let text = people.policy(1, None, "change { roles \"operator\"; threshold 1; }\n");
    let old = format!("key \"{}\"\n key \"{}\"\n", people.line("bob"), people.line("eve"));
    let text = text.replace(&format!("key \"{}\"\n", people.line("bob")), &old)
        + &format!("revoked \"{}\" {{ as \"compromised\"; }}\n", people.key("eve"));
    people.git().git(&["reset", "-q", "--hard", "HEAD~1"]);
    people.git().write(FILE, &text);
    let good = people.sign("ada", "trust: who may change what");
    people.pin(&good);
    people.goes().await;

    people
        .git()
        .write("profiles/base.kdl", "profile \"base\" {\n    unit \"a.service\" {\n        enable #true\n    }\n}\n");
    people.sign("ada", "profiles: a unit");
    let tree = id(&people.git().git(&["rev-parse", "HEAD^{tree}"]));
    let (branch, base, under) = ("main".to_owned(), id(&good), people.under());
    let vouch = people.statement("bob", Body::Change { branch, base, tree, under, expires: later() });
    people.carry("eve", &vouch, &[], &format!("{}/00000000", folder(&vouch)));
    people.stays(SourceState::UnverifiedCommit, &good).await;
    people.carry("bob", &vouch, &[], &format!("{}/00000001", folder(&vouch)));
    people.goes().await;
}

#[tokio::test]
async fn people_are_heard_while_the_tip_cannot_be_read() {
    let Some(people) = People::pinned(RULES).await else { return };
    let good = people.head();
    let revoking = people.revoking("bob");
    people.carry("ada", &revoking, &[], &revoking.reference());
    let broken = people.git().git(&["commit-tree", "-p", "HEAD", "-m", "odd", "HEAD^{tree}"]);
    let raw = people.git().git(&["cat-file", "commit", &broken]);
    let tree = people.git().git(&["rev-parse", "HEAD^{tree}"]);
    let file = people.secrets.path().join("raw");
    std::fs::write(&file, raw.replace(&tree, &"1".repeat(40)) + "\n").expect("a file");
    let made = people.git().git(&["hash-object", "-t", "commit", "-w", "--literally", &file.display().to_string()]);
    std::fs::write(people.git().path().join(".git/refs/heads/main"), format!("{made}\n")).expect("a reference");
    people.held().await;
    assert_eq!(people.applied().await, Some(good));
    assert_eq!(people.revocations().await, 1);
}

#[tokio::test]
async fn whoever_only_a_policy_on_the_way_lists_proves_its_key() {
    let Some(people) = People::pinned("").await else { return };
    let before = people.in_tree();
    let eve =
        format!("principal \"eve\" {{\n kind \"human\"\n roles \"operator\"\n key \"{}\"\n}}\n", people.line("eve"));
    people.git().write(FILE, &people.policy(2, Some(&before), &eve));
    people.sign("ada", "trust: eve comes");
    let after = people.in_tree();
    // And the tip itself is nobody's, and has no policy.
    people.git().remove(FILE);
    people.git().commit("in a hurry");
    let step = Step { prev: before.digest(), next: after.digest(), epoch: 2 };
    people.say("ada", Body::Trust(step));
    people.held().await;
    assert_eq!(people.policies().await.len(), 1, "her key is not proven");
    people.say("eve", Body::Possess(step));
    people.held().await;
    assert_eq!(people.policies().await.len(), 2);
}

/// Bytes that no two numbers share, and that nothing makes smaller.
fn noise(number: u32) -> Vec<u8> {
    let mut state = number;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()
    };
    std::iter::repeat_with(next).take(9 << 18).flatten().collect()
}

impl People {
    /// A commit of one file, and the file's blob.
    fn lone(&self, bytes: &[u8]) -> (String, String) {
        let (file, entries) = (self.secrets.path().join("file"), self.secrets.path().join("entries"));
        std::fs::write(&file, bytes).expect("a file");
        let blob = self.git().git(&["hash-object", "-w", &file.display().to_string()]);
        std::fs::write(&entries, format!("100644 blob {blob}\tfile\n")).expect("a file");
        let shell = format!("git mktree < {}", entries.display());
        let out = std::process::Command::new("sh").current_dir(self.git().path()).args(["-c", &shell]).output();
        let tree = String::from_utf8(out.expect("a shell").stdout).expect("text");
        (self.git().git(&["commit-tree", "-m", "junk", tree.trim()]), blob)
    }
}

#[tokio::test]
async fn what_cannot_be_fetched_keeps_nobody_from_being_heard_and_nothing_of_it_stays() {
    let rules = "revoke { roles \"admin\"; }\npath \"*.bin\" { roles \"admin\"; changes 0; }\n";
    let Some(people) = People::pinned(rules).await else { return };
    std::fs::write(people.git().path().join("picture.bin"), noise(1)).expect("a file");
    people.sign("ada", "a picture of the floor");
    // Whoever speaks of what is on the branch sends nothing of it.
    let revoking = people.revoking("bob");
    people.carry("ada", &revoking, &["-p", "HEAD"], &revoking.reference());
    // One commit cannot be sent: a part of it is not there. Another one is larger than anything that somebody says.
    let (broken, gone) = people.lone(b"nobody has this");
    std::fs::remove_file(people.git().loose(&gone)).expect("it was there");
    let (huge, large) = people.lone(&noise(2));
    let places = "refs/heads/bc/statements/change";
    people.put(&format!("{places}/x/ada/0"), &broken);
    people.put(&format!("{places}/y/ada/0"), &huge);
    people.put(&format!("{places}/z/ada/0"), &people.junk(1));

    let server = people.server("");
    let data = server.data.path().join("source");
    let pass = people.world.pass_reaching(server.config.clone(), server.access.clone(), data.clone());
    let mut pass = pass.with_custody(Some(Arc::clone(&people.custody)));
    let passed = pass.run(&people.world.lease, true).await.expect("a pass");
    assert!(matches!(passed, Passed::InForce { .. }), "{passed:?}");
    assert_eq!(people.revocations().await, 1);
    let all = std::fs::read_dir(&data).expect("a folder").flatten().map(|entry| entry.path());
    let own: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    let has = |object: &str| {
        let mut git = std::process::Command::new("git");
        git.arg("--git-dir").arg(&own[0]).args(["cat-file", "-e", object]).output().expect("git runs").status.success()
    };
    assert!(has(&people.head()));
    assert!(![&huge, &large, &broken].into_iter().any(|object| has(object)));
}

#[tokio::test]
async fn many_branches_keep_no_proposal_out() {
    let tier = "tier \"reboot\" { commands \"node.reboot\"; roles \"admin\" \"operator\"; threshold 1; max-nodes 4; max-ttl \"4h\"; }\n";
    let Some(people) = People::pinned(tier).await else { return };
    let junk = people.junk(1);
    for number in 0..300 {
        people.put(&format!("refs/heads/bc/proposals/{number:03}"), &junk);
    }
    people.git().git(&["checkout", "-q", "--detach"]);
    people.git().write(
        "batches/kernel.kdl",
        "batch \"kernel\" {\n    command \"node.reimage\"\n    scope {\n        pools \"h100\"\n    }\n    reason \"a new image\"\n    expires \"2099-01-01T00:00:00Z\"\n}\n",
    );
    let made = people.sign("bob", "ask for it");
    people.put("refs/heads/bc/proposals/kernel", &made);
    people.git().git(&["checkout", "-q", "main"]);
    let mut pass = people.world.pass().with_custody(Some(Arc::clone(&people.custody)));
    for _ in 0..2 {
        let passed = pass.run(&people.world.lease, true).await.expect("a pass");
        assert!(matches!(passed, Passed::InForce { .. }), "{passed:?}");
    }
    let db = people.world.db.db();
    let asks = store::batches::asks(db).await.expect("reads").items;
    assert!(asks.len() <= 256);
    let kernel: Vec<_> = asks.into_iter().filter(|ask| ask.new.name == "kernel").collect();
    assert_eq!(kernel, []);
    assert!(store::batches::find(db, "kernel").await.expect("reads").is_some());
}

impl People {
    /// What people are told of what nobody hears; nothing when all is heard.
    async fn overlooked(&self) -> Option<String> {
        let key = crate::source::overlooked_key(FLEET);
        let told = store::outcomes::find(self.world.db.db(), crate::source::STATEMENTS, &key).await.expect("reads");
        told.filter(|told| told.state == "wait").map(|told| told.message)
    }
}

#[tokio::test]
async fn what_nobody_hears_is_told_until_it_is_gone() {
    let Some(people) = People::pinned(RULES).await else { return };
    assert_eq!(people.overlooked().await, None);
    let places = "refs/heads/bc/statements";
    let revoking = people.revoking("bob");
    // At places of another shape, too large, and no commit.
    people.carry("ada", &revoking, &[], &format!("{places}/revoke/ada"));
    people.carry("ada", &revoking, &[], &format!("{places}/party/bob/ada/1"));
    let file = people.secrets.path().join("long");
    let empty = people.git().git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    std::fs::write(&file, "so much to say\n".repeat(2_000)).expect("a file");
    let long = people.git().git(&["commit-tree", "-F", &file.display().to_string(), &empty]);
    people.git().git(&["update-ref", &format!("{places}/revoke/bob/ada/1"), &long]);
    let blob = people.git().blob("fleet.kdl");
    let no_commit = people.git().path().join(format!(".git/{places}/revoke/bob/ada/2"));
    std::fs::write(&no_commit, format!("{blob}\n")).expect("a reference");
    people.goes().await;
    assert_eq!(people.revocations().await, 0);
    let told = people.overlooked().await.expect("something is told");
    let parts: Vec<&str> = told.split("; ").collect();
    assert!(parts[0].starts_with(&format!("{places}/party/bob/ada/1 and 1 other are not heard: ")), "{told}");
    assert_eq!(parts[1], format!("{places}/revoke/bob/ada/1 is not heard: a statement has at most 16 KiB"));
    assert_eq!(parts[2], format!("{places}/revoke/bob/ada/2 is not heard: a statement is a commit"));
    std::fs::remove_file(&no_commit).expect("it was there");
    for name in ["revoke/ada", "party/bob/ada/1", "revoke/bob/ada/1"] {
        people.git().git(&["update-ref", "-d", &format!("{places}/{name}")]);
    }
    people.goes().await;
    assert_eq!(people.overlooked().await, None);
}
