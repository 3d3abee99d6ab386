//! Findings as a SARIF 2.1.0 log. Pure.

use std::collections::BTreeSet;

use schema::diagnostic::{Code, Diagnostic, Severity};
use serde_json::{Value, json};

use super::github::below;

/// The log of one run. `prefix` is the fleet's folder within the repository.
#[must_use]
pub(super) fn log(diagnostics: &[Diagnostic], prefix: &str) -> Value {
    let codes: BTreeSet<Code> = diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    let rules: Vec<Value> =
        codes.iter().map(|code| json!({ "id": code, "shortDescription": { "text": code.entry().title } })).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "better-compute", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": diagnostics.iter().map(|diagnostic| result(diagnostic, prefix)).collect::<Vec<_>>(),
        }],
    })
}

fn result(diagnostic: &Diagnostic, prefix: &str) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let text = match &diagnostic.help {
        Some(help) => format!("{}\nhelp: {help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    json!({
        "ruleId": diagnostic.code,
        "level": level,
        "message": { "text": text },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": below(prefix, &diagnostic.file) },
                "region": { "startLine": diagnostic.span.line, "startColumn": diagnostic.span.column },
            },
        }],
    })
}
