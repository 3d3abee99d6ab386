//! `node`: one machine that needs a word of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{form, labels};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
    },
    name::Name,
    time::Timestamp,
};

/// A wish that nothing new is placed on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cordon {
    /// Why.
    pub reason: Located<String>,
    /// Who can answer for it.
    pub owner: Located<String>,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Located<Timestamp>>,
}

/// A node's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Node {
    /// Its name, and the machine's host name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The pool it belongs to; its join token's when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Located<Name>>,
    /// The profile that it has instead of its pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Located<Name>>,
    /// Free words, which templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// The chassis serial by which it is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Located<String>>,
    /// The board serial by which it is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_serial: Option<Located<String>>,
    /// The MAC addresses by which it is recognised, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mac: Vec<Located<String>>,
    /// Whether new work is kept away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Located<Cordon>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Node> {
    let fields = &mut subject.fields;
    fields.later("pin", "a node moves with its pool", findings);
    fields.later("taint", "nothing is placed on nodes yet", findings);
    let macs = fields.texts("mac", findings);
    Some(Node {
        name: subject.name.clone(),
        at: subject.at.clone(),
        pool: fields.name("pool", findings),
        profile: fields.name("profile", findings),
        labels: labels(fields, findings),
        serial: form::keep(fields.text("serial", findings), "a serial number", form::line, findings),
        board_serial: form::keep(fields.text("board-serial", findings), "a serial number", form::line, findings),
        mac: macs.into_iter().filter_map(|mac| decode_mac(&mac, findings)).collect(),
        cordon: fields.record("cordon", Some("reason"), findings, cordon),
    })
}

fn decode_mac(mac: &Located<String>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let lower = form::mac(mac);
    if lower.is_none() {
        form::refuse(codes::BAD_VALUE, mac, "a MAC address such as 3c:ec:ef:00:00:01", findings);
    }
    lower.map(|lower| Located::new(lower, mac.at.clone()))
}

fn cordon(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Cordon> {
    let reason = form::keep(fields.text("reason", findings), "a text on one line", form::line, findings);
    let reason = fields.require("reason", reason, findings);
    let owner = form::keep(fields.text("owner", findings), "a text on one line", form::line, findings);
    let owner = fields.require("owner", owner, findings);
    let until = fields.parse("until", "a time such as 2026-11-30T12:00:00Z", findings);
    Some(Cordon { reason: reason?, owner: owner?, until })
}
