//! Peers that mean no good cost only themselves.

use proto::agent::v1::{self as pb, node_frame::Frame as Up};
use schema::time::Duration;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};
use tonic::{client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;

use crate::{
    wire::{
        ANCHOR, CONTINUATION, DATA, END_HEADERS, HEADERS, OPEN, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire, call,
        frame, message,
    },
    world::{PATIENCE, World},
};

#[tokio::test]
async fn handshakes_that_never_finish_cost_only_themselves() {
    let world = World::new().await;
    let gateway = world.gateway_with(|config| config.limits.handshakes = 8);
    let node = world.node().await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        // From another address than the good node's.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(gateway.address).await.unwrap());
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

#[tokio::test]
async fn one_node_cannot_hold_connections_without_end() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut wire = Wire::open(&node, gateway.address, &[]).await;
        wire.wait_for(SETTINGS, 1).await;
        held.push(wire);
    }
    Wire::open(&node, gateway.address, &[]).await.ended().await;
    let (mut session, _) = world.node().await.open(gateway.address).await;
    session.heartbeat(1).await;
    gateway.stop().await;
}

/// Enhance your calm.
const CALM: Option<u32> = Some(11);

/// What a flood is made of, a part at a time.
type Part = fn(u32) -> Vec<u8>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_end_the_connection_that_they_come_over_and_no_other() {
    fn odd(nth: u32) -> u32 {
        2 * nth + 3
    }
    // Each is far more than is let through.
    let floods: [(&str, Part, u32, Option<u32>); 8] = [
        (
            "rapid reset",
            |nth| {
                let mut both = frame(HEADERS, END_HEADERS, odd(nth), &call(ANCHOR));
                both.extend(frame(RST_STREAM, 0, odd(nth), &8_u32.to_be_bytes()));
                both
            },
            5_000,
            CALM,
        ),
        ("pings", |_| frame(PING, 0, 0, &[1; 8]), 200_000, None),
        ("settings", |_| frame(SETTINGS, 0, 0, &[]), 200_000, None),
        (
            "settings that change",
            |nth| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0x10, u8::try_from(nth % 256).unwrap()]),
            200_000,
            None,
        ),
        ("windows", |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), 200_000, None),
        ("frames of unknown kinds", |_| frame(0xbb, 0, 0, &[0; 32]), 100_000, None),
        (
            "header pieces",
            |nth| match nth {
                0 => frame(HEADERS, 0, 3, &call(ANCHOR)),
                // A header of 4 KiB in each.
                _ => {
                    let mut block = vec![0x00, 1, b'x', 0x7f, 0x81, 0x1f];
                    block.extend([b'y'; 4096]);
                    frame(CONTINUATION, 0, 3, &block)
                }
            },
            2_000,
            None,
        ),
        (
            "empty pieces",
            |nth| match nth {
                0 => frame(HEADERS, END_HEADERS, 3, &call(ANCHOR)),
                _ => frame(DATA, 0, 3, &[]),
            },
            200_000,
            None,
        ),
    ];
    let world = World::new().await;
    let gateway = world.gateway();
    let (mut session, _) = world.node().await.open(gateway.address).await;
    let mut stranger = world.node().await;
    stranger.identity = None;
    for (place, (name, part, times, goaway)) in floods.into_iter().enumerate() {
        let ended = Wire::open(&stranger, gateway.address, &[]).await.flood(part, times).await;
        assert!(goaway.is_none() || ended.goaway.is_none() || ended.goaway == goaway, "{name}: {ended:?}");
        session.heartbeat(place as u64 + 1).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_frame_of_sixteen_megabytes_is_not_waited_for() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut wire = Wire::open(&node, gateway.address, &[]).await;
    wire.say(&[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]).await;
    // Frame size error, unless the connection was cut before that was said.
    let ended = wire.ended().await;
    assert!(matches!(ended.goaway, Some(6) | None), "{ended:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_has_no_more_streams_than_it_may() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut wire = Wire::open(&node, gateway.address, &[]).await;
    wire.wait_for(SETTINGS, 2).await;
    for nth in 0..48 {
        wire.say(&frame(HEADERS, END_HEADERS, 2 * nth + 1, &call(ANCHOR))).await;
    }
    // The first of them wait for their message; the others are refused, and the connection with them when they are many.
    wire.wait_for(RST_STREAM, 20).await;
    let (mut session, _) = world.node().await.open(gateway.address).await;
    session.heartbeat(1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_claims_four_gigabytes_costs_nothing() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut wire = Wire::open(&node, gateway.address, &[]).await;
    wire.say(&frame(HEADERS, END_HEADERS, 1, &call(OPEN))).await;
    wire.say(&frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3])).await;
    world.recorded(&node.id.to_string(), "FRAME_TOO_LARGE").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_says_it_is_compressed_is_not_unpacked() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut wire = Wire::open(&node, gateway.address, &[]).await;
    wire.say(&frame(HEADERS, END_HEADERS, 1, &call(OPEN))).await;
    // The flag, and how gzip begins.
    wire.say(&frame(DATA, 0, 1, &[1, 0, 0, 0, 4, 0x1f, 0x8b, 8, 0])).await;
    world.recorded(&node.id.to_string(), "FRAME_MALFORMED").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_peer_that_reads_nothing_is_let_go() {
    let world = World::new().await;
    let gateway = world.gateway_with(|config| config.timing.idle = Duration::from_secs(1));
    let node = world.node().await;
    // Its window for streams is nothing.
    let mut wire = Wire::open(&node, gateway.address, &[0, 4, 0, 0, 0, 0]).await;
    wire.say(&frame(HEADERS, END_HEADERS, 1, &call(OPEN))).await;
    wire.say(&frame(DATA, 0, 1, &message(Up::Hello(node.hello())))).await;
    for sequence in 0..100 {
        wire.say(&frame(DATA, 0, 1, &message(Up::Heartbeat(pb::Heartbeat { sequence })))).await;
    }
    wire.ended().await;
    let (mut session, _) = world.node().await.open(gateway.address).await;
    session.heartbeat(1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_frame_in_single_bytes_is_a_frame() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut wire = Wire::open(&node, gateway.address, &[]).await;
    wire.say(&frame(HEADERS, END_HEADERS, 1, &call(OPEN))).await;
    for byte in message(Up::Hello(node.hello())) {
        wire.say(&frame(DATA, 0, 1, &[byte])).await;
    }
    wire.wait_for(DATA, 1).await;
    assert!(store::sessions::find(&world.db, node.id).await.unwrap().is_some());
    gateway.stop().await;
}
