//! Commands on the way to a node and back: in order, within credits, through lost connections and gateways that come and go.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use pki::verify::Validity;
use proto::agent::v1::{gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::{
    command::{CommandBody, CommandKind, CommandState, UpdateState},
    generation::Epoch,
    id::CommandId,
};
use store::{commands, queue, sessions};

use crate::{
    node::Node,
    runner::{self, Gateways, Runner},
    sessions::unwire,
    world::{World, eventually},
};

fn id_of(command: &proto::agent::v1::Command) -> CommandId {
    CommandBody::read(&command.body).unwrap().id
}

#[tokio::test]
async fn a_command_arrives_as_it_was_signed_and_its_last_word_is_stored_as_the_node_signed_it() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, welcome) = node.open(gateway.address).await;
    let id = world.command(node.id, CommandKind::InventoryRefresh).await;

    let command = session.command().await;
    assert_eq!(id_of(&command), id);
    let verifier = world.keys.anchor(&world.realm.fleet_id).verifier();
    let signature = unwire(command.signature.clone());
    verifier.command(node.id, &command.body, &signature, Validity::At(world.clock.now())).unwrap();
    let sent = commands::find(&world.db, id).await.unwrap().unwrap().sent_in.unwrap();
    assert_eq!((sent.epoch, sent.journal_id), (Epoch(welcome.epoch), node.journal));

    for (said, state) in [(UpdateState::Acked, CommandState::Acked), (UpdateState::Running, CommandState::Running)] {
        session.say(Up::CommandUpdate(node.update(id, said))).await;
        world.comes_to(id, state).await;
    }
    let word = node.update(id, UpdateState::Succeeded);
    session.say(Up::CommandUpdate(word.clone())).await;
    let stored = eventually(|| async { commands::updates(&world.db, node.id).await.unwrap().pop() }).await.update;
    assert_eq!((stored.id, stored.payload, stored.signature), (id, word.update, word.signature));
    assert_eq!(world.command_state(id).await, CommandState::Running, "a gateway ends no command");
    let depth = queue::depth(&world.db).await.unwrap();
    assert!(depth.iter().any(|(kind, _)| kind == queue::COMMAND.name), "{depth:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_lane_has_no_more_in_flight_than_its_credits_and_goes_on_when_one_returns() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(world.command(node.id, CommandKind::LogsCollect).await);
    }
    let (mut session, _) = node.open(gateway.address).await;
    let mut got = vec![id_of(&session.command().await), id_of(&session.command().await)];
    session.heartbeat(1).await;
    let pending = commands::count_open(&world.db, node.id).await.unwrap();
    assert_eq!(pending, 5, "nothing is over");
    assert_eq!(world.command_state(waiting[2]).await, CommandState::Pending);
    let urgent = world.command(node.id, CommandKind::InventoryRefresh).await;
    assert_eq!(id_of(&session.command().await), urgent, "another lane does not wait");
    for place in 0..3 {
        session.say(Up::CommandUpdate(node.update(got[place], UpdateState::Succeeded))).await;
        got.push(id_of(&session.command().await));
    }
    assert_eq!(got, waiting);
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_without_room_gets_the_command_again_without_a_poke() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    let first = world.command(node.id, CommandKind::LogsCollect).await;
    let second = world.command(node.id, CommandKind::LogsCollect).await;
    assert_eq!([id_of(&session.command().await), id_of(&session.command().await)], [first, second]);
    session.say(Up::CommandUpdate(node.update(first, UpdateState::Busy))).await;
    assert_eq!(id_of(&session.command().await), first);
    assert_eq!(commands::find(&world.db, first).await.unwrap().unwrap().busy_count, 1);
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_in_flight_comes_again_in_order_and_is_cancelled_again() {
    let world = World::new().await;
    let (one, two) = (world.gateway(), world.gateway());
    let node = world.node().await;
    let (mut session, _) = node.open(one.address).await;
    let mut sent = Vec::new();
    for kind in [CommandKind::LogsCollect, CommandKind::InventoryRefresh, CommandKind::LogsCollect] {
        sent.push(world.command(node.id, kind).await);
        assert_eq!(id_of(&session.command().await), sent[sent.len() - 1]);
    }
    let mut txn = world.db.begin().await.unwrap();
    commands::cancel(&mut txn, sent[1]).await.unwrap();
    txn.commit().await.unwrap();
    let cancel = loop {
        match session.next().await {
            Some(Down::CancelCommand(cancel)) => break cancel,
            Some(_) => {}
            None => panic!("no cancellation"),
        }
    };
    assert_eq!(cancel.command_id, sent[1].to_string());

    // The old session is still open; the node does not say goodbye.
    let (mut again, welcome) = node.open(two.address).await;
    let mut got = Vec::new();
    let mut cancelled = false;
    while got.len() < 3 || !cancelled {
        match again.next().await {
            Some(Down::Command(command)) => got.push(id_of(&command)),
            Some(Down::CancelCommand(cancel)) => cancelled = cancel.command_id == sent[1].to_string(),
            Some(_) => {}
            None => panic!("the session ended"),
        }
    }
    assert_eq!(got, sent);

    // What comes over the older session is too late.
    session.say(Up::CommandUpdate(node.update(sent[0], UpdateState::Succeeded))).await;
    assert_eq!(session.refusal().await.code, "SUPERSEDED");
    again.say(Up::CommandUpdate(node.update(sent[1], UpdateState::Cancelled))).await;
    let words = eventually(|| async {
        let words = commands::updates(&world.db, node.id).await.unwrap();
        (!words.is_empty()).then_some(words)
    })
    .await;
    let of: Vec<(CommandId, Epoch)> = words.iter().map(|word| (word.update.id, word.update.epoch)).collect();
    assert_eq!(of, [(sent[1], Epoch(welcome.epoch))]);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn hundreds_of_quick_commands_end_in_one_session() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut waiting = Vec::new();
    for _ in 0..400 {
        waiting.push(world.command(node.id, CommandKind::InventoryRefresh).await);
    }
    let reader = world.reader(vec![(node.id, node.key.public())]);
    let (mut session, _) = node.open(gateway.address).await;
    for id in &waiting {
        assert_eq!(id_of(&session.command().await), *id);
        for said in [UpdateState::Acked, UpdateState::Running, UpdateState::Succeeded] {
            session.say(Up::CommandUpdate(node.update(*id, said))).await;
        }
    }
    eventually(|| async { (commands::count_open(&world.db, node.id).await.unwrap() == 0).then_some(()) }).await;
    session.heartbeat(1).await;
    reader.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn a_daemon_that_says_nothing_of_commands_is_sent_none() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut session = node.stream(gateway.address).await;
    let hello = proto::agent::v1::Hello { capabilities: Vec::new(), ..node.hello() };
    session.say(Up::Hello(hello)).await;
    let id = world.command(node.id, CommandKind::InventoryRefresh).await;
    assert!(matches!(session.next().await, Some(Down::Welcome(_))));
    for sequence in 1..4 {
        session.heartbeat(sequence).await;
    }
    assert_eq!(world.command_state(id).await, CommandState::Pending);
    assert!(!sessions::find(&world.db, node.id).await.unwrap().unwrap().commands);
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_goes_away_hears_the_last_words_of_its_nodes() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    let id = world.command(node.id, CommandKind::InventoryRefresh).await;
    session.command().await;
    gateway.cancel.cancel();
    while !matches!(session.next().await, Some(Down::Goodbye(_))) {}
    session.say(Up::CommandUpdate(node.update(id, UpdateState::Succeeded))).await;
    drop(session.up);
    gateway.stop().await;
    assert_eq!(commands::updates(&world.db, node.id).await.unwrap().len(), 1);
}

