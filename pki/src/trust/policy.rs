//! The trust policy: who may do what, by which keys. Made from its document by [`check`], which refuses what locks itself out or
//! weakens silently; from then on it only answers questions.

mod canonical;
mod judge;
mod reach;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    diagnostic::{Diagnostic, SourceMap, SourceRef, codes},
    digest::Digest,
    fleet::{
        Sources, pattern_covers,
        trust::{self, PrincipalKind, Revocation, Unknown},
    },
    name::Name,
    time::Duration,
};

pub use step::{MAX_BYTES, MAX_STATEMENTS, first, step};
pub(super) use step::{added, agreed, follows};

use super::{
    commit::Commit,
    key::{KeyClass, TrustKey},
    object::ObjectId,
    signature::signer,
};

/// Somebody or something with keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// What it is.
    pub kind: PrincipalKind,
    /// What it may do.
    pub roles: BTreeSet<Name>,
    /// What it belongs to.
    pub groups: BTreeSet<Name>,
    /// Its keys, revoked ones among them.
    pub keys: Vec<TrustKey>,
}

/// Who does something, and how many of them it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Who may.
    pub roles: BTreeSet<Name>,
    /// How many different people it takes.
    pub threshold: u32,
}

/// Who may change paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// The paths, as a pattern.
    pub pattern: String,
    /// Who may.
    pub roles: BTreeSet<Name>,
    /// Statements of others that a change needs, when the rule says so.
    pub changes: Option<u32>,
}

/// A class of destructive work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Its name.
    pub name: Name,
    /// What is done in it.
    pub commands: BTreeSet<String>,
    /// Who approves, and how many.
    pub rule: Rule,
    /// Of these groups so many.
    pub groups: BTreeMap<Name, u32>,
    /// Whose approval does not count.
    pub exclude: BTreeSet<Name>,
    /// Classes of keys that an approval is signed with; any when it is empty.
    pub keys: BTreeSet<String>,
    /// Machines that one batch has at most.
    pub max_nodes: u32,
    /// How long an approval holds at most.
    pub max_ttl: Duration,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It signs.
    Good,
    /// It signs no more; what it signed stays good.
    Retired,
    /// What it signed after a commit does not count; without one nothing does.
    Compromised {
        /// The last commit that it signed for its owner.
        since: Option<ObjectId>,
    },
}

/// A policy without contradictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    epoch: u64,
    prev: Option<Digest>,
    digest: Digest,
    unbatched_destructive_per_hour: u32,
    principals: BTreeMap<Name, Principal>,
    paths: Vec<PathRule>,
    tiers: Vec<Tier>,
    trust: Rule,
    change: Option<Rule>,
    reseal: Option<Rule>,
    revoke: Option<Rule>,
    releases: Option<Rule>,
    breakglass: Option<Tier>,
    revoked: BTreeMap<String, KeyState>,
}

/// What a policy's file turned out to be.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The policy; `None` when any diagnostic is an error.
    pub policy: Option<Policy>,
    /// Everything that was found.
    pub diagnostics: Vec<Diagnostic>,
    /// The text, for quoting.
    pub sources: SourceMap,
}

/// Reads and judges a policy.
#[must_use]
pub fn check(bytes: &[u8]) -> Checked {
    read(bytes, Unknown::Refused).1
}

/// The format that a policy names when it is a later one, and what it turned out to be.
fn read(bytes: &[u8], unknown: Unknown) -> (Option<u64>, Checked) {
    let read = trust::read(trust::FILE, bytes, unknown);
    let mut diagnostics = read.diagnostics;
    let policy = read.document.and_then(|document| judge::judge(&document, &mut diagnostics));
    schema::diagnostic::sort(&mut diagnostics);
    (read.later_format, Checked { policy, diagnostics, sources: read.sources })
}

