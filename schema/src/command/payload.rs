//! What each kind is told. Unknown members are refused: an older daemon must not run half of what a newer one was asked.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::Error as _};
use serde_json::Value;

use crate::{
    canonical,
    inventory::InventorySection,
    time::{Duration, Timestamp},
};

/// Where a payload does not fit, and what belongs there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {expected}")]
pub struct PayloadError {
    /// The place, such as `units[0]`; `.` for the whole.
    pub path: String,
    /// What belongs there, for people.
    pub expected: String,
}

pub(super) fn check<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, PayloadError> {
    // No payload at all is one with nothing said.
    let nothing = Value::Object(serde_json::Map::new());
    let value = if value.is_null() { &nothing } else { value };
    if !value.is_object() {
        return Err(PayloadError {
            path: ".".to_owned(),
            expected: "an object with the members of this kind".to_owned(),
        });
    }
    let read: T = serde_path_to_error::deserialize(value)
        .map_err(|error| PayloadError { path: error.path().to_string(), expected: error.inner().to_string() })?;
    let whole = |expected: String| PayloadError { path: ".".to_owned(), expected };
    let bytes = canonical::to_vec(&read).map_err(|error| whole(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| whole(error.to_string()))
}

/// Payload of `inventory.refresh`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InventoryRefresh {
    /// The sections to send whether they changed or not; none named: those that changed only.
    #[serde(default, deserialize_with = "few")]
    pub sections: Vec<InventorySection>,
    /// Look for devices on the PCI bus again before reading.
    #[serde(default)]
    pub rescan: bool,
}

/// Payload of `diag.nvml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiagNvml {
    /// How many GPUs the machine should have; absent: at least one, and as many as its kernel names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_gpus: Option<u32>,
}

/// Payload of `diag.dcgm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiagDcgm {
    /// DCGM's own level, 1 to 4. Level 1 checks the installation; from level 2 on the GPUs are put under load.
    #[serde(default = "one", deserialize_with = "level")]
    #[schemars(range(min = 1, max = 4))]
    pub level: u8,
    /// Which GPUs; none named: all.
    #[serde(default, deserialize_with = "gpus")]
    pub gpus: Vec<GpuName>,
}

/// Payload of `logs.collect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogsCollect {
    /// From when on: an RFC 3339 time, or a length such as `24h` before the command runs. Absent: this boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Which systemd units; none named: the whole journal.
    #[serde(default, deserialize_with = "few")]
    pub units: Vec<UnitName>,
    /// The most that the bundle may have, in bytes; the oldest is left out first.
    #[serde(default = "bundle", deserialize_with = "bundle_size")]
    #[schemars(range(min = 65536, max = 4_294_967_296_u64))]
    pub max_bytes: u64,
    /// Where to send it; absent: it stays on the node, and the result says where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Upload>,
}

/// Payload of `node.reboot`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeReboot {
    /// Why, for the machine's own journal.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "line")]
    #[schemars(length(max = 200))]
    pub reason: Option<String>,
}

/// Payload of `gpu.reset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuReset {
    /// Which GPUs, at least one.
    #[serde(deserialize_with = "some_gpus")]
    #[schemars(length(min = 1, max = 64))]
    pub gpus: Vec<GpuName>,
}

/// Payload of `daemon.upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DaemonUpgrade {
    /// The wanted version.
    #[serde(deserialize_with = "version")]
    #[schemars(length(min = 1, max = 64))]
    pub version: String,
    /// Its manifest with the signatures over it, exactly as released.
    #[serde(deserialize_with = "manifest")]
    #[schemars(length(min = 1, max = 65536))]
    pub manifest: String,
}

/// Where a bundle goes: a URL that takes one PUT for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Upload {
    /// The presigned URL, `https://…`.
    #[serde(deserialize_with = "url")]
    #[schemars(length(max = 4096))]
    pub url: String,
    /// The most that the destination takes, in bytes; absent: as much as the bundle may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// What the bundle is called there, `s3://bucket/name`, for the result.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object")]
    #[schemars(length(max = 1024))]
    pub object: Option<String>,
}

/// Whether a text is the name of an object in a bucket: `s3://bucket/name`, of letters that no shell and no terminal reads.
#[must_use]
pub fn is_object(text: &str) -> bool {
    let clean = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let name = text.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    text.len() <= 1024
        && name.is_some_and(|(bucket, name)| {
            !bucket.is_empty() && !name.is_empty() && (bucket.bytes().chain(name.bytes())).all(clean)
        })
}

/// What a bundle may have when nobody says.
pub const DEFAULT_BUNDLE_BYTES: u64 = 256 * 1024 * 1024;
const MIN_BUNDLE_BYTES: u64 = 64 * 1024;
const MAX_BUNDLE_BYTES: u64 = 4 * 1024 * 1024 * 1024;
const FEW: usize = 64;

const fn one() -> u8 {
    1
}

