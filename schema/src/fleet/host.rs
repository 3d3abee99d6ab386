//! What a pool's hosts should be ([`HostTemplate`], whose digest is the pool's target) and how one machine's sections are
//! made from it ([`compose`]).
//!
//! A template is self-contained: it is stored under its digest and composed from later, when the repository may have
//! moved on or be away. It holds no places, so moving a line moves no target.

mod compose;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ByteSize, FleetDocument, Labels, Layer, Located, Node, Pool, ResolvedProfile, Site,
    kind::{AccessKeyEntry, FileEntry, Module, UnitEntry},
    stack,
    template::{self, Renderer},
};
use crate::{
    canonical,
    digest::Digest,
    name::Name,
    secret::SecretName,
    spec::{DriftRule, Hugepages, KernelModule, PackagePin},
    time::Timestamp,
};

pub(super) use compose::Composer;
pub use compose::{ComposeError, Composed, compose, compose_all};

/// The text of a file: given, or made by a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// The text itself.
    Text(String),
    /// The path of a template in [`HostTemplate::templates`].
    Template(String),
    /// The value of this secret.
    Secret(SecretName),
}

/// A file before its template is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileTemplate {
    /// Absolute path on the host.
    pub path: String,
    /// What is in it.
    pub content: Content,
    /// Owning user.
    pub owner: String,
    /// Owning group.
    pub group: String,
    /// Four octal digits.
    pub mode: String,
    /// Units that restart, if they run, after the file changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
}

/// A systemd unit before its template is rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitTemplate {
    /// Unit name with its suffix.
    pub name: String,
    /// The unit file; `None` when it comes with a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Started at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Running at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Whether its restart disturbs workloads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A break-glass key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessKeyTemplate {
    /// Who the key belongs to.
    pub principal: String,
    /// Account on the host.
    pub account: String,
    /// Type and base64.
    pub key: String,
    /// When it stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What the hosts of one pool should be under one profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostTemplate {
    /// The pool.
    pub pool: Name,
    /// The profile.
    pub profile: Name,
    /// Kernel parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Kernel modules, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<KernelModule>,
    /// Kernel command line arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_args: Vec<String>,
    /// Huge pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hugepages: Vec<Hugepages>,
    /// Files, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileTemplate>,
    /// systemd units, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitTemplate>,
    /// Package versions, by package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<PackagePin>,
    /// What may differ on the host, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftRule>,
    /// Break-glass keys, by account and principal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<AccessKeyTemplate>,
    /// The texts of the templates that files and units name, and of those that these include.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
    /// What templates see of `fleet`, `site`, `pool` and `profile`; only the ones that a template names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Value>,
}

