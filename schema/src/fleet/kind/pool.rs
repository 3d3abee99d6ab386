//! `pool`: machines that are alike and are booked together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AttestRule, Hold, attest, hold, labels};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        ByteSize, Located,
        decode::{Fields, Findings, Subject, one_of},
    },
    name::Name,
    node::{PoolClass, words},
    object::Kind,
    time::Duration,
};

words! {
    /// How bookings are laid out.
    Placement {
        /// Fill machines up.
        Pack = "pack",
        /// Use many machines.
        Spread = "spread",
    }
}

words! {
    /// How a GPU is divided among bookings.
    GpuSharing {
        /// Not at all.
        None = "none",
        /// Into MIG instances.
        Mig = "mig",
        /// By time slices.
        Timeslice = "timeslice",
        /// By the multi-process service.
        Mps = "mps",
    }
}

/// GPUs that every machine of a pool has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Gpus {
    /// How many.
    pub count: Located<u32>,
    /// The model as the driver names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Located<String>>,
    /// The memory of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

/// Processors that every machine of a pool has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Cpu {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Located<String>>,
    /// How many sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Located<u32>>,
    /// How many cores in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Located<u32>>,
}

/// What a pool's machines have: inventory is held against it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Hardware {
    /// GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Located<Gpus>>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Located<Cpu>>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

/// What the host keeps for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct HostReserve {
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<Located<u32>>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
}

words! {
    /// What a machine has to pass before it is used.
    AcceptanceCheck {
        /// The driver answers, and its GPUs are those of the pool, whole and well linked.
        Nvml = "diag.nvml",
        /// NVIDIA's own diagnostics pass.
        Dcgm = "diag.dcgm",
    }
}

/// A check before a machine is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Acceptance {
    /// How deep the check goes, 1 to 4; only for `diag.dcgm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Located<u32>>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Located<Duration>>,
}

/// How a pool is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Policy {
    /// How many machines may be disturbed at once: a number or a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<Located<String>>,
    /// How bookings are laid out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Located<Placement>>,
    /// How a GPU is divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<Located<GpuSharing>>,
    /// What the host keeps for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_reserve: Option<Located<HostReserve>>,
    /// How long an unreachable machine is waited for before it counts as lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Located<Duration>>,
    /// How many instances of each MIG profile a GPU is divided into.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mig: BTreeMap<String, Located<u32>>,
    /// Checks that a machine passes before it is used, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub acceptance: BTreeMap<String, Located<Acceptance>>,
    /// Tenants that may book here; all when none is said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Located<Name>>,
}

/// A pool's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The site its machines stand in.
    pub site: Located<Name>,
    /// What its machines are to the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Located<PoolClass>>,
    /// What its hosts look like.
    pub profile: Located<Name>,
    /// How a change travels; the fleet's default when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Located<Name>>,
    /// Free words, which templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// What its machines have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Located<Hardware>>,
    /// Which machines come in by what they prove, by the way in which they do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attest: BTreeMap<String, Located<AttestRule>>,
    /// How it is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Located<Policy>>,
    /// Why its machines are left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Located<Hold>>,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Pool> {
    let fields = &mut subject.fields;
    let site = fields.refer("site", Kind::Site, findings);
    let site = fields.require("site", site);
    let profile = fields.refer("profile", Kind::Profile, findings);
    let profile = fields.require("profile", profile);
    let pool = Pool {
        name: subject.name.clone(),
        at: subject.at.clone(),
        class: fields.word("class", &["metal-host", "metal-dedicated", "vps-host", "provider"], findings),
        rollout: fields.refer("rollout", Kind::Rollout, findings),
        labels: labels(fields, findings),
        hardware: fields.record("hardware", None, findings, |fields, findings| Some(hardware(fields, findings))),
        attest: fields.named("attest", ("kind", None), findings, attest::decode),
        policy: fields.record("policy", None, findings, |fields, findings| Some(policy(fields, findings))),
        suspend: hold::hold("suspend", fields, findings),
        protect: hold::protect(fields, findings),
        site: site?,
        profile: profile?,
    };
    Some(pool)
}

fn hardware(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Hardware {
    Hardware {
        gpus: fields.record("gpus", Some("count"), findings, gpus),
        cpu: fields.record("cpu", Some("model"), findings, |fields, findings| {
            Some(Cpu {
                model: fields.line("model", findings),
                sockets: fields.integer("sockets", (1, 64), findings),
                cores: fields.integer("cores", (1, 65_536), findings),
            })
        }),
        memory: fields.parse("memory", "a size such as 2TiB", findings),
    }
}

fn gpus(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Gpus> {
    let count = fields.integer("count", (0, 1024), findings);
    let gpus = Gpus {
        model: fields.line("model", findings),
        memory: fields.parse("memory", "a size such as 80GiB", findings),
        count: fields.require("count", count)?,
    };
    Some(gpus)
}

fn policy(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Policy {
    let policy = Policy {
        disruption_budget: fields.count_or_share("disruption-budget", findings),
        placement: fields.word("placement", &["pack", "spread"], findings),
        gpu_sharing: fields.word("gpu-sharing", &["none", "mig", "timeslice", "mps"], findings),
        host_reserve: fields.record("host-reserve", None, findings, |fields, findings| {
            Some(HostReserve {
                cores: fields.integer("cores", (0, 65_536), findings),
                memory: fields.parse("memory", "a size such as 16GiB", findings),
            })
        }),
        lost_after: fields.parse("lost-after", "a duration such as 15m", findings),
        mig: fields.table("mig", findings, |entry, findings| Fields::integer_of(entry, (1, 7), findings)),
        acceptance: fields.named("acceptance", ("check", None), findings, acceptance),
        tenants: fields.refer_all("tenants", Kind::Tenant, findings),
    };
    // No tenants are all tenants.
    fields.filled("tenants", policy.tenants.is_empty(), findings);
    fields.filled("mig", policy.mig.is_empty(), findings);
    policy
}

fn acceptance(check: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Acceptance> {
    one_of(&Located::new(check.to_owned(), fields.place(findings)), &["diag.nvml", "diag.dcgm"], findings);
    let level = fields.integer("level", (1, 4), findings);
    if let (Some(level), Ok(AcceptanceCheck::Nvml)) = (&level, check.parse()) {
        let diagnostic = findings.at(codes::CONFLICT, level.at.span, "only `diag.dcgm` has levels");
        findings.push(diagnostic);
    }
    Some(Acceptance { level, timeout: fields.parse("timeout", "a duration such as 10m", findings) })
}
