//! Where the text of a batch comes from: the first-parent commit that introduced it, and every one that added or changed it.
//! The control plane reads it from its repository, and whoever approves from their own clone.

use std::collections::BTreeSet;

use pki::trust::{
    commit::Commit,
    object::ObjectId,
    policy::Policy,
    walk::{FileChange, History},
};
use schema::{
    fleet::trust::{BatchTouched, batch_touched},
    name::Name,
};

/// Where a batch comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The newest commit that changed its text.
    pub plan: ObjectId,
    /// That commit's tree.
    pub tree: ObjectId,
    /// Every commit of the first-parent chain that added or changed it, newest first.
    pub commits: Vec<ObjectId>,
}

/// Why the history of a batch is not known.
#[derive(Debug, thiserror::Error)]
pub enum Untraceable<E> {
    /// No commit of the chain has it.
    #[error("no commit brought batch/{0}")]
    Nowhere(Name),
    /// The repository does not have all commits.
    #[error("the commit {0} is not in the repository: fetch its whole history")]
    Incomplete(ObjectId),
    /// It has been there for longer than anybody is trusted.
    #[error("batch/{0} is older than the trust anchor: commit it again under another name")]
    BeforeAnchor(Name),
    /// A commit is none.
    #[error("the commit {0} is malformed")]
    Malformed(ObjectId),
    /// A commit that changed it is nobody's.
    #[error("no key of the trust policy signed the commit {0}, which changed it")]
    Unsigned(ObjectId),
    /// The repository cannot be read.
    #[error(transparent)]
    Repository(#[from] E),
}

/// Follows the first parents of a commit back to the one that added a batch. `anchor` ends the way.
///
/// # Errors
/// When the way is lost.
pub fn trace<H: History>(
    history: &H,
    tip: ObjectId,
    anchor: Option<ObjectId>,
    name: &Name,
) -> Result<Origin, Untraceable<H::Error>> {
    let mut found: Option<Origin> = None;
    let mut at = tip;
    loop {
        let Some(raw) = history.commit(at)? else { return Err(Untraceable::Incomplete(at)) };
        let commit = Commit::split(history.format(), &raw).map_err(|_| Untraceable::Malformed(at))?;
        let parent = commit.parents().first().copied();
        let touched = match parent {
            Some(parent) => {
                let Some(raw) = history.commit(parent)? else { return Err(Untraceable::Incomplete(parent)) };
                let before = Commit::split(history.format(), &raw).map_err(|_| Untraceable::Malformed(parent))?.tree();
                touched(history, name, &history.changes(before, commit.tree())?)?
            }
            // Whatever the first commit has it brought.
            None => BatchTouched { before: false, after: true, differs: true },
        };
        if touched.differs {
            let origin = found.get_or_insert_with(|| Origin { plan: at, tree: commit.tree(), commits: Vec::new() });
            origin.commits.push(at);
            if !touched.before {
                break;
            }
        }
        // It was there before anybody is trusted to have brought it.
        if anchor == Some(at) {
            return Err(Untraceable::BeforeAnchor(name.clone()));
        }
        match parent {
            Some(parent) => at = parent,
            None => break,
        }
    }
    found.ok_or_else(|| Untraceable::Nowhere(name.clone()))
}

fn touched<H: History>(history: &H, name: &Name, changes: &[FileChange]) -> Result<BatchTouched, H::Error> {
    let mut all = BatchTouched::default();
    for change in changes.iter().filter(|change| is_fleet_file(&change.path)) {
        let read = |id: Option<ObjectId>| id.map_or(Ok(None), |id| history.file(id));
        let (before, after) = (read(change.before)?, read(change.after)?);
        let one = batch_touched(&change.path, name, before.as_deref(), after.as_deref());
        all.before |= one.before;
        all.after |= one.after;
        all.differs |= one.differs;
    }
    Ok(all)
}

fn is_fleet_file(path: &str) -> bool {
    [".kdl", ".yaml", ".yml"].iter().any(|end| path.ends_with(end))
}

/// The principals that signed some commits, as any of these policies knows them. Keys stay listed under their principals for
/// ever, so that the newest policy that knows a key says whose it is.
///
/// # Errors
/// When a commit cannot be read.
pub fn signers<H: History>(
    history: &H,
    commits: &[ObjectId],
    policies: &[&Policy],
) -> Result<BTreeSet<Name>, Untraceable<H::Error>> {
    let mut signers = BTreeSet::new();
    for id in commits {
        let Some(raw) = history.commit(*id)? else { return Err(Untraceable::Incomplete(*id)) };
        let commit = Commit::split(history.format(), &raw).map_err(|_| Untraceable::Malformed(*id))?;
        let known = policies.iter().rev().find_map(|policy| policy.signer_of(&commit));
        let (name, _) = known.ok_or(Untraceable::Unsigned(*id))?;
        signers.insert(name.clone());
    }
    Ok(signers)
}
