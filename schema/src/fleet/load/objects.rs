//! Putting the objects of every file together, and noticing those that are defined twice.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ParsedFile,
    decoded::{Decoded, Perhaps, Typed, What, nameless},
};
use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    fleet::{
        ApiAccess, Batch, FleetDocument, Freeze, Image, Moved, Node, Pool, Profile, Quota, Release, Removed, Rollout,
        Site, Tenant, decode::Findings, fleet_object::Made,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// The objects of a tree. What could not be decoded is missing from its kind and present in `defined`, so that a
/// reference to it is not a second error.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Objects {
    pub(in crate::fleet) fleet: Option<FleetDocument>,
    pub(in crate::fleet) sites: BTreeMap<Name, Site>,
    pub(in crate::fleet) pools: BTreeMap<Name, Pool>,
    pub(in crate::fleet) profiles: BTreeMap<Name, Profile>,
    pub(in crate::fleet) images: BTreeMap<Name, Image>,
    pub(in crate::fleet) rollouts: BTreeMap<Name, Rollout>,
    pub(in crate::fleet) nodes: BTreeMap<Name, Arc<Node>>,
    pub(in crate::fleet) releases: BTreeMap<Name, Release>,
    pub(in crate::fleet) tenants: BTreeMap<Name, Tenant>,
    pub(in crate::fleet) quotas: BTreeMap<Name, Quota>,
    pub(in crate::fleet) access: BTreeMap<Name, ApiAccess>,
    pub(in crate::fleet) batches: BTreeMap<Name, Batch>,
    pub(in crate::fleet) freezes: BTreeMap<Name, Freeze>,
    pub(in crate::fleet) moved: Vec<Moved>,
    pub(in crate::fleet) removed: Vec<Removed>,
    /// Where each of those is said to go.
    pub(in crate::fleet) gone: BTreeMap<ObjectRef, SourceRef>,
    /// Where every object is defined.
    pub(in crate::fleet) defined: BTreeMap<ObjectRef, SourceRef>,
    /// Objects whose kind or name is wrong.
    pub(in crate::fleet) perhaps: Vec<Perhaps>,
    /// What could be read of objects that are wrong.
    pub(in crate::fleet) parts: Parts,
    /// Bytes of files that were read again, for what else is wrong in objects that are defined twice.
    again: usize,
    /// The machines, until all are at hand.
    machines: Vec<Arc<Node>>,
    /// What machines are claimed by.
    pub(in crate::fleet) claims: Vec<u64>,
    /// The documents, by address.
    pub(in crate::fleet) made: Vec<Arc<Made>>,
}

/// What could be read of objects that are wrong, where templates need it.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Parts {
    pub(in crate::fleet) fleet: Option<FleetDocument>,
    pub(in crate::fleet) pools: BTreeMap<Name, Pool>,
    pub(in crate::fleet) profiles: BTreeMap<Name, Profile>,
}

/// How much is read again at most.
const MOST_READ_AGAIN: usize = 1 << 20;

