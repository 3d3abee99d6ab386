//! Where each value of a machine comes from: file, line, template and the layer that won.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{
    Fleet, Layer, Located, Node, Pool, ResolvedProfile, host_path,
    kind::{AccessKeyEntry, FileEntry},
    stack, template,
};
use crate::{
    diagnostic::{Lines, SourceRef},
    name::Name,
    object::{Kind, ObjectRef},
};

/// Where one value of a machine comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// The value's path: `sysctl.vm.swappiness`, `files./etc/motd.mode`, or `pool`, `profile`, `labels.rack` for what the
    /// machine itself is. An item of a list is named by its text: `kernelArgs.quiet`.
    pub path: String,
    /// The value, shortened for people.
    pub value: String,
    /// The layer that won, as an address: `profile/gpu-host`, `pool/h100`, `node/fra1-r12`.
    pub layer: String,
    /// Where it is written.
    pub at: SourceRef,
    /// The template that makes it, as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Arc<str>>,
    /// The values that the template reads, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Read>,
    /// Where lower layers said something else, nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beaten: Vec<SourceRef>,
}

/// A value that a template reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    /// The value as the template names it: `site.labels.ntp`.
    pub value: String,
    /// Where the template names it.
    pub at: SourceRef,
    /// Where it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<SourceRef>,
}

/// The provenance of a machine's values: its own first, then those of its host by path; with `path`, of those at it or
/// below it.
pub(super) fn node(fleet: &Fleet, node: &Node, path: Option<&str>) -> Vec<Provenance> {
    let mut found = Vec::new();
    let own = format!("node/{}", node.name);
    if let Some(pool) = &node.pool {
        found.push(plain("pool", &pool.value, &own, &pool.at));
    }
    let pool = node.pool.as_ref().and_then(|name| fleet.pools.get(&name.value));
    let profile = node.profile.as_ref().map(|name| (name, own.clone()));
    let profile = profile.or_else(|| pool.map(|pool| (&pool.profile, format!("pool/{}", pool.name))));
    if let Some((name, layer)) = &profile {
        let mut one = plain("profile", &name.value, layer, &name.at);
        if node.profile.is_some() {
            one.beaten.extend(pool.map(|pool| pool.profile.at.clone()));
        }
        found.push(one);
    }
    for (key, value) in &node.labels {
        found.push(plain(&format!("labels.{key}"), &value.value, &own, &value.at));
    }
    let machine = Machine { fleet, node: Some(&node.name), pool };
    machine.host(profile.map(|(name, _)| &name.value), path, found)
}

/// The provenance of the values of a pool's machines that no document declares.
pub(super) fn pool(fleet: &Fleet, pool: &Pool, path: Option<&str>) -> Vec<Provenance> {
    let own = format!("pool/{}", pool.name);
    let found = vec![plain("profile", &pool.profile.value, &own, &pool.profile.at)];
    Machine { fleet, node: None, pool: Some(pool) }.host(Some(&pool.profile.value), path, found)
}

/// Whose values are explained.
struct Machine<'f> {
    fleet: &'f Fleet,
    node: Option<&'f Name>,
    pool: Option<&'f Pool>,
}

