//! Whole-fleet rules: what no single document can break. References, circles, machines that two documents claim, and
//! whether every host that the documents describe can be made.

mod identity;
mod render;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Fleet, Located, Pool, ResolvedProfile,
    load::{Objects, ParsedFile},
    parse::Syntax,
    resolve, stack,
    suggest::similar,
    template::{self, RenderError},
};
use crate::{
    diagnostic::{Diagnostic, SourceRef, codes},
    digest::Digest,
    name::Name,
    object::{Kind, ObjectRef},
};

/// Checks decoded objects and makes the fleet, which counts only when nothing was wrong.
pub(super) fn check(objects: Objects, files: &[ParsedFile], tree: Digest, found: &mut Vec<Diagnostic>) -> Option<Fleet> {
    references(&objects, files, found);
    removed(&objects, found);
    identity::machines(&objects.nodes, found);
    let (resolved, circles) = resolve::resolve(&objects.profiles);
    for circle in &circles {
        found.push(circle_diagnostic(circle, &objects));
    }
    let templates: BTreeMap<Arc<str>, Arc<str>> = files
        .iter()
        .filter(|file| file.syntax == Syntax::Template)
        .map(|file| (Arc::clone(&file.path), Arc::from(file.parsed.text.as_str())))
        .collect();
    on_stack(found, |found| render::templates(&templates, &objects.profiles, found));
    let fleet = Fleet {
        tree,
        document: objects.fleet?,
        sites: objects.sites,
        pools: objects.pools,
        profiles: objects.profiles,
        images: objects.images,
        rollouts: objects.rollouts,
        nodes: objects.nodes,
        releases: objects.releases,
        tenants: objects.tenants,
        quotas: objects.quotas,
        access: objects.access,
        batches: objects.batches,
        freezes: objects.freezes,
        moved: objects.moved,
        removed: objects.removed,
        resolved,
        templates,
        places: objects.places,
    };
    strategies(&fleet, found);
    twice_on_a_host(&fleet.resolved, found);
    on_stack(found, |found| render::hosts(&fleet, found));
    Some(fleet)
}

/// Checks templates where there is room for what they may need.
fn on_stack(found: &mut Vec<Diagnostic>, check: impl FnOnce(&mut Vec<Diagnostic>) + Send) {
    if stack::on(template::STACK, || check(found)).is_none() {
        let at = SourceRef::start_of("fleet.kdl");
        found.push(Diagnostic::new(codes::TEMPLATE_LIMIT, &at, RenderError::no_room().message));
    }
}

struct References<'c> {
    objects: &'c Objects,
    unread: Unread<'c>,
    found: &'c mut Vec<Diagnostic>,
}

impl References<'_> {
    fn check(&mut self, kind: Kind, name: Option<&Located<Name>>) {
        let Some(name) = name else { return };
        let address = ObjectRef::new(kind, name.value.clone());
        if self.objects.defined.contains_key(&address) || self.unread.may_hold(&address) {
            return;
        }
        let same_kind = self.objects.defined.keys().filter(|other| other.kind == kind).map(|other| other.name.as_str());
        let near = similar(&name.value, same_kind).map(|near| format!("did you mean {kind}/{near}?"));
        let mut diagnostic = Diagnostic::new(codes::UNKNOWN_REFERENCE, &name.at, format!("there is no {address}"))
            .label("not defined")
            .maybe_help(near);
        if let Some(removed) = self.objects.removed.iter().find(|removed| removed.name == address) {
            diagnostic = diagnostic.also(&removed.at, "it is removed here");
        }
        self.found.push(diagnostic);
    }
}

/// Words of files that could not be read to their end: an object that may be in one is not missed as well.
struct Unread<'c> {
    /// A file of which nothing is known.
    any: bool,
    /// The first word of a line and another word of it.
    words: BTreeSet<(&'c str, &'c str)>,
}

impl<'c> Unread<'c> {
    fn of(files: &'c [ParsedFile]) -> Self {
        let broken = files.iter().filter(|file| !file.parsed.whole && file.syntax != Syntax::Template);
        let mut unread = Self { any: false, words: BTreeSet::new() };
        for file in broken {
            unread.any |= file.parsed.text.is_empty();
            for line in file.parsed.text.lines() {
                let mut words =
                    line.split(['"', ' ', '\t', '\'', '{', ';']).filter(|word| !word.is_empty() && *word != "-");
                let Some(first) = words.next().filter(|first| *first == "name:" || first.parse::<Kind>().is_ok())
                else {
                    continue;
                };
                unread.words.extend(words.take(3).map(|word| (first, word)));
            }
        }
        unread
    }

    fn may_hold(&self, address: &ObjectRef) -> bool {
        let said = |first| self.words.contains(&(first, address.name.as_str()));
        self.any || said(address.kind.as_str()) || said("name:")
    }
}

fn references(objects: &Objects, files: &[ParsedFile], found: &mut Vec<Diagnostic>) {
    let mut references = References { objects, unread: Unread::of(files), found };
    if let Some(fleet) = &objects.fleet {
        references.check(Kind::Rollout, fleet.rollout.as_ref());
    }
    for pool in objects.pools.values() {
        references.check(Kind::Site, Some(&pool.site));
        references.check(Kind::Profile, Some(&pool.profile));
        references.check(Kind::Rollout, pool.rollout.as_ref());
    }
    for profile in objects.profiles.values() {
        references.check(Kind::Profile, profile.extends.as_ref());
        references.check(Kind::Image, profile.image.as_ref());
    }
    for node in objects.nodes.values() {
        references.check(Kind::Pool, node.pool.as_ref());
        references.check(Kind::Profile, node.profile.as_ref());
    }
}

fn removed(objects: &Objects, found: &mut Vec<Diagnostic>) {
    for removed in &objects.removed {
        if let Some(at) = objects.defined.get(&removed.name) {
            let diagnostic = Diagnostic::new(
                codes::DECLARED_AND_REMOVED,
                &removed.at,
                format!("{} is declared and removed", removed.name),
            )
            .label("removed here")
            .also(at, "declared here")
            .help("delete one of the two");
            found.push(diagnostic);
        }
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

/// A unit's file and a file at its path are one file.
fn twice_on_a_host(resolved: &BTreeMap<Name, ResolvedProfile>, found: &mut Vec<Diagnostic>) {
    for profile in resolved.values() {
        for (name, unit) in &profile.units {
            let own = unit.value.content.is_some() || unit.value.template.is_some();
            if let Some(file) = profile.files.get(&format!("/etc/systemd/system/{name}")).filter(|_| own) {
                let diagnostic = Diagnostic::new(
                    codes::BAD_HOST,
                    &file.value.at,
                    format!("the file is also written by unit {name:?}"),
                )
                .also(&unit.value.at, "the unit")
                .help("write the unit's text in one of the two");
                found.push(diagnostic);
            }
        }
    }
}

/// The pools' profiles and those that single machines have instead, with the machines.
pub(super) fn hosts(fleet: &Fleet) -> impl Iterator<Item = (&Pool, &Name, Vec<&super::Node>)> {
    fleet.pools.values().flat_map(|pool| {
        let mut by_profile: BTreeMap<&Name, Vec<&super::Node>> = BTreeMap::from([(&pool.profile.value, Vec::new())]);
        for node in fleet.nodes.values().filter(|node| node.pool.as_ref().is_some_and(|name| name.value == pool.name)) {
            let profile = node.profile.as_ref().map_or(&pool.profile.value, |profile| &profile.value);
            by_profile.entry(profile).or_default().push(node);
        }
        by_profile.into_iter().map(move |(profile, nodes)| (pool, profile, nodes))
    })
}
