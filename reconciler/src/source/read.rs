//! From a tip to a fleet: judge its history, read its tree, load it. Pure but for the objects that it reads.

use std::{path::Path, sync::Arc};

use schema::{
    diagnostic::{self, render::Colour},
    fleet::{Fleet, Loaded, Sources, Stop},
};
use serde_json::json;

use super::{
    CommitInfo, SourceState, Trouble, Verdict,
    fetch::Look,
    git::GitError,
    history::{parse, short},
    kept::Kept,
    tree::{Blobs, Brake, read_tree_until},
};

/// What was read last, so that the next commit costs what it changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Remembered {
    pub(super) blobs: Blobs,
    pub(super) kept: Kept,
}

impl Remembered {
    /// With what other processes kept in a folder.
    pub(super) fn at(dir: &Path) -> Self {
        Self { blobs: Blobs::default(), kept: Kept::at(dir) }
    }
}

/// A commit that is a fleet.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) fleet: Arc<Fleet>,
    /// The fleet of the first parent, when the tip names a plan that may have been made from it.
    pub(super) before: Option<Arc<Fleet>>,
    pub(super) sources: Sources,
    pub(super) since: Vec<CommitInfo>,
    pub(super) info: CommitInfo,
}

/// Judges the tip against what is in force, and reads its tree.
pub(super) fn read(
    seen: &Look,
    base: Option<&str>,
    accepted: Option<&str>,
    remembered: &mut Remembered,
    brake: &Brake<'_>,
) -> Result<Read, Trouble> {
    let repo = &seen.repo;
    let since = match repo.judge(&seen.tip, base)? {
        Verdict::Forward(since) => since,
        Verdict::Diverged { .. } if accepted == Some(seen.tip.as_str()) => match repo.judge(&seen.tip, None)? {
            Verdict::Forward(since) => since,
            Verdict::Diverged { reason } => return Err(Trouble::new(SourceState::HistoryDiverged, reason)),
        },
        Verdict::Diverged { reason } => {
            let tip = &seen.tip;
            let call = format!("better-compute api fleet.accept commit={tip} idempotencyKey=accept-{}", short(tip));
            let way = format!("{reason}. Push the old history again, or accept the new one: {call}");
            return Err(Trouble::new(SourceState::HistoryDiverged, way));
        }
    };
    let info = match since.last() {
        Some(info) => info.clone(),
        None => repo.commit(parse(&seen.tip)?)?,
    };
    let sources = read_tree_until(repo, &seen.tip, &seen.path, &mut remembered.blobs, brake)?;
    if ["fleet.kdl", "fleet.yaml", "fleet.yml"].iter().all(|root| sources.get(root).is_none()) {
        let place = if seen.path.is_empty() {
            "at the root of the repository".to_owned()
        } else {
            format!("in {}/", seen.path)
        };
        return Err(Trouble::new(
            SourceState::RootMissing,
            format!("commit {} has no fleet.kdl {place}", short(&seen.tip)),
        ));
    }
    let Loaded { fleet, diagnostics, sources: map, .. } = load(&sources, remembered, brake)?;
    match fleet {
        Some(fleet) => Ok(Read {
            fleet: Arc::new(fleet),
            before: before(seen, &info, remembered.clone(), brake)?,
            sources,
            since,
            info,
        }),
        None => Err(invalid(&seen.tip, &diagnostics, &map)),
    }
}

/// What an offline plan of this commit was made from. One that cannot be read is no plan's base.
fn before(
    seen: &Look,
    info: &CommitInfo,
    mut near: Remembered,
    brake: &Brake<'_>,
) -> Result<Option<Arc<Fleet>>, GitError> {
    let Some(parent) = info.plan.and(info.parents.first()) else { return Ok(None) };
    match read_tree_until(&seen.repo, parent, &seen.path, &mut near.blobs, brake) {
        Ok(sources) => Ok(load(&sources, &mut near, brake)?.fleet.map(Arc::new)),
        Err(GitError::Interrupted) => Err(GitError::Interrupted),
        Err(_) => Ok(None),
    }
}

/// Loads a tree for as long as somebody waits for it.
pub(super) fn load(sources: &Sources, remembered: &mut Remembered, brake: &Brake<'_>) -> Result<Loaded, GitError> {
    let asked = || brake.is_on();
    remembered.kept.load_until(sources, &Stop::when(&asked)).map_err(|_| GitError::Interrupted)
}

/// The state of a tree with errors: the first one in words, all of them beside it.
fn invalid(tip: &str, diagnostics: &[diagnostic::Diagnostic], sources: &diagnostic::SourceMap) -> Trouble {
    const KEPT: usize = 200;
    let errors: Vec<&diagnostic::Diagnostic> = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).collect();
    let first = errors.first().map_or_else(String::new, |first| format!(", first {}: {}", first.at(), first.message));
    let reason =
        format!("commit {} has {} error{}{first}", short(tip), errors.len(), if errors.len() == 1 { "" } else { "s" });
    let kept = &diagnostics[..diagnostics.len().min(KEPT)];
    let detail = json!({
        "commit": tip,
        "report": diagnostic::json::to_value(kept),
        "text": diagnostic::render::text(kept, sources, Colour::Never),
        "left": diagnostics.len() - kept.len(),
    });
    Trouble { detail: Some(detail), ..Trouble::new(SourceState::FleetInvalid, reason) }
}
