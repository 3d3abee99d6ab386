//! `plan`: what a change would do. Offline between two commits, or between HEAD and the working tree; or as a running
//! control plane computed it.

use std::path::{Path, PathBuf};

use clap::Args;
use reconciler::{
    plan::{self, Machines, Observed, RenderOptions},
    source::{self, GitError, Repo},
};
use schema::{
    diagnostic,
    fleet::{self, Fleet, Loaded},
    id::PlanId,
};
use serde_json::{Value, json};

use super::check;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{Output, note},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute plan                                 HEAD against the working tree
  better-compute plan --base origin/main --head HEAD  what a branch would change
  better-compute plan --base v1 --head v2 --repo /srv/fleet.git --path eu
  better-compute plan --exit-code --format json         for a pipeline
  better-compute plan --live                          the control plane's newest plan
  better-compute plan plan_01k9m2v7t3c4w8d5e6f7g8h9ja

With --exit-code: 0 nothing to do, 2 changes, 1 error.";

/// How many commits back a base without errors is looked for.
const LOOK_BACK: usize = 100;

/// Show what a change would do.
///
/// Compares two commits, or HEAD with the working tree, with the same function that a control plane uses: objects that
/// come, change, go or are retained, what hosts should be, and the machines that would move. Offline it knows declared
/// machines only. With --live, or a plan's id, it shows what a control plane computed for the machines it really has.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Plan {
    /// Directory that holds fleet.kdl, or a plan's id; found from here upwards when it is not named
    #[arg(value_name = "DIR|PLAN")]
    pub subject: Option<String>,
    /// Commit, branch or tag to start from [default: HEAD]
    #[arg(long, value_name = "COMMIT")]
    pub base: Option<String>,
    /// Commit, branch or tag to go to, instead of the working tree
    #[arg(long, value_name = "COMMIT")]
    pub head: Option<String>,
    /// Repository, bare or with a working tree, that the commits are in
    #[arg(long, value_name = "DIR", requires = "head")]
    pub repo: Option<PathBuf>,
    /// Folder of the repository that holds the fleet
    #[arg(long, value_name = "FOLDER", requires = "head")]
    pub path: Option<String>,
    /// Show the newest plan of the control plane
    #[arg(long, conflicts_with_all = ["base", "head", "subject"])]
    pub live: bool,
    /// Exit with 2 when there are changes, with 1 on any error
    #[arg(long)]
    pub exit_code: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane, for --live
    #[command(flatten)]
    pub target: Target,
}

