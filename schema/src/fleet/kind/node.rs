//! `node`: one machine that needs a word of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{diagnostic::SourceRef, fleet::Located, name::Name, time::Timestamp};

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
