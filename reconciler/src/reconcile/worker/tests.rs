//! Facts about the worker: a model of queue and leases under random kills, and the real loop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use schema::id::WorkerId;
use store::{
    Role, leases,
    outcomes::{self, Verdict},
    queue::{self, Claim, Kind, Settlement},
    workers,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Member, Worker, WorkerConfig, member};
use crate::reconcile::{Context, Failure, Outcome, Reconciler, Registry, ShardBy, testing::House};

const COUNT: Kind = Kind::sharded("count");
const TTL: Duration = Duration::from_secs(15);

/// Tells the test which key it ran.
struct Count {
    ran: mpsc::UnboundedSender<String>,
    at_once: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Reconciler for Count {
    fn kind(&self) -> &'static Kind {
        &COUNT
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    async fn run(&self, context: &Context, key: &str) -> Result<Outcome, Failure> {
        assert!(self.at_once.lock().expect("a lock").insert(key.to_owned()), "{key} runs twice at a time");
        let txn = context.begin().await?;
        txn.commit().await?;
        self.at_once.lock().expect("a lock").remove(key);
        if key == "panics" {
            panic!("as the test wants");
        }
        self.ran.send(key.to_owned()).expect("the test listens");
        if key == "fails" { Err(Failure::new("as-wanted", "the test wants it")) } else { Ok(Outcome::done()) }
    }
}

fn counting() -> (Registry, mpsc::UnboundedReceiver<String>) {
    let (ran, heard) = mpsc::unbounded_channel();
    let count = Count { ran, at_once: Mutex::default() };
    (Registry::default().with(count), heard)
}

async fn enqueue(house: &House, keys: &[String]) {
    let mut txn = house.db.begin().await.expect("begin");
    queue::enqueue(&mut txn, &COUNT, keys).await.expect("enqueued");
    txn.commit().await.expect("commit");
}

/// A worker of the model: what it claimed and, for each, the version of the key that it read when it began.
struct Model {
    member: Member,
    runs: Vec<(Claim, u64)>,
}

impl Model {
    fn new(house: &House) -> Self {
        Self { member: Member::new(house.db.clone(), Role::Controllers, "test", TTL, &counting().0), runs: Vec::new() }
    }
}

/// Two workers, one of which may freeze or die at any step; what a frozen one does afterwards must change nothing.
async fn every_key_is_processed_and_only_by_its_owner(seed: u64) {
    let house = House::new().await;
    let mut random = StdRng::seed_from_u64(seed);
    let keys: Vec<String> = (0..12).map(|n| format!("key-{n}")).collect();
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    let mut written: BTreeMap<String, u64> = BTreeMap::new();
    let mut alive = vec![Model::new(&house), Model::new(&house)];
    let mut frozen: Vec<Model> = Vec::new();

    for _ in 0..120 {
        let at = random.random_range(0..alive.len());
        match random.random_range(0..10) {
            0..3 => {
                let key = &keys[random.random_range(0..keys.len())];
                *wanted.entry(key.clone()).or_default() += 1;
                enqueue(&house, std::slice::from_ref(key)).await;
            }
            3 => {
                alive[at].member.beat(&BTreeSet::new()).await.expect("a beat");
            }
            4..6 => claim(&house, &mut alive, at, &wanted).await,
            6..9 => finish(&house, &mut alive[at], &mut written, &mut random).await,
            _ => {
                frozen.push(std::mem::replace(&mut alive[at], Model::new(&house)));
                house.test.advance(TTL + Duration::from_secs(1)).await;
                for worker in &mut alive {
                    worker.member.beat(&BTreeSet::new()).await.expect("a beat");
                }
            }
        }
        // A frozen worker wakes and goes on where it was: fenced, unless nobody took its lease.
        if let Some(worker) = frozen.last_mut() {
            finish(&house, worker, &mut written, &mut random).await;
        }
    }

    for _ in 0..3 {
        for at in 0..alive.len() {
            alive[at].member.beat(&BTreeSet::new()).await.expect("a beat");
            claim(&house, &mut alive, at, &wanted).await;
            while !alive[at].runs.is_empty() {
                finish(&house, &mut alive[at], &mut written, &mut random).await;
            }
        }
    }
    assert_eq!(queue::depth(&house.db).await.expect("read"), [], "seed {seed}");
    assert_eq!(written, wanted, "seed {seed}");
}

async fn claim(house: &House, alive: &mut [Model], at: usize, wanted: &BTreeMap<String, u64>) {
    let claims = queue::claim(&house.db, alive[at].member.id(), &[COUNT.name], 4).await.expect("claimed");
    for claim in claims {
        for worker in alive.iter() {
            let twice = worker.runs.iter().any(|(run, _)| run.key == claim.key && run.lease.epoch >= claim.lease.epoch);
            assert!(!twice, "{} runs twice at a time", claim.key);
        }
        let version = wanted[&claim.key];
        alive[at].runs.push((claim, version));
    }
}

async fn finish(house: &House, worker: &mut Model, written: &mut BTreeMap<String, u64>, random: &mut StdRng) {
    if worker.runs.is_empty() {
        return;
    }
    let (claim, version) = worker.runs.swap_remove(random.random_range(0..worker.runs.len()));
    let mut txn = house.db.begin().await.expect("begin");
    let fenced = leases::fence(&mut txn, claim.worker, &claim.lease).await;
    if fenced.is_ok() {
        txn.commit().await.expect("commit");
        let before = written.insert(claim.key.clone(), version).unwrap_or(0);
        assert!(before <= version, "{} went back", claim.key);
    }
    let mut txn = house.db.begin().await.expect("begin");
    let settlement = Settlement { claim: &claim, verdict: Verdict::Done, place: "test:1".to_owned() };
    queue::settle(&mut txn, &[settlement]).await.expect("settled");
    txn.commit().await.expect("commit");
}

#[tokio::test]
async fn the_model_holds_under_random_kills() {
    for seed in [1, 7, 42] {
        every_key_is_processed_and_only_by_its_owner(seed).await;
    }
}

#[tokio::test]
async fn two_workers_divide_the_shards_and_the_survivor_takes_over() {
    let house = House::new().await;
    let mut one = Model::new(&house).member;
    let mut two = Model::new(&house).member;
    one.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!(one.shards().len(), 256);
    two.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!(two.shards().len(), 0, "what another one holds is not taken");
    one.beat(&BTreeSet::new()).await.expect("a beat");
    two.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!(one.shards().len() + two.shards().len(), 256);
    assert!(one.shards().len() > 60 && two.shards().len() > 60);
    assert!(one.shards().iter().all(|shard| !two.shards().contains(shard)));

    house.test.advance(TTL + Duration::from_secs(1)).await;
    two.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!(two.shards().len(), 256);
    assert_eq!(workers::live(&house.db, Some(Role::Controllers)).await.expect("read").items.len(), 1);
}

#[tokio::test]
async fn a_process_of_this_machine_that_is_gone_is_not_waited_for() {
    let house = House::new().await;
    let dead = WorkerId::generate();
    // Above the highest process id that the kernel gives out.
    workers::join(&house.db, dead, Role::Controllers, "test", 4_194_305, TTL).await.expect("joined");
    let shards: Vec<String> = (0..256).map(|shard| leases::shard(Role::Controllers, shard)).collect();
    let held = leases::acquire(&house.db, dead, &shards, TTL).await.expect("leases");
    let mut member = Model::new(&house).member;
    member.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!(member.shards().len(), 256);
    let mut txn = house.db.begin().await.expect("begin");
    assert!(leases::fence(&mut txn, dead, &held[0]).await.is_err());
}

#[tokio::test]
async fn a_busy_lease_is_not_given_back() {
    let house = House::new().await;
    let mut one = Model::new(&house).member;
    let mut two = Model::new(&house).member;
    one.beat(&BTreeSet::new()).await.expect("a beat");
    two.beat(&BTreeSet::new()).await.expect("a beat");
    let all: BTreeSet<String> = (0..256).map(|shard| leases::shard(Role::Controllers, shard)).collect();
    one.beat(&all).await.expect("a beat");
    two.beat(&BTreeSet::new()).await.expect("a beat");
    assert_eq!((one.shards().len(), two.shards().len()), (256, 0));
}

#[tokio::test]
async fn a_role_without_reconcilers_sleeps_until_its_next_beat() {
    let house = House::new().await;
    let mut worker = Worker::new(house.shared.clone(), Registry::default(), WorkerConfig::new(Role::Scheduler, "test"));
    worker.step().await.expect("a step");
    assert_eq!(worker.next_wake(), worker.next_beat);
}

#[tokio::test]
async fn the_loop_runs_what_it_is_woken_for_and_stops_clean() {
    let house = House::new().await;
    let (registry, mut heard) = counting();
    let cancel = CancellationToken::new();
    let config = WorkerConfig::new(Role::Controllers, "test");
    let worker = {
        let (shared, cancel) = (house.shared.clone(), cancel.clone());
        tokio::spawn(async move { super::run(shared, &registry, config, cancel).await })
    };
    let keys: Vec<String> =
        (0..200).map(|n| format!("key-{n:03}")).chain(["fails".to_owned(), "panics".to_owned()]).collect();
    enqueue(&house, &keys).await;
    let mut ran = BTreeSet::new();
    while ran.len() < 201 {
        ran.insert(heard.recv().await.expect("the worker runs"));
    }
    enqueue(&house, &["key-000".to_owned()]).await;
    while heard.recv().await.expect("the worker runs") != "key-000" {}

    cancel.cancel();
    worker.await.expect("no panic");
    let failed = outcomes::find(&house.db, "count", "fails").await.expect("read").expect("an outcome");
    assert_eq!((failed.state.as_str(), failed.reason.as_str()), ("error", "as-wanted"));
    assert!(failed.place.contains("worker/tests.rs:"), "{}", failed.place);
    let panicked = outcomes::find(&house.db, "count", "panics").await.expect("read").expect("an outcome");
    assert_eq!(panicked.reason, "panicked");
    assert_eq!(queue::depth(&house.db).await.expect("read"), [("count".to_owned(), 2)]);
    assert_eq!(workers::live(&house.db, None).await.expect("read").items, []);
    let next = WorkerId::generate();
    let shards: Vec<String> = (0..256).map(|shard| leases::shard(Role::Controllers, shard)).collect();
    assert_eq!(leases::acquire(&house.db, next, &shards, TTL).await.expect("leases").len(), 256);
}

#[tokio::test]
async fn a_role_without_reconcilers_is_only_a_member() {
    let house = House::new().await;
    let mut member =
        Member::new(house.db.clone(), Role::Sinks, "test", TTL, &Registry::standard().of_role(Role::Sinks));
    assert!(!member.beat(&BTreeSet::new()).await.expect("a beat"));
    assert_eq!(workers::live(&house.db, Some(Role::Sinks)).await.expect("read").items.len(), 1);
    assert_eq!(member.shards(), [] as [u16; 0]);
    member.leave().await.expect("left");
    assert_eq!(workers::live(&house.db, Some(Role::Sinks)).await.expect("read").items, []);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_run_after_all() {
    let house = House::new().await;
    let (registry, mut heard) = counting();
    let mut worker = Worker::new(house.shared.clone(), registry, WorkerConfig::new(Role::Controllers, "test"));
    worker.step().await.expect("a step");
    enqueue(&house, &["a".to_owned(), "b".to_owned()]).await;
    let lost = queue::claim(&house.db, worker.member.id(), &[COUNT.name], 1).await.expect("claimed");
    assert_eq!(lost.len(), 1);
    worker.next_look = tokio::time::Instant::now();
    worker.step().await.expect("a step");
    let known = heard.recv().await.expect("the other key runs");
    assert_ne!(known, lost[0].key);

    worker.database_failed(&std::fmt::Error);
    worker.step().await.expect("a step");
    assert_eq!(heard.recv().await.expect("the lost key runs"), lost[0].key);
}

#[tokio::test]
async fn what_judges_silence_lets_others_speak_first_after_the_database_was_away() {
    let house = House::new().await;
    let mut worker =
        Worker::new(house.shared.clone(), Registry::standard(), WorkerConfig::new(Role::Controllers, "test"));
    let settling = |worker: &Worker| {
        let judged = worker.periodic.iter().find(|(name, ..)| *name == queue::LIVENESS.name).expect("it is periodic");
        judged.2 > tokio::time::Instant::now() + Duration::from_secs(5)
    };
    worker.step().await.expect("a step");
    assert!(settling(&worker), "the lease was gained");
    worker.periodic.iter_mut().for_each(|(_, _, due)| *due = tokio::time::Instant::now());
    worker.step().await.expect("a step");
    worker.database_failed(&std::fmt::Error);
    worker.next_beat = tokio::time::Instant::now();
    worker.step().await.expect("a step");
    assert!(settling(&worker), "the database is back");
}

#[tokio::test]
async fn a_process_id_of_another_namespace_says_nothing() {
    let house = House::new().await;
    let elsewhere = WorkerId::generate();
    workers::join(&house.db, elsewhere, Role::Controllers, "test", 4_194_305, TTL).await.expect("joined");
    let mut row = workers::live(&house.db, Some(Role::Controllers)).await.expect("read").items.remove(0);
    assert!(member::is_gone_here(&row, "test") && !member::is_gone_here(&row, "other"));
    row.pid_namespace = Some("pid:[1]".to_owned());
    assert!(!member::is_gone_here(&row, "test"));
}
