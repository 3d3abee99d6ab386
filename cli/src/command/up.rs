//! `up`: a whole control plane in one process, with nothing to configure.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use gateway::InProcess;
use pki::keys::Keys;
use reconciler::{api, logs::LogStore, source::SourceConfig};
use schema::{
    clock::{Clock as _, SharedClock},
    time::Timestamp,
};
use store::{
    Db, DbConfig, Role,
    clock::DatabaseClock,
    embedded::{self, Embedded},
    migrate::{self, MigrateError},
};
use tokio::net::TcpListener;

use crate::{
    data_dir::{self, ClientFile, DataDir},
    exit::{During as _, Exit, Failure},
    output,
    up::{
        Parts, access,
        authority::{Authority, Part},
        banner::Banner,
        clock,
        identity::{self, Identity},
        keys::KeyDir,
        logging::LogArgs,
        logs::LogStoreArgs,
        names,
        parts::{self, Ended},
        ports,
        trust::{self, FleetPlace},
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute up --dev --fleet ./my-fleet            try it; a file may describe the machines
  better-compute up --fleet https://git.example.com/fleet.git
  better-compute up --fleet git@git.example.com:fleet.git#main:eu \\
      --name compute.example.com --listen-gateway 0.0.0.0:7444
  DATABASE_URL=postgres://… better-compute up --fleet /srv/fleet.git

Several run side by side with a --data directory each, --listen-api 127.0.0.1:0 and
--listen-gateway 127.0.0.1:0. Each keeps the ports that it got, as long as they are free when it is started again.";

/// Run a whole control plane on this machine.
///
/// Makes what it needs in its data directory the first time (a private PostgreSQL, keys, certificates), follows the fleet
/// repository, and runs every role in this process. With DATABASE_URL it uses that server instead. It can be killed at any
/// moment and started again. client.json in the data directory tells the other commands where it is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Up {
    /// The fleet repository: a directory, https:// or ssh, with branch and folder when they matter
    #[arg(long, value_name = "URL-OR-DIR[#BRANCH][:FOLDER]", env = "BETTER_COMPUTE_FLEET", hide_env_values = true)]
    pub fleet: String,
    /// Admit machines that a file describes; fixed when the database is made
    #[arg(long)]
    pub dev: bool,
    /// Where everything is kept
    #[arg(long, value_name = "DIR", env = "BETTER_COMPUTE_DATA", hide_env_values = true)]
    pub data: Option<PathBuf>,
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub listen_api: SocketAddr,
    /// Where nodes dial
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7444")]
    pub listen_gateway: SocketAddr,
    /// Name or address under which others reach this machine; the first one is shown
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<String>,
    /// Trust domain of every identity, when fleet.kdl should not say it; fixed for good
    #[arg(long, value_name = "DOMAIN")]
    pub trust_domain: Option<String>,
    /// Bundles of logs
    #[command(flatten)]
    pub bundles: LogStoreArgs,
    /// Log
    #[command(flatten)]
    pub log: LogArgs,
}

impl Up {
    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When something it needs is missing or in the way.
    pub async fn run(&self, clock: SharedClock) -> Result<Exit, Failure> {
        let (config, access) = SourceConfig::parse(&self.fleet).map_err(|error| Failure::usage(error.to_string()))?;
        let access = access.with_env().during("cannot read the certificates named by BETTER_COMPUTE_GIT_CA")?;
        let data = DataDir::take(&data_dir::locate(self.data.as_deref()))?;
        self.log.start()?;
        let logs = self.bundles.open()?;
        let keys = KeyDir::at(data.path().join("keys"));
        let fleet = FleetPlace::new(config, access, data.path());
        let trust_domain = match keys.control_plane()? {
            Some(keys) => keys.trust_domain().to_owned(),
            None => trust::choose(self.trust_domain.as_deref(), self.dev, &fleet, &keys).await?,
        };
        // A port that is taken is told before a database is made.
        let last = ClientFile::read(&data.client_file()).ok().flatten();
        let last = [last.as_ref().map(|last| last.url.as_str()), last.as_ref().map(|last| last.gateway.as_str())];
        let sockets = Some(bound([self.listen_api, self.listen_gateway], last).await?);
        let (database, server) = database(&data).await?;
        let mut round = Round {
            data,
            keys,
            fleet,
            database,
            trust_domain,
            sockets,
            listen: [self.listen_api, self.listen_gateway],
            logs,
            clock: Arc::clone(&clock),
        };
        let done = loop {
            match self.serve(Arc::clone(&clock), &mut round).await {
                Ok(Ended::Stopped) => break Ok(Exit::Ok),
                Ok(Ended::Outgrown) => match round.name_anew().await {
                    Ok(()) => {}
                    Err(failure) => break Err(failure),
                },
                Err(failure) => break Err(failure),
            }
        };
        if let Some(server) = server {
            server.stop().await;
        }
        done
    }

    /// One life of all parts: from sockets to the end of all of them.
    async fn serve(&self, clock: SharedClock, round: &mut Round) -> Result<Ended, Failure> {
        let Prepared { db, clock, identity, token } = self.prepare(round, &clock).await?;
        round.clock = Arc::clone(&clock) as _;
        let sockets = match round.sockets.take() {
            Some(sockets) => sockets,
            None => bound(round.listen, [None; 2]).await?,
        };
        let (data, fleet) = (&round.data, &round.fleet);
        let mut parts = Parts::new(db.clone(), clock).with_logs(round.logs.clone());

        let [(api, api_at), (gateway, gateway_at)] = sockets;
        round.listen = [api_at, gateway_at];
        let serving = parts.serving(&identity.keys, names::for_certificate(&self.names, &[api_at, gateway_at]))?;
        let client = ClientFile {
            url: names::url(&self.names, api_at),
            ca: pki::issue::to_pem(&[identity.keys.root_certificate()]),
            token,
            gateway: names::url(&self.names, gateway_at),
            pin: identity.keys.anchor(&identity.realm.fleet_id).pin().to_string(),
        };

        // Before the API answers: whoever reads the file finds the server that it vouches for.
        client.write(&data.client_file())?;
        let authority = Authority::new(&db, &parts.clock(), &identity);
        parts.workers(&identity.realm, &Part::from(&authority), &[Role::Controllers, Role::Scheduler, Role::Sinks]);
        parts.source(fleet.clone(), Arc::clone(&authority.source));
        if round.keys.is_provisional() {
            parts.guess(fleet.clone(), round.keys.clone());
        }
        let pin = api::Pin::from(authority.joins.anchor().pin());
        parts.keep_client(data.client_file(), &identity.realm.fleet_id);
        parts.follow_keys(round.keys.clone(), &identity, &authority, pin.clone());
        let app = api::App {
            db,
            gateways: vec![client.gateway.clone()],
            pin,
            pinned: authority.custody.pinned(),
            signer: Some(parts.fast_signer(&authority)),
            secrets: authority.joins.secrets(),
            webhook: access::webhook(),
            auditor: Some(authority.auditor()),
            service: Some(Arc::clone(&authority.source)),
        };
        parts.api(api, Arc::clone(&serving), app);
        let control_plane = Arc::new(InProcess::new(authority.joins));
        parts.gateway(gateway, serving, identity.keys.node_verifier(), identity.dev, control_plane)?;

        self.greet(data, &fleet.config.to_string(), &client, identity.dev)?;
        parts.run().await
    }

    /// Migrations, identity and token. A server that was killed in the middle is started again by its supervisor, so what
    /// may pass is tried again for a while.
    async fn prepare(&self, round: &Round, host: &SharedClock) -> Result<Prepared, Failure> {
        identity::patiently(async || self.prepare_once(round, host).await).await
    }

    async fn prepare_once(&self, round: &Round, host: &SharedClock) -> Result<Prepared, Failure> {
        let what = "cannot bring the database up to date";
        migrate::run(&round.database).await.map_err(|error| match error {
            MigrateError::Db(error) => identity::database(what)(error),
            // A connection that broke in the middle looks like a statement that failed; it is worth another try.
            MigrateError::Failed(_) => Failure { exit: Exit::Unreachable, ..Failure::because(what, &error) },
            error => Failure::because(what, &error),
        })?;
        let config = round.database.clone().with_warm_connections(parts::WARM_CONNECTIONS);
        let db = Db::connect(&config).await.map_err(identity::database("cannot connect to the database"))?;
        identity::begin_life(&db).await?;
        let clock = clock::of(&db, Arc::clone(host)).await?;
        let identity = self.identity(&db, round, clock.now()).await?;
        let token = access::api_token(&db, &round.data.client_file(), "up").await?;
        Ok(Prepared { db, clock, identity, token })
    }

    async fn identity(&self, db: &Db, round: &Round, now: Timestamp) -> Result<Identity, Failure> {
        let keys = &round.keys;
        if keys.is_provisional() {
            identity::rename(db, keys).await?;
        }
        let Some(row) = identity::stored(db).await? else {
            return identity::create(db, keys, &round.trust_domain, self.dev, now).await;
        };
        if self.dev && !row.dev {
            return Err(Failure::usage("this control plane was made without --dev, and that is fixed")
                .hint("use another --data directory to try things"));
        }
        let identity = identity::open(keys, &row)?;
        match &self.trust_domain {
            Some(named) if named != identity.keys.trust_domain() => {
                Err(Failure::usage(format!("the trust domain is {} and cannot become {named}", round.trust_domain)))
            }
            _ => Ok(identity),
        }
    }

    fn greet(&self, data: &DataDir, fleet: &str, client: &ClientFile, dev: bool) -> Result<(), Failure> {
        let banner = Banner {
            fleet,
            data: data.path(),
            usual_data: data.path() == data_dir::locate(None),
            client,
            dev,
            database: if std::env::var_os("DATABASE_URL").is_some() { "DATABASE_URL" } else { "private PostgreSQL" },
        };
        output::plain(&banner.lines())
    }
}

/// What the parts stand on.
#[derive(Debug)]
struct Prepared {
    db: Db,
    clock: Arc<DatabaseClock>,
    identity: Identity,
    token: String,
}

/// What one life of all parts takes over from the one before.
#[derive(Debug)]
struct Round {
    data: DataDir,
    keys: KeyDir,
    fleet: FleetPlace,
    database: DbConfig,
    trust_domain: String,
    /// The API and the gateway.
    listen: [SocketAddr; 2],
    /// Their sockets, until a life takes them.
    sockets: Option<Sockets>,
    logs: Option<Arc<LogStore>>,
    /// The host's, until a database was asked.
    clock: SharedClock,
}

impl Round {
    /// Makes the keys anew for the trust domain that the fleet names.
    async fn name_anew(&mut self) -> Result<(), Failure> {
        self.trust_domain = trust::from_fleet(&self.fleet).await?;
        tracing::info!(trust_domain = self.trust_domain, "the fleet names its trust domain; the keys are made anew");
        let keys =
            Keys::generate(&self.trust_domain, self.clock.now()).map_err(|error| Failure::failed(error.to_string()))?;
        let keys = match self.keys.control_plane()? {
            Some(before) => keys.keeping_secrets_of(&before),
            None => keys,
        };
        self.keys.store_control_plane(&keys)
    }
}

/// The sockets of the API and of the gateway, with where they are.
type Sockets = [(TcpListener, SocketAddr); 2];

/// Listens; `last` is where both were reached the last time.
async fn bound([api, gateway]: [SocketAddr; 2], last: [Option<&str>; 2]) -> Result<Sockets, Failure> {
    Ok([ports::bind(api, last[0], "api").await?, ports::bind(gateway, last[1], "gateway").await?])
}

/// The server that `DATABASE_URL` names, or a private one.
async fn database(data: &DataDir) -> Result<(DbConfig, Option<Embedded>), Failure> {
    if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
        return Ok((DbConfig::from_url(&url).during("DATABASE_URL is not usable")?, None));
    }
    let config = embedded::Config { dir: data.path().join("postgres"), fast: false };
    let server = Embedded::start(config).await.during("cannot start a private PostgreSQL")?;
    Ok((server.db_config(), Some(server)))
}
