//! The loop as a process runs it: it notices, follows, and ends when it is told to.

use std::time::Duration;

use store::{Db, control_plane, sources, testing::TestDb};
use tokio_util::sync::CancellationToken;

use super::{Git, GitAccess, config};
use crate::source::{FLEET, SourcePoke, SourceRole, Timing, run};

/// Waits for the commit in force to become `commit`; the test fails when nobody brings it there.
async fn in_force(db: &Db, commit: &str) {
    let there = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        loop {
            looks.tick().await;
            let source = sources::find(db, FLEET).await.expect("reads");
            if source.and_then(|source| source.applied).is_some_and(|at| at.commit == commit) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), there).await.expect("the commit comes into force");
}

fn role(db: &TestDb, git: &Git, timing: Timing) -> SourceRole {
    SourceRole {
        db: db.db().clone(),
        config: config(git.path()),
        access: GitAccess::default(),
        data: git.path().to_owned(),
        host: "test".to_owned(),
        timing,
        custody: crate::custody::SourceCustody::new(&keys().source(), "fleet_test"),
    }
}

fn keys() -> pki::keys::Keys {
    pki::keys::Keys::generate("bc.local", jiff::Timestamp::UNIX_EPOCH).expect("keys")
}

const fn is_send<T: Send>(_: &T) {}

/// Never by itself: only the watch or a poke wakes it.
const NEVER: Timing = Timing {
    local: Duration::from_secs(86_400),
    remote: Duration::from_secs(86_400),
    resync: Duration::from_secs(86_400),
};

async fn world() -> (TestDb, Git) {
    let db = TestDb::create().await;
    let mut txn = db.db().begin().await.expect("begins");
    control_plane::ensure(&mut txn, true, None).await.expect("a row");
    txn.commit().await.expect("commits");
    (db, Git::fleet())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_in_a_local_repository_is_noticed_by_the_watch() {
    let (db, git) = world().await;
    let cancel = CancellationToken::new();
    let running = run(role(&db, &git, NEVER), cancel.clone());
    is_send(&running);
    let running = tokio::spawn(running);
    in_force(db.db(), &git.head()).await;
    for subject in ["second", "third"] {
        let commit = git.commit(subject);
        in_force(db.db(), &commit).await;
    }
    git.git(&["pack-refs", "--all"]);
    let packed = git.commit("after packing");
    in_force(db.db(), &packed).await;
    cancel.cancel();
    running.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poke_from_anywhere_makes_it_look() {
    let (db, git) = world().await;
    let cancel = CancellationToken::new();
    // The repository is not there when the loop begins, so nothing watches it.
    let away = git.path().join("away");
    std::fs::rename(git.path().join(".git"), &away).expect("renamed");
    let running = tokio::spawn(run(role(&db, &git, NEVER), cancel.clone()));
    let unreachable = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while sources::find(db.db(), FLEET).await.expect("reads").is_none_or(|source| source.state != "unreachable") {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), unreachable).await.expect("it says so");
    std::fs::rename(&away, git.path().join(".git")).expect("renamed back");
    SourcePoke::new(db.db().clone()).poke().await;
    in_force(db.db(), &git.head()).await;
    cancel.cancel();
    running.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_takes_over_at_once_when_one_ends() {
    let (db, git) = world().await;
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let one = tokio::spawn(run(role(&db, &git, NEVER), first.clone()));
    in_force(db.db(), &git.head()).await;
    first.cancel();
    one.await.expect("it ends");
    let two = tokio::spawn(run(role(&db, &git, NEVER), second.clone()));
    let commit = git.commit("second");
    in_force(db.db(), &commit).await;
    second.cancel();
    two.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_this_machine_that_is_gone_is_not_waited_for() {
    let (db, git) = world().await;
    let (dead, ttl) = (schema::id::WorkerId::generate(), Duration::from_secs(300));
    // No process has this id: it is beyond what the kernel gives.
    store::workers::join(db.db(), dead, store::Role::Source, "test", 1 << 23, ttl).await.expect("joins");
    let lease = [store::leases::singleton("source")];
    store::leases::acquire(db.db(), dead, &lease, ttl).await.expect("asks").pop().expect("free");
    let cancel = CancellationToken::new();
    let running = tokio::spawn(run(role(&db, &git, NEVER), cancel.clone()));
    in_force(db.db(), &git.head()).await;
    cancel.cancel();
    running.await.expect("it ends");
}
