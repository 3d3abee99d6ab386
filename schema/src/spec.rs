//! NodeSpec: what one machine is told to be, section by section.
//!
//! The JSON of these types is the proto3 JSON of `bettercompute.agent.v1.NodeSpec` (a test in `proto` holds the two
//! together), and its canonical bytes are what is stored, signed and sent. A member that has its default value does not
//! appear. Composed by the `nodespec` controller from the target that the node was last assigned; carried out by `bcd`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::{canonical, digest::Digest, node::words, secret::SecretName, time::Timestamp};

words! {
    /// The sections of a spec, in the order in which they are converged.
    Section {
        /// Files, kernel settings, units.
        Host = "host",
        /// Who may log in when everything else fails.
        Access = "access",
    }
}

/// The whole desired state of one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeSpec {
    /// What the host looks like.
    #[serde(skip_serializing_if = "HostSection::is_empty")]
    pub host: HostSection,
    /// Break-glass access.
    #[serde(skip_serializing_if = "AccessSection::is_empty")]
    pub access: AccessSection,
}

/// What a host looks like. What leaves the section is undone on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostSection {
    /// Kernel parameters by their dotted name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
    /// Kernel modules to load and their options, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<KernelModule>,
    /// Kernel command line arguments; staged for the next boot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_args: Vec<String>,
    /// Huge pages to reserve, sorted by size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepages: Vec<Hugepages>,
    /// Files, sorted by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<HostFile>,
    /// systemd units, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<Unit>,
    /// Versions that the package manager keeps to, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<PackagePin>,
    /// What may differ from all this, sorted by path; everything else is enforced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftRule>,
}

words! {
    /// What happens to a value that differs on the host.
    DriftMode {
        /// It is left alone and reported.
        Warn = "warn",
        /// It is left alone and offered as the new wish.
        Adopt = "adopt",
    }
}

/// A value that may differ on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriftRule {
    /// A path of the section such as `sysctl.vm.swappiness` or `files./etc/motd`; with `*` at its end, every path that
    /// begins so.
    pub path: String,
    /// What happens.
    pub mode: DriftMode,
}

impl DriftRule {
    /// What a file, a unit or a module is made of, as the ends of paths have it.
    const FIELDS: [&str; 7] = ["content", "mode", "owner", "group", "enabled", "state", "options"];

    /// Whether the rule speaks of a path or of something that it is part of: `files./etc/motd` covers
    /// `files./etc/motd.mode`.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path.strip_prefix(&self.path).is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('.').is_some_and(|field| Self::FIELDS.contains(&field))
            }),
        }
    }
}

/// A kernel module to load at boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KernelModule {
    /// Its name.
    pub name: String,
    /// Options as modprobe.d takes them, for example `NVreg_EnableGpuFirmware=1`; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Keep the module from loading instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blacklist: bool,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hugepages {
    /// Size of a page in KiB: 2048 or 1048576.
    pub size_kib: u32,
    /// How many.
    pub count: u32,
}

/// A file with its owner and mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostFile {
    /// Absolute path on the host.
    pub path: String,
    /// The whole content; empty for a secret.
    pub content: String,
    /// The secret whose value is the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVersion>,
    /// Permission bits as four octal digits, for example `0644`.
    pub mode: String,
    /// Owning user's name or number.
    pub owner: String,
    /// Owning group's name or number.
    pub group: String,
    /// Units that restart, if they run, after the file changed; sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
}

/// One value of a secret, by name and version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretVersion {
    /// The secret.
    pub name: SecretName,
    /// Which of its values; 0 until the control plane has put the newest one in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u32,
}

impl fmt::Display for SecretVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name.reference(), self.version)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(version: &u32) -> bool {
    *version == 0
}

/// A systemd unit: its file, and what is wanted of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Unit {
    /// Unit name with its suffix, for example `nvidia-persistenced.service`.
    pub name: String,
    /// The unit file; empty when the unit comes with a package.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// Started at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Running at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Whether its restart disturbs workloads, which have to leave first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// A package that stays at one version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PackagePin {
    /// Package name.
    pub name: String,
    /// Version, as the package manager writes it; `*` at the end matches a prefix.
    pub version: String,
}

