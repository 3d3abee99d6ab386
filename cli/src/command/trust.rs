//! `trust`: from an unsigned fleet to a verified one, and what people say as they go on.

mod init;
mod pin;
mod say;
mod show;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pki::trust::{
    object::ObjectId,
    policy::{self, Policy},
    walk::{self, History as _, Judged, Walk, Walked},
};
use reconciler::source::{self, Repo};

use crate::{
    args::FormatArg,
    exit::{During as _, Exit, Failure},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute trust init                              a first policy, signed, and pinned
  better-compute trust init --person bob=./bob.pub --push
  better-compute trust pin 3f2a1b9c0d                    from here on only what verifies comes into force
  better-compute trust show                              who may do what, and who you are
  better-compute trust vouch                             for the commit that waits for another person
  better-compute trust agree                             to a change of the policy, and prove your new key
  better-compute trust revoke SHA256:… --reason compromised
  better-compute trust reseal OLD NEW                    the branch was rewritten on purpose

docs/guides/trust.md walks through a first policy, a second person, a lost key and a rewritten branch.";

/// Say whose signed commits count, and speak as one of them.
///
/// Signs with the key that git signs with, as a commit on a branch of its own below bc/statements/, reads it back as a control plane
/// does, and pushes it. Nothing of it needs a control plane but `pin`, which needs its keys.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Trust {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done about trust.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "a verb's own struct says what it does, and its help is made from that")]
pub enum Verb {
    Init(init::Init),
    Pin(pin::Pin),
    Show(show::Show),
    Vouch(say::Vouch),
    Agree(say::Agree),
    Revoke(say::Revoke),
    Reseal(say::Reseal),
}

/// Where the history is.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Repository, or a folder of one that holds the fleet
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub repo: PathBuf,
    /// Branch that is meant, instead of the one that is checked out
    #[arg(long, value_name = "BRANCH")]
    pub branch: Option<String>,
    /// Folder of the repository that holds the fleet
    #[arg(long, value_name = "FOLDER")]
    pub path: Option<String>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

/// A history, and what is concluded about it.
pub(super) struct Looked {
    pub(super) dir: PathBuf,
    repo: Repo,
    folder: String,
    branch: String,
    pub(super) tip: ObjectId,
    pub(super) walked: Walked,
}

impl Trust {
    /// Does it.
    ///
    /// # Errors
    /// With what is in the way.
    pub fn run(&self, output: impl Fn(&FormatArg) -> Output) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Init(init) => init.run(&output(&init.place.format)),
            Verb::Pin(pin) => pin.run(&output(&pin.place.format)),
            Verb::Show(show) => show.run(&output(&show.place.format)),
            Verb::Vouch(vouch) => vouch.run(&output(&vouch.place.format)),
            Verb::Agree(agree) => agree.run(&output(&agree.place.format)),
            Verb::Revoke(revoke) => revoke.run(&output(&revoke.place.format)),
            Verb::Reseal(reseal) => reseal.run(&output(&reseal.place.format)),
        }
    }
}

impl Place {
    fn open(&self) -> Result<(Repo, String), Failure> {
        let (repo, folder) = Repo::discover(&self.repo).during("cannot open the repository")?;
        Ok((repo, self.path.clone().unwrap_or(folder)))
    }

    fn branch_of(&self, repo: &Repo) -> Result<String, Failure> {
        let name = self.branch.clone().or_else(|| repo.branch());
        let name = name.ok_or_else(|| Failure::usage("HEAD names no branch: say which one with --branch"))?;
        Ok(name.trim_start_matches("refs/heads/").to_owned())
    }

    /// Walks the branch from its anchor, or from the one that is named.
    pub(super) fn look(&self, anchor: Option<&str>) -> Result<Looked, Failure> {
        let (repo, folder) = self.open()?;
        let branch = self.branch_of(&repo)?;
        let tip = commit(&repo, &branch)?;
        let anchor = anchor.map(|name| commit(&repo, name)).transpose()?;
        let history = repo.trust_history(&folder);
        let statements = history.statements().during("cannot read the statements")?;
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
        let walked = walk::walk(&history, &walk).during("cannot read the history")?;
        let walked = walked.map_err(|stuck| {
            let failure = Failure::failed(stuck.to_string());
            match stuck {
                walk::Stuck::NoPolicy => failure.hint("`better-compute trust init` makes a first one"),
                _ => failure,
            }
        })?;
        Ok(Looked { dir: self.repo.clone(), repo, folder, branch, tip, walked })
    }
}

impl Looked {
    /// The policy in force.
    fn policy(&self) -> Result<&Policy, Failure> {
        let why = || {
            let why = self.walked.refused().map(|(judged, refusal)| format!("{}: {refusal}", judged.id.short()));
            Failure::failed(format!("no trust policy is in force: {}", why.unwrap_or_default()))
        };
        self.walked.policy.as_ref().ok_or_else(why)
    }

    /// The policy in the tree of a commit.
    pub(super) fn policy_in(&self, judged: &Judged) -> Result<Policy, Failure> {
        let history = self.repo.trust_history(&self.folder);
        let raw = history.commit(judged.id).during("cannot read the commit")?.unwrap_or_default();
        let commit = pki::trust::commit::Commit::split(history.format(), &raw).during("the commit is malformed")?;
        let held = history.trust(commit.tree()).during("cannot read the trust policy")?.policy;
        let policy = held.and_then(|bytes| policy::check(&bytes).policy);
        policy.ok_or_else(|| Failure::failed("the trust policy of that commit is refused").hint("better-compute check"))
    }
}

fn commit(repo: &Repo, name: &str) -> Result<ObjectId, Failure> {
    let id = source::resolve(repo, name).during("cannot find the commit")?;
    id.parse().during("cannot find the commit")
}

/// The fleet's folder in a work tree.
fn work_tree(dir: &Path, folder: &str) -> Result<PathBuf, Failure> {
    let top = crate::statement::git(dir, &["rev-parse", "--show-toplevel"])
        .map_err(|why| Failure::failed(format!("there is no work tree here: {why}")))?;
    Ok(Path::new(&top).join(folder))
}
