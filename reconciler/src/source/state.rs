//! The named states of a source. Each is stored with a reason and since when it holds, and `status` shows it.

use std::{fmt, str::FromStr};

use serde_json::Value;

macro_rules! states {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// What following a repository came to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum SourceState { $($(#[$doc])* $variant,)* }

        impl SourceState {
            /// Every state.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stored word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl FromStr for SourceState {
            type Err = UnknownState;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($text => Ok(Self::$variant),)* _ => Err(UnknownState(text.chars().take(80).collect())) }
            }
        }
    };
}

states! {
    /// The tip of the branch is in force.
    Ok = "ok",
    /// The repository cannot be reached, or is not there.
    Unreachable = "unreachable",
    /// The repository refuses our credentials.
    AuthFailed = "auth-failed",
    /// The repository has no commit at all.
    RepositoryEmpty = "repository-empty",
    /// The branch does not exist, or names no commit.
    BranchMissing = "branch-missing",
    /// An object is missing, does not decode or has another hash than its name.
    ObjectBroken = "object-broken",
    /// The repository uses something that is never followed, or exceeds a bound.
    Refused = "refused",
    /// The commit in force is not on the first-parent chain of the tip.
    HistoryDiverged = "history-diverged",
    /// The remote shows a commit that was verified before the one that was verified last: an old mirror, or a branch that was set back.
    StaleSource = "stale-source",
    /// The repository lacks history that has to be verified.
    HistoryIncomplete = "history-incomplete",
    /// A commit of the branch does not count by the trust policy in force.
    UnverifiedCommit = "unverified-commit",
    /// The trust policy is gone from the tree, or cannot be read there.
    TrustRemoved = "trust-removed",
    /// The history is another one than the pinned one, or of another trust domain.
    OtherHistory = "other-history",
    /// The tree has no `fleet.kdl` or `fleet.yaml` where the fleet should be.
    RootMissing = "root-missing",
    /// Somebody put the commit in quarantine.
    Quarantined = "quarantined",
    /// The tree has errors; they are stored.
    FleetInvalid = "fleet-invalid",
    /// The control plane failed in the middle of a pass, which is tried again.
    ApplyFailed = "apply-failed",
}

impl fmt::Display for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// No state has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no source state {0:?}")]
pub struct UnknownState(pub String);

/// Why a commit does not come into force. The last good revision stays.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    /// The state, never [`SourceState::Ok`].
    pub state: SourceState,
    /// What happened, for people, and what to do about it.
    pub reason: String,
    /// Diagnostics, for [`SourceState::FleetInvalid`]; the refused commit, for [`SourceState::UnverifiedCommit`].
    pub detail: Option<Value>,
}

impl Trouble {
    /// A state and its reason.
    #[must_use]
    pub fn new(state: SourceState, reason: impl Into<String>) -> Self {
        Self { state, reason: reason.into(), detail: None }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.state, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_text() {
        for state in SourceState::ALL {
            assert_eq!(state.as_str().parse(), Ok(*state));
        }
        assert!("fine".parse::<SourceState>().is_err());
    }
}
