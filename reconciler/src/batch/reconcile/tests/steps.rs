//! Steps of a batch on a real database, one at a time, as the next process makes them when the one before died.

use schema::id::{CommandId, NodeId};
use serde_json::json;
use store::batches::NewLeaf;

use super::*;
use crate::{
    batch::resolve::{BOOT, hardware_key},
    reconcile::testing::{House, Machine},
};

/// A batch of some machines in a fleet that nobody pinned.
struct Bench {
    house: House,
    machines: Vec<(NodeId, Name)>,
}

impl Bench {
    async fn new(machines: usize, max_in_flight: u32) -> Self {
        let (house, mut all, mut leaves) = (House::new().await, Vec::new(), Vec::new());
        for number in 0..machines {
            let called = format!("n{number}");
            let machine = house.machine(&called).await;
            let now = house.db.now().await.expect("time");
            let mut txn = house.db.begin().await.expect("begin");
            commands::witness(&mut txn, machine.id, machine.boot, machine.journal, now).await.expect("witness");
            txn.commit().await.expect("commit");
            leaves.push(NewLeaf {
                node_id: machine.id,
                node: name(&called),
                leaf: Some(signed(u32::try_from(number).expect("few"), &called, &machine).to_bytes()),
                payload: "{}".to_owned(),
            });
            all.push((machine.id, name(&called)));
        }
        let now = house.db.now().await.expect("time");
        let mut new = batch(Origin::Document, false).new;
        new.not_before = now;
        new.expires = schema::time::Duration::from_secs(7_200).after(now);
        (new.max_in_flight, new.max_failures) = (max_in_flight, 0);
        let mut txn = house.db.begin().await.expect("begin");
        batches::put(&mut txn, &new, &leaves, None).await.expect("put");
        txn.commit().await.expect("commit");
        Self { house, machines: all }
    }

    /// The step that the next process makes.
    async fn step(&self) {
        let mut txn = self.house.db.begin().await.expect("begin");
        batches::wake(&mut txn, [&name("kernel")]).await.expect("woken");
        txn.commit().await.expect("commit");
        self.house.jobs.tick("batch").await.expect("a pass");
    }

    async fn batch(&self) -> Batch {
        batches::find(&self.house.db, "kernel").await.expect("reads").expect("a batch")
    }

    async fn leaves(&self) -> Vec<Leaf> {
        let mut txn = self.house.db.snapshot().await.expect("begin");
        batches::leaves(&mut txn, self.batch().await.id).await.expect("reads")
    }

    async fn states(&self) -> Vec<LeafState> {
        self.leaves().await.iter().map(|leaf| leaf.state).collect()
    }

    async fn command(&self, index: usize) -> CommandId {
        self.leaves().await[index].command.expect("a command")
    }

    /// Writes where a command is, as a gateway or a sweep does.
    async fn is(&self, command: CommandId, state: &str) {
        let ended = if ["pending", "dispatched"].contains(&state) { "NULL" } else { "compute_now()" };
        let sql =
            format!("UPDATE commands SET state = '{state}', settled_at = {ended} WHERE id = '{}'", command.as_uuid());
        store::testing::steal(&self.house.db, &sql).await.expect("written");
    }
}

fn signed(index: u32, called: &str, machine: &Machine) -> SignedLeaf {
    SignedLeaf {
        index,
        name: name(called),
        node: machine.id,
        identity_generation: schema::generation::IdentityGeneration(1),
        hardware_key: hardware_key(None),
        journal: machine.journal,
        kind: "node.reboot".to_owned(),
        payload: SignedLeaf::payload(&json!({})),
        min_generation: schema::generation::Generation(0),
        preconditions: BTreeMap::from([(BOOT.to_owned(), machine.boot.to_string())]),
    }
}

use LeafState::{Failed, Left, Sent, Succeeded, Waiting as Waits};

#[tokio::test]
async fn as_many_are_at_it_as_the_document_says_however_often_somebody_begins_anew() {
    let bench = Bench::new(4, 2).await;
    for _ in 0..3 {
        bench.step().await;
        assert_eq!(bench.states().await, [Sent, Sent, Waits, Waits]);
    }
    assert_eq!(bench.batch().await.state, BatchState::Dispatching);
    bench.is(bench.command(0).await, "succeeded").await;
    for _ in 0..2 {
        bench.step().await;
        assert_eq!(bench.states().await, [Succeeded, Sent, Sent, Waits]);
    }
    // The first failure is the last thing that begins.
    bench.is(bench.command(1).await, "failed").await;
    bench.step().await;
    assert_eq!(bench.states().await, [Succeeded, Failed, Sent, Left]);
    let over = bench.batch().await;
    assert_eq!((over.state, over.reason.as_deref()), (BatchState::Cancelled, Some("failures")));
    assert!(bench.leaves().await.iter().all(|leaf| leaf.attempt <= 1), "nobody was sent it twice");
}

#[tokio::test]
async fn a_command_that_never_left_is_sent_again_and_one_that_a_gateway_had_counts_as_failed() {
    let bench = Bench::new(2, 1).await;
    bench.step().await;
    let first = bench.command(0).await;
    bench.is(first, "expired").await;
    bench.step().await;
    let again = bench.command(0).await;
    assert_ne!(again, first);
    assert_eq!(bench.states().await, [Sent, Waits]);
    // A gateway takes it, says that it was never sent, and nobody hears of it again.
    for state in ["dispatched", "pending", "expired"] {
        bench.is(again, state).await;
    }
    bench.step().await;
    let leaves = bench.leaves().await;
    assert_eq!((leaves[0].state, leaves[0].reason.as_deref()), (Failed, Some("not-heard-of")));
    assert_eq!(leaves[1].state, Left, "nobody else is begun with on a gateway's word");
}

#[tokio::test]
async fn a_machine_that_was_booted_since_is_left_out_and_holds_nobody_up() {
    let bench = Bench::new(2, 1).await;
    let boot = uuid::Uuid::new_v4();
    let sql = format!("UPDATE node_boots SET boot_id = '{boot}' WHERE node_id = '{}'", bench.machines[0].0.as_uuid());
    store::testing::steal(&bench.house.db, &sql).await.expect("written");
    bench.step().await;
    let leaves = bench.leaves().await;
    assert_eq!((leaves[0].state, leaves[0].reason.as_deref()), (Left, Some("booted-since")));
    assert_eq!(leaves[1].state, Sent);
}
