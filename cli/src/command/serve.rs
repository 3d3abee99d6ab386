//! `serve`: some roles of a control plane, for when they run apart.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use clap::Args;
use gateway::{AuthorityClient, ControlPlane, InProcess};
use pki::{
    Realm,
    keys::{SigningKeys, SourceKeys},
    tls,
    tls::ServingCertificate,
    verify::NodeVerifier,
};
use reconciler::{api, source::SourceConfig};
use schema::clock::SharedClock;
use store::{
    Db, DbConfig, Role, control_plane,
    migrate::{self, MigrateError},
};

use crate::{
    data_dir::{self, ClientFile},
    exit::{During as _, Exit, Failure},
    output,
    up::{
        Parts, access,
        authority::{Authority, Part},
        clock,
        gateway_keys::GatewayHolder,
        identity::{self, Identity},
        keys::KeyDir,
        logging::LogArgs,
        logs::LogStoreArgs,
        names, parts, ports,
        trust::FleetPlace,
    },
};

const EXAMPLES: &str = "\
Examples:
  better-compute serve --roles api,source,controllers,scheduler,sinks --keys ./keys \\
      --fleet https://git.example.com/fleet.git --client ./client.json \\
      --listen-internal 0.0.0.0:7445 --gateway https://gw.fra1.example.com:7444
  better-compute serve --roles gateway --keys ./gateway-keys --authority control.example.com:7445

Every process needs DATABASE_URL. `better-compute keys` makes the keys, `better-compute migrate`
the tables.";

/// Run some roles of a control plane.
///
/// The parts of `up`, apart: any number of processes with any roles over one PostgreSQL. A process has only the keys that
/// its roles need; a gateway forwards what needs authority to the process with the api role, over mutual TLS.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// The roles: api, source, controllers, scheduler, sinks, gateway
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = role)]
    pub roles: Vec<Role>,
    /// Directory with the keys that these roles need; scheduler and sinks need none
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// The database
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub database: String,
    /// The fleet repository, for the source role
    #[arg(long, value_name = "URL-OR-DIR[#BRANCH][:FOLDER]", env = "BETTER_COMPUTE_FLEET", hide_env_values = true)]
    pub fleet: Option<String>,
    /// Where the source role keeps what it fetched
    #[arg(long, value_name = "DIR", env = "BETTER_COMPUTE_DATA", hide_env_values = true)]
    pub data: Option<PathBuf>,
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub listen_api: SocketAddr,
    /// Where nodes dial
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7444")]
    pub listen_gateway: SocketAddr,
    /// Where gateways apart reach the api role
    #[arg(long, value_name = "ADDR")]
    pub listen_internal: Option<SocketAddr>,
    /// Where the api role is, for a gateway apart
    #[arg(long, value_name = "HOST:PORT")]
    pub authority: Option<String>,
    /// URL of a gateway, shown with join tokens
    #[arg(long = "gateway", value_name = "URL")]
    pub gateways: Vec<String>,
    /// Name or address under which others reach this machine
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<String>,
    /// Write how to reach the API to this file, with a fresh token; its directory is made when it is missing
    #[arg(long, value_name = "FILE")]
    pub client: Option<PathBuf>,
    /// Bundles of logs, for the roles that sign commands: api and controllers
    #[command(flatten)]
    pub bundles: LogStoreArgs,
    /// Log
    #[command(flatten)]
    pub log: LogArgs,
}

fn role(text: &str) -> Result<Role, String> {
    text.parse().map_err(|error: store::role::UnknownRole| error.to_string())
}

/// What of a key directory a process reads.
enum Needs {
    /// All keys of the control plane: it certifies, opens and signs.
    Everything(KeyDir),
    /// What signs specs and commands, or revisions, or both.
    Part(KeyDir),
    /// A gateway's certificates.
    Gateway(KeyDir),
    /// Nothing.
    Nothing,
}

