//! `site`: a place with machines and gateways.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{diagnostic::SourceRef, fleet::Located, name::Name};

/// A network of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Network {
    /// Its address range, for example `10.20.0.0/16`.
    pub cidr: Located<String>,
    /// Its router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Located<String>>,
    /// Its VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Located<u16>>,
    /// The size of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Located<u16>>,
}

/// A site's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Site {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The region it counts to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Located<String>>,
    /// Free words, which templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// Where daemons reach a gateway, `host:port`, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<Located<String>>,
    /// Its networks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub network: BTreeMap<String, Located<Network>>,
}
