//! The parts that run: one set of tasks under one cancellation. When one ends by itself or a signal comes, all end.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pki::{
    Realm,
    issue::TlsIdentity,
    keys::{Keys, SigningKeys, SourceKeys},
    tls::ServingCertificate,
    token::{Token, TokenKind},
    verify::NodeVerifier,
};
use reconciler::{
    api,
    custody::{Custody, SourceCustody},
    join::{self, JoinConfig, JoinService, Signer},
    logs::LogStore,
    reconcile::{Registry, Shared, command::FastSigner, worker},
    source::{self, SourceRole},
};
use schema::{
    cause::chain,
    clock::SharedClock,
    id::{ApiTokenId, GatewayId},
    time::Timestamp,
};
use store::{Db, Role, api_tokens};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    following::{Following, Watched},
    gateway_keys::GatewayHolder,
    identity::{Identity, database},
    keys::KeyDir,
    trust::{self, FleetPlace},
};
use crate::{
    data_dir::ClientFile,
    exit::{During as _, Failure},
};

/// Connections that a process opens ahead: a burst of work finds them and need not log in first.
pub const WARM_CONNECTIONS: u32 = 12;
/// How long the parts may take to end.
const DRAIN: Duration = Duration::from_secs(20);

/// Everything that runs in this process.
#[derive(Debug)]
pub struct Parts {
    db: Db,
    clock: SharedClock,
    host: String,
    cancel: CancellationToken,
    tasks: JoinSet<(&'static str, Result<(), String>)>,
    /// Where bundles of logs go.
    logs: Option<Arc<LogStore>>,
    /// The control plane's keys as they are now, where this process has them.
    keys: watch::Sender<Option<Arc<Keys>>>,
}

/// The part that watches over a guessed trust domain.
const GUESS: &str = "trust domain";

/// Why everything ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A signal came.
    Stopped,
    /// The trust domain was guessed, and the fleet names another one.
    Outgrown,
}

/// What has authority: it lets machines in and signs.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Signs specs, answers and time.
    pub signer: Arc<Signer>,
    /// Lets machines in.
    pub joins: Arc<JoinService>,
    /// Knows what rows have to follow from.
    pub custody: Arc<Custody>,
    /// Signs revisions.
    pub source: Arc<SourceCustody>,
}

/// What a process has that only runs controllers, or follows the fleet, or both.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Signs specs and commands, and knows what rows have to follow from.
    pub signing: Option<(Arc<Signer>, Arc<Custody>)>,
    /// Signs revisions.
    pub source: Option<Arc<SourceCustody>>,
}

/// What exports of the audit log are made with.
#[must_use]
pub fn auditor(authority: &Authority) -> api::Auditor {
    api::Auditor { custody: Arc::clone(&authority.custody), joins: Arc::clone(&authority.joins) }
}

impl From<&Authority> for Part {
    fn from(authority: &Authority) -> Self {
        let Authority { signer, custody, source, joins: _ } = authority;
        Self { signing: Some((Arc::clone(signer), Arc::clone(custody))), source: Some(Arc::clone(source)) }
    }
}

impl Parts {
    /// No parts yet.
    #[must_use]
    pub fn new(db: Db, clock: SharedClock) -> Self {
        let host = super::names::host_name().unwrap_or_else(|| "localhost".to_owned());
        Self {
            db,
            clock,
            host,
            cancel: CancellationToken::new(),
            tasks: JoinSet::new(),
            logs: None,
            keys: watch::Sender::new(None),
        }
    }

    /// Uploads bundles of logs to a store.
    #[must_use]
    pub fn with_logs(mut self, store: Option<Arc<LogStore>>) -> Self {
        self.logs = store;
        self
    }

    /// The clock of this process.
    #[must_use]
    pub fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Prepares what has authority. Nothing runs yet.
    #[must_use]
    pub fn authority(&self, identity: &Identity) -> Authority {
        let realm = identity.realm.clone();
        let signer = Arc::new(Signer::new(identity.keys.command_root().clone(), realm.clone(), self.now()));
        let custody = Custody::new(&identity.keys.signing(), &realm.fleet_id);
        let source = SourceCustody::new(&identity.keys.source(), &realm.fleet_id);
        self.db.set_marker(Arc::clone(&custody) as _);
        let joins = JoinService::new(JoinConfig {
            db: self.db.clone(),
            keys: &identity.keys,
            realm,
            dev: identity.dev,
            clock: Arc::clone(&self.clock),
            signer: Arc::clone(&signer),
        });
        Authority { signer, joins: Arc::new(joins), custody, source }
    }

