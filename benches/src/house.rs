//! What the benches of the gateway stand in: a durable PostgreSQL of their own, keys, nodes, and gateways as processes.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use pki::{Realm, csr::Csr, issue::TlsIdentity, keys::Keys, node_key::NodeKey, worker::Signature};
use prost::Message as _;
use proto::agent::v1 as pb;
use reconciler::{join::Signer, reconcile::SpecSigner as _};
use schema::{
    clock::{Clock as _, SystemClock},
    command::{CommandKind, CommandUpdate, UpdateState},
    generation::IdentityGeneration,
    id::{BootId, CommandId, JournalId, NodeId},
    time::Duration,
};
use store::{
    Db,
    commands::{self, NewCommand, Signed, Unsigned},
    embedded::{Config, Embedded},
    migrate, node_certs, nodes,
};
use tempfile::TempDir;

use crate::measure::{children_of, memory_of, seconds_of};

/// The trust domain and the fleet of every bench.
pub(crate) const FLEET: (&str, &str) = ("bench.local", "fleet_bench");
/// What the keys in the folder are sealed with.
pub(crate) const SECRET: &[u8] = b"bench";
const NODES_PER_COMMIT: usize = 500;

/// A node, from its own side.
pub(crate) struct Machine {
    pub(crate) id: NodeId,
    pub(crate) key: NodeKey,
    pub(crate) identity: TlsIdentity,
    pub(crate) journal: JournalId,
}

/// What each node will say last about its commands: made with them, so that a storm does not wait for the keys of its nodes.
pub(crate) type LastWords = Arc<Mutex<HashMap<CommandId, pb::CommandUpdate>>>;

pub(crate) struct House {
    pub(crate) db: Db,
    pub(crate) keys: Keys,
    pub(crate) realm: Realm,
    pub(crate) signer: Arc<Signer>,
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) last_words: LastWords,
    server: Embedded,
    dir: TempDir,
}

impl House {
    pub(crate) async fn with(count: usize) -> Result<Self> {
        pki::install_provider();
        let dir = tempfile::tempdir().context("a temporary folder")?;
        let server = Embedded::start(Config { dir: dir.path().join("pg"), fast: false }).await?;
        migrate::run(&server.db_config()).await?;
        let db = Db::connect(&server.db_config()).await?;
        let now = SystemClock.now();
        let keys = Keys::generate(FLEET.0, now)?;
        let realm = Realm::new(FLEET.0, FLEET.1);
        let signer = Arc::new(Signer::new(keys.command_root().clone(), realm.clone(), now));
        std::fs::write(dir.path().join("keys"), keys.seal(SECRET))?;
        std::fs::write(dir.path().join("database"), server.db_config().url())?;
        let (machines, last_words) = (Vec::new(), LastWords::default());
        let mut this = Self { db, keys, realm, signer, machines, last_words, server, dir };
        this.fill(count).await?;
        Ok(this)
    }

    async fn fill(&mut self, count: usize) -> Result<()> {
        let (issuer, now) = (self.keys.node_issuer(), SystemClock.now());
        while self.machines.len() < count {
            let mut txn = self.db.begin().await?;
            for _ in 0..NODES_PER_COMMIT.min(count - self.machines.len()) {
                let (id, key) = (NodeId::generate(), NodeKey::generate());
                let issued = issuer.issue(&Csr::parse(&key.request())?, id, None, now)?;
                let name = format!("n-{}", self.machines.len()).parse()?;
                nodes::insert(&mut txn, &nodes::NewNode::unknown(id, name)).await?;
                let certificate = node_certs::NodeCert {
                    serial: issued.serial.to_bytes(),
                    node_id: id,
                    public_key: key.public().as_bytes().to_vec(),
                    identity_generation: IdentityGeneration(1),
                    not_before: now,
                    not_after: Duration::from_secs(86_400).after(now),
                    revoked_at: None,
                    allowed_kinds: None,
                    node_name: None,
                };
                node_certs::insert(&mut txn, &certificate).await?;
                let identity = key.identity(issued.chain);
                self.machines.push(Arc::new(Machine { id, key, identity, journal: JournalId::generate() }));
            }
            txn.commit().await?;
        }
        Ok(())
    }

