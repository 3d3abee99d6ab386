//! `keys rotate`: the next step of a rotation, once the fleet followed the one before.
//!
//! With `--force` it still waits, for a while, for processes and gateways that run: they follow within seconds, and a gateway that
//! does not is outside for good.
//!
//! The step is made in the key directory, where only whoever runs the control plane can write; every process that has the
//! directory takes it over within seconds. How far nodes, processes and gateways are is asked over the API. What was sealed
//! with the key of the secret store is sealed anew before that key goes; killed in the middle, it goes on where it was.

use std::{path::PathBuf, time::Duration as StdDuration};

use clap::{Args, ValueEnum};
use pki::{
    issue::NODE_LIFE,
    keys::{Advanced, Keys, Phase, Rotation, RotationKind, RotationStatus},
};
use schema::{
    clock::SharedClock,
    time::{Duration, Moment, Timestamp},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::token::once,
    control_plane,
    followers::{Behind, CommandsBefore, Follower, Holders, followers, names},
    open, status,
};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{Exit, Failure},
    output::{Output, note, text::count},
    up::keys::KeyDir,
};

const EXAMPLES: &str = "\
Examples:
  better-compute keys status                     where each rotation stands, and who is behind
  better-compute keys rotate node-ca             begin, then switch, then finish
  better-compute keys rotate command-root
  better-compute keys rotate join-key
  better-compute keys rotate internal-authority  gateways apart follow by themselves
  better-compute keys rotate secret-store        every value is sealed anew
  better-compute keys rotate node-ca --step finish   this step and no other, once

A rotation has three steps: begin (old and new are believed, the old one signs), switch (the new
one signs), finish (the old one is over). Each waits a minute for nodes, processes and gateways to
follow the one before, and is refused when they do not. A step that is named is taken once: said
again it does nothing. With --force a step waits twenty seconds at most, for processes and gateways
that run, and says whom it leaves behind. Machines that are switched off meanwhile catch up when
they come back; a gateway that was away while internal-authority was switched needs new keys (`keys
gateway`). Nobody is left behind at the end of secret-store and checkpoint: what the old key sealed
or signed would be lost.";

/// The stable word for commands that would be lost.
const SIGNED_BEFORE: &str = "signed-before";
/// How soon whoever was behind is asked about again.
const LOOK_AGAIN: StdDuration = StdDuration::from_secs(1);
/// How long a forced step waits for those who run.
const PATIENCE: StdDuration = StdDuration::from_secs(20);
/// What was sealed or signed with the old key at the switch is stored after this, where nothing may be lost.
const SETTLED: Duration = Duration::from_secs(15);
/// Somebody who says a finished step again so soon means that one, and not the begin of another rotation.
const AGAIN: i64 = 3_600;
/// What a gateway needs that was left outside.
pub(super) const NEW_KEYS: &str = "it needs new keys (`better-compute keys gateway --keys DIR --out DIR --name HOST`) and a start with \
                        them; `better-compute keys end-gateway` takes its old name out";

/// What of the old key may be on its way when the new one is used, and for how long.
const fn on_their_way(kind: RotationKind) -> Option<(Duration, &'static str)> {
    match kind {
        RotationKind::CommandRoot => Some((Duration::from_secs(60), "commands that were being signed at the switch")),
        RotationKind::Checkpoint => Some((Duration::from_secs(300), "challenges that the old key made")),
        RotationKind::SecretStore => Some((Duration::from_secs(60), "values that were put before the switch")),
        RotationKind::NodeCa | RotationKind::JoinKey | RotationKind::InternalAuthority => None,
    }
}

/// Whether a step may leave somebody behind. What is sealed or signed with a key that goes opens nowhere and counts for nothing.
const fn may_leave_behind(kind: RotationKind, step: Step) -> bool {
    !matches!((kind, step), (RotationKind::SecretStore | RotationKind::Checkpoint, Step::Finish))
}

