//! Break-glass: what people allow without a batch, for a short while, each word of theirs once on each machine.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use schema::{digest::Digest, name::Name, time::Timestamp};

use super::{
    judge::missing,
    vote::{NoVote, RefusedVote, eligible, holder, person, used, window_fits},
};
use crate::trust::{
    key::TrustKey,
    policy::{Policy, Tier},
    spoken::Said,
    statement::{Body, FleetId},
};

/// What some people say in the same words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emergency {
    /// The kinds of commands that they allow.
    pub kinds: Vec<String>,
    /// The machines.
    pub nodes: Vec<Name>,
    /// Why.
    pub reason: String,
    /// From then on.
    pub not_before: Timestamp,
    /// Until then.
    pub expires: Timestamp,
    /// Who says it.
    pub people: BTreeSet<Name>,
    /// What is still needed, in words; nothing when it holds.
    pub missing: Vec<String>,
    /// The statements, one of each person, by their place in what was given.
    pub evidence: Vec<usize>,
    /// Those of no more people than it takes, the smallest ones.
    pub carry: Vec<usize>,
}

impl Emergency {
    /// Whether enough people say it, and now is its time.
    #[must_use]
    pub fn permits(&self, now: Timestamp) -> bool {
        self.missing.is_empty() && self.not_before <= now && now <= self.expires
    }

    /// Whether it is about a kind of command on a machine.
    #[must_use]
    pub fn covers(&self, node: &str, kind: &str) -> bool {
        self.nodes.iter().any(|name| name.as_str() == node) && self.kinds.iter().any(|word| word == kind)
    }

    /// What a machine writes down as used: these words, for this kind, however many people say them.
    #[must_use]
    pub fn uses(&self, kind: &str) -> Vec<Digest> {
        let list = |words: Vec<&str>| words.join(",");
        let (kinds, nodes) = (
            list(self.kinds.iter().map(String::as_str).collect()),
            list(self.nodes.iter().map(Name::as_str).collect()),
        );
        let window = format!("{}/{}", self.not_before, self.expires);
        let parts = [&kinds, &nodes, &self.reason, &window, kind].map(str::as_bytes);
        vec![used("bc/breakglass-used/v1", &parts)]
    }
}

/// Whether somebody's word would count in an emergency: the tier that says what for.
///
/// # Errors
/// With the reason why it would not.
pub fn may_call<'p>(
    policy: &'p Policy,
    revoked: &BTreeSet<String>,
    who: &Name,
    key: &TrustKey,
) -> Result<&'p Tier, NoVote> {
    let tier = policy.breakglass().ok_or(NoVote::NoEmergencies)?;
    let people = holder(who, key, &[policy], revoked)?;
    eligible(who, key, &people, &[tier], |_| false)?;
    Ok(tier)
}

/// A word about an emergency that counts as one person's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    who: Name,
    bytes: usize,
    emergency: Emergency,
}

/// Who says it: the place of their word, and how many bytes that has.
type Words<'c> = BTreeMap<&'c Name, (usize, usize)>;

/// Whether a statement calls an emergency under a policy. The same statement is the same word as long as policy and revocations
/// are the same.
///
/// # Errors
/// With who said it, and why it does not count.
pub fn call(
    raw: &[u8],
    trust_domain: &str,
    fleet: FleetId,
    policy: &Policy,
    revoked: &BTreeSet<String>,
) -> Result<Call, RefusedVote> {
    let said = Said::read(raw).map_err(|why| RefusedVote { who: None, why: why.into() })?;
    let who = said.statement.principal.clone();
    let tier = policy.breakglass().ok_or(NoVote::NoEmergencies);
    match tier.and_then(|tier| one(&said, trust_domain, fleet, policy, tier, revoked)) {
        Ok(emergency) => Ok(Call { who, bytes: raw.len(), emergency }),
        Err(why) => Err(RefusedVote { who: Some(who), why }),
    }
}

