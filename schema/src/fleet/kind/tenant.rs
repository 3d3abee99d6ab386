//! `tenant`: who books.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{hold, labels};
use crate::{
    diagnostic::SourceRef,
    fleet::{
        Located,
        decode::{Findings, Subject},
    },
    name::Name,
};

/// A tenant's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Tenant {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// Its share when several wait for the same machines; 1 when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Located<u32>>,
    /// Whom to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<Located<String>>,
    /// Free words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Tenant> {
    let fields = &mut subject.fields;
    Some(Tenant {
        name: subject.name.clone(),
        at: subject.at.clone(),
        weight: fields.integer("weight", (1, 1_000), findings),
        contact: fields.line("contact", findings),
        labels: labels(fields, findings),
        protect: hold::protect(fields, findings),
    })
}
