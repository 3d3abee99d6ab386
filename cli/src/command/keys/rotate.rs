//! `keys rotate`: the next step of a rotation, once the fleet followed the one before.
//!
//! The step is made in the key directory, where only whoever runs the control plane can write; every process that has the
//! directory takes it over within seconds. How far nodes, processes and gateways are is asked over the API. What was sealed
//! with the key of the secret store is sealed anew before that key goes; killed in the middle, it goes on where it was.

use std::{path::PathBuf, time::Duration as StdDuration};

use clap::{Args, ValueEnum};
use pki::keys::{Advanced, Keys, Phase, Rotation, RotationKind};
use schema::{clock::SharedClock, time::Duration};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::token::once,
    control_plane,
    followers::{Behind, CommandsBefore, Holders, followers},
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

A rotation has three steps: begin (old and new are believed, the old one signs), switch (the new
one signs), finish (the old one is over). Each waits a minute for nodes, processes and gateways to
follow the one before, and is refused when they do not. Machines that are switched off meanwhile
catch up when they come back, even when it was finished without them (--force). A gateway that was
away then needs new keys (`keys gateway`).";

/// The stable word for commands that would be lost.
const SIGNED_BEFORE: &str = "signed-before";
/// How soon whoever was behind is asked about again.
const LOOK_AGAIN: StdDuration = StdDuration::from_secs(1);

/// What of the old key may be on its way when the new one is used, and for how long.
const fn on_their_way(kind: RotationKind) -> Option<(Duration, &'static str)> {
    match kind {
        RotationKind::CommandRoot => Some((Duration::from_secs(60), "commands that were being signed at the switch")),
        RotationKind::Checkpoint => Some((Duration::from_secs(300), "challenges that the old key made")),
        RotationKind::SecretStore => Some((Duration::from_secs(60), "values that were put before the switch")),
        RotationKind::NodeCa | RotationKind::JoinKey | RotationKind::InternalAuthority => None,
    }
}

