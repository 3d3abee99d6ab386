//! `removed`: an object that is to go. Only such a document removes anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Fields, Findings, text},
        doc::Object,
    },
    object::{Kind, ObjectRef},
};

/// A line that lets an object go. It is not an object itself, and may be deleted once it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Removed {
    /// What is to go.
    pub name: ObjectRef,
    /// Where this is said.
    #[serde(skip)]
    pub at: SourceRef,
    /// Why.
    pub reason: Located<String>,
}

/// Decodes a `removed` line; its name is an address, so it is not read like that of an object.
pub(in crate::fleet) fn decode(object: &Object, findings: &mut Findings<'_>) -> Option<Removed> {
    let name = object.name.as_ref().map(|arg| (text(arg, findings), arg.span));
    let mut fields = Fields::new("removed", object.span, &object.fields);
    let reason = keys(&mut fields, findings);
    fields.finish(findings);
    let Some((name, span)) = name else {
        let diagnostic = findings
            .at(codes::NO_IDENTITY, object.span, "this line does not say what is removed")
            .help("removed \"pool/h100\" { reason \"…\" }");
        findings.push(diagnostic);
        return None;
    };
    let target: ObjectRef = match name?.parse() {
        Ok(target) => target,
        Err(error) => {
            let diagnostic = findings
                .at(codes::BAD_VALUE, span, error.to_string())
                .help("what is removed is written kind/name, for example \"pool/h100\"");
            findings.push(diagnostic);
            return None;
        }
    };
    if matches!(target.kind, Kind::Fleet | Kind::Moved | Kind::Removed) {
        let diagnostic = findings.at(codes::BAD_VALUE, span, format!("{target} cannot be removed"));
        findings.push(diagnostic);
        return None;
    }
    Some(Removed { name: target, at: findings.place(span), reason: reason? })
}

pub(in crate::fleet) fn keys(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    fields.required_line("reason", findings)
}
