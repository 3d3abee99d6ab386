//! A tiny node: a key, a certificate, and a stream. It checks what it is sent as a real one must.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use hyper_util::rt::TokioIo;
use pki::{
    Realm,
    issue::{Serial, TlsIdentity},
    node_key::NodeKey,
    tls::{ServerTimes, agent_client},
    worker::CommandVerifier,
};
use proto::agent::v1::{
    self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up, session_client::SessionClient,
};
use rustls_pki_types::{CertificateDer, ServerName};
use schema::{
    canonical,
    clock::SharedClock,
    command::{COMMANDS_CAPABILITY, CommandUpdate, UpdateState},
    generation::Generation,
    id::{BootId, CommandId, JournalId, NodeId},
    report::{ReportKind, StatusReport},
};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use crate::world::PATIENCE;

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: NodeKey,
    pub(crate) serial: Serial,
    pub(crate) identity: Option<TlsIdentity>,
    pub(crate) journal: JournalId,
    pub(crate) realm: Realm,
    pub(crate) roots: Vec<CertificateDer<'static>>,
    pub(crate) clock: SharedClock,
    /// Of what the control plane signs.
    pub(crate) verifier: Option<CommandVerifier>,
}

pub(crate) struct Session {
    pub(crate) up: mpsc::Sender<pb::NodeFrame>,
    pub(crate) down: Streaming<pb::GatewayFrame>,
}

impl Node {
    pub(crate) fn tls(&self) -> TlsConnector {
        let times = ServerTimes::Clock(Arc::clone(&self.clock));
        TlsConnector::from(Arc::new(agent_client(&self.roots, self.identity.as_ref(), times).unwrap()))
    }

