//! Who may log in to a host when everything else fails.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form;
use crate::{
    diagnostic::codes,
    fleet::{
        Located,
        decode::{Fields, Findings},
    },
    time::Timestamp,
};

/// A break-glass SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AccessKeyEntry {
    /// The public key: type and base64.
    pub key: Located<String>,
    /// Who the key belongs to; its name when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Located<String>>,
    /// Account on the host; `root` when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Located<String>>,
    /// When it stops working.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
}

/// Who may log in when everything else fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Access {
    /// SSH keys, each by a name of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub key: BTreeMap<String, Located<AccessKeyEntry>>,
}

impl Access {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_empty()
    }
}

pub(super) fn decode(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Access {
    let key = fields.named("key", ("name", None), findings, |_, fields, findings| {
        let key = fields.text("key", findings).and_then(|key| {
            let bare = form::ssh_key(&key);
            if bare.is_none() {
                form::refuse(codes::BAD_VALUE, &key, "an SSH public key: type and base64", findings);
            }
            bare.map(|bare| Located::new(bare, key.at))
        });
        let entry = AccessKeyEntry {
            principal: fields.line("principal", findings),
            account: form::keep(fields.text("account", findings), "a user", form::account, findings),
            until: fields.parse("until", "a time such as 2026-11-30T12:00:00Z", findings),
            key: fields.require("key", key)?,
        };
        Some(entry)
    });
    Access { key }
}
