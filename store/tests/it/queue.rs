//! The work queue: coalescing, exclusion, fencing, and no wake-up lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use schema::id::WorkerId;
use store::{
    Db, Role, leases, outcomes,
    queue::{self, Claim, Kind, Settlement, Verdict},
    testing::TestDb,
    workers,
};

use crate::commit;

const KIND: Kind = Kind::singleton("job");
const TTL: Duration = Duration::from_secs(30);

async fn wake(db: &Db, keys: &[&str]) {
    commit!(db, |txn| queue::enqueue(&mut txn, &KIND, keys).await.expect("enqueue"));
}

async fn hold(db: &Db) -> WorkerId {
    let worker = WorkerId::generate();
    assert_eq!(leases::acquire(db, worker, &[leases::singleton("job")], TTL).await.expect("acquire").len(), 1);
    worker
}

async fn claim(db: &Db, worker: WorkerId) -> Vec<Claim> {
    queue::claim(db, worker, &["job"], 10).await.expect("claim")
}

async fn end(db: &Db, claim: &Claim, verdict: Verdict) -> usize {
    commit!(db, |txn| queue::settle(&mut txn, &[Settlement { claim, verdict, place: "here:1".to_owned() }])
        .await
        .expect("settle"))
}

fn again(seconds: u64) -> Verdict {
    Verdict::Again { after: Duration::from_secs(seconds), reason: "more-to-do".to_owned() }
}

fn failed() -> Verdict {
    Verdict::Failed { reason: "broken".to_owned(), message: "it broke".to_owned() }
}

async fn depth(db: &Db) -> u64 {
    queue::depth(db).await.expect("depth").into_iter().map(|(_, count)| count).sum()
}

#[tokio::test]
async fn keys_coalesce_and_a_done_key_is_gone() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    wake(test.db(), &["a", "b", "a"]).await;
    wake(test.db(), &["a"]).await;
    let claims = claim(test.db(), worker).await;
    assert_eq!(claims.iter().map(|claim| claim.key.as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b"]));
    assert!(claim(test.db(), worker).await.is_empty(), "a claimed key is not claimed again");
    for one in &claims {
        assert_eq!(end(test.db(), one, Verdict::Done).await, 1);
    }
    assert_eq!(depth(test.db()).await, 0);
}

#[tokio::test]
async fn a_key_dirtied_during_its_run_is_run_again_whatever_the_verdict() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    for verdict in [Verdict::Done, again(600), failed()] {
        wake(test.db(), &["a"]).await;
        let first = claim(test.db(), worker).await.remove(0);
        wake(test.db(), &["a"]).await;
        end(test.db(), &first, verdict).await;
        let second = claim(test.db(), worker).await.remove(0);
        assert!(second.generation > first.generation);
        end(test.db(), &second, Verdict::Done).await;
    }
    assert_eq!(depth(test.db()).await, 0);
}

#[tokio::test]
async fn again_and_wait_come_back_after_their_time() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    wake(test.db(), &["a", "b", "c"]).await;
    let wait =
        |again| Verdict::Wait { reason: "approval".to_owned(), message: "waits for two people".to_owned(), again };
    for one in claim(test.db(), worker).await {
        let verdict = match one.key.as_str() {
            "a" => again(10),
            "b" => wait(Some(Duration::from_secs(20))),
            _ => wait(None),
        };
        end(test.db(), &one, verdict).await;
    }
    assert_eq!(depth(test.db()).await, 2, "a wait without an end trusts the wake-up");
    assert!(claim(test.db(), worker).await.is_empty());
    let due = queue::next_due(test.db(), worker, &["job"]).await.expect("next due").expect("something waits");
    assert!(due > test.db().now().await.expect("now"));
    test.advance(Duration::from_secs(11)).await;
    assert_eq!(claim(test.db(), worker).await.remove(0).key, "a");
    test.advance(Duration::from_secs(11)).await;
    assert_eq!(claim(test.db(), worker).await.remove(0).key, "b");
}

#[tokio::test]
async fn failures_back_off_and_a_success_forgets_them() {
    assert_eq!([0, 1, 2, 8, 9, 40].map(queue::backoff).map(|rest| rest.as_secs()), [1, 2, 4, 256, 300, 300]);
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    wake(test.db(), &["a"]).await;
    for attempt in 0..3 {
        let one = claim(test.db(), worker).await.remove(0);
        assert_eq!(one.attempts, attempt);
        end(test.db(), &one, failed()).await;
        assert!(claim(test.db(), worker).await.is_empty(), "it rests");
        test.advance(queue::backoff(attempt)).await;
        workers::join(test.db(), worker, Role::Controllers, "here", 1, TTL).await.expect("join");
        workers::beat(test.db(), worker, Role::Controllers, TTL).await.expect("beat");
    }
    let one = claim(test.db(), worker).await.remove(0);
    end(test.db(), &one, again(0)).await;
    assert_eq!(claim(test.db(), worker).await.remove(0).attempts, 0);
}

