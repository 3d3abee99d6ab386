//! `removed`: an object that is to go. Only such a document removes anything.

use serde::{Deserialize, Serialize};

use crate::{diagnostic::SourceRef, fleet::Located, object::ObjectRef};

/// A line that lets an object go. It is not an object itself, and may be deleted once it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Removed {
    /// What is to go.
    pub name: ObjectRef,
    /// Where this is said.
    #[serde(skip)]
    pub at: SourceRef,
    /// Why.
    pub reason: Located<String>,
}
