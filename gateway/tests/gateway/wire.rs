//! HTTP/2 by hand: frames that no library would send.

use std::net::SocketAddr;

use prost::Message;
use proto::agent::v1 as pb;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

use crate::{node::Node, world::PATIENCE};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const ANCHOR: &str = "/bettercompute.agent.v1.Join/GetAnchor";
pub(crate) const OPEN: &str = "/bettercompute.agent.v1.Session/Open";

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn literal(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(u8::try_from(text.len()).unwrap());
    bytes.extend(text.as_bytes());
}

/// The header block of a gRPC call.
pub(crate) fn call(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04];
    literal(&mut block, path);
    block.push(0x01);
    literal(&mut block, "gateway");
    block.extend([0x0f, 0x10]);
    literal(&mut block, "application/grpc");
    block.push(0x00);
    literal(&mut block, "te");
    literal(&mut block, "trailers");
    block
}

/// A node frame as gRPC has it.
pub(crate) fn message(frame: pb::node_frame::Frame) -> Vec<u8> {
    let body = pb::NodeFrame { frame: Some(frame) }.encode_to_vec();
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A connection on which anything can be said.
pub(crate) struct Wire(TlsStream<TcpStream>);

/// How the gateway ended a connection.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) goaway: Option<u32>,
}

impl Wire {
    pub(crate) async fn open(node: &Node, gateway: SocketAddr, settings: &[u8]) -> Self {
        let tcp = TcpStream::connect(gateway).await.unwrap();
        let name = rustls_pki_types::ServerName::from(gateway.ip());
        let mut this = Self(node.tls().connect(name, tcp).await.unwrap());
        this.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        this.say(&frame(SETTINGS, 0, 0, settings)).await;
        this
    }

    /// `false` when the gateway does not listen any more.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok() && self.0.flush().await.is_ok()
    }

    /// Says the same again and again, until the gateway does not listen any more or it was said often enough, while what the
    /// gateway says is thrown away.
    pub(crate) async fn flood(mut self, mut next: impl FnMut(u32) -> Vec<u8>, times: u32) -> Ended {
        let mut said = Vec::new();
        for nth in 0..times {
            said.extend(next(nth));
            if said.len() > 64 * 1024 || nth + 1 == times {
                let mut ended = Ended::default();
                let (mut read, mut write) = tokio::io::split(&mut self.0);
                let writing = async { write.write_all(&said).await.is_ok() && write.flush().await.is_ok() };
                tokio::pin!(writing);
                let goes_on = loop {
                    let mut thrown = [0; 16 * 1024];
                    tokio::select! {
                        written = &mut writing => break written,
                        got = read.read(&mut thrown) => match got {
                            Ok(1..) => note(&thrown, &mut ended),
                            Ok(0) | Err(_) => return ended,
                        },
                    }
                };
                if !goes_on {
                    break;
                }
                said.clear();
            }
        }
        self.ended().await
    }

    /// Reads until the gateway has closed the connection.
    pub(crate) async fn ended(mut self) -> Ended {
        let mut all = Vec::new();
        // However it ends, it ends.
        timeout(PATIENCE, self.0.read_to_end(&mut all)).await.expect("the gateway closes the connection").ok();
        let mut ended = Ended::default();
        note(&all, &mut ended);
        ended
    }

    /// Reads frames until so many of a kind came.
    pub(crate) async fn wait_for(&mut self, kind: u8, wanted: usize) {
        let mut got = 0;
        while got < wanted {
            let mut head = [0; 9];
            timeout(PATIENCE, self.0.read_exact(&mut head)).await.expect("the gateway says something").unwrap();
            let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
            self.0.read_exact(&mut payload).await.unwrap();
            got += usize::from(head[3] == kind);
        }
    }
}

fn note(bytes: &[u8], ended: &mut Ended) {
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, after)) = after.split_at_checked(length) else { return };
        if let (GOAWAY, [_, _, _, _, code @ ..]) = (head[3], payload) {
            ended.goaway = code.first_chunk().map(|code| u32::from_be_bytes(*code));
        }
        rest = after;
    }
}
