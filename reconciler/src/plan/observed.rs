//! What a fleet is compared with: the objects in force, what hosts should be, and the machines.
//!
//! Live it is read from the database (`apply::observe`); offline it is another fleet, whose machines are the declared
//! ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schema::{
    canonical,
    digest::Digest,
    effect::EffectClass,
    fleet::{Fleet, HostTemplate, Labels, NodeOverlay, brake::Brake},
    id::NodeId,
    name::Name,
    node::{Hold, Role},
    object::ObjectRef,
    time::Timestamp,
};
use serde_json::Value;

use super::{
    ObservedFrom, Plan, machines,
    pools::{self, Templates},
};

/// Which machines an observation knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Machines {
    /// Those that joined.
    #[default]
    Joined,
    /// Those that documents declare: an offline plan takes each of them for a machine.
    Declared,
}

/// An object in force.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// The digest of its document.
    pub digest: Digest,
    /// Its document.
    pub doc: Arc<Value>,
    /// Where it is written, or was.
    pub file: String,
    /// The line there.
    pub line: u32,
    /// Its document is gone and its last text in force.
    pub retained: bool,
}

/// A pool in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedPool {
    /// What its hosts should be.
    pub target: Option<Digest>,
    /// The same per profile.
    pub profile_targets: BTreeMap<Name, Digest>,
}

/// A host template in force.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedTarget {
    /// The document.
    pub doc: Value,
}

/// A removal that a gate holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedHold {
    /// What is held.
    pub subject: ObjectRef,
    /// The gate's word.
    pub gate: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// A plan that people were shown, as far as its effects are bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its digest.
    pub digest: Digest,
    /// What it said of each machine that moves: the spec before, the spec after, how hard.
    pub nodes: BTreeMap<Name, (Option<Digest>, Option<Digest>, EffectClass)>,
    /// Which machines of a pool it showed moving from one template to another, by the hardest effect on one of them.
    pub targets: BTreeMap<(Name, Digest, Digest), EffectClass>,
    /// It was made of trees alone and knows declared machines only.
    pub offline: bool,
    /// Only an earlier commit named it: it speaks of machines that are behind, and of nothing that this commit changes.
    pub carried: bool,
}

impl Shown {
    /// What a plan showed.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let mut targets = BTreeMap::new();
        for node in &plan.nodes {
            if let (Some(pool), Some(before), Some(after)) = (&node.pool, node.before, node.after) {
                let hardest = targets.entry((pool.clone(), before, after)).or_insert(EffectClass::None);
                *hardest = node.effect.max(*hardest);
            }
        }
        Self {
            digest: plan.digest(),
            targets,
            nodes: plan
                .nodes
                .iter()
                .map(|node| (node.node.clone(), (node.before_spec, node.after_spec, node.effect)))
                .collect(),
            offline: plan.inputs.observed == ObservedFrom::Offline,
            carried: false,
        }
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedNode {
    /// Its id; `None` offline.
    pub id: Option<NodeId>,
    /// Its name.
    pub name: Name,
    /// Its site.
    pub site: Option<Name>,
    /// Its pool.
    pub pool: Option<Name>,
    /// What it is to the platform.
    pub role: Role,
    /// A document names it.
    pub declared: bool,
    /// Its labels.
    pub labels: Labels,
    /// What it should be.
    pub target: Option<Digest>,
    /// Its own words that go with `target`.
    pub target_overlay: NodeOverlay,
    /// What it was last assigned.
    pub assigned: Option<Digest>,
    /// Its own words that go with `assigned`.
    pub assigned_overlay: NodeOverlay,
    /// The name that it is still told, when it was renamed and has not gone since.
    pub assigned_name: Option<Name>,
    /// Its cordon by document.
    pub hold: Option<Hold>,
}

/// What is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// The commit in force.
    pub commit: Option<String>,
    /// Objects in force, retained ones included.
    pub objects: BTreeMap<ObjectRef, ObservedObject>,
    /// Pools in force.
    pub pools: BTreeMap<Name, ObservedPool>,
    /// Host templates that pools name, for showing what differs.
    pub targets: BTreeMap<Digest, ObservedTarget>,
    /// Machines, by name, retired ones left out.
    pub nodes: Vec<ObservedNode>,
    /// Removals that gates hold, by object.
    pub holds: Vec<ObservedHold>,
    /// Which machines `nodes` has.
    pub machines: Machines,
    /// The digest of the files in force, when they are known.
    pub tree: Option<Digest>,
    /// Suspensions that somebody asked for by the API.
    pub suspensions: Vec<Brake>,
    /// The plans that the trailers of commits name which are not wholly carried out yet.
    pub shown: Vec<Shown>,
    /// The machines where something is staged for a boot; `None` when that is not known.
    pub boots: Option<BTreeSet<Name>>,
    /// What was renamed since, for a plan that goes back: the name in force, and the one that it had.
    pub back: Vec<(ObjectRef, ObjectRef)>,
    /// Plans that the trailers name and that are not known here.
    pub missing: Vec<Digest>,
    /// The limits that the commit in force came under, when it is planned again: it does not lift its own.
    pub policy: Option<Value>,
}