impl Objects {
    /// Puts the objects of files together.
    pub(super) fn of(files: &[ParsedFile], limit: usize, found: &mut Vec<Diagnostic>) -> Self {
        let mut all = Self::default();
        let mut count = 0;
        all.distinct(files, limit);
        let distinct = !all.defined.is_empty();
        'files: for file in files {
            for (index, decoded) in file.objects.iter().enumerate() {
                count += 1;
                if count > limit {
                    let message = format!("a fleet has at most {limit} objects, and this is one more");
                    found.push(Diagnostic::new(codes::TOO_MANY, &file.place_of(index), message));
                    all.perhaps.push(Perhaps::anything());
                    break 'files;
                }
                all.put(decoded, file, index, distinct, found);
            }
        }
        all.made.sort_by(|a, b| a.entry.object.cmp(&b.entry.object));
        all.nodes = std::mem::take(&mut all.machines).into_iter().map(|node| (node.name.clone(), node)).collect();
        if count <= limit
            && all.fleet.is_none()
            && files[0].parsed.whole
            && !all.defined.keys().any(|object| object.kind == Kind::Fleet)
            && !all.perhaps.iter().any(|perhaps| perhaps.may_be_a(Kind::Fleet))
        {
            let at = SourceRef::start_of(Arc::clone(&files[0].path));
            let diagnostic = Diagnostic::new(codes::NO_ROOT, &at, "the fleet file does not say which fleet this is")
                .help("fleet \"acme\" { format 1; trust-domain \"acme.example\" }");
            found.push(diagnostic);
        }
        all
    }

    /// Defines every object at once when no two have one address, which is nearly always so.
    fn distinct(&mut self, files: &[ParsedFile], limit: usize) {
        let objects = files.iter().flat_map(|file| &file.objects);
        let mut defined: Vec<(&ObjectRef, &SourceRef)> = Vec::with_capacity(files.len());
        for decoded in objects {
            if let What::Object { address, at, .. } = &decoded.what {
                defined.push((address, at));
            }
        }
        defined.sort_by(|a, b| a.0.cmp(b.0));
        let twice = |pair: &[(&ObjectRef, &SourceRef)]| pair[0].0 == pair[1].0;
        let fleets = defined.iter().filter(|(address, _)| address.kind == Kind::Fleet).count();
        let count: usize = files.iter().map(|file| file.objects.len()).sum();
        if fleets <= 1 && count <= limit && !defined.windows(2).any(twice) {
            self.defined = defined.into_iter().map(|(address, at)| (address.clone(), at.clone())).collect();
        }
    }

    fn put(&mut self, decoded: &Decoded, file: &ParsedFile, index: usize, distinct: bool, found: &mut Vec<Diagnostic>) {
        let (address, at, model, part) = match &decoded.what {
            What::Object { address, at, model, part } => (address, at, model, part),
            What::Perhaps(perhaps) => {
                found.extend_from_slice(&decoded.findings);
                return self.perhaps.push(perhaps.clone());
            }
            What::Removed(removed) => {
                found.extend_from_slice(&decoded.findings);
                return self.remove(removed, found);
            }
            What::Moved(moved) => {
                found.extend_from_slice(&decoded.findings);
                return self.moved.push(moved.clone());
            }
            What::Nothing => return found.extend_from_slice(&decoded.findings),
        };
        if !distinct && let Some(first) = self.twice(address) {
            let diagnostic = Diagnostic::new(codes::DUPLICATE_OBJECT, at, format!("{address} is defined twice"))
                .label("the second")
                .also(&first, "the first");
            found.push(diagnostic);
            // A file is read whole for each of them.
            self.again = self.again.saturating_add(file.parsed.text.len());
            if self.again > MOST_READ_AGAIN {
                return;
            }
            if let Some((object, keys)) = file.read_again(index) {
                let mut findings = Findings::new(Arc::clone(&file.path), &file.parsed.text, found);
                nameless(address.kind, &object, keys, &mut findings);
            }
            return;
        }
        if !distinct {
            self.defined.insert(address.clone(), at.clone());
        }
        found.extend_from_slice(&decoded.findings);
        if let Some((typed, made)) = model {
            self.keep(typed);
            self.made.push(Arc::clone(made));
        }
        match part {
            Some(Typed::Fleet(document)) => self.parts.fleet = Some((**document).clone()),
            Some(Typed::Pool(pool)) => drop(self.parts.pools.insert(pool.name.clone(), (**pool).clone())),
            Some(Typed::Profile(profile)) => {
                self.parts.profiles.insert(profile.name.clone(), (**profile).clone());
            }
            _ => {}
        }
    }

    /// Whether there may be objects of a kind that are not among those that were decoded.
    pub(in crate::fleet) fn lacks(&self, kind: Kind) -> bool {
        let decoded = match kind {
            Kind::Node => self.nodes.len(),
            Kind::Pool => self.pools.len(),
            _ => return true,
        };
        let defined = self.defined.keys().filter(|object| object.kind == kind).count();
        defined != decoded || self.perhaps.iter().any(|perhaps| perhaps.may_be_a(kind))
    }

    fn keep(&mut self, typed: &Typed) {
        macro_rules! keep {
            ($kept:ident, $model:ident) => {{
                self.$kept.insert($model.name.clone(), (**$model).clone());
            }};
        }
        match typed {
            Typed::Fleet(document) => self.fleet = Some((**document).clone()),
            Typed::Node(node, claims) => {
                self.claims.extend_from_slice(claims);
                self.machines.push(Arc::clone(node));
            }
            Typed::Site(site) => keep!(sites, site),
            Typed::Pool(pool) => keep!(pools, pool),
            Typed::Profile(profile) => keep!(profiles, profile),
            Typed::Image(image) => keep!(images, image),
            Typed::Rollout(rollout) => keep!(rollouts, rollout),
            Typed::Release(release) => keep!(releases, release),
            Typed::Tenant(tenant) => keep!(tenants, tenant),
            Typed::Quota(quota) => keep!(quotas, quota),
            Typed::Access(one) => keep!(access, one),
            Typed::Batch(batch) => keep!(batches, batch),
            Typed::Freeze(freeze) => keep!(freezes, freeze),
        }
    }

    /// Where an object is defined already; there is one fleet, whatever its name.
    fn twice(&self, address: &ObjectRef) -> Option<SourceRef> {
        if address.kind == Kind::Fleet {
            return self.defined.iter().find(|(other, _)| other.kind == Kind::Fleet).map(|(_, at)| at.clone());
        }
        self.defined.get(address).cloned()
    }

    fn remove(&mut self, removed: &Removed, found: &mut Vec<Diagnostic>) {
        if let Some(first) = self.gone.insert(removed.name.clone(), removed.at.clone()) {
            let message = format!("{} is removed twice", removed.name);
            let diagnostic = Diagnostic::new(codes::DUPLICATE_OBJECT, &removed.at, message)
                .label("the second")
                .also(&first, "the first");
            found.push(diagnostic);
            return;
        }
        self.removed.push(removed.clone());
    }
}