    /// Prepares what signs, for a process that does nothing else with keys.
    #[must_use]
    pub fn part(&self, signing: Option<&SigningKeys>, source: Option<&SourceKeys>, realm: &Realm) -> Part {
        let signing = signing.map(|keys| {
            let signer = Signer::new(keys.command_root().clone(), realm.clone(), self.now());
            (Arc::new(signer), Custody::new(keys, &realm.fleet_id))
        });
        let source = source.map(|keys| SourceCustody::new(keys, &realm.fleet_id));
        match (&signing, &source) {
            (Some((_, custody)), _) => self.db.set_marker(Arc::clone(custody) as _),
            (None, Some(source)) => self.db.set_marker(Arc::clone(source) as _),
            (None, None) => {}
        }
        Part { signing, source }
    }

    /// Takes over the steps of rotations that are made in the key directory, while everything runs.
    pub fn follow_keys(&mut self, place: KeyDir, identity: &Identity, authority: &Authority, pin: api::Pin) {
        let (joins, keys) = (Arc::clone(&authority.joins), self.keys.clone());
        let (custody, source) = (Arc::clone(&authority.custody), Arc::clone(&authority.source));
        self.follow(place, identity.keys.revision(), move |place| {
            let Some(next) = place.control_plane()? else { return Ok(None) };
            joins.use_keys(&next);
            custody.use_keys(&next.signing());
            source.use_keys(&next.source());
            pin.replace(joins.anchor().pin());
            let revision = next.revision();
            keys.send_replace(Some(Arc::new(next)));
            Ok(Some(revision))
        });
    }

    /// The same for a process that only signs.
    pub fn follow_part(&mut self, place: KeyDir, revision: u64, part: &Part) {
        let (part, clock) = (part.clone(), Arc::clone(&self.clock));
        self.follow(place, revision, move |place| {
            let mut revision = None;
            if let Some((signer, custody)) = &part.signing {
                let Some(next) = place.signing()? else { return Ok(None) };
                signer.use_root(next.command_root(), clock.now());
                custody.use_keys(&next);
                revision = Some(next.revision());
            }
            if let Some(source) = &part.source {
                let Some(next) = place.source()? else { return Ok(None) };
                source.use_keys(&next);
                revision = revision.min(Some(next.revision())).or(Some(next.revision()));
            }
            Ok(revision)
        });
    }

    fn follow(
        &mut self,
        place: KeyDir,
        revision: u64,
        take_over: impl FnMut(&KeyDir) -> Result<Option<u64>, Failure> + Send + Sync + 'static,
    ) {
        let holder = format!("{}/{}", self.host, std::process::id());
        let watched = Watched::new(place, revision, take_over);
        let following = Following { db: self.db.clone(), holder, watched };
        let cancel = self.cancel.clone();
        self.spawn("keys", async move {
            following.run(cancel).await;
            Ok::<_, Infallible>(())
        });
    }

    /// Runs the reconcilers of some roles.
    pub fn workers(&mut self, realm: &Realm, part: &Part, roles: &[Role]) {
        let registry = Arc::new(Registry::standard());
        for role in roles {
            let shared = Shared {
                db: self.db.clone(),
                realm: realm.clone(),
                signer: part.signing.as_ref().map(|(signer, _)| Arc::clone(signer) as _),
                custody: part.signing.as_ref().map(|(_, custody)| Arc::clone(custody)),
                logs: self.logs.clone(),
            };
            let (registry, config, cancel) =
                (Arc::clone(&registry), worker::WorkerConfig::new(*role, self.host.clone()), self.cancel.clone());
            self.spawn(role.as_str(), async move {
                worker::run(shared, &registry, config, cancel).await;
                Ok::<_, Infallible>(())
            });
        }
    }

    /// Follows the fleet repository.
    pub fn source(&mut self, place: FleetPlace, custody: Arc<SourceCustody>) {
        let FleetPlace { config, access, data } = place;
        let (db, host, timing) = (self.db.clone(), self.host.clone(), source::Timing::default());
        let role = SourceRole { db, config, access, data, host, timing, custody };
        let cancel = self.cancel.clone();
        self.spawn("source", async move {
            source::run(role, cancel).await;
            Ok::<_, Infallible>(())
        });
    }

    /// Ends everything once the fleet names another trust domain than the one that was guessed.
    pub fn guess(&mut self, place: FleetPlace, keys: KeyDir) {
        let cancel = self.cancel.clone();
        self.spawn(GUESS, async move {
            trust::outgrown(place, keys, cancel).await;
            Ok::<_, Infallible>(())
        });
    }

