//! The one quorum function: whether people approve a batch, and what is still missing.

use std::collections::{BTreeMap, BTreeSet};

use schema::{name::Name, time::Timestamp};

use super::{
    header::BatchHeader,
    vote::{NoVote, RefusedVote, eligible, holder, person, window_fits},
};
use crate::trust::{
    key::TrustKey,
    policy::{Policy, Principal, Tier},
    spoken::Said,
    statement::{Body, Word},
};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The batch.
    pub header: &'a BatchHeader,
    /// The kinds of its leaves; for a node the kind of its own.
    pub kinds: &'a BTreeSet<String>,
    /// Raw commits that may be statements about it, in any order, each as often as it was found.
    pub statements: &'a [Vec<u8>],
    /// The policy that the header names.
    pub named: &'a Policy,
    /// The policy in force. A key counts only when it does under both.
    pub present: &'a Policy,
    /// Keys that were revoked since, by name.
    pub revoked: &'a BTreeSet<String>,
    /// Now.
    pub now: Timestamp,
}

/// What is wrong with a batch, whoever approves it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Its header names another policy.
    #[error("it names the trust policy of epoch {named}, and epoch {present} is looked at")]
    OtherPolicy {
        /// What the header names.
        named: u64,
        /// What there is.
        present: u64,
    },
    /// No tier allows a kind.
    #[error("no tier of the trust policy has {0}")]
    NoTier(String),
    /// There is no such tier.
    #[error("the trust policy has no tier {0}")]
    UnknownTier(Name),
    /// A kind of it is of another tier.
    #[error("it is called {tier}, and {kind} is of the tier {of}")]
    OtherTier {
        /// What it is called.
        tier: Name,
        /// A kind of it.
        kind: String,
        /// Where that belongs.
        of: Name,
    },
    /// Too many machines.
    #[error("it has {leaves} leaves, and its tier allows {most}")]
    TooMany {
        /// How many.
        leaves: u32,
        /// At most.
        most: u32,
    },
    /// Its window is longer than the tier allows, or none.
    #[error("it holds for longer than its tier allows, or for no time at all")]
    Window,
    /// Its time is over.
    #[error("it expired at {0}")]
    Expired(Timestamp),
}

impl Flaw {
    /// The stable word.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::OtherPolicy { .. } => "other-policy",
            Self::NoTier(_) => "no-tier",
            Self::UnknownTier(_) => "unknown-tier",
            Self::OtherTier { .. } => "other-tier",
            Self::TooMany { .. } => "too-many-nodes",
            Self::Window => "window",
            Self::Expired(_) => "expired",
        }
    }
}

/// How it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Enough people approve it, nobody rejects it, and its time is not over.
    pub approved: bool,
    /// Who approves it.
    pub yes: BTreeSet<Name>,
    /// Who rejects it. One is enough, and no word takes it back: a batch's name is used once.
    pub no: BTreeSet<Name>,
    /// Who took an approval back, for good.
    pub withdrawn: BTreeSet<Name>,
    /// What is still needed, in words.
    pub missing: Vec<String>,
    /// What does not count, and why.
    pub refused: Vec<RefusedVote>,
    /// What is wrong with the batch itself.
    pub flaw: Option<Flaw>,
    /// It may begin from here on: when every approval that it needs counts.
    pub opens: Timestamp,
    /// It may begin until here: when the first of them stops to count.
    pub closes: Timestamp,
    /// The statements that carry it, of no more people than it takes, by their place in the question.
    pub evidence: Vec<usize>,
}

impl Tally {
    /// Whether it may begin now.
    #[must_use]
    pub fn permits(&self, now: Timestamp) -> bool {
        self.approved && self.opens <= now && now <= self.closes
    }
}

/// One approval that counts.
struct Yes {
    place: usize,
    from: Timestamp,
    until: Timestamp,
}

enum Vote {
    Yes(Yes),
    No,
    Withdrawn,
}

