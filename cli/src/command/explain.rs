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
            let told: Vec<String> = values.iter().map(|value| in_full(value, &loaded.sources, output)).collect();
            output.line(told.join("\n\n"))?;
        } else {
            output.table(&screen(&values, output), "nothing is said about its host")?;
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

/// How far what is told in full stands from its label.
const COLUMN: usize = 12;

/// Values that are told in full.
const FEW: usize = 3;

/// One value: who says it, where, what makes it, and what it won over.
fn in_full(value: &Provenance, sources: &SourceMap, output: &Output) -> String {
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
        let text = printable(text);
        if output.width.is_some_and(|width| COLUMN + 2 + text.chars().count() > width) {
            return output.labelled(label, COLUMN, &text, "  ");
        }
        format!("  {}  {text}", Style::Dim.paint(&format!("{label:10}"), output.colour)).trim_end().to_owned()
    });
    std::iter::once(printable(&value.path)).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Where a value is written, and what it won over.
fn places(value: &Provenance) -> (String, String) {
    let place = match &value.template {
        Some(template) => format!("{} via {template}", value.at),
        None => value.at.to_string(),
    };
    (place, value.beaten.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn table(values: &[Provenance]) -> Table {
    let mut table =
        Table::new(&["path", "value", "from", "where", "instead of"]).whole(&["path", "from", "where", "instead of"]);
    for value in values {
        let (place, beaten) = places(value);
        let (path, said, layer) = (value.path.as_str(), value.value.as_str(), value.layer.as_str());
        table.row([path.into(), said.into(), layer.into(), place.into(), beaten.into()]);
    }
    table
}

/// The table that fits.
fn screen(values: &[Provenance], output: &Output) -> Table {
    let wide = table(values);
    let fits = |width| wide.render(None, false).lines().all(|line| line.chars().count() <= width);
    if output.width.is_none_or(fits) { wide } else { narrow(values) }
}

/// The same where it does not fit: where a value comes from is a sentence beside it or below it.
fn narrow(values: &[Provenance]) -> Table {
    let mut table = Table::new(&["path", "value", "from"]).whole(&["path"]).words();
    for value in values {
        let (place, beaten) = places(value);
        let instead = if beaten.is_empty() { String::new() } else { format!(", instead of {beaten}") };
        let from = format!("{}, {place}{instead}", value.layer);
        table.row([value.path.as_str().into(), value.value.as_str().into(), from.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::output::Format;

    #[test]
    fn what_is_explained_fits_a_narrow_terminal_but_for_a_word_that_is_longer() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples-fleet");
        let loaded = fleet::load(&tree::read(&root).unwrap());
        let fleet = loaded.fleet.as_ref().expect("the example is a fleet");
        let output =
            Output { format: Format::Text, colour: false, width: Some(80), now: schema::time::Timestamp::UNIX_EPOCH };
        let (mut tables, mut pages) = (0, 0);
        for node in fleet.nodes.keys() {
            let values = fleet.explain(node, None).expect("a declared machine");
            let told = values.iter().map(|value| in_full(value, &loaded.sources, &output));
            let told: Vec<String> = told.chain([screen(&values, &output).render(output.width, false)]).collect();
            for line in told.iter().flat_map(|text| text.lines()) {
                assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{line}");
            }
            tables += 1;
            pages += values.len();
        }
        assert!(tables > 0 && pages > tables);
    }
}
