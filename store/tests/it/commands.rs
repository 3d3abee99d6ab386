//! Commands: queued once, sent in order, settled once.

mod dispatch;
mod ends;
mod news;
mod resume;
mod rights;
mod sign;

use schema::{
    command::{CommandBody, CommandKind, CommandState, Lane},
    generation::Epoch,
    id::{CommandId, NodeId},
    time::Duration,
};
use serde_json::json;
use store::{
    Db,
    commands::{self, Claim, Command, Dispatch, EnqueueError, Enqueued, NewCommand, Progress, Signed, Step},
    outbox, queue, sessions,
    sessions::SessionOpen,
    testing::{TestDb, probes},
};

use crate::{commit, node, session};

/// The least that a kind takes.
fn payload(kind: CommandKind) -> serde_json::Value {
    match kind {
        CommandKind::GpuReset => json!({ "gpus": ["GPU-1"] }),
        CommandKind::DaemonUpgrade => json!({ "version": "1.2.3", "manifest": "bWFuaWZlc3Q=" }),
        CommandKind::DiagDcgm => json!({ "level": 1 }),
        _ => json!({}),
    }
}

/// A command that is good for ten minutes.
async fn new(db: &Db, node: NodeId, kind: CommandKind, key: &str) -> NewCommand {
    NewCommand {
        node_id: node,
        kind,
        payload: payload(kind),
        idempotency_key: key.to_owned(),
        not_after: Duration::from_secs(600).after(db.now().await.expect("now")),
        min_generation: None,
        batch_id: None,
        secrets: Vec::new(),
        created_by: "test".to_owned(),
    }
}

async fn try_enqueue(db: &Db, new: &NewCommand) -> Result<Enqueued, EnqueueError> {
    let mut txn = db.begin().await.expect("begin");
    let enqueued = commands::enqueue(&mut txn, new).await?;
    txn.commit().await.expect("commit");
    Ok(enqueued)
}

async fn enqueue(db: &Db, node: NodeId, kind: CommandKind, key: &str) -> Command {
    let new = new(db, node, kind, key).await;
    try_enqueue(db, &new).await.expect("queued").command
}

fn signed(id: CommandId, body: Option<&[u8]>) -> Signed {
    Signed { id, body: body.map(<[u8]>::to_vec), signature: b"signed".to_vec(), journal: None }
}

async fn sign(db: &Db, id: CommandId) {
    commit!(db, |txn| commands::sign(&mut txn, &[signed(id, None)]).await.expect("signed"));
}

/// Queued and signed.
async fn ready(db: &Db, node: NodeId, kind: CommandKind, key: &str) -> CommandId {
    let id = enqueue(db, node, kind, key).await.id;
    sign(db, id).await;
    id
}

async fn open(db: &Db, session: &SessionOpen) -> Epoch {
    commit!(db, |txn| sessions::open(&mut txn, session).await.expect("open").epoch)
}

/// Takes what is due, with the whole room of a session.
async fn claim(db: &Db, node: NodeId, epoch: Epoch) -> Vec<Dispatch> {
    claim_up_to(db, node, epoch, [8, 4, 2]).await
}

async fn claim_up_to(db: &Db, node: NodeId, epoch: Epoch, room: [u32; 3]) -> Vec<Dispatch> {
    let mut claimed = commands::claim(&db.dedicated(), &[Claim { node, epoch, number: 1, room }]).await.expect("claim");
    assert!(claimed.len() <= 1);
    claimed.pop().filter(|(of, _)| *of == node).map(|(_, list)| list).unwrap_or_default()
}

async fn said(db: &Db, node: NodeId, epoch: Epoch, id: CommandId, step: Step) {
    commands::progress(db, &[Progress { id, node, epoch, step }]).await.expect("progress");
}

async fn state(db: &Db, id: CommandId) -> CommandState {
    read(db, id).await.state
}