/// Judges a batch. One vote per human, however many keys and statements; a rejection wins; who withdrew does not count;
/// whoever proposed or signed the document does not count; every group slot takes another person.
#[must_use]
pub fn judge(question: &Question<'_>) -> Tally {
    let header = question.header;
    let mut tally = Tally {
        approved: false,
        yes: BTreeSet::new(),
        no: BTreeSet::new(),
        withdrawn: BTreeSet::new(),
        missing: Vec::new(),
        refused: Vec::new(),
        flaw: None,
        opens: header.not_before,
        closes: header.expires,
        evidence: Vec::new(),
    };
    let tiers = match tiers(question) {
        Ok(tiers) => tiers,
        Err(flaw) => {
            tally.flaw = Some(flaw);
            return tally;
        }
    };
    let mut yes: BTreeMap<Name, Vec<Yes>> = BTreeMap::new();
    for (place, raw) in question.statements.iter().enumerate() {
        match vote(question, &tiers, place, raw) {
            Err(refused) => tally.refused.push(refused),
            Ok((who, Vote::No)) => drop(tally.no.insert(who)),
            Ok((who, Vote::Withdrawn)) => drop(tally.withdrawn.insert(who)),
            Ok((who, Vote::Yes(vote))) => yes.entry(who).or_default().push(vote),
        }
    }
    yes.retain(|who, _| !tally.no.contains(who) && !tally.withdrawn.contains(who));
    let policies = [(question.named, tiers[0]), (question.present, tiers[1])];
    let moments: BTreeSet<Timestamp> = yes.values().flatten().map(|vote| vote.from.max(header.not_before)).collect();
    // The first moment at which those who count then are enough.
    let opens = moments.into_iter().find(|moment| {
        let there: BTreeSet<Name> = counting(&yes, Some(*moment)).into_keys().cloned().collect();
        missing(&there, &policies).is_empty()
    });
    tally.opens = opens.unwrap_or(header.not_before);
    let mut carry = counting(&yes, opens);
    if opens.is_some() {
        spare(&mut carry, question.statements, &policies);
    }
    for vote in carry.values() {
        tally.closes = tally.closes.min(vote.until);
        tally.evidence.push(vote.place);
    }
    tally.yes = yes.into_keys().collect();
    tally.missing = missing(&tally.yes, &policies);
    if tally.missing.is_empty() && opens.is_none() {
        tally.missing.push("approvals that count at the same time".to_owned());
    }
    tally.flaw = if question.now > header.expires { Some(Flaw::Expired(header.expires)) } else { None };
    tally.approved = tally.flaw.is_none() && tally.no.is_empty() && tally.missing.is_empty();
    tally
}

/// Of everybody the approval that counts at a moment, or at all, and of several the one that counts for longest.
fn counting(yes: &BTreeMap<Name, Vec<Yes>>, at: Option<Timestamp>) -> BTreeMap<&Name, &Yes> {
    let counts = |vote: &Yes| at.is_none_or(|at| vote.from <= at && at <= vote.until);
    let mut carry = BTreeMap::new();
    for (who, votes) in yes {
        let there = votes.iter().filter(|vote| counts(vote));
        carry.extend(there.min_by_key(|vote| std::cmp::Reverse(vote.until)).map(|vote| (who, vote)));
    }
    carry
}

/// Whether what somebody is about to say about a batch would count.
///
/// # Errors
/// With the reason why it would not.
pub fn may_say(question: &Question<'_>, word: Word, who: &Name, key: &TrustKey) -> Result<(), NoVote> {
    let tiers = tiers(question).map_err(NoVote::Flaw)?;
    let people = holder(who, key, &[question.named, question.present], question.revoked)?;
    entitled(question.header, &tiers, word, (who, key, &people))?;
    let tally = judge(question);
    match tally.flaw {
        Some(flaw) => Err(NoVote::Flaw(flaw)),
        None if !tally.no.is_empty() => Err(NoVote::Rejected(tally.no)),
        None if word != Word::Reject && tally.withdrawn.contains(who) => Err(NoVote::TakenBack(who.clone())),
        None => Ok(()),
    }
}

/// Who could still approve a batch that is judged so, with a key of theirs that counts.
#[must_use]
pub fn candidates(question: &Question<'_>, tally: &Tally) -> BTreeSet<Name> {
    let Ok(tiers) = tiers(question) else { return BTreeSet::new() };
    let spoke = |who: &Name| tally.yes.contains(who) || tally.no.contains(who) || tally.withdrawn.contains(who);
    let counts = |who: &Name, key: &TrustKey| {
        holder(who, key, &[question.named, question.present], question.revoked)
            .and_then(|people| entitled(question.header, &tiers, Word::Approve, (who, key, &people)))
            .is_ok()
    };
    let keys = question.present.keys().filter_map(|key| Some((question.present.holder(key)?.0, key)));
    keys.filter(|(who, key)| !spoke(who) && counts(who, key)).map(|(who, _)| who.clone()).collect()
}

