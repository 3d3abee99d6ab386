//! [`Fleet`]: a whole tree that was found to be right.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use serde_json::Value;

use super::{
    ApiAccess, Batch, FleetDocument, Freeze, HostTemplate, Image, Moved, Node, NodeOverlay, Pool, Profile, Provenance,
    Quota, Release, Removed, ResolvedProfile, Rollout, Site, Tenant, explain, places::Keys,
};
use crate::{
    canonical,
    diagnostic::{Diagnostic, SourceRef},
    digest::Digest,
    name::Name,
    object::{Kind, ObjectRef},
};

/// How a pool's changes travel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "strategy")]
pub enum Strategy {
    /// All hosts at once.
    Immediate {
        /// The rollout that says so; `None` when neither the pool nor the fleet names one.
        rollout: Option<Name>,
    },
    /// Wave by wave, as the rollout says.
    Waves {
        /// The rollout.
        rollout: Name,
    },
}

/// One object as it is stored and compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its address.
    pub object: ObjectRef,
    /// Its document, with `kind` and `name`.
    pub doc: Arc<Value>,
    /// The digest of its canonical JSON.
    pub digest: Digest,
    /// Where it is defined.
    pub at: SourceRef,
}

/// An object's document, made once, and where its keys are.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) entry: ObjectEntry,
    keys: Keys,
}

/// A fleet: typed, resolved, rendered and checked. Only [`load`](super::load) makes one, and a copy shares what there is
/// much of.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// The digest of the tree that it was read from: [`Sources::digest`](super::Sources::digest).
    pub tree: Digest,
    /// The fleet's own document.
    pub document: FleetDocument,
    /// Sites by name.
    pub sites: BTreeMap<Name, Site>,
    /// Pools by name.
    pub pools: BTreeMap<Name, Pool>,
    /// Profiles by name, each one layer.
    pub profiles: BTreeMap<Name, Profile>,
    /// Images by name.
    pub images: BTreeMap<Name, Image>,
    /// Rollouts by name.
    pub rollouts: BTreeMap<Name, Rollout>,
    /// Declared machines by name.
    pub nodes: Arc<BTreeMap<Name, Arc<Node>>>,
    /// Versions of the node daemon by name.
    pub releases: BTreeMap<Name, Release>,
    /// Who books, by name.
    pub tenants: BTreeMap<Name, Tenant>,
    /// How much they book, by name.
    pub quotas: BTreeMap<Name, Quota>,
    /// Who may call the API, by name.
    pub access: BTreeMap<Name, ApiAccess>,
    /// Destructive commands that wait for approvals, by name.
    pub batches: BTreeMap<Name, Batch>,
    /// When nothing is changed, by name.
    pub freezes: BTreeMap<Name, Freeze>,
    /// What has another name now.
    pub moved: Vec<Moved>,
    /// What is to go.
    pub removed: Vec<Removed>,
    /// What there is to know about it although it is right: warnings and notes, sorted by file and line.
    pub notes: Vec<Diagnostic>,
    pub(super) resolved: BTreeMap<Name, ResolvedProfile>,
    pub(super) templates: BTreeMap<Arc<str>, Arc<str>>,
    pub(super) made: Arc<[Arc<Made>]>,
}

impl Fleet {
    /// Every object, ordered by address. `moved` and `removed` lines are not objects.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectEntry> + '_ {
        self.made.iter().map(|made| &made.entry)
    }

    /// How a pool's changes travel.
    #[must_use]
    pub fn strategy(&self, pool: &Pool) -> Strategy {
        let name = pool.rollout.as_ref().or(self.document.rollout.as_ref());
        match name.and_then(|name| self.rollouts.get(&name.value)) {
            Some(rollout) if !rollout.is_immediate() => Strategy::Waves { rollout: rollout.name.clone() },
            _ => Strategy::Immediate { rollout: name.map(|name| name.value.clone()) },
        }
    }

    /// A profile with everything that its chain says.
    #[must_use]
    pub fn resolved(&self, profile: &str) -> Option<&ResolvedProfile> {
        self.resolved.get(profile)
    }

    /// What the hosts of a pool should be under a profile (the pool's own, or the one a node has instead). `None` when
    /// there is no such pool or profile.
    #[must_use]
    pub fn host_template(&self, pool: &str, profile: &str) -> Option<HostTemplate> {
        let pool = self.pools.get(pool)?;
        let resolved = self.resolved.get(profile)?;
        let site = self.sites.get(&pool.site.value)?;
        Some(HostTemplate::new(&self.document, site, pool, resolved, &self.templates))
    }

    /// The words that a declared machine adds.
    #[must_use]
    pub fn overlay(&self, node: &str) -> Option<NodeOverlay> {
        self.nodes.get(node).map(|node| NodeOverlay::of(node))
    }

    /// Where a key of an object is written, by its path in the object's document (`sysctl.vm.swappiness`), or the nearest
    /// key above it. `None` when there is no such object or key.
    #[must_use]
    pub fn place(&self, object: &ObjectRef, path: &str) -> Option<&SourceRef> {
        let index = self.made.binary_search_by(|made| made.entry.object.cmp(object)).ok()?;
        self.made[index].keys.find(path)
    }

    /// Where everything that a profile's chain says about a host is written, by path. Empty when there is no such profile.
    #[must_use]
    pub fn host_places(&self, profile: &str) -> BTreeMap<String, SourceRef> {
        self.resolved.get(profile).map(explain::places).unwrap_or_default()
    }

    /// Where the values of a declared machine come from: all of them, or those whose path is `path` or below it (for
    /// example `sysctl` or `files./etc/motd.mode`). `None` when no document declares the machine.
    #[must_use]
    pub fn explain(&self, node: &str, path: Option<&str>) -> Option<Vec<Provenance>> {
        Some(explain::node(self, self.nodes.get(node)?, path))
    }

    /// The same for a machine of a pool that no document declares. `None` when there is no such pool.
    #[must_use]
    pub fn explain_pool(&self, pool: &str, path: Option<&str>) -> Option<Vec<Provenance>> {
        Some(explain::pool(self, self.pools.get(pool)?, path))
    }
}

/// Makes the document of an object.
pub(super) fn made(kind: Kind, name: &Name, document: &impl Serialize, at: &SourceRef, keys: Keys) -> Arc<Made> {
    let serialises = "a document holds no fractions and serialises";
    let mut doc = serde_json::to_value(document).expect(serialises);
    if let Value::Object(members) = &mut doc {
        members.insert("kind".into(), kind.as_str().into());
    }
    let digest = canonical::digest_of(&doc).expect(serialises);
    let entry = ObjectEntry { object: ObjectRef::new(kind, name.clone()), doc: Arc::new(doc), digest, at: at.clone() };
    Arc::new(Made { entry, keys })
}