impl Machine<'_> {
    fn host(&self, profile: Option<&Name>, path: Option<&str>, mut found: Vec<Provenance>) -> Vec<Provenance> {
        if let Some(resolved) = profile.and_then(|profile| self.fleet.resolved(profile)) {
            host(resolved, &mut found);
        }
        if let Some(path) = path.map(host_path::canonical) {
            found.retain(|one| host_path::below(&one.path, &path));
        }
        // Items of a list stay in its order.
        let place = |one: &Provenance| {
            let own = OWN.iter().position(|root| host_path::below(&one.path, root)).unwrap_or(OWN.len());
            (own, if host_path::below(&one.path, "kernelArgs") { "kernelArgs".to_owned() } else { one.path.clone() })
        };
        found.sort_by_cached_key(place);
        // Without room for that stack nothing is said about what templates read.
        let _room = stack::on(template::STACK, || {
            for one in &mut found {
                one.reads = one.template.as_ref().map(|template| self.reads(template, profile)).unwrap_or_default();
            }
        });
        found
    }

    fn reads(&self, template: &Arc<str>, profile: Option<&Name>) -> Vec<Read> {
        let Some(text) = self.fleet.templates.get(template) else { return Vec::new() };
        let lines = Lines::new(text);
        let found = template::reads(template, text).into_iter();
        let read = |(value, range): (String, std::ops::Range<usize>)| Read {
            at: SourceRef::new(Arc::clone(template), lines.span(range.start, range.end)),
            from: self.declared(&value, profile),
            value,
        };
        found.map(read).collect()
    }

    /// Where a value that templates see is written.
    fn declared(&self, value: &str, profile: Option<&Name>) -> Option<SourceRef> {
        let (root, path) = value.split_once('.')?;
        let (kind, name) = match root {
            "fleet" => (Kind::Fleet, &self.fleet.document.name),
            "site" => (Kind::Site, &self.pool?.site.value),
            "pool" => (Kind::Pool, &self.pool?.name),
            "node" => (Kind::Node, self.node?),
            "profile" => (Kind::Profile, profile?),
            _ => return None,
        };
        if let (Kind::Profile, Some(key)) = (kind, path.strip_prefix("sysctl.")) {
            return Some(self.fleet.resolved(name)?.sysctl.get(key)?.value.at.clone());
        }
        if path == "name" {
            return self.named(kind, name);
        }
        let object = ObjectRef::new(kind, name.clone());
        self.fleet.place(&object, &path.replace('_', "-")).or_else(|| self.fleet.place(&object, path)).cloned()
    }

    fn named(&self, kind: Kind, name: &Name) -> Option<SourceRef> {
        let at = match kind {
            Kind::Fleet => &self.fleet.document.at,
            Kind::Site => &self.fleet.sites.get(name)?.at,
            Kind::Pool => &self.fleet.pools.get(name)?.at,
            Kind::Profile => &self.fleet.profiles.get(name)?.at,
            _ => &self.fleet.nodes.get(name)?.at,
        };
        Some(at.clone())
    }
}

/// What a machine itself is, ahead of what its host looks like.
const OWN: [&str; 4] = ["pool", "profile", "image", "labels"];

/// Where everything that a profile's chain says about a host is written, by path: the blocks of things that have a name,
/// each of their words, and each item of a list.
pub(super) fn places(resolved: &ResolvedProfile) -> BTreeMap<String, SourceRef> {
    let mut found = Vec::new();
    host(resolved, &mut found);
    let mut places: BTreeMap<String, SourceRef> = found.into_iter().map(|one| (one.path, one.at)).collect();
    let mut blocks = |path: String, at: &SourceRef| {
        places.entry(path).or_insert_with(|| at.clone());
    };
    resolved.modules.iter().for_each(|(name, layer)| blocks(format!("modules.{name}"), &layer.value.at));
    resolved.files.iter().for_each(|(name, layer)| blocks(format!("files.{name}"), &layer.value.at));
    resolved.units.iter().for_each(|(name, layer)| blocks(format!("units.{name}"), &layer.value.at));
    resolved.access.iter().for_each(|(name, layer)| blocks(key(name, layer), &layer.value.at));
    places
}

fn host(resolved: &ResolvedProfile, found: &mut Vec<Provenance>) {
    table("sysctl", &resolved.sysctl, Clone::clone, found);
    table("hugepages", &resolved.hugepages, ToString::to_string, found);
    table("packages", &resolved.packages, Clone::clone, found);
    table("drift", &resolved.drift, ToString::to_string, found);
    for arg in &resolved.kernel_args {
        found.push(whole(format!("kernelArgs.{}", arg.value.value), arg, arg.value.value.clone()));
    }
    for (name, layer) in &resolved.modules {
        let blacklisted = layer.value.value.blacklist.as_ref().is_some_and(|blacklist| blacklist.value);
        let path = format!("modules.{name}");
        let shown = if blacklisted { "blacklisted" } else { "loaded" };
        found.push(whole(path.clone(), layer, shown.to_owned()));
        member(&path, "options", layer, |module| module.options.as_ref(), Clone::clone, found);
    }
    for (name, layer) in &resolved.files {
        let path = format!("files.{name}");
        text(&path, layer, |file| (file.secret.as_ref().or(file.content.as_ref()), file.template.as_ref()), found);
        member(&path, "owner", layer, |file| file.owner.as_ref(), Clone::clone, found);
        member(&path, "group", layer, |file| file.group.as_ref(), Clone::clone, found);
        member(&path, "mode", layer, |file| file.mode.as_ref(), Clone::clone, found);
        for unit in &layer.value.value.restart {
            let same = |file: &FileEntry| file.restart.iter().find(|other| other.value == unit.value).cloned();
            let mut restart = plain(&format!("{path}.restart.{}", unit.value), "restarts", &layer_of(layer), &unit.at);
            restart.beaten = layer.beaten.iter().filter_map(|(_, file)| Some(same(&file.value)?.at)).collect();
            found.push(restart);
        }
    }
    for (name, layer) in &resolved.units {
        let path = format!("units.{name}");
        text(&path, layer, |unit| (unit.content.as_ref(), unit.template.as_ref()), found);
        member(&path, "enabled", layer, |unit| unit.enable.as_ref(), ToString::to_string, found);
        member(&path, "state", layer, |unit| unit.state.as_ref(), Clone::clone, found);
        member(&path, "drain", layer, |unit| unit.drain.as_ref(), ToString::to_string, found);
    }
    for (name, layer) in &resolved.access {
        let path = key(name, layer);
        member(&path, "key", layer, |key| Some(&key.key), Clone::clone, found);
        member(&path, "principal", layer, |key| key.principal.as_ref(), Clone::clone, found);
        member(&path, "account", layer, |key| key.account.as_ref(), Clone::clone, found);
        member(&path, "until", layer, |key| key.until.as_ref(), ToString::to_string, found);
    }
    if let Some(image) = &resolved.image {
        found.push(whole("image".to_owned(), image, image.value.value.to_string()));
    }
}