/// Whether a batch that is judged so can still be approved: those who could and those who did would be enough.
#[must_use]
pub fn attainable(question: &Question<'_>, tally: &Tally) -> bool {
    let Ok([named, present]) = tiers(question) else { return false };
    let all = tally.yes.iter().cloned().chain(candidates(question, tally)).collect();
    missing(&all, &[(question.named, named), (question.present, present)]).is_empty()
}

/// Leaves out whoever is not needed, the largest statement first: what travels to a node is small.
fn spare(carry: &mut BTreeMap<&Name, &Yes>, statements: &[Vec<u8>], policies: &[(&Policy, &Tier)]) {
    let mut people: Vec<&Name> = carry.keys().copied().collect();
    people.sort_by_key(|who| std::cmp::Reverse(carry.get(who).map_or(0, |vote| statements[vote.place].len())));
    for who in people {
        let others = carry.keys().filter(|other| **other != who).map(|other| (*other).clone()).collect();
        if missing(&others, policies).is_empty() {
            carry.remove(who);
        }
    }
}

/// The tier that a batch is in, under the policy that it names and under the present one.
fn tiers<'a>(question: &Question<'a>) -> Result<[&'a Tier; 2], Flaw> {
    let (header, named) = (question.header, question.named);
    if (header.under.epoch, header.under.digest) != (named.epoch(), named.digest()) {
        return Err(Flaw::OtherPolicy { named: header.under.epoch, present: named.epoch() });
    }
    let tiers = [tier(question, named)?, tier(question, question.present)?];
    for tier in tiers {
        if header.leaves > tier.max_nodes {
            return Err(Flaw::TooMany { leaves: header.leaves, most: tier.max_nodes });
        }
    }
    if !window_fits(header.not_before, header.expires, &tiers) {
        return Err(Flaw::Window);
    }
    Ok(tiers)
}

/// The tier of all kinds of a batch, which is the one that it is called by. A higher tier is no stand-in: other people may be
/// asked there.
fn tier<'p>(question: &Question<'_>, policy: &'p Policy) -> Result<&'p Tier, Flaw> {
    let header = question.header;
    let called = policy.tiers().iter().find(|tier| tier.name == header.tier);
    let called = called.ok_or_else(|| Flaw::UnknownTier(header.tier.clone()))?;
    for kind in question.kinds {
        let of = policy.tier_of(kind).ok_or_else(|| Flaw::NoTier(kind.clone()))?;
        if of.name != header.tier {
            let (tier, of) = (header.tier.clone(), of.name.clone());
            return Err(Flaw::OtherTier { tier, kind: kind.clone(), of });
        }
    }
    Ok(called)
}

fn vote(question: &Question<'_>, tiers: &[&Tier; 2], place: usize, raw: &[u8]) -> Result<(Name, Vote), RefusedVote> {
    let said = Said::read(raw).map_err(|why| RefusedVote { who: None, why: why.into() })?;
    let who = said.statement.principal.clone();
    match about(question, tiers, place, &said) {
        Ok(vote) => Ok((who, vote)),
        Err(why) => Err(RefusedVote { who: Some(who), why }),
    }
}

