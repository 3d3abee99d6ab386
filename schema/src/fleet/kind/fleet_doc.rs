//! `fleet`: who the fleet is, and its brakes. One per repository.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FreezeRule, Hold, form, freeze, hold};
use crate::{
    diagnostic::{SourceRef, codes},
    effect::EffectClass,
    fleet::{
        Located, Share,
        decode::{Fields, Findings, Subject},
    },
    name::Name,
    node::words,
    object::Kind,
};

words! {
    /// What happens to a machine that joins without a `node` document.
    Admission {
        /// It joins the pool of its token.
        Token = "token",
        /// It waits until a document admits it.
        Strict = "strict",
    }
}

/// How much one revision may remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Prune {
    /// Objects at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_objects: Option<Located<u32>>,
    /// Share of the fleet's nodes at most; one is always allowed, unless it is 0%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes_percent: Option<Located<Share>>,
}

impl Prune {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a revision is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Apply {
    /// Effects of this class and above go ahead only as a plan showed them before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<Located<EffectClass>>,
}

impl Apply {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The fleet's own document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FleetDocument {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The version of the language; 1.
    pub format: Located<u32>,
    /// The SPIFFE trust domain of every identity in the fleet.
    pub trust_domain: Located<String>,
    /// Who may join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Located<Admission>>,
    /// How much one revision may remove.
    #[serde(default, skip_serializing_if = "Prune::is_empty")]
    pub prune: Prune,
    /// How a revision is applied.
    #[serde(default, skip_serializing_if = "Apply::is_empty")]
    pub apply: Apply,
    /// Why no machine of the fleet is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Located<Hold>>,
    /// When no machine of the fleet is changed, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub freeze: BTreeMap<String, Located<FreezeRule>>,
    /// The rollout of pools that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Located<Name>>,
    /// Paths that are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Located<String>>,
}

/// The classes from which on effects can be bound; nobody binds what leaves a host as it is.
const BINDABLE: [&str; 6] = ["live", "service-restart", "drain", "reboot", "reimage", "wipe"];

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<FleetDocument> {
    let fields = &mut subject.fields;
    let format = fields.integer("format", (0, u32::MAX), findings);
    let format = fields.require("format", format);
    if let Some(format) = format.as_ref().filter(|format| format.value != 1) {
        let diagnostic =
            findings.at(codes::BAD_VALUE, format.at.span, format!("this version reads format 1, not {}", format.value));
        findings.push(diagnostic);
    }
    let trust_domain =
        form::keep(fields.text("trust-domain", findings), "a domain name such as acme.example", form::domain, findings);
    let trust_domain = fields.require("trust-domain", trust_domain);
    let admission = fields.word("admission", &["token", "strict"], findings);
    let prune = fields.record("prune", None, findings, |prune, findings| Some(decode_prune(prune, findings)));
    let rollout = fields.refer("rollout", Kind::Rollout, findings);
    let mut ignore = fields.texts("ignore", findings);
    ignore.retain(|pattern| {
        let good = form::pattern(pattern);
        if !good {
            form::refuse(codes::BAD_VALUE, pattern, "a path from the fleet's root, such as docs or **/*.yml", findings);
        }
        good
    });
    let bind = fields.record("apply", None, findings, |apply, findings| {
        Some(Apply { bind: apply.word("bind", &BINDABLE, findings) })
    });
    // Brakes that brake nothing.
    fields.filled("prune", prune.as_ref().is_none_or(|prune| prune.is_empty()), findings);
    fields.filled("apply", bind.as_ref().is_none_or(|apply| apply.is_empty()), findings);
    let suspend = hold::hold("suspend", fields, findings);
    let freeze = fields.named("freeze", ("name", None), findings, |name, fields, findings| {
        let written = Located::new(name.to_owned(), fields.place(findings));
        form::keep(Some(written), "a name of letters a-z, digits and -", |text| Name::new(text).is_ok(), findings);
        freeze::rule(fields, findings)
    });
    Some(FleetDocument {
        name: subject.name.clone(),
        at: subject.at.clone(),
        format: format?,
        trust_domain: trust_domain?,
        admission,
        prune: prune.map(|prune| prune.value).unwrap_or_default(),
        apply: bind.map(|apply| apply.value).unwrap_or_default(),
        suspend,
        freeze,
        rollout,
        ignore,
    })
}

fn decode_prune(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Prune {
    Prune {
        max_objects: fields.integer("max-objects", (0, u32::MAX), findings),
        max_nodes_percent: fields.share("max-nodes-percent", findings),
    }
}
