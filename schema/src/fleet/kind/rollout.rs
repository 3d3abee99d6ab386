//! `rollout`: how a change travels. This version carries `immediate` only; waves are refused.

use serde::{Deserialize, Serialize};

use crate::{diagnostic::SourceRef, fleet::Located, name::Name};

/// A rollout's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rollout {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// All hosts of a pool at once; always true in this version.
    pub immediate: Located<bool>,
}
