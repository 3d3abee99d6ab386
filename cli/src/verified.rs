//! A clone of the fleet repository whose history was walked from its anchor: what a person goes by who signs something.

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use pki::trust::{
    commit::Commit,
    object::ObjectId,
    policy::{self, Policy},
    spoken::Heard,
    walk::{self, History as _, Judged, Stuck, Walk, Walked},
};
use reconciler::source::{self, GitError, Repo};

use crate::exit::{During as _, Failure};

/// Which clone of the fleet repository is meant.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Clone of the fleet repository, or a folder of one that holds the fleet
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub repo: PathBuf,
    /// Branch that is meant, instead of the one that is checked out
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Folder of the repository that holds the fleet
    #[arg(long, value_name = "FOLDER")]
    pub path: Option<String>,
}

/// A clone, and what its history comes to.
#[derive(Debug)]
pub struct Verified {
    /// Where it is.
    pub dir: PathBuf,
    /// The repository.
    pub repo: Repo,
    /// The folder of it that holds the fleet.
    pub folder: String,
    /// The branch; `HEAD` when none is checked out.
    pub branch: String,
    /// The tip of the branch, or the commit of it that was named.
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

/// The commit that a name stands for.
///
/// # Errors
/// When there is none.
pub fn commit(repo: &Repo, name: &str) -> Result<ObjectId, Failure> {
    let what = "cannot find the commit";
    source::resolve(repo, name).during(what)?.parse().during(what)
}

impl Place {
    /// The repository, and the folder of the fleet in it.
    ///
    /// # Errors
    /// When there is no repository.
    pub fn open(&self) -> Result<(Repo, String), Failure> {
        let (repo, folder) = Repo::discover(&self.repo).map_err(git("cannot open the repository"))?;
        Ok((repo, self.path.clone().unwrap_or(folder)))
    }

    /// The branch that is meant; `HEAD` when none is named or checked out.
    #[must_use]
    pub fn branch_of(&self, repo: &Repo) -> String {
        let name = self.branch.clone().or_else(|| repo.branch());
        name.map_or_else(|| "HEAD".to_owned(), |name| name.trim_start_matches("refs/heads/").to_owned())
    }
}

/// The name that people's words give a branch.
///
/// # Errors
/// When none is checked out, and none was named.
pub fn branch_that_is_named(name: &str) -> Result<&str, Failure> {
    match name {
        "HEAD" => Err(Failure::usage("HEAD names no branch: say which one with --branch")),
        name => Ok(name),
    }
}

impl Verified {
    /// Walks the branch from its anchor, or from the one that is named.
    ///
    /// # Errors
    /// When it cannot be read, or nothing of it is verified.
    pub fn open(place: &Place, anchor: Option<&str>) -> Result<Self, Failure> {
        Self::up_to(None, place, anchor)
    }

    /// Walks the branch up to a commit of it, or to its tip.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn up_to(commit_name: Option<&str>, place: &Place, anchor: Option<&str>) -> Result<Self, Failure> {
        let (repo, folder) = place.open()?;
        let branch = place.branch_of(&repo);
        let tip = commit(&repo, commit_name.or(place.branch.as_deref()).unwrap_or("HEAD"))?;
        let anchor = anchor.map(|name| commit(&repo, name)).transpose()?;
        let history = repo.trust_history(&folder);
        let statements = history.statements().map_err(git("cannot read the statements"))?;
        let walk = Walk {
            branch: &branch,
            tip,
            anchor,
            after: None,
            known: None,
            statements: &statements,
            now: None,
            beyond: 0,
        };
        let walked = walk::walk(&history, &walk).map_err(git("cannot read the history"))?.map_err(|stuck| {
            Failure::failed(format!("the history of this clone cannot be verified: {stuck}")).hint(match stuck {
                Stuck::NoPolicy => "`better-compute trust init` makes a first policy",
                _ => "better-compute verify --dry-run",
            })
        })?;
        Ok(Self { dir: place.repo.clone(), repo, folder, branch, tip, statements, walked })
    }

    /// The policy in force.
    ///
    /// # Errors
    /// When no commit is verified.
    pub fn policy(&self) -> Result<&Policy, Failure> {
        self.walked.policy.as_ref().ok_or_else(|| {
            let why = self.walked.refused().map(|(judged, refusal)| format!(": {} {refusal}", judged.id.short()));
            Failure::failed(format!("no trust policy is in force in this clone{}", why.unwrap_or_default()))
                .hint("better-compute verify --dry-run says more")
        })
    }

    /// The policy in the tree of a commit.
    ///
    /// # Errors
    /// When it cannot be read, or is refused.
    pub fn policy_in(&self, judged: &Judged) -> Result<Policy, Failure> {
        let history = self.repo.trust_history(&self.folder);
        let raw = history.commit(judged.id).during("cannot read the commit")?.unwrap_or_default();
        let commit = Commit::split(history.format(), &raw).during("the commit is malformed")?;
        let held = history.trust(commit.tree()).during("cannot read the trust policy")?.policy;
        let policy = held.and_then(|bytes| policy::check(&bytes).policy);
        policy.ok_or_else(|| Failure::failed("the trust policy of that commit is refused").hint("better-compute check"))
    }

    /// Keys that count no more, by name.
    #[must_use]
    pub fn revoked(&self) -> BTreeSet<String> {
        self.walked.reached.iter().flat_map(|reached| reached.memory.denied()).collect()
    }
}