    /// Signs commands as soon as the API has committed them.
    pub fn fast_signer(&mut self, authority: &Authority) -> FastSigner {
        let (db, logs, cancel) = (self.db.clone(), self.logs.clone(), self.cancel.clone());
        let (signer, run) = FastSigner::new(db, Arc::clone(&authority.signer) as _, logs, cancel);
        self.spawn("command signer", async move {
            run.await;
            Ok::<_, Infallible>(())
        });
        signer
    }

    /// Answers the API.
    pub fn api(&mut self, listener: TcpListener, serving: Arc<ServingCertificate>, app: api::App) {
        let tls = Arc::new(pki::tls::api_server(serving, Arc::clone(&self.clock)));
        let cancel = self.cancel.clone();
        self.spawn("api", async move { api::run(api::Config { listener, tls, app }, cancel).await });
    }

    /// Serves gateways that run apart.
    ///
    /// # Errors
    /// When no internal certificate can be made.
    pub fn internal(
        &mut self,
        listener: TcpListener,
        identity: &Identity,
        authority: &Authority,
    ) -> Result<(), Failure> {
        let keys = Arc::new(identity.keys.clone());
        let tls = super::internal::server(&keys, &self.clock)?;
        let (service, cancel) = (Arc::clone(&authority.joins), self.cancel.clone());
        let following = super::internal::follow(
            Arc::clone(&tls),
            keys,
            self.keys.subscribe(),
            Arc::clone(&self.clock),
            self.cancel.clone(),
        );
        self.spawn("internal certificates", async move {
            following.await;
            Ok::<_, Infallible>(())
        });
        self.spawn("internal", async move { join::serve(service, listener, tls, cancel).await });
        Ok(())
    }

    /// Holds the sessions of nodes.
    ///
    /// # Errors
    /// When the port cannot be handed over.
    pub fn gateway(
        &mut self,
        listener: TcpListener,
        serving: Arc<ServingCertificate>,
        verifier: NodeVerifier,
        dev: bool,
        control_plane: Arc<dyn gateway::ControlPlane>,
    ) -> Result<(), Failure> {
        let config = gateway::Config {
            gateway_id: GatewayId::generate(),
            listener: listener.into_std().during("cannot hand the port to the gateway")?,
            serving,
            verifier,
            dev,
            db: self.db.clone(),
            control_plane,
            clock: Arc::clone(&self.clock),
            limits: gateway::Limits::default(),
            timing: gateway::Timing::default(),
        };
        let cancel = self.cancel.clone();
        self.spawn("gateway", async move { gateway::run(config, cancel).await });
        Ok(())
    }

    /// Makes a serving certificate, and makes it again before it is too old.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn serving(&mut self, keys: &Keys, names: Vec<String>) -> Result<Arc<ServingCertificate>, Failure> {
        let what = "cannot make a serving certificate";
        let first = keys.issue_serving(&names, self.now()).during(what)?;
        let serving = ServingCertificate::new(&first).during(what)?;
        let renewed = Arc::clone(&serving);
        let (keys, clock, cancel) = (Arc::new(keys.clone()), Arc::clone(&self.clock), self.cancel.clone());
        let changed = self.keys.subscribe();
        self.spawn("certificates", async move {
            let issue = |now: Option<Arc<Keys>>| now.as_ref().unwrap_or(&keys).issue_serving(&names, clock.now());
            renew(&renewed, first, issue, changed, &clock, cancel).await;
            Ok::<_, Infallible>(())
        });
        Ok(serving)
    }

    /// Keeps `client.json` at what joining machines pin and people believe, when keys are rotated.
    pub fn keep_client(&mut self, path: PathBuf, fleet_id: &str) {
        let (mut changed, fleet_id, cancel) = (self.keys.subscribe(), fleet_id.to_owned(), self.cancel.clone());
        self.spawn("client file", async move {
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return Ok::<_, Infallible>(()),
                    ended = changed.changed() => if ended.is_err() { return Ok(()) },
                }
                let keys = changed.borrow_and_update().clone();
                if let Some(keys) = keys
                    && let Err(error) = ClientFile::follow(&path, &keys, &fleet_id)
                {
                    tracing::warn!(%error, "{} has the pin of before", path.display());
                }
            }
        });
    }

    /// Keeps the keys of a gateway apart at what the control plane's are.
    pub fn follow_control_plane(&mut self, held: GatewayHolder) {
        let cancel = self.cancel.clone();
        self.spawn("gateway keys", async move {
            held.run(cancel).await;
            Ok::<_, Infallible>(())
        });
    }

    fn spawn<E: std::error::Error + 'static>(
        &mut self,
        name: &'static str,
        run: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.tasks.spawn(async move { (name, run.await.map_err(|error| chain(&error))) });
    }

    /// Runs until a signal comes or a part ends, then ends all of them.
    ///
    /// # Errors
    /// When a part ended by itself.
    pub async fn run(mut self) -> Result<Ended, Failure> {
        let mut terminate = signal(SignalKind::terminate()).during("cannot listen for signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).during("cannot listen for signals")?;
        let ended = tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            Some(ended) = self.tasks.join_next() => Some(ended),
        };
        tracing::info!("stopping");
        self.cancel.cancel();
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        tokio::select! {
            done = tokio::time::timeout(DRAIN, drained) => {
                if done.is_err() {
                    tracing::warn!(seconds = DRAIN.as_secs(), "some parts did not end in time and are dropped");
                }
            }
            _ = interrupt.recv() => tracing::warn!("stopping without waiting"),
        }
        self.tasks.shutdown().await;
        tokio::time::timeout(Duration::from_secs(5), self.db.close()).await.ok();
        match ended {
            None => Ok(Ended::Stopped),
            Some(Ok((GUESS, Ok(())))) => Ok(Ended::Outgrown),
            Some(Ok((name, Ok(())))) => Err(Failure::failed(format!("the {name} role ended by itself"))),
            Some(Ok((name, Err(error)))) => Err(Failure::failed(format!("the {name} role failed: {error}"))),
            Some(Err(error)) => Err(Failure::because("a role ended", &error)),
        }
    }
}

