//! Watching a local repository: a change of its refs wakes the loop. A missed one costs time only, because the loop
//! polls as well.

use std::{path::Path, sync::Arc};

use notify::{Event, EventKind, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use super::{
    GitError,
    git::{Repo, locate},
};

/// Watches until it is dropped.
pub(super) struct Watch {
    _watcher: notify::RecommendedWatcher,
}

/// Why a repository is not watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("the repository cannot be watched")]
    Notify(#[from] notify::Error),
}

impl Watch {
    /// Watches the refs of the repository that holds `dir` and calls `changed` for each change.
    pub(super) fn start(dir: &Path, changed: Arc<Notify>) -> Result<Self, WatchError> {
        let (root, _) = locate(dir)?;
        let repo = Repo::open(&root)?;
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading the repository is no change of it.
            if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
                changed.notify_one();
            }
        })?;
        // Refs are replaced by renames, so their folders are watched: HEAD and packed-refs lie in the two git folders.
        let (own, common) = (repo.inner.git_dir().to_owned(), repo.inner.common_dir().to_owned());
        watcher.watch(&own, RecursiveMode::NonRecursive)?;
        if common != own {
            watcher.watch(&common, RecursiveMode::NonRecursive)?;
        }
        watcher.watch(&common.join("refs"), RecursiveMode::Recursive)?;
        Ok(Self { _watcher: watcher })
    }
}
