//! Arguments, exit codes and printing: the thin side of the daemon.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use nvml_wrapper::error::NvmlError;
use pki::{
    token::{Token, TokenKind},
    verify::NodeIdentity,
};
use schema::{
    attested::AttestKind, clock::SharedClock, digest::Digest, generation::Generation, spec::NodeSpec, time::Duration,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{self, AgentError, Converger},
    attest::{Attest, Metadata},
    dial::Endpoint,
    diff::diff,
    hardware::{Described, Hardware, HostReader, boot_id, nvml},
    join::{self, JoinError},
    state::StateDir,
};

mod commands;
mod exit;
mod print;

use commands::Commands;
pub use exit::Exit;

/// The node daemon of Better Compute.
///
/// A machine joins once, with a token and a pin that `better-compute token create` prints, and then runs `bcd run` for
/// good: it holds one session to the control plane, makes the machine look as its signed spec says, and reports what it
/// saw. `bcd diff` shows what would change before anything does.
#[derive(Debug, Parser)]
#[command(name = "bcd", version, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make this machine a node of a fleet
    ///
    /// Examples:
    ///   BCD_JOIN_TOKEN=bcjt_… bcd join https://gw.example.org:7444 --pin sha256:…
    ///   bcd join https://gw.example.org:7444 --pin sha256:… --attest tpm
    ///
    /// The pin is the digest of what the control plane is recognised by. The token is read from
    /// BCD_JOIN_TOKEN or --token-file, and leaves this machine only sealed. With --attest the machine
    /// proves what it is, and needs no token where its pool or a document names that. Running the same
    /// command again after an interruption goes on where it stopped. A machine that is held goes on
    /// asking until git or an operator lets it in: `better-compute joins list` says why.
    #[command(verbatim_doc_comment)]
    Join(Box<JoinArgs>),
    /// Hold the session and converge, until stopped.
    Run(RunArgs),
    /// Show what would change now, and change nothing.
    ///
    /// Compares the spec that this machine got last (or --spec FILE) with the machine.
    Diff(DiffArgs),
    /// Show who this machine is and how far it came.
    Status(StatusArgs),
    /// Show the commands that this machine got, and what became of them.
    ///
    /// This is the machine's own journal: what it accepted, what it was about to do, and how each ended.
    Commands(StatusArgs),
    /// Show what the machine is made of, as it is reported.
    Inventory(InventoryArgs),
    /// Touch a driver in this process, which may be killed.
    #[command(hide = true)]
    Probe {
        /// What to probe.
        what: Probe,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Probe {
    Nvml,
    Health,
}

#[derive(Debug, Clone, Args)]
struct Place {
    /// Directory that stands for `/`: everything that a spec says is done under it.
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    root: PathBuf,
    /// Where the daemon keeps its key, identity and memory [default: ROOT/var/lib/bcd].
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
}

impl Place {
    fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| self.root.join("var/lib/bcd"))
    }
}

#[derive(Debug, Clone, Args)]
struct HardwareArgs {
    /// Run on the machine that this TOML file describes; only a fleet made with --dev admits it.
    #[arg(long, value_name = "FILE")]
    hardware: Option<PathBuf>,
    /// Which of the machines of that file: each seed has its own serials, UUIDs and addresses.
    #[arg(long, value_name = "NAME", requires = "hardware")]
    hardware_seed: Option<String>,
    /// Change one value of the description, for example serial=ABC or gpus.count=7.
    #[arg(long, value_name = "KEY=VALUE", requires = "hardware")]
    set: Vec<String>,
}

impl HardwareArgs {
    /// `root` is where a described machine keeps what is done to it.
    fn open(&self, root: Option<&Path>) -> anyhow::Result<Arc<dyn Hardware>> {
        let Some(path) = &self.hardware else {
            return Ok(Arc::new(HostReader::live(std::env::current_exe().ok())));
        };
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let described = Described::parse(&text, self.hardware_seed.as_deref(), &self.set)
            .with_context(|| format!("reading {}", path.display()))?;
        Ok(match root {
            Some(root) => Arc::new(described.under(root)),
            None => Arc::new(described),
        })
    }
}