impl Serve {
    /// Runs until it is told to stop.
    ///
    /// # Errors
    /// When something it needs is missing or in the way.
    pub async fn run(&self, clock: SharedClock) -> Result<Exit, Failure> {
        self.check()?;
        self.client.iter().try_for_each(|path| ClientFile::make_room(path))?;
        self.log.start()?;
        let database = DbConfig::from_url(&self.database).map_err(|error| Failure::usage(error.to_string()))?;
        let (db, row) = identity::patiently(async || self.connect(&database).await).await?;
        let clock = identity::patiently(async || clock::of(&db, Arc::clone(&clock)).await).await?;
        let parts = Parts::new(db.clone(), clock).with_logs(self.bundles.open()?);
        self.fits(&db, row.dev).await?;
        if !self.is_gateway_apart() {
            identity::begin_life(&db).await?;
        }
        match self.needs()? {
            Needs::Everything(keys) => {
                let identity = identity::open(&keys, &row)?;
                self.with_authority(parts, &db, keys, identity).await?;
            }
            Needs::Part(keys) => {
                let signing = self.has(Role::Controllers).then(|| identity::open_signing(&keys, &row)).transpose()?;
                let source = self.has(Role::Source).then(|| identity::open_source(&keys, &row)).transpose()?;
                let realm = identity::named(&row)?;
                let (signing, source) = (signing.map(|(keys, _)| keys), source.map(|(keys, _)| keys));
                let revisions =
                    [signing.as_ref().map(SigningKeys::revision), source.as_ref().map(SourceKeys::revision)];
                let revision = revisions.into_iter().flatten().min().unwrap_or_default();
                let mut parts = parts;
                let part = Part::new(&db, &parts.clock(), signing.as_ref(), source.as_ref(), &realm);
                parts.follow_part(keys, revision, &part);
                self.without_authority(parts, &realm, &part).await?;
            }
            Needs::Nothing => self.without_authority(parts, &identity::named(&row)?, &Part::default()).await?,
            Needs::Gateway(keys) => self.gateway_apart(parts, keys, &row).await?,
        }
        Ok(Exit::Ok)
    }

    async fn connect(&self, database: &DbConfig) -> Result<(Db, control_plane::ControlPlane), Failure> {
        let what = "cannot look at the database";
        let current = migrate::is_current(database).await.map_err(|error| match error {
            MigrateError::Db(error) => identity::database(what)(error),
            error => Failure::because(what, &error),
        })?;
        if !current {
            return Err(Failure::failed("the database is not up to date").hint("run `better-compute migrate` first"));
        }
        let config = database.clone().with_warm_connections(parts::WARM_CONNECTIONS);
        let db = Db::connect(&config).await.map_err(identity::database("cannot connect to the database"))?;
        let keys = self.keys.as_ref().map(KeyDir::at);
        let row = identity::stored(&db).await?.ok_or_else(|| identity::missing(keys.as_ref()))?;
        Ok((db, row))
    }

    fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    fn is_gateway_apart(&self) -> bool {
        self.roles.iter().all(|role| *role == Role::Gateway)
    }

    /// Which keys these roles need: a process reads no others.
    fn needs(&self) -> Result<Needs, Failure> {
        let place = || {
            let dir = self.keys.as_ref().ok_or_else(|| Failure::usage("these roles need --keys"))?;
            Ok::<_, Failure>(KeyDir::at(dir))
        };
        if self.is_gateway_apart() {
            Ok(Needs::Gateway(place()?))
        } else if self.has(Role::Api) || self.has(Role::Gateway) {
            Ok(Needs::Everything(place()?))
        } else if self.has(Role::Controllers) || self.has(Role::Source) {
            Ok(Needs::Part(place()?))
        } else {
            Ok(Needs::Nothing)
        }
    }

    /// A process connects with no more rights than its roles need, unless everything is for development.
    async fn fits(&self, db: &Db, dev: bool) -> Result<(), Failure> {
        if dev {
            return Ok(());
        }
        let what = "cannot look at the rights of the database role";
        let rights = db.rights().await.during(what)?;
        let (message, role) = if self.is_gateway_apart() && rights.control {
            ("the database role may do more than a gateway needs", "bc_gateway")
        } else if rights.superuser {
            ("the database role is a superuser", "bc_control")
        } else if !self.is_gateway_apart() && !rights.control {
            ("the database role may do less than these roles need", "bc_control")
        } else {
            return Ok(());
        };
        Err(Failure::new(Exit::Refused, message).hint(format!(
            "connect as a member of {role}, which migrations create: CREATE ROLE name LOGIN PASSWORD '…' IN ROLE {role}"
        )))
    }

    fn check(&self) -> Result<(), Failure> {
        if self.has(Role::Source) && self.fleet.is_none() {
            return Err(Failure::usage("the source role needs --fleet"));
        }
        if self.is_gateway_apart() && self.authority.is_none() {
            return Err(Failure::usage("a gateway apart needs --authority, where the api role is"));
        }
        if (self.listen_internal.is_some() || self.client.is_some()) && !self.has(Role::Api) {
            return Err(Failure::usage("--listen-internal and --client belong to the api role"));
        }
        Ok(())
    }

    async fn with_authority(&self, mut parts: Parts, db: &Db, keys: KeyDir, identity: Identity) -> Result<(), Failure> {
        let authority = Authority::new(db, &parts.clock(), &identity);
        let pin = api::Pin::from(authority.joins.anchor().pin());
        parts.follow_keys(keys, &identity, &authority, pin.clone());
        self.work(&mut parts, &identity.realm, &Part::from(&authority))?;
        let gateway_at = if self.has(Role::Gateway) {
            Some(self.gateway_here(&mut parts, &identity, &authority).await?)
        } else {
            None
        };
        if self.has(Role::Api) {
            self.api_here(&mut parts, db, &identity, &authority, (pin, gateway_at)).await?;
        }
        self.greet()?;
        parts.run().await.map(drop)
    }

