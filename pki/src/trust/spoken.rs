//! Who says what: statements of one fleet, by whose keys, and the different people among those who signed them.

use std::collections::{BTreeMap, BTreeSet};

use schema::{digest::Digest, fleet::trust::PrincipalKind, name::Name, time::Timestamp};

use super::{
    commit::{Commit, Malformed},
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    policy::{KeyState, Policy, Rule, added},
    signature::{SignatureRefusal, signer},
    statement::{Body, FleetId, Statement, StatementRefusal, Step},
};

/// A statement, and who signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// What is said.
    pub statement: Statement,
    /// By whom: the principal that the statement names, whose key signed.
    pub principal: Name,
    /// By which key. Whether it still counts is what a policy says.
    pub key: TrustKey,
    /// The commit that carries it.
    pub commit: ObjectId,
    /// That commit's tree.
    pub tree: ObjectId,
    /// That commit's parents.
    pub parents: Vec<ObjectId>,
}

/// Why a commit is nobody's statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// It carries no statement.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// It is for another fleet.
    #[error("it is for the fleet {fleet} of {trust_domain}")]
    OtherFleet {
        /// The trust domain that it names.
        trust_domain: String,
        /// The fleet that it names.
        fleet: FleetId,
    },
    /// Its signature does not count.
    #[error("{0}")]
    Signature(SignatureRefusal),
    /// Somebody else's key signed.
    #[error("it says to be from {named}, and a key of {holder} signed it")]
    NotTheirs {
        /// Who it says to be from.
        named: Name,
        /// Whose key it is.
        holder: Name,
    },
}

impl Spoken {
    /// Hears a raw commit: a statement for a fleet, signed by a key that one of these policies lists under whoever it says to be from.
    ///
    /// # Errors
    /// With the first reason why it is nobody's statement.
    pub fn hear<'p>(
        raw: &[u8],
        trust_domain: &str,
        fleet: FleetId,
        policies: impl IntoIterator<Item = &'p Policy>,
    ) -> Result<Self, Unheard> {
        let said = Said::read(raw)?;
        if !said.is_for(trust_domain, fleet) {
            let Statement { trust_domain, fleet, .. } = said.statement;
            return Err(Unheard::OtherFleet { trust_domain, fleet });
        }
        let Said { commit, statement, .. } = said;
        let mut refused = Unheard::Signature(SignatureRefusal::Unsigned);
        for policy in policies {
            match signer(&commit, policy.keys()) {
                Err(refusal) => refused = Unheard::Signature(refusal),
                Ok(key) => {
                    let (holder, _) = policy.holder(key).expect("a key of a policy has a holder");
                    if *holder != statement.principal {
                        return Err(Unheard::NotTheirs { named: statement.principal, holder: holder.clone() });
                    }
                    let (key, principal) = (key.clone(), holder.clone());
                    let (id, tree, parents) = (commit.id(), commit.tree(), commit.parents().to_vec());
                    return Ok(Self { statement, principal, key, commit: id, tree, parents });
                }
            }
        }
        Err(refused)
    }

    /// Whether its commit has no files, where a statement has to have none: one about a batch has those of its plan.
    #[must_use]
    pub fn is_on_purpose(&self) -> bool {
        is_on_purpose(&self.statement, &self.tree)
    }
}

/// A raw commit that may be a statement, and when it was first seen, where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The commit.
    pub raw: Vec<u8>,
    /// When it was first seen. Without it no end of a statement is judged.
    pub first_seen: Option<Timestamp>,
}

impl From<Vec<u8>> for Heard {
    fn from(raw: Vec<u8>) -> Self {
        Self { raw, first_seen: None }
    }
}

/// A statement and the commit that carries it; whose it is depends on the policy that it is asked of.
#[derive(Debug, Clone)]
pub(crate) struct Said<'a> {
    raw: &'a [u8],
    pub(crate) commit: Commit<'a>,
    pub(crate) statement: Statement,
    first_seen: Option<Timestamp>,
}

/// Why a commit carries no statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// Its bytes are not those of a commit of the one form.
    #[error("the commit is malformed: {0}")]
    Malformed(Malformed),
    /// It is no statement.
    #[error("{0}")]
    NoStatement(StatementRefusal),
}

impl Unread {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::NoStatement(_) => "no-statement",
        }
    }
}

/// Whether a statement was made on purpose. A commit with files may be somebody else's, with a block in its message, that a person
/// picked, rebased or amended and so signed; only statements about batches have the files of the plan that they approve.
fn is_on_purpose(statement: &Statement, tree: &ObjectId) -> bool {
    matches!(statement.body, Body::Batch { .. }) || tree.is_empty_tree()
}

impl<'a> Said<'a> {
    /// Reads a commit as a statement.
    pub(crate) fn read(raw: &'a [u8]) -> Result<Self, Unread> {
        // Which kind of repository it is from only the commit itself says.
        let format = ObjectFormat::of_commit(raw).unwrap_or(ObjectFormat::Sha1);
        let commit = Commit::split(format, raw).map_err(Unread::Malformed)?;
        let statement = Statement::parse(&commit).map_err(Unread::NoStatement)?;
        Ok(Self { raw, commit, statement, first_seen: None })
    }

    /// Reads a commit as a statement for a fleet that was made on purpose; anything else is nothing.
    pub(super) fn of_fleet(raw: &'a [u8], trust_domain: &str, fleet: FleetId) -> Option<Self> {
        let said = Self::read(raw).ok()?;
        let on_purpose = is_on_purpose(&said.statement, &said.commit.tree());
        (said.is_for(trust_domain, fleet) && on_purpose).then_some(said)
    }

