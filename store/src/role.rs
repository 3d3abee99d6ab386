//! The roles a process can have. Each has a membership and shard leases of its own.

use std::{fmt, str::FromStr};

/// What a process does, as `serve --roles` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Answers the HTTP API.
    Api,
    /// Follows the fleet repository: fetch, verify, plan, apply.
    Source,
    /// Runs the reconcilers of nodes.
    Controllers,
    /// Runs the placers.
    Scheduler,
    /// Delivers events.
    Sinks,
    /// Holds the sessions of nodes.
    Gateway,
}

/// No role has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}; the roles are api, source, controllers, scheduler, sinks and gateway")]
pub struct UnknownRole(pub String);

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] =
        [Self::Api, Self::Source, Self::Controllers, Self::Scheduler, Self::Sinks, Self::Gateway];

    /// The word people write.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Source => "source",
            Self::Controllers => "controllers",
            Self::Scheduler => "scheduler",
            Self::Sinks => "sinks",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| UnknownRole(text.chars().take(40).collect()))
    }
}