impl Plan {
    /// Plans and shows.
    ///
    /// # Errors
    /// When a commit cannot be read, or the control plane does not answer.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let done = self.shown(output).await;
        if !self.exit_code {
            return done.map(|end| if matches!(end, End::Invalid) { Exit::InvalidFleet } else { Exit::Ok });
        }
        match done {
            Ok(End::Nothing) => Ok(Exit::Ok),
            Ok(End::Changes) => Ok(Exit::Usage),
            Ok(End::Invalid) => Ok(Exit::Failed),
            Err(failure) => Err(Failure { exit: Exit::Failed, ..failure }),
        }
    }

    async fn shown(&self, output: &Output) -> Result<End, Failure> {
        let id = self.subject.as_ref().and_then(|subject| subject.parse::<PlanId>().ok());
        if self.live || id.is_some() {
            return self.stored(id, output).await;
        }
        let (base, head) = match &self.head {
            Some(head) => self.commits(head)?,
            None => self.working_tree()?,
        };
        let Some(fleet) = &head.loaded.fleet else {
            if output.is_json() {
                output.json(&diagnostic::json::to_value(&head.loaded.diagnostics))?;
            } else {
                output.line(check::in_words(&head.loaded, output.colour))?;
            }
            return Ok(End::Invalid);
        };
        let planned = plan::plan(fleet, &base.observed(), output.now);
        let planned = match &head.commit {
            Some(commit) => planned.at_commit(commit),
            None => planned,
        };
        show(&planned.plan, output)
    }

    /// The plan of the control plane.
    async fn stored(&self, id: Option<PlanId>, output: &Output) -> Result<End, Failure> {
        let client = Client::new(&self.target)?;
        let id = match id {
            Some(id) => json!(id),
            None => {
                let newest = client.call("plans.list", &json!({ "limit": 1 })).await?;
                let id = newest.pointer("/items/0/id").cloned();
                id.ok_or_else(|| {
                    Failure::failed("the control plane has made no plan yet").hint("`better-compute status` says why")
                })?
            }
        };
        let stored = client.call("plans.get", &json!({ "id": id })).await?;
        let plan = document(&stored)?;
        if output.is_json() {
            output.json(&stored)?;
        } else {
            show_stored(&stored, output)?;
        }
        Ok(End::of(&plan))
    }

    fn commits(&self, head: &str) -> Result<(Base, Head), Failure> {
        let dir = self.repo.clone().or_else(|| self.subject.as_ref().map(PathBuf::from));
        let dir = dir.map_or_else(|| tree::root(None), Ok)?;
        let (repo, folder) = open(&dir)?;
        let folder = self.path.clone().unwrap_or(folder);
        let commit = source::resolve(&repo, head).map_err(|error| git("cannot find the head", &error))?;
        let files = source::read_tree(&repo, &commit, &folder).map_err(|error| git("cannot read the head", &error))?;
        Ok((self.base(&repo, &folder)?, Head { commit: Some(commit), loaded: fleet::load(&files) }))
    }

    fn working_tree(&self) -> Result<(Base, Head), Failure> {
        let root = tree::root(self.subject.as_ref().map(Path::new))?;
        let loaded = fleet::load(&tree::read(&root)?);
        let (repo, folder) = open(&root)?;
        Ok((self.base(&repo, &folder)?, Head { commit: None, loaded }))
    }

    /// The fleet to start from: at the named commit, or at the nearest one before it that has no error, as a control plane
    /// would have it.
    fn base(&self, repo: &Repo, folder: &str) -> Result<Base, Failure> {
        let named = self.base.as_deref().unwrap_or("HEAD");
        let first = match source::resolve(repo, named) {
            Ok(commit) => commit,
            Err(GitError::BranchMissing(_) | GitError::Empty) if self.base.is_none() => return Ok(Base(None)),
            Err(error) => return Err(git("cannot find the base", &error)),
        };
        let mut commit = first.clone();
        for _ in 0..LOOK_BACK {
            let files =
                source::read_tree(repo, &commit, folder).map_err(|error| git("cannot read the base", &error))?;
            if let Some(fleet) = fleet::load(&files).fleet {
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

enum End {
    Nothing,
    Changes,
    Invalid,
}

struct Base(Option<(String, Fleet)>);

struct Head {
    commit: Option<String>,
    loaded: Loaded,
}

impl Base {
    fn observed(&self) -> Observed {
        match &self.0 {
            Some((commit, fleet)) => Observed::from_fleet(fleet).at_commit(commit),
            None => Observed::nothing(Machines::Declared),
        }
    }
}

impl End {
    fn of(plan: &plan::Plan) -> Self {
        let nothing =
            plan.objects.is_empty() && plan.nodes.is_empty() && plan.targets.is_empty() && plan.holds.is_empty();
        if nothing { Self::Nothing } else { Self::Changes }
    }
}

fn show(plan: &plan::Plan, output: &Output) -> Result<End, Failure> {
    if output.is_json() {
        output.json(&serde_json::to_value(plan).during("cannot write the plan")?)?;
    } else {
        output.line(in_words(plan, output))?;
    }
    Ok(End::of(plan))
}

/// Shows what `plans.get` answered.
///
/// # Errors
/// When it is no plan that this version knows.
pub fn show_stored(stored: &Value, output: &Output) -> Result<(), Failure> {
    let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    output.line(format!("{}  {}\n\n{}", text("/plan/id"), text("/plan/state"), in_words(&document(stored)?, output)))
}

fn document(stored: &Value) -> Result<plan::Plan, Failure> {
    let document = stored.get("document").cloned().unwrap_or(Value::Null);
    serde_json::from_value(document).during("the control plane's plan is in a form that this version does not know")
}

fn in_words(plan: &plan::Plan, output: &Output) -> String {
    let options =
        RenderOptions { colour: output.colour, width: output.width.unwrap_or(100), ..RenderOptions::default() };
    plan::render(plan, options).trim_end().to_owned()
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
