//! Who says what: statements of one fleet, by whose keys, and the different people among those who signed them.

use std::collections::{BTreeMap, BTreeSet};

use schema::{fleet::trust::PrincipalKind, name::Name, time::Timestamp};

use super::{
    commit::{Commit, Malformed},
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    policy::{KeyState, Policy, Rule},
    signature::{SignatureRefusal, signer},
    statement::{Body, FleetId, Statement, StatementRefusal, Step},
};

/// Keys of others that one person revokes under one policy.
pub const MOST_REVOKED: usize = 3;

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
    /// It is no commit of the one form.
    #[error("it is malformed: {0}")]
    Malformed(Malformed),
    /// It is no statement.
    #[error("{0}")]
    NoStatement(StatementRefusal),
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
        let format = ObjectFormat::of_commit(raw).unwrap_or(ObjectFormat::Sha1);
        let commit = Commit::split(format, raw).map_err(Unheard::Malformed)?;
        let statement = Statement::parse(&commit).map_err(Unheard::NoStatement)?;
        if statement.trust_domain != trust_domain || statement.fleet != fleet {
            let Statement { trust_domain, fleet, .. } = statement;
            return Err(Unheard::OtherFleet { trust_domain, fleet });
        }
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
}

/// The keys that people revoked by statements, each judged under the policy that it names. It only ever takes away: what such a
/// key says of batches does not count from then on.
#[must_use]
pub fn revoked<'a>(
    statements: impl IntoIterator<Item = &'a [u8]>,
    trust_domain: &str,
    fleet: FleetId,
    policies: &BTreeMap<u64, Policy>,
) -> BTreeSet<String> {
    Statements::read(statements, trust_domain, fleet).revocations(policies).into_iter().map(|(key, _)| key).collect()
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
pub(super) struct Said<'a> {
    raw: &'a [u8],
    commit: Commit<'a>,
    statement: Statement,
    first_seen: Option<Timestamp>,
}

impl<'a> Said<'a> {
    /// Reads a commit as a statement for a fleet. What is none, or for another fleet, is nothing.
    pub(super) fn read(raw: &'a [u8], trust_domain: &str, fleet: FleetId) -> Option<Self> {
        let commit = Commit::split(ObjectFormat::of_commit(raw)?, raw).ok()?;
        let statement = Statement::parse(&commit).ok()?;
        let ours = statement.trust_domain == trust_domain && statement.fleet == fleet;
        ours.then_some(Self { raw, commit, statement, first_seen: None })
    }

    /// The key of a policy that signed it, when it is the key of whoever it says to be from.
    fn key<'p>(&self, policy: &'p Policy) -> Option<&'p TrustKey> {
        let key = signer(&self.commit, policy.keys()).ok()?;
        let (holder, _) = policy.holder(key)?;
        (*holder == self.statement.principal && policy.state(key) == KeyState::Good).then_some(key)
    }

    /// Whether it was seen before it ended.
    fn in_time(&self) -> bool {
        let (Body::Change { expires, .. } | Body::Reseal { expires, .. }) = &self.statement.body else { return true };
        self.first_seen.is_none_or(|seen| seen <= *expires)
    }
}

/// All statements of one fleet that were found. One may be wrapped in many commits, and only one of them be signed: whoever
/// counts, counts people.
#[derive(Debug, Clone)]
pub(super) struct Statements<'a>(Vec<Said<'a>>);

impl<'a> Statements<'a> {
    pub(super) fn read(raw: impl IntoIterator<Item = &'a [u8]>, trust_domain: &str, fleet: FleetId) -> Self {
        Self(raw.into_iter().filter_map(|raw| Said::read(raw, trust_domain, fleet)).collect())
    }