#[derive(Debug, Args)]
struct JoinArgs {
    /// Where the control plane listens; several are tried in turn.
    #[arg(required = true, value_name = "https://HOST:PORT")]
    endpoints: Vec<Endpoint>,
    /// Digest of the control plane's anchor, as `better-compute token create` prints it.
    #[arg(long, value_name = "sha256:HEX")]
    pin: Digest,
    /// Read the join token from a file, or from standard input with `-`.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The join token. Prefer the environment or a file: arguments can be seen by every user.
    #[arg(long, env = "BCD_JOIN_TOKEN", hide_env_values = true, hide = true)]
    token: Option<String>,
    /// What the machine proves about itself, besides the token that is given; several are divided by commas.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    attest: Vec<Show>,
    /// The machine's certificate with those above it, in PEM, for --attest x509.
    #[arg(long, value_name = "FILE")]
    x509_certificate: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE")]
    x509_key: Option<PathBuf>,
    /// How to reach the TPM, as tpm2-tools take it [default: as they do, /dev/tpmrm0].
    #[arg(long, value_name = "TCTI")]
    tpm: Option<String>,
    /// Ask this instead of the cloud's metadata service.
    #[arg(long, value_name = "http://127.0.0.1:PORT", hide = true)]
    metadata: Option<Metadata>,
    /// How long to go on while nobody answers; a machine that is held waits without end.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: Duration,
    /// Give up the identity that this machine has.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    hardware: HardwareArgs,
}

/// What a machine can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// A join token.
    Token,
    /// A certificate and its key.
    X509,
    /// The TPM.
    Tpm,
    /// That it is an instance of AWS.
    Aws,
    /// That it is an instance of Google Cloud.
    Gcp,
    /// That it is a machine of Azure.
    Azure,
}

impl JoinArgs {
    fn attest(&self) -> Attest {
        let kinds = self.attest.iter().filter_map(|show| match show {
            Show::Token => None,
            Show::X509 => Some(AttestKind::X509),
            Show::Tpm => Some(AttestKind::Tpm),
            Show::Aws => Some(AttestKind::Aws),
            Show::Gcp => Some(AttestKind::Gcp),
            Show::Azure => Some(AttestKind::Azure),
        });
        Attest {
            kinds: kinds.collect(),
            x509: self.x509_certificate.clone().zip(self.x509_key.clone()),
            tcti: self.tpm.clone(),
            metadata: self.metadata.clone().unwrap_or_default(),
        }
    }
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Connect there instead of to the addresses from the join; may be said more than once.
    #[arg(long, value_name = "https://HOST:PORT")]
    gateway: Vec<Endpoint>,
    /// Verify and keep specs, and change nothing: look at them with `bcd diff` first.
    #[arg(long)]
    no_apply: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    hardware: HardwareArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// A spec as JSON, instead of the one that this machine got last.
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Exit with 2 when something would change, as `better-compute plan --exit-code` does.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    hardware: HardwareArgs,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// How to print.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct InventoryArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    hardware: HardwareArgs,
}

/// Runs one command with the machine's clock.
pub fn run(cli: Cli, clock: SharedClock) -> ExitCode {
    let result = match cli.command {
        Command::Join(args) => join(&args),
        Command::Run(args) => daemon(&args, clock),
        Command::Diff(args) => show_diff(&args, &clock),
        Command::Status(args) => status(&args, &clock),
        Command::Commands(args) => show_commands(&args),
        Command::Inventory(args) => inventory(&args),
        Command::Probe { what: Probe::Nvml } => probe(nvml::probe()),
        Command::Probe { what: Probe::Health } => probe(nvml::health()),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            print::error(&error);
            exit::of(&error).into()
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("starting the runtime")
}

fn join(args: &JoinArgs) -> anyhow::Result<Exit> {
    let request = join::Request {
        endpoints: args.endpoints.clone(),
        pin: args.pin,
        token: token(args)?,
        attest: args.attest(),
        state: args.place.state(),
        hardware: args.hardware.open(None)?,
        patience: args.timeout.to_std(),
        force: args.force,
    };
    let identity = runtime()?.block_on(async {
        tokio::select! {
            joined = join::join(&request) => joined.map_err(anyhow::Error::from),
            () = stop_signal() => bail!("stopped; the same command goes on where this one ended"),
        }
    })?;
    print::joined(&identity, &request.state);
    Ok(Exit::Ok)
}

/// The token that is given. Whoever shows nothing else has to have one.
fn token(args: &JoinArgs) -> anyhow::Result<Option<Token>> {
    let text = match (&args.token_file, &args.token) {
        (Some(path), _) if path == Path::new("-") => {
            let mut text = String::new();
            std::io::stdin().take(1024).read_to_string(&mut text).context("reading the token")?;
            text
        }
        (Some(path), _) => {
            fs::read_to_string(path).with_context(|| format!("reading the token from {}", path.display()))?
        }
        (None, Some(text)) => text.clone(),
        (None, None) if !args.attest.is_empty() && !args.attest.contains(&Show::Token) => return Ok(None),
        (None, None) => bail!(
            "no join token: set BCD_JOIN_TOKEN, or use --token-file FILE; or let the machine prove what it is: --attest"
        ),
    };
    Token::parse(TokenKind::Join, text.trim()).map(Some).context("reading the token")
}

fn daemon(args: &RunArgs, clock: SharedClock) -> anyhow::Result<Exit> {
    let config = agent::Config {
        root: args.place.root.clone(),
        state: args.place.state(),
        hardware: args.hardware.open(Some(&args.place.root))?,
        clock,
        gateways: args.gateway.clone(),
        apply: !args.no_apply,
    };
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        tokio::spawn(async move {
            stop_signal().await;
            stop.cancel();
        });
        agent::run(config, cancel).await
    });
    // A driver that hangs must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result?;
    Ok(Exit::Ok)
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn show_diff(args: &DiffArgs, clock: &SharedClock) -> anyhow::Result<Exit> {
    let state = StateDir::look(&args.place.state());
    let (generation, bytes) = match &args.spec {
        Some(path) => (Generation::NONE, fs::read(path).with_context(|| format!("reading {}", path.display()))?),
        None => match existing_state(&args.place)?.desired()? {
            Some(desired) => (desired.generation, desired.spec.into_bytes()),
            None => bail!("this machine has got no spec yet; `bcd run --no-apply` fetches it and changes nothing"),
        },
    };
    let spec = NodeSpec::from_bytes(&bytes)?;
    let described = args.hardware.open(Some(&args.place.root))?.is_described()
        || state.identity()?.is_some_and(|identity| identity.described);
    let boot_id = boot_id(&args.place.root, described);
    let converger = Converger::open(&args.place.root, &state, boot_id).context("opening the root")?;
    let diff = diff(converger.host(), generation, &spec, &state.memories()?, &state.ledger(), clock.now());
    match args.format {
        Format::Text => print::out(&diff.text()),
        Format::Json => print::json(&diff),
    }
    Ok(if args.exit_code && !diff.is_empty() { Exit::Changes } else { Exit::Ok })
}

