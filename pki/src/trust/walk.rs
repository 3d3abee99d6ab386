//! The history walk: what the trust policy concludes about each first-parent commit since the anchor, and why.
//!
//! ```text
//! anchor ── c1 ── c2 ── c3 … tip      every commit is judged by the policy at its parent, never by its own
//! ```
//!
//! Forward only, along first parents. What a merge brings in from its other parents is the business of whoever signed the
//! merge: that signature answers for the whole difference to the first parent. A commit that is refused stops the history
//! there; what comes behind it is judged all the same, for people to see, and does not count.
//!
//! Pure: commits, trees and statements come through [`History`], and time does not come at all. A date in a commit is never
//! looked at.

mod refusal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    digest::Digest,
    fleet::trust::{FILE, FOLDER, PrincipalKind, Touched, Unknown, touched},
    name::Name,
};

pub use refusal::Refusal;

use super::{
    commit::Commit,
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    policy::{self, KeyState, Policy, Principal},
    signature::signer,
    spoken::{Heard, Said, Statements},
    statement::{Body, FleetId, Step},
};

/// How far back a chain is walked.
pub const MOST_COMMITS: usize = 100_000;
/// Bytes of the commits of a chain together.
const MOST_BYTES: usize = 256 << 20;
/// Statements that are looked at.
pub const MOST_STATEMENTS: usize = 4_096;

/// What the walk reads. All paths are below the fleet's root.
pub trait History {
    /// Why something could not be read.
    type Error;

    /// How the repository names its objects.
    fn format(&self) -> ObjectFormat;

    /// The raw bytes of a commit; `None` when it was left out of the repository (a shallow clone).
    ///
    /// # Errors
    /// When it is damaged.
    fn commit(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Self::Error>;

    /// The trust domain that the fleet file of a tree names.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn trust_domain(&self, tree: ObjectId) -> Result<Option<String>, Self::Error>;

    /// The files that differ between two trees.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn changes(&self, before: ObjectId, after: ObjectId) -> Result<Vec<FileChange>, Self::Error>;

    /// What is in the folder of trust.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    fn trust(&self, tree: ObjectId) -> Result<TrustFolder, Self::Error>;

    /// The bytes of a file; `None` when there are more than a fleet file may have.
    ///
    /// # Errors
    /// When it is missing or damaged.
    fn file(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Where it is, below the fleet's root.
    pub path: String,
    /// What it was; `None` when it was not there, or was no file.
    pub before: Option<ObjectId>,
    /// What it is; `None` when it is not there, or is no file.
    pub after: Option<ObjectId>,
}

/// What is in the folder of trust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustFolder {
    /// The policy's bytes, when it is a plain file that is not too large.
    pub policy: Option<Vec<u8>>,
    /// Whatever else lies there.
    pub others: Vec<String>,
}

/// What is walked.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// The branch, as statements name it.
    pub branch: &'a str,
    /// The commit to end at.
    pub tip: ObjectId,
    /// The commit to begin at. Without one it is the first that holds a policy, and nobody has confirmed it.
    pub anchor: Option<ObjectId>,
    /// Raw commits that may be statements.
    pub statements: &'a [Heard],
}

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
    /// The anchor is not among the first parents of the tip.
    #[error("{tip} does not follow {anchor} along first parents: the history was rewritten, or the anchor is of another one", tip = .tip.short(), anchor = .anchor.short())]
    HistoryDiverged {
        /// The anchor.
        anchor: ObjectId,
        /// The tip.
        tip: ObjectId,
    },
    /// A commit was left out.
    #[error("the commit {at} is not in the repository: a shallow clone has no history to verify", at = .0.short())]
    HistoryIncomplete(ObjectId),
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
            Self::TooLong => "history-too-long",
        }
    }
}

/// What a walk concludes.
#[derive(Debug, Clone)]
pub struct Walked {
    /// The trust domain that the fleet file at the anchor names.
    pub trust_domain: String,
    /// Which fleet it is.
    pub fleet: FleetId,
    /// The policy in force at the last commit that counts; `None` when the anchor does not.
    pub policy: Option<Policy>,
    /// Every commit, the anchor first.
    pub commits: Vec<Judged>,
}

impl Walked {
    /// How many commits count: those before the first that is refused.
    #[must_use]
    pub fn verified(&self) -> usize {
        self.commits.iter().position(|commit| commit.verdict.is_err()).unwrap_or(self.commits.len())
    }
}

