//! What people stop by hand: quarantined commits, rollbacks, suspensions.

use std::time::Duration;

use schema::id::{RevisionId, RollbackId};
use store::{
    Db, quarantine,
    rollbacks::{self, NewRollback, RollbackState},
    suspensions,
    testing::TestDb,
};

use crate::{apply::revision, commit};

fn rollback(revision: RevisionId, reason: &str) -> NewRollback {
    NewRollback {
        id: RollbackId::generate(),
        source: "fleet".to_owned(),
        revision,
        from_commit: "c2".to_owned(),
        plan: None,
        owner: "ada".to_owned(),
        reason: reason.to_owned(),
        requested_by: "token/x".to_owned(),
        quarantined: Vec::new(),
    }
}

async fn waiting(db: &Db) -> Option<String> {
    rollbacks::waiting(db, "fleet").await.expect("reads").map(|waiting| waiting.new.reason)
}

#[tokio::test]
async fn one_rollback_waits_and_a_newer_one_takes_its_place() {
    let test = TestDb::create().await;
    let revision = revision(test.db(), "c1", &[]).await;
    let (one, two) = (rollback(revision, "one"), rollback(revision, "two"));
    commit!(test.db(), |txn| rollbacks::request(&mut txn, &one).await.expect("asked"));
    commit!(test.db(), |txn| rollbacks::request(&mut txn, &two).await.expect("asked"));
    assert_eq!(waiting(test.db()).await.as_deref(), Some("two"));
    let ended =
        commit!(test.db(), |txn| rollbacks::end(&mut txn, one.id, RollbackState::Done, "").await.expect("ends"));
    assert!(!ended, "one that was withdrawn is not carried out");
    let ended =
        commit!(test.db(), |txn| rollbacks::end(&mut txn, two.id, RollbackState::Done, "").await.expect("ends"));
    assert!(ended);
    assert_eq!(waiting(test.db()).await, None);
    let latest = rollbacks::latest(test.db(), "fleet").await.expect("reads").expect("one");
    assert_eq!((latest.new, latest.state), (two.clone(), RollbackState::Done));
    assert!(latest.ended_at.is_some());
    let three = rollback(revision, "three");
    commit!(test.db(), |txn| {
        rollbacks::request(&mut txn, &three).await.expect("asked");
        rollbacks::end(&mut txn, three.id, RollbackState::Refused, "no files").await.expect("ends")
    });
    let done = rollbacks::latest_done(test.db(), "fleet").await.expect("reads").expect("one");
    assert_eq!(done.new.id, two.id);
}

#[tokio::test]
async fn a_quarantined_commit_is_held_until_it_is_let_go() {
    let test = TestDb::create().await;
    revision(test.db(), "c1", &[]).await;
    let place = async |reason: &str| {
        commit!(test.db(), |txn| quarantine::place(&mut txn, "fleet", "c2", "ada", reason, "token/x")
            .await
            .expect("held"));
    };
    place("bad kernel").await;
    place("bad kernel, see 42").await;
    let held = quarantine::find(test.db(), "fleet", "c2").await.expect("reads").expect("held");
    assert_eq!((held.owner.as_str(), held.reason.as_str()), ("ada", "bad kernel, see 42"));
    assert_eq!(quarantine::list(test.db(), "fleet", 10).await.expect("reads").items, [held]);
    assert_eq!(quarantine::find(test.db(), "fleet", "c3").await.expect("reads"), None);
    for lifted in [true, false] {
        let done = commit!(test.db(), |txn| quarantine::lift(&mut txn, "fleet", "c2").await.expect("lifted"));
        assert_eq!(done, lifted);
    }
}

#[tokio::test]
async fn a_suspension_stands_until_its_end_or_until_it_is_lifted() {
    let test = TestDb::create().await;
    let scopes = async || -> Vec<String> {
        suspensions::list(test.db()).await.expect("reads").items.into_iter().map(|one| one.scope).collect()
    };
    let until = schema::time::Duration::from_secs(3_600).after(test.db().now().await.expect("now"));
    commit!(test.db(), |txn| {
        suspensions::place(&mut txn, "pool/h100", "ada", "audit", Some(until), "token/x").await.expect("placed");
        suspensions::place(&mut txn, "fleet", "ada", "power", None, "token/x").await.expect("placed");
    });
    assert_eq!(scopes().await, ["fleet", "pool/h100"]);
    test.advance(Duration::from_secs(3_601)).await;
    assert_eq!(scopes().await, ["fleet"]);
    for (scope, stood) in [("pool/h100", false), ("fleet", true), ("fleet", false)] {
        let lifted = commit!(test.db(), |txn| suspensions::lift(&mut txn, scope).await.expect("lifted"));
        assert_eq!(lifted, stood, "{scope}");
    }
}
