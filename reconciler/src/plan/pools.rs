//! Pools: the host templates that a fleet makes for them, and which of these change.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    fleet::{Fleet, HostTemplate, ObjectEntry, Pool},
    name::Name,
    node::PoolClass,
    object::{Kind, ObjectRef},
};

use super::{
    Delta, Observed, PoolRow, TargetChange, TargetRow,
    diff::diff,
    observed::{document, text},
    places,
};

/// The host templates of a fleet, each made once.
pub(super) struct Templates<'f> {
    fleet: &'f Fleet,
    digests: BTreeMap<Name, BTreeMap<Name, Option<Digest>>>,
    templates: BTreeMap<Digest, HostTemplate>,
}

impl<'f> Templates<'f> {
    pub(super) const fn new(fleet: &'f Fleet) -> Self {
        Self { fleet, digests: BTreeMap::new(), templates: BTreeMap::new() }
    }

    /// What the hosts of a pool under a profile should be; `None` when there is no such profile.
    pub(super) fn digest(&mut self, pool: &Pool, profile: &Name) -> Option<Digest> {
        if let Some(known) = self.digests.get(&pool.name).and_then(|profiles| profiles.get(profile)) {
            return *known;
        }
        let template = self.fleet.host_template(&pool.name, profile);
        let digest = template.as_ref().map(HostTemplate::digest);
        if let (Some(digest), Some(template)) = (digest, template) {
            self.templates.insert(digest, template);
        }
        self.digests.entry(pool.name.clone()).or_default().insert(profile.clone(), digest);
        digest
    }

    /// The same for every pool's own profile and for those that declared machines of it have instead. A machine that is
    /// declared without a pool may be in any.
    pub(super) fn of_pools(&mut self) -> PoolTargets {
        let fleet = self.fleet;
        let mut overrides: BTreeMap<Option<&Name>, BTreeSet<&Name>> = BTreeMap::new();
        for node in fleet.nodes.values() {
            if let Some(profile) = &node.profile {
                overrides.entry(node.pool.as_ref().map(|pool| &pool.value)).or_default().insert(&profile.value);
            }
        }
        let mut found = BTreeMap::new();
        for pool in fleet.pools.values() {
            let own = std::iter::once(&pool.profile.value);
            let named = [Some(&pool.name), None].into_iter().filter_map(|key| overrides.get(&key)).flatten().copied();
            let profiles: BTreeSet<&Name> = own.chain(named).collect();
            let targets =
                profiles.into_iter().filter_map(|profile| Some((profile.clone(), self.digest(pool, profile)?)));
            let targets = targets.collect();
            found.insert(pool.name.clone(), targets);
        }
        found
    }

    pub(super) const fn all(&self) -> &BTreeMap<Digest, HostTemplate> {
        &self.templates
    }
}

/// What every pool's hosts should be, by profile.
pub(super) type PoolTargets = BTreeMap<Name, BTreeMap<Name, Digest>>;

/// Compares what every pool's hosts should be with what is in force.
pub(super) fn compare(
    fleet: &Fleet,
    observed: &Observed,
    declared: &BTreeMap<&ObjectRef, &ObjectEntry>,
    templates: &Templates<'_>,
    mut targets: PoolTargets,
    delta: &mut Delta,
) -> Vec<TargetChange> {
    let mut changes = Vec::new();
    for pool in fleet.pools.values() {
        let profile_targets = targets.remove(&pool.name).unwrap_or_default();
        let Some(target) = profile_targets.get(&pool.profile.value).copied() else { continue };
        let held = observed.pools.get(&pool.name);
        for (profile, after) in &profile_targets {
            let before = held.and_then(|held| {
                held.profile_targets
                    .get(profile)
                    .copied()
                    .or_else(|| held.target.filter(|_| *profile == pool.profile.value))
            });
            if before == Some(*after) {
                continue;
            }
            let old = before.and_then(|before| observed.targets.get(&before));
            let new = templates.all().get(after).map(document);
            let mut fields = match (old, new) {
                (Some(old), Some(new)) => diff(&old.doc, &new),
                _ => Vec::new(),
            };
            places::of_template(fleet, pool, profile, &mut fields);
            changes.push(TargetChange {
                pool: pool.name.clone(),
                profile: profile.clone(),
                before,
                after: *after,
                fields,
            });
        }
        let object = ObjectRef::new(Kind::Pool, pool.name.clone());
        let Some(entry) = declared.get(&object) else { continue };
        let same_document = observed.objects.get(&object).is_some_and(|object| object.digest == entry.digest);
        let same_targets =
            held.is_some_and(|held| held.target == Some(target) && held.profile_targets == profile_targets);
        if !(same_document && same_targets) {
            delta.pools.push(PoolRow {
                document_changes: !same_document,
                name: pool.name.clone(),
                site: pool.site.value.clone(),
                class: class(pool),
                policy: (*entry.doc).clone(),
                target,
                profile_targets,
            });
        }
    }
    changes
}

/// The templates that are not stored yet.
pub(super) fn unstored(observed: &Observed, templates: &Templates<'_>, delta: &mut Delta) {
    for (digest, template) in templates.all().iter().filter(|(digest, _)| !observed.targets.contains_key(*digest)) {
        let row = TargetRow { pool: template.pool.clone(), profile: template.profile.clone(), doc: text(template) };
        delta.targets.insert(*digest, row);
    }
}

pub(super) fn class(pool: &Pool) -> PoolClass {
    pool.class.as_ref().map_or(PoolClass::MetalHost, |class| class.value)
}