/// The words that a machine's own document adds. A machine without a document has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeOverlay {
    /// The profile that it has instead of its pool's: the template to compose from is the one of this profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Name>,
    /// Free words, which templates see as `node.labels`.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl HostTemplate {
    pub(super) fn new(
        fleet: &FleetDocument,
        site: &Site,
        pool: &Pool,
        profile: &ResolvedProfile,
        templates: &BTreeMap<Arc<str>, Arc<str>>,
    ) -> Self {
        let files: Vec<FileTemplate> =
            profile.files.iter().map(|(path, layer)| FileTemplate::of(path, layer)).collect();
        let units: Vec<UnitTemplate> =
            profile.units.iter().map(|(name, layer)| UnitTemplate::of(name, layer)).collect();
        let templates = closure(named(&files, &units), templates);
        let values = values(fleet, site, pool, profile, &templates);
        let mut access: Vec<AccessKeyTemplate> =
            profile.access.iter().map(|(name, layer)| AccessKeyTemplate::of(name, layer)).collect();
        access.sort_by(|a, b| (&a.account, &a.principal, &a.key).cmp(&(&b.account, &b.principal, &b.key)));
        Self {
            pool: pool.name.clone(),
            profile: profile.name.clone(),
            sysctl: profile.sysctl.iter().map(|(key, layer)| (key.clone(), layer.value.value.clone())).collect(),
            modules: profile.modules.iter().map(|(name, layer)| module(name, layer)).collect(),
            kernel_args: profile.kernel_args.iter().map(|layer| layer.value.value.clone()).collect(),
            hugepages: hugepages(profile),
            files,
            units,
            packages: profile
                .packages
                .iter()
                .map(|(name, layer)| PackagePin { name: name.clone(), version: layer.value.value.clone() })
                .collect(),
            drift: profile
                .drift
                .iter()
                .map(|(path, layer)| DriftRule { path: path.clone(), mode: layer.value.value })
                .collect(),
            access,
            templates,
            values,
        }
    }

    /// The templates that its files and units name.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        named(&self.files, &self.units)
    }

    /// The digest of its canonical JSON: the target of a pool.
    #[must_use]
    pub fn digest(&self) -> Digest {
        canonical::digest(self).expect("a template holds no fractions and serialises")
    }

    /// Whether two machines of one pool can differ: a text names the machine or its labels.
    #[must_use]
    pub fn names_node(&self) -> bool {
        let named = || {
            let texts = self.templates.iter().map(|(name, text)| (name.as_str(), text.as_str()));
            let renderer = Renderer::new(texts).ok()?;
            Some(self.templates.keys().any(|name| renderer.inputs(name).contains("node")))
        };
        // A text that cannot be read is taken to name everything.
        !self.templates.is_empty() && stack::on(template::STACK, named).flatten().unwrap_or(true)
    }

    /// A template that was stored.
    ///
    /// # Errors
    /// When the document is not one that this version wrote.
    pub fn from_value(document: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(document)
    }
}

impl Content {
    fn template(&self) -> Option<&str> {
        match self {
            Self::Template(name) => Some(name),
            Self::Text(_) | Self::Secret(_) => None,
        }
    }

    fn secret(&self) -> Option<&SecretName> {
        match self {
            Self::Secret(name) => Some(name),
            Self::Text(_) | Self::Template(_) => None,
        }
    }

    fn of(content: Option<&Located<String>>, template: Option<&Located<String>>) -> Option<Self> {
        let template = template.map(|template| Self::Template(template.value.clone()));
        template.or_else(|| content.map(|content| Self::Text(content.value.clone())))
    }
}

impl FileTemplate {
    fn of(path: &str, layer: &Layer<FileEntry>) -> Self {
        let file = &layer.value.value;
        let word = |value: &Option<Located<String>>, default: &str| {
            value.as_ref().map_or_else(|| default.to_owned(), |value| value.value.clone())
        };
        let secret = file.secret.as_ref().and_then(|secret| SecretName::from_reference(secret).ok());
        Self {
            path: path.to_owned(),
            content: secret
                .map(Content::Secret)
                .or_else(|| Content::of(file.content.as_ref(), file.template.as_ref()))
                .unwrap_or(Content::Text(String::new())),
            owner: word(&file.owner, "root"),
            group: word(&file.group, "root"),
            mode: word(&file.mode, if file.secret.is_some() { "0600" } else { "0644" }),
            restart: file.restart.iter().map(|unit| unit.value.clone()).collect(),
        }
    }
}

impl UnitTemplate {
    fn of(name: &str, layer: &Layer<UnitEntry>) -> Self {
        let unit = &layer.value.value;
        Self {
            name: name.to_owned(),
            content: Content::of(unit.content.as_ref(), unit.template.as_ref()),
            enabled: unit.enable.as_ref().map(|enable| enable.value),
            active: unit.state.as_ref().map(|state| state.value == "started"),
            drain: unit.drain.as_ref().is_some_and(|drain| drain.value),
        }
    }
}

impl AccessKeyTemplate {
    fn of(name: &str, layer: &Layer<AccessKeyEntry>) -> Self {
        let key = &layer.value.value;
        let word = |value: &Option<Located<String>>, default: &str| {
            value.as_ref().map_or_else(|| default.to_owned(), |value| value.value.clone())
        };
        Self {
            principal: word(&key.principal, name),
            account: word(&key.account, "root"),
            key: key.key.value.clone(),
            until: key.until.as_ref().map(|until| until.value),
        }
    }
}

