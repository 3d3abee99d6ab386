//! One control plane without a reconciler: keys, a database, an authority, and as many gateways as a test wants.

use std::{net::SocketAddr, sync::Arc};

use gateway::{Config, GatewayError, InProcess, Limits, Timing, run};
use pki::{
    Realm,
    bundle::TrustBundle,
    csr::Csr,
    issue::{NodeIssuer, TlsIdentity},
    keys::Keys,
    node_key::NodeKey,
    tls::ServingCertificate,
    worker::{Signature, WorkerKey},
};
use prost::Message as _;
use proto::{
    agent::v1 as pb,
    internal::v1::{self as internal, authority_server::Authority},
};
use schema::{
    clock::{SharedClock, SystemClock},
    command::{CommandKind, CommandState, CommandUpdate},
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::{CommandId, GatewayId, JournalId, NodeId},
    time::{Duration, Timestamp},
};
use store::{
    Db,
    commands::{self, NewCommand},
    node_certs, nodes, outcomes, pools,
    testing::TestDb,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::node::Node;

/// Longer than anything takes; only a failing test waits for it.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);

pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) keys: Keys,
    pub(crate) realm: Realm,
    pub(crate) clock: SharedClock,
    pub(crate) worker: Arc<WorkerKey>,
    pub(crate) test_db: Option<TestDb>,
}

/// A gateway with a runtime and connections of its own, so that it can die like a process.
pub(crate) struct Apart {
    pub(crate) address: SocketAddr,
    cancel: CancellationToken,
    runtime: tokio::runtime::Runtime,
    task: JoinHandle<Result<(), GatewayError>>,
}

impl Apart {
    /// Nothing of it runs any more, and its sockets close: what `kill -9` leaves.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }

