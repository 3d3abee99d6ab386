//! Resolving: what a profile's chain says in all.
//!
//! Layers are merged from the root of the chain to its tip. Mappings merge by key and named things (files, units,
//! modules, packages, keys) by name: a later layer's value takes the place of the earlier one as a whole. Plain lists
//! (kernel arguments) append; an exact repetition appears once, at its first place.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    Located, Profile,
    kind::{AccessKeyEntry, FileEntry, Module, Setting, UnitEntry, Without},
};
use crate::{name::Name, spec::DriftMode};

/// A value that won, the layer that won with it, and the layers that it beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer<T> {
    /// The value and its place.
    pub value: Located<T>,
    /// The profile that says it.
    pub profile: Name,
    /// What profiles further down said instead, nearest first.
    pub beaten: Vec<(Name, Located<T>)>,
}

/// A profile with everything that its chain says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProfile {
    /// The profile at the tip.
    pub name: Name,
    /// The chain, root first, the profile itself last.
    pub chain: Vec<Name>,
    /// Kernel parameters.
    pub sysctl: BTreeMap<String, Layer<String>>,
    /// Kernel modules.
    pub modules: BTreeMap<String, Layer<Module>>,
    /// Kernel command line arguments.
    pub kernel_args: Vec<Layer<String>>,
    /// Huge pages by size.
    pub hugepages: BTreeMap<String, Layer<u32>>,
    /// Files by path.
    pub files: BTreeMap<String, Layer<FileEntry>>,
    /// systemd units by name.
    pub units: BTreeMap<String, Layer<UnitEntry>>,
    /// Package versions.
    pub packages: BTreeMap<String, Layer<String>>,
    /// Break-glass keys.
    pub access: BTreeMap<String, Layer<AccessKeyEntry>>,
    /// What may differ on the host, by path.
    pub drift: BTreeMap<String, Layer<DriftMode>>,
    /// Daemon settings; recorded.
    pub daemon: BTreeMap<String, Layer<Setting>>,
    /// Telemetry settings; recorded.
    pub telemetry: BTreeMap<String, Layer<Setting>>,
    /// The image of new machines.
    pub image: Option<Layer<Name>>,
}

/// Profiles that one chain has at most. Every profile is merged with all below it, so that long chains cost their square.
pub(super) const LAYERS: usize = 32;

/// What became of the profiles. Those whose chain is broken are not among the resolved.
#[derive(Debug, Default)]
pub(super) struct Chains {
    pub(super) resolved: BTreeMap<Name, ResolvedProfile>,
    /// The profiles on each circle.
    pub(super) circles: BTreeSet<Vec<Name>>,
    /// Those whose chain is longer than [`LAYERS`].
    pub(super) deep: Vec<Name>,
}

/// Merges every profile's chain.
pub(super) fn resolve(profiles: &BTreeMap<Name, Profile>) -> Chains {
    let mut chains = Chains::default();
    for tip in profiles.values() {
        match chain(tip, profiles) {
            Ok(layers) => {
                chains.resolved.insert(tip.name.clone(), merge(&layers));
            }
            Err(Broken::Circle(mut names)) => {
                let first = names.iter().enumerate().min_by_key(|(_, name)| *name).map_or(0, |(index, _)| index);
                names.rotate_left(first);
                chains.circles.insert(names);
            }
            Err(Broken::Deep) => chains.deep.push(tip.name.clone()),
            Err(Broken::Missing) => {}
        }
    }
    chains
}

enum Broken {
    Missing,
    Circle(Vec<Name>),
    Deep,
}

/// The layers of a profile, root first.
fn chain<'p>(tip: &'p Profile, profiles: &'p BTreeMap<Name, Profile>) -> Result<Vec<&'p Profile>, Broken> {
    let mut layers = vec![tip];
    let mut seen = BTreeMap::from([(&tip.name, 0)]);
    let mut here = tip;
    while let Some(parent) = &here.extends {
        here = profiles.get(&parent.value).ok_or(Broken::Missing)?;
        if let Some(start) = seen.insert(&here.name, layers.len()) {
            return Err(Broken::Circle(layers[start..].iter().map(|layer| layer.name.clone()).collect()));
        }
        if layers.len() == LAYERS {
            return Err(Broken::Deep);
        }
        layers.push(here);
    }
    layers.reverse();
    Ok(layers)
}