/// Walks a history.
///
/// # Errors
/// When an object that is needed is damaged. What the history itself is refused for is in the answer.
pub fn walk<H: History>(history: &H, walk: &Walk<'_>) -> Result<Result<Walked, Stuck>, H::Error> {
    let chain = match chain(history, walk)? {
        Ok(chain) => chain,
        Err(stuck) => return Ok(Err(stuck)),
    };
    let Some((anchor, raw)) = chain.first() else { return Ok(Err(Stuck::NoPolicy)) };
    let tree = tree_of(history.format(), raw);
    let Some(domain) = tree.map_or(Ok(None), |tree| history.trust_domain(tree))? else {
        return Ok(Err(Stuck::NoTrustDomain(*anchor)));
    };
    let fleet = FleetId::of(&domain, anchor);
    let statements = Statements::heard(walk.statements, &domain, fleet);
    // What a key signed may stop to count by something that is said later: then the walk begins again, knowing it. Each
    // time more keys are gone, so it ends.
    let mut gone = Gone::default();
    loop {
        let (policies, domain) = (BTreeMap::new(), domain.as_str());
        let mut walker =
            Walker { history, walk, statements: &statements, domain, fleet, policies, absent: false, gone, at: 0 };
        let commits = walker.pass(&chain)?;
        let known = walker.gone.clone().and(&chain, statements.revocations(&walker.policies), &walker.policies);
        if known == walker.gone {
            let counts = commits.iter().take_while(|commit| commit.verdict.is_ok()).filter_map(Judged::brings).last();
            let policy = counts.and_then(|epoch| walker.policies.remove(&epoch));
            return Ok(Ok(Walked { trust_domain: domain.to_owned(), fleet, policy, commits }));
        }
        gone = known;
    }
}

/// Keys of which something that they signed does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Gone(BTreeMap<String, GoneKey>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GoneKey {
    /// The place in the chain of the first commit that does not count.
    from: usize,
    since: Option<ObjectId>,
}

impl Gone {
    /// These and what people and policies say of others.
    fn and(
        mut self,
        chain: &Chain,
        revoked: impl Iterator<Item = (String, Option<ObjectId>)>,
        policies: &BTreeMap<u64, Policy>,
    ) -> Self {
        let declared = policies.values().flat_map(Policy::compromised).map(|(key, since)| (key.to_owned(), since));
        for (key, since) in revoked.chain(declared) {
            let last_good = since.and_then(|since| chain.iter().position(|(id, _)| *id == since));
            // A last good commit that is not of this history says nothing good of any.
            let from = last_good.map_or(0, |index| index + 1);
            let known = self.0.entry(key).or_insert(GoneKey { from, since });
            if from < known.from {
                *known = GoneKey { from, since };
            }
        }
        self
    }

    /// What is known against a key at a place of the chain.
    fn of(&self, key: &TrustKey, at: usize) -> Option<GoneKey> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key.name()).copied().filter(|gone| gone.from <= at)
    }
}

impl Judged {
    /// The epoch of the policy that it brings into force.
    const fn brings(&self) -> Option<u64> {
        match self.verdict {
            Ok(Accepted::Anchor) => Some(self.epoch),
            Ok(Accepted::TrustChange { epoch, .. }) => Some(epoch),
            Ok(Accepted::Granted | Accepted::Vouched(_)) | Err(_) => None,
        }
    }
}

type Chain = Vec<(ObjectId, Vec<u8>)>;

/// The commits from the anchor to the tip, oldest first.
fn chain<H: History>(history: &H, walk: &Walk<'_>) -> Result<Result<Chain, Stuck>, H::Error> {
    let mut chain = Vec::new();
    let (mut at, mut bytes) = (walk.tip, 0);
    loop {
        let Some(raw) = history.commit(at)? else { return Ok(Err(Stuck::HistoryIncomplete(at))) };
        let parent = first_parent(history.format(), &raw);
        bytes += raw.len();
        chain.push((at, raw));
        match parent {
            _ if walk.anchor == Some(at) => break,
            _ if chain.len() > MOST_COMMITS || bytes > MOST_BYTES => return Ok(Err(Stuck::TooLong)),
            Some(parent) => at = parent,
            None => match walk.anchor {
                Some(anchor) => return Ok(Err(Stuck::HistoryDiverged { anchor, tip: walk.tip })),
                None => break,
            },
        }
    }
    chain.reverse();
    if walk.anchor.is_none() {
        let mut begin = chain.len();
        for (index, (_, raw)) in chain.iter().enumerate() {
            let Some(tree) = tree_of(history.format(), raw) else { continue };
            if history.trust(tree)?.policy.is_some() {
                begin = index;
                break;
            }
        }
        chain.drain(..begin);
    }
    Ok(if chain.is_empty() { Err(Stuck::NoPolicy) } else { Ok(chain) })
}

