//! A control plane in this process, just large enough to be joined and to open sessions: real keys, real TLS.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use pki::{
    Realm,
    anchor::{Anchor, AnchorTrust},
    batch::{
        Approval, BatchApproval, BatchHeader, BreakglassApproval, Leaf, merkle,
        testing::{self as people, Fleet, Person},
    },
    bundle::TrustBundle,
    csr::Csr,
    keys::Keys,
    node_key::NodeKey,
    report::RenewalAsked,
    sealed::SealedToken,
    statement::JoinIdentity,
    tls::{ServingCertificate, gateway_server},
    token::{Token, TokenKind},
    trust::{policy::Policy, statement::Under},
    worker::{Signature, WorkerKey},
};
use proto::agent::v1::{
    self as pb, gateway_frame,
    join_server::{Join, JoinServer},
    node_frame,
    session_server::{Session, SessionServer},
};
use schema::{
    clock::ManualClock,
    command::{CommandBody, CommandKind},
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::{BootId, CommandId, JournalId, NodeId},
    name::Name,
    time::Timestamp,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    command::{Pen, journal::Entry, quorum::Guard},
    dial::Endpoint,
    hardware::{Described, SAMPLE_8XH100},
    join,
    policies::{Offered, Policies},
};

pub(crate) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

/// What the control plane holds and saw.
pub(crate) struct Plane {
    pub(crate) anchor: Anchor,
    pub(crate) token: Token,
    pub(crate) node: NodeId,
    /// The requests that came, exactly.
    pub(crate) requests: Mutex<Vec<pb::JoinRequest>>,
    /// So many answers are lost on their way.
    pub(crate) lose: AtomicU32,
    /// Instead of an answer.
    pub(crate) refuse: Mutex<Option<Status>>,
    /// So many sessions are refused because of an old journal.
    pub(crate) old: AtomicU32,
    /// The spec that sessions get.
    pub(crate) spec: Mutex<(u64, String)>,
    /// What nodes said in their sessions.
    pub(crate) frames: mpsc::UnboundedSender<node_frame::Frame>,
    keys: Keys,
    worker: WorkerKey,
}

fn message(signature: Signature) -> pb::Signature {
    pb::Signature { worker: signature.worker, root_signature: signature.root_signature, signature: signature.signature }
}

impl Plane {
    /// Starts a control plane; its address, itself, and what nodes will say.
    pub(crate) async fn start() -> (Endpoint, Arc<Self>, mpsc::UnboundedReceiver<node_frame::Frame>) {
        let keys = Keys::generate("bc.local", now()).expect("keys");
        let anchor = keys.anchor("fleet-one");
        let worker = keys.command_root().certify(&anchor.realm(), now());
        let (frames, said) = mpsc::unbounded_channel();
        let plane = Arc::new(Self {
            token: Token::mint(TokenKind::Join, "01abc"),
            node: NodeId::generate(),
            requests: Mutex::default(),
            lose: AtomicU32::new(0),
            refuse: Mutex::default(),
            old: AtomicU32::new(0),
            spec: Mutex::new((1, "{}".to_owned())),
            frames,
            worker,
            anchor,
            keys,
        });
        let endpoint = plane.serve().await;
        (endpoint, plane, said)
    }