async fn renew<E: std::error::Error + 'static>(
    serving: &ServingCertificate,
    mut current: TlsIdentity,
    issue: impl Fn(Option<Arc<Keys>>) -> Result<TlsIdentity, E>,
    mut keys: watch::Receiver<Option<Arc<Keys>>>,
    clock: &SharedClock,
    cancel: CancellationToken,
) {
    // Often, for a clock that is set back makes the present one not valid yet.
    const LOOK: Duration = Duration::from_secs(10);
    let mut made = clock.now();
    loop {
        let rotated = tokio::select! {
            () = cancel.cancelled() => return,
            // The sender lives as long as the parts; without it there is nothing to follow.
            Ok(()) = keys.changed() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        let now = clock.now();
        let half = current.not_after().map_or(0, |end| (end.as_second() - made.as_second()) / 2);
        if !rotated && (0..half).contains(&(now.as_second() - made.as_second())) {
            continue;
        }
        let present = keys.borrow_and_update().clone();
        match issue(present) {
            Ok(next) => match serving.replace(&next) {
                Ok(()) => {
                    tracing::info!("made the next serving certificate");
                    (current, made) = (next, now);
                }
                Err(error) => tracing::error!(error = chain(&error), "cannot use the next serving certificate"),
            },
            Err(error) => tracing::error!(error = chain(&error), "cannot make the next serving certificate"),
        }
    }
}

/// Binds a port.
///
/// # Errors
/// When it is taken, or not ours to take.
pub async fn bind(address: SocketAddr, what: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error: std::io::Error| {
        let failure = Failure::because(format!("cannot listen on {address} for the {what}"), &error);
        if error.kind() == std::io::ErrorKind::AddrInUse {
            return failure.hint(format!(
                "another process has that port; choose one with --listen-{what}, or 127.0.0.1:0 for any free one"
            ));
        }
        failure
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

/// The token in a client file when it still works, else a fresh one that may do everything.
///
/// # Errors
/// When the database does not answer.
pub async fn api_token(db: &Db, file: &Path, actor: &str) -> Result<String, Failure> {
    let what = "cannot make an API token";
    match ClientFile::read(file) {
        Ok(Some(client)) if still_works(db, &client.token).await.map_err(database(what))? => return Ok(client.token),
        Ok(_) => {}
        Err(failure) => tracing::warn!(error = %failure, "the client file is made anew"),
    }
    api::tokens::bootstrap(db, "client.json", &["*"], actor).await.map_err(database(what))
}

async fn still_works(db: &Db, text: &str) -> Result<bool, store::DbError> {
    let Ok(token) = Token::parse(TokenKind::Api, text) else { return Ok(false) };
    let Ok(id) = format!("{}{}", ApiTokenId::PREFIX, token.id()).parse() else { return Ok(false) };
    Ok(api_tokens::find_valid(db, id).await?.is_some_and(|stored| token.matches(&stored.token.hash)))
}

/// Who may poke the source over HTTP: whoever has `BETTER_COMPUTE_WEBHOOK_SECRET`.
#[must_use]
pub fn webhook() -> Option<api::Webhook> {
    let secret = std::env::var("BETTER_COMPUTE_WEBHOOK_SECRET").ok().filter(|secret| !secret.is_empty())?;
    Some(api::Webhook { source: source::FLEET.to_owned(), secret })
}