/// The head of a commit that may be malformed: enough to find the way to the anchor, and never to conclude anything.
fn head(raw: &[u8]) -> Vec<&[u8]> {
    raw.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()).take(2).collect()
}

fn first_parent(format: ObjectFormat, raw: &[u8]) -> Option<ObjectId> {
    head(raw).get(1)?.strip_prefix(b"parent ").and_then(|digits| ObjectId::parse_as(format, digits))
}

fn tree_of(format: ObjectFormat, raw: &[u8]) -> Option<ObjectId> {
    head(raw).first()?.strip_prefix(b"tree ").and_then(|digits| ObjectId::parse_as(format, digits))
}

/// A commit behind an anchor that brought no policy.
fn unjudged(format: ObjectFormat, id: ObjectId, raw: &[u8]) -> Judged {
    let subject = Commit::split(format, raw).map_or_else(|_| String::new(), |commit| commit.subject().to_owned());
    Judged { id, subject, signer: None, epoch: 0, verdict: Err(Refusal::NoPolicyInForce) }
}

struct Walker<'a, H> {
    history: &'a H,
    walk: &'a Walk<'a>,
    statements: &'a Statements<'a>,
    domain: &'a str,
    fleet: FleetId,
    /// The policies that came into force, by epoch.
    policies: BTreeMap<u64, Policy>,
    /// Whether the policy is gone from the tree.
    absent: bool,
    gone: Gone,
    /// The place in the chain of the commit that is judged.
    at: usize,
}

/// A commit that is being judged.
struct Case<'c> {
    commit: Commit<'c>,
    raw: &'c [u8],
    signer: Option<Signer>,
}