    /// Queues a command for each machine. Nothing can be sent before it is signed.
    pub(crate) async fn queue(&self, machines: impl Iterator<Item = &Arc<Machine>>) -> Result<Vec<Unsigned>> {
        let machines: Vec<&Arc<Machine>> = machines.collect();
        let mut all = Vec::with_capacity(machines.len());
        for machines in machines.chunks(NODES_PER_COMMIT) {
            let mut txn = self.db.begin().await?;
            for machine in machines {
                let new = NewCommand {
                    node_id: machine.id,
                    kind: CommandKind::InventoryRefresh,
                    payload: serde_json::json!({}),
                    idempotency_key: CommandId::generate().to_string(),
                    not_after: Duration::from_secs(3_600).after(SystemClock.now()),
                    min_generation: None,
                    batch_id: None,
                    secrets: Vec::new(),
                    created_by: "bench".to_owned(),
                };
                let queued = commands::enqueue(&mut txn, &new).await?;
                let id = queued.command.id;
                all.push(Unsigned { id, node_id: machine.id, body: queued.body });
                self.last_words.lock().unwrap_or_else(PoisonError::into_inner).insert(id, self.last_word(machine, id));
            }
            txn.commit().await?;
        }
        Ok(all)
    }

    /// Signatures that are not put down yet.
    pub(crate) fn signed(&self, commands: &[Unsigned]) -> Vec<Signed> {
        let now = SystemClock.now();
        let one = |command: &Unsigned| {
            let signature = wire(self.signer.sign_command(command.node_id, &command.body, now)).encode_to_vec();
            Signed { id: command.id, body: None, signature, journal: None }
        };
        commands.iter().map(one).collect()
    }

    fn last_word(&self, machine: &Machine, id: CommandId) -> pb::CommandUpdate {
        let state = UpdateState::Succeeded;
        let update = CommandUpdate::new(id, machine.id, state, machine.journal, BootId::generate()).to_bytes();
        let signature = machine.key.sign_command_update(&self.realm, machine.id, &update);
        pb::CommandUpdate { update, signature }
    }

    /// Puts signatures down: from here on the commands can be sent.
    pub(crate) async fn sign(db: &Db, signed: &[Signed]) -> Result<()> {
        let mut txn = db.begin().await?;
        commands::sign(&mut txn, signed).await?;
        Ok(txn.commit().await?)
    }

    /// The processor time of PostgreSQL, of the processes that it has at the moment.
    pub(crate) fn database_seconds(&self) -> f64 {
        self.server.pid().into_iter().flat_map(children_of).map(seconds_of).sum()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) async fn close(self) {
        self.db.close().await;
        self.server.stop().await;
    }
}

/// A signature as it travels.
pub(crate) fn wire(signature: Signature) -> pb::Signature {
    let Signature { worker, root_signature, signature } = signature;
    pb::Signature { worker, root_signature, signature }
}

/// The product, or the limit: the same TLS and the same streams with nothing behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Product,
    Probe,
}

/// A gateway that runs as a process.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Served {
    pub(crate) fn start(kind: Kind, dir: &Path) -> Result<Self> {
        let word = if kind == Kind::Product { "product" } else { "probe" };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", word])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the {word} did not start"))?;
        Ok(Self { address, child })
    }

    /// What it has in memory, in kB.
    pub(crate) fn resident(&self) -> f64 {
        memory_of(self.child.id(), "VmRSS:")
    }

    /// The processor time that it has used.
    pub(crate) fn seconds(&self) -> f64 {
        seconds_of(self.child.id())
    }

    /// As `kill -9` does.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
