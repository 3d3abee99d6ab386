//! Holds: why something is kept from moving, by whom, and until when.

use super::words;
use crate::time::Timestamp;

words! {
    /// Where a hold comes from. Whoever placed it lifts it; nobody else does.
    HoldSource {
        /// A document in the fleet repository.
        Git = "git",
        /// A call of the API.
        Api = "api",
        /// A judgement of health.
        Health = "health",
    }
}

/// One hold on one machine or object. A machine is cordoned while any hold on it exists.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hold {
    /// Where it comes from.
    pub source: HoldSource,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself; `None` means that somebody must lift it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// Where in the repository it is written, as `file:line`; `None` unless the source is git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Hold {
    /// Whether the hold still holds at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
