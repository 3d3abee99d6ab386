//! Batches: a name is used once, what begins begins in one transaction, and what asks for a batch and is none has a reason.

use schema::{
    command::CommandKind,
    id::{BatchId, NodeId},
    time::Duration,
};
use serde_json::json;
use store::{
    Db,
    batches::{self, Batch, BatchState, LeafState, NewAsk, NewBatch, NewLeaf, Origin, Put},
    commands::{self, NewCommand},
    testing::{TestDb, steal},
};

use crate::{commit, name, node, session};

const KINDS: [&str; 1] = ["node.reboot"];

async fn new(db: &Db, batch: &str, origin: Origin, doc: &str) -> NewBatch {
    let now = db.now().await.expect("now");
    NewBatch {
        name: name(batch),
        origin,
        quorum: false,
        kind: "node.reboot".to_owned(),
        doc: json!({ "text": doc }).to_string(),
        place: None,
        why: "a kernel".to_owned(),
        plan: None,
        signed: None,
        proposer: None,
        evidence: None,
        created_by: "test".to_owned(),
        not_before: now,
        expires: Duration::from_secs(3_600).after(now),
        max_in_flight: 1,
        max_failures: 0,
        spread: None,
    }
}

fn leaf(node: &store::nodes::Node) -> NewLeaf {
    NewLeaf { node_id: node.id, node: node.name.clone(), leaf: None, payload: "{}".to_owned() }
}

async fn put(db: &Db, new: &NewBatch, leaves: &[NewLeaf]) -> Put {
    commit!(db, |txn| batches::put(&mut txn, new, leaves, None).await.expect("put"))
}

async fn find(db: &Db, batch: &str) -> Batch {
    batches::find(db, batch).await.expect("reads").expect("a batch")
}

async fn leaves(db: &Db, batch: BatchId) -> Vec<batches::Leaf> {
    commit!(db, |txn| batches::leaves(&mut txn, batch).await.expect("leaves"))
}

async fn move_to(db: &Db, batch: &str, state: BatchState) {
    let found = find(db, batch).await;
    commit!(db, |txn| batches::move_to(&mut txn, &found, state, None, None, "test").await.expect("moves"));
}

async fn reboot(db: &Db, node: NodeId, batch: BatchId, key: &str) -> NewCommand {
    NewCommand {
        node_id: node,
        kind: CommandKind::NodeReboot,
        payload: json!({}),
        idempotency_key: key.to_owned(),
        not_after: Duration::from_secs(600).after(db.now().await.expect("now")),
        min_generation: None,
        batch_id: Some(batch),
        secrets: Vec::new(),
        created_by: "test".to_owned(),
    }
}

#[tokio::test]
async fn a_text_changes_until_it_begins_and_its_name_is_nobody_elses() {
    let test = TestDb::create().await;
    let db = test.db();
    let one = node(db, "one").await;
    let text = |origin, text| new(db, "kernel", origin, text);
    let Put::Fresh(id) = put(db, &text(Origin::Document, "a").await, &[leaf(&one)]).await else { panic!("fresh") };
    assert_eq!(put(db, &text(Origin::Document, "a").await, &[leaf(&one)]).await, Put::Same(id));
    assert_eq!(put(db, &text(Origin::Document, "b").await, &[leaf(&one)]).await, Put::Again(id));
    for origin in [Origin::Proposal, Origin::Api, Origin::Breakglass] {
        let used = Put::Used { id, origin: Origin::Document, state: BatchState::Approved };
        assert_eq!(put(db, &text(origin, "c").await, &[]).await, used, "{origin}");
    }
    for state in [BatchState::Dispatching, BatchState::Done] {
        move_to(db, "kernel", state).await;
        let used = Put::Used { id, origin: Origin::Document, state };
        assert_eq!(put(db, &text(Origin::Document, "d").await, &[]).await, used);
    }
    let found = find(db, "kernel").await;
    assert!(found.ended_at.is_some() && found.new.doc.contains('b'), "{found:?}");
    move_to(db, "kernel", BatchState::Cancelled).await;
    assert_eq!(find(db, "kernel").await.state, BatchState::Done, "what has ended stays so");
}

