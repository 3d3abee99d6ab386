//! A file on a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::form,
    unit::{exclusive, managed},
};
use crate::{
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings},
    },
    secret::SecretName,
};

/// A file on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct FileEntry {
    /// The content itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// The secret whose value is the content, as `secret://NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Located<String>>,
    /// Owning user; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Located<String>>,
    /// Owning group; `root` when it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Located<String>>,
    /// Four octal digits; `0644` when it is not said, `0600` for a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Located<String>>,
    /// Units that restart, if they run, after the file changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<Located<String>>,
}

pub(super) fn decode(path: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<FileEntry> {
    let at = fields.place(findings);
    if !form::path(path) {
        let name = Located::new(path.to_owned(), at);
        form::refuse(codes::BAD_HOST, &name, "an absolute path without . and ..", findings);
    } else if !form::manageable(path) {
        let diagnostic = findings.at(
            codes::BAD_HOST,
            at.span,
            format!("no file can be managed at {path:?}: the kernel or the node daemon owns it"),
        );
        findings.push(diagnostic);
    }
    let mode = fields.text("mode", findings).and_then(|mode| {
        let digits = form::mode(&mode);
        if digits.is_none() {
            form::refuse(codes::BAD_VALUE, &mode, "a file mode such as \"0644\"", findings);
        }
        digits.map(|digits| Located::new(digits, mode.at))
    });
    let entry = FileEntry {
        content: fields.text("content", findings),
        template: fields.text("template", findings),
        secret: secret(fields, findings),
        owner: form::keep(fields.text("owner", findings), "a user", form::account, findings),
        group: form::keep(fields.text("group", findings), "a group", form::account, findings),
        mode,
        restart: units("restart", fields, findings),
    };
    exclusive(entry.content.as_ref(), entry.template.as_ref(), findings);
    if let Some(secret) = &entry.secret {
        alone(secret, &entry, findings);
    } else if entry.template.is_none() && !fields.has("template") && !fields.has("secret") {
        fields.require_either("content", &["template", "secret"], entry.content.as_ref());
    }
    Some(entry)
}

/// A reference to a secret. What is no reference is not repeated: it may be the value.
fn secret(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let secret = fields.text("secret", findings)?;
    if let Err(error) = SecretName::from_reference(&secret) {
        let diagnostic = findings
            .at(codes::BAD_VALUE, secret.at.span, error.to_string())
            .label("not a reference to a secret")
            .help("write secret \"secret://NAME\"; the value goes in with `better-compute secrets put NAME`");
        findings.push(diagnostic);
        return None;
    }
    Some(secret)
}

/// A secret is the whole content of its file, and not everybody's.
fn alone(secret: &Located<String>, entry: &FileEntry, findings: &mut Findings<'_>) {
    for (word, other) in [("content", &entry.content), ("template", &entry.template)] {
        if let Some(other) = other {
            let diagnostic = findings
                .at(codes::CONFLICT, secret.at.span, format!("`{word}` and `secret` exclude each other"))
                .also(&other.at, format!("the {word}"));
            findings.push(diagnostic);
        }
    }
    if let Some(mode) = entry.mode.as_ref().filter(|mode| !mode.ends_with('0')) {
        let diagnostic = findings
            .at(codes::BAD_VALUE, mode.at.span, "a file with a secret gives others no right")
            .label("the last digit has to be 0")
            .help("write mode \"0600\", or \"0640\" with a group");
        findings.push(diagnostic);
    }
}

/// Names of units, each once, in order.
fn units(key: &'static str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Vec<Located<String>> {
    let units = fields.texts(key, findings).into_iter();
    let mut units: Vec<_> = units
        .filter_map(|unit| {
            form::keep(Some(unit), "a unit with its suffix, such as chrony.service", form::unit, findings)
        })
        .collect();
    for unit in &units {
        managed(unit, key, findings);
    }
    units.sort_by(|a, b| a.value.cmp(&b.value));
    units.dedup();
    fields.filled(key, units.is_empty(), findings);
    units
}
