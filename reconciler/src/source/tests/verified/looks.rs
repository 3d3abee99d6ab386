//! What a look reads and judges: nothing twice, and nothing without an end.

use super::*;

impl People {
    fn region(&self, name: &str, region: &str) {
        self.git().write(&format!("sites/{name}.kdl"), &format!("site \"{name}\" {{\n    region \"{region}\"\n}}\n"));
    }
}

#[tokio::test]
async fn a_look_at_what_was_verified_reads_no_object() {
    let Some(people) = People::pinned("").await else { return };
    people.region("fra2", "eu");
    let good = people.sign("bob", "sites: fra2");
    let mut pass = people.world.pass().with_custody(Some(Arc::clone(&people.custody)));
    let passed = pass.run(&people.world.lease, false).await.expect("a pass");
    assert!(matches!(passed, Passed::InForce { ref commit, .. } if *commit == good), "{passed:?}");
    // Where the tree and the policy were, and every signature, there is nothing to be read any more.
    let objects = people.git().path().join(".git/objects");
    let away = people.git().path().join(".git/away");
    std::fs::rename(&objects, &away).expect("moved");
    std::fs::create_dir_all(objects.join("pack")).expect("a folder");
    let tip = format!("{}/{}", &good[..2], &good[2..]);
    std::fs::create_dir_all(objects.join(&good[..2])).expect("a folder");
    std::fs::copy(away.join(&tip), objects.join(&tip)).expect("the tip alone is there");
    for _ in 0..2 {
        let passed = pass.run(&people.world.lease, false).await.expect("a pass");
        assert!(matches!(passed, Passed::InForce { ref commit, .. } if *commit == good), "{passed:?}");
    }
}

#[tokio::test]
async fn policies_that_were_judged_are_not_judged_again_until_something_is_said() {
    let Some(people) = People::pinned("revoke { roles \"admin\"; }\n").await else { return };
    let (db, pinned) = (people.world.db.db(), people.custody.pinned());
    let pin = pinned.get().expect("a pin");
    let follows = || async { pinned.follows(db, &pin, "test.example").await.expect("reads") };
    let first = follows().await;
    assert_eq!(first.policies.len(), 1);
    assert!(Arc::ptr_eq(&first, &follows().await), "the same answer, not one like it");
    let key = pki::trust::key::TrustKey::from_ssh(&people.line("bob")).expect("a key").name();
    let reason = pki::trust::statement::RevokeReason::Compromised;
    people.say("ada", Body::Revoke { key: key.clone(), reason, last_good: id(&people.head()), trust_epoch: 1 });
    people.goes().await;
    let second = follows().await;
    assert!(!Arc::ptr_eq(&first, &second));
    let denied = in_force(db, &pinned).await.expect("reads").expect("a pin").1;
    assert!(denied.contains(&key), "{denied:?}");
    // Rows that a thief changed are judged, and end what follows.
    people.steal("UPDATE trust_epochs SET policy = 'x'").await;
    assert!(follows().await.policies.is_empty());
}

#[tokio::test]
async fn a_commit_that_is_too_large_is_malformed_and_what_came_before_it_counts() {
    let Some(people) = People::pinned("").await else { return };
    people.region("fra2", "eu");
    let good = people.sign("bob", "sites: fra2");
    let message = people.secrets.path().join("message");
    std::fs::write(&message, format!("sites: much to say\n\n{}", "all work and no play\n".repeat(100_000)))
        .expect("a file");
    let key = format!("user.signingKey={}", people.secrets.path().join("ada").display());
    let file = message.display().to_string();
    people.git().git(&["-c", "gpg.format=ssh", "-c", &key, "commit", "-q", "-S", "--allow-empty", "-F", &file]);
    let large = people.head();
    people.region("fra3", "eu");
    people.sign("ada", "sites: fra3");
    let trouble = people.held().await;
    assert_eq!(trouble.state, SourceState::UnverifiedCommit);
    assert!(trouble.reason.contains(&large[..10]) && trouble.reason.contains("(malformed)"), "{trouble}");
    assert_eq!(people.world.source().await.verified.map(|at| at.commit), Some(good));
}

