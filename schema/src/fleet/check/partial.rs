//! What stands in for documents that are wrong, so that the templates of all others are rendered in the same pass: a
//! template is left out only when it reads what nobody knows.

use std::collections::BTreeSet;

use crate::{
    diagnostic::SourceRef,
    fleet::{Fleet, FleetDocument, Located, Pool, ResolvedProfile, Site, kind::Admission, load::Parts, resolve},
    name::Name,
};

/// A fleet with what could be read of documents that are wrong, and whose values are not known.
pub(super) struct Partial {
    /// `None` when nothing is wrong.
    fleet: Option<Box<Fleet>>,
    document: bool,
    sites: BTreeSet<Name>,
    pools: BTreeSet<Name>,
    profiles: BTreeSet<Name>,
}

/// A fleet document of which nothing could be read. Machines without a document are not looked at under it, because it may
/// be that none is admitted.
pub(super) fn document() -> FleetDocument {
    let unknown = Located::new("unknown".to_owned(), SourceRef::default());
    FleetDocument {
        name: Name::new("fleet").expect("a DNS label"),
        at: SourceRef::default(),
        format: Located::new(1, SourceRef::default()),
        trust_domain: unknown.clone(),
        admission: Some(unknown.map(|_| Admission::Strict)),
        prune: Default::default(),
        apply: Default::default(),
        suspend: None,
        freeze: Default::default(),
        rollout: None,
        ignore: Vec::new(),
    }
}

impl Partial {
    /// Completes a fleet by the parts of documents that are wrong. `document` is whether the fleet's own is one of them.
    pub(super) fn of(fleet: &Fleet, document: bool, parts: Parts) -> Self {
        let mut sites = BTreeSet::new();
        let mut pools = parts.pools;
        pools.retain(|name, _| !fleet.pools.contains_key(name));
        let doubted: BTreeSet<Name> = pools.keys().cloned().collect();
        let mut profiles = parts.profiles;
        profiles.retain(|name, _| !fleet.profiles.contains_key(name));
        let orphans = fleet.profiles.values().chain(profiles.values()).filter(|profile| {
            let there = |parent: &Name| fleet.profiles.contains_key(parent) || profiles.contains_key(parent);
            profile.extends.as_ref().is_some_and(|parent| !there(&parent.value))
        });
        // What is below a profile that nobody knows is not known, and the rest of it is.
        let orphans: Vec<_> = orphans.cloned().collect();
        for mut orphan in orphans {
            orphan.extends = None;
            profiles.insert(orphan.name.clone(), orphan);
        }
        let unknown: BTreeSet<Name> = profiles.keys().cloned().collect();
        for pool in fleet.pools.values().chain(pools.values()) {
            if !fleet.sites.contains_key(&pool.site.value) {
                sites.insert(pool.site.value.clone());
            }
        }
        let right = !document && pools.is_empty() && profiles.is_empty() && sites.is_empty();
        let completed = (!right).then(|| {
            let mut completed = Box::new(fleet.clone());
            completed.pools.extend(pools);
            completed.sites.extend(sites.iter().map(|name| (name.clone(), site(name))));
            if !profiles.is_empty() {
                completed.profiles.extend(profiles);
                completed.resolved = resolve::resolve(&completed.profiles).resolved;
            }
            completed
        });
        Self { fleet: completed, document, sites, pools: doubted, profiles: unknown }
    }

    /// The fleet to render.
    pub(super) fn fleet<'f>(&'f self, whole: &'f Fleet) -> &'f Fleet {
        self.fleet.as_deref().unwrap_or(whole)
    }

    /// What templates of a pool's hosts must not read, because it is not known.
    pub(super) fn unknown(&self, pool: &Pool, profile: &ResolvedProfile) -> Vec<&'static str> {
        if self.fleet.is_none() {
            return Vec::new();
        }
        let roots = [
            ("fleet", self.document),
            ("site", self.sites.contains(&pool.site.value)),
            ("pool", self.pools.contains(&pool.name)),
            ("profile", profile.chain.iter().any(|layer| self.profiles.contains(layer))),
        ];
        roots.into_iter().filter(|(_, unknown)| *unknown).map(|(root, _)| root).collect()
    }
}

/// A site of which nothing is known.
fn site(name: &Name) -> Site {
    Site {
        name: name.clone(),
        at: SourceRef::default(),
        region: None,
        labels: Default::default(),
        gateway: Vec::new(),
        network: Default::default(),
        suspend: None,
        protect: None,
    }
}
