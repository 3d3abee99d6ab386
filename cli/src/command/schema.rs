//! `schema`: the JSON Schema of fleet documents, for editors.

use clap::Args;
use schema::{fleet, object::Kind};

use crate::{
    exit::{Exit, Failure},
    output::Output,
};

const EXAMPLES: &str = "\
Examples:
  better-compute schema > fleet.schema.json        all kinds, for the YAML files of a fleet
  better-compute schema pool                       one kind

A YAML file names it in its first line: # yaml-language-server: $schema=../fleet.schema.json";

/// Print the JSON Schema of fleet documents.
///
/// The schema (draft 2020-12) takes every form of YAML that the language takes. With it an editor completes keys, shows
/// what they mean and marks mistakes while a file is written.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Schema {
    /// Only this kind
    #[arg(value_name = "KIND", value_parser = kind)]
    pub kind: Option<Kind>,
}

impl Schema {
    /// Prints it.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        output.json(&fleet::json_schema(self.kind))?;
        Ok(Exit::Ok)
    }
}

/// A kind by its word.
pub(super) fn kind(word: &str) -> Result<Kind, String> {
    let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    word.parse().map_err(|error| format!("{error}; the kinds are {}", words.join(", ")))
}