/// Whether the next step may leave somebody behind. Whoever seals with a key that goes seals values that nobody opens.
fn may_leave_behind(kind: RotationKind, rotation: Option<Rotation>) -> bool {
    kind != RotationKind::SecretStore || rotation.is_none_or(|rotation| rotation.phase != Phase::Switched)
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
        let until = Instant::now() + self.wait.to_std();
        let mut said = String::new();
        loop {
            let output = Output::detect(self.format.format, clock.now());
            match self.try_step(place, kind, client, &output).await? {
                Tried::Taken => return Ok(()),
                Tried::Behind(missing) if !missing.passes() || Instant::now() >= until => return Err(missing.refusal()),
                Tried::Behind(missing) => tell(missing.progress(), &mut said, &output),
                Tried::Waits(commands) if Instant::now() >= until => return Err(lost(&commands)),
                Tried::Waits(commands) => tell(format!("waiting: {}", commands.in_words()), &mut said, &output),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn try_step(
        &self,
        place: &KeyDir,
        kind: RotationKind,
        client: &Client,
        output: &Output,
    ) -> Result<Tried, Failure> {
        let _hold = place.hold()?;
        let mut keys = control_plane(place)?;
        let holders = Holders::ask(client).await?;
        let status = client.call("fleet.status", &json!({})).await?;
        let fleet = status.get("fleetId").and_then(Value::as_str);
        let fleet = fleet.ok_or_else(|| Failure::failed("the control plane does not say which fleet it is"))?;
        // Keys are dated by the clock that everything goes by, whatever this host's says.
        let now = status.get("now").and_then(Value::as_str).and_then(|now| now.parse().ok()).unwrap_or(output.now);
        holders.check(place, &keys, &keys.anchor(fleet).pin().to_string())?;
        let rotation = keys.rotation(kind);
        let behind = Behind::ask(kind, &keys, &holders, client).await?;
        if behind.count() > 0 && !(self.force && may_leave_behind(kind, rotation)) {
            return Ok(Tried::Behind(Missing { kind, rotation, behind }));
        }
        if let Some(at) = rotation.and_then(|rotation| rotation.switched_at) {
            if kind == RotationKind::CommandRoot && holders.commands_before.count > 0 && !self.force {
                return Ok(Tried::Waits(holders.commands_before));
            }
            if let Some((life, what)) = on_their_way(kind).filter(|_| !self.force) {
                let settled = life.after(at);
                if now < settled {
                    let message = format!("{what} may be on their way until {settled}");
                    return Err(
                        Failure::new(Exit::Refused, message).hint("finish it then; --force does not wait for them")
                    );
                }
            }
            if kind == RotationKind::SecretStore {
                seal_anew(client, &keys.secret_store(fleet).key_name()).await?;
            }
        }
        let done = keys.advance(kind, fleet, now);
        place.store_control_plane(&keys)?;
        if output.is_json() {
            output.json(&json!({ "kind": kind, "step": word(done), "trustVersion": keys.trust_version() }))?;
            return Ok(Tried::Taken);
        }
        output.line(format!("{kind}: {}", said(kind, done, &keys)))?;
        note(next(kind, done));
        Ok(Tried::Taken)
    }
}

/// What became of a try.
enum Tried {
    Taken,
    Behind(Missing),
    /// Machines would refuse these.
    Waits(CommandsBefore),
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
    rotation: Option<Rotation>,
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

    fn refusal(&self) -> Failure {
        let kind = self.kind;
        let step = match self.rotation.map(|rotation| rotation.phase) {
            None => "begun",
            Some(Phase::Begun) => "switched",
            Some(Phase::Switched) => "finished",
        };
        let has = if self.behind.count() == 1 { "has" } else { "have" };
        let message =
            format!("{kind} cannot be {step} yet: {} {has} not followed ({})", self.who(), self.behind.names());
        let again = format!("run it again when they are back, `better-compute keys rotate {kind}`");
        Failure::new(Exit::Refused, message).hint(if !may_leave_behind(kind, self.rotation) {
            format!("{again}; --force does not go on without them: what they seal with the old key would be lost. A process that ended is forgotten within a minute")
        } else if self.behind.nodes == 0 {
            format!("{again}; a process that ended is forgotten within a minute, and a gateway by `keys end-gateway`. --force leaves them behind")
        } else {
            format!("{again}; with --force nodes catch up when they come back")
        })
    }
}

const fn word(done: Advanced) -> &'static str {
    match done {
        Advanced::Begun => "begun",
        Advanced::Switched => "switched",
        Advanced::Finished => "finished",
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

fn next(kind: RotationKind, done: Advanced) -> String {
    let again = format!("`better-compute keys rotate {kind}`");
    match (kind, done) {
        (RotationKind::NodeCa, Advanced::Switched) => {
            format!("Next: {again}, once every node has a certificate of the new authority, which takes half a day.")
        }
        (RotationKind::SecretStore, Advanced::Switched) => format!(
            "Next: {again}, in a minute: it seals every value anew, and then the old key goes. Backups of the database from \
             before need a copy of the key directory from before."
        ),
        (_, Advanced::Finished) if !kind.is_believed_by_nodes() => {
            "Copy the key directory to where its copies are.".to_owned()
        }
        (_, Advanced::Finished) => "Join lines that were printed before carry an old pin; print new ones.".to_owned(),
        _ => format!(
            "Next: {again}, once its followers are there ({}); `better-compute keys status` shows who is not.",
            followers(kind)
        ),
    }
}

#[cfg(test)]
mod tests {
    use schema::time::Timestamp;

    use super::*;

    #[test]
    fn no_value_is_left_to_a_process_that_seals_with_a_key_that_goes() {
        pki::install_provider();
        let mut keys = Keys::generate("bc.local", Timestamp::UNIX_EPOCH).unwrap();
        let kind = RotationKind::SecretStore;
        for may in [true, true, false] {
            assert_eq!(may_leave_behind(kind, keys.rotation(kind)), may);
            keys.advance(kind, "fleet", Timestamp::UNIX_EPOCH);
        }
    }

    #[test]
    fn a_refusal_says_whom_to_wait_for_before_it_speaks_of_force() {
        let missing = |kind, behind| Missing { kind, rotation: None, behind };
        let process = Behind { holders: vec!["vm/27471".to_owned()], ..Behind::default() };
        let refused = missing(RotationKind::Checkpoint, process).refusal();
        assert_eq!(refused.message, "checkpoint cannot be begun yet: 1 follower has not followed (vm/27471)");
        let hint = refused.hint.expect("a hint");
        assert!(hint.starts_with("run it again when they are back, `better-compute keys rotate checkpoint`"), "{hint}");
        let certificates = Behind { certificates: vec!["gpu-1".to_owned()], nodes: 1, ..Behind::default() };
        assert!(!missing(RotationKind::NodeCa, certificates).passes(), "half a day is not waited for");
    }
}
