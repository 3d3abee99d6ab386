//! Where each value of a machine comes from: file, line, template and the layer that won.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{Fleet, Layer, Located, Node, Pool, ResolvedProfile, stack, template};
use crate::{
    diagnostic::{Lines, SourceRef},
    name::Name,
    object::{Kind, ObjectRef},
};

/// Where one value of a machine comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// The value's path: that of the node spec (`host.sysctl.vm.swappiness`, `host.files./etc/motd.mode`), or `pool`,
    /// `profile`, `labels.rack` for what the machine itself is.
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

/// The provenance of a machine's values, ordered by path; with `path`, of those at it or below it.
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
        if let Some(path) = path {
            let below = |rest: &str| rest.is_empty() || rest.starts_with('.') || rest.starts_with('/');
            found.retain(|one| one.path.strip_prefix(path).is_some_and(below));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
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

fn host(resolved: &ResolvedProfile, found: &mut Vec<Provenance>) {
    table("host.sysctl", &resolved.sysctl, Clone::clone, found);
    table("host.hugepages", &resolved.hugepages, ToString::to_string, found);
    table("host.packages", &resolved.packages, Clone::clone, found);
    table("host.drift", &resolved.drift, ToString::to_string, found);
    for (index, arg) in resolved.kernel_args.iter().enumerate() {
        found.push(one(format!("host.kernelArgs.{index}"), arg, &arg.value, arg.value.value.clone()));
    }
    for (name, layer) in &resolved.modules {
        let path = format!("host.modules.{name}");
        let module = &layer.value.value;
        let blacklisted = module.blacklist.as_ref().is_some_and(|blacklist| blacklist.value);
        found.push(one(
            path.clone(),
            layer,
            &layer.value,
            if blacklisted { "blacklisted".to_owned() } else { "loaded".to_owned() },
        ));
        member(&path, "options", layer, module.options.as_ref(), Clone::clone, found);
    }
    for (name, layer) in &resolved.files {
        let (path, file) = (format!("host.files.{name}"), &layer.value.value);
        text(&path, layer, file.content.as_ref(), file.template.as_ref(), found);
        member(&path, "owner", layer, file.owner.as_ref(), Clone::clone, found);
        member(&path, "group", layer, file.group.as_ref(), Clone::clone, found);
        member(&path, "mode", layer, file.mode.as_ref(), Clone::clone, found);
        for unit in &file.restart {
            found.push(one(format!("{path}.restart.{}", unit.value), layer, unit, "restarts".to_owned()));
        }
    }
    for (name, layer) in &resolved.units {
        let (path, unit) = (format!("host.units.{name}"), &layer.value.value);
        text(&path, layer, unit.content.as_ref(), unit.template.as_ref(), found);
        member(&path, "enabled", layer, unit.enable.as_ref(), ToString::to_string, found);
        member(&path, "state", layer, unit.state.as_ref(), Clone::clone, found);
        member(&path, "drain", layer, unit.drain.as_ref(), ToString::to_string, found);
    }
    for (name, layer) in &resolved.access {
        let (path, key) = (format!("access.keys.{name}"), &layer.value.value);
        member(&path, "key", layer, Some(&key.key), Clone::clone, found);
        member(&path, "principal", layer, key.principal.as_ref(), Clone::clone, found);
        member(&path, "account", layer, key.account.as_ref(), Clone::clone, found);
        member(&path, "until", layer, key.until.as_ref(), ToString::to_string, found);
    }
    if let Some(image) = &resolved.image {
        found.push(one("image".to_owned(), image, &image.value, image.value.value.to_string()));
    }
}

fn table<T>(path: &str, layers: &BTreeMap<String, Layer<T>>, show: impl Fn(&T) -> String, found: &mut Vec<Provenance>) {
    for (key, layer) in layers {
        found.push(one(format!("{path}.{key}"), layer, &layer.value, show(&layer.value.value)));
    }
}

fn text<T>(
    path: &str,
    layer: &Layer<T>,
    content: Option<&Located<String>>,
    template: Option<&Located<String>>,
    found: &mut Vec<Provenance>,
) {
    let path = format!("{path}.content");
    if let Some(template) = template {
        let mut from = one(path, layer, template, format!("made by {}", template.value));
        from.template = Some(Arc::from(template.value.as_str()));
        found.push(from);
    } else if let Some(content) = content {
        found.push(one(path, layer, content, content.value.clone()));
    }
}

fn member<T, V>(
    path: &str,
    key: &str,
    layer: &Layer<T>,
    value: Option<&Located<V>>,
    show: impl Fn(&V) -> String,
    found: &mut Vec<Provenance>,
) {
    if let Some(value) = value {
        found.push(one(format!("{path}.{key}"), layer, value, show(&value.value)));
    }
}

fn one<T, V>(path: String, layer: &Layer<T>, value: &Located<V>, shown: String) -> Provenance {
    let mut one = plain(&path, &shown, &format!("profile/{}", layer.profile), &value.at);
    one.beaten = layer.beaten.iter().map(|(_, at)| at.clone()).collect();
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
