//! Leases and membership.

use std::time::Duration;

use schema::{generation::Epoch, id::WorkerId};
use store::{
    Db, Role,
    leases::{self, FenceError, Lease},
    testing::TestDb,
    workers,
};

const TTL: Duration = Duration::from_secs(30);

/// What a member still holds when it says that it lives.
async fn renew(db: &Db, worker: WorkerId, ttl: Duration) -> Vec<Lease> {
    workers::join(db, worker, Role::Controllers, "here", 1, TTL).await.expect("join");
    workers::beat(db, worker, Role::Controllers, ttl).await.expect("beat").expect("a member").leases
}

#[tokio::test]
async fn a_lease_has_one_holder_and_the_epoch_rises_when_it_changes() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names = vec![leases::shard(Role::Controllers, 1), leases::singleton("source")];
    assert_eq!(names, ["shard:1", "singleton:source"]);

    let held = leases::acquire(test.db(), a, &names, TTL).await.expect("acquire");
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|lease| lease.epoch == Epoch(1)));
    assert!(leases::acquire(test.db(), b, &names, TTL).await.expect("acquire").is_empty());

    test.advance(Duration::from_secs(31)).await;
    assert!(leases::held(test.db(), a).await.expect("held").is_empty());
    let taken = leases::acquire(test.db(), b, &names, TTL).await.expect("acquire");
    assert!(taken.iter().all(|lease| lease.epoch == Epoch(2)));
    assert!(renew(test.db(), a, TTL).await.is_empty());
    assert_eq!(leases::held(test.db(), b).await.expect("held"), taken);
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_keep_what_the_dead_held() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names = vec!["shard:1".to_owned()];
    // Seen from the clock as it is now, `a` took it tomorrow.
    leases::acquire(test.db(), a, &names, Duration::from_secs(86_400)).await.expect("acquire");
    assert_eq!(leases::acquire(test.db(), b, &names, TTL).await.expect("acquire")[0].epoch, Epoch(2));
    assert!(leases::acquire(test.db(), a, &names, TTL).await.expect("acquire").is_empty());
}

#[tokio::test]
async fn renewing_or_taking_again_keeps_the_epoch() {
    let test = TestDb::create().await;
    let a = WorkerId::generate();
    let names = vec!["shard:1".to_owned()];
    leases::acquire(test.db(), a, &names, TTL).await.expect("acquire");
    assert_eq!(renew(test.db(), a, TTL).await, vec![Lease { name: names[0].clone(), epoch: Epoch(1) }]);
    assert_eq!(leases::acquire(test.db(), a, &names, TTL).await.expect("acquire")[0].epoch, Epoch(1));
}

#[tokio::test]
async fn a_released_lease_goes_to_the_next_under_a_new_epoch() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names = vec!["shard:1".to_owned()];
    leases::acquire(test.db(), a, &names, TTL).await.expect("acquire");
    leases::release(test.db(), b, &names).await.expect("release");
    assert!(leases::acquire(test.db(), b, &names, TTL).await.expect("acquire").is_empty(), "only the holder releases");
    leases::release(test.db(), a, &names).await.expect("release");
    assert_eq!(leases::acquire(test.db(), b, &names, TTL).await.expect("acquire")[0].epoch, Epoch(2));
}

#[tokio::test]
async fn a_stale_fence_lets_nothing_through() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names = vec!["singleton:source".to_owned()];
    let lease = leases::acquire(test.db(), a, &names, TTL).await.expect("acquire").remove(0);
    let mut txn = test.db().begin().await.expect("begin");
    leases::fence(&mut txn, a, &lease).await.expect("the holder passes");
    drop(txn);
    test.advance(Duration::from_secs(31)).await;
    leases::acquire(test.db(), b, &names, TTL).await.expect("acquire");
    let mut txn = test.db().begin().await.expect("begin");
    assert!(matches!(leases::fence(&mut txn, a, &lease).await, Err(FenceError::Stale(_))));
}

#[tokio::test]
async fn a_fenced_transaction_holds_off_a_takeover_and_not_a_renewal() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names = vec!["singleton:source".to_owned()];
    let lease = leases::acquire(test.db(), a, &names, Duration::ZERO).await.expect("acquire").remove(0);
    let mut txn = test.db().begin().await.expect("begin");
    leases::fence(&mut txn, a, &lease).await.expect("nobody took it yet");

    assert_eq!(renew(test.db(), a, Duration::ZERO).await.len(), 1, "a renewal does not wait");
    assert!(
        leases::acquire(test.db(), b, &names, TTL).await.expect("acquire").is_empty(),
        "a takeover comes back later"
    );
    txn.commit().await.expect("commit");
    assert_eq!(leases::acquire(test.db(), b, &names, TTL).await.expect("acquire")[0].epoch, Epoch(2));
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_minutes_whatever_a_row_says() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    workers::join(test.db(), a, Role::Controllers, "one", 10, TTL).await.expect("join");
    let years = Duration::from_secs(10 * 365 * 86_400);
    assert!(
        workers::join(test.db(), b, Role::Controllers, "two", 11, years).await.is_err(),
        "the table takes no such end"
    );
    for change in [
        "ALTER TABLE workers DROP CONSTRAINT workers_end_check",
        "INSERT INTO workers (id, role, host, pid, expires_at)
         VALUES (gen_random_uuid(), 'controllers', 'nowhere', 1, compute_now() + interval '10 years')",
    ] {
        store::testing::steal(test.db(), change).await.expect("whoever has the database may do all of it");
    }
    let live = workers::live(test.db(), Some(Role::Controllers)).await.expect("live").items;
    assert_eq!(live.into_iter().map(|worker| worker.id).collect::<Vec<_>>(), [a]);
    let said = workers::beat(test.db(), a, Role::Controllers, TTL).await.expect("beat").expect("a member");
    assert_eq!((said.live, said.dead), (vec![a], true));
    assert_eq!(workers::prune(test.db()).await.expect("prune"), 1);
}

#[tokio::test]
async fn members_live_while_they_say_so() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    workers::join(test.db(), a, Role::Controllers, "one", 10, TTL).await.expect("join");
    workers::join(test.db(), b, Role::Gateway, "two", 11, TTL).await.expect("join");
    let ids = |workers: Vec<workers::Worker>| workers.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
    assert_eq!(ids(workers::live(test.db(), Some(Role::Controllers)).await.expect("live").items), [a]);
    assert_eq!(workers::live(test.db(), None).await.expect("live").items.len(), 2);

    test.advance(Duration::from_secs(20)).await;
    let said = workers::beat(test.db(), a, Role::Controllers, TTL).await.expect("beat").expect("a member");
    assert_eq!((said.live, said.dead), (vec![a], false));
    test.advance(Duration::from_secs(20)).await;
    assert_eq!(ids(workers::live(test.db(), None).await.expect("live").items), [a]);
    let said = workers::beat(test.db(), a, Role::Controllers, TTL).await.expect("beat").expect("a member");
    assert_eq!((said.live, said.dead), (vec![a], true));
    assert_eq!(workers::prune(test.db()).await.expect("prune"), 1);
    assert_eq!(workers::beat(test.db(), b, Role::Gateway, TTL).await.expect("beat"), None);
    workers::leave(test.db(), a).await.expect("leave");
    assert!(workers::live(test.db(), None).await.expect("live").items.is_empty());
}