    /// Listens on another port, as another gateway would.
    pub(crate) async fn serve(self: &Arc<Self>) -> Endpoint {
        let serving = self.keys.issue_serving(&["127.0.0.1".to_owned()], now()).expect("a certificate");
        let serving = ServingCertificate::new(&serving).expect("fits");
        let config = gateway_server(serving, Arc::new(ManualClock::new(now())));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (accepted, incoming) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    accepted.send(Ok::<_, std::io::Error>(stream)).await.ok();
                }
            }
        });
        let router = tonic::transport::Server::builder()
            .add_service(JoinServer::from_arc(Arc::clone(self)))
            .add_service(SessionServer::from_arc(Arc::clone(self)));
        tokio::spawn(router.serve_with_incoming(ReceiverStream::new(incoming)));
        format!("https://{address}").parse().expect("an address")
    }

    /// A request to join it.
    pub(crate) fn request(&self, endpoint: &Endpoint, state: &std::path::Path) -> join::Request {
        join::Request {
            endpoints: vec![endpoint.clone()],
            pin: self.anchor.pin(),
            token: Some(self.token.clone()),
            attest: crate::attest::Attest::default(),
            state: state.to_owned(),
            hardware: Arc::new(Described::parse(SAMPLE_8XH100, Some("one"), &[]).expect("good")),
            patience: std::time::Duration::from_secs(90),
            force: false,
        }
    }

    fn bundle(&self) -> pb::SignedTrustBundle {
        let signed = self.keys.command_root().sign_bundle(&TrustBundle::of_anchor(&self.anchor, 1));
        pb::SignedTrustBundle { bundle: signed.bytes, signature: signed.signature }
    }

    fn chain(&self, csr: &Csr) -> Vec<Vec<u8>> {
        let issued = self.keys.node_issuer().issue(csr, self.node, None, now()).expect("issued");
        issued.chain.iter().map(|der| der.to_vec()).collect()
    }

    fn answer(&self, request: &pb::JoinRequest) -> pb::JoinResponse {
        let csr = Csr::parse(&request.csr).expect("a request");
        let sealed = request.token.clone().expect("a token");
        let sealed = SealedToken {
            key_id: sealed.key_id,
            encapsulated_key: sealed.encapsulated_key,
            ciphertext: sealed.ciphertext,
        };
        let token = self.keys.join_keys()[0].open(&sealed, csr.hash(), "fleet-one").expect("opens");
        assert!(token.matches(&self.token.hash()));
        let (identity, signature) = self.worker.sign_identity(&JoinIdentity {
            node_id: self.node,
            node_name: "node-one".into(),
            pool: Some("h100".into()),
            trust_domain: "bc.local".into(),
            fleet_id: "fleet-one".into(),
            identity_generation: IdentityGeneration(1),
            kinds: None,
            csr: csr.hash(),
        });
        pb::JoinResponse {
            identity,
            signature: Some(message(signature)),
            certificate_chain: self.chain(&csr),
            trust_bundle: Some(self.bundle()),
        }
    }
}

#[tonic::async_trait]
impl Join for Plane {
    async fn get_anchor(&self, _: Request<pb::GetAnchorRequest>) -> Result<Response<pb::GetAnchorResponse>, Status> {
        Ok(Response::new(pb::GetAnchorResponse { anchor: self.anchor.to_bytes() }))
    }

    async fn join_challenge(
        &self,
        request: Request<pb::JoinChallengeRequest>,
    ) -> Result<Response<pb::JoinChallengeResponse>, Status> {
        let challenge = self.keys.join_challenge_key().give(request.into_inner().csr_hash, now());
        Ok(Response::new(pb::JoinChallengeResponse { challenge, tpm: None }))
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let request = request.into_inner();
        self.requests.lock().expect("whole").push(request.clone());
        if let Some(status) = self.refuse.lock().expect("whole").clone() {
            return Err(status);
        }
        let answer = self.answer(&request);
        let lost = self.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if lost.is_ok() { Err(Status::unavailable("lost")) } else { Ok(Response::new(answer)) }
    }

