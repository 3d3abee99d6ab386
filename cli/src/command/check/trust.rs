//! What is wrong with the trust policy of a tree, or with a tree that has none any more.

use std::path::Path;

use pki::trust::{
    object::ObjectId,
    policy::{self, Policy},
    walk,
};
use reconciler::source::{self, Repo};
use schema::{
    diagnostic::{self, Diagnostic, SourceRef, codes},
    fleet::{Fleet, Loaded, Sources, trust},
};

/// How far back a policy is looked for: a fleet without one moves no further.
const LOOK_BACK: usize = 100;

/// The commit that a tree is of, or follows.
pub(super) struct Behind {
    repo: Repo,
    folder: String,
    commit: ObjectId,
}

impl Behind {
    /// What a commit of the repository around a folder holds; nothing where there is no such commit.
    pub(super) fn of(dir: &Path, folder: Option<&str>, commit: &str) -> Option<Self> {
        let (repo, found) = Repo::discover(dir).ok()?;
        let commit = source::resolve(&repo, commit).ok()?.parse().ok()?;
        Some(Self { repo, folder: folder.map_or(found, str::to_owned), commit })
    }

    /// The last commit that holds a policy.
    fn last_policy(&self) -> Option<ObjectId> {
        walk::last_policy(&self.repo.trust_history(&self.folder), self.commit, LOOK_BACK).ok().flatten()
    }
}

/// What was found in a tree, and what is wrong with its trust policy: a tree whose policy is refused, or is gone, is not fit to be
/// applied. `behind` is asked only where the tree holds no policy.
pub(super) fn with_trust(mut loaded: Loaded, files: &Sources, behind: impl FnOnce() -> Option<Behind>) -> Loaded {
    let mut found = Vec::new();
    if let Some(checked) = policy::check_tree(files) {
        if let Some(text) = checked.sources.text(trust::FILE) {
            loaded.sources.insert(trust::FILE, text);
        }
        found = checked.diagnostics;
        found.extend(checked.policy.zip(loaded.fleet.as_ref()).and_then(|(policy, fleet)| no_signer(&policy, fleet)));
    }
    if files.get(trust::FILE).is_none() {
        found.extend(behind().and_then(|behind| behind.last_policy()).map(gone));
    }
    if found.iter().any(Diagnostic::is_error) {
        loaded.fleet = None;
    }
    loaded.diagnostics.extend(found);
    diagnostic::sort(&mut loaded.diagnostics);
    loaded
}

/// Machines take a release by the policy's `releases` and by nothing else.
fn no_signer(policy: &Policy, fleet: &Fleet) -> Option<Diagnostic> {
    let release = fleet.releases.values().next().filter(|_| policy.releases().is_none())?;
    let message = "no machine takes a release: the trust policy has no `releases`, which says who signs them";
    let help = "in trust/policy.kdl: releases { roles \"…\"; threshold 2; }";
    Some(Diagnostic::new(codes::OUT_OF_REACH, &release.at, message).help(help))
}

fn gone(last: ObjectId) -> Diagnostic {
    let message = format!(
        "the file is gone, and commit {} holds it: a fleet that is pinned is trust-removed without it, and nothing moves",
        last.short()
    );
    Diagnostic::new(codes::POLICY_GONE, &SourceRef::start_of(trust::FILE), message).help(format!(
        "bring it back as it was: git checkout {} -- {}",
        last.short(),
        trust::FILE
    ))
}