/// Replace keys, a step at a time.
///
/// Takes the next step of a rotation when everybody followed the one before, and says what comes next. Without a kind it
/// shows where each rotation stands.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Rotate {
    /// Which keys; all are shown when nothing is said
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Option<Kind>,
    /// Directory with the control plane's keys [default: keys in the data directory]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// This step and no other; when it is taken already, nothing is done [default: the next one]
    #[arg(long, value_name = "STEP", value_enum, requires = "kind")]
    pub step: Option<Step>,
    /// Take the step although somebody is behind; nodes catch up when they come back
    #[arg(long)]
    pub force: bool,
    /// How long to wait for those who are behind; whoever runs follows within seconds
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub wait: Duration,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// Keys that can be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The root and the authorities for nodes and servers
    NodeCa,
    /// The root behind specs, commands and time
    CommandRoot,
    /// The key to which join tokens are sealed
    JoinKey,
    /// The authority among processes and gateways
    InternalAuthority,
    /// The key behind challenges
    Checkpoint,
    /// The key that the values of secrets are sealed with
    SecretStore,
}

impl From<Kind> for RotationKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::NodeCa => Self::NodeCa,
            Kind::CommandRoot => Self::CommandRoot,
            Kind::JoinKey => Self::JoinKey,
            Kind::InternalAuthority => Self::InternalAuthority,
            Kind::Checkpoint => Self::Checkpoint,
            Kind::SecretStore => Self::SecretStore,
        }
    }
}

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Old and new are believed, and the old one is used
    Begin,
    /// The new one is used
    Switch,
    /// The old one is over
    Finish,
}

impl Step {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Switch => "switch",
            Self::Finish => "finish",
        }
    }

    /// As it is said of what was done.
    const fn done(self) -> &'static str {
        match self {
            Self::Begin => "begun",
            Self::Switch => "switched",
            Self::Finish => "finished",
        }
    }

    fn next(rotation: Option<Rotation>) -> Self {
        match rotation.map(|rotation| rotation.phase) {
            None => Self::Begin,
            Some(Phase::Begun) => Self::Switch,
            Some(Phase::Switched) => Self::Finish,
        }
    }

    /// When a step was taken, if it is nothing that is left to do.
    fn taken(self, status: &RotationStatus) -> Result<Option<Timestamp>, Failure> {
        let kind = status.kind;
        let too_early = |why: &str| {
            let message = format!("{kind} cannot be {} yet: {why}", self.done());
            Err(Failure::new(Exit::Refused, message).hint("`better-compute keys status` shows where it stands"))
        };
        match (self, status.rotation) {
            (Self::Switch, _) if kind == RotationKind::JoinKey => {
                Err(Failure::usage("join-key has two steps, begin and finish: nothing is signed with it"))
            }
            (Self::Begin, None) => Ok(None),
            (Self::Begin, Some(rotation)) => Ok(Some(rotation.begun_at)),
            (Self::Switch | Self::Finish, None) => match status.finished_at {
                Some(at) => Ok(Some(at)),
                None => too_early("no rotation of it was begun"),
            },
            (Self::Switch, Some(rotation)) => Ok(rotation.switched_at),
            (Self::Finish, Some(Rotation { phase: Phase::Begun, .. })) => too_early("it is not switched"),
            (Self::Finish, Some(_)) => Ok(None),
        }
    }
}

/// The step that is meant when none is named.
fn meant(status: &RotationStatus, now: Timestamp) -> Result<Step, Failure> {
    let step = Step::next(status.rotation);
    match status.finished_at.filter(|at| step == Step::Begin && now.as_second() - at.as_second() < AGAIN) {
        None => Ok(step),
        Some(at) => {
            let (kind, ago) = (status.kind, Duration::between(at, now));
            let message = format!("the rotation of {kind} was finished {ago} ago, and the next step begins another");
            let hint =
                format!("nothing is left to do; `better-compute keys rotate {kind} --step begin` begins another");
            Err(Failure::new(Exit::Refused, message).hint(hint))
        }
    }
}

