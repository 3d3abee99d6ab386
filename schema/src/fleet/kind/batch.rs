//! `batch`: destructive commands for some machines, waiting for their approvals.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Setting, form, hold, hold::TIME, profile::setting, words_of};
use crate::{
    command::CommandKind,
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
    },
    name::Name,
    node::words,
    object::Kind,
    time::Timestamp,
};

words! {
    /// What is done to a machine.
    BatchCommand {
        /// It boots.
        Reboot = "node.reboot",
        /// Its operating system is put on its disk anew.
        Reimage = "node.reimage",
        /// A GPU is reset.
        GpuReset = "gpu.reset",
        /// A disk is wiped.
        Wipe = "disk.wipe",
    }
}

/// The machines of a batch: all that are named in any way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct BatchScope {
    /// Machines by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Located<Name>>,
    /// The machines of pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Located<Name>>,
    /// The machines of sites.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Located<Name>>,
    /// Only those of them that have all these labels; of all machines when nothing else is said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, Located<String>>,
}

/// A batch's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Batch {
    /// Its name; used once and never again.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// What is done.
    pub command: Located<BatchCommand>,
    /// What the command is told.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub payload: BTreeMap<String, Located<Setting>>,
    /// To which machines.
    pub scope: Located<BatchScope>,
    /// Why.
    pub reason: Located<String>,
    /// Who asks for it, a principal of the trust policy: their own approval does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposer: Option<Located<Name>>,
    /// When it may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Located<Timestamp>>,
    /// When nothing of it begins any more.
    pub expires: Located<Timestamp>,
    /// Machines at a time; 1 when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<Located<u32>>,
    /// Machines on which it may fail before nothing more of it begins; 0 when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<Located<u32>>,
    /// The label whose values are failure domains: machines of two of them are never in flight at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Located<String>>,
}

impl Batch {
    /// What its command is told, as JSON.
    #[must_use]
    pub fn payload(&self) -> serde_json::Value {
        let members = self.payload.iter().map(|(key, value)| {
            let value = match &value.value {
                Setting::Bool(flag) => (*flag).into(),
                Setting::Int(number) => (*number).into(),
                Setting::Text(text) => text.as_str().into(),
                Setting::List(texts) => texts.iter().map(String::as_str).collect(),
            };
            (key.clone(), value)
        });
        serde_json::Value::Object(members.collect())
    }

    /// Its kind of command, when this version has it.
    #[must_use]
    pub fn kind(&self) -> Option<CommandKind> {
        self.command.value.as_str().parse().ok()
    }

    /// Whether a machine is in its scope.
    #[must_use]
    pub fn covers(
        &self,
        name: &Name,
        pool: Option<&Name>,
        site: Option<&Name>,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let BatchScope { nodes, pools, sites, selector } = &self.scope.value;
        let among = |names: &[Located<Name>], name: Option<&Name>| names.iter().any(|one| Some(&one.value) == name);
        let everybody = nodes.is_empty() && pools.is_empty() && sites.is_empty();
        (everybody || among(nodes, Some(name)) || among(pools, pool) || among(sites, site))
            && selector.iter().all(|(key, value)| labels.get(key) == Some(&value.value))
    }
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Batch> {
    const COMMANDS: [&str; 4] = ["node.reboot", "node.reimage", "gpu.reset", "disk.wipe"];
    let fields = &mut subject.fields;
    let command = fields.word("command", &COMMANDS, findings);
    let command = fields.require("command", command);
    let payload = fields.table("payload", findings, setting);
    let scope = fields.record("scope", None, findings, scope);
    let scope = fields.require("scope", scope);
    let reason = fields.required_line("reason", findings);
    let proposer = fields.name("proposer", findings);
    let not_before = fields.parse("not-before", TIME, findings);
    let expires = fields.parse("expires", TIME, findings);
    let expires = fields.require("expires", expires);
    hold::ordered(("not-before", not_before.as_ref()), ("expires", expires.as_ref()), findings);
    let max_in_flight = fields.integer("max-in-flight", (1, 100_000), findings);
    let max_failures = fields.integer("max-failures", (0, 100_000), findings);
    let spread = form::keep(fields.text("spread", findings), "the key of a label", form::label_key, findings);
    Some(Batch {
        name: subject.name.clone(),
        at: subject.at.clone(),
        command: command?,
        payload,
        scope: scope?,
        reason: reason?,
        proposer,
        not_before,
        expires: expires?,
        max_in_flight,
        max_failures,
        spread,
    })
}

fn scope(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<BatchScope> {
    let scope = BatchScope {
        nodes: fields.refer_all("nodes", Kind::Node, findings),
        pools: fields.refer_all("pools", Kind::Pool, findings),
        sites: fields.refer_all("sites", Kind::Site, findings),
        selector: words_of("selector", fields, findings),
    };
    if !["nodes", "pools", "sites", "selector"].iter().any(|key| fields.has(key)) && !fields.unclear() {
        let at = fields.place(findings);
        let message = "a scope names machines: `nodes`, `pools`, `sites` or a `selector` over labels";
        let diagnostic = findings.at(codes::MISSING_KEY, at.span, message);
        findings.push(diagnostic);
    }
    fields.filled("nodes", scope.nodes.is_empty(), findings);
    fields.filled("pools", scope.pools.is_empty(), findings);
    fields.filled("sites", scope.sites.is_empty(), findings);
    fields.filled("selector", scope.selector.is_empty(), findings);
    Some(scope)
}
