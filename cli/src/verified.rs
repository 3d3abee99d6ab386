//! A clone of the fleet repository whose history was walked from its anchor: what a person goes by who signs something about
//! destructive work.

use std::{collections::BTreeSet, path::Path};

use pki::trust::{
    object::ObjectId,
    policy::Policy,
    spoken::Heard,
    walk::{self, Walk, Walked},
};
use reconciler::source::{self, GitError, Repo};

use crate::exit::{During as _, Failure};

/// A clone, and what its history comes to.
#[derive(Debug)]
pub struct Verified {
    /// The repository.
    pub repo: Repo,
    /// The folder of it that holds the fleet.
    pub folder: String,
    /// The tip of the branch.
    pub tip: ObjectId,
    /// What people said, as far as it was fetched.
    pub statements: Vec<Heard>,
    /// What the history comes to.
    pub walked: Walked,
}

/// Says what was attempted when git fails.
pub fn git(what: &'static str) -> impl Fn(GitError) -> Failure {
    move |error| Failure::because(what, &error)
}

impl Verified {
    /// Walks the branch that is checked out in a clone, or another one.
    ///
    /// # Errors
    /// When it cannot be read, or nothing of it is verified.
    pub fn open(dir: &Path, branch: Option<&str>) -> Result<Self, Failure> {
        let (repo, folder) = Repo::discover(dir).map_err(git("cannot open the repository"))?;
        let history = repo.trust_history(&folder);
        let name = branch.map(str::to_owned).or_else(|| repo.branch()).unwrap_or_else(|| "HEAD".to_owned());
        let tip = source::resolve(&repo, branch.unwrap_or("HEAD")).map_err(git("cannot find the branch"))?;
        let tip: ObjectId = tip.parse().during("the branch has no tip")?;
        let statements = history.statements().map_err(git("cannot read the statements"))?;
        let walk = Walk {
            branch: name.trim_start_matches("refs/heads/"),
            tip,
            anchor: None,
            after: None,
            known: None,
            statements: &statements,
            now: None,
            beyond: 0,
        };
        let walked = walk::walk(&history, &walk).map_err(git("cannot read the history"))?.map_err(|stuck| {
            Failure::failed(format!("the history of this clone cannot be verified: {stuck}"))
                .hint("better-compute verify --dry-run")
        })?;
        Ok(Self { repo, folder, tip, statements, walked })
    }

    /// The policy in force.
    ///
    /// # Errors
    /// When no commit is verified.
    pub fn policy(&self) -> Result<&Policy, Failure> {
        self.walked.policy.as_ref().ok_or_else(|| {
            Failure::failed("no commit of this clone is verified").hint("better-compute verify --dry-run says why")
        })
    }

    /// Keys that count no more, by name.
    #[must_use]
    pub fn revoked(&self) -> BTreeSet<String> {
        self.walked.reached.iter().flat_map(|reached| reached.memory.denied()).collect()
    }
}
