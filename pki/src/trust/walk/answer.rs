//! What a walk answers: each commit with its verdict, how far the history counts, and the policies that came into force.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    fleet::trust::{FILE, PrincipalKind},
    name::Name,
};

use super::{Declared, MOST_COMMITS, Refusal};
use serde::{Deserialize, Serialize};

use crate::trust::{
    key::TrustKey,
    object::ObjectId,
    policy::{KeyState, Policy},
    revoked::Revocations,
    statement::FleetId,
};

/// Whose signature a commit has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Who.
    pub principal: Name,
    /// What that is.
    pub kind: PrincipalKind,
    /// By which key.
    pub key: TrustKey,
}

/// Why a commit counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The history begins here.
    Anchor,
    /// The signer may change all of it.
    Granted,
    /// And these vouch for it.
    Vouched(Vec<Name>),
    /// It begins a rewritten history, which these accept in place of another one.
    Resealed(Vec<Name>),
    /// It brings a policy, which these agreed to.
    TrustChange {
        /// The epoch of the policy.
        epoch: u64,
        /// Who said so.
        by: Vec<Name>,
    },
}

/// What is concluded about one commit.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The commit.
    pub id: ObjectId,
    /// The first line of its message, when it could be read.
    pub subject: String,
    /// Whose signature it has, when that is known.
    pub signer: Option<Signer>,
    /// The epoch of the policy that judged it.
    pub epoch: u64,
    /// The conclusion.
    pub verdict: Result<Accepted, Refusal>,
}

/// Why a history cannot be walked at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// No commit of it holds a policy.
    #[error("no commit of the branch holds {FILE}: nothing is verified")]
    NoPolicy,
    /// Nobody can say which fleet it is.
    #[error("the fleet file at the anchor {anchor} names no trust-domain", anchor = .0.short())]
    NoTrustDomain(ObjectId),
    /// The commit to begin with is not among the first parents of the tip.
    #[error("{tip} does not follow {anchor} along first parents: the history was rewritten, or is another one", tip = .tip.short(), anchor = .anchor.short())]
    HistoryDiverged {
        /// The anchor, or the commit that was verified last.
        anchor: ObjectId,
        /// The tip.
        tip: ObjectId,
    },
    /// A commit was left out.
    #[error("the commit {at} is not in the repository: a shallow clone has no history to verify", at = .0.short())]
    HistoryIncomplete(ObjectId),
    /// The commit that it has to begin with belongs to another trust domain.
    #[error("the fleet file at {commit} names the trust-domain {found:?}, not {expected:?}", commit = .commit.short())]
    OtherTrustDomain {
        /// The commit.
        commit: ObjectId,
        /// What it names.
        found: String,
        /// What it has to name.
        expected: String,
    },
    /// What was verified has to be judged again, and is not all there.
    #[error("{commit} counted before and cannot be judged again: its files are not all here: {what}", commit = .commit.short())]
    Lacking {
        /// The first commit that cannot be judged.
        commit: ObjectId,
        /// What is missing or damaged.
        what: String,
    },
    /// It is too long.
    #[error("the branch has more than {MOST_COMMITS} commits since the anchor, or too large ones")]
    TooLong,
}

impl Stuck {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoPolicy => "no-policy",
            Self::NoTrustDomain(_) => "no-trust-domain",
            Self::HistoryDiverged { .. } => "history-diverged",
            Self::HistoryIncomplete(_) => "history-incomplete",
            Self::OtherTrustDomain { .. } => "other-trust-domain",
            Self::Lacking { .. } => "object-broken",
            Self::TooLong => "history-too-long",
        }
    }
}

/// A policy that came into force, and what it takes to believe that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Its number.
    pub epoch: u64,
    /// The digest of the policy.
    pub digest: Digest,
    /// The file.
    pub policy: Vec<u8>,
    /// The commit that brought it.
    pub commit: ObjectId,
    /// The raw commits that agree to it and prove its keys; none for the first one, which an operator confirms.
    pub statements: Vec<Vec<u8>>,
}