impl<H: History> Walker<'_, H> {
    /// Judges every commit of a chain.
    fn pass(&mut self, chain: &Chain) -> Result<Vec<Judged>, H::Error> {
        let mut commits: Vec<Judged> = Vec::with_capacity(chain.len());
        let (mut policy, mut before): (Option<Policy>, Option<ObjectId>) = (None, None);
        for (index, (id, raw)) in chain.iter().enumerate() {
            self.at = index;
            let judged = match &policy {
                Some(policy) => self.step(*id, raw, before, policy)?,
                None if index == 0 => self.anchor(*id, raw)?,
                None => unjudged(self.history.format(), *id, raw),
            };
            if let Some(epoch) = judged.brings() {
                policy = self.policies.get(&epoch).cloned();
            }
            before = tree_of(self.history.format(), raw).or(before);
            commits.push(judged);
        }
        Ok(commits)
    }

    /// The different people who say something that still counts.
    fn people(
        &self,
        statements: &Statements<'_>,
        policy: &Policy,
        rule: &policy::Rule,
        says: impl Fn(&Body) -> bool,
    ) -> BTreeSet<Name> {
        statements.people(policy, rule, says, |key| self.gone.of(key, self.at).is_none())
    }

    /// Who signed a commit, by a key that still signs.
    fn signed_by(&self, commit: &Commit<'_>, policy: &Policy) -> Result<Signer, Refusal> {
        let key = signer(commit, policy.keys()).map_err(Refusal::Signature)?;
        match policy.state(key) {
            KeyState::Good => {}
            KeyState::Retired => return Err(Refusal::KeyRetired(key.name())),
            KeyState::Compromised { since } => return Err(Refusal::KeyCompromised { key: key.name(), since }),
        }
        if let Some(gone) = self.gone.of(key, self.at) {
            return Err(Refusal::KeyCompromised { key: key.name(), since: gone.since });
        }
        let (principal, held) = policy.holder(key).expect("a key of a policy has a holder");
        Ok(Signer { principal: principal.clone(), kind: held.kind, key: key.clone() })
    }

    /// Judges the first commit by its own policy.
    fn anchor(&mut self, id: ObjectId, raw: &[u8]) -> Result<Judged, H::Error> {
        let mut judged = unjudged(self.history.format(), id, raw);
        judged.verdict = match self.split(id, raw) {
            Err(refusal) => Err(refusal),
            Ok(commit) => match self.bring(&commit, None)? {
                Err(refusal) => Err(refusal),
                Ok(policy) => {
                    judged.epoch = policy.epoch();
                    let verdict = self.begin(&commit, &policy, &mut judged.signer);
                    if verdict.is_ok() {
                        self.policies.insert(policy.epoch(), policy);
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
        let mut by = self.people(self.statements, policy, policy.trust(), |body| *body == Body::Trust(step));
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
        let changes = self.history.changes(before, commit.tree())?;
        let mut case = Case { commit, raw, signer: None };
        judged.verdict = self.judge(&mut case, &changes, policy)?;
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
        changes: &[FileChange],
        policy: &Policy,
    ) -> Result<Result<Accepted, Refusal>, H::Error> {
        let trust = changes.iter().any(|change| is_trust(&change.path));
        if trust {
            self.absent = self.history.trust(case.commit.tree())?.policy.is_none();
        }
        // Whatever else is wrong: without a policy nothing moves, and that is what people have to see.
        if self.absent {
            case.signer = self.signed_by(&case.commit, policy).ok();
            return Ok(Err(Refusal::TrustRemoved));
        }
        let signer = match self.signed_by(&case.commit, policy) {
            Ok(signer) => signer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        case.signer = Some(signer.clone());
        if case.commit.parents().len() > 2 {
            return Ok(Err(Refusal::Octopus(case.commit.parents().len())));
        }
        let principal = &policy.principals()[&signer.principal];
        let vouched = match self.vouched(case, changes, (&signer, principal), policy)? {
            Ok(vouched) => vouched,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if !trust {
            return Ok(Ok(if vouched.is_empty() { Accepted::Granted } else { Accepted::Vouched(vouched) }));
        }
        if let Some(other) = changes.iter().find(|change| !is_trust(&change.path)) {
            return Ok(Err(Refusal::TrustMixed(other.path.clone())));
        }
        self.trust_change(case, policy)
    }

    /// Whether the signer may change all of it, and who has to vouch and does.
    fn vouched(
        &self,
        case: &Case<'_>,
        changes: &[FileChange],
        (signer, principal): (&Signer, &Principal),
        policy: &Policy,
    ) -> Result<Result<Vec<Name>, Refusal>, H::Error> {
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
        let (needed, path) = needed;
        if needed == 0 {
            return Ok(Ok(Vec::new()));
        }
        let base = case.commit.parents().first().copied().unwrap_or_else(|| case.commit.id());
        let mut by = policy.change().map_or_else(Default::default, |rule| {
            self.people(self.statements, policy, rule, |body| match body {
                Body::Change { branch, base: follows, tree, under, .. } => {
                    *branch == self.walk.branch
                        && *follows == base
                        && *tree == case.commit.tree()
                        && under.epoch == policy.epoch()
                        && under.digest == policy.digest()
                }
                _ => false,
            })
        });
        // Nobody vouches for an own change, and who vouches for a forge's may change all of it.
        by.remove(&signer.principal);
        if forge {
            let may =
                |name: &Name| changes.iter().all(|change| policy.grants(&policy.principals()[name], &change.path));
            by.retain(may);
        }
        let by: Vec<Name> = by.into_iter().collect();
        if by.len() < needed as usize {
            return Ok(Err(Refusal::NotVouched { needed, by, path, forge, base, tree: case.commit.tree() }));
        }
        Ok(Ok(by))
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

    /// A change of the policy: agreed to by the old one and by the new one, and every new key proves itself.
    fn trust_change(&mut self, case: &Case<'_>, old: &Policy) -> Result<Result<Accepted, Refusal>, H::Error> {
        let new = match self.bring(&case.commit, Some(old))? {
            Ok(new) => new,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // The commit's own message may be its signer's statement.
        let own = Said::read(case.raw, self.domain, self.fleet);
        let statements = self.statements.with(own.as_ref());
        let by = match policy::agreed(old, &new, &statements, |key| self.gone.of(key, self.at).is_none()) {
            Ok(by) => by,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let epoch = new.epoch();
        self.policies.insert(epoch, new);
        Ok(Ok(Accepted::TrustChange { epoch, by: by.into_iter().collect() }))
    }
}

fn is_trust(path: &str) -> bool {
    path.strip_prefix(FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
