//! `trust`: from an unsigned fleet to a verified one, and what people say as they go on.

mod init;
mod pin;
mod say;
mod show;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use pki::trust::walk::Walked;

use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::{Output, text::printable},
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
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
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

impl Trust {
    /// Does it.
    ///
    /// # Errors
    /// With what is in the way.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Init(init) => init.run(output),
            Verb::Pin(pin) => pin.run(output),
            Verb::Show(show) => show.run(output),
            Verb::Vouch(vouch) => vouch.run(output),
            Verb::Agree(agree) => agree.run(output),
            Verb::Revoke(revoke) => revoke.run(output),
            Verb::Reseal(reseal) => reseal.run(output),
        }
    }
}

/// Facts of a history, each in a line or more that fit; what people compare stays whole.
pub(super) fn facts(rows: &[(&str, String)], output: &Output) -> String {
    let row = |(label, text): &(&str, String)| output.labelled(label, 8, &printable(text), "");
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// The policy in force, as it is compared.
pub(super) fn in_force(walked: &Walked) -> String {
    let policy = walked.policy.as_ref();
    policy.map_or_else(|| "none in force".to_owned(), |policy| format!("epoch {}, {}", policy.epoch(), policy.digest()))
}

/// The fleet's folder in a work tree.
fn work_tree(dir: &Path, folder: &str) -> Result<PathBuf, Failure> {
    let top = crate::statement::git(dir, &["rev-parse", "--show-toplevel"])
        .map_err(|why| Failure::failed(format!("there is no work tree here: {why}")))?;
    Ok(Path::new(&top).join(folder))
}
