//! `fleet`: who the fleet is, and its brakes. One per repository.

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::SourceRef,
    fleet::{Located, Share},
    name::Name,
    node::words,
};

words! {
    /// What happens to a machine that joins without a `node` document.
    Admission {
        /// It joins the pool of its token.
        Token = "token",
        /// It waits until a document admits it.
        Strict = "strict",
    }
}

/// How much one revision may remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Prune {
    /// Objects at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_objects: Option<Located<u32>>,
    /// Share of the fleet's nodes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes_percent: Option<Located<Share>>,
}

impl Prune {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The fleet's own document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FleetDocument {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The version of the language; 1.
    pub format: Located<u32>,
    /// The SPIFFE trust domain of every identity in the fleet.
    pub trust_domain: Located<String>,
    /// Who may join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Located<Admission>>,
    /// How much one revision may remove.
    #[serde(default, skip_serializing_if = "Prune::is_empty")]
    pub prune: Prune,
    /// The rollout of pools that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Located<Name>>,
    /// Paths that are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Located<String>>,
}