/// Reads and judges the policy of a tree, with whatever else lies in its folder; `None` when the tree has no such folder.
#[must_use]
pub fn check_tree(tree: &Sources) -> Option<Checked> {
    let inside = |path: &&str| path.strip_prefix(trust::FOLDER).is_some_and(|rest| rest.starts_with('/'));
    let paths: Vec<&str> = tree.iter().map(|(path, _)| &**path).filter(inside).collect();
    if paths.is_empty() {
        return None;
    }
    let nothing = || Checked { policy: None, diagnostics: Vec::new(), sources: SourceMap::default() };
    let mut checked = match tree.get(trust::FILE) {
        Some(schema::fleet::SourceBlob::Bytes(bytes)) => check(bytes),
        // What is no file that can be read is told about the tree.
        _ => nothing(),
    };
    for path in paths.into_iter().filter(|path| *path != trust::FILE) {
        let message = format!("{} is the only file of this folder", trust::FILE);
        let stray = Diagnostic::new(codes::STRAY_TRUST_FILE, &SourceRef::start_of(path), message)
            .help("one file has one digest, which people sign: put what it says there, or move it elsewhere");
        checked.diagnostics.push(stray);
        checked.policy = None;
    }
    Some(checked)
}

impl Rule {
    /// Whether the rule names a role that a principal has.
    #[must_use]
    pub fn names(&self, principal: &Principal) -> bool {
        !self.roles.is_disjoint(&principal.roles)
    }
}

impl Policy {
    /// Counts the policies of a fleet.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The digest of the policy before; none in the first one.
    #[must_use]
    pub const fn prev(&self) -> Option<Digest> {
        self.prev
    }

    /// Its digest: `SHA-256("bc/trust/v1\0" ‖ canonical bytes)`. Comments and the order of nodes change nothing.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Who there is.
    #[must_use]
    pub const fn principals(&self) -> &BTreeMap<Name, Principal> {
        &self.principals
    }

    /// Who changes the policy.
    #[must_use]
    pub const fn trust(&self) -> &Rule {
        &self.trust
    }

    /// Who vouches for changes.
    #[must_use]
    pub const fn change(&self) -> Option<&Rule> {
        self.change.as_ref()
    }

    /// Who may revoke a key.
    #[must_use]
    pub const fn revoke(&self) -> Option<&Rule> {
        self.revoke.as_ref()
    }

    /// Who accepts a rewritten history; nobody may when there is no such rule.
    #[must_use]
    pub const fn reseal(&self) -> Option<&Rule> {
        self.reseal.as_ref()
    }

    /// Who signs releases of the daemon.
    #[must_use]
    pub const fn releases(&self) -> Option<&Rule> {
        self.releases.as_ref()
    }

    /// What an emergency allows, and to whom.
    #[must_use]
    pub const fn breakglass(&self) -> Option<&Tier> {
        self.breakglass.as_ref()
    }

    /// Destructive commands that a node does in an hour without a batch.
    #[must_use]
    pub const fn unbatched_destructive_per_hour(&self) -> u32 {
        self.unbatched_destructive_per_hour
    }

    /// The tier that a kind of command is in. A command is in one tier at most.
    #[must_use]
    pub fn tier_of(&self, kind: &str) -> Option<&Tier> {
        self.tiers.iter().find(|tier| tier.commands.contains(kind))
    }

    /// The tiers, the least harmful first.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Every key, revoked ones among them.
    pub fn keys(&self) -> impl Iterator<Item = &TrustKey> {
        self.principals.values().flat_map(|principal| &principal.keys)
    }

    /// Whose key it is.
    #[must_use]
    pub fn holder(&self, key: &TrustKey) -> Option<(&Name, &Principal)> {
        self.principals.iter().find(|(_, principal)| principal.keys.contains(key))
    }

    /// Who signed a commit by a key that this policy lists and does not call revoked.
    #[must_use]
    pub fn signer_of(&self, commit: &Commit<'_>) -> Option<(&Name, &Principal)> {
        let key = signer(commit, self.keys()).ok()?;
        if self.state(key) == KeyState::Good { self.holder(key) } else { None }
    }

