//! What a good node gets.

use pki::{bundle::SignedBundle, verify::Validity, worker::Signature};
use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::{
    generation::{Epoch, Generation},
    node::Connectivity,
};
use store::{node_reports, nodes, outcomes, queue, sessions};

use crate::world::{World, eventually};

pub(crate) fn unwire(signature: Option<pb::Signature>) -> Signature {
    let pb::Signature { worker, root_signature, signature } = signature.unwrap();
    Signature { worker, root_signature, signature }
}

#[tokio::test]
async fn welcome_brings_signed_time_the_bundle_and_the_spec() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let spec = world.set_spec(node.id, 1).await;

    let (mut session, welcome) = node.open(gateway.address).await;
    let verifier = world.keys.anchor(&world.realm.fleet_id).verifier();
    let time = welcome.server_time.unwrap();
    assert_eq!(time.nonce, vec![9; 32]);
    let at = time.time.parse().unwrap();
    verifier.server_time(node.id, &time.nonce, at, &unwire(time.signature)).unwrap();
    let pb::SignedTrustBundle { bundle, signature } = welcome.trust_bundle.unwrap();
    SignedBundle { bytes: bundle, signature }.first(&verifier).unwrap();

    let state = session.spec().await;
    assert_eq!((state.generation, &state.spec), (1, &spec));
    verifier
        .desired_state(node.id, Generation(1), &spec, &unwire(state.signature), Validity::At(world.clock.now()))
        .unwrap();

    let row = sessions::find(&world.db, node.id).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.disconnected_at), (Epoch(welcome.epoch), None));
    assert_eq!(nodes::get(&world.db, node.id).await.unwrap().connectivity, Connectivity::Connected);
    gateway.stop().await;
}

#[tokio::test]
async fn a_new_spec_reaches_an_open_session_and_an_old_one_does_not() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    world.set_spec(node.id, 4).await;

    let mut session = node.stream(gateway.address).await;
    session.say(Up::Hello(pb::Hello { applied_generation: 4, ..node.hello() })).await;
    assert!(matches!(session.next().await, Some(Down::Welcome(_))));
    world.set_spec(node.id, 5).await;
    assert_eq!(session.spec().await.generation, 5);
    world.set_spec(node.id, 9).await;
    assert_eq!(session.spec().await.generation, 9);
    gateway.stop().await;
}

#[tokio::test]
async fn a_report_is_stored_as_it_was_signed_and_wakes_the_node() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, welcome) = node.open(gateway.address).await;
    session.heartbeat(1).await;

    let report = node.status(1, 3);
    session.say(Up::Status(report.clone())).await;
    let stored = eventually(|| async { node_reports::list(&world.db, node.id).await.unwrap().pop() }).await.report;
    assert_eq!((stored.payload, stored.signature), (report.payload, report.signature));
    assert_eq!((stored.seq, stored.epoch), (1, Epoch(welcome.epoch)));
    let depth = queue::depth(&world.db).await.unwrap();
    assert!(depth.iter().any(|(kind, count)| kind == queue::NODE.name && *count == 1), "{depth:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_closes_is_disconnected_under_its_own_epoch() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (session, _) = node.open(gateway.address).await;
    drop(session);
    eventually(|| async { sessions::find(&world.db, node.id).await.unwrap()?.disconnected_at }).await;
    assert_eq!(nodes::get(&world.db, node.id).await.unwrap().connectivity, Connectivity::Disconnected);
    gateway.stop().await;
}

#[tokio::test]
async fn a_newer_session_ends_the_older_one_here_and_on_another_gateway() {
    let world = World::new().await;
    let (one, two) = (world.gateway(), world.gateway());
    let node = world.node().await;
    let (mut first, welcome) = node.open(one.address).await;
    let (mut second, next) = node.open(one.address).await;
    assert!(next.epoch > welcome.epoch);
    assert_eq!(first.refusal().await.code, "SUPERSEDED");

    let (mut third, last) = node.open(two.address).await;
    assert!(last.epoch > next.epoch);
    assert_eq!(second.refusal().await.code, "SUPERSEDED");
    third.heartbeat(1).await;
    let row = sessions::find(&world.db, node.id).await.unwrap().unwrap();
    assert_eq!((row.epoch, row.disconnected_at), (Epoch(last.epoch), None), "the older sessions closed nothing");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_gateway_that_goes_away_says_goodbye_and_closes_its_rows() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, welcome) = node.open(gateway.address).await;
    session.say(Up::Status(node.status(1, 0))).await;
    session.heartbeat(1).await;
    gateway.stop().await;
    loop {
        match session.next().await {
            Some(Down::Goodbye(goodbye)) => break assert_eq!(goodbye.reconnect_within_seconds, 5),
            Some(_) => {}
            None => panic!("no goodbye"),
        }
    }
    assert_eq!(session.next().await, None);
    let row = sessions::find(&world.db, node.id).await.unwrap().unwrap();
    assert_eq!(row.epoch, Epoch(welcome.epoch));
    assert!(row.disconnected_at.is_some());
    assert_eq!(node_reports::list(&world.db, node.id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_serving_certificate_is_replaced_while_the_gateway_runs() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut before, _) = node.open(gateway.address).await;
    let identity =
        world.keys.issue_serving(&["127.0.0.1".to_owned(), "gateway".to_owned()], world.clock.now()).unwrap();
    gateway.serving.replace(&identity).unwrap();
    let tcp = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let name = rustls_pki_types::ServerName::from(gateway.address.ip());
    let tls = node.tls().connect(name, tcp).await.unwrap();
    assert_eq!(tls.get_ref().1.peer_certificates().unwrap()[0], identity.chain()[0]);
    before.heartbeat(1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_good_session_clears_what_was_recorded_against_the_node() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut refused = node.stream(gateway.address).await;
    refused.say(Up::Hello(pb::Hello { described: true, ..node.hello() })).await;
    assert_eq!(refused.refusal().await.code, "DESCRIBED_HARDWARE");
    world.recorded(&node.id.to_string(), "DESCRIBED_HARDWARE").await;

    let _session = node.open(gateway.address).await;
    let key = node.id.to_string();
    eventually(|| async {
        outcomes::find(&world.db, "session", &key).await.unwrap().filter(|outcome| outcome.state == "done")
    })
    .await;
    gateway.stop().await;
}
