//! The first-parent chain: a branch may only move forward from the commit that is in force.

use gix::ObjectId;
use jiff::Timestamp;
use schema::digest::Digest;
use serde::{Deserialize, Serialize};

use super::git::{GitError, Repo};

/// How far back the chain is walked.
const MAX_WALK: usize = 100_000;

/// A commit's own words. Dates and names are what the author wrote: for show, never for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitInfo {
    /// The commit's id.
    pub id: String,
    /// Its tree.
    pub tree: String,
    /// Its parents, first one first.
    pub parents: Vec<String>,
    /// Who wrote it.
    pub author: String,
    /// Who committed it.
    pub committer: String,
    /// The first line of the message.
    pub subject: String,
    /// When it says it was committed.
    pub committed_at: Timestamp,
    /// The plan that its trailer says was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Digest>,
}

/// What the walk from a tip found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The tip follows the base. The commits since then, oldest first, the tip last; empty when they are the same.
    Forward(Vec<CommitInfo>),
    /// The base is not on the tip's first-parent chain.
    Diverged {
        /// Why, for people.
        reason: String,
    },
}

impl Repo {
    /// Walks the first-parent chain from `tip` to `base`; without a base only the tip is looked at.
    ///
    /// # Errors
    /// When a commit on the way is missing or damaged.
    pub fn judge(&self, tip: &str, base: Option<&str>) -> Result<Verdict, GitError> {
        let Some(base) = base else { return Ok(Verdict::Forward(vec![self.commit(parse(tip)?)?])) };
        let mut since = Vec::new();
        let mut at = parse(tip)?;
        let base_id = parse(base)?;
        while at != base_id {
            if since.len() >= MAX_WALK {
                return Err(GitError::Refused(format!("the branch moved by more than {MAX_WALK} commits at once")));
            }
            let commit = self.commit(at)?;
            let parent = commit.parents.first().cloned();
            since.push(commit);
            match parent {
                Some(_) if self.is_shallow_at(at) => {
                    return Ok(Verdict::Diverged {
                        reason: format!("the repository is shallow and does not reach back to {}", short(base)),
                    });
                }
                Some(parent) => at = parse(&parent)?,
                None => {
                    let reason = format!(
                        "{} does not follow {}, which is in force: the branch was rewritten or rewound",
                        short(tip),
                        short(base)
                    );
                    return Ok(Verdict::Diverged { reason });
                }
            }
        }
        since.reverse();
        Ok(Verdict::Forward(since))
    }
}

/// A commit id that fits a line.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

pub(super) fn parse(id: &str) -> Result<ObjectId, GitError> {
    ObjectId::from_hex(id.as_bytes())
        .map_err(|_| GitError::Broken { id: id.chars().take(80).collect(), what: "is not an object id".to_owned() })
}
