//! One running daemon: the loop around session, convergence and inventory.
//!
//! The loop owns everything that changes; connections, passes and readings run beside it and come back as events. It
//! lives on one thread, for a machine with 256 cores has better use for the others.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use pki::{node_key::NodeKey, tls::LeftOpen, verify::NodeIdentity};
use proto::agent::v1::node_frame;
use schema::{
    cause::chain,
    clock::{Clock as _, SharedClock},
    spec::SecretVersion,
    time::Timestamp,
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    command::journal::JournalError,
    dial::Endpoint,
    hardware::Hardware,
    join::Renewed,
    session::{Again, Core, Effect, Event, Inventory, Level, Now},
    state::{Contact, Desired, Identity, StateDir, StateError, StateLock},
    vault::Released,
};

mod backoff;
mod begin;
mod clock;
mod connection;
mod converger;
mod hands;
mod link;
mod secrets;
mod sides;

pub use backoff::Backoff;
pub use clock::NodeClock;
pub use converger::{Converger, Pass};
use hands::Hands;
use link::{Link, LinkEvent, What};

/// How often the whole spec is compared with the host though nothing moved.
const DRIFT_EVERY: Duration = Duration::from_secs(60);
/// How often the machine is looked at.
const INVENTORY_EVERY: Duration = Duration::from_secs(600);
/// When everything could be kept for so long, the trouble is over.
const KEEPS_AFTER: Duration = Duration::from_secs(10);
/// How soon another session says so.
const SAID_WITHIN: Duration = Duration::from_secs(1);
/// How long the first connection waits for the first look at the machine.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// What a daemon needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The root that the spec is about; `/` for this machine.
    pub root: PathBuf,
    /// The state directory.
    pub state: PathBuf,
    /// What the machine is made of.
    pub hardware: Arc<dyn Hardware>,
    /// The machine's clock.
    pub clock: SharedClock,
    /// Where to connect, instead of the addresses from the join.
    pub gateways: Vec<Endpoint>,
    /// Whether specs are applied, or only verified and kept.
    pub apply: bool,
}

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The machine has not joined.
    #[error("this machine has no identity in {}; run `bcd join` first", .0.display())]
    NotJoined(PathBuf),
    /// The state cannot be read or written.
    #[error("the state directory cannot be used")]
    State(#[from] StateError),
    /// The identity on disk makes no sense.
    #[error("the identity on disk cannot be used: {0}")]
    Identity(String),
    /// The root cannot be opened.
    #[error("the root {} cannot be opened", path.display())]
    Root {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The journal of commands cannot be opened.
    #[error("no command can be accepted")]
    Journal(#[from] JournalError),
    /// The machine is described and joined as a real one, or the other way round.
    #[error("this identity belongs to a {} machine", if *described { "described" } else { "real" })]
    OtherHardware {
        /// What the identity is of.
        described: bool,
    },
}

enum Side {
    Passed(Box<(Converger, Pass)>),
    Read(Inventory),
    Renewed(Box<Result<Renewed, String>>),
    /// A pass lacks values of secrets.
    Lacks(Box<(Converger, Vec<SecretVersion>, bool)>),
    Released(Released),
}

/// How a life ended that was not cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Stopped,
    /// A described machine has another boot.
    Booted,
    /// The journal of commands has another id.
    Renamed,
}

struct Agent {
    config: Config,
    state: StateDir,
    _lock: StateLock,
    identity: Identity,
    endpoints: Vec<Endpoint>,
    certificate: NodeIdentity,
    key: Arc<NodeKey>,
    clock: Arc<NodeClock>,
    hands: Hands,
    core: Core,
    desired: Option<Arc<Desired>>,
    converger: Option<Converger>,
    pass_wanted: Option<bool>,
    /// The broker was asked.
    asking: bool,
    /// Not before then, after a failure.
    ask_at: Option<Instant>,
    asks: Backoff,
    reading: bool,
    renewing: bool,
    /// When the last renewal began.
    renewal_began: Option<Instant>,
    /// Why a renewal was refused last, so that it is said once.
    refused_renewal: String,
    /// How this node stands with the control plane, as it is kept for people.
    contact: Contact,
    /// What the handshake of the present connection left open for want of the time.
    left_open: Option<LeftOpen>,
    link: Option<Link>,
    links: u64,
    /// When something could not be kept last.
    unkept_at: Option<Instant>,
    /// The present session began with that.
    unkept_said: bool,
    attempts: usize,
    backoff: Backoff,
    opened_at: Option<Instant>,
    connect_at: Option<Instant>,
    drift_at: Instant,
    inventory_at: Instant,
    renew_at: Instant,
    until: Option<Timestamp>,
    tasks: JoinSet<()>,
    link_events: mpsc::Sender<LinkEvent>,
    sides: mpsc::Sender<Side>,
}

/// Runs a daemon until it is cancelled. While its state cannot be written, as on a full disk, it begins again and again with
/// what is kept: what was not kept has not happened. Commands that run go on meanwhile.
///
/// # Errors
/// When it cannot begin.
pub async fn run(config: Config, cancel: CancellationToken) -> Result<(), AgentError> {
    let mut backoff = Backoff::default();
    let (mut begun, mut may_be_old) = (false, true);
    let mut hands = None;
    let mut cannot_keep = String::new();
    loop {
        let error = match live(config.clone(), &cancel, &mut begun, &mut may_be_old, &mut cannot_keep, &mut hands).await
        {
            Ok(Ended::Booted) => {
                tracing::info!("the machine has another boot; beginning anew");
                Hands::let_go(&mut hands).await;
                continue;
            }
            Ok(Ended::Renamed) => {
                // Whoever says it again lies.
                may_be_old = false;
                Hands::let_go(&mut hands).await;
                continue;
            }
            Err(AgentError::State(error @ StateError::Io { .. })) if begun => error,
            ended => {
                Hands::let_go(&mut hands).await;
                return ended.map(drop);
            }
        };
        cannot_keep = chain(&error);
        tracing::warn!("{cannot_keep}; beginning again with what is kept");
        tokio::select! {
            () = cancel.cancelled() => {
                Hands::let_go(&mut hands).await;
                return Ok(());
            }
            () = tokio::time::sleep(backoff.next(chance(0.0, 1.0))) => {}
        }
    }
}

/// From reading the state to the end, or until the state cannot be kept.
async fn live(
    config: Config,
    cancel: &CancellationToken,
    begun: &mut bool,
    may_be_old: &mut bool,
    cannot_keep: &mut String,
    hands: &mut Option<Hands>,
) -> Result<Ended, AgentError> {
    let (link_events, mut from_link) = mpsc::channel(64);
    let (sides, mut from_sides) = mpsc::channel(8);
    let mut agent = Agent::begin(config, *may_be_old, hands, link_events, sides)?;
    *begun = true;
    if !cannot_keep.is_empty() {
        agent.unkept(std::mem::take(cannot_keep));
    }
    agent.want_pass(true);
    agent.read_hardware();
    let mut ended = agent.begin_commands().map(|()| Ended::Stopped);
    while ended.is_ok() {
        let wake = tokio::time::Instant::from_std(agent.wake_at());
        let step = tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            Some(event) = from_link.recv() => agent.link_said(event),
            Some(side) = from_sides.recv() => agent.side_said(side),
            Some(told) = agent.hands.told() => agent.lane_said(told),
            () = tokio::time::sleep_until(wake) => agent.tick(),
        };
        match step {
            Ok(()) if agent.hands.booted => {
                ended = Ok(Ended::Booted);
                break;
            }
            Ok(()) if agent.hands.renamed => {
                ended = Ok(Ended::Renamed);
                break;
            }
            Ok(()) => {}
            Err(error) => ended = Err(error),
        }
        while agent.tasks.try_join_next().is_some() {}
    }
    if ended.as_ref().is_ok_and(|ended| *ended == Ended::Stopped) {
        tracing::info!("stopping");
    }
    agent.link = None;
    agent.tasks.abort_all();
    // A pass that is under way ends by itself and soon; what it changes is remembered.
    while agent.converger.is_none() {
        match from_sides.recv().await {
            Some(Side::Passed(passed)) => agent.converger = Some(passed.0),
            Some(Side::Lacks(lacks)) => agent.converger = Some(lacks.0),
            Some(_) => {}
            None => break,
        }
    }
    *may_be_old &= agent.core.is_maybe_old();
    *hands = Some(agent.hands.rest(agent.core));
    ended
}

