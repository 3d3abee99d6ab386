//! `keys rotate`: the next step of a rotation, once the fleet followed the one before.
//!
//! The step is made in the key directory, where only whoever runs the control plane can write; every process that has the
//! directory takes it over within seconds. How far the nodes are is asked over the API.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use pki::keys::{Advanced, Keys, Phase, Rotation, RotationKind};
use schema::{clock::SharedClock, time::Duration};
use serde_json::{Value, json};

use crate::{
    args::FormatArg,
    client::{Client, Target},
    data_dir,
    exit::{Exit, Failure},
    output::{Output, Table, note, text::count},
    up::keys::KeyDir,
};

const EXAMPLES: &str = "\
Examples:
  better-compute keys status                     where each rotation stands, and who is behind
  better-compute keys rotate node-ca             begin, then switch, then finish
  better-compute keys rotate command-root
  better-compute keys rotate join-key

A rotation has three steps: begin (old and new are believed, the old one signs), switch (the new
one signs), finish (the old one is over). Each waits for the nodes; machines that are switched off
meanwhile catch up when they come back, even when it was finished without them (--force).";

/// How long a command that was signed may wait for its node.
const ON_THEIR_WAY: Duration = Duration::from_secs(3_600);

/// Replace keys that nodes believe, a step at a time.
///
/// Takes the next step of a rotation when every node followed the one before, and says what comes next. Without a kind it
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
    /// Take the step although nodes are behind; they catch up when they come back
    #[arg(long)]
    pub force: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

/// Show where each rotation stands.
///
/// Which keys nodes believe, which step of a rotation comes next, and which nodes did not follow yet.
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
}

impl From<Kind> for RotationKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::NodeCa => Self::NodeCa,
            Kind::CommandRoot => Self::CommandRoot,
            Kind::JoinKey => Self::JoinKey,
        }
    }
}

/// Nodes that a step waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Behind {
    /// They do not know the new key yet.
    trust: Vec<String>,
    /// Their certificates are the old authority's.
    certificates: Vec<String>,
    count: u64,
}

impl Behind {
    /// Who they are, ten at most.
    fn names(&self) -> String {
        const MOST: usize = 10;
        let names: BTreeSet<&str> = self.trust.iter().chain(&self.certificates).map(String::as_str).collect();
        let shown: Vec<&str> = names.into_iter().take(MOST).collect();
        match self.count.saturating_sub(shown.len() as u64) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// The keys, where they are, and whom to ask how far the nodes are.
fn open(keys: Option<&Path>, target: &Target) -> Result<(KeyDir, Keys, Client), Failure> {
    let place = match keys {
        Some(dir) => KeyDir::at(dir),
        None => KeyDir::at(data_dir::locate(target.data.as_deref()).join("keys")),
    };
    let keys = place.control_plane()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys of a control plane", place.path().display()))
            .hint("rotating is done where the control plane's keys are; --keys says where")
    })?;
    let client = Client::new(target)?;
    Ok((place, keys, client))
}

impl Status {
    /// Shows it.
    ///
    /// # Errors
    /// When the keys are not there, or the control plane does not answer.
    pub async fn run(&self, clock: &SharedClock) -> Result<(), Failure> {
        let (_, keys, client) = open(self.keys.as_deref(), &self.target)?;
        show(&keys, &client, &Output::detect(self.format.format, clock.now())).await
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
            None => show(&keys, &client, &output).await,
            Some(kind) => self.step(place, keys, kind.into(), &client, &output).await,
        }
    }

    async fn step(
        &self,
        place: KeyDir,
        mut keys: Keys,
        kind: RotationKind,
        client: &Client,
        output: &Output,
    ) -> Result<(), Failure> {
        if let Some(rotation) = keys.rotation(kind) {
            let behind = behind(kind, rotation, client).await?;
            if behind.count > 0 && !self.force {
                return Err(refuse(kind, rotation, &behind));
            }
            let settled = rotation.switched_at.map(|at| ON_THEIR_WAY.after(at));
            let settled = settled.filter(|at| kind == RotationKind::CommandRoot && output.now < *at && !self.force);
            if let Some(settled) = settled {
                let message = format!("commands that the old root signed may be on their way until {settled}");
                return Err(Failure::new(Exit::Refused, message).hint("finish it then; --force does not wait for them"));
            }
        }
        let status = client.call("fleet.status", &json!({})).await?;
        let fleet = status.get("fleetId").and_then(Value::as_str);
        let fleet = fleet.ok_or_else(|| Failure::failed("the control plane does not say which fleet it is"))?;
        let done = keys.advance(kind, fleet, output.now);
        place.store_control_plane(&keys)?;
        if output.is_json() {
            return output.json(&json!({ "kind": kind, "step": word(done), "trustVersion": keys.trust_version() }));
        }
        output.line(format!("{kind}: {}", said(kind, done, &keys)))?;
        note(next(kind, done));
        Ok(())
    }
}

