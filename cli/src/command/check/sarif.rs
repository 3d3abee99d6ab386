//! Findings as a SARIF 2.1.0 log. Pure.

use std::{collections::BTreeSet, fmt::Write as _};

use schema::diagnostic::{Code, Diagnostic, Severity, SourceRef};
use serde_json::{Value, json};

/// The log of one run.
#[must_use]
pub(super) fn log(diagnostics: &[Diagnostic]) -> Value {
    let codes: Vec<Code> =
        diagnostics.iter().map(|diagnostic| diagnostic.code).collect::<BTreeSet<_>>().into_iter().collect();
    let rule = |code: &Code| {
        json!({
            "id": code,
            "shortDescription": { "text": code.entry().title },
            "help": { "text": code.entry().page, "markdown": code.entry().page },
            "defaultConfiguration": { "level": level(code.entry().severity) },
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "better-compute",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().map(rule).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": diagnostics.iter().map(|diagnostic| result(diagnostic, &codes)).collect::<Vec<_>>(),
        }],
    })
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn result(diagnostic: &Diagnostic, codes: &[Code]) -> Value {
    let text = match &diagnostic.help {
        Some(help) => format!("{}\nhelp: {help}", diagnostic.message),
        None => diagnostic.message.clone(),
    };
    let mut result = json!({
        "ruleId": diagnostic.code,
        "ruleIndex": codes.binary_search(&diagnostic.code).unwrap_or(0),
        "level": level(diagnostic.severity),
        "message": { "text": text },
        "locations": [{ "physicalLocation": place(&diagnostic.at()) }],
    });
    if !diagnostic.labels.is_empty() {
        let related = diagnostic.labels.iter().enumerate().map(|(index, label)| {
            json!({ "id": index, "physicalLocation": place(&label.at), "message": { "text": label.text } })
        });
        result["relatedLocations"] = related.collect();
    }
    result
}

fn place(at: &SourceRef) -> Value {
    json!({
        "artifactLocation": { "uri": uri(&at.file), "uriBaseId": "%SRCROOT%" },
        "region": { "startLine": at.span.line.max(1), "startColumn": at.span.column.max(1) },
    })
}

/// A path as a relative address: what a URI cannot hold is escaped.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").ok();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use schema::diagnostic::{Span, codes};

    use super::*;

    /// What the standard requires of a log (SARIF 2.1.0, sections 3.13, 3.14, 3.18, 3.19, 3.27, 3.28, 3.29, 3.30).
    #[test]
    fn a_log_has_what_the_standard_requires() {
        let at = SourceRef::new("fleet/a b.kdl", Span { line: 3, column: 7, start: 9, end: 12 });
        let finding = Diagnostic::new(codes::UNKNOWN_KEY, &at, "no such key").also(&SourceRef::default(), "the first");
        let log = log(&[finding, Diagnostic::new(codes::NULL, &at, "null")]);
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert!(run["tool"]["driver"]["name"].is_string());
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            assert!(result["message"]["text"].is_string());
            assert!(["none", "note", "warning", "error"].contains(&result["level"].as_str().unwrap()));
            let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
            assert_eq!(rule["id"], result["ruleId"]);
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(place["artifactLocation"]["uri"], "fleet/a%20b.kdl");
            assert_eq!(place["region"], json!({ "startLine": 3, "startColumn": 7 }));
        }
        let related = results.iter().find_map(|result| result.get("relatedLocations")).unwrap();
        assert!(related[0]["id"].is_u64() && related[0]["message"]["text"] == "the first");
        assert!(related[0]["physicalLocation"]["region"]["startLine"].as_u64().unwrap() >= 1);
    }
}
