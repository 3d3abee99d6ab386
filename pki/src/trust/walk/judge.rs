//! One commit after the other, each judged by the policy at its parent.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    fleet::trust::{FOLDER, PrincipalKind, Touched, Unknown, touched},
    name::Name,
};

use super::{
    Accepted, Epoch, FileChange, History, Judged, Memory, Refusal, Signer,
    ahead::Ahead,
    chain::{Chain, tree_of},
    gone::Gone,
};
use crate::trust::{
    commit::Commit,
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    policy::{self, KeyState, Policy, Principal, Rule},
    revoked::{Revocation, Revocations},
    signature::signer,
    spoken::{Said, Statements},
    statement::{Body, FleetId, Step},
};

/// What the first commit of a chain is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Begin {
    /// The anchor, which its own policy judges.
    Anchor,
    /// A commit that was judged before.
    Behind,
    /// The beginning of a rewritten history that these accept.
    Sealed(Vec<Name>),
}

/// A commit behind an anchor that brought no policy.
fn unjudged(format: ObjectFormat, id: ObjectId, raw: &[u8]) -> Judged {
    let subject = Commit::split(format, raw).map_or_else(|_| String::new(), |commit| commit.subject().to_owned());
    Judged { id, subject, signer: None, epoch: 0, verdict: Err(Refusal::NoPolicyInForce) }
}

/// What an error says of a commit's files, when it is about them.
fn about_files<H: History>(error: H::Error) -> Result<Refusal, H::Error> {
    match (H::unfit(&error), H::lacking(&error)) {
        (Some(why), _) => Ok(Refusal::Unfit(why)),
        (None, Some(what)) => Ok(Refusal::Lacking(what)),
        (None, None) => Err(error),
    }
}

pub(super) struct Walker<'a, H> {
    history: &'a H,
    branch: &'a str,
    statements: &'a Statements<'a>,
    domain: &'a str,
    fleet: FleetId,
    /// The policies that came into force, by epoch.
    policies: BTreeMap<u64, Policy>,
    /// The policies that machines may have, where that is known.
    pub(super) handed_out: Option<&'a BTreeMap<u64, Digest>>,
    epochs: Vec<Epoch>,
    /// Whether the policy is gone from the tree.
    absent: bool,
    gone: Gone,
    ahead: Ahead,
    /// The revocations in force at this place, and those of later ones, each behind the commit of its place.
    revoked: Revocations,
    later: BTreeMap<ObjectId, Vec<Later<'a>>>,
    /// The place in the chain of the commit that is judged.
    at: usize,
}

/// What is heard behind a commit.
enum Later<'a> {
    /// A revocation that was judged when it was heard.
    Known(Revocation),
    /// One that nobody has judged.
    Said(&'a Said<'a>),
}

/// A commit that is being judged.
struct Case<'c> {
    commit: Commit<'c>,
    signer: Option<Signer>,
}

