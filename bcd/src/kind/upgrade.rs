//! `daemon.upgrade`: whether this node may take a release. Nothing is put in place by this version.
//!
//! ```text
//! payload ─▶ does it run already? ─▶ signed by enough release keys? ─▶ this version, now, from here, for this machine?
//! ```
//!
//! The kind is safe to run again: a daemon that is back in the wanted version finds the command in its journal, and the
//! version that runs is the answer. Whose keys count comes from the trust policy and from nothing else; this version reads
//! none, and so believes no release.

use pki::{
    Realm,
    release::{ManifestRefusal, ReleaseKeys, SignedManifest},
};
use schema::{
    command::{Reason, payload::DaemonUpgrade, result::DaemonUpgraded},
    release::{Arch, Binary, ReleaseRefusal, Taker},
    time::Timestamp,
};
use semver::Version;

use super::{Machine, failed, succeeded};
use crate::command::{Context, Outcome, Stop};

/// What a release is held against.
#[derive(Debug)]
struct Facts<'a> {
    running: &'a Version,
    arch: Option<Arch>,
    now: Timestamp,
    realm: Option<&'a Realm>,
    /// Whose releases are taken; `None` without a trust policy.
    keys: Option<&'a ReleaseKeys>,
}

pub(super) fn run(machine: &Machine, context: &Context, payload: &DaemonUpgrade) -> Result<Outcome, Stop> {
    context.go_on()?;
    let running: Version = env!("CARGO_PKG_VERSION").parse().expect("cargo writes versions");
    if payload.version == running.to_string() {
        return Ok(succeeded(&DaemonUpgraded { version: payload.version.clone() }));
    }
    let realm = machine.state.trust().ok().flatten().map(|trust| trust.realm());
    let facts = Facts { running: &running, arch: Arch::own(), now: context.now(), realm: realm.as_ref(), keys: None };
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
    let (Some(keys), Some(realm)) = (facts.keys, facts.realm) else {
        return refuse(
            Reason::RELEASE_UNTRUSTED,
            &"this node holds no trust policy that says who may sign a release, and so takes none",
        );
    };
    let manifest = match read.verify(realm, keys) {
        Ok(manifest) => manifest,
        Err(error @ ManifestRefusal::Untrusted { .. }) => return refuse(Reason::RELEASE_UNTRUSTED, &error),
        Err(error @ ManifestRefusal::Malformed(_)) => return refuse(Reason::RELEASE_MALFORMED, &error),
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