fn module(name: &str, layer: &Layer<Module>) -> KernelModule {
    let module = &layer.value.value;
    KernelModule {
        name: name.to_owned(),
        options: module.options.as_ref().map(|options| options.value.clone()).unwrap_or_default(),
        blacklist: module.blacklist.as_ref().is_some_and(|blacklist| blacklist.value),
    }
}

fn hugepages(profile: &ResolvedProfile) -> Vec<Hugepages> {
    let mut pages: Vec<Hugepages> = profile
        .hugepages
        .iter()
        .filter_map(|(size, layer)| {
            let size_kib = u32::try_from(size.parse::<ByteSize>().ok()?.0 >> 10).ok()?;
            Some(Hugepages { size_kib, count: layer.value.value })
        })
        .collect();
    pages.sort_by_key(|pages| pages.size_kib);
    pages
}

fn named<'n>(files: &'n [FileTemplate], units: &'n [UnitTemplate]) -> impl Iterator<Item = &'n str> {
    let contents = files.iter().map(|file| Some(&file.content)).chain(units.iter().map(|unit| unit.content.as_ref()));
    contents.flatten().filter_map(Content::template)
}

/// The named templates and everything that these include.
fn closure<'n>(roots: impl Iterator<Item = &'n str>, all: &BTreeMap<Arc<str>, Arc<str>>) -> BTreeMap<String, String> {
    let mut wanted: Vec<String> = roots.map(str::to_owned).collect();
    let mut found = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        let Some(text) = all.get(name.as_str()) else { continue };
        if found.insert(name, text.to_string()).is_none() {
            wanted.extend(template::includes(text).into_iter().map(str::to_owned));
        }
    }
    found
}

/// What templates see, cut to the roots that they name, so that what nobody reads moves no target.
fn values(
    fleet: &FleetDocument,
    site: &Site,
    pool: &Pool,
    profile: &ResolvedProfile,
    templates: &BTreeMap<String, String>,
) -> BTreeMap<String, Value> {
    let inputs = || -> BTreeSet<String> {
        let texts = templates.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        if let Ok(renderer) = Renderer::new(texts.clone()) {
            return templates.keys().flat_map(|name| renderer.inputs(name)).collect();
        }
        // One that does not parse takes nothing from the others: they are still checked.
        let alone = |text| Renderer::new([text]).ok();
        texts.filter_map(|text| Some(alone(text)?.inputs(text.0))).flatten().collect()
    };
    let named = if templates.is_empty() { None } else { stack::on(template::STACK, inputs) };
    let Some(named) = named else { return BTreeMap::new() };
    let sysctl: BTreeMap<&str, &str> =
        profile.sysctl.iter().map(|(key, layer)| (key.as_str(), layer.value.value.as_str())).collect();
    let all = [
        ("fleet", json!({ "name": fleet.name, "trust_domain": fleet.trust_domain })),
        (
            "site",
            json!({ "name": site.name, "region": site.region, "labels": site.labels, "gateway": site.gateway, "network": site.network }),
        ),
        (
            "pool",
            json!({ "name": pool.name, "site": pool.site, "class": pool.class, "profile": pool.profile, "labels": pool.labels, "hardware": pool.hardware }),
        ),
        ("profile", json!({ "name": profile.name, "chain": profile.chain, "sysctl": sysctl })),
    ];
    all.into_iter()
        .filter(|(root, _)| named.contains(*root))
        .map(|(root, value)| (root.to_owned(), without_null(value)))
        .collect()
}

/// A value that nobody declared does not exist, rather than being null.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .filter(|(_, member)| !member.is_null())
                .map(|(key, member)| (key, without_null(member)))
                .collect(),
        ),
        other => other,
    }
}

impl NodeOverlay {
    /// The words of a node's document.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self {
            profile: node.profile.as_ref().map(|name| name.value.clone()),
            labels: Labels::of(&node.labels, node.labels_digest),
        }
    }
}
