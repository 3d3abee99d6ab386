//! `verify`: what the trust policy concludes about each commit, offline.

mod show;

use clap::Args;
use pki::trust::{
    object::ObjectId,
    signature::SignatureRefusal,
    spoken::{Heard, Spoken, Unheard},
    walk::{self, Stuck, Walk, Walked},
};
use reconciler::source::{Overlooked, Repo, Said};

pub(super) use self::show::remedy;
use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::Output,
    verified::{Place, commit, git},
};

const EXAMPLES: &str = "\
Examples:
  better-compute verify --dry-run                        the branch that is checked out here
  better-compute verify --dry-run --anchor 3f2a1b9c0d    begin at the commit that you were told
  better-compute verify --dry-run --repo fleet.git --branch main
  better-compute verify --dry-run -o json

Exits with 0 when every commit since the anchor counts, and with 3 when one does not or nothing can be verified. docs/guides/trust.md walks through a first policy.";

/// Commits that are judged behind the first that does not count, for people to see.
const BEYOND: usize = 200;

/// Say what the trust policy concludes about each commit, and why.
///
/// Walks the first parents of a branch from the anchor, the first commit that holds trust/policy.kdl, to its tip. Each commit is judged by
/// the policy at its parent: its exact form, whose signature it has, whether that person may change these paths, and who else vouched
/// for it. Statements are read from refs/heads/bc/statements/ and from what was fetched of them. Reads git's objects only: no control
/// plane, no network, no key ring, nothing of git's configuration. Nothing is recorded, and no commit is kept from being applied.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Verify {
    /// Conclude, and record nothing: the one way there is
    #[arg(long, required = true)]
    pub dry_run: bool,
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// Commit that the history has to begin with, as people who know it told you
    #[arg(long, value_name = "COMMIT")]
    pub anchor: Option<String>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

/// What was verified, and how it came out.
#[derive(Debug)]
struct Report {
    branch: String,
    /// Whether somebody named the anchor.
    pinned: bool,
    tip: ObjectId,
    outcome: Result<Walked, Stuck>,
    /// What looks like a statement and is none that anybody hears.
    unheard: Vec<Deaf>,
}

/// What nobody hears for one reason.
#[derive(Debug)]
struct Deaf {
    /// Where one of it lies.
    example: String,
    /// How many there are.
    count: usize,
    /// Why.
    why: String,
}

impl Verify {
    /// Verifies, and shows it.
    ///
    /// # Errors
    /// When the repository cannot be read.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let report = self.report()?;
        if output.is_json() {
            output.json(&report.json())?;
        } else {
            output.line(report.render(output))?;
        }
        Ok(if report.counts() { Exit::Ok } else { Exit::InvalidFleet })
    }

    fn report(&self) -> Result<Report, Failure> {
        let (repo, folder) = self.place.open()?;
        let branch = self.place.branch_of(&repo);
        let tip = commit(&repo, self.place.branch.as_deref().unwrap_or("HEAD"))?;
        let anchor = self.anchor.as_deref().map(|name| commit(&repo, name)).transpose()?;
        Report::of(&repo, &folder, branch, tip, anchor)
    }
}

/// What is concluded about a commit and those before it, in a line.
pub(super) fn in_a_line(repo: &Repo, folder: &str, name: &str) -> Result<String, Failure> {
    let tip = commit(repo, name)?;
    let branch = repo.branch().unwrap_or_else(|| "HEAD".to_owned());
    Ok(Report::of(repo, folder, branch, tip, None)?.in_a_line())
}

impl Report {
    fn of(repo: &Repo, folder: &str, branch: String, tip: ObjectId, anchor: Option<ObjectId>) -> Result<Self, Failure> {
        let history = repo.trust_history(folder);
        let said = history.said().map_err(git("cannot read the statements"))?;
        let statements: Vec<Heard> = said.words.iter().map(|(_, raw)| raw.clone().into()).collect();
        let walk = Walk {
            branch: &branch,
            tip,
            anchor,
            after: None,
            known: None,
            statements: &statements,
            now: None,
            beyond: BEYOND,
        };
        let outcome = walk::walk(&history, &walk).map_err(git("cannot read the history"))?;
        let unheard = outcome.as_ref().map_or_else(|_| Vec::new(), |walked| unheard(&said, walked));
        Ok(Self { branch, pinned: anchor.is_some(), tip, outcome, unheard })
    }

    /// Whether every commit counts.
    fn counts(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|walked| walked.verified() == walked.commits.len())
    }
}

/// What was said in a way that nobody hears. Who signed it is another question, which the verdicts answer.
fn unheard(said: &Said, walked: &Walked) -> Vec<Deaf> {
    let policies = || walked.reached.iter().flat_map(|reached| reached.policies.values());
    let why = |raw: &[u8]| match Spoken::hear(raw, &walked.trust_domain, walked.fleet, policies()) {
        Err(Unheard::Signature(SignatureRefusal::UnknownKey(_))) => None,
        Err(refusal) => Some(refusal.to_string()),
        Ok(spoken) => (!spoken.is_on_purpose()).then(|| "its commit has files, and a statement has none".to_owned()),
    };
    let one = |(name, raw): &(String, Vec<u8>)| Some(Deaf { example: name.clone(), count: 1, why: why(raw)? });
    let many = |these: &Overlooked| {
        let Overlooked { why, count, example } = these.clone();
        Deaf { example, count, why: why.to_string() }
    };
    said.words.iter().filter_map(one).chain(said.overlooked.iter().map(many)).collect()
}

#[cfg(test)]
mod tests;
