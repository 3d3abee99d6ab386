//! `keys rotate`: the next step of a rotation, once the fleet followed the one before.
//!
//! The step is made in the key directory, where only whoever runs the control plane can write; every process that has the
//! directory takes it over within seconds. How far nodes, processes and gateways are is asked over the API. What was sealed
//! with the key of the secret store is sealed anew before that key goes; killed in the middle, it goes on where it was.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration as StdDuration,
};

use clap::{Args, ValueEnum};
use pki::keys::{Advanced, Keys, Phase, Rotation, RotationKind, RotationStatus};
use schema::{
    clock::SharedClock,
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::token::once;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    data_dir,
    exit::{During as _, Exit, Failure},
    output::{Output, Table, note, text::count},
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
follow the one before, and is refused when they do not; machines that are switched off meanwhile catch up when they come back, even when it was finished without
them (--force). A gateway that was away then needs new keys (`keys gateway`).";

/// How soon whoever was behind is asked about again.
const LOOK_AGAIN: StdDuration = StdDuration::from_secs(1);

/// What of the old key may be on its way when the new one is used, and for how long.
const fn on_their_way(kind: RotationKind) -> Option<(Duration, &'static str)> {
    match kind {
        RotationKind::CommandRoot => Some((Duration::from_secs(3_600), "commands that the old root signed")),
        RotationKind::Checkpoint => Some((Duration::from_secs(300), "challenges that the old key made")),
        RotationKind::SecretStore => Some((Duration::from_secs(60), "values that were put before the switch")),
        RotationKind::NodeCa | RotationKind::JoinKey | RotationKind::InternalAuthority => None,
    }
}

/// Whether gateways apart have to follow: those hold nothing of the others.
const fn is_followed_by_gateways(kind: RotationKind) -> bool {
    !matches!(kind, RotationKind::Checkpoint | RotationKind::SecretStore)
}

/// Whether the next step may leave somebody behind. Whoever seals with a key that goes seals values that nobody opens.
fn may_leave_behind(kind: RotationKind, rotation: Option<Rotation>) -> bool {
    kind != RotationKind::SecretStore || rotation.is_none_or(|rotation| rotation.phase != Phase::Switched)
}

/// Who has to follow.
const fn followers(kind: RotationKind) -> &'static str {
    match kind {
        RotationKind::NodeCa | RotationKind::CommandRoot | RotationKind::JoinKey => "nodes, processes, gateways",
        RotationKind::InternalAuthority => "processes, gateways",
        RotationKind::Checkpoint => "processes",
        RotationKind::SecretStore => "processes, sealed values",
    }
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

/// Show where each rotation stands.
///
/// Each key: where it is, when it was made, who has to follow it, which step of a rotation it is in, and who is behind.
#[derive(Debug, Args)]
pub struct Status {
    /// Directory with the control plane's keys [default: keys in the data directory]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
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

/// Whom a step waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Behind {
    /// Nodes that do not know the new key yet.
    trust: Vec<String>,
    /// Nodes whose certificates are the old authority's.
    certificates: Vec<String>,
    /// How many nodes.
    nodes: u64,
    /// Processes and gateways that work with keys of before.
    holders: Vec<String>,
}

impl Behind {
    fn count(&self) -> u64 {
        self.nodes + self.holders.len() as u64
    }

    /// Who they are, ten at most.
    fn names(&self) -> String {
        const MOST: usize = 10;
        let nodes: BTreeSet<&str> = self.trust.iter().chain(&self.certificates).map(String::as_str).collect();
        let shown: Vec<&str> = self.holders.iter().map(String::as_str).chain(nodes).take(MOST).collect();
        match self.count().saturating_sub(shown.len() as u64) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// Who works with which keys, as the API says it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    name: String,
    is_gateway: bool,
    revision: u64,
    seen_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_ends_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_by: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Held {
    pin: String,
    holders: Vec<Holder>,
    sealed_before: u64,
}

impl Held {
    async fn ask(client: &Client) -> Result<Self, Failure> {
        let answer = client.call("keys.holders", &json!({})).await?;
        serde_json::from_value(answer).during("the control plane's answer cannot be read")
    }

    /// Who works with keys of before. Who was ended is waited for by nobody.
    fn behind(&self, kind: RotationKind, revision: u64) -> Vec<String> {
        let follows =
            |holder: &&Holder| holder.ended_by.is_none() && (!holder.is_gateway || is_followed_by_gateways(kind));
        let behind = self.holders.iter().filter(follows).filter(|holder| holder.revision < revision);
        behind.map(|holder| holder.name.clone()).collect()
    }

    /// Refuses keys that are not those of the control plane that answered: a copy from before, or another one's.
    fn check(&self, place: &KeyDir, keys: &Keys, pin: &str) -> Result<(), Failure> {
        let dir = place.path().display();
        let processes = || self.holders.iter().filter(|holder| !holder.is_gateway);
        if let Some(ahead) = processes().find(|holder| holder.revision > keys.revision()) {
            let message = format!("{dir} is a copy from before: {} works with later keys", ahead.name);
            return Err(Failure::new(Exit::Refused, message).hint("rotate where the latest keys are"));
        }
        let follow = processes().all(|holder| holder.revision == keys.revision());
        if follow && self.pin != pin {
            let message = format!("the control plane that answers works with other keys than those in {dir}");
            return Err(Failure::new(Exit::Refused, message)
                .hint("--keys and --url have to be of one control plane; `keys status` shows both"));
        }
        Ok(())
    }
}

/// The keys, where they are, and whom to ask how far the nodes are.
fn open(keys: Option<&Path>, target: &Target) -> Result<(KeyDir, Keys, Client), Failure> {
    let place = match keys {
        Some(dir) => KeyDir::at(dir),
        None => KeyDir::at(data_dir::locate(target.data.as_deref()).join("keys")),
    };
    let keys = control_plane(&place)?;
    let client = Client::new(target)?;
    Ok((place, keys, client))
}

fn control_plane(place: &KeyDir) -> Result<Keys, Failure> {
    place.control_plane()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys of a control plane", place.path().display()))
            .hint("rotating is done where the control plane's keys are; --keys says where")
    })
}

impl Status {
    /// Shows it.
    ///
    /// # Errors
    /// When the keys are not there, or the control plane does not answer.
    pub async fn run(&self, clock: &SharedClock) -> Result<(), Failure> {
        let (place, keys, client) = open(self.keys.as_deref(), &self.target)?;
        show(&place, &keys, &client, &Output::detect(self.format.format, clock.now())).await
    }
}

impl Rotate {
    /// Does it.
    ///
    /// # Errors
    /// When nodes are behind, the keys are not there, or the control plane does not answer.
    pub async fn run(&self, clock: &SharedClock) -> Result<(), Failure> {
        let output = Output::detect(self.format.format, clock.now());
        let (place, keys, client) = open(self.keys.as_deref(), &self.target)?;
        match self.kind {
            None => show(&place, &keys, &client, &output).await,
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
                Tried::Behind(missing) => {
                    let text = missing.progress();
                    if text != said && !output.is_json() {
                        note(&text);
                    }
                    said = text;
                }
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
        let _held = place.hold()?;
        let mut keys = control_plane(place)?;
        let held = Held::ask(client).await?;
        let status = client.call("fleet.status", &json!({})).await?;
        let fleet = status.get("fleetId").and_then(Value::as_str);
        let fleet = fleet.ok_or_else(|| Failure::failed("the control plane does not say which fleet it is"))?;
        held.check(place, &keys, &keys.anchor(fleet).pin().to_string())?;
        let rotation = keys.rotation(kind);
        let behind = behind(kind, &keys, &held, client).await?;
        if behind.count() > 0 && !(self.force && may_leave_behind(kind, rotation)) {
            return Ok(Tried::Behind(Missing { kind, rotation, behind }));
        }
        if let Some(at) = rotation.and_then(|rotation| rotation.switched_at) {
            if let Some((life, what)) = on_their_way(kind).filter(|_| !self.force) {
                let settled = life.after(at);
                if output.now < settled {
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
        let done = keys.advance(kind, fleet, output.now);
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

async fn behind(kind: RotationKind, keys: &Keys, held: &Held, client: &Client) -> Result<Behind, Failure> {
    let holders = held.behind(kind, keys.revision());
    let Some(rotation) = keys.rotation(kind).filter(|_| kind.is_believed_by_nodes()) else {
        return Ok(Behind { holders, ..Behind::default() });
    };
    let mut input = json!({ "trustVersion": rotation.version });
    let since = rotation.switched_at.filter(|_| kind == RotationKind::NodeCa);
    if let Some(since) = since {
        input["issuedSince"] = since.to_string().into();
    }
    let answer = client.call("keys.progress", &input).await?;
    let number = |path: &str| answer.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    let names = |path: &str| {
        let names = answer.pointer(path).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Ok(Behind {
        trust: names("/behind/names"),
        certificates: names("/oldCertificates/names"),
        nodes: number("/behind/count").max(number("/oldCertificates/count")),
        holders,
    })
}

async fn show(place: &KeyDir, keys: &Keys, client: &Client, output: &Output) -> Result<(), Failure> {
    let held = Held::ask(client).await?;
    let mut rows = Vec::new();
    for status in keys.rotation_status() {
        rows.push((status, behind(status.kind, keys, &held, client).await?));
    }
    if output.is_json() {
        let row = |(status, behind): &(RotationStatus, Behind)| {
            json!({
                "kind": status.kind,
                "madeAt": status.made_at,
                "followedBy": followers(status.kind),
                "rotation": status.rotation,
                "behind": {
                    "count": behind.count(),
                    "trust": behind.trust,
                    "certificates": behind.certificates,
                    "holders": behind.holders,
                },
            })
        };
        return output.json(&json!({
            "directory": place.path(),
            "revision": keys.revision(),
            "trustVersion": keys.trust_version(),
            "sealedBefore": held.sealed_before,
            "keys": rows.iter().map(row).collect::<Vec<_>>(),
            "service": keys.service().iter().map(|key| key.public().name()).collect::<Vec<_>>(),
            "holders": held.holders,
        }));
    }
    let mut table = Table::new(&["keys", "made", "rotation", "since", "followed by", "behind"]).whole(&["keys"]);
    for (status, behind) in &rows {
        let (phase, since) = match status.rotation {
            None => ("none", None),
            Some(Rotation { phase: Phase::Begun, begun_at, .. }) => ("begun", Some(begun_at)),
            Some(Rotation { begun_at, switched_at, .. }) => ("switched", Some(switched_at.unwrap_or(begun_at))),
        };
        let ago = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| output.ago(at));
        table.row([
            status.kind.to_string().into(),
            ago(status.made_at).into(),
            phase.to_owned().into(),
            ago(since).into(),
            followers(status.kind).to_owned().into(),
            behind.count().to_string().into(),
        ]);
    }
    output.table(&table, "no keys")?;
    for key in keys.service().iter() {
        output.line(format!("service key {}", key.public().name()))?;
    }
    let mut holders = Table::new(&["process or gateway", "keys", "seen", "certificate ends", "ended by"])
        .whole(&["process or gateway"]);
    for holder in &held.holders {
        let state = if holder.revision < keys.revision() { "behind" } else { "present" };
        holders.row([
            holder.name.clone().into(),
            state.to_owned().into(),
            output.ago(holder.seen_at).into(),
            holder.certificate_ends_at.map_or_else(|| "-".to_owned(), |at| at.to_string()).into(),
            holder.ended_by.clone().unwrap_or_else(|| "-".to_owned()).into(),
        ]);
    }
    output.line("")?;
    output.table(&holders, "nobody works with these keys")?;
    for (status, behind) in rows.iter().filter(|(status, _)| status.rotation.is_some()) {
        if behind.count() > 0 {
            output.line(format!("{}: not followed yet: {}", status.kind, behind.names()))?;
        }
    }
    if held.sealed_before > 0 {
        output.line(format!("{} sealed with another key than the present one", count(held.sealed_before, "value")))?;
    }
    note(format!("{}, revision {}, trust bundle {}", place.path().display(), keys.revision(), keys.trust_version()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        pki::install_provider();
        Keys::generate("bc.local", "2026-11-29T12:00:00Z".parse().unwrap()).unwrap()
    }

    fn held(pin: &str, holders: &[(&str, bool, u64)]) -> Held {
        let holder = |(name, is_gateway, revision): &(&str, bool, u64)| Holder {
            name: (*name).to_owned(),
            is_gateway: *is_gateway,
            revision: *revision,
            seen_at: Timestamp::UNIX_EPOCH,
            certificate_ends_at: None,
            ended_by: None,
        };
        Held { pin: pin.to_owned(), holders: holders.iter().map(holder).collect(), sealed_before: 0 }
    }

    #[test]
    fn keys_of_before_and_keys_of_another_control_plane_are_not_rotated() {
        let (place, mut keys) = (KeyDir::at("keys"), keys());
        let pin = keys.anchor("fleet").pin().to_string();
        held(&pin, &[("one/1", false, 0)]).check(&place, &keys, &pin).unwrap();
        let other = held("sha256:00", &[("one/1", false, 0)]).check(&place, &keys, &pin).unwrap_err();
        assert!(other.message.contains("works with other keys"), "{other}");
        let later = held(&pin, &[("one/1", false, 1)]).check(&place, &keys, &pin).unwrap_err();
        assert!(later.message.contains("keys is a copy from before: one/1"), "{later}");
        // What a gateway says of itself stops nobody, and who is still at the step before has another pin.
        held(&pin, &[("gw", true, 9)]).check(&place, &keys, &pin).unwrap();
        keys.advance(RotationKind::NodeCa, "fleet", Timestamp::UNIX_EPOCH);
        let next = keys.anchor("fleet").pin().to_string();
        held(&pin, &[("one/1", false, 0)]).check(&place, &keys, &next).unwrap();
    }

    #[test]
    fn no_value_is_left_to_a_process_that_seals_with_a_key_that_goes() {
        let mut keys = keys();
        let kind = RotationKind::SecretStore;
        for may in [true, true, false] {
            assert_eq!(may_leave_behind(kind, keys.rotation(kind)), may);
            keys.advance(kind, "fleet", Timestamp::UNIX_EPOCH);
        }
        let some = held("", &[("one/1", false, 2), ("gw", true, 2)]);
        assert_eq!(some.behind(kind, keys.revision()), ["one/1"]);
        assert_eq!(some.behind(RotationKind::InternalAuthority, keys.revision()), ["one/1", "gw"]);
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

    #[test]
    fn who_is_behind_is_named_once_and_the_rest_is_counted() {
        let name = |n: u32| format!("gpu-{n:02}");
        let two = Behind { trust: vec![name(2), name(1)], certificates: vec![name(1)], nodes: 2, holders: Vec::new() };
        assert_eq!(two.names(), "gpu-01, gpu-02");
        let many = Behind { trust: (0..20).map(name).collect(), nodes: 5_000, ..Behind::default() };
        assert!(many.names().ends_with("gpu-09 and 4990 more"), "{}", many.names());
        let gateway = Behind { holders: vec!["gw-1".to_owned()], ..two };
        assert_eq!((gateway.count(), gateway.names().as_str()), (3, "gw-1, gpu-01, gpu-02"));
    }
}
