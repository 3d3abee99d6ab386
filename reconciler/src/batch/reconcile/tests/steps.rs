//! Steps of a batch on a real database, one at a time, as the next process makes them when the one before died.

use std::collections::BTreeMap;

use pki::batch::Leaf as SignedLeaf;
use schema::{
    command::CommandState,
    id::{CommandId, NodeId},
};
use serde_json::json;
use store::{
    batches::{LeafState, NewLeaf},
    commands,
};

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

    async fn steal(&self, sql: &str) {
        store::testing::steal(&self.house.db, sql).await.expect("written");
    }

    /// Somebody takes the batch back.
    async fn cancel(&self) {
        let batch = self.batch().await;
        let mut txn = self.house.db.begin().await.expect("begin");
        batches::move_to(&mut txn, &batch, BatchState::Cancelled, Some("taken-back"), None, "cleo")
            .await
            .expect("moved");
        txn.commit().await.expect("commit");
    }

    /// Sets the batch back to where it was, with a mark.
    async fn set_back(&self, mark: Option<Vec<u8>>) {
        let mark = mark.map_or_else(|| "NULL".to_owned(), |mark| format!("'\\x{}'", hex::encode(mark)));
        self.steal(&format!("UPDATE batches SET state = 'approved', ended_at = NULL, reason = NULL, mark = {mark}"))
            .await;
        self.steal("UPDATE batch_leaves SET state = 'waiting', ended_at = NULL, reason = NULL").await;
    }

    /// How the batch ended, after the next step.
    async fn ends(&self) -> (BatchState, String) {
        self.step().await;
        let batch = self.batch().await;
        (batch.state, batch.reason.unwrap_or_default())
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
        let open = state.parse().is_ok_and(|state: CommandState| !state.is_terminal());
        let ended = if open { "NULL" } else { "compute_now()" };
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
async fn a_command_that_was_taken_back_after_it_may_have_begun_is_no_machine_on_which_nothing_happened() {
    let word = "evidence = 'w', evidence_signature = 's', evidence_key = 'k'";
    let done = format!("{word}, result = '{{}}'");
    let cases: [(&[&str], &str, LeafState); 5] = [
        (&[], "reason = 'cancelled'", Left),
        (&["dispatched"], word, Left),
        // A gateway says that it waits again, and somebody takes it back.
        (&["dispatched", "pending"], "reason = 'cancelled'", Failed),
        (&["dispatched", "running"], word, Failed),
        (&["dispatched"], &done, Failed),
    ];
    for (moves, said, ended) in cases {
        let bench = Bench::new(2, 1).await;
        bench.step().await;
        let command = bench.command(0).await;
        for state in moves {
            bench.is(command, state).await;
        }
        bench.steal(&format!("UPDATE commands SET {said} WHERE id = '{}'", command.as_uuid())).await;
        bench.is(command, "cancelled").await;
        bench.step().await;
        let leaves = bench.leaves().await;
        let why = if ended == Failed { "cancelled-midway" } else { "cancelled" };
        assert_eq!((leaves[0].state, leaves[0].reason.as_deref()), (ended, Some(why)), "{moves:?}, {said}");
        // A failure more than it tolerates: nothing more of it begins.
        assert_eq!(leaves[1].state, if ended == Failed { Left } else { Sent }, "{moves:?}, {said}");
    }
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

#[tokio::test]
async fn a_batch_that_people_took_back_goes_nowhere_whatever_its_row_says_afterwards() {
    let bench = Bench::new(1, 1).await;
    let copied = bench.batch().await.mark;
    assert!(copied.is_some());
    bench.cancel().await;
    assert_eq!(bench.batch().await.mark, None, "nobody who comes afterwards finds it");
    for mark in [None, copied] {
        bench.set_back(mark).await;
        assert_eq!(bench.ends().await, (BatchState::Cancelled, "ended-before".to_owned()));
    }
    // Another row of that name is no other batch.
    bench.steal("DELETE FROM batches").await;
    let mut new = batch(Origin::Document, false).new;
    new.not_before = bench.house.db.now().await.expect("time");
    new.expires = schema::time::Duration::from_secs(7_200).after(new.not_before);
    let mut txn = bench.house.db.begin().await.expect("begin");
    let (node_id, node) = bench.machines[0].clone();
    let leaf = NewLeaf { node_id, node, leaf: None, payload: "{}".to_owned() };
    batches::put(&mut txn, &new, &[leaf], None).await.expect("put");
    txn.commit().await.expect("commit");
    assert_eq!(bench.ends().await, (BatchState::Cancelled, "ended-before".to_owned()));
    assert!(bench.leaves().await.iter().all(|leaf| leaf.command.is_none()));

    // Who takes the lines of its end out of the log as well needs the mark from before it ended.
    bench.steal("ALTER TABLE audit DISABLE TRIGGER audit_append_only").await;
    bench.steal("DELETE FROM audit WHERE action LIKE 'batches.%'").await;
    bench.set_back(None).await;
    assert_eq!(bench.ends().await, (BatchState::Void, "not-ours".to_owned()));
}

#[tokio::test]
async fn a_command_of_a_batch_that_has_ended_is_signed_for_nobody() {
    let bench = Bench::new(1, 1).await;
    bench.step().await;
    let id = bench.command(0).await;
    let node = bench.machines[0].0;
    let copied = commands::unsigned(&bench.house.db, node, 0, 9).await.expect("read").remove(0).mark.expect("a mark");
    let signing = async || {
        let mut txn = bench.house.db.begin().await.expect("begin");
        queue::enqueue(&mut txn, &queue::COMMAND, [node.to_string()]).await.expect("woken");
        txn.commit().await.expect("commit");
        bench.house.jobs.tick("command").await.expect("a pass");
        let command = commands::find(&bench.house.db, id).await.expect("read").expect("a command");
        (command.state, command.reason.unwrap_or_default(), command.signed_at)
    };
    assert!(signing().await.2.is_some());
    bench.cancel().await;
    bench.step().await;
    // No gateway had it: nothing is left that a gateway could send.
    for (mark, reason) in [("NULL".to_owned(), "not-ours"), (format!("'\\x{}'", hex::encode(copied)), "batch-ended")] {
        let sql = format!("UPDATE commands SET state = 'pending', settled_at = NULL, reason = NULL, mark = {mark}");
        bench.steal(&sql).await;
        assert_eq!(signing().await, (CommandState::Cancelled, reason.to_owned(), None));
    }
}

/// Makes a step while somebody holds what the step needs; once it waits, they take more with `then`, and let go.
async fn step_beside(bench: &Bench, mut somebody: Txn, then: impl AsyncFnOnce(&mut Txn)) {
    let other = async {
        while !bench.house.test.waits_for_a_lock().await {
            tokio::task::yield_now().await;
        }
        then(&mut somebody).await;
        somebody.commit().await.expect("commit");
    };
    tokio::join!(bench.step(), other);
}

/// Takes a command that nobody else waits for.
async fn take(txn: &mut Txn, command: CommandId) {
    commands::lock_all(txn, &[], &[command]).await.expect("nobody waits in a circle");
}

#[tokio::test]
async fn a_batch_that_ends_takes_its_commands_in_the_order_in_which_everybody_takes_them() {
    let bench = Bench::new(2, 2).await;
    bench.step().await;
    let mut ids = [bench.command(0).await, bench.command(1).await];
    if ids[0] < ids[1] {
        bench
            .steal("UPDATE batch_leaves l SET command_id = o.command_id FROM batch_leaves o WHERE o.index <> l.index")
            .await;
    }
    ids.sort_unstable();
    let [lower, higher] = ids;
    assert_eq!(bench.command(0).await, higher);
    bench.cancel().await;
    let mut somebody = bench.house.db.begin().await.expect("begin");
    commands::lock_all(&mut somebody, &[], &[lower]).await.expect("locked");
    step_beside(&bench, somebody, async |txn| take(txn, higher).await).await;
    for id in ids {
        let command = commands::find(&bench.house.db, id).await.expect("read").expect("a command");
        assert_eq!(command.state, CommandState::Cancelled);
    }
}

#[tokio::test]
async fn a_batch_takes_machines_before_the_commands_of_others() {
    let bench = Bench::new(2, 2).await;
    bench.step().await;
    // One was taken back and waits with its command, and the other one gets its first.
    let kept = bench.command(0).await;
    bench.steal("UPDATE commands SET not_before = NULL").await;
    bench
        .steal("UPDATE batch_leaves SET state = 'waiting', command_id = CASE WHEN index = 0 THEN command_id END")
        .await;
    let mut somebody = bench.house.db.begin().await.expect("begin");
    commands::lock_all(&mut somebody, &[bench.machines[1].0], &[]).await.expect("locked");
    step_beside(&bench, somebody, async |txn| take(txn, kept).await).await;
    assert_eq!((bench.states().await, bench.command(0).await), (vec![Sent, Sent], kept));
}

#[tokio::test]
async fn a_batch_that_ends_wakes_machines_in_the_order_in_which_everybody_wakes_them() {
    let bench = Bench::new(2, 2).await;
    bench.step().await;
    // The first machine by name is the last one by its id.
    bench.steal("UPDATE batch_leaves SET index = index + 10").await;
    bench.steal("UPDATE batch_leaves SET index = 11 - index").await;
    let (lower, higher) = (bench.machines[0].0, bench.machines[1].0);
    assert!(lower < higher && bench.leaves().await[0].node_id == higher);
    bench.cancel().await;
    let wake = async |txn: &mut Txn, node: NodeId| {
        queue::enqueue(txn, &queue::NODE, [node]).await.expect("nobody waits in a circle");
    };
    let mut somebody = bench.house.db.begin().await.expect("begin");
    wake(&mut somebody, lower).await;
    step_beside(&bench, somebody, async |txn| wake(txn, higher).await).await;
    for index in 0..2 {
        let command = commands::find(&bench.house.db, bench.command(index).await).await.expect("read");
        assert_eq!(command.expect("a command").state, CommandState::Cancelled);
    }
}
