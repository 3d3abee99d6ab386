//! `quota`: how much a tenant books.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        ByteSize, Located,
        decode::{Findings, Subject},
    },
    name::Name,
    object::Kind,
    time::Duration,
};

/// A quota's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Quota {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// Whose it is.
    pub tenant: Located<Name>,
    /// The pool it is for; all pools when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Located<Name>>,
    /// The GPU model it is for; all models when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<Located<String>>,
    /// GPUs at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Located<u32>>,
    /// Cores at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Located<u32>>,
    /// Memory at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Located<ByteSize>>,
    /// Reservations at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Located<u32>>,
    /// The longest reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<Located<Duration>>,
}

const LIMITS: [&str; 5] = ["gpus", "cores", "memory", "reservations", "max-length"];

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Quota> {
    let fields = &mut subject.fields;
    let tenant = fields.refer("tenant", Kind::Tenant, findings);
    let tenant = fields.require("tenant", tenant);
    let pool = fields.refer("pool", Kind::Pool, findings);
    let gpu_model = fields.line("gpu-model", findings);
    let gpus = fields.integer("gpus", (0, 10_000_000), findings);
    let cores = fields.integer("cores", (0, 100_000_000), findings);
    let memory = fields.parse("memory", "a size such as 2TiB", findings);
    let reservations = fields.integer("reservations", (0, 1_000_000), findings);
    let max_length = fields.parse("max-length", "a duration such as 7d", findings);
    if !LIMITS.iter().any(|key| fields.has(key)) {
        let message = format!("a quota limits something: one of {}", LIMITS.join(", "));
        let diagnostic = findings.at(codes::MISSING_KEY, subject.at.span, message);
        findings.push(diagnostic);
    }
    Some(Quota {
        name: subject.name.clone(),
        at: subject.at.clone(),
        tenant: tenant?,
        pool,
        gpu_model,
        gpus,
        cores,
        memory,
        reservations,
        max_length,
    })
}