impl<'a, H: History> Walker<'a, H> {
    pub(super) fn new(
        history: &'a H,
        branch: &'a str,
        statements: &'a Statements<'a>,
        (domain, fleet): (&'a str, FleetId),
        policies: &BTreeMap<u64, Policy>,
        gone: Gone,
    ) -> Self {
        let (policies, epochs, revoked, later) =
            (policies.clone(), Vec::new(), Revocations::default(), BTreeMap::new());
        Self {
            history,
            branch,
            statements,
            domain,
            fleet,
            policies,
            handed_out: None,
            epochs,
            absent: false,
            gone,
            ahead: Ahead::default(),
            revoked,
            later,
            at: 0,
        }
    }

    /// Takes over the revocations of a memory, each at its place. Without a memory each statement is heard right behind the commit that
    /// it calls the last good one; where that is not of this history, at the beginning.
    pub(super) fn remember(&mut self, chain: &Chain, memory: &Memory, heard: bool) {
        let ids: BTreeSet<ObjectId> = chain.iter().map(|(id, _)| *id).collect();
        for one in memory.revoked.iter() {
            match one.place.filter(|place| ids.contains(place)) {
                Some(place) => self.later.entry(place).or_default().push(Later::Known(one.clone())),
                None => self.revoked.recall(one.clone()),
            }
        }
        let first = chain.first().map(|(id, _)| *id);
        for (said, last_good) in self.statements.revoking().filter(|_| !heard) {
            if let Some(place) = Some(last_good).filter(|place| ids.contains(place)).or(first) {
                self.later.entry(place).or_default().push(Later::Said(said));
            }
        }
    }

    pub(super) fn into_learnt(mut self) -> (Revocations, BTreeMap<u64, Policy>, Vec<Epoch>) {
        // What has its place behind the last commit that counts stays known.
        for later in std::mem::take(&mut self.later).into_values().flatten() {
            if let Later::Known(one) = later {
                self.revoked.recall(one);
            }
        }
        (self.revoked, self.policies, self.epochs)
    }

    /// Hears what has its place behind a commit that counts.
    fn hear(&mut self, id: ObjectId) {
        let Some(later) = self.later.remove(&id) else { return };
        let newest = self.policies.values().next_back();
        for later in later {
            match (later, newest) {
                (Later::Known(one), _) => self.revoked.recall(one),
                (Later::Said(said), Some(newest)) => self.revoked.take(said, newest, Some(id)),
                (Later::Said(_), None) => {}
            }
        }
    }

    /// Judges the commits of a chain, and so many behind the first that is refused.
    pub(super) fn pass(&mut self, chain: &Chain, begin: &Begin, beyond: usize) -> Result<Vec<Judged>, H::Error> {
        let mut commits: Vec<Judged> = Vec::with_capacity(chain.len());
        let (mut policy, mut before) = (self.policies.values().next_back().cloned(), None);
        let (mut stands, mut left) = (true, beyond);
        for (index, (id, raw)) in chain.iter().enumerate() {
            self.at = index;
            if !stands {
                match left.checked_sub(1) {
                    Some(fewer) => left = fewer,
                    None => break,
                }
            }
            if let Some(policy) = policy.as_ref().filter(|_| index > 0 || *begin != Begin::Behind) {
                self.ahead.look(self.history, chain, index, before, policy);
            }
            let judged = match (&policy, begin) {
                (_, Begin::Behind) if index == 0 => None,
                (Some(policy), Begin::Sealed(by)) if index == 0 => Some(self.sealed(*id, raw, policy, by)?),
                (Some(policy), _) => Some(self.step(*id, raw, before, policy)?),
                (None, Begin::Anchor) if index == 0 => Some(self.anchor(*id, raw)?),
                (None, _) => Some(unjudged(self.history.format(), *id, raw)),
            };
            if let Some(epoch) = judged.as_ref().and_then(Judged::brings) {
                policy = self.policies.get(&epoch).cloned();
                self.ahead = Ahead::default();
            }
            stands &= judged.as_ref().is_none_or(|judged| judged.verdict.is_ok());
            if stands {
                self.hear(*id);
            }
            before = tree_of(self.history.format(), raw).or(before);
            commits.extend(judged);
        }
        Ok(commits)
    }

    /// The first commit of a rewritten history: its policy is the one in force.
    fn sealed(&mut self, id: ObjectId, raw: &[u8], policy: &Policy, by: &[Name]) -> Result<Judged, H::Error> {
        let mut judged = unjudged(self.history.format(), id, raw);
        judged.epoch = policy.epoch();
        judged.verdict = match self.split(id, raw) {
            Err(refusal) => Err(refusal),
            Ok(commit) => {
                judged.signer = self.signed_by(&commit, policy).ok();
                match self.holds_policy(&commit, policy) {
                    Err(error) => Err(about_files::<H>(error)?),
                    Ok(held) => held.map(|()| Accepted::Resealed(by.to_vec())),
                }
            }
        };
        Ok(judged)
    }

    /// Whether a commit holds the policy in force, and is of the same fleet.
    fn holds_policy(&self, commit: &Commit<'_>, policy: &Policy) -> Result<Result<(), Refusal>, H::Error> {
        let folder = self.history.trust(commit.tree())?;
        let held = folder.policy.as_deref().and_then(|bytes| policy::check(bytes).policy);
        let domain = self.history.trust_domain(commit.tree())?;
        Ok(match (held, folder.others.into_iter().next()) {
            (_, Some(path)) => Err(Refusal::StrayTrustFile(path)),
            (None, None) => Err(Refusal::TrustRemoved),
            (Some(held), None) if held.digest() != policy.digest() => {
                Err(Refusal::ResealsTrust { in_force: policy.digest(), found: held.digest() })
            }
            (Some(_), None) if domain.as_deref() != Some(self.domain) => {
                Err(Refusal::OtherTrustDomain { expected: self.domain.to_owned(), found: domain })
            }
            (Some(_), None) => Ok(()),
        })
    }

    /// The different people who say something about a change, by a key that still counts.
    fn people(&self, policy: &Policy, rule: &Rule, says: impl Fn(&Body) -> bool) -> BTreeSet<Name> {
        let counts = |key: &TrustKey| self.gone.at(key, self.at).is_none() && !self.revoked.denies(key);
        self.statements.people(policy, rule, says, counts)
    }

    /// Whether a key counts where people agree to a policy.
    fn votes(&self, key: &TrustKey, policy: &Policy, rule: &Rule) -> bool {
        self.gone.at(key, self.at).is_none() && !self.revoked.denies_vote(key, policy, rule)
    }

    /// Who signed a commit, by a key that still signs.
    fn signed_by(&self, commit: &Commit<'_>, policy: &Policy) -> Result<Signer, Refusal> {
        let key = match self.ahead.signer(self.at) {
            Some(key) => key,
            None => signer(commit, policy.keys()).map_err(Refusal::Signature)?,
        };
        match policy.state(key) {
            KeyState::Good => {}
            KeyState::Retired => return Err(Refusal::KeyRetired(key.name())),
            KeyState::Compromised { since } => return Err(Refusal::KeyCompromised { key: key.name(), since }),
        }
        if let Some(gone) = self.gone.at(key, self.at) {
            return Err(Refusal::KeyCompromised { key: key.name(), since: gone.since });
        }
        if let Some(revoked) = self.revoked.by(key) {
            return Err(Refusal::KeyRevoked { key: key.name(), by: revoked.by.clone() });
        }
        let (principal, held) = policy.holder(key).expect("a key of a policy has a holder");
        Ok(Signer { principal: principal.clone(), kind: held.kind, key: key.clone() })
    }

    /// Judges the first commit by its own policy.
    fn anchor(&mut self, id: ObjectId, raw: &[u8]) -> Result<Judged, H::Error> {
        let mut judged = unjudged(self.history.format(), id, raw);
        judged.verdict = match self.split(id, raw) {
            Err(refusal) => Err(refusal),
            Ok(commit) => match self.bring(&commit, None) {
                Err(error) => Err(about_files::<H>(error)?),
                Ok(Err(refusal)) => Err(refusal),
                Ok(Ok(policy)) => {
                    judged.epoch = policy.epoch();
                    let verdict = self.begin(&commit, &policy, &mut judged.signer);
                    if verdict.is_ok() {
                        let bytes = self.history.trust(commit.tree())?.policy.unwrap_or_default();
                        self.keep(policy, commit.id(), Vec::new(), bytes);
                    }
                    verdict
                }
            },
        };
        Ok(judged)
    }

    /// Whether enough people of the first policy stand behind it. Whoever signs the anchor is one of them: its id is
    /// confirmed by an operator, so nothing rests on the names of its objects.
    fn begin(&self, commit: &Commit<'_>, policy: &Policy, signer: &mut Option<Signer>) -> Result<Accepted, Refusal> {
        let own = self.signed_by(commit, policy)?;
        let step = Step { prev: Digest::from_bytes([0; 32]), next: policy.digest(), epoch: policy.epoch() };
        let mut by = self.people(policy, policy.trust(), |body| *body == Body::Trust(step));
        let principal = &policy.principals()[&own.principal];
        if principal.kind == PrincipalKind::Human && policy.trust().names(principal) {
            by.insert(own.principal.clone());
        }
        *signer = Some(own);
        let needed = policy.trust().threshold;
        if by.len() < needed as usize {
            return Err(Refusal::TrustThreshold { whose: "the first", needed, by: by.into_iter().collect(), step });
        }
        Ok(Accepted::Anchor)
    }

    /// Judges a commit by the policy at its parent, whose tree is `before`.
    fn step(
        &mut self,
        id: ObjectId,
        raw: &[u8],
        before: Option<ObjectId>,
        policy: &Policy,
    ) -> Result<Judged, H::Error> {
        let mut judged = unjudged(self.history.format(), id, raw);
        judged.epoch = policy.epoch();
        let commit = match self.split(id, raw) {
            Ok(commit) => commit,
            Err(refusal) => {
                judged.verdict = Err(refusal);
                return Ok(judged);
            }
        };
        let before = before.unwrap_or_else(|| commit.tree());
        let mut case = Case { commit, signer: None };
        judged.verdict = match self.judge(&mut case, before, policy) {
            Err(error) => Err(about_files::<H>(error)?),
            Ok(verdict) => verdict,
        };
        judged.signer = case.signer;
        Ok(judged)
    }

    /// Takes a commit apart, and proves that it has the name it is called by.
    fn split<'r>(&self, id: ObjectId, raw: &'r [u8]) -> Result<Commit<'r>, Refusal> {
        let commit = Commit::split(self.history.format(), raw).map_err(Refusal::Malformed)?;
        if commit.id() == id { Ok(commit) } else { Err(Refusal::WrongObject(commit.id())) }
    }

    fn judge(
        &mut self,
        case: &mut Case<'_>,
        before: ObjectId,
        policy: &Policy,
    ) -> Result<Result<Accepted, Refusal>, H::Error> {
        // Who signed it is known before any of its files is looked at.
        let signed = self.signed_by(&case.commit, policy);
        case.signer = signed.as_ref().ok().cloned();
        if before != case.commit.tree() {
            self.absent = match (self.history.trust(case.commit.tree()), &signed) {
                (Ok(folder), _) => folder.policy.is_none(),
                // Who signed nothing keeps nobody from an answer by files that cannot be read.
                (Err(_), Err(refusal)) => return Ok(Err(refusal.clone())),
                (Err(error), Ok(_)) => return Err(error),
            };
        }
        // Whatever else is wrong: without a policy nothing moves, and that is what people have to see.
        if self.absent {
            return Ok(Err(Refusal::TrustRemoved));
        }
        let signer = match signed {
            Ok(signer) => signer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if case.commit.parents().len() > 2 {
            return Ok(Err(Refusal::Octopus(case.commit.parents().len())));
        }
        let changes = self.history.changes(before, case.commit.tree())?;
        let changes = changes.as_slice();
        let trust = changes.iter().any(|change| is_trust(&change.path));
        let principal = &policy.principals()[&signer.principal];
        let needed = match self.granted(changes, (&signer, principal), policy)? {
            Ok(needed) => needed,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // What no word mends is said before people are asked for theirs.
        let brought = if trust { Some(self.bring_alone(case, changes, policy)?) } else { None };
        let brought = match brought.transpose() {
            Ok(brought) => brought,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let vouched = match self.vouched(case, changes, &signer, needed, policy) {
            Ok(vouched) => vouched,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match brought {
            Some(new) => self.trust_change(case, policy, new),
            None => Ok(Ok(if vouched.is_empty() { Accepted::Granted } else { Accepted::Vouched(vouched) })),
        }
    }

    /// Whether the signer may change all of it, and how many others have to vouch, because of which file.
    fn granted(
        &self,
        changes: &[FileChange],
        (signer, principal): (&Signer, &Principal),
        policy: &Policy,
    ) -> Result<Result<(u32, String), Refusal>, H::Error> {
        let forge = signer.kind == PrincipalKind::Forge;
        let usual = policy.change().map(|rule| rule.threshold);
        let mut needed = if forge { (usual.unwrap_or(1), String::new()) } else { (0, String::new()) };
        for change in changes {
            if !forge && !policy.grants(principal, &change.path) {
                let rules = policy.rules_of(&change.path).map(|rule| rule.pattern.clone()).collect();
                return Ok(Err(Refusal::PathNotGranted { path: change.path.clone(), rules }));
            }
            // A policy holds no objects of the fleet; what it needs is asked for by itself.
            let touched = if is_trust(&change.path) { Touched::default() } else { self.touched(change)? };
            if forge && (touched.batches || change.path.starts_with("batches/")) {
                return Ok(Err(Refusal::ForgeCannotPropose(change.path.clone())));
            }
            let said = policy.rules_of(&change.path).filter_map(|rule| rule.changes).max();
            let watched = touched.hosts || touched.releases;
            let changes = said.unwrap_or(if watched { usual.unwrap_or(1) } else { 0 });
            // Where others have to look, one of them stands in for the signer that a forge is not.
            let changes = if forge && changes > 0 { changes.saturating_add(1) } else { changes };
            if changes > needed.0 {
                needed = (changes, change.path.clone());
            }
        }
        Ok(Ok(needed))
    }

    /// Who vouches, when they are enough.
    fn vouched(
        &self,
        case: &Case<'_>,
        changes: &[FileChange],
        signer: &Signer,
        (needed, path): (u32, String),
        policy: &Policy,
    ) -> Result<Vec<Name>, Refusal> {
        if needed == 0 {
            return Ok(Vec::new());
        }
        let forge = signer.kind == PrincipalKind::Forge;
        let (base, tree) =
            (case.commit.parents().first().copied().unwrap_or_else(|| case.commit.id()), case.commit.tree());
        // Nobody vouches for an own change, and who vouches for a forge's may change all of it.
        let may = |name: &Name, principal: &Principal| {
            *name != signer.principal && (!forge || changes.iter().all(|change| policy.grants(principal, &change.path)))
        };
        let Some(rule) = policy.change() else {
            return Err(Refusal::NotVouched {
                needed,
                by: [].into(),
                may: [].into(),
                path: path.into(),
                forge,
                base,
                tree,
            });
        };
        let said = self.people(policy, rule, |body| match body {
            Body::Change { branch, base: follows, tree: same, under, .. } => {
                branch == self.branch
                    && (*follows, *same) == (base, tree)
                    && under.epoch == policy.epoch()
                    && under.digest == policy.digest()
            }
            _ => false,
        });
        let by: Vec<Name> = said.into_iter().filter(|name| may(name, &policy.principals()[name])).collect();
        if by.len() >= needed as usize {
            return Ok(by);
        }
        let others = policy.principals().iter().filter(|(name, principal)| {
            principal.kind == PrincipalKind::Human
                && rule.names(principal)
                && may(name, principal)
                && principal.keys.iter().any(|key| self.is_good(key, policy))
                && !by.contains(name)
        });
        let may: Box<[Name]> = others.map(|(name, _)| name.clone()).collect();
        Err(Refusal::NotVouched { needed, by: by.into(), may, path: path.into(), forge, base, tree })
    }

    /// Whether a key says what counts, at this place.
    fn is_good(&self, key: &TrustKey, policy: &Policy) -> bool {
        policy.state(key) == KeyState::Good && self.gone.at(key, self.at).is_none() && !self.revoked.denies(key)
    }

    /// The policy that a change of trust brings, which stands alone.
    fn bring_alone(
        &self,
        case: &Case<'_>,
        changes: &[FileChange],
        old: &Policy,
    ) -> Result<Result<Policy, Refusal>, H::Error> {
        match changes.iter().find(|change| !is_trust(&change.path)) {
            Some(other) => Ok(Err(Refusal::TrustMixed(other.path.clone()))),
            None => self.bring(&case.commit, Some(old)),
        }
    }

    /// What a file's change touches beyond its path.
    fn touched(&self, change: &FileChange) -> Result<Touched, H::Error> {
        let read = |id: Option<ObjectId>| id.map_or(Ok(Some(None)), |id| Ok(self.history.file(id)?.map(Some)));
        Ok(match (read(change.before)?, read(change.after)?) {
            (Some(before), Some(after)) => touched(&change.path, before.as_deref(), after.as_deref()),
            // Too large to be a fleet file on one side: taken for anything.
            _ => Touched { batches: true, releases: true, hosts: true },
        })
    }

    /// The policy in a commit's tree, which follows the one before.
    fn bring(&self, commit: &Commit<'_>, before: Option<&Policy>) -> Result<Result<Policy, Refusal>, H::Error> {
        let folder = self.history.trust(commit.tree())?;
        if let Some(path) = folder.others.into_iter().next() {
            return Ok(Err(Refusal::StrayTrustFile(path)));
        }
        let Some(bytes) = folder.policy else { return Ok(Err(Refusal::TrustRemoved)) };
        Ok(policy::follows(&bytes, before, Unknown::Refused))
    }

    /// Notes a policy that came into force.
    fn keep(&mut self, policy: Policy, commit: ObjectId, statements: Vec<Vec<u8>>, bytes: Vec<u8>) {
        let (epoch, digest) = (policy.epoch(), policy.digest());
        self.epochs.push(Epoch { epoch, digest, policy: bytes, commit, statements });
        self.policies.insert(epoch, policy);
    }

    /// A change of the policy: agreed to by the old one and by the new one, and every new key proves itself.
    fn trust_change(
        &mut self,
        case: &Case<'_>,
        old: &Policy,
        new: Policy,
    ) -> Result<Result<Accepted, Refusal>, H::Error> {
        let handed_out = self.handed_out.and_then(|policies| policies.get(&new.epoch()));
        if let Some(&handed_out) = handed_out.filter(|digest| **digest != new.digest()) {
            return Ok(Err(Refusal::EpochTaken { epoch: new.epoch(), handed_out }));
        }
        let statements = self.statements;
        let by = match policy::agreed(old, &new, statements, |key, policy, rule| self.votes(key, policy, rule)) {
            Ok(by) => by,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let epoch = new.epoch();
        let step = Step { prev: old.digest(), next: new.digest(), epoch };
        let raw = statements.of_step(step, [old, &new], |key, policy, rule| self.votes(key, policy, rule));
        let bytes = self.history.trust(case.commit.tree())?.policy.unwrap_or_default();
        // A node has what is stored and nothing else.
        if let Err(refusal) = policy::step(old, &bytes, &raw, self.domain, self.fleet, &mut self.revoked) {
            return Ok(Err(refusal));
        }
        self.keep(new, case.commit.id(), raw, bytes);
        Ok(Ok(Accepted::TrustChange { epoch, by: by.into_iter().collect() }))
    }
}

fn is_trust(path: &str) -> bool {
    path.strip_prefix(FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