impl Agent {
    fn now(&self) -> Now {
        Now { wall: self.clock.machine(), mono: Instant::now(), proven: self.clock.proven() }
    }

    fn wake_at(&self) -> Instant {
        let until = self.until.filter(|_| self.clock.is_proven()).map(|until| self.instant_of(until));
        let renew_at = (!self.renewing).then_some(self.renew_at);
        let ask_at = self.ask_at.filter(|_| self.opened_at.is_some());
        [
            ask_at,
            self.connect_at,
            self.core.wake_at(self.now()),
            until,
            Some(self.drift_at),
            Some(self.inventory_at),
            self.unkept_at.map(|at| at + KEEPS_AFTER),
            renew_at,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(self.drift_at)
    }

    fn instant_of(&self, time: Timestamp) -> Instant {
        let wait = time.duration_since(self.clock.now()).max(jiff::SignedDuration::ZERO).unsigned_abs();
        // A tick that comes too early computes the rest anew.
        Instant::now() + wait.min(DRIFT_EVERY)
    }

    fn link_said(&mut self, event: LinkEvent) -> Result<(), AgentError> {
        if self.link.as_ref().is_none_or(|link| link.number != event.number) {
            return Ok(());
        }
        match event.what {
            What::Frame(frame) => self.handle(Event::Frame(*frame)),
            What::Down(reason) => {
                tracing::warn!("{reason}");
                self.close(Again::BackOff);
                self.handle(Event::Closed)
            }
        }
    }

    fn side_said(&mut self, side: Side) -> Result<(), AgentError> {
        match side {
            Side::Passed(passed) => {
                let (converger, pass) = *passed;
                self.converger = Some(converger);
                self.passed(pass)?;
                if let Some(all) = self.pass_wanted {
                    self.want_pass(all);
                }
                Ok(())
            }
            Side::Read(inventory) => {
                self.reading = false;
                if self.attempts == 0 {
                    self.connect_at = Some(Instant::now());
                }
                self.handle(Event::Inventoried(inventory, Vec::new()))
            }
            Side::Renewed(result) => self.renewed(*result),
            Side::Lacks(lacks) => {
                let (converger, wanted, all) = *lacks;
                self.converger = Some(converger);
                self.pass_wanted = Some(all || self.pass_wanted.unwrap_or(false));
                self.asking = true;
                self.ask(wanted);
                Ok(())
            }
            Side::Released(released) => self.released(released),
        }
    }

    fn tick(&mut self) -> Result<(), AgentError> {
        let now = Instant::now();
        if now >= self.drift_at {
            self.drift_at = now + DRIFT_EVERY.mul_f64(chance(0.9, 1.1));
            self.want_pass(true);
        }
        if self.opened_at.is_some() && self.ask_at.is_some_and(|at| now >= at) {
            self.want_pass(false);
        }
        if self.until.zip(self.clock.proven()).is_some_and(|(until, now)| now >= until) {
            self.until = None;
            self.want_pass(true);
        }
        if self.unkept_at.is_some_and(|at| now >= at + KEEPS_AFTER) {
            self.unkept_at = None;
            self.core.kept();
            self.say_whether_it_keeps();
        }
        if now >= self.inventory_at {
            self.inventory_at = now + INVENTORY_EVERY.mul_f64(chance(0.9, 1.1));
            self.read_hardware();
        }
        if now >= self.renew_at && !self.renewing {
            self.renew();
        }
        if self.connect_at.is_some_and(|at| now >= at) {
            self.connect()?;
        }
        self.handle(Event::Tick)
    }

    /// Something could not be kept. The control plane hears of it with the next session, which begins soon.
    fn unkept(&mut self, why: String) {
        self.unkept_at = Some(Instant::now());
        self.core.cannot_keep(why);
        self.say_whether_it_keeps();
    }

    /// Begins another session when the present one began with something else than is so now.
    fn say_whether_it_keeps(&mut self) {
        if self.link.is_some() && self.unkept_said != self.unkept_at.is_some() {
            self.close(Again::Within(SAID_WITHIN));
            self.core.handle(Event::Closed, self.now());
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), AgentError> {
        let linked = self.link.is_some();
        for effect in self.core.handle(event, self.now()) {
            // What belongs to a connection ends with it; what is decided about commands does not.
            let outlives = matches!(effect, Effect::Command(_) | Effect::Say(..));
            if linked && self.link.is_none() && !outlives {
                continue;
            }
            self.carry_out(effect)?;
        }
        Ok(())
    }

    fn send(&mut self, frame: node_frame::Frame) {
        if self.link.as_ref().is_some_and(|link| !link.send(frame)) {
            tracing::warn!("the gateway takes no more frames; connecting again");
            self.close(Again::BackOff);
            self.core.handle(Event::Closed, self.now());
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), AgentError> {
        match effect {
            Effect::Send(frame) => self.send(frame),
            Effect::KeepTrust(bundle) => self.state.keep_trust(&bundle)?,
            Effect::KeepPolicies(kept) => self.state.keep_policies(&kept)?,
            Effect::KeepFloor(floor) => self.state.keep_floor(floor)?,
            Effect::KeepDesired(desired) => {
                self.state.keep_desired(&desired)?;
                self.desired = Some(Arc::new(desired));
            }
            Effect::KeepProgress(progress) => self.state.keep_progress(&progress)?,
            Effect::TimeProven(proven) => {
                self.clock.prove_between(proven);
                if !self.judge_left_open(proven.at_least()) {
                    self.close(Again::BackOff);
                    return self.handle(Event::Closed);
                }
                self.plan_renewal();
            }
            Effect::Apply => self.want_pass(false),
            Effect::RenameJournal => self.hands.rename_journal(),
            Effect::Collect => self.read_hardware(),
            Effect::Renew => self.renew_soon(),
            Effect::Opened => {
                self.opened_at = Some(Instant::now());
                self.contact.session = Some(self.clock.now());
                self.keep_contact();
                // What could not be had without a gateway is tried again.
                self.want_pass(false);
            }
            Effect::Close(again) => self.close(again),
            Effect::Command(what) => return self.command(*what),
            Effect::Say(Level::Info, text) => tracing::info!("{text}"),
            Effect::Say(Level::Warn, text) => tracing::warn!("{text}"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

fn chance(from: f64, to: f64) -> f64 {
    rand::random_range(from..to)
}