#[tokio::test]
async fn only_the_holder_of_the_lease_claims() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    wake(test.db(), &["a"]).await;
    assert!(claim(test.db(), WorkerId::generate()).await.is_empty());
    assert!(queue::claim(test.db(), worker, &["other"], 10).await.expect("claim").is_empty());
    test.advance(TTL).await;
    assert!(claim(test.db(), worker).await.is_empty(), "an expired lease claims nothing");
}

#[tokio::test]
async fn a_lost_workers_keys_go_to_the_next_holder_and_its_late_end_changes_nothing() {
    let test = TestDb::create().await;
    let lost = hold(test.db()).await;
    wake(test.db(), &["a"]).await;
    let stale = claim(test.db(), lost).await.remove(0);
    test.advance(TTL).await;
    let next = hold(test.db()).await;
    let fresh = claim(test.db(), next).await.remove(0);
    assert!(fresh.lease.epoch > stale.lease.epoch);

    assert_eq!(end(test.db(), &stale, failed()).await, 0);
    assert_eq!(outcomes::find(test.db(), "job", "a").await.expect("find"), None, "a stale end stores no outcome");
    assert_eq!(end(test.db(), &fresh, Verdict::Done).await, 1);
    assert_eq!(depth(test.db()).await, 0);
}

#[tokio::test]
async fn what_is_given_back_is_due_at_once() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    wake(test.db(), &["a", "b"]).await;
    let claims = claim(test.db(), worker).await;
    assert_eq!(queue::give_back(test.db(), worker, &claims[..1]).await.expect("give back"), 1);
    assert_eq!(claim(test.db(), worker).await.remove(0).key, claims[1].key);
}

#[tokio::test]
async fn outcomes_are_written_when_they_change() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    let run = async |verdict: Verdict| {
        wake(test.db(), &["a"]).await;
        let one = claim(test.db(), worker).await.remove(0);
        end(test.db(), &one, verdict).await;
        outcomes::find(test.db(), "job", "a").await.expect("find").expect("an outcome")
    };
    let first = run(Verdict::Done).await;
    assert_eq!((first.state.as_str(), first.place.as_str()), ("done", "here:1"));
    test.advance(Duration::from_secs(5)).await;
    assert_eq!(run(Verdict::Done).await, first, "the same outcome keeps its time");
    let waits = run(Verdict::Wait { reason: "lost".to_owned(), message: "one".to_owned(), again: None }).await;
    assert!(waits.since > first.since);
    test.advance(Duration::from_secs(5)).await;
    let other = run(Verdict::Wait { reason: "lost".to_owned(), message: "two".to_owned(), again: None }).await;
    assert_eq!((other.since, other.message.as_str()), (waits.since, "two"), "the reason holds since the same time");
    assert_eq!(outcomes::list_open(test.db(), 10).await.expect("list").items, vec![other.clone()]);
    assert_eq!(outcomes::of_key(test.db(), "a").await.expect("of key").items, vec![other]);
}

#[tokio::test]
async fn errors_stand_before_waits_however_many_there_are() {
    let test = TestDb::create().await;
    let wait = Verdict::Wait { reason: "lost".to_owned(), message: String::new(), again: None };
    let failed = Verdict::Failed { reason: "broken".to_owned(), message: String::new() };
    let record = |key, verdict| outcomes::Record { kind: "job", key, verdict, place: "here:1" };
    commit!(test.db(), |txn| {
        let all = [record("a", &wait), record("b", &wait), record("y", &failed)];
        outcomes::record(&mut txn, &all).await.expect("recorded");
    });
    test.advance(Duration::from_secs(5)).await;
    commit!(test.db(), |txn| outcomes::record(&mut txn, &[record("x", &failed)]).await.expect("recorded"));
    let worst = outcomes::list_open(test.db(), 3).await.expect("list").items;
    assert_eq!(worst.iter().map(|outcome| outcome.key.as_str()).collect::<Vec<_>>(), ["y", "x", "a"]);
}

#[tokio::test]
async fn an_outcome_says_no_more_than_a_page_whoever_writes_it() {
    let test = TestDb::create().await;
    let failed = Verdict::Failed { reason: "r".repeat(300), message: "ü".repeat(9_000) };
    let record = outcomes::Record { kind: "job", key: "a", verdict: &failed, place: &"p".repeat(500) };
    commit!(test.db(), |txn| outcomes::record(&mut txn, &[record]).await.expect("recorded"));
    let stored = outcomes::find(test.db(), "job", "a").await.expect("find").expect("an outcome");
    let lengths = [stored.reason, stored.message.clone(), stored.place].map(|text| text.chars().count());
    assert_eq!((lengths, stored.message.ends_with("ü…")), ([200, 4_000, 400], true));
    for column in ["reason", "message", "place"] {
        let long = format!("UPDATE outcomes SET {column} = repeat('x', 4001)");
        assert!(store::testing::steal(test.db(), &long).await.is_err(), "{column}");
    }
}

