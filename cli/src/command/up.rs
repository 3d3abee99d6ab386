//! `up`: a whole control plane in one process, with nothing to configure.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use gateway::InProcess;
use reconciler::{
    api,
    source::{GitAccess, SourceConfig},
};
use schema::{clock::SharedClock, time::Timestamp};
use store::{
    Db, DbConfig, Role,
    embedded::{self, Embedded},
    migrate,
};

use crate::{
    data_dir::{self, ClientFile, DataDir},
    exit::{During as _, Exit, Failure},
    output,
    up::{
        Parts,
        banner::Banner,
        identity::{self, Identity},
        keys::KeyDir,
        logging::LogArgs,
        names, parts, trust,
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
--listen-gateway 127.0.0.1:0.";

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
        let keys = KeyDir::at(data.path().join("keys"));
        let trust_domain = match keys.control_plane()? {
            Some(keys) => keys.trust_domain().to_owned(),
            None => trust::choose(self.trust_domain.as_deref(), self.dev, &config, &access, data.path()).await?,
        };
        let (database, server) = database(&data).await?;
        let done = self.serve(clock, &data, database, &trust_domain, (config, access)).await;
        if let Some(server) = server {
            server.stop().await;
        }
        done.map(|()| Exit::Ok)
    }

    async fn serve(
        &self,
        clock: SharedClock,
        data: &DataDir,
        database: DbConfig,
        trust_domain: &str,
        (config, access): (SourceConfig, GitAccess),
    ) -> Result<(), Failure> {
        migrate::run(&database).await.during("cannot bring the database up to date")?;
        let db = Db::connect(&database.with_warm_connections(parts::WARM_CONNECTIONS))
            .await
            .during("cannot connect to the database")?;
        let identity = self.identity(&db, data, trust_domain, clock.now()).await?;
        let mut parts = Parts::new(db.clone(), clock);

        let (api, api_at) = parts::bind(self.listen_api, "api").await?;
        let (gateway, gateway_at) = parts::bind(self.listen_gateway, "gateway").await?;
        let serving = parts.serving(&identity.keys, names::for_certificate(&self.names, &[api_at, gateway_at]))?;
        let client = ClientFile {
            url: names::url(&self.names, api_at),
            ca: pki::issue::to_pem(&[identity.keys.root_certificate()]),
            token: parts::api_token(&db, &data.client_file(), "up").await?,
            gateway: names::url(&self.names, gateway_at),
            pin: identity.keys.anchor(&identity.realm.fleet_id).pin().to_string(),
        };

        let place = config.to_string();
        let authority = parts.authority(&identity);
        parts.workers(&identity, &authority, &[Role::Controllers, Role::Scheduler, Role::Sinks]);
        parts.source(config, access, data.path());
        let app = api::App {
            db,
            gateways: vec![client.gateway.clone()],
            pin: authority.joins.anchor().pin(),
            webhook: parts::webhook(),
        };
        parts.api(api, Arc::clone(&serving), app);
        let control_plane = Arc::new(InProcess::new(authority.joins));
        parts.gateway(gateway, serving, identity.keys.node_verifier(), identity.dev, control_plane)?;

        client.write(&data.client_file())?;
        self.greet(data, &place, &client, identity.dev)?;
        parts.run().await
    }

    async fn identity(&self, db: &Db, data: &DataDir, trust_domain: &str, now: Timestamp) -> Result<Identity, Failure> {
        let keys = KeyDir::at(data.path().join("keys"));
        let Some(row) = identity::stored(db).await? else {
            return identity::create(db, &keys, trust_domain, self.dev, now).await;
        };
        if self.dev && !row.dev {
            return Err(Failure::usage("this control plane was made without --dev, and that is fixed")
                .hint("use another --data directory to try things"));
        }
        let identity = identity::open(&keys, &row)?;
        match &self.trust_domain {
            Some(named) if named != identity.keys.trust_domain() => {
                Err(Failure::usage(format!("the trust domain is {trust_domain} and cannot become {named}")))
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

/// The server that `DATABASE_URL` names, or a private one.
async fn database(data: &DataDir) -> Result<(DbConfig, Option<Embedded>), Failure> {
    if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
        return Ok((DbConfig::from_url(&url).during("DATABASE_URL is not usable")?, None));
    }
    let config = embedded::Config { dir: data.path().join("postgres"), fast: false };
    let server = Embedded::start(config).await.during("cannot start a private PostgreSQL")?;
    Ok((server.db_config(), Some(server)))
}