/// Nodes that work, and who reads their last words.
struct Fleet {
    runners: Vec<Runner>,
    ids: Vec<schema::id::NodeId>,
    gateways: Gateways,
    reader: tokio::task::JoinHandle<()>,
}

impl Fleet {
    async fn start(world: &World, count: usize, addresses: Vec<SocketAddr>) -> Self {
        let gateways: Gateways = Arc::new(Mutex::new(addresses));
        let mut nodes: Vec<Node> = Vec::new();
        for _ in 0..count {
            nodes.push(world.node().await);
        }
        let reader = world.reader(nodes.iter().map(|node| (node.id, node.key.public())).collect());
        let ids = nodes.iter().map(|node| node.id).collect();
        let runners = nodes.into_iter().map(|node| runner::start(node, Arc::clone(&gateways))).collect();
        Self { runners, ids, gateways, reader }
    }

    async fn enqueue(&self, world: &World, rounds: usize) -> Vec<CommandId> {
        let kinds = [CommandKind::InventoryRefresh, CommandKind::DiagNvml, CommandKind::LogsCollect];
        let mut queued = Vec::new();
        for round in 0..rounds {
            for node in &self.ids {
                queued.push(world.command(*node, kinds[round % kinds.len()]).await);
            }
        }
        queued
    }

    async fn all_succeed(&self, world: &World, queued: &[CommandId]) {
        for id in queued {
            world.comes_to(*id, CommandState::Succeeded).await;
        }
        for runner in &self.runners {
            runner.task.abort();
            let journal = runner.journal.lock().unwrap();
            assert!(journal.ran.values().all(|times| *times == 1), "{journal:?}");
            assert_eq!(journal.twice, 0, "{journal:?}");
        }
        self.reader.abort();
        let ran: usize = self.runners.iter().map(|runner| runner.journal.lock().unwrap().ran.len()).sum();
        assert_eq!(ran, queued.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_command_and_sends_none_twice() {
    let world = World::new().await;
    let (one, two) = (world.gateway(), world.gateway());
    let fleet = Fleet::start(&world, 6, vec![one.address, two.address]).await;
    let mut queued = fleet.enqueue(&world, 6).await;
    for gateway in [one, two] {
        let next = world.gateway();
        fleet.gateways.lock().unwrap().push(next.address);
        let address = gateway.address;
        let (more, ()) = tokio::join!(fleet.enqueue(&world, 6), gateway.stop());
        fleet.gateways.lock().unwrap().retain(|other| *other != address);
        queued.extend(more);
        // It serves until the test's runtime ends.
        std::mem::forget(next);
    }
    fleet.all_succeed(&world, &queued).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_dies_takes_no_command_with_it() {
    let world = World::new().await;
    let (dying, other) = (world.gateway_apart(), world.gateway_apart());
    let fleet = Fleet::start(&world, 6, vec![dying.address, other.address]).await;
    let mut queued = fleet.enqueue(&world, 4).await;
    let address = dying.address;
    let (more, ()) = tokio::join!(fleet.enqueue(&world, 8), async { dying.kill() });
    queued.extend(more);
    fleet.gateways.lock().unwrap().retain(|gateway| *gateway != address);
    fleet.all_succeed(&world, &queued).await;
    other.stop().await;
}
