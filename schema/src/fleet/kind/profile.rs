//! `profile`: what a host looks like. Profiles extend one another; [`crate::fleet::resolve`] merges a chain.

mod access;
mod file;
mod kernel;
mod layer;
mod setting;
mod unit;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{form, hold};
use crate::{
    diagnostic::SourceRef,
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
    },
    name::Name,
    object::Kind,
};

pub use access::{Access, AccessKeyEntry};
pub use file::FileEntry;
pub use kernel::{Kernel, Module};
pub use layer::{Drift, Without};
pub use setting::Setting;
pub(super) use setting::setting;
pub use unit::UnitEntry;

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
        sysctl: fields.table("sysctl", findings, kernel::sysctl),
        kernel: fields
            .record("kernel", None, findings, |fields, findings| Some(kernel::decode(fields, findings)))
            .map(|kernel| kernel.value)
            .unwrap_or_default(),
        hugepages: kernel::hugepages(fields, findings),
        file: fields.named("file", ("path", None), findings, file::decode),
        unit: fields.named("unit", ("name", None), findings, unit::decode),
        package: packages(fields, findings),
        access: fields
            .record("access", None, findings, |fields, findings| Some(access::decode(fields, findings)))
            .map(|access| access.value)
            .unwrap_or_default(),
        daemon: setting::daemon(fields, findings),
        telemetry: fields.table("telemetry", findings, setting),
        image: fields.refer("image", Kind::Image, findings),
        drift: layer::drift(fields, findings),
        without: layer::without(fields, findings),
        protect: hold::protect(fields, findings),
    })
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
