//! `trust pin`: the anchor that people confirmed goes into the keys, and from then on only what verifies comes into force.

use std::path::PathBuf;

use clap::Args;
use pki::keys::TrustPin;
use serde_json::json;

use super::{Looked, Place, show};
use crate::{
    data_dir,
    exit::{During as _, Exit, Failure},
    output::{self, Output},
    up::keys::KeyDir,
};

/// Pin the fleet to the commit that its trust begins with.
///
/// Shows the fleet, the policy and its people, and asks. The pin lies with the keys of the control plane, not in its database, and there
/// is no way back: from then on a commit comes into force only when it verifies from this anchor on. Running processes take it over
/// within seconds.
#[derive(Debug, Args)]
pub struct Pin {
    /// The anchor, as people who made it told you [default: the first commit that holds trust/policy.kdl]
    #[arg(value_name = "COMMIT")]
    pub commit: Option<String>,
    /// Directory with the control plane's keys [default: keys in the data directory]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

impl Pin {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = self.place.look(self.commit.as_deref())?;
        let keys = KeyDir::at(self.keys.clone().unwrap_or_else(|| data_dir::usual().join("keys")));
        pin(&looked, &keys, self.yes, output)?;
        Ok(Exit::Ok)
    }
}

/// Shows what would be pinned, asks, and pins it.
pub(super) fn pin(looked: &Looked, keys: &KeyDir, yes: bool, output: &Output) -> Result<bool, Failure> {
    if let Some((judged, refusal)) = looked.walked.refused() {
        return Err(Failure::failed(format!(
            "the branch does not verify, and nothing of it would come into force: {} {refusal}",
            judged.id.short()
        ))
        .hint("better-compute verify --dry-run"));
    }
    let Some((anchor, first)) = looked.walked.commits.first().zip(looked.walked.epochs.first()) else {
        return Err(Failure::failed("the branch has no anchor"));
    };
    let pin = TrustPin { commit: anchor.id, fleet: looked.walked.fleet, digest: first.digest };
    let _held = keys.hold()?;
    let mut held = keys.control_plane()?.ok_or_else(|| {
        Failure::failed(format!("{} holds no keys of a control plane", keys.path().display()))
            .hint("pin where they are: --keys DIR, or --data of `up` in BETTER_COMPUTE_DATA")
    })?;
    if keys.is_provisional() || held.trust_domain() != looked.walked.trust_domain {
        return Err(Failure::failed(format!(
            "the fleet is of the trust domain {}, and the control plane of {}",
            looked.walked.trust_domain,
            held.trust_domain()
        )));
    }
    let by = anchor.signer.as_ref().map(|signer| signer.principal.to_string()).unwrap_or_default();
    let shown = format!(
        "anchor  {}  {} (signed by {by})\nfleet   {} of {}\npolicy  epoch 1, {}\nbranch  {} at {}, verified\n\n{}",
        pin.commit,
        anchor.subject,
        pin.fleet,
        looked.walked.trust_domain,
        pin.digest,
        looked.branch,
        looked.tip.short(),
        show::table(&looked.walked).render(output.width, output.colour)
    );
    if held.trust_pin() == Some(pin) {
        output::note(format!("the fleet is pinned to {} already", pin.commit));
        return Ok(true);
    }
    if !output.is_json() {
        output.line(shown)?;
    }
    let question = "\nFrom here on only what these people sign comes into force, for ever. Pin it? [yes/no]";
    if !yes && !output::confirm(output, question)? {
        output::note("nothing was pinned");
        return Ok(false);
    }
    held.pin_trust(pin).during("the fleet is not pinned")?;
    keys.store_control_plane(&held)?;
    if output.is_json() {
        output.json(&json!({ "pin": pin, "trustDomain": looked.walked.trust_domain }))?;
    } else {
        output.line(format!("\npinned to {}", pin.commit))?;
        output::note(
            "Running processes take it over within seconds; `better-compute status` says so. Make a copy of the keys now. \
             Processes with keys of their own (keys signing, keys source) need them again.",
        );
    }
    Ok(true)
}
