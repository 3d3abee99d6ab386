//! Holds: a wish that something is left alone for a while, with somebody who answers for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings},
    },
    time::Timestamp,
};

/// Why something is held, by whom, and until when: `cordon`, `pin` and `suspend`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Hold {
    /// Why.
    pub reason: Located<String>,
    /// Who can answer for it.
    pub owner: Located<String>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
}

pub(super) const TIME: &str = "a time such as 2026-11-30T12:00:00Z";

/// `cordon "reason" owner="…" until="…"`, and the same for the others.
pub(super) fn hold(key: &'static str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<Hold>> {
    fields.record(key, Some("reason"), findings, |fields, findings| {
        let reason = fields.required_line("reason", findings);
        let owner = fields.required_line("owner", findings);
        let until = fields.parse("until", TIME, findings);
        Some(Hold { reason: reason?, owner: owner?, until })
    })
}

/// `protect "why"`: the object cannot be removed while this is in force.
pub(super) fn protect(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    fields.line("protect", findings)
}

/// Reports a time that is not after another.
pub(super) fn ordered(
    (first, from): (&str, Option<&Located<Timestamp>>),
    (last, until): (&str, Option<&Located<Timestamp>>),
    findings: &mut Findings<'_>,
) {
    if let (Some(from), Some(until)) = (from, until)
        && until.value <= from.value
    {
        let diagnostic = findings
            .at(codes::BAD_SPAN, until.at.span, format!("`{last}` is not after `{first}`: this never is"))
            .also(&from.at, format!("`{first}`"));
        findings.push(diagnostic);
    }
}
