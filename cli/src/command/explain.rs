//! `explain`: the page of an error code, or where a machine's values come from.

use std::path::PathBuf;

use clap::Args;
use schema::{
    diagnostic::codes::{self, Code},
    fleet::{self, Provenance},
    object::{Kind, ObjectRef},
};
use serde_json::json;

use super::check;
use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::{Output, Table},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute explain BC0203                     what it means, how to mend it
  better-compute explain node/fra1-r12-u04          every value and its place
  better-compute explain node/fra1-r12-u04 host.sysctl
  better-compute explain node/fra1-r12-u04 --dir examples-fleet";

/// Explain an error code, or where a value comes from.
///
/// Explains an error code in words, or prints each value of a declared machine with the file, line, column and layer
/// (fleet, site, pool, profile chain, node) that it comes from.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// An error code such as BC0203, or a declared machine such as node/fra1-r12-u04
    #[arg(value_name = "CODE|node/NAME")]
    pub subject: String,
    /// Only values at or below this path, for example host.sysctl
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
    /// Directory that holds fleet.kdl; found from here upwards when it is not named
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

impl Explain {
    /// Explains.
    ///
    /// # Errors
    /// When the subject is nothing that can be explained, or the fleet has errors.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        if self.subject.contains('/') {
            return self.machine(output);
        }
        let code: Code = self.subject.parse().map_err(|_| {
            Failure::usage(format!("{:?} is neither an error code nor a machine", self.subject))
                .hint("write a code such as BC0203, or a declared machine such as node/fra1-r12-u04")
        })?;
        let entry = codes::ALL.iter().find(|entry| entry.code == code).expect("a code that parses is in the registry");
        if output.is_json() {
            output
                .json(&json!({ "code": code, "severity": entry.severity, "title": entry.title, "page": entry.page }))?;
        } else {
            output.line(entry.page.trim_end())?;
        }
        Ok(Exit::Ok)
    }

    fn machine(&self, output: &Output) -> Result<Exit, Failure> {
        let object: ObjectRef = self.subject.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        if object.kind != Kind::Node {
            return Err(Failure::usage(format!("only machines can be explained, and {object} is not one"))
                .hint("write node/NAME"));
        }
        let root = tree::root(self.dir.as_deref())?;
        let loaded = fleet::load(&tree::read(&root)?);
        let Some(fleet) = &loaded.fleet else {
            output.line(check::in_words(&loaded, output.colour))?;
            return Ok(Exit::InvalidFleet);
        };
        let Some(values) = fleet.explain(&object.name, self.path.as_deref()) else {
            let names: Vec<&str> = fleet.nodes.keys().map(|name| name.as_str()).take(8).collect();
            let hint = if names.is_empty() {
                "this fleet declares no machine; values of its pool are in `better-compute plan`".to_owned()
            } else {
                format!("declared machines: {}", names.join(", "))
            };
            return Err(Failure::failed(format!("no document declares {object}")).hint(hint));
        };
        if output.is_json() {
            output.json(&json!({ "object": object, "values": values }))?;
        } else {
            output.table(&table(&values), "nothing is said at that path")?;
        }
        Ok(if values.is_empty() { Exit::Failed } else { Exit::Ok })
    }
}

fn table(values: &[Provenance]) -> Table {
    let mut table =
        Table::new(&["path", "value", "from", "where", "instead of"]).whole(&["path", "from", "where", "instead of"]);
    for value in values {
        let place = value
            .template
            .as_ref()
            .map_or_else(|| value.at.to_string(), |template| format!("{} via {template}", value.at));
        let beaten: Vec<String> = value.beaten.iter().map(ToString::to_string).collect();
        table.row([
            value.path.as_str().into(),
            value.value.as_str().into(),
            value.layer.as_str().into(),
            place.into(),
            beaten.join(", ").into(),
        ]);
    }
    table
}