/// Who may log in when everything else fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessSection {
    /// Keys, sorted by account and principal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<AccessKey>,
}

/// One person's SSH key for one account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessKey {
    /// Who the key belongs to, for the comment and the log.
    pub principal: String,
    /// Account on the host.
    pub account: String,
    /// Public key: type and base64, without a comment.
    pub key: String,
    /// When the key stops working by itself; `None` means that it stays until it leaves the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl HostSection {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What happens when the value at a path differs; `None`: it is enforced. The longest rule decides.
    #[must_use]
    pub fn drift_mode(&self, path: &str) -> Option<DriftMode> {
        let rules = self.drift.iter().filter(|rule| rule.covers(path));
        rules.max_by_key(|rule| rule.path.trim_end_matches('*').len()).map(|rule| rule.mode)
    }
}

impl AccessSection {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl NodeSpec {
    /// The values of secrets that the machine needs, each once.
    #[must_use]
    pub fn secrets(&self) -> BTreeSet<SecretVersion> {
        self.host.files.iter().filter_map(|file| file.secret.clone()).collect()
    }

    /// The canonical bytes: stored, signed and sent as they are.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical::to_vec(self).expect("a spec holds no fractions and serialises")
    }

    /// Reads canonical bytes.
    ///
    /// # Errors
    /// When the bytes are not a spec, or name a member that this version does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SpecError> {
        serde_json::from_slice(bytes).map_err(SpecError)
    }

    /// The digest of each section, empty ones included, so that a node applies only what moved.
    #[must_use]
    pub fn section_digests(&self) -> BTreeMap<Section, Digest> {
        let digest = "a section holds no fractions and serialises";
        BTreeMap::from([
            (Section::Host, canonical::digest(&self.host).expect(digest)),
            (Section::Access, canonical::digest(&self.access).expect(digest)),
        ])
    }
}

/// Bytes that are not a spec.
#[derive(Debug)]
pub struct SpecError(serde_json::Error);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not a node spec that this version knows")
    }
}

impl std::error::Error for SpecError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_is_an_empty_object() {
        assert_eq!(NodeSpec::default().to_bytes(), b"{}");
    }

    #[test]
    fn a_spec_survives_its_bytes() {
        let mut spec = NodeSpec::default();
        spec.host.sysctl.insert("vm.swappiness".into(), "1".into());
        spec.host.files.push(HostFile {
            path: "/etc/motd".into(),
            content: "hi\n".into(),
            mode: "0644".into(),
            owner: "root".into(),
            group: "root".into(),
            ..HostFile::default()
        });
        assert_eq!(NodeSpec::from_bytes(&spec.to_bytes()).expect("a spec"), spec);
    }

    #[test]
    fn the_longest_drift_rule_decides() {
        let rule = |path: &str, mode| DriftRule { path: path.to_owned(), mode };
        let drift = vec![
            rule("files./etc/motd", DriftMode::Warn),
            rule("sysctl.vm.*", DriftMode::Adopt),
            rule("sysctl.vm.swappiness", DriftMode::Warn),
        ];
        let host = HostSection { drift, ..HostSection::default() };
        assert_eq!(host.drift_mode("sysctl.vm.swappiness"), Some(DriftMode::Warn));
        assert_eq!(host.drift_mode("sysctl.vm.overcommit_memory"), Some(DriftMode::Adopt));
        assert_eq!(host.drift_mode("files./etc/motd.mode"), Some(DriftMode::Warn));
        assert_eq!(host.drift_mode("files./etc/motd2"), None);
        assert_eq!(host.drift_mode("files./etc/motd.d/x.content"), None);
        assert_eq!(host.drift_mode("sysctl.kernel.panic"), None);
    }

    #[test]
    fn an_unknown_member_is_refused() {
        assert!(NodeSpec::from_bytes(br#"{"hosts":{}}"#).is_err());
    }

    #[test]
    fn only_the_section_that_moved_has_another_digest() {
        let before = NodeSpec::default().section_digests();
        let mut spec = NodeSpec::default();
        spec.host.kernel_args.push("iommu=pt".into());
        let after = spec.section_digests();
        assert_ne!(before[&Section::Host], after[&Section::Host]);
        assert_eq!(before[&Section::Access], after[&Section::Access]);
    }
}
