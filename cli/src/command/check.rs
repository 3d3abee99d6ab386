//! `check`: every mistake in a working tree, offline.

mod github;
mod sarif;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schema::{
    diagnostic::{self, render::Colour},
    fleet::{self, Fleet, Loaded},
};

use super::plan::Trees;
use crate::{
    exit::{Exit, Failure},
    output::{Output, text::count},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute check                           the fleet around here
  better-compute check examples-fleet
  better-compute check --format github           annotations on a pull request
  better-compute check --format sarif > out.sarif
  better-compute check --head origin/main        a commit, without a look at the working tree

Exits with 3 when there is an error. `better-compute explain BC0203` says more about a code.";

/// Look for mistakes in a fleet repository.
///
/// Reads every file below the directory that holds `fleet.kdl` and reports every mistake at once, with its place and help.
/// Neither git nor a control plane is needed; with --head a commit is read from git's objects.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Directory that holds fleet.kdl; found from here upwards when it is not named
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Commit, branch or tag to check, instead of the working tree
    #[arg(long, value_name = "COMMIT")]
    pub head: Option<String>,
    /// Repository, bare or with a working tree, that the commit is in
    #[arg(long, value_name = "DIR", requires = "head")]
    pub repo: Option<PathBuf>,
    /// Folder of the repository that holds the fleet
    #[arg(long, value_name = "FOLDER", requires = "head")]
    pub path: Option<String>,
    /// How findings are written
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: CheckFormat,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CheckFormat {
    /// For people, with source lines and carets
    #[default]
    Text,
    /// For programs
    Json,
    /// Annotations that GitHub shows on a pull request
    Github,
    /// SARIF 2.1.0, for code-scanning tools
    Sarif,
}

impl Check {
    /// Checks, and says what was found.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let loaded = match &self.head {
            Some(head) => self.trees().commit(head)?.loaded,
            None => fleet::load(&tree::read(&tree::root(self.dir.as_deref())?)?),
        };
        let prefix = match &self.head {
            Some(_) => self.path.clone().unwrap_or_default(),
            None => self.dir.as_deref().map(|dir| dir.display().to_string()).unwrap_or_default(),
        };
        match self.format {
            CheckFormat::Text => output.line(in_words(&loaded, output.colour))?,
            CheckFormat::Json => output.json(&diagnostic::json::to_value(&loaded.diagnostics))?,
            CheckFormat::Github => output.line(github::annotations(&loaded.diagnostics, &prefix))?,
            CheckFormat::Sarif => output.json(&sarif::log(&loaded.diagnostics, &prefix))?,
        }
        Ok(if loaded.fleet.is_some() { Exit::Ok } else { Exit::InvalidFleet })
    }

    fn trees(&self) -> Trees<'_> {
        Trees { subject: self.dir.as_deref(), repo: self.repo.as_deref(), folder: self.path.as_deref(), base: None }
    }
}

/// Findings for people, and a last line that says what kind of fleet it is.
#[must_use]
pub fn in_words(loaded: &Loaded, colour: bool) -> String {
    let colour = if colour { Colour::Always } else { Colour::Never };
    let findings = diagnostic::render::text(&loaded.diagnostics, &loaded.sources, colour);
    let verdict = loaded.fleet.as_ref().map_or_else(String::new, |fleet| format!("ok: {}", summary(fleet)));
    format!("{findings}{verdict}").trim_end().to_owned()
}

fn summary(fleet: &Fleet) -> String {
    let counts = [
        (fleet.sites.len(), "site"),
        (fleet.pools.len(), "pool"),
        (fleet.profiles.len(), "profile"),
        (fleet.images.len(), "image"),
        (fleet.rollouts.len(), "rollout"),
        (fleet.nodes.len(), "declared node"),
    ];
    let words: Vec<String> =
        counts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| count(*number as u64, word)).collect();
    format!(
        "fleet {}: {}",
        fleet.document.name,
        if words.is_empty() { "nothing in it".to_owned() } else { words.join(", ") }
    )
}
