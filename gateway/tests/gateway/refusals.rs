//! Who is refused, with which code, and where that can be read.

use gateway::Timing;
use pki::keys::Keys;
use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use schema::time::Duration;
use store::{identities, node_certs, nodes};

use crate::world::World;

#[tokio::test]
async fn a_peer_that_is_no_node_of_ours_is_told_why() {
    let world = World::new().await;
    let gateway = world.gateway();

    let mut anonymous = world.node().await;
    anonymous.identity = None;
    assert_eq!(anonymous.stream(gateway.address).await.refusal().await.code, "CERTIFICATE_REQUIRED");

    let foreign = world.stranger(&Keys::generate("test.local", world.clock.now()).unwrap().node_issuer());
    let refused = foreign.greet(gateway.address).await.refusal().await;
    assert_eq!(refused.code, "FOREIGN_CA");
    assert!(refused.message.contains("before a rotation"), "it may be one's own of before: {}", refused.message);
    let message = world.recorded("unidentified", "FOREIGN_CA").await;
    assert!(message.starts_with("127.0.0.1: "), "{message}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_claims_anothers_id_is_refused_and_it_is_recorded_under_its_own() {
    let world = World::new().await;
    let gateway = world.gateway();
    let (thief, victim) = (world.node().await, world.node().await);
    let mut session = thief.stream(gateway.address).await;
    session.say(Up::Hello(pb::Hello { node_id: victim.id.to_string(), ..thief.hello() })).await;
    assert_eq!(session.refusal().await.code, "WRONG_NODE");
    let message = world.recorded(&thief.id.to_string(), "WRONG_NODE").await;
    assert!(message.contains(&victim.id.to_string()), "{message}");
    assert!(store::outcomes::find(&world.db, "session", &victim.id.to_string()).await.unwrap().is_none());
    gateway.stop().await;
}

#[tokio::test]
async fn certificates_without_a_record_or_of_an_earlier_identity_open_nothing() {
    let world = World::new().await;
    let gateway = world.gateway();
    let unknown = world.stranger(&world.keys.node_issuer());
    assert_eq!(unknown.greet(gateway.address).await.refusal().await.code, "UNKNOWN_CERTIFICATE");
    let message = world.recorded("unidentified", "UNKNOWN_CERTIFICATE").await;
    assert!(message.contains(&unknown.id.to_string()), "{message}");

    let replaced = world.node().await;
    let mut txn = world.db.begin().await.unwrap();
    nodes::bump_identity(&mut txn, replaced.id).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(replaced.greet(gateway.address).await.refusal().await.code, "IDENTITY_REPLACED");
    let message = world.recorded("unidentified", "IDENTITY_REPLACED").await;
    assert!(message.contains(&replaced.id.to_string()), "{message}");
    let of_the_node = store::outcomes::find(&world.db, "session", &replaced.id.to_string()).await.unwrap();
    assert!(of_the_node.is_none(), "it is about a machine that is the node no more: {of_the_node:?}");

    let revoked = world.node().await;
    let mut txn = world.db.begin().await.unwrap();
    node_certs::revoke_all(&mut txn, revoked.id, "stolen").await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(revoked.greet(gateway.address).await.refusal().await.code, "CERTIFICATE_REVOKED");
    gateway.stop().await;
}

#[tokio::test]
async fn open_sessions_end_when_their_identity_does() {
    let world = World::new().await;
    let gateway = world.gateway();
    let (replaced, deleted) = (world.node().await, world.node().await);
    let (mut one, _) = replaced.open(gateway.address).await;
    let (mut two, _) = deleted.open(gateway.address).await;
    let mut txn = world.db.begin().await.unwrap();
    nodes::bump_identity(&mut txn, replaced.id).await.unwrap();
    nodes::delete(&mut txn, deleted.id).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(one.refusal().await.code, "IDENTITY_REPLACED");
    assert_eq!(two.refusal().await.code, "NODE_GONE");
    gateway.stop().await;
}

#[tokio::test]
async fn a_revoked_identity_ends_its_open_session_before_any_look_at_everybody() {
    let world = World::new().await;
    let gateway = world.gateway_with(|config| config.timing.check = Duration::from_secs(86_400));
    let (revoked, other) = (world.node().await, world.node().await);
    let (mut one, _) = revoked.open(gateway.address).await;
    let (mut two, _) = other.open(gateway.address).await;
    two.heartbeat(1).await;
    let mut txn = world.db.begin().await.unwrap();
    identities::revoke(&mut txn, revoked.id, "its disk was stolen").await.unwrap();
    txn.commit().await.unwrap();
    // The next look at everybody is a day away, so this is the revocation's own word. Without it the look is the bound.
    assert_eq!(one.refusal().await.code, "CERTIFICATE_REVOKED");
    assert!(Timing::default().check <= Duration::from_secs(5));
    assert_eq!(revoked.greet(gateway.address).await.refusal().await.code, "CERTIFICATE_REVOKED");
    two.heartbeat(2).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_report_in_another_nodes_name_ends_the_session() {
    let world = World::new().await;
    let gateway = world.gateway();
    let (thief, victim) = (world.node().await, world.node().await);
    let (mut session, _) = thief.open(gateway.address).await;
    session.say(Up::Status(victim.status(1, 7))).await;
    assert_eq!(session.refusal().await.code, "WRONG_NODE");
    world.recorded(&thief.id.to_string(), "WRONG_NODE").await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_first_frame_must_be_hello() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut session = node.stream(gateway.address).await;
    session.say(Up::Heartbeat(pb::Heartbeat { sequence: 1 })).await;
    assert_eq!(session.refusal().await.code, "HELLO_EXPECTED");
    gateway.stop().await;
}
