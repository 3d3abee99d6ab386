//! Peers that mean no good cost only themselves.

use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use schema::time::Duration;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

use crate::world::{PATIENCE, World};

#[tokio::test]
async fn handshakes_that_never_finish_cost_only_themselves() {
    let world = World::new().await;
    let gateway = world.gateway_with(|config| config.limits.handshakes = 8);
    let node = world.node().await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    let (mut session, _) = node.open(gateway.address).await;
    session.heartbeat(1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_without_a_use_is_closed_and_one_with_a_session_is_not() {
    let world = World::new().await;
    let gateway = world.gateway_with(|config| config.timing.idle = Duration::from_secs(1));
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;

    let tcp = TcpStream::connect(gateway.address).await.unwrap();
    let name = rustls_pki_types::ServerName::from(gateway.address.ip());
    let mut idle = node.tls().connect(name, tcp).await.unwrap();
    let mut rest = Vec::new();
    // However it ends, it ends.
    timeout(PATIENCE, idle.read_to_end(&mut rest)).await.expect("the idle connection is closed").ok();
    session.heartbeat(1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_frame_above_the_limit_ends_the_session_with_a_code() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let (mut session, _) = node.open(gateway.address).await;
    let payload = vec![b' '; proto::MAX_FRAME_BYTES + 1];
    session.say(Up::Inventory(pb::NodeReport { payload, signature: vec![1] })).await;
    assert_eq!(session.refusal().await.code, "FRAME_TOO_LARGE");
    gateway.stop().await;
}

/// Shares field numbers with a node frame, and no types.
#[derive(Clone, PartialEq, prost::Message)]
struct NotAFrame {
    #[prost(uint64, tag = "1")]
    hello: u64,
}

/// A frame of a kind that this gateway does not know.
#[derive(Clone, PartialEq, prost::Message)]
struct LaterFrame {
    #[prost(uint64, tag = "900")]
    later: u64,
}

async fn refused_first<T: prost::Message + Send + 'static>(frame: T) -> String {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut grpc = Grpc::new(node.channel(gateway.address).await);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/bettercompute.agent.v1.Session/Open");
    let codec: ProstCodec<T, pb::GatewayFrame> = ProstCodec::new();
    let frames = tokio_stream::once(frame);
    let mut down = grpc.streaming(tonic::Request::new(frames), path, codec).await.unwrap().into_inner();
    let answer = timeout(PATIENCE, down.message()).await.unwrap().unwrap().unwrap();
    gateway.stop().await;
    match answer.frame {
        Some(pb::gateway_frame::Frame::Refused(refused)) => refused.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_session_with_a_code() {
    assert_eq!(refused_first(NotAFrame { hello: 5 }).await, "FRAME_MALFORMED");
}

#[tokio::test]
async fn a_frame_of_an_unknown_kind_ends_the_session_with_a_code() {
    assert_eq!(refused_first(LaterFrame { later: 5 }).await, "FRAME_UNKNOWN");
}

#[tokio::test]
async fn one_identity_cannot_hold_or_open_sessions_without_end() {
    let world = World::new().await;
    let gateway = world.gateway();
    let (node, other) = (world.node().await, world.node().await);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(node.stream(gateway.address).await);
    }
    assert_eq!(node.stream(gateway.address).await.refusal().await.code, "TOO_MANY_SESSIONS");
    let (mut session, _) = other.open(gateway.address).await;
    session.heartbeat(1).await;
    gateway.stop().await;
}
