//! What goes wrong around a session costs time only.

use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::command::{CommandBody, CommandKind, UpdateState};
use store::{
    Db, commands,
    embedded::{self, Embedded},
    migrate, node_reports, sessions,
};

use crate::{
    node::Session,
    world::{World, eventually},
};

#[tokio::test]
async fn sessions_outlive_postgresql_and_their_reports_arrive_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let config = embedded::Config { dir: dir.path().join("pg"), fast: true };
    let server = Embedded::start(config.clone()).await.unwrap();
    migrate::run(&server.db_config()).await.unwrap();
    let world = World::with(Db::connect(&server.db_config()).await.unwrap());
    let gateway = world.gateway_with(|config| config.timing.open_within = schema::time::Duration::from_secs(2));
    let (node, late) = (world.node().await, world.node().await);
    let (mut session, welcome) = node.open(gateway.address).await;

    server.stop().await;
    for seq in 1..=5 {
        session.say(Up::Status(node.status(seq, seq))).await;
        session.heartbeat(seq).await;
    }
    let refused = late.greet(gateway.address).await.refusal().await;
    assert_eq!(refused.code, "UNAVAILABLE");
    session.heartbeat(6).await;

    let server = Embedded::start(config).await.unwrap();
    let newest = eventually(|| async {
        let reports = node_reports::list(&world.db, node.id).await.ok()?;
        reports.into_iter().map(|report| report.report).find(|report| report.seq == 5)
    })
    .await;
    assert_eq!(newest.epoch.0, welcome.epoch);
    session.heartbeat(7).await;
    let (mut second, _) = late.open(gateway.address).await;
    second.heartbeat(1).await;
    gateway.stop().await;
    world.db.close().await;
    server.stop().await;
}

#[tokio::test]
async fn what_nodes_say_about_commands_waits_for_postgresql_and_what_was_taken_in_doubt_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let config = embedded::Config { dir: dir.path().join("pg"), fast: true };
    let server = Embedded::start(config.clone()).await.unwrap();
    migrate::run(&server.db_config()).await.unwrap();
    let world = World::with(Db::connect(&server.db_config()).await.unwrap());
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(world.command(node.id, CommandKind::LogsCollect).await);
    }
    let of = |command: &pb::Command| CommandBody::read(&command.body).unwrap().id;
    let mut got = vec![of(&session.command().await), of(&session.command().await)];

    server.stop().await;
    for id in &got {
        session.say(Up::CommandUpdate(node.update(*id, UpdateState::Running))).await;
        session.say(Up::CommandUpdate(node.update(*id, UpdateState::Succeeded))).await;
    }
    session.heartbeat(1).await;

    let server = Embedded::start(config).await.unwrap();
    got.push(of(&session.command().await));
    got.push(of(&session.command().await));
    assert_eq!(got, sent);
    eventually(|| async { (commands::updates(&world.db, node.id).await.ok()?.len() == 2).then_some(()) }).await;
    gateway.stop().await;
    world.db.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_spec_arrives_although_every_connection_was_cut() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    session.heartbeat(1).await;
    world.test_db.as_ref().unwrap().advance(std::time::Duration::ZERO).await;
    let mut txn = eventually(|| async { world.db.begin().await.ok() }).await;
    txn.now().await.unwrap();
    drop(txn);
    world.set_spec(node.id, 1).await;
    assert_eq!(session.spec().await.generation, 1);
    gateway.stop().await;
}

#[tokio::test]
async fn heartbeats_keep_last_seen_fresh_in_batches() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    let opened = sessions::find(&world.db, node.id).await.unwrap().unwrap().last_seen;
    session.heartbeat(1).await;
    eventually(|| async { sessions::find(&world.db, node.id).await.unwrap().filter(|row| row.last_seen > opened) })
        .await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_report_said_with_the_last_breath_is_stored() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (session, _) = node.open(gateway.address).await;
    session.say(Up::Status(node.status(1, 1))).await;
    let Session { up, mut down } = session;
    drop(up);
    while let Ok(Some(frame)) = down.message().await {
        assert!(!matches!(frame.frame, Some(Down::Refused(_))));
    }
    eventually(|| async { node_reports::list(&world.db, node.id).await.unwrap().pop() }).await;
    gateway.stop().await;
}