    /// What became of a key of this policy.
    #[must_use]
    pub fn state(&self, key: &TrustKey) -> KeyState {
        self.revoked.get(&key.name()).copied().unwrap_or(KeyState::Good)
    }

    /// The keys that are compromised, with the last commit that each signed for its owner.
    pub fn compromised(&self) -> impl Iterator<Item = (&str, Option<ObjectId>)> {
        self.revoked.iter().filter_map(|(key, state)| match state {
            KeyState::Compromised { since } => Some((key.as_str(), *since)),
            KeyState::Good | KeyState::Retired => None,
        })
    }

    /// The rules that cover a path. A path without any is nobody's.
    pub fn rules_of(&self, path: &str) -> impl Iterator<Item = &PathRule> {
        self.paths.iter().filter(move |rule| pattern_covers(&rule.pattern, path))
    }

    /// Whether every rule that covers a path, and at least one does, names a role of a principal. A narrow rule narrows a
    /// wide one and never widens it.
    #[must_use]
    pub fn grants(&self, principal: &Principal, path: &str) -> bool {
        let mut rules = self.rules_of(path).peekable();
        rules.peek().is_some() && rules.all(|rule| !rule.roles.is_disjoint(&principal.roles))
    }

    /// Whether a principal may propose a file beside the branch. A proposal changes nothing by itself, so that for a service a rule for
    /// everything is not asked where a narrower one covers the path: whoever may propose batches need not be named where all is changed.
    #[must_use]
    pub fn lets_propose(&self, principal: &Principal, path: &str) -> bool {
        let narrow = || self.rules_of(path).filter(|rule| rule.pattern != "**");
        if principal.kind != PrincipalKind::Service || narrow().next().is_none() {
            return self.grants(principal, path);
        }
        narrow().all(|rule| !rule.roles.is_disjoint(&principal.roles))
    }

    /// What a policy that follows this one would forget: a key is one principal's for ever and stays listed, and what was
    /// revoked stays so.
    #[must_use]
    pub fn forgotten_by(&self, next: &Self) -> Option<String> {
        for (name, principal) in &self.principals {
            for key in &principal.keys {
                let holds = |principal: &Principal| principal.keys.iter().any(|held| held.raw() == key.raw());
                let heir = next.principals.iter().find(|(_, principal)| holds(principal));
                match heir {
                    None => return Some(format!("the key {} of {name} is left out", key.name())),
                    Some((heir, _)) if heir != name => {
                        return Some(format!("the key {} of {name} is given to {heir}", key.name()));
                    }
                    Some(_) => {}
                }
                let lost = match (self.state(key), next.state(key)) {
                    (KeyState::Retired, KeyState::Good) => true,
                    (before @ KeyState::Compromised { .. }, after) => before != after,
                    (KeyState::Good | KeyState::Retired, _) => false,
                };
                if lost {
                    return Some(format!("the key {} of {name} was revoked otherwise", key.name()));
                }
            }
        }
        None
    }

    /// The people who count under a rule and have a key that signs.
    pub fn eligible<'p>(&'p self, rule: &'p Rule) -> impl Iterator<Item = (&'p Name, &'p Principal)> {
        self.principals.iter().filter(move |(_, principal)| {
            principal.kind == PrincipalKind::Human && rule.names(principal) && self.signs(principal, &BTreeSet::new())
        })
    }

    /// Whether a principal has a good key of one of these classes; of any class when there are none.
    fn signs(&self, principal: &Principal, classes: &BTreeSet<String>) -> bool {
        let of = |class: KeyClass| classes.is_empty() || classes.contains(class.as_str());
        principal.keys.iter().any(|key| of(key.class()) && self.state(key) == KeyState::Good)
    }
}

impl From<Revocation> for KeyState {
    fn from(revocation: Revocation) -> Self {
        match revocation {
            Revocation::Retired => Self::Retired,
            Revocation::Compromised => Self::Compromised { since: None },
        }
    }
}