fn existing_state(place: &Place) -> anyhow::Result<StateDir> {
    let path = place.state();
    if !path.is_dir() {
        return Err(AgentError::NotJoined(path).into());
    }
    Ok(StateDir::look(&path))
}

fn status(args: &StatusArgs, clock: &SharedClock) -> anyhow::Result<Exit> {
    let state = existing_state(&args.place)?;
    let identity = state.identity()?.ok_or_else(|| AgentError::NotJoined(args.place.state()))?;
    let people = state.policies_of(&identity)?;
    let certificate = NodeIdentity::of_own(&identity.identity.trust_domain, &identity.certificates());
    let status = print::Status {
        identity: identity.identity,
        endpoints: identity.endpoints,
        described: identity.described,
        daemon: state.daemon(),
        certificate_ends: certificate.ok().map(|certificate| certificate.not_after),
        contact: state.contact(),
        now: clock.now(),
        people: people.as_ref().map(print::People::of),
        desired: state.desired()?.map(|desired| desired.generation),
        progress: state.progress()?,
        commands: Commands::look(&state)?,
    };
    match args.format {
        Format::Text => print::out(&status.text()),
        Format::Json => print::json(&status),
    }
    Ok(Exit::Ok)
}

fn show_commands(args: &StatusArgs) -> anyhow::Result<Exit> {
    let Some(commands) = Commands::look(&existing_state(&args.place)?)? else {
        bail!("this machine has no journal of commands yet; `bcd run` begins one");
    };
    match args.format {
        Format::Text => print::out(&commands.text()),
        Format::Json => print::json(&commands),
    }
    Ok(Exit::Ok)
}

fn inventory(args: &InventoryArgs) -> anyhow::Result<Exit> {
    let hardware = args.hardware.open(Some(&args.place.root))?;
    print::json(&hardware.read().inventory().sections);
    Ok(Exit::Ok)
}

fn probe<T: serde::Serialize>(answer: Result<T, NvmlError>) -> anyhow::Result<Exit> {
    print::json(&answer.context("asking the driver's library")?);
    Ok(Exit::Ok)
}

/// What a refused or unreachable join is, as an exit code.
const fn join_exit(error: &JoinError) -> Exit {
    match error {
        JoinError::AlreadyJoined(_) => Exit::Identity,
        JoinError::Dial(_) | JoinError::Unanswered(_) => Exit::Unreachable,
        JoinError::Refused { .. }
        | JoinError::Held { .. }
        | JoinError::Anchor { .. }
        | JoinError::NotAGateway(_)
        | JoinError::OtherFleet { .. }
        | JoinError::Answer(_)
        | JoinError::Certificate(_)
        | JoinError::Malformed(_) => Exit::Refused,
        JoinError::State(_) | JoinError::Attest(_) => Exit::Failure,
    }
}