#[tokio::test]
async fn what_begins_is_there_as_a_whole_or_not_at_all_and_counts_for_its_pool() {
    let test = TestDb::create().await;
    let db = test.db();
    let (one, two) = (node(db, "one").await, node(db, "two").await);
    for machine in [&one, &two] {
        commit!(db, |txn| store::sessions::open(&mut txn, &session(machine.id)).await.expect("open"));
    }
    let pool = "INSERT INTO pools (name, site, class, policy) VALUES ('h100', 'fra1', 'gpu', '{\"disruption-budget\": \"1\"}')";
    steal(db, pool).await.expect("a pool");
    let Put::Fresh(id) = put(db, &new(db, "kernel", Origin::Document, "a").await, &[leaf(&one), leaf(&two)]).await
    else {
        panic!("fresh")
    };
    let disturbed = async || {
        let pools = commit!(db, |txn| batches::in_hand(&mut txn, &[name("h100")], &KINDS).await.expect("counts"));
        (pools[0].machines, pools[0].disturbed)
    };
    let command = reboot(db, one.id, id, "batch:kernel:0:0").await;
    // Whoever dies in the middle leaves nothing behind.
    let mut txn = db.begin().await.expect("begin");
    let queued = commands::enqueue(&mut txn, &command).await.expect("queued").command.id;
    batches::set_leaf(&mut txn, id, 0, LeafState::Sent, None, Some(queued)).await.expect("set");
    drop(txn);
    assert!(leaves(db, id).await.iter().all(|leaf| (leaf.state, leaf.attempt) == (LeafState::Waiting, 0)));
    assert_eq!(disturbed().await, (2, 0));

    let queued = commit!(db, |txn| {
        let queued = commands::enqueue(&mut txn, &command).await.expect("queued").command.id;
        batches::set_leaf(&mut txn, id, 0, LeafState::Sent, None, Some(queued)).await.expect("set");
        queued
    });
    let all = leaves(db, id).await;
    assert_eq!(
        (all[0].state, all[0].attempt, all[0].command, all[0].handed_over),
        (LeafState::Sent, 1, Some(queued), false)
    );
    assert_eq!(disturbed().await, (2, 1));
    let counts = batches::count_leaves(db, id).await.expect("counts");
    assert_eq!((counts.get(&LeafState::Sent), counts.get(&LeafState::Waiting)), (Some(&1), Some(&1)));
    let rest = commit!(db, |txn| batches::some_leaves(&mut txn, id, Some(0), 7).await.expect("leaves").items);
    assert_eq!(rest.iter().map(|leaf| leaf.index).collect::<Vec<_>>(), [1]);

    // What people took back waits and disturbs nobody, and the same command goes when they agree again.
    assert!(commit!(db, |txn| commands::hold(&mut txn, queued).await.expect("held")));
    assert_eq!(disturbed().await, (2, 0));
    assert!(commit!(db, |txn| commands::approve(&mut txn, queued, None).await.expect("goes")));
    steal(db, "UPDATE commands SET state = 'dispatched'").await.expect("handed over");
    assert!(leaves(db, id).await[0].handed_over);
    assert!(!commit!(db, |txn| commands::hold(&mut txn, queued).await.expect("asked")), "a gateway has it");
    steal(db, "UPDATE commands SET state = 'pending'").await.expect("given back");
    assert!(leaves(db, id).await[0].handed_over, "whatever the gateway says afterwards");
}

fn ask(asked: &str, code: &str, waits: bool) -> NewAsk {
    NewAsk {
        name: asked.to_owned(),
        code: code.to_owned(),
        message: format!("{asked} is none"),
        waits,
        commit: None,
        place: Some(format!("batches/{asked}.kdl:1")),
        looked: String::new(),
    }
}

#[tokio::test]
async fn what_asks_and_is_no_batch_is_so_since_the_first_time_that_this_was_why() {
    let test = TestDb::create().await;
    let db = test.db();
    let set = async |origin, asks: &[NewAsk]| {
        commit!(db, |txn| batches::set_asks(&mut txn, origin, asks).await.expect("set"))
    };
    let (late, used) = (ask("disks", "batch-history", true), ask("kernel", "name-used", false));
    set(Origin::Document, &[late.clone(), used.clone()]).await;
    set(Origin::Proposal, &[ask("health-42", "proposal-unsigned", false)]).await;
    let first = batches::asks(db).await.expect("asks").items;
    assert_eq!(first.iter().map(|ask| ask.new.name.as_str()).collect::<Vec<_>>(), ["disks", "kernel", "health-42"]);
    assert_eq!((&first[0].new, first[0].origin), (&late, Origin::Document));
    test.advance(std::time::Duration::from_secs(60)).await;
    let other = NewAsk { message: "still not".to_owned(), ..late };
    set(Origin::Document, &[other.clone(), ask("kernel", "batch-policy", true)]).await;
    let second = batches::asks(db).await.expect("asks").items;
    assert_eq!((&second[0].new, second[0].since), (&other, first[0].since), "another sentence, the same reason");
    assert!(second[1].since > first[1].since, "another reason");
    set(Origin::Document, &[]).await;
    let rest = batches::asks(db).await.expect("asks").items;
    assert_eq!(rest.iter().map(|ask| ask.new.name.as_str()).collect::<Vec<_>>(), ["health-42"]);
}