fn about(question: &Question<'_>, tiers: &[&Tier; 2], place: usize, said: &Said<'_>) -> Result<Vote, NoVote> {
    let (header, statement) = (question.header, &said.statement);
    let Body::Batch { word, batch, digest, plan_commit, tier, under, not_before, expires } = &statement.body else {
        return Err(NoVote::OtherSubject);
    };
    if !said.is_for(&header.trust_domain, header.fleet) {
        return Err(NoVote::OtherFleet);
    }
    if *batch != header.name || *digest != header.digest() || *plan_commit != header.plan_commit {
        return Err(NoVote::OtherBatch);
    }
    if *tier != header.tier {
        return Err(NoVote::OtherTier(tier.clone()));
    }
    if *under != header.under {
        return Err(NoVote::OtherPolicy(under.epoch));
    }
    if said.commit.parents() != [header.plan_commit] || said.commit.tree() != header.plan_tree {
        return Err(NoVote::NotEmpty);
    }
    let (key, people) = person(said, &[question.named, question.present], question.revoked)?;
    let who = &statement.principal;
    entitled(header, tiers, *word, (who, key, &people))?;
    match word {
        Word::Reject => Ok(Vote::No),
        Word::Withdraw => Ok(Vote::Withdrawn),
        Word::Approve if !window_fits(*not_before, *expires, tiers) => Err(NoVote::Window),
        Word::Approve if question.now > *expires => Err(NoVote::Expired(*expires)),
        Word::Approve if *expires < header.not_before || header.expires < *not_before => {
            Err(NoVote::Apart { from: *not_before, until: *expires, begins: header.not_before, ends: header.expires })
        }
        Word::Approve => Ok(Vote::Yes(Yes { place, from: *not_before, until: *expires })),
    }
}

/// Whether a word is somebody's to say, as each policy knows them.
fn entitled(
    header: &BatchHeader,
    tiers: &[&Tier; 2],
    word: Word,
    (who, key, people): (&Name, &TrustKey, &[&Principal]),
) -> Result<(), NoVote> {
    match word {
        // Whoever may approve may say no, the proposer among them, and a no is never too late.
        Word::Reject => {
            let may = people.iter().zip(tiers).all(|(principal, tier)| tier.rule.names(principal));
            if may { Ok(()) } else { Err(NoVote::NoRole(who.clone())) }
        }
        Word::Withdraw => Ok(()),
        Word::Approve => eligible(who, key, people, tiers, |who| header.does_not_count().any(|other| other == who)),
    }
}

/// What is missing for a tier, in words; the same under both policies is said once.
pub(super) fn missing(yes: &BTreeSet<Name>, tiers: &[(&Policy, &Tier)]) -> Vec<String> {
    let mut missing: Vec<String> = Vec::new();
    for (policy, tier) in tiers {
        let needed = (tier.rule.threshold as usize).saturating_sub(yes.len());
        let mut words = Vec::new();
        if needed > 0 || tier.rule.threshold == 0 {
            let roles: Vec<&str> = tier.rule.roles.iter().map(Name::as_str).collect();
            let people = if needed == 1 { "one more person" } else { &format!("{needed} more people") };
            words.push(format!("{people} with the role {}", roles.join(" or ")));
        }
        for (group, open) in open_slots(yes, policy, tier) {
            words.push(format!("{open} of the group {group}"));
        }
        words.retain(|word| !missing.contains(word));
        missing.extend(words);
    }
    missing
}

/// The group slots that stay open when every person fills one slot at most, as well as they can be filled.
pub(crate) fn open_slots(yes: &BTreeSet<Name>, policy: &Policy, tier: &Tier) -> BTreeMap<Name, u32> {
    let slots: Vec<&Name> =
        tier.groups.iter().flat_map(|(group, count)| std::iter::repeat_n(group, *count as usize)).collect();
    let belongs = |who: &Name, group: &Name| {
        policy.principals().get(who).is_some_and(|principal| principal.groups.contains(group))
    };
    let people: Vec<&Name> = yes.iter().collect();
    let fits: Vec<Vec<usize>> = slots
        .iter()
        .map(|group| (0..people.len()).filter(|person| belongs(people[*person], group)).collect())
        .collect();
    let mut taken: Vec<Option<usize>> = vec![None; people.len()];
    let mut open = BTreeMap::new();
    for (slot, group) in slots.into_iter().enumerate() {
        if !fill(slot, &fits, &mut taken, &mut vec![false; people.len()]) {
            *open.entry(group.clone()).or_insert(0) += 1;
        }
    }
    open
}

/// Finds a person for a slot, moving others to other slots when that makes room.
fn fill(slot: usize, fits: &[Vec<usize>], taken: &mut [Option<usize>], asked: &mut [bool]) -> bool {
    for person in &fits[slot] {
        if std::mem::replace(&mut asked[*person], true) {
            continue;
        }
        if taken[*person].is_none_or(|other| fill(other, fits, taken, asked)) {
            taken[*person] = Some(slot);
            return true;
        }
    }
    false
}
