//! A systemd unit of a host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form;
use crate::{
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings},
    },
};

/// A systemd unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct UnitEntry {
    /// The unit file itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Located<String>>,
    /// The template that makes the unit file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Located<String>>,
    /// Whether it starts at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<Located<bool>>,
    /// `started` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Located<String>>,
    /// Whether its restart disturbs workloads, which have to leave first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Located<bool>>,
}

pub(super) fn decode(name: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<UnitEntry> {
    let at = fields.place(findings);
    let name = Located::new(name.to_owned(), at);
    managed(&name, "unit", findings);
    form::keep(Some(name), "a unit with its suffix, such as chrony.service", form::unit, findings);
    let entry = UnitEntry {
        content: fields.text("content", findings),
        template: fields.text("template", findings),
        enable: fields.boolean("enable", findings),
        state: fields.choice("state", &["started", "stopped"], findings),
        drain: fields.boolean("drain", findings).filter(|drain| drain.value),
    };
    exclusive(entry.content.as_ref(), entry.template.as_ref(), findings);
    let enabled = entry.enable.as_ref().filter(|enable| enable.value);
    if let (Some(content), Some(enable)) = (&entry.content, enabled)
        && !content.lines().any(|line| line.trim() == "[Install]")
    {
        let diagnostic = findings
            .at(codes::BAD_HOST, enable.at.span, "the unit cannot be enabled: its content has no [Install] section")
            .help("add [Install] with WantedBy=multi-user.target, or leave `enable` out");
        findings.push(diagnostic);
    }
    Some(entry)
}

/// Reports a unit that ends the daemon or the machine's run.
pub(super) fn managed(unit: &Located<String>, what: &str, findings: &mut Findings<'_>) {
    if let Some(why) = crate::unit::refused(unit) {
        let message = format!("{what} {:?} cannot be managed: {why}", unit.value);
        let diagnostic = findings.at(codes::BAD_HOST, unit.at.span, message);
        findings.push(diagnostic);
    }
}

/// Reports content that is written and made by a template.
pub(super) fn exclusive(
    content: Option<&Located<String>>,
    template: Option<&Located<String>>,
    findings: &mut Findings<'_>,
) {
    if let (Some(content), Some(template)) = (content, template) {
        let diagnostic = findings
            .at(codes::CONFLICT, template.at.span, "`content` and `template` exclude each other")
            .also(&content.at, "the content");
        findings.push(diagnostic);
    }
}
