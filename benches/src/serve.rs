//! A gateway in a process of its own, and the limit of one: streams over the same TLS that answer Hello and heartbeats and
//! know nothing.

use std::{
    io::{Read as _, Write},
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use gateway::{Config, ControlPlane, Limits, Timing};
use pki::{
    Realm,
    bundle::TrustBundle,
    keys::Keys,
    tls::{ServingCertificate, gateway_server},
    verify::Peer,
    worker::WorkerKey,
};
use proto::{
    agent::v1::{
        self as pb,
        gateway_frame::Frame as Down,
        node_frame::Frame as Up,
        session_server::{Session, SessionServer},
    },
    internal::v1 as internal,
};
use schema::{
    clock::{SharedClock, SystemClock},
    id::{GatewayId, NodeId},
};
use store::{Db, DbConfig};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::house::{FLEET, SECRET, wire};

/// Says its address and serves until its input ends.
pub(crate) fn run(mut words: impl Iterator<Item = String>, out: &mut impl Write) -> Result<()> {
    pki::install_provider();
    let kind = words.next().context("product or probe")?;
    let dir = PathBuf::from(words.next().context("a folder")?);
    let keys = Keys::open(&std::fs::read(dir.join("keys"))?, SECRET)?;
    let url = std::fs::read_to_string(dir.join("database"))?;
    let listener = listener()?;
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    // Whoever started this is gone when the pipe closes.
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match kind.as_str() {
        "product" => runtime.block_on(product(keys, &url, listener)),
        "probe" => runtime.block_on(probe(&keys, listener)),
        other => bail!("{other} is neither product nor probe"),
    }
}

/// A port with as much room for those who wait as a gateway has.
fn listener() -> Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4_096)?;
    Ok(socket.into())
}

async fn product(keys: Keys, url: &str, listener: std::net::TcpListener) -> Result<()> {
    let clock: SharedClock = Arc::new(SystemClock);
    let serving = ServingCertificate::new(&keys.issue_serving(&["127.0.0.1".to_owned()], clock.now())?)?;
    let verifier = keys.node_verifier();
    let realm = Realm::new(FLEET.0, FLEET.1);
    let worker = keys.command_root().certify(&realm, clock.now());
    let bundle = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&keys.anchor(FLEET.1), 1));
    let bundle = pb::SignedTrustBundle { bundle: bundle.bytes, signature: bundle.signature };
    let config = Config {
        gateway_id: GatewayId::generate(),
        listener,
        serving,
        verifier,
        dev: true,
        db: Db::connect(&DbConfig::from_url(url)?).await?,
        control_plane: Arc::new(Authority { worker, bundle, clock: Arc::clone(&clock) }),
        clock,
        limits: Limits::default(),
        timing: Timing::default(),
    };
    Ok(gateway::run(config, CancellationToken::new()).await?)
}

/// Signs time; has one trust bundle; lets nobody join.
struct Authority {
    worker: WorkerKey,
    bundle: pb::SignedTrustBundle,
    clock: SharedClock,
}

#[tonic::async_trait]
impl ControlPlane for Authority {
    async fn anchor(&self) -> Result<pb::GetAnchorResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn join_challenge(
        &self,
        _: pb::JoinChallengeRequest,
        _: SocketAddr,
    ) -> Result<pb::JoinChallengeResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn join(&self, _: pb::JoinRequest, _: SocketAddr) -> Result<pb::JoinResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn renew_challenge(
        &self,
        _: pb::RenewChallengeRequest,
        _: SocketAddr,
    ) -> Result<pb::RenewChallengeResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn renew(&self, _: pb::RenewRequest, _: SocketAddr) -> Result<pb::RenewResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn request_secrets(&self, _: pb::SecretRequest, _: SocketAddr) -> Result<pb::SecretResponse, Status> {
        Err(Status::unimplemented("a bench"))
    }

    async fn server_time(&self, node: NodeId, nonce: Vec<u8>) -> Result<pb::SignedTime, Status> {
        let now = self.clock.now();
        let signature = Some(wire(self.worker.sign_server_time(node, &nonce, now)));
        Ok(pb::SignedTime { time: now.to_string(), nonce, signature })
    }

    async fn trust(&self, _: u64) -> Result<internal::TrustBundleResponse, Status> {
        Ok(internal::TrustBundleResponse { trust_bundle: Some(self.bundle.clone()), ..Default::default() })
    }
}

async fn probe(keys: &Keys, listener: std::net::TcpListener) -> Result<()> {
    let clock: SharedClock = Arc::new(SystemClock);
    let serving = ServingCertificate::new(&keys.issue_serving(&["127.0.0.1".to_owned()], clock.now())?)?;
    let acceptor = TlsAcceptor::from(Arc::new(gateway_server(serving, Arc::clone(&clock))));
    let verifier = keys.node_verifier();
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (connections, incoming) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, connections) = (acceptor.clone(), connections.clone());
            let (verifier, clock) = (verifier.clone(), Arc::clone(&clock));
            tokio::spawn(async move {
                tcp.set_nodelay(true).ok();
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                // Mutual TLS judges the chain of its client; a gateway does after the handshake, to say why it refuses.
                if let Peer::Node(_) = verifier.peer(tls.get_ref().1.peer_certificates(), clock.now()) {
                    connections.send(Ok::<_, std::io::Error>(tls)).await.ok();
                }
            });
        }
    });
    tonic::transport::Server::builder()
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(128 * 1024)
        .add_service(SessionServer::new(Echo))
        .serve_with_incoming(ReceiverStream::new(incoming))
        .await?;
    Ok(())
}

struct Echo;

#[tonic::async_trait]
impl Session for Echo {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<pb::GatewayFrame, Status>> + Send>>;

    async fn open(&self, request: Request<Streaming<pb::NodeFrame>>) -> Result<Response<Self::OpenStream>, Status> {
        let mut frames = request.into_inner();
        let (out, answers) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok(Some(frame)) = frames.message().await {
                let answer = match frame.frame {
                    Some(Up::Hello(_)) => Down::Welcome(pb::Welcome::default()),
                    Some(Up::Heartbeat(beat)) => Down::HeartbeatAck(pb::HeartbeatAck { sequence: beat.sequence }),
                    _ => continue,
                };
                if out.send(Ok(pb::GatewayFrame { frame: Some(answer) })).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
