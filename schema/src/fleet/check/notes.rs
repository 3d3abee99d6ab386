//! What is read, checked and kept, and not carried out by this version: said once, in one note.

use std::collections::BTreeMap;

use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    fleet::{Fleet, Sources, kind::GpuSharing},
    object::Kind,
};

/// Notes what is only recorded, and pools that wait for their waves.
pub(super) fn check(fleet: &Fleet, sources: &Sources, found: &mut Vec<Diagnostic>) {
    let mut recorded = Recorded::default();
    for pool in fleet.pools.values() {
        let Some(policy) = &pool.policy else { continue };
        let mut key = |key, at| recorded.key(Kind::Pool, key, at);
        key("placement", policy.placement.as_ref().map(|value| &value.at));
        let shared = policy.gpu_sharing.as_ref().filter(|sharing| sharing.value != GpuSharing::None);
        key("gpu-sharing", shared.map(|value| &value.at));
        key("mig", policy.mig.values().next().map(|value| &value.at));
        key("host-reserve", policy.host_reserve.as_ref().map(|value| &value.at));
        key("tenants", policy.tenants.first().map(|value| &value.at));
    }
    for profile in fleet.profiles.values() {
        recorded.key(Kind::Profile, "daemon", profile.daemon.values().next().map(|value| &value.at));
        recorded.key(Kind::Profile, "telemetry", profile.telemetry.values().next().map(|value| &value.at));
        recorded.key(Kind::Profile, "image", profile.image.as_ref().map(|value| &value.at));
    }
    for node in fleet.nodes.values() {
        recorded.key(Kind::Node, "taint", node.taint.values().next().map(|value| &value.at));
    }
    recorded.documents(Kind::Release, fleet.releases.values().map(|release| &release.at));
    recorded.documents(Kind::Tenant, fleet.tenants.values().map(|tenant| &tenant.at));
    recorded.documents(Kind::Quota, fleet.quotas.values().map(|quota| &quota.at));
    recorded.documents(Kind::Access, fleet.access.values().map(|access| &access.at));
    let later = fleet.batches.values().filter(|batch| batch.kind().is_none());
    recorded.documents(Kind::Batch, later.map(|batch| &batch.at));
    let policies = sources.iter().any(|(path, _)| path.ends_with(".cedar"));
    found.extend(recorded.note(policies));
    waves(fleet, found);
}

/// Per kind: the keys that are only recorded (none when whole documents are), and the first place.
#[derive(Default)]
struct Recorded<'f> {
    kinds: BTreeMap<Kind, (Vec<&'static str>, &'f SourceRef)>,
}

impl<'f> Recorded<'f> {
    fn documents(&mut self, kind: Kind, places: impl Iterator<Item = &'f SourceRef>) {
        if let Some(first) = places.min() {
            self.kinds.insert(kind, (Vec::new(), first));
        }
    }

    fn key(&mut self, kind: Kind, key: &'static str, at: Option<&'f SourceRef>) {
        let Some(at) = at else { return };
        let (keys, first) = self.kinds.entry(kind).or_insert((Vec::new(), at));
        *first = at.min(first);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }

    fn note(&self, policies: bool) -> Option<Diagnostic> {
        let first = self.kinds.values().map(|(_, at)| *at).min()?;
        let whole = self.kinds.iter().filter(|(_, (keys, _))| keys.is_empty()).map(|(kind, _)| format!("`{kind}`"));
        let policies = policies.then(|| "policies in `*.cedar`".to_owned());
        let parts = self.kinds.iter().filter(|(_, (keys, _))| !keys.is_empty()).map(|(kind, (keys, _))| {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            format!("{} of a {kind}", keys.join(", "))
        });
        let all: Vec<String> = whole.chain(policies).chain(parts).collect();
        let places: Vec<String> = self.kinds.values().map(|(_, at)| format!("{}:{}", at.file, at.line())).collect();
        let message = format!("recorded, and nothing in this version acts on it: {}", all.join("; "));
        Some(Diagnostic::new(codes::RECORDED_ONLY, first, message).help(format!("first said in {}", places.join(", "))))
    }
}

/// A pool that changes in waves is held, because what carries waves out is not there yet.
fn waves(fleet: &Fleet, found: &mut Vec<Diagnostic>) {
    let used = |rollout: &str| {
        let names = fleet.pools.values().map(|pool| pool.rollout.as_ref().or(fleet.document.rollout.as_ref()));
        names.flatten().any(|name| name.value.as_str() == rollout)
    };
    let first = fleet
        .rollouts
        .values()
        .filter(|rollout| !rollout.is_immediate() && used(&rollout.name))
        .map(|rollout| &rollout.at)
        .min();
    if let Some(at) = first {
        let message = "rollouts with waves are planned and held: in this version nothing carries waves out";
        found.push(
            Diagnostic::new(codes::WAVES_HELD, at, message)
                .help("a pool whose changes are to go needs an immediate rollout"),
        );
    }
}