impl Observed {
    /// Nothing is in force, and no machine has joined.
    #[must_use]
    pub fn nothing(machines: Machines) -> Self {
        Self { machines, ..Self::default() }
    }

    /// What is known when a fleet is taken to be in force: its documents, and its declared machines as converged.
    #[must_use]
    pub fn from_fleet(fleet: &Fleet) -> Self {
        let objects = fleet
            .objects()
            .map(|entry| {
                let (file, line) = (entry.at.file.to_string(), entry.at.line());
                let doc = Arc::clone(&entry.doc);
                (entry.object.clone(), ObservedObject { digest: entry.digest, doc, file, line, retained: false })
            })
            .collect();
        let mut this = Self { objects, machines: Machines::Declared, tree: Some(fleet.tree), ..Self::default() };
        let mut templates = Templates::new(fleet);
        for (name, profile_targets) in templates.of_pools() {
            let own = fleet.pools.get(&name).map(|pool| &pool.profile.value);
            let target = own.and_then(|own| profile_targets.get(own).copied());
            this.pools.insert(name, ObservedPool { target, profile_targets });
        }
        for node in fleet.nodes.values() {
            let overlay = NodeOverlay::of(node);
            let pool = node.pool.as_ref().and_then(|pool| fleet.pools.get(&pool.value));
            let target =
                pool.and_then(|pool| templates.digest(pool, overlay.profile.as_ref().unwrap_or(&pool.profile.value)));
            this.nodes.push(ObservedNode {
                id: None,
                name: node.name.clone(),
                site: pool.map(|pool| pool.site.value.clone()),
                role: pool.map_or(Role::Unassigned, |pool| pools::class(pool).role()),
                pool: pool.map(|pool| pool.name.clone()),
                declared: true,
                labels: overlay.labels.clone(),
                target,
                target_overlay: overlay.clone(),
                assigned: target,
                assigned_overlay: overlay,
                assigned_name: None,
                hold: machines::cordon(node, None),
            });
        }
        this.targets = templates
            .all()
            .iter()
            .map(|(digest, template)| (*digest, ObservedTarget { doc: document(template) }))
            .collect();
        this
    }

    /// Names the commit in force.
    #[must_use]
    pub fn at_commit(mut self, commit: &str) -> Self {
        self.commit = Some(commit.to_owned());
        self
    }
}

pub(super) fn document(template: &HostTemplate) -> Value {
    serde_json::to_value(template).expect("a template serialises")
}

pub(super) fn text(value: &impl serde::Serialize) -> String {
    String::from_utf8(canonical::to_vec(value).expect("a document holds no fractions and serialises"))
        .expect("canonical JSON is UTF-8")
}