    async fn without_authority(&self, mut parts: Parts, realm: &Realm, part: &Part) -> Result<(), Failure> {
        self.work(&mut parts, realm, part)?;
        self.greet()?;
        parts.run().await.map(drop)
    }

    fn work(&self, parts: &mut Parts, realm: &Realm, part: &Part) -> Result<(), Failure> {
        let workers = [Role::Controllers, Role::Scheduler, Role::Sinks];
        let workers: Vec<Role> = workers.into_iter().filter(|role| self.has(*role)).collect();
        parts.workers(realm, part, &workers);
        if let (true, Some(fleet), Some(custody)) = (self.has(Role::Source), &self.fleet, &part.source) {
            let (config, access) = SourceConfig::parse(fleet).map_err(|error| Failure::usage(error.to_string()))?;
            let access = access.with_env().during("cannot read the certificates named by BETTER_COMPUTE_GIT_CA")?;
            parts.source(FleetPlace::new(config, access, &data_dir::locate(self.data.as_deref())), Arc::clone(custody));
        }
        Ok(())
    }

    async fn api_here(
        &self,
        parts: &mut Parts,
        db: &Db,
        identity: &Identity,
        authority: &Authority,
        (pin, gateway): (api::Pin, Option<String>),
    ) -> Result<(), Failure> {
        let (listener, at) = ports::listen(self.listen_api, "api").await?;
        let serving = parts.serving(&identity.keys, names::for_certificate(&self.names, &[at]))?;
        let gateways: Vec<String> = self.gateways.iter().cloned().chain(gateway).collect();
        if let Some(path) = &self.client {
            let client = ClientFile {
                url: names::url(&self.names, at),
                ca: pki::issue::to_pem(&[identity.keys.root_certificate()]),
                token: access::api_token(db, path, "serve").await?,
                gateway: gateways.first().cloned().unwrap_or_default(),
                pin: pin.to_string(),
            };
            client.write(path)?;
            parts.keep_client(path.clone(), &identity.realm.fleet_id);
        }
        let signer = Some(parts.fast_signer(authority));
        let secrets = authority.joins.secrets();
        let pinned = authority.custody.pinned();
        let app = api::App {
            db: db.clone(),
            gateways,
            pin,
            pinned,
            signer,
            secrets,
            webhook: access::webhook(),
            auditor: Some(authority.auditor()),
            service: Some(Arc::clone(&authority.source)),
        };
        parts.api(listener, serving, app);
        if let Some(address) = self.listen_internal {
            let (listener, _) = ports::listen(address, "internal").await?;
            parts.internal(listener, identity, authority)?;
        }
        Ok(())
    }

    async fn gateway_here(
        &self,
        parts: &mut Parts,
        identity: &Identity,
        authority: &Authority,
    ) -> Result<String, Failure> {
        let (listener, at) = ports::listen(self.listen_gateway, "gateway").await?;
        let serving = parts.serving(&identity.keys, names::for_certificate(&self.names, &[at]))?;
        let control_plane: Arc<dyn ControlPlane> = Arc::new(InProcess::new(Arc::clone(&authority.joins)));
        parts.gateway(listener, serving, identity.keys.node_verifier(), identity.dev, control_plane)?;
        Ok(names::url(&self.names, at))
    }

    async fn gateway_apart(
        &self,
        mut parts: Parts,
        place: KeyDir,
        row: &control_plane::ControlPlane,
    ) -> Result<(), Failure> {
        let keys = place.gateway()?;
        let what = "cannot use the gateway's keys";
        let realm = identity::realm(keys.trust_domain(), keys.fleet_id(), row)?;
        let serving: Arc<ServingCertificate> = ServingCertificate::new(&keys.serving).during(what)?;
        let verifier: NodeVerifier = keys.node_verifier().during(what)?;
        let client = tls::internal_client(&keys.internal, &keys.internal_authorities(), parts.clock()).during(what)?;
        let authority = AuthorityClient::new(self.authority.clone().unwrap_or_default(), client);
        let (listener, _) = ports::listen(self.listen_gateway, "gateway").await?;
        parts.gateway(listener, Arc::clone(&serving), verifier, row.dev, Arc::new(authority.clone()))?;
        let clock = parts.clock();
        parts.follow_control_plane(GatewayHolder { place, keys, realm, serving, authority, clock });
        self.greet()?;
        parts.run().await.map(drop)
    }

    fn greet(&self) -> Result<(), Failure> {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
        output::plain(&format!("better-compute serves {}", roles.join(", ")))?;
        if self.has(Role::Api) && self.client.is_none() {
            output::note(
                "Its API takes tokens that were made before; --client FILE makes one and writes how to reach it.",
            );
        }
        Ok(())
    }
}
