//! Whole-fleet rules: what no single document can break. References, circles, machines that two documents claim, what
//! moved, who may book where, and whether every host that the documents describe can be made.

mod batches;
mod booking;
mod clean;
mod identity;
mod layers;
mod moved;
mod notes;
mod partial;
mod references;
mod render;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

pub(super) use clean::Clean;
pub(super) use identity::claims;

use super::{
    Fleet, Pool, Profile, Sources, Stop,
    load::{Objects, ParsedFile},
    parse::Syntax,
    resolve, stack,
    template::{self, RenderError},
};
use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    name::Name,
};

/// Checks decoded objects and makes the fleet, which counts only when nothing was wrong.
pub(super) fn check(
    mut objects: Objects,
    files: &[ParsedFile],
    sources: &Sources,
    clean: &mut Clean,
    stop: &Stop<'_>,
    found: &mut Vec<Diagnostic>,
) -> Option<Fleet> {
    references::check(&objects, files, sources, found);
    moved::removed(&objects, found);
    moved::check(&objects, files, found);
    booking::check(&objects, files, found);
    batches::check(&objects, found);
    freezes(&objects, found);
    identity::machines(&objects.nodes, std::mem::take(&mut objects.claims), found);
    let resolve::Chains { resolved, circles, deep } = resolve::resolve(&objects.profiles);
    for circle in &circles {
        found.push(circle_diagnostic(circle, &objects));
    }
    found.extend(deep.iter().filter_map(|name| deep_diagnostic(objects.profiles.get(name)?)));
    let templates: BTreeMap<Arc<str>, Arc<str>> = files
        .iter()
        .filter(|file| file.syntax == Syntax::Template)
        .map(|file| (Arc::clone(&file.path), Arc::clone(&file.parsed.text)))
        .collect();
    on_stack(found, |found| render::templates(&templates, &objects.profiles, stop, found));
    let parts = objects.parts;
    let fleet = Fleet {
        tree: sources.digest(),
        document: objects.fleet.clone().or(parts.fleet.clone()).unwrap_or_else(partial::document),
        sites: objects.sites,
        pools: objects.pools,
        profiles: objects.profiles,
        images: objects.images,
        rollouts: objects.rollouts,
        nodes: Arc::new(objects.nodes),
        releases: objects.releases,
        tenants: objects.tenants,
        quotas: objects.quotas,
        access: objects.access,
        batches: objects.batches,
        freezes: objects.freezes,
        moved: objects.moved,
        removed: objects.removed,
        notes: Vec::new(),
        resolved,
        templates,
        made: objects.made.into(),
    };
    layers::check(&fleet, found);
    let partial = partial::Partial::of(&fleet, objects.fleet.is_none(), parts);
    on_stack(found, |found| render::hosts(partial.fleet(&fleet), &partial, clean, stop, found));
    // Beside an error a note is noise.
    if !found.iter().any(Diagnostic::is_error) {
        strategies(&fleet, found);
        notes::check(&fleet, sources, found);
    }
    objects.fleet.is_some().then_some(fleet)
}

/// Checks templates where there is room for what they may need.
fn on_stack(found: &mut Vec<Diagnostic>, check: impl FnOnce(&mut Vec<Diagnostic>) + Send) {
    if stack::on(template::STACK, || check(found)).is_none() {
        let at = SourceRef::start_of("fleet.kdl");
        found.push(Diagnostic::new(codes::TEMPLATE_LIMIT, &at, RenderError::no_room().message));
    }
}

fn circle_diagnostic(circle: &[Name], objects: &Objects) -> Diagnostic {
    let names: Vec<&str> = circle.iter().chain(circle.first()).map(|name| &**name).collect();
    let places: Vec<_> = circle.iter().filter_map(|name| objects.profiles.get(name)?.extends.as_ref()).collect();
    let first = places.first().expect("a circle has a profile that extends one");
    let mut diagnostic = Diagnostic::new(
        codes::PROFILE_CYCLE,
        &first.at,
        format!("profiles extend each other in a circle: {}", names.join(" → ")),
    );
    diagnostic = diagnostic.label("the circle begins here");
    for place in &places[1..] {
        diagnostic = diagnostic.also(&place.at, format!("and goes on to {}", place.value));
    }
    diagnostic.help("remove one `extends`; what both need goes into a profile of its own")
}

fn deep_diagnostic(profile: &Profile) -> Option<Diagnostic> {
    let message = format!("profile/{} has more than {} profiles below it", profile.name, resolve::LAYERS - 1);
    Some(Diagnostic::new(codes::TOO_DEEP, &profile.extends.as_ref()?.at, message))
}

/// A freeze of the fleet file and one of its own share a name space: holds are told by name.
fn freezes(objects: &Objects, found: &mut Vec<Diagnostic>) {
    for (name, rule) in objects.fleet.iter().flat_map(|fleet| &fleet.freeze) {
        if let Some(other) = objects.freezes.get(name.as_str()) {
            let message = format!("freeze/{name} is defined twice");
            found
                .push(Diagnostic::new(codes::DUPLICATE_OBJECT, &other.at, message).also(&rule.at, "in the fleet file"));
        }
    }
}

/// A pool without a rollout changes all its hosts at once, and its author should know.
fn strategies(fleet: &Fleet, found: &mut Vec<Diagnostic>) {
    if fleet.document.rollout.is_some() {
        return;
    }
    for pool in fleet.pools.values().filter(|pool| pool.rollout.is_none()) {
        let message = format!("pool/{} names no rollout: a change reaches all of its hosts at once", pool.name);
        let diagnostic = Diagnostic::new(codes::IMMEDIATE_BY_DEFAULT, &pool.at, message)
            .help("say it: rollout \"NAME\", with rollout \"NAME\" { immediate }");
        found.push(diagnostic);
    }
}

/// The pools' profiles and those that single machines have instead, with the machines.
pub(super) fn hosts(fleet: &Fleet) -> impl Iterator<Item = (&Pool, &Name, Vec<&Arc<super::Node>>)> {
    let mut members: HashMap<&Name, Vec<&Arc<super::Node>>> = HashMap::new();
    for node in fleet.nodes.values() {
        if let Some(pool) = &node.pool {
            members.entry(&pool.value).or_default().push(node);
        }
    }
    fleet.pools.values().flat_map(move |pool| {
        let mut by_profile: BTreeMap<&Name, Vec<&Arc<super::Node>>> =
            BTreeMap::from([(&pool.profile.value, Vec::new())]);
        for node in members.remove(&pool.name).unwrap_or_default() {
            let profile = node.profile.as_ref().map_or(&pool.profile.value, |profile| &profile.value);
            by_profile.entry(profile).or_default().push(node);
        }
        by_profile.into_iter().map(move |(profile, nodes)| (pool, profile, nodes))
    })
}
