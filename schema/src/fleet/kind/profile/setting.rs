//! Settings that are recorded, and those of the node daemon.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings, lone, text},
        doc::{Entry, Form, Scalar},
    },
    name::Name,
    object::Kind,
};

/// A setting of a kind that this version records without acting on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// A setting of any type.
pub(in super::super) fn setting(entry: &Entry, findings: &mut Findings<'_>) -> Option<Located<Setting>> {
    if entry.args.len() > 1 || entry.form == Form::List {
        let texts: Option<Vec<String>> =
            entry.args.iter().map(|arg| text(arg, findings).map(|text| text.value)).collect();
        return texts.map(|texts| findings.located(Setting::List(texts), entry.span));
    }
    let arg = lone(entry, "a value", findings)?;
    let value = match &arg.value {
        Scalar::Bool(flag) => Setting::Bool(*flag),
        Scalar::Int(number) => match i64::try_from(*number) {
            Ok(number) => Setting::Int(number),
            Err(_) => {
                let diagnostic = findings.at(codes::OUT_OF_RANGE, arg.span, "the number does not fit 64 bits");
                findings.push(diagnostic);
                return None;
            }
        },
        Scalar::Text(_) | Scalar::Float => Setting::Text(text(arg, findings)?.value),
    };
    Some(findings.located(value, arg.span))
}

/// Settings of the node daemon; its release is an object of the fleet.
pub(super) fn daemon(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<Setting>> {
    let daemon = fields.table("daemon", findings, setting);
    if let Some(Located { value: Setting::Text(release), at }) = daemon.get("release") {
        match Name::new(release.as_str()) {
            Ok(name) => findings.refer(Kind::Release, &Located::new(name, at.clone())),
            Err(error) => {
                let diagnostic = findings.at(codes::BAD_NAME, at.span, error.to_string());
                findings.push(diagnostic);
            }
        }
    }
    daemon
}