async fn read(db: &Db, id: CommandId) -> Command {
    commands::find(db, id).await.expect("find").expect("a command")
}

fn ids(list: &[Dispatch]) -> Vec<CommandId> {
    list.iter().map(|dispatch| dispatch.id).collect()
}

/// The documents of the events of this kind, once there are so many.
async fn events(db: &Db, kind: &str, wanted: usize) -> Vec<serde_json::Value> {
    let events = store::testing::events(db, outbox::Cursor::default(), &[kind], wanted).await;
    events.into_iter().map(|event| event.doc).collect()
}

#[tokio::test]
async fn a_repeat_of_a_key_returns_the_first_command_and_another_kind_is_a_conflict() {
    let test = TestDb::create().await;
    let (one, two) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let wanted = new(test.db(), one, CommandKind::InventoryRefresh, "k").await;
    let first = try_enqueue(test.db(), &wanted).await.expect("queued");
    assert!(first.fresh);
    assert_eq!((first.command.seq, first.command.state, first.command.lane), (1, CommandState::Pending, Lane::Control));
    assert_eq!(read(test.db(), first.command.id).await, first.command, "what is answered is what is stored");

    let later = NewCommand { not_after: Duration::from_secs(9_000).after(wanted.not_after), ..wanted.clone() };
    let again = try_enqueue(test.db(), &later).await.expect("the first one");
    assert_eq!((again.fresh, again.command, again.body), (false, first.command.clone(), first.body));
    let other = NewCommand { kind: CommandKind::NodeReboot, ..wanted.clone() };
    let refused = try_enqueue(test.db(), &other).await.expect_err("a conflict");
    assert!(
        matches!(&refused, EnqueueError::Conflict { id, kind } if *id == first.command.id && kind == "inventory.refresh")
    );

    let elsewhere = try_enqueue(test.db(), &NewCommand { node_id: two, ..other }).await.expect("another node's key");
    assert_eq!((elsewhere.fresh, elsewhere.command.seq), (true, 1));
    assert_eq!(commands::find_by_key(test.db(), one, "k").await.expect("find"), Some(first.command));
}

#[tokio::test]
async fn two_transactions_with_one_key_queue_one_command() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let wanted = new(test.db(), id, CommandKind::DiagNvml, "k").await;
    let race = (0..8).map(|_| try_enqueue(test.db(), &wanted));
    let results = futures_join(race).await;
    let queued: std::collections::BTreeSet<CommandId> = results.iter().map(|result| result.command.id).collect();
    assert_eq!((queued.len(), results.iter().filter(|result| result.fresh).count()), (1, 1));
}