impl Rotate {
    /// Takes the next step of a kind, or shows where each stands.
    ///
    /// # Errors
    /// When nodes are behind, the keys are not there, or the control plane does not answer.
    pub async fn run(&self, clock: &SharedClock) -> Result<(), Failure> {
        let output = Output::detect(self.format.format, clock.now());
        let (place, keys, client) = open(self.keys.as_deref(), &self.target)?;
        match self.kind {
            None => status::show(&place, &keys, &client, &output).await,
            Some(kind) => self.step(&place, kind.into(), &client, clock).await,
        }
    }

    /// Takes the step. Whoever runs follows the one before within seconds: it waits for them, and only then says no.
    async fn step(
        &self,
        place: &KeyDir,
        kind: RotationKind,
        client: &Client,
        clock: &SharedClock,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let (mut said, mut step) = (String::new(), self.step);
        loop {
            let output = Output::detect(self.format.format, clock.now());
            let waited = began.elapsed();
            let over = waited >= self.wait.to_std();
            let patient = self.force && waited < PATIENCE && !over;
            match self.try_step(place, (kind, &mut step), client, &output, patient).await? {
                Tried::Done => return Ok(()),
                Tried::Behind(missing) if !missing.passes() || over => return Err(missing.refusal()),
                Tried::Behind(missing) => tell(missing.progress(), &mut said, &output),
                Tried::Waits(commands) if over => return Err(lost(&commands)),
                Tried::Waits(commands) => tell(format!("waiting: {}", commands.in_words()), &mut said, &output),
                Tried::Settles(text) => tell(format!("waiting: {text}"), &mut said, &output),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn try_step(
        &self,
        place: &KeyDir,
        (kind, named): (RotationKind, &mut Option<Step>),
        client: &Client,
        output: &Output,
        patient: bool,
    ) -> Result<Tried, Failure> {
        let _hold = place.hold()?;
        let mut keys = control_plane(place)?;
        let untaken = |failure: Failure| untaken(kind, failure);
        let holders = Holders::ask(client).await.map_err(untaken)?;
        let status = client.call("fleet.status", &json!({})).await.map_err(untaken)?;
        let fleet = status.get("fleetId").and_then(Value::as_str);
        let fleet = fleet.ok_or_else(|| Failure::failed("the control plane does not say which fleet it is"))?;
        // Keys are dated by the clock that everything goes by, whatever this host's says.
        let now = status.get("now").and_then(Value::as_str).and_then(|now| now.parse().ok()).unwrap_or(output.now);
        holders.check(place, &keys, &keys.anchor(fleet).pin().to_string())?;
        let standing = keys.rotation_status_of(kind);
        let step = match *named {
            Some(step) => step,
            None => {
                let step = *named.insert(meant(&standing, now)?);
                if !output.is_json() {
                    note(format!("the next step of {kind}: {}", step.as_str()));
                }
                step
            }
        };
        if let Some(at) = step.taken(&standing)? {
            if output.is_json() {
                output.json(&json!({ "kind": kind, "step": step.done(), "taken": false, "at": at }))?;
            } else {
                output.line(format!(
                    "{kind}: {} already, {}; nothing is done",
                    already(step, &standing),
                    output.ago(at)
                ))?;
            }
            return Ok(Tried::Done);
        }
        let mut behind = Behind::ask(kind, &keys, &holders, client).await.map_err(untaken)?;
        let leaves = self.force && may_leave_behind(kind, step);
        if leaves && patient {
            let heard = behind.holders.iter().filter(|holder| holder.is_heard(now)).cloned().collect();
            behind = Behind { holders: heard, ..Behind::default() };
        }
        if behind.count() > 0 && (!leaves || patient) {
            return Ok(Tried::Behind(Missing { kind, step, rotation: standing.rotation, now, behind }));
        }
        if let Some(at) = standing.rotation.and_then(|rotation| rotation.switched_at) {
            if kind == RotationKind::CommandRoot && holders.commands_before.count > 0 && !self.force {
                return Ok(Tried::Waits(holders.commands_before));
            }
            if let Some((life, what)) = on_their_way(kind) {
                let life = if !self.force {
                    life
                } else if leaves {
                    Duration::ZERO
                } else {
                    SETTLED
                };
                let settled = life.after(at);
                if now < settled {
                    let message = format!("{what} may be on their way until {settled}");
                    if self.force {
                        return Ok(Tried::Settles(message));
                    }
                    return Err(
                        Failure::new(Exit::Refused, message).hint("finish it then; --force does not wait for them")
                    );
                }
            }
            if kind == RotationKind::SecretStore {
                seal_anew(client, &keys.secret_store(fleet).key_name()).await.map_err(untaken)?;
            }
        }
        let left = Behind::ask(kind, &keys, &holders, client).await.map_err(untaken)?;
        let done = keys.advance(kind, fleet, now);
        place.store_control_plane(&keys).map_err(|failure| {
            failure.or_hint(|| Some("`better-compute keys status` shows whether the step was taken".to_owned()))
        })?;
        if output.is_json() {
            output.json(&json!({
                "kind": kind,
                "step": step.done(),
                "taken": true,
                "trustVersion": keys.trust_version(),
                "leftBehind": { "nodes": left.nodes, "holders": names(&left.holders) },
            }))?;
            return Ok(Tried::Done);
        }
        output.line(format!("{kind}: {}", said(kind, done, &keys)))?;
        left_behind(kind, step, &left).iter().for_each(note);
        if kind == RotationKind::CommandRoot && step == Step::Finish && holders.commands_before.count > 0 {
            note(format!("left behind: {}: machines refuse them", holders.commands_before.in_words()));
        }
        next(kind, done).iter().for_each(note);
        note("Copy the key directory to where its copies are, as after every step.");
        Ok(Tried::Done)
    }
}

/// A failure before anything was stored.
fn untaken(kind: RotationKind, failure: Failure) -> Failure {
    Failure { message: format!("{}; no step of {kind} was taken", failure.message), ..failure }
}

/// What a step that is taken again was.
fn already(step: Step, status: &RotationStatus) -> &'static str {
    if status.rotation.is_none() { Step::Finish.done() } else { step.done() }
}

/// Who did not follow, and what each of them needs.
fn left_behind(kind: RotationKind, step: Step, left: &Behind) -> Vec<String> {
    let needs = |holder: &Follower| match (holder.is_gateway, kind, step) {
        (true, RotationKind::InternalAuthority, Step::Switch | Step::Finish) => NEW_KEYS,
        (true, ..) => "it follows when it is back",
        (false, ..) => "it takes the keys over when it runs again",
    };
    let holders = left.holders.iter().map(|holder| format!("left behind: {}: {}", holder.name, needs(holder)));
    let nodes = (left.nodes > 0)
        .then(|| format!("left behind: {}: they catch up when they come back", count(left.nodes, "node")));
    holders.chain(nodes).collect()
}

/// What became of a try.
enum Tried {
    /// The step is taken, now or before.
    Done,
    Behind(Missing),
    /// Machines would refuse these.
    Waits(CommandsBefore),
    /// What the old key made is stored soon.
    Settles(String),
}

/// Says what is waited for, once.
fn tell(text: String, said: &mut String, output: &Output) {
    if text != *said && !output.is_json() {
        note(&text);
    }
    *said = text;
}

fn lost(commands: &CommandsBefore) -> Failure {
    let message = format!("command-root cannot be finished yet: {}", commands.in_words());
    Failure::refused(SIGNED_BEFORE, message).hint(
        "machines would refuse them. Run it again then, or take them back with `better-compute commands cancel`; \
         with --force they are lost",
    )
}

/// Who is behind, and what that keeps from happening.
struct Missing {
    kind: RotationKind,
    step: Step,
    rotation: Option<Rotation>,
    now: Timestamp,
    behind: Behind,
}

impl Missing {
    /// Whether it passes by itself and soon: certificates of nodes are renewed in half a day.
    const fn passes(&self) -> bool {
        self.behind.certificates.is_empty()
    }

    fn who(&self) -> String {
        match (self.behind.nodes, self.behind.holders.len() as u64) {
            (nodes, 0) => count(nodes, "node"),
            (0, holders) => count(holders, "follower"),
            (nodes, holders) => format!("{} and {}", count(nodes, "node"), count(holders, "follower")),
        }
    }

    fn progress(&self) -> String {
        format!("waiting for {} to take the step before over: {}", self.who(), self.behind.names())
    }

    /// By when every node that runs has a certificate of the new authority.
    fn renewed_by(&self) -> Option<Timestamp> {
        let half = Duration::from_secs(NODE_LIFE.as_secs() / 2);
        self.rotation?.switched_at.filter(|_| !self.passes()).map(|at| half.after(at))
    }

    fn refusal(&self) -> Failure {
        let (kind, step) = (self.kind, self.step.done());
        let has = if self.behind.count() == 1 { "has" } else { "have" };
        let again = format!("`better-compute keys rotate {kind} --step {}`", self.step.as_str());
        if let Some(by) = self.renewed_by().filter(|by| self.now < *by) {
            let message = format!(
                "{kind} cannot be {step} yet: {} {has} no certificate of the new authority ({})",
                self.who(),
                self.behind.names()
            );
            return Failure::new(Exit::Refused, message).hint(format!(
                "each machine that runs renews its certificate by itself, the last one by about {}: run it again then, {again}. \
                 With --force they renew when they connect the next time",
                Moment(by)
            ));
        }
        let message =
            format!("{kind} cannot be {step} yet: {} {has} not followed ({})", self.who(), self.behind.names());
        let outside = self.behind.holders.iter().filter(|holder| holder.needs_keys);
        let outside: Vec<String> = outside.map(|holder| format!("{}: {NEW_KEYS}. ", holder.name)).collect();
        let again = format!("{}run it again when they are back, {again}", outside.concat());
        Failure::new(Exit::Refused, message).hint(match (kind, may_leave_behind(kind, self.step)) {
            (RotationKind::Checkpoint, false) => format!(
                "{again}; --force does not go on without them: what only the old key stands behind would count for nothing, and \
                 every machine would wait. What has the keys of the source signs it anew within seconds, once it reads the fleet \
                 repository; a process that ended is forgotten within a minute"
            ),
            (_, false) => format!(
                "{again}; --force does not go on without them: what they seal with the old key would be lost. A process that \
                 ended is forgotten within a minute"
            ),
            (_, true) if self.behind.nodes == 0 => format!(
                "{again}; a process that ended is forgotten within a minute, and a gateway by `keys end-gateway`. --force leaves \
                 them behind"
            ),
            (_, true) => format!("{again}; with --force nodes catch up when they come back"),
        })
    }
}

/// Seals every value with the key of this name, a hundred at a time. Whoever ends it in the middle loses nothing: each value is
/// sealed with one of two keys that are both there.
async fn seal_anew(client: &Client, key: &str) -> Result<(), Failure> {
    let mut sealed = 0;
    let left = loop {
        let answer = client.call("keys.reseal", &json!({ "key": key, "idempotencyKey": once() })).await?;
        let number = |name: &str| {
            let number = answer.get(name).and_then(Value::as_u64);
            number.ok_or_else(|| Failure::failed(format!("the control plane does not say how many are {name}")))
        };
        match number("resealed")? {
            0 => break number("left")?,
            some => sealed += some,
        }
    };
    if sealed > 0 {
        note(format!("sealed {} anew", count(sealed, "value")));
    }
    match left {
        0 => Ok(()),
        left => {
            Err(Failure::new(Exit::Refused, format!("{} wait for somebody who works on them", count(left, "value")))
                .hint("run this again; the old key stays until nothing is sealed with it"))
        }
    }
}

fn said(kind: RotationKind, done: Advanced, keys: &Keys) -> String {
    let version = keys.trust_version();
    if !kind.is_believed_by_nodes() {
        return match done {
            Advanced::Begun => "begun; both keys are taken, and the old one is used",
            Advanced::Switched => "switched; the new key is used, and both are taken",
            Advanced::Finished => "finished; the old key is gone",
        }
        .to_owned();
    }
    match (kind, done) {
        (RotationKind::JoinKey, Advanced::Begun) => {
            format!(
                "new join tokens are sealed to a new key (trust bundle {version}); what is sealed to the old one still opens"
            )
        }
        (_, Advanced::Begun) => {
            format!("begun; nodes learn the new key with trust bundle {version}, and the old one signs")
        }
        (_, Advanced::Switched) => "switched; the new key signs, and both are believed".to_owned(),
        (_, Advanced::Finished) => format!("finished; the old key is over with trust bundle {version}"),
    }
}

fn next(kind: RotationKind, done: Advanced) -> Option<String> {
    let step = if done == Advanced::Begun && kind != RotationKind::JoinKey { Step::Switch } else { Step::Finish };
    let again = format!("`better-compute keys rotate {kind} --step {}`", step.as_str());
    match (kind, done) {
        (RotationKind::NodeCa, Advanced::Switched) => Some(format!(
            "Next: {again}, once every node has a certificate of the new authority, which takes half a day."
        )),
        (RotationKind::SecretStore, Advanced::Switched) => Some(format!(
            "Next: {again}, in a minute: it seals every value anew, and then the old key goes. Backups of the database from \
             before need a copy of the key directory from before."
        )),
        (_, Advanced::Finished) => kind
            .is_believed_by_nodes()
            .then(|| "Join lines that were printed before carry an old pin; print new ones.".to_owned()),
        _ => Some(format!(
            "Next: {again}, once its followers are there ({}); `better-compute keys status` shows who is not.",
            followers(kind)
        )),
    }
}

#[cfg(test)]
mod tests {
    use schema::time::Timestamp;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn follower(name: &str, is_gateway: bool) -> Follower {
        Follower { name: name.to_owned(), is_gateway, needs_keys: is_gateway, seen_at: Some(at(100)) }
    }

    #[test]
    fn nothing_is_left_to_a_key_that_goes() {
        for kind in RotationKind::ALL {
            let loses = matches!(kind, RotationKind::SecretStore | RotationKind::Checkpoint);
            assert_eq!(may_leave_behind(kind, Step::Finish), !loses, "{kind}");
            assert!(may_leave_behind(kind, Step::Begin) && may_leave_behind(kind, Step::Switch), "{kind}");
        }
    }

    #[test]
    fn a_step_that_is_named_is_taken_once() {
        pki::install_provider();
        let (kind, fleet) = (RotationKind::NodeCa, "fleet");
        let mut keys = Keys::generate("bc.local", at(0)).unwrap();
        let taken = |keys: &Keys, step: Step| step.taken(&keys.rotation_status_of(kind)).map_err(|error| error.message);
        assert!(taken(&keys, Step::Finish).unwrap_err().contains("no rotation of it was begun"));
        for (second, step) in [(10, Step::Begin), (20, Step::Switch), (30, Step::Finish)] {
            assert_eq!(taken(&keys, step), Ok(None));
            keys.advance(kind, fleet, at(second));
            if step != Step::Finish {
                assert_eq!(taken(&keys, step), Ok(Some(at(second))));
            }
        }
        assert_eq!(taken(&keys, Step::Finish), Ok(Some(at(30))));
        assert_eq!(taken(&keys, Step::Switch), Ok(Some(at(30))));
        keys.advance(kind, fleet, at(40));
        assert!(taken(&keys, Step::Finish).unwrap_err().contains("it is not switched"));
    }

    #[test]
    fn a_finish_that_is_said_again_begins_nothing() {
        pki::install_provider();
        let kind = RotationKind::InternalAuthority;
        let mut keys = Keys::generate("bc.local", at(0)).unwrap();
        for _ in 0..3 {
            keys.advance(kind, "fleet", at(10));
        }
        let status = keys.rotation_status_of(kind);
        let refused = meant(&status, at(130)).unwrap_err();
        assert!(refused.message.contains("was finished 2m ago"), "{refused}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("--step begin")));
        assert_eq!(meant(&status, at(10 + AGAIN)).unwrap(), Step::Begin);
        let other = keys.rotation_status_of(RotationKind::Checkpoint);
        assert_eq!(meant(&other, at(130)).unwrap(), Step::Begin);
    }

    #[test]
    fn a_failure_before_a_step_says_that_none_was_taken() {
        let away =
            Failure::new(Exit::Unreachable, "cannot talk to https://127.0.0.1:1: refused").hint("is it running?");
        let told = untaken(RotationKind::NodeCa, away);
        assert_eq!(told.message, "cannot talk to https://127.0.0.1:1: refused; no step of node-ca was taken");
        assert_eq!((told.exit, told.hint.as_deref()), (Exit::Unreachable, Some("is it running?")));
    }

    #[test]
    fn who_is_left_behind_is_told_what_it_needs() {
        let left =
            Behind { holders: vec![follower("gw-1", true), follower("vm/1", false)], nodes: 2, ..Behind::default() };
        let told = left_behind(RotationKind::InternalAuthority, Step::Finish, &left);
        assert!(told[0].starts_with("left behind: gw-1: it needs new keys"), "{told:?}");
        assert!(told[1].contains("vm/1: it takes the keys over") && told[2].contains("2 nodes"), "{told:?}");
        let told = left_behind(RotationKind::NodeCa, Step::Finish, &left);
        assert_eq!(told[0], "left behind: gw-1: it follows when it is back");
    }

    #[test]
    fn a_refusal_says_whom_to_wait_for_before_it_speaks_of_force() {
        let switched = Rotation { phase: Phase::Switched, begun_at: at(0), switched_at: Some(at(0)), version: 2 };
        let missing = |kind, step, behind| Missing { kind, step, rotation: Some(switched), now: at(60), behind };
        let process = Behind { holders: vec![follower("vm/27471", false)], ..Behind::default() };
        let refused = missing(RotationKind::Checkpoint, Step::Begin, process.clone()).refusal();
        assert_eq!(refused.message, "checkpoint cannot be begun yet: 1 follower has not followed (vm/27471)");
        let hint = refused.hint.expect("a hint");
        assert!(hint.starts_with("run it again when they are back, `better-compute keys rotate checkpoint"), "{hint}");
        let gateway = Behind { holders: vec![follower("gw-1", true)], ..Behind::default() };
        let hint = missing(RotationKind::NodeCa, Step::Begin, gateway).refusal().hint.expect("a hint");
        assert!(hint.starts_with("gw-1: it needs new keys"), "{hint}");
        let hint = missing(RotationKind::Checkpoint, Step::Finish, process).refusal().hint.expect("a hint");
        assert!(hint.contains("--force does not go on without them"), "{hint}");

        let certificates = Behind { certificates: vec!["gpu-1".to_owned()], nodes: 1, ..Behind::default() };
        let refused = missing(RotationKind::NodeCa, Step::Finish, certificates);
        assert!(!refused.passes(), "half a day is not waited for");
        let refused = refused.refusal();
        assert!(refused.message.contains("1 node has no certificate of the new authority (gpu-1)"), "{refused}");
        assert!(refused.hint.is_some_and(|hint| hint.contains("by about 1970-01-01 12:00")));
    }
}
