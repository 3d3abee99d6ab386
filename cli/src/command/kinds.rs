//! `kinds`: what a fleet repository can hold, and the keys of each kind; what can be asked of a node.

use clap::Args;
use schema::{
    command::CommandKind,
    fleet::reference::{self, Key, KindDoc, Naming, Takes},
    object::Kind,
};
use serde_json::{Value, json};

use super::schema::kind;
use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::{Output, Table, text::Style},
};

mod commands;

pub use commands::command_kind;

const EXAMPLES: &str = "\
Examples:
  better-compute kinds
  better-compute kinds pool             its keys, what they take and say
  better-compute kinds --commands       what `run` and the control plane ask of nodes
  better-compute kinds --commands diag.nvml
  better-compute kinds --format json";

/// List the kinds of objects a fleet repository can hold, or the keys of one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Kinds {
    /// A kind whose keys are listed
    #[arg(value_name = "KIND", value_parser = kind)]
    pub kind: Option<Kind>,
    /// List the kinds of commands to nodes instead, or what one takes and answers
    #[arg(
        long,
        value_name = "COMMAND",
        num_args = 0..=1,
        conflicts_with = "kind",
        value_parser = command_kind
    )]
    pub commands: Option<Option<CommandKind>>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

impl Kinds {
    /// Lists.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match self.commands {
            Some(Some(kind)) => return commands::page(kind, output).map(|()| Exit::Ok),
            Some(None) => return commands::list(output).map(|()| Exit::Ok),
            None => {}
        }
        match (self.kind.map(reference::kind), output.is_json()) {
            (Some(kind), true) => output.json(&in_json(kind))?,
            (Some(kind), false) => page(kind, output)?,
            (None, true) => {
                let kinds = reference::kinds().iter();
                let kinds =
                    kinds.map(|kind| json!({ "kind": kind.kind.as_str(), "file": kind.file, "says": kind.doc }));
                output.json(&json!({ "kinds": kinds.collect::<Vec<_>>() }))?;
            }
            (None, false) => {
                let mut table = Table::new(&["kind", "usual file", "it says"]);
                for kind in reference::kinds() {
                    table.row([kind.kind.as_str().into(), kind.file.into(), kind.doc.as_str().into()]);
                }
                output.table(&table, "")?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn page(kind: &KindDoc, output: &Output) -> Result<(), Failure> {
    let named = match kind.naming {
        Naming::Name => "has a name",
        Naming::Optional => "may have a name",
        Naming::Address => "is named by the address of the object",
        Naming::Nameless => "has no name",
    };
    output.line(format!("{}: {}\nIt {named}, and is usually in {}.\n", kind.kind, kind.doc, kind.file))?;
    let mut table = Table::new(&["key", "takes", "it says"]).whole(&["key"]);
    rows(&kind.keys, 0, &mut table);
    output.table(&table, "")?;
    output.line(format!("\n* must be there\n\n{}", kind.kdl.trim_end()))
}

fn rows(keys: &[Key], depth: usize, table: &mut Table) {
    for key in keys.iter().filter(|key| key.takes != Takes::Later) {
        let star = if key.required { "*" } else { "" };
        let word = format!("{}{}{star}", "  ".repeat(depth), key.key);
        let or = if key.or.is_empty() { String::new() } else { format!(" (this or {})", key.or.join(" or ")) };
        let says = crate::output::table::Cell::from(format!("{}{or}", key.doc)).style(Style::Dim);
        table.row([word.into(), key.takes.in_words().into(), says]);
        rows(key.keys(), depth + 1, table);
    }
}

fn in_json(kind: &KindDoc) -> Value {
    json!({
        "kind": kind.kind.as_str(),
        "file": kind.file,
        "says": kind.doc,
        "keys": keys_in_json(&kind.keys),
        "example": kind.kdl,
    })
}

fn keys_in_json(keys: &[Key]) -> Vec<Value> {
    let carried = keys.iter().filter(|key| key.takes != Takes::Later);
    let one = |key: &Key| {
        let mut one = json!({
            "key": key.key,
            "takes": key.takes.in_words(),
            "required": key.required,
            "says": key.doc,
        });
        if let Takes::Words(words) = key.lone().1 {
            one["words"] = json!(words);
        }
        if !key.or.is_empty() {
            one["or"] = json!(key.or);
        }
        if !key.keys().is_empty() {
            one["keys"] = json!(keys_in_json(key.keys()));
        }
        one
    };
    carried.map(one).collect()
}