    /// Whether it is said in this fleet.
    pub(crate) fn is_for(&self, trust_domain: &str, fleet: FleetId) -> bool {
        self.statement.trust_domain == trust_domain && self.statement.fleet == fleet
    }

    /// The key of a policy that signed it, when it is the key of whoever it says to be from.
    pub(super) fn key<'p>(&self, policy: &'p Policy) -> Option<&'p TrustKey> {
        let key = signer(&self.commit, policy.keys()).ok()?;
        let (holder, _) = policy.holder(key)?;
        (*holder == self.statement.principal && policy.state(key) == KeyState::Good).then_some(key)
    }

    /// Whether it was seen before it ended, and has not ended since.
    fn in_time(&self, now: Option<Timestamp>) -> bool {
        let (Body::Change { expires, .. } | Body::Reseal { expires, .. }) = &self.statement.body else { return true };
        self.first_seen.into_iter().chain(now).all(|at| at <= *expires)
    }
}

/// All statements of one fleet that were found. One may be wrapped in many commits, and only one of them be signed: whoever
/// counts, counts people.
#[derive(Debug, Clone)]
pub(super) struct Statements<'a> {
    said: Vec<Said<'a>>,
    now: Option<Timestamp>,
}

impl<'a> Statements<'a> {
    pub(super) fn read(raw: impl IntoIterator<Item = &'a [u8]>, trust_domain: &str, fleet: FleetId) -> Self {
        Self { said: raw.into_iter().filter_map(|raw| Said::of_fleet(raw, trust_domain, fleet)).collect(), now: None }
    }

    /// In the order in which they were first seen. With a time, what has ended by then does not count any more.
    pub(super) fn heard(heard: &'a [Heard], trust_domain: &str, fleet: FleetId, now: Option<Timestamp>) -> Self {
        let read = |Heard { raw, first_seen }: &'a Heard| {
            Some(Said { first_seen: *first_seen, ..Said::of_fleet(raw, trust_domain, fleet)? })
        };
        let mut said: Vec<Said<'a>> = heard.iter().filter_map(read).collect();
        said.sort_by_key(|said| (said.first_seen.is_none(), said.first_seen, said.statement.digest()));
        Self { said, now }
    }

    /// The revocations among them.
    pub(super) fn revoking(&self) -> impl Iterator<Item = (&Said<'a>, ObjectId)> {
        self.said.iter().filter_map(|said| match said.statement.body {
            Body::Revoke { last_good, .. } => Some((said, last_good)),
            _ => None,
        })
    }

    /// The different people who say it, in time and by a key that still counts, of those whom a rule of a policy names.
    pub(super) fn people(
        &self,
        policy: &Policy,
        rule: &Rule,
        says: impl Fn(&Body) -> bool,
        counts: impl Fn(&TrustKey) -> bool,
    ) -> BTreeSet<Name> {
        let may = |said: &&Said<'a>| {
            let principal = policy.principals().get(&said.statement.principal);
            principal.is_some_and(|principal| principal.kind == PrincipalKind::Human && rule.names(principal))
        };
        let said = self.said.iter().filter(|said| says(&said.statement.body) && said.in_time(self.now)).filter(may);
        let signed = said.filter(|said| said.key(policy).is_some_and(&counts));
        signed.map(|said| said.statement.principal.clone()).collect()
    }

    /// Whether somebody has shown to hold a key that a policy adds.
    pub(super) fn proves(&self, policy: &Policy, key: &TrustKey, step: Step) -> bool {
        let said = self.said.iter().filter(|said| said.statement.body == Body::Possess(step));
        let mut signed = said.filter_map(|said| said.key(policy));
        signed.any(|by| by == key)
    }

    /// The raw commits that agree to a step and prove its keys, and no more: of everybody whose word counts under the old and under the
    /// new policy one for each, and one for each key that is added. Machines are given these, and take so many.
    pub(super) fn of_step(
        &self,
        step: Step,
        [old, new]: [&Policy; 2],
        counts: impl Fn(&TrustKey, &Policy, &Rule) -> bool,
    ) -> Vec<Vec<u8>> {
        let mut found: BTreeMap<(Digest, String), &[u8]> = BTreeMap::new();
        let mut keep = |said: &Said<'a>, key: &TrustKey| found.insert((said.statement.digest(), key.name()), said.raw);
        for policy in [old, new] {
            let rule = policy.trust();
            let mut heard = BTreeSet::new();
            for said in self.said.iter().filter(|said| said.statement.body == Body::Trust(step)) {
                let who = &said.statement.principal;
                let may = policy.eligible(rule).any(|(name, _)| name == who);
                if let Some(key) = said.key(policy).filter(|key| may && counts(key, policy, rule))
                    && heard.insert(who)
                {
                    keep(said, key);
                }
            }
        }
        for key in added(old, new) {
            let proves = |said: &&Said<'a>| said.statement.body == Body::Possess(step) && said.key(new) == Some(key);
            if let Some(said) = self.said.iter().find(proves) {
                keep(said, key);
            }
        }
        found.into_values().map(<[u8]>::to_vec).collect()
    }

    /// The commits of which somebody says, whoever it is, that this one takes their place.
    pub(super) fn replaced_by(&self, branch: &str, new: ObjectId) -> impl Iterator<Item = ObjectId> {
        self.said.iter().filter_map(move |said| match &said.statement.body {
            Body::Reseal { branch: of, old, new: by, .. } if of == branch && *by == new => Some(*old),
            _ => None,
        })
    }
}
