//! What a layer says about other layers and about the host's own will: `without` and `drift`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form;
use crate::{
    diagnostic::{codes, shown},
    fleet::{
        ByteSize, Located,
        decode::{Fields, Findings},
        host_path::{self, ROOTS},
        suggest::similar,
    },
};

/// What may differ on the host. A path is that of `explain`: `sysctl.vm.swappiness`, `files./etc/motd`,
/// `units.chrony.service`; with `*` at its end it means every path that begins so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Drift {
    /// Left alone and reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warn: Vec<Located<String>>,
    /// Left alone and offered as the new wish.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adopt: Vec<Located<String>>,
}

impl Drift {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the profiles below say and a layer does not want.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Without {
    /// Kernel parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sysctl: Vec<Located<String>>,
    /// Kernel modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub module: Vec<Located<String>>,
    /// Kernel command line arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Located<String>>,
    /// Huge pages, by size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepages: Vec<Located<String>>,
    /// Files, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file: Vec<Located<String>>,
    /// systemd units.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unit: Vec<Located<String>>,
    /// Packages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub package: Vec<Located<String>>,
    /// Break-glass keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<Located<String>>,
    /// Rules of `drift`, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<Located<String>>,
}

impl Without {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) fn drift(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Drift {
    let drift = fields.record("drift", None, findings, |fields, findings| {
        let drift = Drift { warn: paths("warn", fields, findings), adopt: paths("adopt", fields, findings) };
        fields.filled("warn", drift.warn.is_empty(), findings);
        fields.filled("adopt", drift.adopt.is_empty(), findings);
        for path in &drift.adopt {
            // Both are in order.
            let same = drift.warn.binary_search_by(|other| other.value.as_str().cmp(path.value.as_str()));
            if let Some(other) = same.ok().map(|index| &drift.warn[index]) {
                let diagnostic = findings
                    .at(codes::CONFLICT, path.at.span, "`warn` and `adopt` exclude each other")
                    .also(&other.at, "the warn");
                findings.push(diagnostic);
            }
        }
        Some(drift)
    });
    drift.map(|drift| drift.value).unwrap_or_default()
}

fn paths(key: &'static str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Vec<Located<String>> {
    let mut paths = canonical(fields.texts(key, findings));
    paths.retain(|path| {
        let stars = path.matches('*').count();
        let root = path.split(['.', '*']).next().unwrap_or("");
        let form = form::line(path) && (stars == 0 || (stars == 1 && path.ends_with('*')));
        let (known, whole) = (ROOTS.contains(&root) || path.value == "*", root != "kernelArgs" || path.value == root);
        if form && known && whole {
            return true;
        }
        let text = shown(path);
        let expected = "a path of a host such as sysctl.vm.swappiness or files./etc/motd, or its beginning and *";
        let help = match similar(root, ROOTS) {
            _ if form && !whole => "kernel arguments are looked at as one: write `kernelArgs`".to_owned(),
            Some(near) if form && !known => format!("did you mean `{near}{}`?", &path[root.len()..]),
            _ => format!("a path begins with one of: {}", ROOTS.join(", ")),
        };
        let diagnostic = findings
            .at(codes::BAD_VALUE, path.at.span, format!("{text:?} is not {expected}"))
            .label("not a path of a host")
            .help(help);
        findings.push(diagnostic);
        false
    });
    paths.sort_by(|a, b| a.value.cmp(&b.value));
    paths.dedup();
    paths
}

/// Paths in the one spelling that they have everywhere.
fn canonical(paths: Vec<Located<String>>) -> Vec<Located<String>> {
    paths.into_iter().map(|path| path.map(|path| host_path::canonical(&path))).collect()
}

/// Sizes of pages in the one spelling that they have everywhere.
fn sizes(sizes: Vec<Located<String>>) -> Vec<Located<String>> {
    let one = |size: String| size.parse::<ByteSize>().map_or(size, |size| size.to_string());
    sizes.into_iter().map(|size| size.map(one)).collect()
}

pub(super) fn without(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Without {
    let without = fields.record("without", None, findings, |fields, findings| {
        // `without { file }` is not without all files.
        let mut names = |key| {
            let names = fields.texts(key, findings);
            fields.filled(key, names.is_empty(), findings);
            names
        };
        Some(Without {
            sysctl: names("sysctl"),
            module: names("module"),
            args: names("args"),
            hugepages: sizes(names("hugepages")),
            file: names("file"),
            unit: names("unit"),
            package: names("package"),
            key: names("key"),
            drift: canonical(names("drift")),
        })
    });
    without.map(|without| without.value).unwrap_or_default()
}
