//! Pokes go out after the commit, and a listener survives the loss of its connection.

use std::time::Duration;

use schema::id::NodeId;
use store::{
    Role,
    poke::{Heard, Listener, Poke},
    queue,
    testing::TestDb,
};

#[tokio::test]
async fn pokes_are_heard_after_the_commit_and_never_without_one() {
    let test = TestDb::create().await;
    let mut listener = Listener::connect(test.db()).await.expect("a listener");
    let id = NodeId::generate();
    let mut dropped = test.db().begin().await.expect("begin");
    dropped.poke(Poke::Node(NodeId::generate()));
    drop(dropped);
    let mut txn = test.db().begin().await.expect("begin");
    queue::enqueue(&mut txn, &queue::NODE, [id]).await.expect("enqueue");
    txn.poke(Poke::Node(id));
    txn.poke(Poke::Node(id));
    txn.commit().await.expect("commit");
    test.db().poke([Poke::Source("fleet".to_owned())]).await;
    let heard = [listener.next().await, listener.next().await, listener.next().await];
    assert_eq!(
        heard,
        [Poke::Node(id), Poke::Work(Role::Controllers), Poke::Source("fleet".to_owned())].map(Heard::Poke)
    );
}

#[tokio::test]
async fn a_listener_that_lost_its_connection_says_so_and_goes_on() {
    let test = TestDb::create().await;
    let mut listener = Listener::connect(test.db()).await.expect("a listener");
    test.advance(Duration::from_secs(1)).await;
    assert_eq!(listener.next().await, Heard::Reconnected);
    test.db().poke([Poke::Work(Role::Sinks)]).await;
    assert_eq!(listener.next().await, Heard::Poke(Poke::Work(Role::Sinks)));
}