/// A key is called after whom it belongs to.
fn key(name: &str, layer: &Layer<AccessKeyEntry>) -> String {
    format!("access.{}", layer.value.value.principal.as_ref().map_or(name, |principal| &principal.value))
}

fn table<T>(path: &str, layers: &BTreeMap<String, Layer<T>>, show: impl Fn(&T) -> String, found: &mut Vec<Provenance>) {
    for (key, layer) in layers {
        found.push(whole(format!("{path}.{key}"), layer, show(&layer.value.value)));
    }
}

fn text<T>(
    path: &str,
    layer: &Layer<T>,
    get: impl Fn(&T) -> (Option<&Located<String>>, Option<&Located<String>>),
    found: &mut Vec<Provenance>,
) {
    let (content, template) = get(&layer.value.value);
    let Some(said) = template.or(content) else { return };
    let shown = if template.is_some() { format!("made by {}", said.value) } else { said.value.clone() };
    let mut one = one(
        format!("{path}.content"),
        layer,
        |value| {
            let (content, template) = get(value);
            template.or(content)
        },
        shown,
    );
    one.template = template.map(|template| Arc::from(template.value.as_str()));
    found.push(one);
}

/// A word of a thing that has a name.
fn member<T, V>(
    path: &str,
    key: &str,
    layer: &Layer<T>,
    get: impl Fn(&T) -> Option<&Located<V>>,
    show: impl Fn(&V) -> String,
    found: &mut Vec<Provenance>,
) {
    if let Some(value) = get(&layer.value.value) {
        let shown = show(&value.value);
        found.push(one(format!("{path}.{key}"), layer, get, shown));
    }
}

fn layer_of<T>(layer: &Layer<T>) -> String {
    format!("profile/{}", layer.profile)
}

/// A value that is a layer's as a whole.
fn whole<T>(path: String, layer: &Layer<T>, shown: String) -> Provenance {
    let mut one = plain(&path, &shown, &layer_of(layer), &layer.value.at);
    one.beaten = layer.beaten.iter().map(|(_, beaten)| beaten.at.clone()).collect();
    one
}

/// A value that is a part of a layer's: where each layer says that part.
fn one<T, V>(path: String, layer: &Layer<T>, get: impl Fn(&T) -> Option<&Located<V>>, shown: String) -> Provenance {
    let at = get(&layer.value.value).map_or(&layer.value.at, |value| &value.at);
    let mut one = plain(&path, &shown, &layer_of(layer), at);
    one.beaten = layer.beaten.iter().filter_map(|(_, beaten)| Some(get(&beaten.value)?.at.clone())).collect();
    one
}

fn plain(path: &str, value: &str, layer: &str, at: &SourceRef) -> Provenance {
    let mut lines = value.lines();
    let first: String = lines.next().unwrap_or("").chars().take(80).collect();
    let value = if lines.next().is_some() { format!("{first} …") } else { first };
    Provenance {
        path: path.to_owned(),
        value,
        layer: layer.to_owned(),
        at: at.clone(),
        template: None,
        reads: Vec::new(),
        beaten: Vec::new(),
    }
}
