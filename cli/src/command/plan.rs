//! `plan`: what a change would do. Offline between two commits, or between HEAD and the working tree; against the machines
//! of a control plane; as a control plane computed it; or from a file.

mod preview;
mod show;
mod trees;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use schema::id::PlanId;
use serde_json::json;

use crate::{
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{Format, Output},
};
pub(super) use preview::{Answer, of_revision};
pub use show::show_stored;
use show::{End, Look};
pub(super) use show::{document, in_words};
use trees::Head;
pub(super) use trees::Trees;

const EXAMPLES: &str = "\
Examples:
  better-compute plan                                 HEAD against the working tree
  better-compute plan --base origin/main --head HEAD  what a branch would change
  better-compute plan --base v1 --head v2 --repo /srv/fleet.git --path eu
  better-compute plan --live                          the same for the machines there really are
  better-compute plan --live --base origin/main --head HEAD
  better-compute plan --newest                        what the control plane planned last
  better-compute plan plan_01k9m2v7t3c4w8d5e6f7g8h9ja
  better-compute plan plan.json --all                 a plan that was kept as a file
  better-compute plan --newest --against plan.json    what moved since it was shown
  better-compute plan --exit-code --format json       for a pipeline
  better-compute plan --format markdown               for a comment on a pull request
  better-compute plan --output markdown=plan.md --output json=plan.json    on the terminal, and in two files

With --exit-code: 0 nothing to do, 2 changes, 1 error. Without it 3 is a fleet with errors.";

/// Show what a change would do.
///
/// Compares two commits, or HEAD with the working tree, with the same function that a control plane uses: objects that
/// come, change, go or are retained, what hosts should be, and what is done to which machine. Offline it knows declared
/// machines only. With --live a control plane plans it for the machines it really has; a token with the scope
/// `plans:preview` is enough, and nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Plan {
    /// Directory that holds fleet.kdl, a plan's id, or a file with a plan; found from here upwards when it is not named
    #[arg(value_name = "DIR|PLAN|FILE")]
    pub subject: Option<String>,
    /// Commit, branch or tag to start from [default: HEAD; with --live what is in force]
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
    /// Let the control plane plan it, for the machines it really has
    #[arg(long)]
    pub live: bool,
    /// Show the newest plan that the control plane made
    #[arg(long, conflicts_with_all = ["base", "head", "subject", "live"])]
    pub newest: bool,
    /// Hold it against a plan that was shown before: an id, a file, or the digest of a trailer
    #[arg(long, value_name = "PLAN|FILE|DIGEST")]
    pub against: Option<String>,
    /// Name everything instead of counting what is much alike
    #[arg(long)]
    pub all: bool,
    /// Exit with 2 when there are changes, with 1 on any error
    #[arg(long)]
    pub exit_code: bool,
    /// How the plan is written
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: PlanFormat,
    /// Write it into a file as well, in a form of its own; may be given several times, and is planned once
    #[arg(long = "output", value_name = "FORMAT=FILE", value_parser = copy)]
    pub copies: Vec<Copy>,
    /// Word in the hidden first line of the Markdown, where one repository has several fleets
    #[arg(long, value_name = "WORD", default_value = "")]
    pub key: String,
    /// Which control plane, for --live and --newest
    #[command(flatten)]
    pub target: Target,
}

/// How a plan is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PlanFormat {
    /// For people, on a terminal
    #[default]
    Text,
    /// For programs: docs/reference/plan.md says what is in it
    Json,
    /// For a comment on a pull request: never more than 60,000 bytes
    Markdown,
}

/// A file that the plan is written into as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// In which form.
    pub format: PlanFormat,
    /// Where.
    pub file: PathBuf,
}

fn copy(text: &str) -> Result<Copy, String> {
    let (format, file) = text.split_once('=').unwrap_or((text, ""));
    let format = PlanFormat::from_str(format, false).map_err(|_| "write text=FILE, json=FILE or markdown=FILE")?;
    if file.is_empty() {
        return Err("write FORMAT=FILE, for example markdown=plan.md".to_owned());
    }
    Ok(Copy { format, file: PathBuf::from(file) })
}

impl PlanFormat {
    /// How anything else that the command says is written.
    #[must_use]
    pub const fn output(self) -> Format {
        match self {
            Self::Json => Format::Json,
            Self::Text | Self::Markdown => Format::Text,
        }
    }
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
        let against = match &self.against {
            Some(name) => Some(self.shown_before(name).await?),
            None => None,
        };
        let look = Look {
            format: self.format,
            copies: &self.copies,
            all: self.all,
            key: &self.key,
            against: against.as_deref(),
            output,
        };
        let id = self.subject.as_ref().and_then(|subject| subject.parse::<PlanId>().ok());
        if self.newest || id.is_some() {
            return self.stored(id, look).await;
        }
        if let Some(file) = self.subject.as_ref().map(Path::new).filter(|path| path.is_file()) {
            return look.plan(&show::from_file(file)?);
        }
        let trees = Trees {
            subject: self.subject.as_deref().map(Path::new),
            repo: self.repo.as_deref(),
            folder: self.path.as_deref(),
            base: self.base.as_deref(),
        };
        let head = match &self.head {
            Some(commit) => trees.commit(commit)?,
            None => trees.working_tree()?,
        };
        let Some(fleet) = &head.loaded.fleet else { return look.findings(&head.loaded) };
        if self.live {
            let client = Client::new(&self.target)?;
            return match preview::of_head(&client, &head, self.base.as_deref()).await? {
                Answer::Plan(mut plan) => {
                    // The control plane had files; the commits are here.
                    if let Some(here) = head.commit.as_ref().and_then(|_| head.signatures()) {
                        let there = "the control plane planned files and looked at no signature";
                        plan.signatures = Some(format!("{here} (as this clone has it; {there})"));
                    }
                    look.plan(&plan)
                }
                Answer::Invalid(findings) => look.said_invalid(&findings),
            };
        }
        let observed = trees.base(&head)?.observed();
        let planned = reconciler::plan::plan(fleet, &observed, output.now);
        let mut planned = match &head.commit {
            Some(commit) => planned.at_commit(commit),
            None => planned,
        };
        planned.plan.signatures = head.signatures();
        look.plan(&planned.plan)
    }

    /// A plan of the control plane.
    async fn stored(&self, id: Option<PlanId>, look: Look<'_>) -> Result<End, Failure> {
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
        if self.format == PlanFormat::Text {
            look.output.line(format!("{}\n", show::headline(&stored)))?;
        }
        // What is held because it was shown otherwise is of use only beside what was shown.
        let shown = plan.bind.as_ref().filter(|bind| bind.held > 0).and_then(|bind| bind.shown);
        if let (Some(digest), None) = (shown, look.against)
            && let Ok(before) = client.call("plans.get", &json!({ "digest": digest })).await
        {
            return Look { against: Some(&document(&before)?), ..look }.plan(&plan);
        }
        look.plan(&plan)
    }

    /// A plan that was shown before.
    async fn shown_before(&self, name: &str) -> Result<Box<reconciler::plan::Plan>, Failure> {
        if self.format != PlanFormat::Text {
            return Err(Failure::usage("--against writes text").hint("leave --format out"));
        }
        if Path::new(name).is_file() {
            return show::from_file(Path::new(name)).map(Box::new);
        }
        let which = if name.starts_with("sha256:") { "digest" } else { "id" };
        let stored = Client::new(&self.target)?.call("plans.get", &json!({ which: name })).await?;
        document(&stored).map(Box::new)
    }
}

/// The text of a file.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).during(format!("cannot read {}", path.display()))
}
