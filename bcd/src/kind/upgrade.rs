//! `daemon.upgrade`: whether this node may take a release. Nothing is put in place by this version.
//!
//! ```text
//! payload ─▶ does it run already? ─▶ signed by enough of those whom the policy names? ─▶ this version, now, for this machine?
//! ```
//!
//! The kind is safe to run again: a daemon that is back in the wanted version finds the command in its journal, and the
//! version that runs is the answer. Whose signature counts, `releases` of the trust policy says that this node believes, and nothing
//! else does: no spec and no command.

use pki::release::{ManifestRefusal, SignedManifest};
use schema::{
    command::{Reason, payload::DaemonUpgrade, result::DaemonUpgraded},
    release::{Arch, Binary, ReleaseRefusal, Taker},
    time::Timestamp,
};
use semver::Version;

use super::{failed, succeeded};
use crate::{
    command::{Context, Outcome, Stop},
    policies::Policies,
};

/// What a release is held against.
#[derive(Debug)]
struct Facts<'a> {
    running: &'a Version,
    arch: Option<Arch>,
    now: Timestamp,
    /// What people agreed on; `None` when nobody ever told this node of a policy.
    policies: Option<&'a Policies>,
}

pub(super) fn run(context: &Context, payload: &DaemonUpgrade) -> Result<Outcome, Stop> {
    context.go_on()?;
    let running: Version = env!("CARGO_PKG_VERSION").parse().expect("cargo writes versions");
    if payload.version == running.to_string() {
        return Ok(succeeded(&DaemonUpgraded { version: payload.version.clone() }));
    }
    let facts = Facts { running: &running, arch: Arch::own(), now: context.now(), policies: context.policies() };
    Ok(match judge(payload, &facts) {
        Err((reason, why)) => failed(reason, why),
        Ok(_) => failed(
            Reason::UNSUPPORTED_HERE,
            "the release is good, and this version puts none in place; install it with the machine's package manager",
        ),
    })
}

/// The bytes that would be put in place, or the first reason against the release.
fn judge(payload: &DaemonUpgrade, facts: &Facts<'_>) -> Result<Binary, (Reason, String)> {
    let refuse = |reason: Reason, why: &dyn std::fmt::Display| Err((reason, why.to_string()));
    let read = match SignedManifest::read(&payload.manifest) {
        Ok(read) => read,
        Err(error) => return refuse(Reason::RELEASE_MALFORMED, &error),
    };
    let untrusted = |why: String| Err((Reason::RELEASE_UNTRUSTED, why));
    if let Some((policies, why)) = facts.policies.and_then(|policies| Some((policies, policies.halted()?))) {
        let epoch = policies.epoch();
        return untrusted(format!("the trust policy that follows epoch {epoch} cannot be judged here: {why}"));
    }
    let Some(trusted) = facts.policies.and_then(Policies::trusted) else {
        let why = "this node holds no trust policy that says who may sign a release, and so takes none";
        return untrusted(why.to_owned());
    };
    let manifest = match read.verify(&trusted) {
        Ok(manifest) => manifest,
        Err(error @ ManifestRefusal::Malformed(_)) => return refuse(Reason::RELEASE_MALFORMED, &error),
        Err(error @ (ManifestRefusal::NoRule(_) | ManifestRefusal::Untrusted(_))) => {
            return untrusted(error.to_string());
        }
    };
    let taker = Taker { wanted: &payload.version, running: facts.running, arch: facts.arch, now: facts.now };
    manifest.take(&taker).or_else(|error| {
        let reason = match error {
            ReleaseRefusal::OtherVersion { .. } => Reason::RELEASE_OTHER,
            ReleaseRefusal::NotYet(_) => Reason::RELEASE_NOT_YET,
            ReleaseRefusal::Expired(_) => Reason::RELEASE_EXPIRED,
            ReleaseRefusal::NoBinary => Reason::RELEASE_NO_BINARY,
            ReleaseRefusal::Downgrade { .. } => Reason::RELEASE_DOWNGRADE,
            ReleaseRefusal::TooFar { .. } => Reason::RELEASE_TOO_FAR,
        };
        refuse(reason, &error)
    })
}

#[cfg(test)]
mod tests;