async fn futures_join(
    all: impl Iterator<Item = impl Future<Output = Result<Enqueued, EnqueueError>>>,
) -> Vec<Enqueued> {
    let mut done = Vec::new();
    let mut running: Vec<std::pin::Pin<Box<_>>> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        running.retain_mut(|task| match task.as_mut().poll(context) {
            std::task::Poll::Ready(result) => {
                done.push(result.expect("queued"));
                false
            }
            std::task::Poll::Pending => true,
        });
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

#[tokio::test]
async fn numbers_rise_per_node_in_the_order_of_the_commits() {
    let test = TestDb::create().await;
    let (one, two) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let wanted = new(test.db(), one, CommandKind::InventoryRefresh, "held").await;
    let mut first = test.db().begin().await.expect("begin");
    let held = commands::enqueue(&mut first, &wanted).await.expect("queued").command;
    let second = new(test.db(), one, CommandKind::InventoryRefresh, "second").await;
    let behind = try_enqueue(test.db(), &second);
    tokio::pin!(behind);
    let still = tokio::time::timeout(std::time::Duration::from_millis(50), &mut behind).await;
    assert!(still.is_err(), "a later number cannot be committed before an earlier one");
    assert_eq!(
        enqueue(test.db(), two, CommandKind::InventoryRefresh, "x").await.seq,
        1,
        "nodes do not wait for each other"
    );
    first.commit().await.expect("commit");
    assert_eq!((held.seq, behind.await.expect("queued").command.seq), (1, 2));
}

#[tokio::test]
async fn a_body_says_exactly_what_was_asked_and_the_reconciler_and_the_outbox_are_told() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let wanted = NewCommand {
        payload: json!({ "sections": ["gpus"] }),
        min_generation: Some(schema::generation::Generation(7)),
        batch_id: Some(schema::id::BatchId::generate()),
        ..new(test.db(), id, CommandKind::InventoryRefresh, "wf:01abc:step").await
    };
    let queued = try_enqueue(test.db(), &wanted).await.expect("queued");
    let body = CommandBody::read(&queued.body).expect("a body");
    assert_eq!((body.id, body.node_id, body.seq, body.kind), (queued.command.id, id, 1, wanted.kind));
    assert_eq!(
        (body.not_after, body.min_generation, body.batch),
        (wanted.not_after, wanted.min_generation, wanted.batch_id)
    );
    assert_eq!(body.payload["rescan"], json!(false), "defaults are filled in before anybody signs");
    assert_eq!(queued.command.owner.as_deref(), Some("wf:01abc"));
    assert!(queue::depth(test.db()).await.expect("depth").contains(&("command".to_owned(), 1)));
    let heard = events(test.db(), "node.command.queued", 1).await;
    assert_eq!((heard.len(), &heard[0]["commandId"]), (1, &json!(queued.command.id)));

    let wrong = NewCommand { payload: json!({ "sections": ["moon"] }), idempotency_key: "w".to_owned(), ..wanted };
    assert!(matches!(try_enqueue(test.db(), &wrong).await, Err(EnqueueError::Payload(_))));
    let nobody = new(test.db(), NodeId::generate(), CommandKind::NodeReboot, "k").await;
    assert!(matches!(try_enqueue(test.db(), &nobody).await, Err(EnqueueError::UnknownNode(_))));
}

#[tokio::test]
async fn lists_are_newest_first_and_come_in_pages() {
    let test = TestDb::create().await;
    let (one, two) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let mut queued = Vec::new();
    for n in 0..5 {
        queued.push(enqueue(test.db(), one, CommandKind::InventoryRefresh, &format!("k{n}")).await.id);
    }
    let elsewhere = enqueue(test.db(), two, CommandKind::DiagNvml, "k").await.id;
    commit!(test.db(), |txn| commands::cancel(&mut txn, queued[1]).await.expect("cancel"));
    queued.reverse();
    let of_one = commands::Filter { node: Some(one), ..commands::Filter::default() };
    let list = async |filter: &commands::Filter, before: Option<CommandId>, limit: u32| {
        let page = commands::list(test.db(), filter, before, limit).await.expect("list");
        (page.items.iter().map(|command| command.id).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = list(&of_one, None, 2).await;
    assert_eq!(first, queued[..2]);
    let (rest, last) = list(&of_one, next.map(|id| id.parse().expect("an id")), 9).await;
    assert_eq!((rest.as_slice(), last), (&queued[2..], None));
    let (all, _) = list(&commands::Filter::default(), None, 9).await;
    assert_eq!((all.len(), all[0]), (6, elsewhere));
    let diag = commands::Filter { kind: Some("diag.nvml".to_owned()), ..commands::Filter::default() };
    assert_eq!(list(&diag, None, 9).await.0, [elsewhere]);
    let over = commands::Filter { state: Some(CommandState::Cancelled), ..of_one };
    assert_eq!(list(&over, None, 9).await.0, [queued[3]]);
    assert_eq!(commands::count_open(test.db(), one).await.expect("count"), 4);
    let newest = read(test.db(), queued[0]).await;
    assert_eq!(commands::ahead(test.db(), &newest).await.expect("ahead").len(), 3);
    assert_eq!(newest.node.as_ref().map(|name| name.as_str()), Some("a"));
}
