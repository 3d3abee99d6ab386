//! The two trees that a plan compares: commits of a repository, or a working tree and a commit.

use std::path::{Path, PathBuf};

use reconciler::{
    plan::{Machines, Observed},
    source::{self, GitError, Kept, Repo},
};
use schema::fleet::{Fleet, Loaded, Sources};

use crate::{command::verify, exit::Failure, output::note, tree};

/// How many commits back a base without errors is looked for.
const LOOK_BACK: usize = 100;

/// Which trees are meant.
#[derive(Clone, Copy)]
pub(in crate::command) struct Trees<'a> {
    /// The directory that was named.
    pub(in crate::command) subject: Option<&'a Path>,
    /// The repository.
    pub(in crate::command) repo: Option<&'a Path>,
    /// The folder of it that holds the fleet.
    pub(in crate::command) folder: Option<&'a str>,
    /// The commit to start from.
    pub(in crate::command) base: Option<&'a str>,
}

/// The tree that a plan leads to.
pub(in crate::command) struct Head {
    /// Its commit; none for a working tree.
    pub(in crate::command) commit: Option<String>,
    /// Its files.
    pub(in crate::command) files: Sources,
    /// What is in them.
    pub(in crate::command) loaded: Loaded,
    repo: Option<(Repo, String)>,
    /// What was parsed: the other tree costs only what differs.
    cache: Kept,
}

/// The fleet that a plan starts from, when there is one.
pub(super) struct Base(Option<(String, Fleet)>);

impl Trees<'_> {
    /// The tree of a commit.
    pub(in crate::command) fn commit(self, name: &str) -> Result<Head, Failure> {
        let dir = self.repo.or(self.subject).map(Path::to_owned);
        let dir = dir.map_or_else(|| tree::root(None), Ok)?;
        let (repo, folder) = open(&dir)?;
        let folder = self.folder.map_or(folder, str::to_owned);
        let commit = source::resolve(&repo, name).map_err(|error| git("cannot find the head", &error))?;
        let files = source::read_tree(&repo, &commit, &folder).map_err(|error| git("cannot read the head", &error))?;
        let mut cache = tree::kept();
        Ok(Head { commit: Some(commit), loaded: cache.load(&files), files, repo: Some((repo, folder)), cache })
    }

    /// The working tree.
    pub(super) fn working_tree(self) -> Result<Head, Failure> {
        let root = tree::root(self.subject)?;
        let files = tree::read(&root)?;
        let mut cache = tree::kept();
        Ok(Head { commit: None, loaded: cache.load(&files), files, repo: open(&root).ok(), cache })
    }

    /// The fleet to start from: at the named commit, or at the nearest one before it that has no error, as a control plane
    /// would have it.
    pub(super) fn base(self, head: &Head) -> Result<Base, Failure> {
        let Some((repo, folder)) = &head.repo else {
            let dir = self.subject.map_or_else(|| PathBuf::from("."), Path::to_owned);
            return open(&dir).map(|_| Base(None));
        };
        let named = self.base.unwrap_or("HEAD");
        let first = match source::resolve(repo, named) {
            Ok(commit) => commit,
            Err(GitError::BranchMissing(_) | GitError::Empty) if self.base.is_none() => return Ok(Base(None)),
            Err(error) => return Err(git("cannot find the base", &error)),
        };
        let (mut commit, mut cache) = (first.clone(), head.cache.clone());
        for _ in 0..LOOK_BACK {
            let files =
                source::read_tree(repo, &commit, folder).map_err(|error| git("cannot read the base", &error))?;
            if let Some(fleet) = cache.load(&files).fleet {
                if commit != first {
                    note(format!(
                        "note: {} has errors; compared with {}, the last commit before it that has none",
                        short(&first),
                        short(&commit)
                    ));
                }
                return Ok(Base(Some((commit, fleet))));
            }
            match source::resolve(repo, &format!("{commit}~1")) {
                Ok(parent) => commit = parent,
                Err(_) => break,
            }
        }
        note(format!("note: neither {} nor what came before it is a fleet; compared with nothing", short(&first)));
        Ok(Base(None))
    }
}

impl Head {
    /// The files at a commit of the same repository; none when it is not there.
    pub(super) fn at(&self, commit: &str) -> Option<Sources> {
        let (repo, folder) = self.repo.as_ref()?;
        let commit = source::resolve(repo, commit).ok()?;
        source::read_tree(repo, &commit, folder).ok()
    }

    /// What is concluded about signatures: those of its commit and the ones before it, or of what the working tree stands on.
    /// Nothing where that cannot be read, which is no reason to have no plan.
    pub(super) fn signatures(&self) -> Option<String> {
        let (repo, folder) = self.repo.as_ref()?;
        match &self.commit {
            Some(commit) => verify::in_a_line(repo, folder, commit).ok(),
            None => {
                let head = verify::in_a_line(repo, folder, "HEAD").ok()?;
                Some(format!("what is not committed is not signed; HEAD is {head}"))
            }
        }
    }

    /// The full id of a commit of the same repository.
    pub(super) fn resolve(&self, name: &str) -> Option<String> {
        let (repo, _) = self.repo.as_ref()?;
        source::resolve(repo, name).ok()
    }
}

impl Base {
    /// The fleet as it would be observed when it is in force.
    pub(super) fn observed(&self) -> Observed {
        match &self.0 {
            Some((commit, fleet)) => Observed::from_fleet(fleet).at_commit(commit),
            None => Observed::nothing(Machines::Declared),
        }
    }
}

fn open(dir: &Path) -> Result<(Repo, String), Failure> {
    Repo::discover(dir).map_err(|error| git("cannot open the repository", &error))
}

fn git(what: &str, error: &GitError) -> Failure {
    Failure::because(what, error)
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}
