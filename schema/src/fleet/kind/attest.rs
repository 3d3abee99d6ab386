//! `attest` in a pool: which machines come in by what they prove, and what every machine has to prove.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form;
use crate::{
    attested::AttestKind,
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings, one_of},
        glob,
    },
};

/// Machines that come into a pool by what they prove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct AttestRule {
    /// Who: a name or `*` for the rest of one. Of a certificate its names or its digest, of a TPM the digest of its key, of an
    /// instance `ACCOUNT/INSTANCE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<Located<String>>,
    /// Certificates in PEM that are believed: those that issue, or for `aws` those that sign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<Located<String>>,
    /// The keys that sign, as a JSON Web Key Set; only for `gcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Located<String>>,
    /// Nobody comes in without it, with a join token neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<Located<bool>>,
}

impl AttestRule {
    /// Whether one of these names is among those that are let in.
    #[must_use]
    pub fn names<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        names.into_iter().any(|name| self.only.iter().any(|pattern| glob::text(pattern, name)))
    }

    /// Whether every machine of the pool has to show this.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required.as_ref().is_some_and(|required| required.value)
    }
}

/// Reads the rule of one kind.
pub(super) fn decode(kind: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<AttestRule> {
    let place = fields.place(findings);
    one_of(&Located::new(kind.to_owned(), place.clone()), &["x509", "tpm", "aws", "gcp", "azure"], findings);
    let only = fields.lines("only", findings);
    let roots = form::keep(fields.text("roots", findings), "certificates in PEM", is_pem, findings);
    let keys = form::keep(fields.text("keys", findings), "a JSON Web Key Set", is_key_set, findings);
    let rule = AttestRule { only, roots, keys, required: fields.boolean("required", findings) };
    fields.filled("only", rule.only.is_empty(), findings);
    let Ok(kind) = kind.parse::<AttestKind>() else { return Some(rule) };
    let mut need = |missing: bool, what: &str, why: &str| {
        if missing && !fields.unclear() {
            let diagnostic =
                findings.at(codes::MISSING_KEY, place.span, format!("attest \"{kind}\" needs {what}")).help(why);
            findings.push(diagnostic);
        }
    };
    match kind {
        AttestKind::X509 => need(!fields.has("roots"), "`roots`", "without them nobody's certificate is believed"),
        AttestKind::Tpm => need(
            !fields.has("only") && !rule.is_required(),
            "`only`, or `required`",
            "a maker's root says that a TPM is a real one and not whose it is: name keys, or let it be required besides a token",
        ),
        AttestKind::Gcp => need(!fields.has("keys"), "`keys`", "without them no document of an instance is believed"),
        AttestKind::Aws | AttestKind::Azure => {
            need(!fields.has("roots"), "`roots`", "without them no document of an instance is believed");
        }
    }
    if matches!(kind, AttestKind::Aws | AttestKind::Gcp | AttestKind::Azure) {
        need(!fields.has("only"), "`only`", "anybody can have an account there: name yours, as only=\"ACCOUNT/*\"");
        // Whose account it is has to be said.
        for open in rule.only.iter().filter(|pattern| pattern.split_once('/').is_none_or(|(own, _)| own.contains('*')))
        {
            form::refuse(codes::BAD_VALUE, open, "an account, a slash, and an instance or *", findings);
        }
    }
    if let Some(keys) = rule.keys.as_ref().filter(|_| kind != AttestKind::Gcp) {
        findings.push(findings.at(codes::CONFLICT, keys.at.span, "only `gcp` has keys"));
    }
    if let Some(roots) = rule.roots.as_ref().filter(|_| kind == AttestKind::Gcp) {
        findings.push(findings.at(codes::CONFLICT, roots.at.span, "`gcp` has `keys` and no roots"));
    }
    Some(rule)
}

/// Whether a text is PEM certificates and nothing else but comments.
fn is_pem(text: &str) -> bool {
    let base64 = |line: &str| {
        !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
    };
    let (mut inside, mut whole, mut found) = (false, true, 0);
    for line in text.lines().map(str::trim) {
        match (line, inside) {
            ("-----BEGIN CERTIFICATE-----", false) => inside = true,
            ("-----END CERTIFICATE-----", true) => (inside, found) = (false, found + 1),
            (line, true) => whole &= base64(line),
            (line, false) => whole &= !line.starts_with("-----"),
        }
    }
    whole && !inside && found > 0 && text.len() <= 256 * 1024
}

fn is_key_set(text: &str) -> bool {
    let read = serde_json::from_str::<serde_json::Value>(text);
    read.is_ok_and(|set| {
        set["keys"].as_array().is_some_and(|keys| !keys.is_empty() && keys.iter().all(|key| key.is_object()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_whole_or_refused() {
        let good = "# ours\n-----BEGIN CERTIFICATE-----\nMIIB+w==\n-----END CERTIFICATE-----\n";
        assert!(is_pem(good));
        assert!(is_pem(&good.repeat(2)));
        for bad in [
            "",
            "MIIB",
            "-----BEGIN CERTIFICATE-----\nMIIB\n",
            "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n",
            "-----BEGIN CERTIFICATE-----\nMI IB\n-----END CERTIFICATE-----\n",
        ] {
            assert!(!is_pem(bad), "{bad}");
        }
    }
}
