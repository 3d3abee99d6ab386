//! `profile`: what a host looks like. Profiles extend one another; [`crate::fleet::resolve`] merges a chain.

mod layer;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{form, hold};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        ByteSize, Located,
        decode::{Fields, Findings, Subject, lone, text},
        doc::{Entry, Scalar},
    },
    name::Name,
    object::Kind,
    secret::SecretName,
    time::Timestamp,
};

pub use layer::{Drift, Without};

/// A kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Module {
    /// Options as modprobe.d takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Located<String>>,
    /// Whether the module is kept from loading instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blacklist: Option<Located<bool>>,
}

/// Kernel modules and command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kernel {
    /// Modules by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub module: BTreeMap<String, Located<Module>>,
    /// Command line arguments, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Located<String>>,
}

impl Kernel {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.module.is_empty() && self.args.is_empty()
    }
}

/// A file on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct FileEntry {
    /// The content itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// The secret whose value is the content, as `secret://NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Located<String>>,
    /// Owning user; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Located<String>>,
    /// Owning group; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Located<String>>,
    /// Four octal digits; `0644` when it is not said, `0600` for a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Located<String>>,
    /// Units that restart, if they run, after the file changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<Located<String>>,
}

/// A systemd unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct UnitEntry {
    /// The unit file itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the unit file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// Whether it starts at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<Located<bool>>,
    /// `started` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Located<String>>,
    /// Whether its restart disturbs workloads, which have to leave first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Located<bool>>,
}

/// A break-glass SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AccessKeyEntry {
    /// The public key: type and base64.
    pub key: Located<String>,
    /// Who the key belongs to; its name when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Located<String>>,
    /// Account on the host; `root` when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Located<String>>,
    /// When it stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
}

/// Who may log in when everything else fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Access {
    /// SSH keys, each by a name of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub key: BTreeMap<String, Located<AccessKeyEntry>>,
}

impl Access {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }
}

/// A setting of a kind that this version records without acting on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// A profile's document: one layer of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Profile {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The profile below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<Located<Name>>,
    /// Kernel parameters by their dotted name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, Located<String>>,
    /// Kernel modules and command line.
    #[serde(default, skip_serializing_if = "Kernel::is_empty")]
    pub kernel: Kernel,
    /// How many huge pages, by size: `2MiB` or `1GiB`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages: BTreeMap<String, Located<u32>>,
    /// Files by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub file: BTreeMap<String, Located<FileEntry>>,
    /// systemd units by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unit: BTreeMap<String, Located<UnitEntry>>,
    /// Package versions by package.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub package: BTreeMap<String, Located<String>>,
    /// Break-glass access.
    #[serde(default, skip_serializing_if = "Access::is_empty")]
    pub access: Access,
    /// Settings of the node daemon; recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub daemon: BTreeMap<String, Located<Setting>>,
    /// Settings of telemetry; recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub telemetry: BTreeMap<String, Located<Setting>>,
    /// What is put on the disk of a new machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Located<Name>>,
    /// What may differ on the host; everything else is enforced.
    #[serde(default, skip_serializing_if = "Drift::is_empty")]
    pub drift: Drift,
    /// What the profiles below say and this one does not want.
    #[serde(default, skip_serializing_if = "Without::is_empty")]
    pub without: Without,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Profile> {
    let fields = &mut subject.fields;
    for later in ["sysfs", "mount", "user"] {
        fields.later(later, "use `file` and `unit` for what they can do", findings);
    }
    Some(Profile {
        name: subject.name.clone(),
        at: subject.at.clone(),
        extends: fields.refer("extends", Kind::Profile, findings),
        sysctl: fields.table("sysctl", findings, sysctl),
        kernel: fields
            .record("kernel", None, findings, |fields, findings| Some(kernel(fields, findings)))
            .map(|kernel| kernel.value)
            .unwrap_or_default(),
        hugepages: hugepages(fields, findings),
        file: fields.named("file", ("path", None), findings, file),
        unit: fields.named("unit", ("name", None), findings, unit),
        package: packages(fields, findings),
        access: fields
            .record("access", None, findings, |fields, findings| Some(access(fields, findings)))
            .map(|access| access.value)
            .unwrap_or_default(),
        daemon: daemon(fields, findings),
        telemetry: fields.table("telemetry", findings, setting),
        image: fields.refer("image", Kind::Image, findings),
        drift: layer::drift(fields, findings),
        without: layer::without(fields, findings),
        protect: hold::protect(fields, findings),
    })
}

