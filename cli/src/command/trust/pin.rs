//! `trust pin`: the anchor that people confirmed goes into the keys, and from then on only what verifies comes into force.

use std::path::PathBuf;

use clap::Args;
use pki::{keys::TrustPin, trust::walk::Judged};
use serde_json::json;

use super::{facts, in_force, show};
use crate::{
    args::Sure,
    data_dir,
    exit::{During as _, Exit, Failure},
    output::{self, Output},
    up::keys::KeyDir,
    verified::{Place, Verified},
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
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

impl Pin {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = Verified::open(&self.place, self.commit.as_deref())?;
        let keys = KeyDir::at(self.keys.clone().unwrap_or_else(|| data_dir::usual().join("keys")));
        Ok(if pin(&looked, &keys, self.sure, output)? { Exit::Ok } else { Exit::Failed })
    }
}

/// Shows what would be pinned, asks, and pins it.
pub(super) fn pin(looked: &Verified, keys: &KeyDir, sure: Sure, output: &Output) -> Result<bool, Failure> {
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
    if held.trust_pin() == Some(pin) {
        output::note(format!("the fleet is pinned to {} already", pin.commit));
        return Ok(true);
    }
    if !output.is_json() {
        output.line(page(looked, pin, anchor, output))?;
    }
    if !sure.ask(output, "Pin it?", "nothing was pinned")? {
        return Ok(false);
    }
    held.pin_trust(pin).during("the fleet is not pinned")?;
    keys.store_control_plane(&held)?;
    if output.is_json() {
        output.json(&json!({ "pin": pin, "trustDomain": looked.walked.trust_domain }))?;
    } else {
        output.line(format!("pinned to {}", pin.commit))?;
        for next in [
            "Running processes take it over within seconds; `better-compute status` says so.",
            "Make a copy of the keys now. Processes with keys of their own need them again.",
        ] {
            output::note(next);
        }
    }
    Ok(true)
}

/// What a person compares before it is pinned for ever.
pub(super) fn page(looked: &Verified, pin: TrustPin, anchor: &Judged, output: &Output) -> String {
    let by = anchor.signer.as_ref().map_or_else(String::new, |signer| format!(", signed by {}", signer.principal));
    let mut rows = vec![
        ("domain", looked.walked.trust_domain.clone()),
        ("fleet", pin.fleet.to_string()),
        ("anchor", format!("{} ({}{by})", pin.commit, anchor.subject)),
        ("policy", format!("epoch 1, {}", pin.digest)),
        ("branch", format!("{} at {}, verified", looked.branch, looked.tip.short())),
    ];
    if looked.walked.policy.as_ref().is_some_and(|policy| policy.epoch() > 1) {
        rows.insert(4, ("newest", in_force(&looked.walked)));
    }
    let people = show::table(&looked.walked).render(output.width, output.colour);
    let forever = output.indented("From here on only what these people sign comes into force, for ever.", "");
    format!("{}\n\n{people}\n\n{forever}", facts(&rows, output))
}
