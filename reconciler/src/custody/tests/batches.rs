//! Rows of batches: what a thief of the database writes there goes nowhere.

use schema::{name::Name, time};
use store::batches::{self, BatchState, NewBatch, NewLeaf, Origin};

use super::*;

impl Thief {
    /// Puts a batch of this machine down, for which nobody has to be asked.
    pub(super) async fn put(&self, name: &str) {
        let now = self.house.db.now().await.expect("time");
        let new = NewBatch {
            name: Name::new(name).expect("a name"),
            origin: Origin::Document,
            quorum: false,
            kind: "node.reboot".to_owned(),
            doc: "{}".to_owned(),
            place: None,
            why: "kernel".to_owned(),
            plan: None,
            signed: None,
            proposer: None,
            evidence: None,
            created_by: "source".to_owned(),
            not_before: now,
            expires: time::Duration::from_secs(3_600).after(now),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
        };
        let node = self.house.node(&self.machine).await;
        let leaf = NewLeaf { node_id: node.id, node: node.name, leaf: None, payload: "{}".to_owned() };
        let mut txn = self.house.db.begin().await.expect("begin");
        batches::put(&mut txn, &new, &[leaf], None).await.expect("put");
        txn.commit().await.expect("commit");
    }

    /// Whether the one open batch is as it was put.
    pub(super) async fn is_put_here(&self) -> bool {
        let db = &self.house.db;
        let batch = batches::list_open(db).await.expect("read").items.pop().expect("a batch");
        let mut txn = db.snapshot().await.expect("begin");
        let leaves = batches::leaves(&mut txn, batch.id).await.expect("read");
        self.house.shared.custody.as_ref().expect("custody").is_put_here(&batch, &leaves)
    }

    /// Looks at a batch: where it is then, and why.
    async fn step(&self, name: &str) -> (BatchState, Option<String>) {
        let mut txn = self.house.db.begin().await.expect("begin");
        queue::enqueue(&mut txn, &queue::BATCH, [name]).await.expect("enqueued");
        txn.commit().await.expect("commit");
        self.house.jobs.tick("batch").await.expect("a pass");
        let batch = batches::find(&self.house.db, name).await.expect("read").expect("a batch");
        (batch.state, batch.reason)
    }
}

const PLANTED: &str = "WITH planted AS (
    INSERT INTO batches (id, name, origin, state, quorum, kind, doc, document, why, created_by, leaf_count, not_before, expires,
                         max_in_flight, max_failures, mark)
    SELECT gen_random_uuid(), 'planted', 'document', 'approved', false, 'node.reboot', '{}', sha256('{}'), 'because', 'source', 1,
           compute_now(), compute_now() + interval '1 hour', 20000, 2147483647, mark
    FROM batches
    RETURNING id)
    INSERT INTO batch_leaves (batch_id, index, node_id, node, payload) SELECT planted.id, 0, n.id, n.name, '{}' FROM planted, nodes n";

#[tokio::test]
async fn a_batch_that_is_written_into_the_database_sends_nothing() {
    let thief = Thief::new().await;
    thief.put("kernel").await;
    steal(&thief.house, PLANTED).await;
    let told = thief.step("planted").await;
    assert_eq!(told, (BatchState::Void, Some("not-ours".to_owned())));
    let (state, reason) = thief.step("kernel").await;
    assert!(!state.is_terminal(), "what was put down goes on: {state} {reason:?}");
    let mut txn = thief.house.db.snapshot().await.expect("begin");
    let planted = batches::find(&thief.house.db, "planted").await.expect("read").expect("a batch");
    let leaves = batches::leaves(&mut txn, planted.id).await.expect("read");
    assert!(leaves.iter().all(|leaf| leaf.command.is_none()), "{leaves:?}");
}

#[tokio::test]
async fn a_batch_is_one_as_long_as_nothing_of_it_that_acts_was_changed() {
    for change in [
        "UPDATE batches SET kind = 'daemon.upgrade'",
        "UPDATE batches SET origin = 'proposal'",
        "UPDATE batches SET quorum = true",
        "UPDATE batches SET max_in_flight = 20000",
        "UPDATE batches SET max_failures = 2147483647",
        "UPDATE batches SET spread = 'rack'",
        "UPDATE batches SET expires = expires + interval '1 hour'",
        "UPDATE batches SET not_before = not_before - interval '1 hour'",
        "UPDATE batches SET doc = '{\"a\":1}'",
        "UPDATE batches SET name = 'other'",
        "UPDATE batches SET mark = NULL",
        "UPDATE batch_leaves SET payload = '{\"reason\":\"x\"}'",
        "UPDATE batch_leaves SET node_id = gen_random_uuid()",
        "UPDATE batch_leaves SET leaf = 'x'",
        "DELETE FROM batch_leaves",
    ] {
        let thief = Thief::new().await;
        thief.put("kernel").await;
        assert!(thief.is_put_here().await);
        steal(&thief.house, change).await;
        assert!(!thief.is_put_here().await, "{change}");
    }
}