fn daemon(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<Setting>> {
    let daemon = fields.table("daemon", findings, setting);
    if let Some(Located { value: Setting::Text(release), at }) = daemon.get("release") {
        match Name::new(release.as_str()) {
            Ok(name) => findings.refer(Kind::Release, &Located::new(name, at.clone())),
            Err(error) => {
                let diagnostic = findings.at(codes::BAD_NAME, at.span, error.to_string());
                findings.push(diagnostic);
            }
        }
    }
    daemon
}

fn sysctl(entry: &Entry, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let key = findings.located(entry.key.clone(), entry.span);
    form::keep(Some(key), "a kernel parameter such as net.core.somaxconn", form::sysctl_key, findings)?;
    let arg = lone(entry, "a number or a text", findings)?;
    match &arg.value {
        Scalar::Int(number) => Some(findings.located(number.to_string(), arg.span)),
        Scalar::Bool(flag) => {
            let help = format!("write {}", i32::from(*flag));
            let diagnostic = findings
                .at(codes::WRONG_TYPE, arg.span, "a kernel parameter is a number or a text, and this is a boolean")
                .help(help);
            findings.push(diagnostic);
            None
        }
        Scalar::Text(_) | Scalar::Float => form::keep(text(arg, findings), "a text on one line", form::line, findings),
    }
}

fn kernel(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Kernel {
    let mut module = fields.named("module", ("name", Some("options")), findings, |_, fields, findings| {
        Some(Module {
            options: form::keep(fields.text("options", findings), "module options on one line", form::line, findings),
            blacklist: fields.boolean("blacklist", findings).filter(|blacklist| blacklist.value),
        })
    });
    let lists = [("modules", false), ("blacklist", true)];
    for (key, blacklist) in lists {
        for name in fields.texts(key, findings) {
            let blacklist = blacklist.then(|| Located::new(true, name.at.clone()));
            if let Some(first) = module.get(&name.value) {
                let diagnostic = findings
                    .at(codes::DUPLICATE_KEY, name.at.span, format!("module {:?} is written twice", name.value))
                    .label("the second")
                    .also(&first.at, "the first");
                findings.push(diagnostic);
                continue;
            }
            module.insert(name.value, Located::new(Module { options: None, blacklist }, name.at));
        }
    }
    for (name, entry) in &module {
        let name = Located::new(name.clone(), entry.at.clone());
        form::keep(Some(name), "the name of a kernel module", form::module, findings);
    }
    let args = fields.texts("args", findings);
    let args = args
        .into_iter()
        .filter_map(|arg| form::keep(Some(arg), "one kernel argument without spaces", form::kernel_arg, findings))
        .collect();
    Kernel { module, args }
}

fn hugepages(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<u32>> {
    let table = fields.table("hugepages", findings, |entry, findings| {
        let size = entry.key.parse::<ByteSize>().ok().filter(|size| matches!(size.0 >> 10, 2048 | 1_048_576));
        if size.is_none() {
            let size = findings.located(entry.key.clone(), entry.span);
            form::refuse(codes::BAD_VALUE, &size, "a page size, 2MiB or 1GiB", findings);
        }
        let count = Fields::integer_of(entry, (0, 1 << 24), findings);
        count.filter(|_| size.is_some())
    });
    let mut pages: BTreeMap<String, Located<u32>> = BTreeMap::new();
    for (size, count) in table {
        let size = size.parse::<ByteSize>().map_or(size, |size| size.to_string());
        if let Some(first) = pages.get(&size) {
            let diagnostic = findings
                .at(codes::DUPLICATE_KEY, count.at.span, format!("pages of {size} are counted twice"))
                .label("the second")
                .also(&first.at, "the first");
            findings.push(diagnostic);
            continue;
        }
        pages.insert(size, count);
    }
    pages
}

fn file(path: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<FileEntry> {
    let at = fields.place(findings);
    if !form::path(path) {
        let name = Located::new(path.to_owned(), at);
        form::refuse(codes::BAD_HOST, &name, "an absolute path without . and ..", findings);
    } else if !form::manageable(path) {
        let diagnostic = findings.at(
            codes::BAD_HOST,
            at.span,
            format!("no file can be managed at {path:?}: the kernel or the node daemon owns it"),
        );
        findings.push(diagnostic);
    }
    let mode = fields.text("mode", findings).and_then(|mode| {
        let digits = form::mode(&mode);
        if digits.is_none() {
            form::refuse(codes::BAD_VALUE, &mode, "a file mode such as \"0644\"", findings);
        }
        digits.map(|digits| Located::new(digits, mode.at))
    });
    let entry = FileEntry {
        content: fields.text("content", findings),
        template: fields.text("template", findings),
        secret: secret(fields, findings),
        owner: form::keep(fields.text("owner", findings), "a user", form::account, findings),
        group: form::keep(fields.text("group", findings), "a group", form::account, findings),
        mode,
        restart: units("restart", fields, findings),
    };
    exclusive(entry.content.as_ref(), entry.template.as_ref(), findings);
    if let Some(secret) = &entry.secret {
        alone(secret, &entry, findings);
    } else if entry.template.is_none() && !fields.has("template") && !fields.has("secret") {
        fields.require_either("content", &["template", "secret"], entry.content.as_ref());
    }
    Some(entry)
}

/// A reference to a secret. What is no reference is not repeated: it may be the value.
fn secret(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let secret = fields.text("secret", findings)?;
    if let Err(error) = SecretName::from_reference(&secret) {
        let diagnostic = findings
            .at(codes::BAD_VALUE, secret.at.span, error.to_string())
            .label("not a reference to a secret")
            .help("write secret \"secret://NAME\"; the value goes in with `better-compute secrets put NAME`");
        findings.push(diagnostic);
        return None;
    }
    Some(secret)
}

/// A secret is the whole content of its file, and not everybody's.
fn alone(secret: &Located<String>, entry: &FileEntry, findings: &mut Findings<'_>) {
    for (word, other) in [("content", &entry.content), ("template", &entry.template)] {
        if let Some(other) = other {
            let diagnostic = findings
                .at(codes::CONFLICT, secret.at.span, format!("`{word}` and `secret` exclude each other"))
                .also(&other.at, format!("the {word}"));
            findings.push(diagnostic);
        }
    }
    if let Some(mode) = entry.mode.as_ref().filter(|mode| !mode.ends_with('0')) {
        let diagnostic = findings
            .at(codes::BAD_VALUE, mode.at.span, "a file with a secret gives others no right")
            .label("the last digit has to be 0")
            .help("write mode \"0600\", or \"0640\" with a group");
        findings.push(diagnostic);
    }
}

/// Names of units, each once, in order.
fn units(key: &'static str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Vec<Located<String>> {
    let units = fields.texts(key, findings).into_iter();
    let mut units: Vec<_> = units
        .filter_map(|unit| {
            form::keep(Some(unit), "a unit with its suffix, such as chrony.service", form::unit, findings)
        })
        .collect();
    for unit in &units {
        managed(unit, key, findings);
    }
    units.sort_by(|a, b| a.value.cmp(&b.value));
    units.dedup();
    fields.filled(key, units.is_empty(), findings);
    units
}

/// Reports a unit that ends the daemon or the machine's run.
fn managed(unit: &Located<String>, what: &str, findings: &mut Findings<'_>) {
    if let Some(why) = crate::unit::refused(unit) {
        let message = format!("{what} {:?} cannot be managed: {why}", unit.value);
        let diagnostic = findings.at(codes::BAD_HOST, unit.at.span, message);
        findings.push(diagnostic);
    }
}

fn exclusive(content: Option<&Located<String>>, template: Option<&Located<String>>, findings: &mut Findings<'_>) {
    if let (Some(content), Some(template)) = (content, template) {
        let diagnostic = findings
            .at(codes::CONFLICT, template.at.span, "`content` and `template` exclude each other")
            .also(&content.at, "the content");
        findings.push(diagnostic);
    }
}

fn unit(name: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<UnitEntry> {
    let at = fields.place(findings);
    let name = Located::new(name.to_owned(), at);
    managed(&name, "unit", findings);
    form::keep(Some(name), "a unit with its suffix, such as chrony.service", form::unit, findings);
    let entry = UnitEntry {
        content: fields.text("content", findings),
        template: fields.text("template", findings),
        enable: fields.boolean("enable", findings),
        state: fields.choice("state", &["started", "stopped"], findings),
        drain: fields.boolean("drain", findings).filter(|drain| drain.value),
    };
    exclusive(entry.content.as_ref(), entry.template.as_ref(), findings);
    let enabled = entry.enable.as_ref().filter(|enable| enable.value);
    if let (Some(content), Some(enable)) = (&entry.content, enabled)
        && !content.lines().any(|line| line.trim() == "[Install]")
    {
        let diagnostic = findings
            .at(codes::BAD_HOST, enable.at.span, "the unit cannot be enabled: its content has no [Install] section")
            .help("add [Install] with WantedBy=multi-user.target, or leave `enable` out");
        findings.push(diagnostic);
    }
    Some(entry)
}

fn packages(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<String>> {
    let packages = fields.named("package", ("name", Some("version")), findings, |name, fields, findings| {
        let name = Located::new(name.to_owned(), fields.place(findings));
        form::keep(Some(name), "the name of a package", form::package, findings);
        let version = form::keep(
            fields.text("version", findings),
            "a version such as 570.86.15-1 or 570.*",
            form::version,
            findings,
        );
        fields.require("version", version)
    });
    packages.into_iter().map(|(name, version)| (name, version.value)).collect()
}

fn access(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Access {
    let key = fields.named("key", ("name", None), findings, |_, fields, findings| {
        let key = fields.text("key", findings).and_then(|key| {
            let bare = form::ssh_key(&key);
            if bare.is_none() {
                form::refuse(codes::BAD_VALUE, &key, "an SSH public key: type and base64", findings);
            }
            bare.map(|bare| Located::new(bare, key.at))
        });
        let entry = AccessKeyEntry {
            principal: fields.line("principal", findings),
            account: form::keep(fields.text("account", findings), "a user", form::account, findings),
            until: fields.parse("until", "a time such as 2026-11-30T12:00:00Z", findings),
            key: fields.require("key", key)?,
        };
        Some(entry)
    });
    Access { key }
}

pub(super) fn setting(entry: &Entry, findings: &mut Findings<'_>) -> Option<Located<Setting>> {
    if entry.args.len() > 1 || entry.form == crate::fleet::doc::Form::List {
        let texts: Option<Vec<String>> =
            entry.args.iter().map(|arg| text(arg, findings).map(|text| text.value)).collect();
        return texts.map(|texts| findings.located(Setting::List(texts), entry.span));
    }
    let arg = lone(entry, "a value", findings)?;
    let value = match &arg.value {
        Scalar::Bool(flag) => Setting::Bool(*flag),
        Scalar::Int(number) => match i64::try_from(*number) {
            Ok(number) => Setting::Int(number),
            Err(_) => {
                let diagnostic = findings.at(codes::OUT_OF_RANGE, arg.span, "the number does not fit 64 bits");
                findings.push(diagnostic);
                return None;
            }
        },
        Scalar::Text(_) | Scalar::Float => Setting::Text(text(arg, findings)?.value),
    };
    Some(findings.located(value, arg.span))
}