#[tokio::test]
async fn sharded_keys_go_to_the_holder_of_their_shard() {
    let test = TestDb::create().await;
    let (a, b) = (WorkerId::generate(), WorkerId::generate());
    let names: Vec<String> = (0..schema::shard::COUNT).map(|shard| leases::shard(Role::Controllers, shard)).collect();
    leases::acquire(test.db(), a, &names[..128], TTL).await.expect("acquire");
    leases::acquire(test.db(), b, &names[128..], TTL).await.expect("acquire");
    let keys: Vec<String> = (0..100).map(|n| format!("node-{n}")).collect();
    commit!(test.db(), |txn| queue::enqueue(&mut txn, &queue::NODE, &keys).await.expect("enqueue"));
    let of_a = queue::claim(test.db(), a, &["node"], 1_000).await.expect("claim");
    let of_b = queue::claim(test.db(), b, &["node"], 1_000).await.expect("claim");
    assert_eq!(of_a.len() + of_b.len(), 100);
    assert!(of_a.iter().all(|claim| schema::shard::of(&claim.key) < 128));
    assert!(of_b.iter().all(|claim| schema::shard::of(&claim.key) >= 128));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_claims_never_share_a_key() {
    let test = TestDb::create().await;
    let worker = hold(test.db()).await;
    let keys: Vec<String> = (0..500).map(|n| format!("k{n}")).collect();
    commit!(test.db(), |txn| queue::enqueue(&mut txn, &KIND, &keys).await.expect("enqueue"));
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let db = test.db().clone();
        racers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let some = queue::claim(&db, worker, &["job"], 7).await.expect("claim");
                if some.is_empty() {
                    return mine;
                }
                mine.extend(some.into_iter().map(|claim| claim.key));
            }
        });
    }
    let all: Vec<String> = racers.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), 500);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 500);
}

/// A key's state as the seeds describe it, kept beside the real queue.
#[derive(Debug, Clone, Default)]
struct Model {
    /// There is work that no run has begun since.
    dirty: bool,
    /// Runs in progress under a claim that is still good.
    running: Option<u64>,
}

/// A small generator, so that a failing seed reproduces.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test]
async fn whatever_happens_no_wake_up_is_lost_and_no_key_runs_twice() {
    for seed in 1..=12_u64 {
        let test = TestDb::create().await;
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut worker = hold(test.db()).await;
        let mut model: BTreeMap<String, Model> = BTreeMap::new();
        let mut open: Vec<Claim> = Vec::new();
        for step in 0..60 {
            let context = format!("seed {seed} step {step}");
            match dice.roll(10) {
                0..=3 => {
                    let key = format!("k{}", dice.roll(4));
                    wake(test.db(), &[key.as_str()]).await;
                    model.entry(key).or_default().dirty = true;
                }
                4..=5 => {
                    for one in queue::claim(test.db(), worker, &["job"], 2).await.expect("claim") {
                        let state = model.get_mut(&one.key).expect("a claimed key was woken");
                        assert!(state.running.is_none(), "{context}: {} runs already", one.key);
                        assert!(state.dirty, "{context}: {} had nothing to do", one.key);
                        *state = Model { dirty: false, running: Some(one.lease.epoch.0) };
                        open.push(one);
                    }
                }
                6..=8 if !open.is_empty() => {
                    let index = usize::try_from(dice.roll(open.len() as u64)).expect("an index");
                    let one = open.swap_remove(index);
                    let verdict = match dice.roll(3) {
                        0 => again(0),
                        1 => Verdict::Wait { reason: "x".to_owned(), message: String::new(), again: None },
                        _ => Verdict::Done,
                    };
                    let comes_back = matches!(verdict, Verdict::Again { .. });
                    let good = end(test.db(), &one, verdict).await;
                    let state = model.get_mut(&one.key).expect("a key");
                    let current = state.running == Some(one.lease.epoch.0);
                    assert_eq!(good, usize::from(current), "{context}: only a good claim settles");
                    if current {
                        *state = Model { dirty: state.dirty || comes_back, running: None };
                    }
                }
                9 => {
                    // The worker is lost; the next one takes the lease at a higher epoch, and open runs are void.
                    leases::release(test.db(), worker, &[leases::singleton("job")]).await.expect("release");
                    worker = hold(test.db()).await;
                    for state in model.values_mut().filter(|state| state.running.is_some()) {
                        *state = Model { dirty: true, running: None };
                    }
                }
                _ => {}
            }
        }
        // Drain: exactly the keys that the model says have work come out.
        for one in std::mem::take(&mut open) {
            let state = model.get_mut(&one.key).expect("a key");
            if end(test.db(), &one, Verdict::Done).await == 1 {
                state.running = None;
            }
        }
        let expected: BTreeSet<String> =
            model.iter().filter(|(_, state)| state.dirty).map(|(key, _)| key.clone()).collect();
        let left: BTreeSet<String> = claim(test.db(), worker).await.into_iter().map(|claim| claim.key).collect();
        assert_eq!(left, expected, "seed {seed}");
    }
}