    /// What SIGTERM does.
    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the gateway ends").unwrap().unwrap();
        self.runtime.shutdown_background();
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) serving: Arc<ServingCertificate>,
    pub(crate) cancel: CancellationToken,
    task: JoinHandle<Result<(), GatewayError>>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the gateway ends").unwrap().unwrap();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let test_db = TestDb::create().await;
        let mut world = Self::with(test_db.db().clone());
        world.test_db = Some(test_db);
        world
    }

    pub(crate) fn with(db: Db) -> Self {
        pki::install_provider();
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::generate("test.local", clock.now()).unwrap();
        let realm = Realm::new("test.local", "fleet_test");
        let worker = Arc::new(keys.command_root().certify(&realm, clock.now()));
        Self { db, keys, realm, clock, worker, test_db: None }
    }

    pub(crate) fn authority(&self) -> Arc<TestAuthority> {
        let anchor = self.keys.anchor(&self.realm.fleet_id);
        let bundle = self.keys.command_root().sign_bundle(&TrustBundle::of_anchor(&anchor, 1));
        Arc::new(TestAuthority {
            anchor: anchor.to_bytes(),
            bundle: pb::SignedTrustBundle { bundle: bundle.bytes, signature: bundle.signature },
            worker: Arc::clone(&self.worker),
            clock: Arc::clone(&self.clock),
        })
    }

    pub(crate) fn gateway(&self) -> Running {
        self.gateway_with(|_| {})
    }

    pub(crate) fn gateway_with(&self, change: impl FnOnce(&mut Config)) -> Running {
        let (mut config, serving, address) = self.config();
        change(&mut config);
        let cancel = CancellationToken::new();
        let task = tokio::spawn(run(config, cancel.clone()));
        Running { address, serving, cancel, task }
    }

    pub(crate) fn gateway_apart(&self) -> Apart {
        let (mut config, _, address) = self.config();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let database = self.test_db.as_ref().unwrap().config();
        let cancel = CancellationToken::new();
        let task = runtime.spawn({
            let cancel = cancel.clone();
            async move {
                config.db = Db::lazy(&database);
                run(config, cancel).await
            }
        });
        Apart { address, cancel, runtime, task }
    }

    fn config(&self) -> (Config, Arc<ServingCertificate>, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let identity = self.keys.issue_serving(&["127.0.0.1".to_owned()], self.clock.now()).unwrap();
        let serving = ServingCertificate::new(&identity).unwrap();
        let config = Config {
            gateway_id: GatewayId::generate(),
            listener,
            serving: Arc::clone(&serving),
            verifier: self.keys.node_verifier(),
            dev: false,
            db: self.db.clone(),
            control_plane: Arc::new(InProcess::new(self.authority())),
            clock: Arc::clone(&self.clock),
            limits: Limits::default(),
            timing: Timing {
                check: Duration::from_secs(1),
                liveness: Duration::from_secs(1),
                // Longer than a test waits: what ends a connection is what the test is about.
                idle: Duration::from_secs(3600),
                ..Timing::default()
            },
        };
        (config, serving, address)
    }

    /// A node that joined: a row, a key, a certificate and its record.
    pub(crate) async fn node(&self) -> Node {
        let node = self.stranger(&self.keys.node_issuer());
        let name = format!("n-{}", &node.id.to_string()[24..]).parse().unwrap();
        let row = nodes::NewNode::unknown(node.id, name);
        let mut txn = self.db.begin().await.unwrap();
        nodes::insert(&mut txn, &row).await.unwrap();
        let certificate = node_certs::NodeCert {
            serial: node.serial.to_bytes(),
            node_id: node.id,
            public_key: node.key.public().as_bytes().to_vec(),
            identity_generation: IdentityGeneration(1),
            not_before: self.clock.now(),
            not_after: Duration::from_secs(86_400).after(self.clock.now()),
            revoked_at: None,
            allowed_kinds: None,
            node_name: None,
        };
        node_certs::insert(&mut txn, &certificate).await.unwrap();
        txn.commit().await.unwrap();
        node
    }

    /// A key and a certificate that the control plane has no record of.
    pub(crate) fn stranger(&self, issuer: &NodeIssuer) -> Node {
        let (id, key) = (NodeId::generate(), NodeKey::generate());
        let issued = issuer.issue(&Csr::parse(&key.request()).unwrap(), id, None, self.clock.now()).unwrap();
        let identity: TlsIdentity = key.identity(issued.chain);
        Node {
            id,
            serial: issued.serial,
            identity: Some(identity),
            journal: JournalId::generate(),
            realm: self.realm.clone(),
            roots: vec![self.keys.root_certificate()],
            clock: Arc::clone(&self.clock),
            verifier: Some(self.keys.anchor(&self.realm.fleet_id).verifier()),
            key,
        }
    }

    /// Stores the spec of a generation, and pokes.
    pub(crate) async fn set_spec(&self, node: NodeId, generation: u64) -> Vec<u8> {
        let spec = format!(r#"{{"host":{{"sysctl":{{"kernel.panic":"{generation}"}}}}}}"#).into_bytes();
        let signed = signature(self.worker.sign_desired_state(node, Generation(generation), &spec));
        let mut txn = self.db.begin().await.unwrap();
        let before = nodes::lock(&mut txn, node).await.unwrap().unwrap().generation;
        let target = pools::Target {
            digest: Digest::of("target"),
            pool: "h100".parse().unwrap(),
            profile: "base".parse().unwrap(),
            doc: "{}".to_owned(),
        };
        pools::insert_targets(&mut txn, std::slice::from_ref(&target)).await.unwrap();
        let from = nodes::SpecFrom { target: target.digest, overlay: "{}".to_owned() };
        let signature = signed.encode_to_vec();
        let new = nodes::NewSpec {
            generation: Generation(generation),
            bytes: &spec,
            signature: &signature,
            from: &from,
            effect: schema::effect::EffectClass::Live,
        };
        nodes::set_spec(&mut txn, node, before, &new).await.unwrap();
        txn.commit().await.unwrap();
        spec
    }

    /// Queues a command, signs it and pokes.
    pub(crate) async fn command(&self, node: NodeId, kind: CommandKind) -> CommandId {
        let new = NewCommand {
            node_id: node,
            kind,
            payload: serde_json::json!({}),
            idempotency_key: CommandId::generate().to_string(),
            not_after: Duration::from_secs(3600).after(self.clock.now()),
            min_generation: None,
            batch_id: None,
            secrets: Vec::new(),
            created_by: "test".to_owned(),
        };
        let mut txn = self.db.begin().await.unwrap();
        let queued = commands::enqueue(&mut txn, &new).await.unwrap();
        txn.commit().await.unwrap();
        let signed = signature(self.worker.sign_command(node, &queued.body)).encode_to_vec();
        let mut txn = self.db.begin().await.unwrap();
        let signed = commands::Signed { id: queued.command.id, body: None, signature: signed, journal: None };
        commands::sign(&mut txn, &[signed]).await.unwrap();
        txn.commit().await.unwrap();
        queued.command.id
    }

    pub(crate) async fn command_state(&self, id: CommandId) -> CommandState {
        commands::find(&self.db, id).await.unwrap().unwrap().state
    }

    /// Waits until a command has a state.
    pub(crate) async fn comes_to(&self, id: CommandId, state: CommandState) {
        eventually(|| async { (self.command_state(id).await == state).then_some(()) }).await;
    }

    /// Reads last words as the control plane does, until it is aborted.
    pub(crate) fn reader(&self, nodes: Vec<(NodeId, pki::node_key::NodePublicKey)>) -> JoinHandle<()> {
        let (db, realm) = (self.db.clone(), self.realm.clone());
        tokio::spawn(async move {
            loop {
                for (node, key) in &nodes {
                    let words = commands::updates(&db, *node).await.unwrap_or_default();
                    if words.is_empty() {
                        continue;
                    }
                    let mut txn = db.begin().await.unwrap();
                    let rows: Vec<i64> = words.iter().map(|word| word.row).collect();
                    for commands::StoredUpdate { update, .. } in words {
                        key.verify_command_update(&realm, *node, &update.payload, &update.signature).unwrap();
                        let said = CommandUpdate::read(&update.payload).unwrap();
                        let ending = commands::Ending {
                            event: said.state.event(),
                            reason: said.reason,
                            message: None,
                            result: None,
                            evidence: None,
                        };
                        commands::settle(&mut txn, *node, said.command, &ending).await.unwrap();
                    }
                    commands::remove_updates(&mut txn, &rows).await.unwrap();
                    txn.commit().await.unwrap();
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
    }

    /// The stored reason of the last refused session, once there is one of this code.
    pub(crate) async fn recorded(&self, key: &str, code: &str) -> String {
        eventually(|| async {
            let outcome = outcomes::find(&self.db, "session", key).await.unwrap()?;
            (outcome.state == "error" && outcome.reason == code).then_some(outcome.message)
        })
        .await
    }
}

/// Looks until there is an answer.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("it comes true in the end")
}

pub(crate) fn signature(signature: Signature) -> pb::Signature {
    let Signature { worker, root_signature, signature } = signature;
    pb::Signature { worker, root_signature, signature }
}

/// Signs for real; lets nobody join.
pub(crate) struct TestAuthority {
    anchor: Vec<u8>,
    bundle: pb::SignedTrustBundle,
    worker: Arc<WorkerKey>,
    clock: SharedClock,
}

#[tonic::async_trait]
impl Authority for TestAuthority {
    async fn get_anchor(&self, _: Request<pb::GetAnchorRequest>) -> Result<Response<pb::GetAnchorResponse>, Status> {
        Ok(Response::new(pb::GetAnchorResponse { anchor: self.anchor.clone() }))
    }

    async fn join_challenge(
        &self,
        request: Request<pb::JoinChallengeRequest>,
    ) -> Result<Response<pb::JoinChallengeResponse>, Status> {
        let challenge = request.into_inner().csr_hash;
        Ok(Response::new(pb::JoinChallengeResponse { challenge, ..Default::default() }))
    }

    async fn join(&self, request: Request<pb::JoinRequest>) -> Result<Response<pb::JoinResponse>, Status> {
        let peer = request.metadata().get(gateway::authority::PEER_METADATA).unwrap().to_str().unwrap();
        let mut status = Status::permission_denied(format!("the token of {peer} has expired"));
        status.metadata_mut().insert(gateway::authority::CODE_METADATA, "token-expired".parse().unwrap());
        Err(status)
    }

    async fn renew_challenge(
        &self,
        _: Request<pb::RenewChallengeRequest>,
    ) -> Result<Response<pb::RenewChallengeResponse>, Status> {
        Ok(Response::new(pb::RenewChallengeResponse { challenge: vec![1], ..Default::default() }))
    }

    async fn renew(&self, _: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        Ok(Response::new(pb::RenewResponse { certificate_chain: vec![vec![1]], ..pb::RenewResponse::default() }))
    }

    async fn request_secrets(
        &self,
        request: Request<pb::SecretRequest>,
    ) -> Result<Response<pb::SecretResponse>, Status> {
        Ok(Response::new(pb::SecretResponse { ciphertext: request.into_inner().request, ..Default::default() }))
    }

    async fn server_time(
        &self,
        request: Request<internal::ServerTimeRequest>,
    ) -> Result<Response<internal::ServerTimeResponse>, Status> {
        let internal::ServerTimeRequest { node_id, nonce } = request.into_inner();
        let now: Timestamp = self.clock.now();
        let signed = signature(self.worker.sign_server_time(node_id.parse().unwrap(), &nonce, now));
        let time = pb::SignedTime { time: now.to_string(), nonce, signature: Some(signed) };
        Ok(Response::new(internal::ServerTimeResponse { time: Some(time) }))
    }

    async fn follow_keys(
        &self,
        request: Request<internal::FollowKeysRequest>,
    ) -> Result<Response<internal::FollowKeysResponse>, Status> {
        Ok(Response::new(internal::FollowKeysResponse { revision: request.into_inner().revision, issued: None }))
    }

    async fn trust_bundle(
        &self,
        _: Request<internal::TrustBundleRequest>,
    ) -> Result<Response<internal::TrustBundleResponse>, Status> {
        Ok(Response::new(internal::TrustBundleResponse {
            trust_bundle: Some(self.bundle.clone()),
            ..Default::default()
        }))
    }
}