    pub(crate) async fn channel(&self, gateway: SocketAddr) -> Channel {
        let tls = self.tls();
        let connector = tower::service_fn(move |_: http::Uri| {
            let tls = tls.clone();
            async move {
                let tcp = TcpStream::connect(gateway).await?;
                tls.connect(ServerName::from(gateway.ip()), tcp).await.map(TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_static("http://gateway");
        timeout(PATIENCE, endpoint.connect_with_connector(connector)).await.expect("the gateway answers").unwrap()
    }

    /// A stream on which nothing was said; `None` when there is no gateway.
    pub(crate) async fn try_stream(&self, gateway: SocketAddr) -> Option<Session> {
        let tls = self.tls();
        let connector = tower::service_fn(move |_: http::Uri| {
            let tls = tls.clone();
            async move {
                let tcp = TcpStream::connect(gateway).await?;
                tls.connect(ServerName::from(gateway.ip()), tcp).await.map(TokioIo::new)
            }
        });
        let channel = Endpoint::from_static("http://gateway").connect_with_connector(connector).await.ok()?;
        let (up, frames) = mpsc::channel(64);
        let down = SessionClient::new(channel).open(ReceiverStream::new(frames)).await.ok()?.into_inner();
        Some(Session { up, down })
    }

    /// A stream on which nothing was said.
    pub(crate) async fn stream(&self, gateway: SocketAddr) -> Session {
        let (up, frames) = mpsc::channel(64);
        let mut client = SessionClient::new(self.channel(gateway).await);
        let down = client.open(ReceiverStream::new(frames)).await.unwrap().into_inner();
        Session { up, down }
    }

    pub(crate) fn hello(&self) -> pb::Hello {
        pb::Hello {
            node_id: self.id.to_string(),
            boot_id: BootId::generate().to_string(),
            journal_id: self.journal.to_string(),
            nonce: vec![9; 32],
            agent_version: "test".to_owned(),
            capabilities: vec![COMMANDS_CAPABILITY.to_owned()],
            inventory: HashMap::from([("os".to_owned(), schema::digest::Digest::of("os").to_string())]),
            ..pb::Hello::default()
        }
    }

    /// A stream on which Hello was said.
    pub(crate) async fn greet(&self, gateway: SocketAddr) -> Session {
        let session = self.stream(gateway).await;
        session.say(Up::Hello(self.hello())).await;
        session
    }

    /// A session that was welcomed.
    pub(crate) async fn open(&self, gateway: SocketAddr) -> (Session, pb::Welcome) {
        let mut session = self.greet(gateway).await;
        match session.next().await {
            Some(Down::Welcome(welcome)) => (session, welcome),
            other => panic!("no Welcome: {other:?}"),
        }
    }

    /// What this node says about a command, signed if it is the last word.
    pub(crate) fn update(&self, id: CommandId, state: UpdateState) -> pb::CommandUpdate {
        let update = CommandUpdate::new(id, self.id, state, self.journal, BootId::generate()).to_bytes();
        let signature = match state.is_terminal() {
            true => self.key.sign_command_update(&self.realm, self.id, &update),
            false => Vec::new(),
        };
        pb::CommandUpdate { update, signature }
    }

    pub(crate) fn status(&self, seq: u64, observed: u64) -> pb::NodeReport {
        let report = StatusReport {
            node_id: self.id,
            journal_id: self.journal,
            boot_id: BootId::generate(),
            seq,
            at: self.clock.now(),
            applied: Generation(observed),
            observed: Generation(observed),
            sections: std::collections::BTreeMap::new(),
            conditions: Vec::new(),
            drift: Vec::new(),
            trust_version: None,
            policy: None,
            binds: false,
        };
        let payload = canonical::to_vec(&report).unwrap();
        let signature = self.key.sign_report(&self.realm, ReportKind::Status, self.id, &payload);
        pb::NodeReport { payload, signature }
    }
}

impl Session {
    pub(crate) async fn say(&self, frame: Up) {
        // A session that is over already takes nothing; what it said is still to be read.
        self.up.send(pb::NodeFrame { frame: Some(frame) }).await.ok();
    }

    /// The next frame; `None` at the end of the stream, however it ends.
    pub(crate) async fn try_next(&mut self) -> Option<Down> {
        self.down.message().await.ok()??.frame
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Down> {
        let frame = timeout(PATIENCE, self.down.message()).await.expect("the gateway says something");
        frame.unwrap().map(|frame| frame.frame.expect("a frame that this node knows"))
    }

    /// The next frame that is a spec.
    pub(crate) async fn spec(&mut self) -> pb::DesiredState {
        loop {
            match self.next().await {
                Some(Down::DesiredState(spec)) => return spec,
                Some(Down::Refused(_)) | None => panic!("the session ended before a spec came"),
                Some(_) => {}
            }
        }
    }

    /// The next frame that is a command.
    pub(crate) async fn command(&mut self) -> pb::Command {
        loop {
            match self.next().await {
                Some(Down::Command(command)) => return command,
                Some(Down::Refused(refused)) => panic!("the session ended before a command came: {refused:?}"),
                Some(Down::Goodbye(_)) | None => panic!("the session ended before a command came"),
                Some(_) => {}
            }
        }
    }

    /// The code and the message with which the session ends.
    pub(crate) async fn refusal(&mut self) -> pb::Refused {
        loop {
            match self.next().await {
                Some(Down::Refused(refused)) => {
                    assert!(self.next().await.is_none(), "nothing comes after Refused");
                    return refused;
                }
                Some(_) => {}
                None => panic!("the session ended without a word"),
            }
        }
    }

    pub(crate) async fn heartbeat(&mut self, sequence: u64) {
        self.say(Up::Heartbeat(pb::Heartbeat { sequence })).await;
        loop {
            match self.next().await {
                Some(Down::HeartbeatAck(ack)) => return assert_eq!(ack.sequence, sequence),
                Some(Down::Refused(refused)) => panic!("{refused:?}"),
                Some(_) => {}
                None => panic!("the session ended"),
            }
        }
    }
}