const fn bundle() -> u64 {
    DEFAULT_BUNDLE_BYTES
}

fn few<'de, D: Deserializer<'de>, T: Deserialize<'de> + PartialEq>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<T>::deserialize(deserializer)?;
    if items.len() > FEW {
        return Err(D::Error::custom(format!("at most {FEW} of them, not {}", items.len())));
    }
    if items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
        return Err(D::Error::custom("each of them once"));
    }
    Ok(items)
}

fn gpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GpuName>, D::Error> {
    few(deserializer)
}

fn some_gpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GpuName>, D::Error> {
    let gpus = few(deserializer)?;
    if gpus.is_empty() { Err(D::Error::custom("at least one GPU")) } else { Ok(gpus) }
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let level = u8::deserialize(deserializer)?;
    if (1..=4).contains(&level) { Ok(level) } else { Err(D::Error::custom("a level from 1 to 4")) }
}

fn bundle_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?;
    if (MIN_BUNDLE_BYTES..=MAX_BUNDLE_BYTES).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(D::Error::custom(format!("from {MIN_BUNDLE_BYTES} to {MAX_BUNDLE_BYTES} bytes")))
    }
}

fn line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let line = Option::<String>::deserialize(deserializer)?;
    if line.as_ref().is_some_and(|line| line.len() > 200 || line.chars().any(char::is_control)) {
        return Err(D::Error::custom("one line of at most 200 bytes"));
    }
    Ok(line.filter(|line| !line.trim().is_empty()))
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let version = String::deserialize(deserializer)?;
    let good = (1..=64).contains(&version.len())
        && version.starts_with(|first: char| first.is_ascii_alphanumeric())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte));
    if good { Ok(version) } else { Err(D::Error::custom("a version such as 1.4.0")) }
}

fn manifest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let manifest = String::deserialize(deserializer)?;
    if (1..=65_536).contains(&manifest.len()) {
        Ok(manifest)
    } else {
        Err(D::Error::custom("a manifest of at most 64 KiB"))
    }
}

/// A bundle holds what nobody else should read: it goes over TLS, or does not leave the machine.
fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = String::deserialize(deserializer)?;
    let host = url.strip_prefix("https://").map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let secure = host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '\\']));
    let clean = url.len() <= 4096 && url.bytes().all(|byte| byte.is_ascii_graphic());
    if clean && secure { Ok(url) } else { Err(D::Error::custom("an https:// URL without a user")) }
}

fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let object = Option::<String>::deserialize(deserializer)?;
    match object {
        Some(object) if !is_object(&object) => Err(D::Error::custom("an object such as s3://bucket/name")),
        object => Ok(object),
    }
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// This time.
    At(Timestamp),
    /// This long before the command runs.
    Ago(Duration),
}

impl Since {
    /// The time, for a command that runs now.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(length) => now.saturating_sub(length.to_std()).unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(time) => time.fmt(f),
            Self::Ago(length) => length.fmt(f),
        }
    }
}

impl FromStr for Since {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = text.parse().map(Self::At);
        time.or_else(|_| text.parse().map(Self::Ago))
            .map_err(|_| "a time such as 2026-03-01T12:00:00Z or a length such as 24h")
    }
}

/// How a payload names a GPU: by the driver's id (`GPU-…`) or by its PCI address, for one that the driver has lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuName(String);

impl GpuName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for GpuName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uuid = text.strip_prefix("GPU-").is_some_and(|rest| {
            (1..=60).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        if uuid || is_pci(text) {
            return Ok(Self(text.to_owned()));
        }
        Err("a GPU by its id, GPU-…, or its PCI address, 0000:17:00.0")
    }
}

fn is_pci(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let [domain, bus, device, function] = parts.as_slice() else { return false };
    let hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(domain.len(), 4 | 8)
        && bus.len() == 2
        && device.len() == 2
        && function.len() == 1
        && [domain, bus, device, function].iter().all(|part| hex(part))
        && text.ends_with(&format!("{bus}:{device}.{function}"))
}

/// The name of a systemd unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName(String);

impl UnitName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for UnitName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // It becomes an argument of a program: nothing that could pass for an option or a pattern.
        let good = (1..=255).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":_.\\@-".contains(&byte));
        if good { Ok(Self(text.to_owned())) } else { Err("the name of a systemd unit, such as kubelet.service") }
    }
}

macro_rules! texts {
    ($($name:ident: $pattern:literal;)*) => {$(
        crate::as_text!($name);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "pattern": $pattern})
            }
        }
    )*};
}

texts! {
    Since: "^([0-9]+[smhd])+$|^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+$";
    GpuName: "^GPU-[0-9A-Za-z-]{1,60}$|^([0-9A-Fa-f]{4}|[0-9A-Fa-f]{8}):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\\.[0-9A-Fa-f]$";
    UnitName: "^[A-Za-z0-9_][A-Za-z0-9:_.\\\\@-]{0,254}$";
}
