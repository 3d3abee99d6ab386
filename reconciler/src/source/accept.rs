//! The way out of a rewritten history: a person says that exactly this tip is meant.

use serde_json::json;
use store::{Db, DbError, Txn, audit, poke::Poke, sources};

use super::SourceState;
use crate::trust::Pinned;

/// Why a rewritten history was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// There is no such source.
    #[error("there is no source {0:?}")]
    Missing(String),
    /// The source does not wait for this.
    #[error("the source is {0}; only a diverged history is accepted")]
    NotDiverged(String),
    /// The fleet is pinned: nobody accepts a history without signing for it.
    #[error(
        "the fleet is verified: people of the reseal rule accept a rewritten history by signed statements (better-compute trust reseal)"
    )]
    Pinned,
    /// Another commit is the tip.
    #[error("the tip of the branch is {tip}, not {asked}")]
    NotTheTip {
        /// The tip that was seen.
        tip: String,
        /// What was asked.
        asked: String,
    },
    /// PostgreSQL did not do what was asked.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Accepts that the history was rewritten: the tip, and only that commit, comes into force although it does not follow the
/// one before. Written to the audit log. The caller commits.
///
/// # Errors
/// When the source does not wait for this, or the tip is another one.
pub async fn accept(
    db: &Db,
    txn: &mut Txn,
    pinned: &Pinned,
    name: &str,
    commit: &str,
    actor: &str,
) -> Result<(), AcceptError> {
    if pinned.get().is_some() {
        return Err(AcceptError::Pinned);
    }
    let source = sources::find(db, name).await?.ok_or_else(|| AcceptError::Missing(name.to_owned()))?;
    if source.state != SourceState::HistoryDiverged.as_str() {
        return Err(AcceptError::NotDiverged(source.state));
    }
    let tip = source.remote.map(|at| at.commit).unwrap_or_default();
    if tip != commit {
        return Err(AcceptError::NotTheTip { tip, asked: commit.to_owned() });
    }
    sources::accept(txn, name, Some(commit)).await?;
    let detail = json!({ "from": source.applied.map(|at| at.commit), "to": commit });
    audit::append(txn, actor, "source.accept", name, &detail).await?;
    txn.poke(Poke::Source(name.to_owned()));
    Ok(())
}
