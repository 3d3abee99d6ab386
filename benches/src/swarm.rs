//! Many nodes in one process: they open sessions, beat, and answer commands at once.

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use hyper_util::rt::TokioIo;
use pki::tls::{ServerTimes, agent_client};
use proto::agent::v1::{
    self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up, session_client::SessionClient,
};
use rustls_pki_types::{CertificateDer, ServerName};
use schema::{
    clock::SystemClock,
    command::{COMMANDS_CAPABILITY, CommandBody},
    id::{BootId, CommandId},
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::house::{House, LastWords, Machine};

/// What opens when many do: a gateway writes as many rows in a transaction as wait, and a crowd of 64 leaves it waiting.
const OPENING_AT_ONCE: usize = 256;

/// What a node was sent, and when.
#[derive(Debug)]
pub(crate) enum Heard {
    Command(CommandId, Instant),
    Ack(u64, Instant),
}

/// What all nodes share.
#[derive(Clone)]
pub(crate) struct Nodes {
    roots: Arc<Vec<CertificateDer<'static>>>,
    last_words: LastWords,
    pub(crate) heard: mpsc::UnboundedSender<Heard>,
    /// Sessions that are open.
    pub(crate) alive: Arc<AtomicUsize>,
    /// Nothing is said about commands.
    pub(crate) silent: Arc<AtomicBool>,
}

/// An open session. Dropped, its connection closes.
pub(crate) struct Open {
    pub(crate) machine: Arc<Machine>,
    pub(crate) up: mpsc::Sender<pb::NodeFrame>,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Open {
    /// Waits until the session has ended.
    pub(crate) async fn ended(&mut self) {
        (&mut self.task).await.ok();
    }
}

impl Nodes {
    pub(crate) fn of(house: &House) -> (Self, mpsc::UnboundedReceiver<Heard>) {
        let (heard, all) = mpsc::unbounded_channel();
        let roots = Arc::new(vec![house.keys.root_certificate()]);
        let last_words = Arc::clone(&house.last_words);
        (Self { roots, last_words, heard, alive: Arc::default(), silent: Arc::default() }, all)
    }

    /// Opens a session for each machine, many at a time. Machine by machine the gateways take turns.
    pub(crate) async fn open_all(&self, machines: &[Arc<Machine>], gateways: &[SocketAddr]) -> Result<Vec<Open>> {
        let places = Arc::new(Semaphore::new(OPENING_AT_ONCE));
        let mut opening = JoinSet::new();
        for (machine, gateway) in machines.iter().zip(gateways.iter().cycle()) {
            let (this, machine, gateway, places) = (self.clone(), Arc::clone(machine), *gateway, Arc::clone(&places));
            opening.spawn(async move {
                let _place = places.acquire_owned().await?;
                this.open(machine, gateway).await
            });
        }
        let mut all = Vec::with_capacity(machines.len());
        while let Some(opened) = opening.join_next().await {
            all.push(opened??);
        }
        Ok(all)
    }

    pub(crate) async fn open(&self, machine: Arc<Machine>, gateway: SocketAddr) -> Result<Open> {
        let times = ServerTimes::Clock(Arc::new(SystemClock));
        let tls = TlsConnector::from(Arc::new(agent_client(&self.roots, Some(&machine.identity), times)?));
        let connector = tower::service_fn(move |_: http::Uri| {
            let tls = tls.clone();
            async move {
                let tcp = TcpStream::connect(gateway).await?;
                tcp.set_nodelay(true)?;
                tls.connect(ServerName::from(gateway.ip()), tcp).await.map(TokioIo::new)
            }
        });
        let channel = Endpoint::from_static("http://gateway").connect_with_connector(connector).await?;
        let (up, frames) = mpsc::channel(16);
        let hello = pb::Hello {
            node_id: machine.id.to_string(),
            boot_id: BootId::generate().to_string(),
            journal_id: machine.journal.to_string(),
            nonce: vec![9; 32],
            capabilities: vec![COMMANDS_CAPABILITY.to_owned()],
            trust_version: 1,
            inventory: [("os".to_owned(), schema::digest::Digest::of("os").to_string())].into(),
            ..pb::Hello::default()
        };
        up.send(pb::NodeFrame { frame: Some(Up::Hello(hello)) }).await?;
        let mut down = SessionClient::new(channel).open(ReceiverStream::new(frames)).await?.into_inner();
        match down.message().await?.context("the stream ended")?.frame {
            Some(Down::Welcome(_)) => {}
            other => bail!("no Welcome but {other:?}"),
        }
        let (this, answers) = (self.clone(), up.clone());
        this.alive.fetch_add(1, Ordering::Relaxed);
        let task = tokio::spawn(async move {
            while let Ok(Some(frame)) = down.message().await {
                match frame.frame {
                    Some(Down::Command(command)) => {
                        let at = Instant::now();
                        let Ok(body) = CommandBody::read(&command.body) else { continue };
                        this.heard.send(Heard::Command(body.id, at)).ok();
                        if this.silent.load(Ordering::Relaxed) {
                            continue;
                        }
                        if let Some(word) = this.last_word(body.id) {
                            answers.send(pb::NodeFrame { frame: Some(Up::CommandUpdate(word)) }).await.ok();
                        }
                    }
                    Some(Down::HeartbeatAck(ack)) => _ = this.heard.send(Heard::Ack(ack.sequence, Instant::now())),
                    _ => {}
                }
            }
            this.alive.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(Open { machine, up, task })
    }

    fn last_word(&self, id: CommandId) -> Option<pb::CommandUpdate> {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}
