//! `explain`: the page of an error code, or where the values of a machine come from.

use std::path::PathBuf;

use clap::Args;
use schema::{
    diagnostic::codes::{self, Code},
    fleet::{self, Provenance, SourceMap, host_path},
    object::{Kind, ObjectRef},
};
use serde_json::json;

use super::check;
use crate::{
    args::FormatArg,
    exit::{Exit, Failure},
    output::{
        Output, Table,
        text::{Style, printable},
    },
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute explain BC0203                     what it means, how to mend it
  better-compute explain node/fra1-r12-u04          every value and its place
  better-compute explain node/fra1-r12-u04 sysctl
  better-compute explain node/fra1-r12-u04 files./etc/motd.content
  better-compute explain pool/h100                  its machines without a document
  better-compute explain node/fra1-r12-u04 --dir examples-fleet";

/// Explain an error code, or where a value comes from.
///
/// Explains an error code in words, or prints each value of a machine with the file, line, column and layer (fleet, site,
/// pool, profile chain, node) that it comes from, and what it won over. One value is told in full: with its template, what
/// that reads, and where it is written.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// An error code such as BC0203, a declared machine such as node/fra1-r12-u04, or a pool
    #[arg(value_name = "CODE|node/NAME|pool/NAME")]
    pub subject: String,
    /// Only values at or below this path, for example sysctl, files./etc/motd or kernelArgs
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
                .hint("write a code such as BC0203, a declared machine such as node/fra1-r12-u04, or a pool")
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
        if !matches!(object.kind, Kind::Node | Kind::Pool) {
            return Err(Failure::usage(format!("only machines and pools can be explained, and {object} is neither"))
                .hint("write node/NAME or pool/NAME"));
        }
        let root = tree::root(self.dir.as_deref())?;
        let loaded = fleet::load(&tree::read(&root)?);
        let Some(fleet) = &loaded.fleet else {
            output.line(check::in_words(&loaded, output.colour))?;
            return Ok(Exit::InvalidFleet);
        };
        let path = self.path.as_deref();
        let told = |path| match object.kind {
            Kind::Pool => fleet.explain_pool(&object.name, path),
            _ => fleet.explain(&object.name, path),
        };
        let values = told(path);
        let Some(values) = values else {
            let names: Vec<&str> = match object.kind {
                Kind::Pool => fleet.pools.keys().map(|name| name.as_str()).take(8).collect(),
                _ => fleet.nodes.keys().map(|name| name.as_str()).take(8).collect(),
            };
            let hint = match (object.kind, names.is_empty()) {
                (Kind::Pool, false) => format!("the pools are: {}", names.join(", ")),
                (Kind::Pool, true) => "this fleet has no pool".to_owned(),
                (_, false) => format!(
                    "declared machines: {}; a machine without a document is as its pool: pool/NAME",
                    names.join(", ")
                ),
                (_, true) => "this fleet declares no machine; its machines are as their pools: pool/NAME".to_owned(),
            };
            return Err(Failure::failed(format!("no document declares {object}")).hint(hint));
        };
        if let Some(path) = path.filter(|_| values.is_empty()) {
            let all = told(None).unwrap_or_default();
            return Err(unknown(&object, path, &all));
        }
        if output.is_json() {
            output.json(&json!({ "object": object, "values": values }))?;
        } else if path.is_some() && (1..=FEW).contains(&values.len()) {
            let told: Vec<String> = values.iter().map(|value| in_full(value, &loaded.sources, output.colour)).collect();
            output.line(told.join("\n\n"))?;
        } else {
            output.table(&table(&values), "nothing is said about its host")?;
        }
        Ok(Exit::Ok)
    }
}

/// Nothing is said at a path: what was probably meant, or where there is something.
fn unknown(object: &ObjectRef, path: &str, all: &[Provenance]) -> Failure {
    let near = host_path::nearest(path, all.iter().map(|value| value.path.as_str()));
    let hint = if near.is_empty() {
        let mut roots: Vec<&str> = all.iter().filter_map(|value| value.path.split('.').next()).collect();
        roots.dedup();
        format!("there is something at: {}", roots.join(", "))
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    Failure::failed(format!("no document says anything at {:?} of {object}", host_path::canonical(path)))
        .hint(printable(&hint))
}

/// Values that are told in full.
const FEW: usize = 3;

/// One value: who says it, where, what makes it, and what it won over.
fn in_full(value: &Provenance, sources: &SourceMap, colour: bool) -> String {
    let mut rows: Vec<(&str, String)> =
        vec![("value", value.value.clone()), ("from", value.layer.clone()), ("written", value.at.to_string())];
    rows.extend(value.template.iter().map(|template| ("template", template.to_string())));
    let wide = value.reads.iter().map(|read| read.value.chars().count()).max().unwrap_or(0);
    for (index, read) in value.reads.iter().enumerate() {
        let from = read.from.as_ref().map(|from| format!(", written {from}")).unwrap_or_default();
        let label = if index == 0 { "reads" } else { "" };
        rows.push((label, format!("{:wide$}  {}{from}", read.value, read.at)));
    }
    for (index, beaten) in value.beaten.iter().enumerate() {
        let said =
            sources.text(&beaten.file).and_then(|text| text.get(beaten.span.start as usize..beaten.span.end as usize));
        let said = said.and_then(|said| said.lines().next()).map(|said| said.chars().take(60).collect::<String>());
        let said = said.map(|said| format!("  {said}")).unwrap_or_default();
        rows.push((if index == 0 { "instead of" } else { "" }, format!("{beaten}{said}")));
    }
    let lines = rows.iter().map(|(label, text)| {
        format!("  {}  {}", Style::Dim.paint(&format!("{label:10}"), colour), printable(text)).trim_end().to_owned()
    });
    std::iter::once(printable(&value.path)).chain(lines).collect::<Vec<_>>().join("\n")
}

fn table(values: &[Provenance]) -> Table {
    let mut table =
        Table::new(&["path", "value", "from", "where", "instead of"]).whole(&["path", "from", "where", "instead of"]);
    for value in values {
        let place = match &value.template {
            Some(template) => format!("{} via {template}", value.at),
            None => value.at.to_string(),
        };
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