#[tokio::test]
async fn whom_only_the_tip_lists_says_nothing_that_is_kept() {
    let Some(people) = People::pinned("revoke { roles \"admin\"; }\n").await else { return };
    let good = people.head();
    let before = people.in_tree();
    // Eve lists herself, in a commit that does not count, and takes everybody's key away.
    let eve = format!(
        "principal \"eve\" {{\n kind \"human\"\n roles \"admin\"\n key \"{}\"\n}}\nrevoke {{ roles \"admin\"; }}\n",
        people.line("eve")
    );
    people.git().write(FILE, &people.policy(2, Some(&before), &eve));
    people.sign("eve", "trust: me");
    let reason = pki::trust::statement::RevokeReason::Compromised;
    for who in ["ada", "bob"] {
        let key = pki::trust::key::TrustKey::from_ssh(&people.line(who)).expect("a key").name();
        people.say("eve", Body::Revoke { key, reason, last_good: id(&good), trust_epoch: 1 });
    }
    people.stays(SourceState::UnverifiedCommit, &good).await;
    let db = people.world.db.db();
    assert!(store::trust::statements_of(db, &["revoke/v1"], None).await.expect("reads").is_empty());
    assert!(store::trust::revocations(db).await.expect("reads").is_empty());
}

#[tokio::test]
async fn a_revocation_stands_behind_the_policy_under_which_it_was_heard() {
    let rule = "revoke { roles \"admin\"; }\n";
    let Some(people) = People::pinned(rule).await else { return };
    let (before, db) = (people.in_tree(), people.world.db.db());
    // Said and pushed together with the policy under which it is said.
    let more = format!("{rule}change {{ roles \"admin\"; threshold 1; }}\n");
    people.git().write(FILE, &people.policy(2, Some(&before), &more));
    people.sign("ada", "trust: who vouches");
    let next = people.in_tree().digest();
    people.say("ada", Body::Trust(pki::trust::statement::Step { prev: before.digest(), next, epoch: 2 }));
    let key = pki::trust::key::TrustKey::from_ssh(&people.line("bob")).expect("a key").name();
    let reason = pki::trust::statement::RevokeReason::Compromised;
    people.say("ada", Body::Revoke { key, reason, last_good: id(&people.head()), trust_epoch: 2 });
    people.goes().await;
    people.goes().await;
    let told: Vec<u64> = store::trust::revocations(db).await.expect("reads").iter().map(|one| one.epoch).collect();
    assert_eq!(told, [2], "not before the policy that it names");
    let (policies, denied) = in_force(db, &people.custody.pinned()).await.expect("reads").expect("a pin");
    assert_eq!((policies.len(), denied.len()), (2, 1));
}

#[tokio::test]
async fn keys_from_before_the_pin_follow_nothing() {
    let Some(mut people) = People::new("").await else { return };
    let before = SourceCustody::new(&people.keys.source(), "fleet_test");
    let anchor = people.head();
    people.pin(&anchor);
    people.goes().await;
    people.git().commit("nobody signed this");
    let mut pass = people.world.pass().with_custody(Some(before));
    let passed = pass.run(&people.world.lease, true).await.expect("a pass");
    assert!(matches!(&passed, Passed::Held(trouble) if trouble.state == SourceState::OtherHistory), "{passed:?}");
    assert_eq!(people.applied().await, Some(anchor));
}

#[tokio::test]
async fn what_is_missing_in_our_copy_of_a_remote_repository_is_fetched_anew() {
    let Some(people) = People::pinned("").await else { return };
    let server = people.server("");
    let data = server.data.path().join("source");
    let pass = || {
        let pass = people.world.pass_reaching(server.config.clone(), server.access.clone(), data.clone());
        pass.with_custody(Some(Arc::clone(&people.custody)))
    };
    let lease = &people.world.lease;
    assert!(matches!(pass().run(lease, true).await.expect("a pass"), Passed::InForce { .. }));
    let folders = std::fs::read_dir(&data).expect("a folder").flatten().map(|entry| entry.path());
    let own = folders.into_iter().find(|path| path.join("HEAD").is_file()).expect("our copy");
    let unpack = "mv objects/pack/*.pack one && rm -f objects/pack/* && git unpack-objects -q < one";
    let mut shell = std::process::Command::new("sh");
    assert!(shell.current_dir(&own).env("GIT_DIR", ".").args(["-c", unpack]).status().expect("a shell").success());
    let blob = people.git().blob("sites/fra1.kdl");
    std::fs::remove_file(own.join("objects").join(&blob[..2]).join(&blob[2..])).expect("it was there");

    let mut later = pass();
    match later.run(lease, true).await.expect("a pass") {
        Passed::Held(trouble) => {
            assert_eq!(trouble.state, SourceState::ObjectBroken, "{trouble}");
            assert!(trouble.reason.contains(&blob), "{trouble}");
        }
        other => panic!("{other:?}"),
    }
    let passed = later.run(lease, true).await.expect("a pass");
    assert!(matches!(passed, Passed::InForce { .. }), "{passed:?}");
}
