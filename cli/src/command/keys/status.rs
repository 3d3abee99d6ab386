//! `keys status`: where each rotation stands.

use std::path::PathBuf;

use clap::Args;
use pki::keys::{Keys, Phase, Rotation, RotationStatus};
use schema::{clock::SharedClock, time::Timestamp};
use serde_json::json;

use super::{
    followers::{Behind, Holders, followers, names},
    open,
    rotate::NEW_KEYS,
};
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::Failure,
    output::{Output, Table, note, text::count},
    up::keys::KeyDir,
};

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

/// Shows it, and who works with which keys.
pub(super) async fn show(place: &KeyDir, keys: &Keys, client: &Client, output: &Output) -> Result<(), Failure> {
    let known = Holders::ask(client).await?;
    let mut rows = Vec::new();
    for status in keys.rotation_status() {
        rows.push((status, Behind::ask(status.kind, keys, &known, client).await?));
    }
    if output.is_json() {
        let row = |(status, behind): &(RotationStatus, Behind)| {
            json!({
                "kind": status.kind,
                "madeAt": status.made_at,
                "followedBy": followers(status.kind),
                "rotation": status.rotation,
                "finishedAt": status.finished_at,
                "behind": {
                    "count": behind.count(),
                    "trust": behind.trust,
                    "certificates": behind.certificates,
                    "holders": names(&behind.holders),
                },
            })
        };
        return output.json(&json!({
            "directory": place.path(),
            "revision": keys.revision(),
            "trustVersion": keys.trust_version(),
            "sealedBefore": known.sealed_before,
            "commandsBefore": known.commands_before,
            "keys": rows.iter().map(row).collect::<Vec<_>>(),
            "service": keys.service().iter().map(|key| key.public().name()).collect::<Vec<_>>(),
            "holders": known.holders,
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
    for holder in &known.holders {
        let state = match holder.revision < keys.revision() {
            true if holder.needs_keys => "needs new keys",
            true => "behind",
            false => "present",
        };
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
    for holder in known.holders.iter().filter(|holder| holder.needs_keys) {
        output.line(format!("{}: {NEW_KEYS}", holder.name))?;
    }
    if known.commands_before.count > 0 {
        output.line(known.commands_before.in_words())?;
    }
    if known.sealed_before > 0 {
        output.line(format!("{} sealed with another key than the present one", count(known.sealed_before, "value")))?;
    }
    note(format!("{}, revision {}, trust bundle {}", place.path().display(), keys.revision(), keys.trust_version()));
    Ok(())
}
