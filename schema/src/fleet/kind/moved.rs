//! `moved`: an object that kept its identity under another name.

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Fields, Findings},
        doc::Object,
    },
    object::{Kind, ObjectRef},
};

/// A line that gives an object another name. It is not an object itself, and may be deleted once it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Moved {
    /// What it was called.
    pub from: ObjectRef,
    /// What it is called now.
    pub to: ObjectRef,
    /// Where this is said.
    #[serde(skip)]
    pub at: SourceRef,
}

/// The kinds whose objects have an identity beyond their document's text.
const KINDS: [Kind; 10] = [
    Kind::Pool,
    Kind::Site,
    Kind::Profile,
    Kind::Image,
    Kind::Release,
    Kind::Rollout,
    Kind::Node,
    Kind::Tenant,
    Kind::Quota,
    Kind::Access,
];

/// Decodes a `moved` line, which has no name.
pub(in crate::fleet) fn decode(object: &Object, findings: &mut Findings<'_>) -> Option<Moved> {
    if let Some(name) = &object.name {
        let diagnostic = findings
            .at(codes::WRONG_TYPE, name.span, "a `moved` line has no name of its own")
            .help("moved from=\"pool/a\" to=\"pool/b\"");
        findings.push(diagnostic);
    }
    let mut fields = Fields::new("moved", object.span, &object.fields).stray(object.name.is_some());
    let (from, to) = keys(&mut fields, findings);
    fields.finish(findings);
    let (from, to) = (from?, to?);
    if from.kind != to.kind || from.value == to.value {
        let message = if from.value == to.value {
            format!("{} keeps its name", from.value)
        } else {
            format!("a {} cannot become a {}", from.kind, to.kind)
        };
        let diagnostic = findings.at(codes::BAD_MOVE, to.at.span, message).also(&from.at, "what it was");
        findings.push(diagnostic);
        return None;
    }
    Some(Moved { from: from.value, to: to.value, at: findings.place(object.span) })
}

pub(in crate::fleet) fn keys(
    fields: &mut Fields<'_>,
    findings: &mut Findings<'_>,
) -> (Option<Located<ObjectRef>>, Option<Located<ObjectRef>>) {
    let from = fields.address("from", &KINDS, findings);
    let from = fields.require("from", from);
    let to = fields.address("to", &KINDS, findings);
    (from, fields.require("to", to))
}
