//! One raw commit as what one person says, or why it says nothing.

use std::collections::BTreeSet;

use schema::{digest::Digest, fleet::trust::PrincipalKind, name::Name, time::Timestamp};

use super::judge::Flaw;
use crate::trust::{
    key::{KeyClass, TrustKey},
    policy::{KeyState, Policy, Principal, Tier},
    signature::{SignatureRefusal, signer},
    spoken::{Said, Unread},
};

/// A statement that does not count, and of whom it says to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedVote {
    /// Who it says to be from; nobody when it could not be read.
    pub who: Option<Name>,
    /// Why it does not count.
    pub why: NoVote,
}

/// Why a commit is no vote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVote {
    /// It carries no statement.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// A statement about something else.
    #[error("it is a statement about something else")]
    OtherSubject,
    /// Of another trust domain or fleet.
    #[error("it is for another fleet")]
    OtherFleet,
    /// About another batch.
    #[error("it is about another batch, or another text of this one")]
    OtherBatch,
    /// It names another tier.
    #[error("it is for the tier {0}")]
    OtherTier(Name),
    /// It names another policy.
    #[error("it is said under the trust policy of epoch {0}")]
    OtherPolicy(u64),
    /// It does not stand on the plan alone, or holds files of its own.
    #[error(
        "it is no empty commit of the one form: an approval has the plan commit as its one parent, and that one's tree; other \
             statements have no files"
    )]
    NotEmpty,
    /// Its signature does not count.
    #[error("{0}")]
    Signature(SignatureRefusal),
    /// Somebody else's key signed it.
    #[error("it says to be from {0}, and is signed by another's key")]
    OtherPrincipal(Name),
    /// The key is not of both policies.
    #[error("its key is not that of the same person under the policy that it names and under the present one")]
    NotTheirs,
    /// The key is revoked.
    #[error("its key is retired, compromised or revoked")]
    KeyRevoked,
    /// Services and forges have no vote.
    #[error("{0} is no person")]
    NoPerson(Name),
    /// Without the role.
    #[error("{0} has no role that approves this")]
    NoRole(Name),
    /// Excluded.
    #[error("{0} proposed it, signed it or is excluded")]
    Excluded(Name),
    /// With another class of key.
    #[error("it is signed with a key of the class {}", .0.as_str())]
    KeyClass(KeyClass),
    /// Its time is over.
    #[error("it counted until {0}")]
    Expired(Timestamp),
    /// It counts at no time at which the batch may begin.
    #[error("it counts from {from} until {until}, and the batch begins from {begins} until {ends} or not at all")]
    Apart {
        /// It counts from then on.
        from: Timestamp,
        /// It counts until then.
        until: Timestamp,
        /// The batch begins from then on.
        begins: Timestamp,
        /// The batch begins until then.
        ends: Timestamp,
    },
    /// It begins after it ends, or counts for longer than the tier allows.
    #[error("it counts for longer than the tier allows, or for no time at all")]
    Window,
    /// Nothing can come of the batch, whoever says what.
    #[error("{0}")]
    Flaw(Flaw),
    /// Somebody rejected the batch.
    #[error("{} rejected it, and one is enough", list(.0))]
    Rejected(BTreeSet<Name>),
    /// Whoever says it took their approval back before.
    #[error("{0} took their approval back, which is final for this text of it")]
    TakenBack(Name),
    /// Nobody may call an emergency.
    #[error("the trust policy has no emergency tier")]
    NoEmergencies,
}

fn list(names: &BTreeSet<Name>) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

impl NoVote {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unread(unread) => unread.code(),
            Self::OtherSubject => "other-subject",
            Self::OtherFleet => "other-fleet",
            Self::OtherBatch => "other-batch",
            Self::OtherTier(_) => "other-tier",
            Self::OtherPolicy(_) => "other-policy",
            Self::NotEmpty => "not-empty",
            Self::Signature(refusal) => refusal.code(),
            Self::OtherPrincipal(_) => "other-principal",
            Self::NotTheirs => "not-theirs",
            Self::KeyRevoked => "key-revoked",
            Self::NoPerson(_) => "no-person",
            Self::NoRole(_) => "no-role",
            Self::Excluded(_) => "excluded",
            Self::KeyClass(_) => "key-class",
            Self::Expired(_) => "expired",
            Self::Apart { .. } => "window-apart",
            Self::Window => "window",
            Self::Flaw(flaw) => flaw.code(),
            Self::Rejected(_) => "rejected",
            Self::TakenBack(_) => "taken-back",
            Self::NoEmergencies => "no-emergencies",
        }
    }
}

/// Who says it, by a key that counts under every one of some policies.
pub(super) fn person<'p>(
    said: &Said<'_>,
    policies: &[&'p Policy],
    revoked: &BTreeSet<String>,
) -> Result<(&'p TrustKey, Vec<&'p Principal>), NoVote> {
    let first = policies.first().ok_or(NoVote::NotTheirs)?;
    let key = signer(&said.commit, first.keys()).map_err(NoVote::Signature)?;
    Ok((key, holder(&said.statement.principal, key, policies, revoked)?))
}

/// Somebody as each of some policies knows them, when they are a person whose key counts under every one.
pub(super) fn holder<'p>(
    name: &Name,
    key: &TrustKey,
    policies: &[&'p Policy],
    revoked: &BTreeSet<String>,
) -> Result<Vec<&'p Principal>, NoVote> {
    let one = |policy: &&'p Policy| {
        let (holder, principal) = policy.holder(key).ok_or(NoVote::NotTheirs)?;
        if holder != name {
            return Err(NoVote::OtherPrincipal(name.clone()));
        }
        if policy.state(key) != KeyState::Good || revoked.contains(&key.name()) {
            return Err(NoVote::KeyRevoked);
        }
        if principal.kind != PrincipalKind::Human {
            return Err(NoVote::NoPerson(name.clone()));
        }
        Ok(principal)
    };
    policies.iter().map(one).collect()
}

/// Whether a person, as each policy knows them, and their key may approve under each policy's tier.
pub(super) fn eligible(
    name: &Name,
    key: &TrustKey,
    people: &[&Principal],
    tiers: &[&Tier],
    excluded: impl Fn(&Name) -> bool,
) -> Result<(), NoVote> {
    for (principal, tier) in people.iter().zip(tiers) {
        if !tier.rule.names(principal) {
            return Err(NoVote::NoRole(name.clone()));
        }
        if excluded(name) || tier.exclude.contains(name) {
            return Err(NoVote::Excluded(name.clone()));
        }
        if !tier.keys.is_empty() && !tier.keys.contains(key.class().as_str()) {
            return Err(NoVote::KeyClass(key.class()));
        }
    }
    Ok(())
}

/// Whether a window is one, and no longer than each tier allows.
pub(super) fn window_fits(not_before: Timestamp, expires: Timestamp, tiers: &[&Tier]) -> bool {
    let longest = |tier: &&Tier| tier.max_ttl.after(not_before) >= expires;
    not_before < expires && tiers.iter().all(longest)
}

/// What is said about, for the digest of a use: one statement allows one act.
pub(super) fn used(purpose: &str, parts: &[&[u8]]) -> Digest {
    let mut digest = schema::digest::Digester::new(purpose);
    parts.iter().for_each(|part| digest.part(part));
    digest.finish()
}