/// Which emergencies words come to, each word with its place.
#[must_use]
pub fn called<'c>(words: impl IntoIterator<Item = (usize, &'c Call)>, policy: &Policy) -> Vec<Emergency> {
    let mut all: Vec<(Emergency, Words<'c>)> = Vec::new();
    let Some(tier) = policy.breakglass() else { return Vec::new() };
    for (place, Call { who, bytes, emergency }) in words {
        let same = |(other, _): &&mut (Emergency, _)| {
            (&other.kinds, &other.nodes, &other.reason) == (&emergency.kinds, &emergency.nodes, &emergency.reason)
                && (other.not_before, other.expires) == (emergency.not_before, emergency.expires)
        };
        let at = match all.iter_mut().find(same) {
            Some(other) => other,
            None => {
                all.push((emergency.clone(), BTreeMap::new()));
                all.last_mut().expect("one was put there")
            }
        };
        at.1.entry(who).or_insert((place, *bytes));
    }
    let whole = |(mut emergency, people): (Emergency, Words<'_>)| {
        emergency.people = people.keys().map(|who| (*who).clone()).collect();
        emergency.missing = missing(&emergency.people, &[(policy, tier)]);
        let mut carry = emergency.people.clone();
        let mut largest: Vec<(&&Name, usize)> = people.iter().map(|(who, (_, bytes))| (who, *bytes)).collect();
        largest.sort_by_key(|(_, bytes)| Reverse(*bytes));
        for (who, _) in largest {
            carry.remove(*who);
            if !missing(&carry, &[(policy, tier)]).is_empty() {
                carry.insert((*who).clone());
            }
        }
        let places = |of: &BTreeSet<Name>| -> Vec<usize> {
            of.iter().filter_map(|who| people.get(who)).map(|(place, _)| *place).collect()
        };
        (emergency.evidence, emergency.carry) = (places(&emergency.people), places(&carry));
        emergency
    };
    all.into_iter().map(whole).collect()
}

/// Which emergencies people called under the policy in force, and what does not count.
#[must_use]
pub fn emergencies(
    statements: &[Vec<u8>],
    trust_domain: &str,
    fleet: FleetId,
    policy: &Policy,
    revoked: &BTreeSet<String>,
) -> (Vec<Emergency>, Vec<RefusedVote>) {
    if policy.breakglass().is_none() {
        return (Vec::new(), Vec::new());
    }
    let (mut words, mut refused) = (Vec::new(), Vec::new());
    for (place, raw) in statements.iter().enumerate() {
        match call(raw, trust_domain, fleet, policy, revoked) {
            Ok(word) => words.push((place, word)),
            Err(why) => refused.push(why),
        }
    }
    (called(words.iter().map(|(place, word)| (*place, word)), policy), refused)
}

fn one(
    said: &Said<'_>,
    trust_domain: &str,
    fleet: FleetId,
    policy: &Policy,
    tier: &Tier,
    revoked: &BTreeSet<String>,
) -> Result<Emergency, NoVote> {
    let statement = &said.statement;
    let Body::Breakglass { kinds, nodes, reason, under, not_before, expires } = &statement.body else {
        return Err(NoVote::OtherSubject);
    };
    if !said.is_for(trust_domain, fleet) {
        return Err(NoVote::OtherFleet);
    }
    if !said.commit.tree().is_empty_tree() {
        return Err(NoVote::NotEmpty);
    }
    if (under.epoch, under.digest) != (policy.epoch(), policy.digest()) {
        return Err(NoVote::OtherPolicy(under.epoch));
    }
    if !kinds.iter().all(|kind| tier.commands.contains(kind)) {
        return Err(NoVote::OtherTier(tier.name.clone()));
    }
    let (key, people) = person(said, &[policy], revoked)?;
    eligible(&statement.principal, key, &people, &[tier], |_| false)?;
    if nodes.len() > tier.max_nodes as usize || !window_fits(*not_before, *expires, &[tier]) {
        return Err(NoVote::Window);
    }
    Ok(Emergency {
        kinds: kinds.clone(),
        nodes: nodes.clone(),
        reason: reason.clone(),
        not_before: *not_before,
        expires: *expires,
        people: BTreeSet::new(),
        missing: Vec::new(),
        evidence: Vec::new(),
        carry: Vec::new(),
    })
}
