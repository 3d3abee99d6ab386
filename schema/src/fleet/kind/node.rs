//! `node`: one machine that needs a word of its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hold, form, hold, labels};
use crate::{
    attested::Attested,
    diagnostic::{SourceRef, codes},
    digest::Digest,
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
        labels::digest_of,
    },
    name::Name,
    object::Kind,
};

/// A mark that keeps bookings away which do not tolerate it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Taint {
    /// What distinguishes it from others of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Located<String>>,
    /// Why it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Located<String>>,
}

/// A node's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The digest of the labels; a document that was stored has none.
    #[serde(skip)]
    pub labels_digest: Option<Digest>,
    /// The chassis serial by which it is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Located<String>>,
    /// The board serial by which it is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_serial: Option<Located<String>>,
    /// The MAC addresses by which it is recognised, in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mac: Vec<Located<String>>,
    /// What it is attested as, such as `tpm:sha256:…`: then nothing else counts, and no join token is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attested: Vec<Located<Attested>>,
    /// Whether new work is kept away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<Located<Hold>>,
    /// Whether it stays at what it was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Located<Hold>>,
    /// Why it is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Located<Hold>>,
    /// Marks that keep bookings away, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taint: BTreeMap<String, Located<Taint>>,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Node> {
    let fields = &mut subject.fields;
    let macs = fields.texts("mac", findings);
    let attested = fields.texts("attested", findings);
    let labels = labels(fields, findings);
    Some(Node {
        name: subject.name.clone(),
        at: subject.at.clone(),
        pool: fields.refer("pool", Kind::Pool, findings),
        profile: fields.refer("profile", Kind::Profile, findings),
        labels_digest: Some(digest_of(&labels)),
        labels,
        serial: form::keep(fields.text("serial", findings), "a serial number", form::line, findings),
        board_serial: form::keep(fields.text("board-serial", findings), "a serial number", form::line, findings),
        mac: macs.into_iter().filter_map(|mac| decode_mac(&mac, findings)).collect(),
        attested: attested.iter().filter_map(|text| decode_attested(text, findings)).collect(),
        cordon: hold::hold("cordon", fields, findings),
        pin: hold::hold("pin", fields, findings),
        suspend: hold::hold("suspend", fields, findings),
        taint: fields.named("taint", ("key", Some("value")), findings, taint),
        protect: hold::protect(fields, findings),
    })
}

fn decode_mac(mac: &Located<String>, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let lower = form::mac(mac);
    if lower.is_none() {
        form::refuse(codes::BAD_VALUE, mac, "a MAC address such as 3c:ec:ef:00:00:01", findings);
    }
    lower.map(|lower| Located::new(lower, mac.at.clone()))
}

fn decode_attested(text: &Located<String>, findings: &mut Findings<'_>) -> Option<Located<Attested>> {
    let attested = text.parse().ok();
    if attested.is_none() {
        const EXPECTED: &str = "what `joins show` prints: tpm:sha256:…, x509:sha256:…, aws:ACCOUNT/INSTANCE, gcp:PROJECT/INSTANCE or \
                                azure:SUBSCRIPTION/MACHINE";
        form::refuse(codes::BAD_VALUE, text, EXPECTED, findings);
    }
    attested.map(|attested| Located::new(attested, text.at.clone()))
}

fn taint(key: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Taint> {
    let key = Located::new(key.to_owned(), fields.place(findings));
    form::keep(Some(key), "the key of a taint: letters, digits, - _ . /", form::label_key, findings);
    Some(Taint { value: fields.line("value", findings), reason: fields.line("reason", findings) })
}