/// What is never unlearnt about a history, whoever withholds the statements later on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    /// The keys that one person revoked, each from its place on.
    pub revoked: Revocations,
    /// The keys that policies call compromised.
    pub declared: Declared,
    /// The rewritten histories that people accepted.
    pub sealed: Vec<Sealed>,
}

impl Memory {
    /// The names of all keys that do not count any more, for whatever is not history.
    #[must_use]
    pub fn denied(&self) -> BTreeSet<String> {
        let declared = self.declared.iter().map(|(key, _)| key.as_str());
        self.revoked.names().chain(declared).map(str::to_owned).collect()
    }
}

/// A rewritten history that people accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sealed {
    /// The commit that was verified.
    pub old: ObjectId,
    /// The commit that takes its place.
    pub new: ObjectId,
    /// The epoch of the policy in force.
    pub epoch: u64,
}

/// How far a history was verified: what a walk goes on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The trust domain.
    pub trust_domain: String,
    /// The fleet.
    pub fleet: FleetId,
    /// The last commit that counts.
    pub commit: ObjectId,
    /// The policies up to the one in force there, by epoch.
    pub policies: BTreeMap<u64, Policy>,
    /// What was learnt.
    pub memory: Memory,
}

impl Verified {
    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policies.values().next_back()
    }
}

/// What a walk concludes.
#[derive(Debug, Clone)]
pub struct Walked {
    /// The trust domain.
    pub trust_domain: String,
    /// Which fleet it is.
    pub fleet: FleetId,
    /// The policy in force at the last commit that counts; `None` when the anchor does not.
    pub policy: Option<Policy>,
    /// Every commit, oldest first. The commit that a walk went on from is not among them.
    pub commits: Vec<Judged>,
    /// How far the history counts; `None` when nothing of it does.
    pub reached: Option<Verified>,
    /// The policies that came into force on the way.
    pub epochs: Vec<Epoch>,
}

impl Walked {
    /// How many commits count: those before the first that is refused.
    #[must_use]
    pub fn verified(&self) -> usize {
        self.commits.iter().position(|commit| commit.verdict.is_err()).unwrap_or(self.commits.len())
    }

    /// The first commit that does not count, and why.
    #[must_use]
    pub fn refused(&self) -> Option<(&Judged, &Refusal)> {
        self.commits.iter().find_map(|judged| judged.verdict.as_ref().err().map(|refusal| (judged, refusal)))
    }
}

/// What became of a key that does not sign any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The policy lets it rest.
    Retired,
    /// The policy says that somebody else had it.
    Compromised,
    /// Somebody took it away.
    Revoked(Name),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retired => f.write_str("retired"),
            Self::Compromised => f.write_str("compromised"),
            Self::Revoked(by) => write!(f, "revoked by {by}"),
        }
    }
}

impl Walked {
    /// What became of a key of the policy in force, when it does not sign any more.
    #[must_use]
    pub fn ended(&self, key: &TrustKey) -> Option<Ended> {
        let reached = self.reached.as_ref()?;
        match reached.policy()?.state(key) {
            KeyState::Good => {}
            KeyState::Retired => return Some(Ended::Retired),
            KeyState::Compromised { .. } => return Some(Ended::Compromised),
        }
        if reached.memory.declared.iter().any(|(name, _)| *name == key.name()) {
            return Some(Ended::Compromised);
        }
        reached.memory.revoked.by(key).map(|one| Ended::Revoked(one.by.clone()))
    }
}

impl Judged {
    /// The epoch of the policy that it brings into force.
    pub(super) const fn brings(&self) -> Option<u64> {
        match self.verdict {
            Ok(Accepted::Anchor) => Some(self.epoch),
            Ok(Accepted::TrustChange { epoch, .. }) => Some(epoch),
            Ok(Accepted::Granted | Accepted::Vouched(_) | Accepted::Resealed(_)) | Err(_) => None,
        }
    }
}