fn merge(layers: &[&Profile]) -> ResolvedProfile {
    let tip = layers.last().expect("a chain has a tip");
    let mut all = ResolvedProfile {
        name: tip.name.clone(),
        chain: layers.iter().map(|layer| layer.name.clone()).collect(),
        sysctl: BTreeMap::new(),
        modules: BTreeMap::new(),
        kernel_args: Vec::new(),
        hugepages: BTreeMap::new(),
        files: BTreeMap::new(),
        units: BTreeMap::new(),
        packages: BTreeMap::new(),
        access: BTreeMap::new(),
        drift: BTreeMap::new(),
        daemon: BTreeMap::new(),
        telemetry: BTreeMap::new(),
        image: None,
    };
    let mut args: HashSet<&str> = HashSet::new();
    for layer in layers {
        let name = &layer.name;
        for arg in &layer.without.args {
            args.remove(arg.value.as_str());
        }
        drop_inherited(&mut all, &layer.without);
        overlay(&mut all.sysctl, &layer.sysctl, name);
        overlay(&mut all.modules, &layer.kernel.module, name);
        overlay(&mut all.hugepages, &layer.hugepages, name);
        overlay(&mut all.files, &layer.file, name);
        overlay(&mut all.units, &layer.unit, name);
        overlay(&mut all.packages, &layer.package, name);
        overlay(&mut all.access, &layer.access.key, name);
        overlay(&mut all.drift, &drift(layer), name);
        overlay(&mut all.daemon, &layer.daemon, name);
        overlay(&mut all.telemetry, &layer.telemetry, name);
        for arg in &layer.kernel.args {
            if args.insert(&arg.value) {
                all.kernel_args.push(Layer { value: arg.clone(), profile: name.clone(), beaten: Vec::new() });
            }
        }
        if let Some(image) = &layer.image {
            all.image = Some(won(all.image.take(), image, name));
        }
    }
    all
}

fn drift(layer: &Profile) -> BTreeMap<String, Located<DriftMode>> {
    let rule = |mode| move |path: &Located<String>| (path.value.clone(), Located::new(mode, path.at.clone()));
    let warn = layer.drift.warn.iter().map(rule(DriftMode::Warn));
    warn.chain(layer.drift.adopt.iter().map(rule(DriftMode::Adopt))).collect()
}

/// Takes away what a layer does not want of those below it.
fn drop_inherited(all: &mut ResolvedProfile, without: &Without) {
    fn drop<T>(base: &mut BTreeMap<String, Layer<T>>, names: &[Located<String>]) {
        for name in names {
            base.remove(&name.value);
        }
    }
    drop(&mut all.sysctl, &without.sysctl);
    drop(&mut all.modules, &without.module);
    drop(&mut all.hugepages, &without.hugepages);
    drop(&mut all.files, &without.file);
    drop(&mut all.units, &without.unit);
    drop(&mut all.packages, &without.package);
    drop(&mut all.access, &without.key);
    drop(&mut all.drift, &without.drift);
    let args: HashSet<&str> = without.args.iter().map(|arg| arg.value.as_str()).collect();
    all.kernel_args.retain(|arg| !args.contains(arg.value.value.as_str()));
}

fn overlay<T: Clone>(base: &mut BTreeMap<String, Layer<T>>, layer: &BTreeMap<String, Located<T>>, profile: &Name) {
    for (key, value) in layer {
        let before = base.remove(key);
        base.insert(key.clone(), won(before, value, profile));
    }
}

fn won<T: Clone>(before: Option<Layer<T>>, value: &Located<T>, profile: &Name) -> Layer<T> {
    let mut beaten = Vec::new();
    if let Some(before) = before {
        beaten.push((before.profile, before.value));
        beaten.extend(before.beaten);
    }
    Layer { value: value.clone(), profile: profile.clone(), beaten }
}
