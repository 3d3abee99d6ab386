//! Diagnostics for machines.

use serde_json::{Value, json};

use super::Diagnostic;

/// The JSON form of diagnostics: `{"diagnostics": […], "errors": n}`.
#[must_use]
pub fn to_value(diagnostics: &[Diagnostic]) -> Value {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    json!({ "errors": errors, "diagnostics": diagnostics.iter().map(one).collect::<Vec<_>>() })
}

fn one(diagnostic: &Diagnostic) -> Value {
    let mut value = json!({
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "file": &*diagnostic.file,
        "line": diagnostic.span.line,
        "column": diagnostic.span.column,
        "start": diagnostic.span.start,
        "end": diagnostic.span.end,
    });
    if let Some(label) = &diagnostic.label {
        value["label"] = json!(label);
    }
    if !diagnostic.labels.is_empty() {
        let related = diagnostic.labels.iter().map(|label| json!({ "at": label.at, "text": label.text }));
        value["related"] = related.collect();
    }
    if let Some(help) = &diagnostic.help {
        value["help"] = json!(help);
    }
    value
}