    pub(super) fn heard(heard: &'a [Heard], trust_domain: &str, fleet: FleetId) -> Self {
        let read = |Heard { raw, first_seen }: &'a Heard| {
            Some(Said { first_seen: *first_seen, ..Said::read(raw, trust_domain, fleet)? })
        };
        Self(heard.iter().filter_map(read).collect())
    }

    /// These and one more.
    pub(super) fn with(&self, more: Option<&Said<'a>>) -> Self {
        Self(self.0.iter().chain(more).cloned().collect())
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
        let said = self.0.iter().filter(|said| says(&said.statement.body) && said.in_time()).filter(may);
        let signed = said.filter(|said| said.key(policy).is_some_and(&counts));
        signed.map(|said| said.statement.principal.clone()).collect()
    }

    /// Whether somebody has shown to hold a key that a policy adds.
    pub(super) fn proves(&self, policy: &Policy, key: &TrustKey, step: Step) -> bool {
        let said = self.0.iter().filter(|said| said.statement.body == Body::Possess(step));
        let mut signed = said.filter_map(|said| said.key(policy));
        signed.any(|by| by == key)
    }

    /// The raw commits that agree to a step or prove a key of it, one of each statement.
    pub(super) fn of_step(&self, step: Step, policies: [&Policy; 2]) -> Vec<Vec<u8>> {
        let mut found = BTreeMap::new();
        for said in &self.0 {
            let meant = [Body::Trust(step), Body::Possess(step)].contains(&said.statement.body);
            if meant && policies.iter().any(|policy| said.key(policy).is_some()) {
                found.entry(said.statement.digest()).or_insert_with(|| said.raw.to_vec());
            }
        }
        found.into_values().collect()
    }

    /// Whether somebody says, whoever it is, that a commit takes the place of another one.
    pub(super) fn reseals_to(&self, branch: &str, old: ObjectId, new: ObjectId) -> bool {
        self.replaced_by(branch, new).any(|was| was == old)
    }

    /// The commits of which somebody says, whoever it is, that this one takes their place.
    pub(super) fn replaced_by(&self, branch: &str, new: ObjectId) -> impl Iterator<Item = ObjectId> {
        self.0.iter().filter_map(move |said| match &said.statement.body {
            Body::Reseal { branch: of, old, new: by, .. } if of == branch && *by == new => Some(*old),
            _ => None,
        })
    }

    /// The keys that people who may have revoked, each under the policy that the statement names.
    ///
    /// A revocation only takes away, and one person is enough; so one key that was stolen must not take everything away. A key that
    /// the newest policy calls compromised says nothing of others any more; one person revokes at most [`MOST_REVOKED`] keys of
    /// others under one policy; and nobody revokes so many that the policy cannot be changed, or no emergency be declared, any more.
    pub(super) fn revocations(&self, policies: &BTreeMap<u64, Policy>) -> Vec<(String, Option<ObjectId>)> {
        let newest = policies.values().next_back();
        let lost =
            |key: &TrustKey| newest.is_some_and(|newest| matches!(newest.state(key), KeyState::Compromised { .. }));
        let mut said: Vec<&Said<'_>> =
            self.0.iter().filter(|said| matches!(said.statement.body, Body::Revoke { .. })).collect();
        // In one order for everybody, whatever order they were found in.
        said.sort_by_key(|said| said.statement.digest());
        let mut revoked: BTreeSet<(String, Option<ObjectId>)> = BTreeSet::new();
        let mut counted: BTreeMap<(u64, &Name), BTreeSet<&str>> = BTreeMap::new();
        for said in said {
            let Body::Revoke { key, last_good, trust_epoch, .. } = &said.statement.body else { continue };
            let Some(policy) = policies.get(trust_epoch) else { continue };
            let Some((by, (name, principal))) = said.key(policy).and_then(|by| Some((by, policy.holder(by)?))) else {
                continue;
            };
            // Whoever holds a key may always give it up.
            let own = principal.keys.iter().any(|held| held.name() == *key);
            if own && (!lost(by) || by.name() == *key) {
                revoked.insert((key.clone(), Some(*last_good)));
                continue;
            }
            let may = principal.kind == PrincipalKind::Human
                && policy.revoke().is_some_and(|rule| rule.names(principal))
                && !lost(by);
            let keys = counted.entry((*trust_epoch, name)).or_default();
            let within = keys.contains(key.as_str()) || keys.len() < MOST_REVOKED;
            let gone = |held: &TrustKey| held.name() == *key || revoked.iter().any(|(gone, _)| *gone == held.name());
            if may && within && policy.stands_without(gone) {
                keys.insert(key);
                revoked.insert((key.clone(), Some(*last_good)));
            }
        }
        revoked.into_iter().collect()
    }
}