const fn word(done: Advanced) -> &'static str {
    match done {
        Advanced::Begun => "begun",
        Advanced::Switched => "switched",
        Advanced::Finished => "finished",
    }
}

fn said(kind: RotationKind, done: Advanced, keys: &Keys) -> String {
    let version = keys.trust_version();
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
        (RotationKind::NodeCa, Advanced::Begun) => format!(
            "Give gateways apart new keys (`better-compute keys gateway`), then {again} once the nodes know the new root."
        ),
        (RotationKind::NodeCa, Advanced::Switched) => format!(
            "Give gateways apart new keys again: their certificates come from the new authority now. Then {again} once every node \
             has a certificate of it, which takes half a day."
        ),
        (_, Advanced::Finished) => "Join lines that were printed before carry an old pin; print new ones.".to_owned(),
        _ => format!("Next: {again}, once the nodes followed; `better-compute keys status` shows who has not."),
    }
}

fn refuse(kind: RotationKind, rotation: Rotation, behind: &Behind) -> Failure {
    let step = match rotation.phase {
        Phase::Begun => "switched",
        Phase::Switched => "finished",
    };
    let nodes = count(behind.count, "node");
    let has = if behind.count == 1 { "has" } else { "have" };
    let message = format!("{kind} cannot be {step} yet: {nodes} {has} not followed ({})", behind.names());
    Failure::new(Exit::Refused, message)
        .hint("wait for them; --force goes on without them, and they catch up when they come back")
}

async fn behind(kind: RotationKind, rotation: Rotation, client: &Client) -> Result<Behind, Failure> {
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
        count: number("/behind/count").max(number("/oldCertificates/count")),
    })
}

async fn show(keys: &Keys, client: &Client, output: &Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for status in keys.rotation_status() {
        let behind = match status.rotation {
            Some(rotation) => Some(behind(status.kind, rotation, client).await?),
            None => None,
        };
        rows.push((status, behind));
    }
    if output.is_json() {
        let all: Vec<Value> = rows
            .iter()
            .map(|(status, behind)| {
                let mut row = json!({ "kind": status.kind, "rotation": status.rotation });
                if let Some(behind) = behind {
                    row["behind"] =
                        json!({ "count": behind.count, "trust": behind.trust, "certificates": behind.certificates });
                }
                row
            })
            .collect();
        return output.json(&json!({ "trustVersion": keys.trust_version(), "keys": all }));
    }
    let mut table = Table::new(&["keys", "rotation", "since", "behind"]).whole(&["keys"]);
    for (status, behind) in &rows {
        let (phase, since) = match status.rotation {
            None => ("none".to_owned(), "-".to_owned()),
            Some(Rotation { phase: Phase::Begun, begun_at, .. }) => ("begun".to_owned(), output.ago(begun_at)),
            Some(Rotation { begun_at, switched_at, .. }) => {
                ("switched".to_owned(), output.ago(switched_at.unwrap_or(begun_at)))
            }
        };
        let behind = behind.as_ref().map_or_else(|| "-".to_owned(), |behind| behind.count.to_string());
        table.row([status.kind.to_string().into(), phase.into(), since.into(), behind.into()]);
    }
    output.table(&table, "no keys")?;
    for (status, behind) in &rows {
        if let Some(behind) = behind.as_ref().filter(|behind| behind.count > 0) {
            output.line(format!("{}: not followed yet: {}", status.kind, behind.names()))?;
        }
    }
    note(format!("trust bundle {}", keys.trust_version()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_behind_is_named_once_and_the_rest_is_counted() {
        let name = |n: u32| format!("gpu-{n:02}");
        let two = Behind { trust: vec![name(2), name(1)], certificates: vec![name(1)], count: 2 };
        assert_eq!(two.names(), "gpu-01, gpu-02");
        let many = Behind { trust: (0..20).map(name).collect(), certificates: Vec::new(), count: 5_000 };
        assert!(many.names().ends_with("gpu-09 and 4990 more"), "{}", many.names());
    }
}
