//! The parts that run: one set of tasks under one cancellation. When one ends by itself or a signal comes, all end.

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use pki::{
    Realm,
    issue::TlsIdentity,
    keys::Keys,
    tls::{InternalServer, ServingCertificate},
    verify::NodeVerifier,
};
use reconciler::{
    api,
    custody::SourceCustody,
    join,
    logs::LogStore,
    reconcile::{Registry, Shared, command::FastSigner, worker},
    source::{self, SourceRole},
};
use schema::{
    cause::chain,
    clock::{Clock as _, SharedClock},
    id::GatewayId,
    time::Timestamp,
};
use store::{Db, Role, clock::DatabaseClock};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    authority::{Authority, Part},
    certificates, clock,
    following::{Following, Watched},
    gateway_keys::GatewayHolder,
    identity::Identity,
    keys::KeyDir,
    open_files,
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
    clock: Arc<DatabaseClock>,
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

impl Parts {
    /// No parts yet but the clock that all of them go by.
    #[must_use]
    pub fn new(db: Db, clock: Arc<DatabaseClock>) -> Self {
        let host = super::names::host_name().unwrap_or_else(|| "localhost".to_owned());
        let mut parts = Self {
            db,
            clock,
            host,
            cancel: CancellationToken::new(),
            tasks: JoinSet::new(),
            logs: None,
            keys: watch::Sender::new(None),
        };
        let following = clock::follow(Arc::clone(&parts.clock), parts.db.clone(), parts.cancel.clone());
        parts.keep("clock", following);
        parts
    }

    /// Uploads bundles of logs to a store.
    #[must_use]
    pub fn with_logs(mut self, store: Option<Arc<LogStore>>) -> Self {
        self.logs = store;
        self
    }

    /// The clock that this process goes by.
    #[must_use]
    pub fn clock(&self) -> SharedClock {
        Arc::clone(&self.clock) as _
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
        let (part, clock) = (part.clone(), self.clock());
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
        let following = Following { db: self.db.clone(), holder, clock: Arc::clone(&self.clock), watched };
        let cancel = self.cancel.clone();
        self.keep("keys", async move { following.run(cancel).await });
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
            self.keep(role.as_str(), async move { worker::run(shared, &registry, config, cancel).await });
        }
    }

    /// Follows the fleet repository.
    pub fn source(&mut self, place: FleetPlace, custody: Arc<SourceCustody>) {
        let FleetPlace { config, access, data } = place;
        let (db, host, timing) = (self.db.clone(), self.host.clone(), source::Timing::default());
        let role = SourceRole { db, config, access, data, host, timing, custody };
        let cancel = self.cancel.clone();
        self.keep("source", async move { source::run(role, cancel).await });
    }

    /// Ends everything once the fleet names another trust domain than the one that was guessed.
    pub fn guess(&mut self, place: FleetPlace, keys: KeyDir) {
        let cancel = self.cancel.clone();
        self.keep(GUESS, async move { trust::outgrown(place, keys, cancel).await });
    }

    /// Signs commands as soon as the API has committed them.
    pub fn fast_signer(&mut self, authority: &Authority) -> FastSigner {
        let (db, logs, cancel) = (self.db.clone(), self.logs.clone(), self.cancel.clone());
        let (signer, run) = FastSigner::new(db, Arc::clone(&authority.signer) as _, logs, cancel);
        self.keep("command signer", run);
        signer
    }

    /// Answers the API.
    pub fn api(&mut self, listener: TcpListener, serving: Arc<ServingCertificate>, app: api::App) {
        open_files::raise(api::serve::PLACES);
        let tls = Arc::new(pki::tls::api_server(serving, self.clock()));
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
        let what = "cannot use the internal certificate";
        let first = certificates::internal(&identity.keys, self.clock.now())?;
        let authorities = identity.keys.internal_authorities();
        let tls = InternalServer::new(&first, &authorities, self.clock()).during(what)?;
        let (shown, clock) = (Arc::clone(&tls), self.clock());
        self.renew("internal certificates", &identity.keys, first, move |keys, now| {
            let next = certificates::internal(keys, now)?;
            shown.replace(&next, &keys.internal_authorities(), Arc::clone(&clock)).during(what)?;
            Ok(next)
        });
        let (service, cancel) = (Arc::clone(&authority.joins), self.cancel.clone());
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
        let limits = gateway::Limits::default();
        open_files::raise(limits.connections);
        let config = gateway::Config {
            gateway_id: GatewayId::generate(),
            listener: listener.into_std().during("cannot hand the port to the gateway")?,
            serving,
            verifier,
            dev,
            db: self.db.clone(),
            control_plane,
            clock: self.clock(),
            limits,
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
        let what = "cannot use the serving certificate";
        let first = certificates::serving(keys, &names, self.clock.now())?;
        let serving = ServingCertificate::new(&first).during(what)?;
        let shown = Arc::clone(&serving);
        self.renew("certificates", keys, first, move |keys, now| {
            let next = certificates::serving(keys, &names, now)?;
            shown.replace(&next).during(what)?;
            Ok(next)
        });
        Ok(serving)
    }

    fn renew(
        &mut self,
        name: &'static str,
        keys: &Keys,
        first: TlsIdentity,
        replace: impl Fn(&Keys, Timestamp) -> Result<TlsIdentity, Failure> + Send + 'static,
    ) {
        let (keys, changed, clock) = (Arc::new(keys.clone()), self.keys.subscribe(), self.clock());
        let renewing = certificates::renew(keys, changed, clock, first, replace, self.cancel.clone());
        self.keep(name, renewing);
    }

    /// Keeps `client.json` at what joining machines pin and people believe, when keys are rotated.
    pub fn keep_client(&mut self, path: PathBuf, fleet_id: &str) {
        let (mut changed, fleet_id, cancel) = (self.keys.subscribe(), fleet_id.to_owned(), self.cancel.clone());
        self.keep("client file", async move {
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    ended = changed.changed() => if ended.is_err() { return },
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
        self.keep("gateway keys", async move { held.run(cancel).await });
    }

    /// A part that nothing but the end of all can end.
    fn keep(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        self.spawn(name, async move {
            run.await;
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