    async fn renew_challenge(
        &self,
        request: Request<pb::RenewChallengeRequest>,
    ) -> Result<Response<pb::RenewChallengeResponse>, Status> {
        let request = request.into_inner();
        let chain = [request.certificate.as_slice().into()];
        let verifier = self.keys.node_verifier();
        let current = verifier.identify(&chain, pki::verify::Validity::Open).expect("an own certificate");
        let signature = self.worker.sign_server_time(self.node, &request.nonce, now());
        let time =
            pb::SignedTime { time: now().to_string(), nonce: request.nonce, signature: Some(message(signature)) };
        Ok(Response::new(pb::RenewChallengeResponse {
            challenge: self.keys.challenge_key().give(&current.serial, now()),
            server_time: Some(time),
            trust_steps: Vec::new(),
        }))
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        let request = request.into_inner();
        let csr = Csr::parse(&request.csr).expect("a request");
        let chain = [request.certificate.into()];
        let verifier = self.keys.node_verifier();
        let current = verifier.identify(&chain, pki::verify::Validity::Open).expect("an own certificate");
        current
            .public_key
            .verify_possession(
                &self.anchor.realm(),
                &RenewalAsked {
                    csr: csr.hash(),
                    serial: &current.serial,
                    challenge: &request.challenge,
                    claims: &request.claims,
                },
                &request.possession,
            )
            .map_err(|error| Status::permission_denied(error.to_string()))?;
        let answer = pb::RenewResponse {
            certificate_chain: self.chain(&csr),
            trust_bundle: Some(self.bundle()),
            ..pb::RenewResponse::default()
        };
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl Session for Plane {
    type OpenStream = Pin<Box<dyn Stream<Item = Result<pb::GatewayFrame, Status>> + Send>>;

    async fn open(&self, request: Request<Streaming<pb::NodeFrame>>) -> Result<Response<Self::OpenStream>, Status> {
        let mut up = request.into_inner();
        let Some(Ok(pb::NodeFrame { frame: Some(node_frame::Frame::Hello(hello)) })) = up.next().await else {
            return Err(Status::invalid_argument("no hello"));
        };
        let (down, stream) = mpsc::channel(16);
        if self.old.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            let refused = pb::Refused { code: "JOURNAL_OLD".into(), message: String::new() };
            let frame = Some(gateway_frame::Frame::Refused(refused));
            down.send(Ok(pb::GatewayFrame { frame })).await.expect("room");
            self.frames.send(node_frame::Frame::Hello(hello)).ok();
            return Ok(Response::new(Box::pin(ReceiverStream::new(stream))));
        }
        let signature = self.worker.sign_server_time(self.node, &hello.nonce, now());
        let time =
            pb::SignedTime { time: now().to_string(), nonce: hello.nonce.clone(), signature: Some(message(signature)) };
        let welcome = pb::Welcome {
            epoch: 1,
            server_time: Some(time),
            trust_bundle: Some(self.bundle()),
            heartbeat_seconds: 15,
            gateway_id: "gw".into(),
            capabilities: vec![schema::report::DRIFT_CAPABILITY.into()],
            trust_steps: Vec::new(),
        };
        let (generation, spec) = self.spec.lock().expect("whole").clone();
        let signature = self.worker.sign_desired_state(self.node, Generation(generation), spec.as_bytes());
        let desired = pb::DesiredState { generation, spec: spec.into_bytes(), signature: Some(message(signature)) };
        for frame in [gateway_frame::Frame::Welcome(welcome), gateway_frame::Frame::DesiredState(desired)] {
            down.send(Ok(pb::GatewayFrame { frame: Some(frame) })).await.expect("room");
        }
        let frames = self.frames.clone();
        frames.send(node_frame::Frame::Hello(hello)).ok();
        tokio::spawn(async move {
            while let Some(Ok(pb::NodeFrame { frame: Some(frame) })) = up.next().await {
                frames.send(frame).ok();
            }
            drop(down);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// A payload that a kind takes.
pub(crate) fn payload(kind: CommandKind) -> Value {
    let said = match kind {
        CommandKind::GpuReset => json!({ "gpus": ["GPU-8f2c1f4e-0000-0000-0000-000000000001"] }),
        CommandKind::DaemonUpgrade => json!({ "version": "0.2.0", "manifest": "{}" }),
        _ => json!({}),
    };
    kind.check_payload(&said).expect("a payload")
}

/// The pen of a node that nobody knows.
pub(crate) fn pen(journal: JournalId) -> Pen {
    Pen {
        node: NodeId::generate(),
        realm: Realm::new("bc.local", "fleet-one"),
        key: Arc::new(NodeKey::generate()),
        journal,
        boot: BootId::generate(),
    }
}

/// A command for it that may begin for ten minutes.
pub(crate) fn command(pen: &Pen, kind: CommandKind, seq: u64) -> CommandBody {
    CommandBody {
        id: CommandId::generate(),
        node_id: pen.node,
        kind,
        seq,
        payload: payload(kind),
        not_after: "2026-03-01T12:10:00Z".parse().expect("a time"),
        min_generation: None,
        batch: None,
        secrets: Vec::new(),
        journal: None,
    }
}

/// What the journal holds of a command that was accepted just now.
pub(crate) fn entry(body: &CommandBody, boot_id: BootId) -> Entry {
    Entry {
        id: body.id,
        seq: body.seq,
        kind: body.kind.to_string(),
        not_after: body.not_after,
        body: Digest::of(body.to_bytes()),
        signature: Digest::of(""),
        at: now(),
        boot_id,
        permitted: None,
        runs: Vec::new(),
        ended: None,
        bytes: 0,
    }
}

/// Two people whose approval a node asks for, and the fleet that they sign for.
pub(crate) struct People {
    pub(crate) fleet: Fleet,
    pub(crate) ada: Person,
    pub(crate) bob: Person,
    pub(crate) document: String,
    pub(crate) policy: Policy,
}

impl People {
    /// A policy that allows so many destructive commands outside of batches in an hour.
    pub(crate) fn new(unbatched: u32) -> Self {
        let (ada, bob) = (Person::new("ada"), Person::new("bob"));
        let head = format!("format 1; epoch 1; unbatched-destructive-per-hour {unbatched};");
        let document = Self::text(&ada, &bob, &head, "");
        let policy = people::policy(&document);
        Self { fleet: Fleet::new("bc.local"), ada, bob, document, policy }
    }

    /// A policy of these two.
    pub(crate) fn text(ada: &Person, bob: &Person, head: &str, more: &str) -> String {
        let one = |person: &Person| {
            let (name, key) = (&person.name, person.line());
            format!("principal \"{name}\" {{ kind \"human\"; roles \"admin\"; key \"{key}\"; }}\n")
        };
        let tier = |word: &str, kinds: &str| {
            format!("{word} {{ commands {kinds}; roles \"admin\"; threshold 1; max-nodes 8; max-ttl \"1h\"; }}\n")
        };
        format!(
            "policy {{ {head} }}\n{}{}path \"**\" {{ roles \"admin\"; }}\ntrust {{ roles \"admin\"; threshold 1; }}\n\
             revoke {{ roles \"admin\"; }}\n{}{}{more}",
            one(ada),
            one(bob),
            tier("tier \"reboot\"", "\"node.reboot\" \"gpu.reset\""),
            tier("breakglass", "\"node.reboot\"")
        )
    }

    /// The next policy, agreed to by Ada.
    pub(crate) fn next(&self, more: &str) -> (Policy, Offered) {
        let head = format!("format 1; epoch 2; prev \"{}\";", self.policy.digest());
        let document = Self::text(&self.ada, &self.bob, &head, more);
        let policy = people::policy(&document);
        let statements = vec![self.fleet.trust(&self.ada, self.policy.digest(), &policy)];
        (policy, Offered { epoch: 2, document: document.into_bytes(), statements })
    }

    pub(crate) fn trust(&self) -> AnchorTrust {
        AnchorTrust { fleet: self.fleet.id, digest: self.policy.digest() }
    }

    pub(crate) fn first(&self) -> Offered {
        Offered { epoch: 1, document: self.document.clone().into_bytes(), statements: Vec::new() }
    }

    /// A node that knows the fleet and has no policy yet.
    pub(crate) fn pinned(&self) -> Policies {
        Policies::pinned(&Realm::new("bc.local", "fleet-one"), self.trust())
    }

    /// A node that believes the policy.
    pub(crate) fn policies(&self) -> Policies {
        let mut policies = self.pinned();
        assert!(policies.take(&[self.first()], &[]).changed);
        policies
    }

    /// What such a node holds against destructive commands.
    pub(crate) fn guard(&self) -> Guard {
        Guard {
            policies: Some(Arc::new(self.policies())),
            name: "node-one".to_owned(),
            identity_generation: IdentityGeneration(1),
            hardware_key: Some("none".to_owned()),
            ..Guard::default()
        }
    }

    /// A batch of one command, and its leaf.
    pub(crate) fn batch(&self, name: &str, body: &CommandBody, journal: JournalId) -> BatchApproval {
        let leaf = Leaf {
            index: 0,
            name: Name::new("node-one").expect("a name"),
            node: body.node_id,
            identity_generation: IdentityGeneration(1),
            hardware_key: "none".to_owned(),
            journal,
            kind: body.kind.to_string(),
            payload: Leaf::payload(&body.payload),
            min_generation: Generation::NONE,
            preconditions: BTreeMap::new(),
        };
        let header = BatchHeader {
            trust_domain: "bc.local".to_owned(),
            fleet: self.fleet.id,
            name: Name::new(name).expect("a name"),
            tier: Name::new("reboot").expect("a name"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: now(),
            expires: "2026-03-01T13:00:00Z".parse().expect("a time"),
            plan_commit: people::object("plan"),
            plan_tree: people::object("tree"),
            under: Under { epoch: self.policy.epoch(), digest: self.policy.digest() },
            reason: "kernel".to_owned(),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
            leaves: 1,
            root: merkle::root(&[leaf.hash()]),
        };
        BatchApproval { header, leaf, proof: Vec::new(), statements: Vec::new() }
    }

    /// What travels with a command that Bob approved.
    pub(crate) fn approval(&self, name: &str, body: &CommandBody, journal: JournalId) -> Vec<u8> {
        let mut batch = self.batch(name, body, journal);
        batch.statements.push(self.fleet.approve(&self.bob, &batch.header));
        Approval::Batch(Box::new(batch)).to_bytes()
    }

    /// What travels with a command that Ada allows in an emergency.
    pub(crate) fn emergency(&self, from: &str, until: &str) -> Vec<u8> {
        let window = (from.parse().expect("a time"), until.parse().expect("a time"));
        let said = self.fleet.breakglass(&self.ada, ("node.reboot", "node-one"), &self.policy, window);
        Approval::Breakglass(BreakglassApproval { statements: vec![said] }).to_bytes()
    }
}
