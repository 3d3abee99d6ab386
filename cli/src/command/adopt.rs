//! `adopt`: takes what a machine has over into the fleet repository, as an edit that keeps every other byte.

mod edit;
mod others;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use schema::{
    fleet::{SourceBlob, Sources, host_path::canonical},
    object::{Kind, ObjectRef},
    report::DriftEntry,
};
use serde_json::json;
use similar::TextDiff;

use self::edit::Machine;
use super::drift;
use crate::{
    args::FormatArg,
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{self, Output, text::printable_lines},
    tree,
};

const EXAMPLES: &str = "\
Examples:
  better-compute adopt node/fra1-r12-u04 sysctl.vm.swappiness         show the edit
  better-compute adopt node/fra1-r12-u04 files./etc/motd --write      change the file
  better-compute adopt node/fra1-r12-u04 sysctl.vm.swappiness ~/fleet --write

`better-compute drift` shows what can be taken over. The edit replaces the value where it is written and
keeps comments and everything else byte for byte; commit it, and the machine and its fleet agree.";

/// Take what a machine has over into the fleet repository.
///
/// Takes the value that a machine was seen to have, finds the place in the fleet repository where the desired one is
/// written, and prints the edit as a unified diff, or makes it with --write. What a template makes is not edited: the
/// template is named instead.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Adopt {
    /// The machine, by name
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The field as `drift` shows it, for example sysctl.vm.swappiness; files./etc/motd takes all of a file that drifted
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Directory that holds fleet.kdl; found from here upwards when it is not named
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Insist that the value is written in this layer, for example profile/gpu-host
    #[arg(long, value_name = "LAYER")]
    pub into: Option<ObjectRef>,
    /// Change the file instead of printing the edit
    #[arg(long)]
    pub write: bool,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Adopt {
    /// Makes the edit.
    ///
    /// # Errors
    /// When nothing drifted there, or the value cannot be taken over.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let named = if self.node.contains('/') { self.node.clone() } else { format!("node/{}", self.node) };
        let node: ObjectRef = named.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        if node.kind != Kind::Node {
            return Err(Failure::usage(format!("{node} is no machine")).hint("write the name of a machine"));
        }
        let root = tree::root(self.dir.as_deref())?;
        let before = tree::read(&root)?;
        let client = Client::new(&self.target)?;
        let path = canonical(&self.path);
        let found = drift::read(&drift::ask(&client, Some(node.name.as_str()), None, Some(&path)).await?)?;
        let Some(first) = found.first() else {
            return Err(Failure::failed(format!("nothing at {path} has drifted on {}", node.name))
                .hint(format!("`better-compute drift {}` shows what has", node.name)));
        };
        let machine = Machine { name: node.name.to_string(), pool: first.pool.clone() };
        let entries: Vec<DriftEntry> = found.iter().map(|drifted| drifted.entry.clone()).collect();

        let into = self.into.as_ref().map(ToString::to_string);
        let mut after = before.clone();
        let mut edits = Vec::new();
        for entry in &entries {
            edits.push(edit::adopt(&mut after, &machine, entry, into.as_deref())?);
        }
        let others = others::count(&client, &before, &after, &machine, &entries).await?;
        let files: BTreeSet<Arc<str>> = edits.iter().map(|edit| Arc::clone(&edit.file)).collect();
        let diffs: Vec<(Arc<str>, String)> =
            files.iter().map(|file| (Arc::clone(file), diff(file, &before, &after))).collect();
        if self.write {
            for file in &files {
                write(&root, file, &before, &after)?;
            }
        }
        if output.is_json() {
            let layers: Vec<&str> = edits.iter().map(|edit| edit.layer.as_str()).collect();
            let edits: Vec<_> = diffs.iter().map(|(file, diff)| json!({ "file": file, "diff": diff })).collect();
            output.json(&json!({
                "node": node.name, "path": path, "layers": layers, "edits": edits, "written": self.write,
                "otherMachines": others.names,
            }))?;
        } else {
            for (file, diff) in &diffs {
                let diff = diff.trim_end();
                // A patch is written as it is; a terminal is not steered by what a machine's file holds.
                let shown = if output.width.is_some() { printable_lines(diff) } else { diff.to_owned() };
                output.line(if self.write { format!("changed {file}") } else { shown })?;
            }
        }
        self.say(&entries, &edits, &others);
        Ok(Exit::Ok)
    }

    fn say(&self, entries: &[DriftEntry], edits: &[edit::Edit], others: &others::Others) {
        if let Some(text) = others.in_words(&edits[0].layer) {
            output::note(text);
        }
        if let Some(entry) = entries.iter().find(|entry| entry.corrected) {
            output::note(format!(
                "note: {} was put right: the machine has the old value until this edit is in force",
                entry.path
            ));
        }
        if !self.write {
            output::note("nothing was changed; --write changes the file");
        }
    }
}

fn text(sources: &Sources, file: &str) -> String {
    match sources.get(file) {
        Some(SourceBlob::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

fn diff(file: &str, before: &Sources, after: &Sources) -> String {
    let (before, after) = (text(before, file), text(after, file));
    let diff = TextDiff::from_lines(&before, &after);
    diff.unified_diff().header(&format!("a/{file}"), &format!("b/{file}")).to_string()
}

/// Puts the changed file in place whole, unless somebody changed it in between.
fn write(root: &Path, file: &str, before: &Sources, after: &Sources) -> Result<(), Failure> {
    let (Some(SourceBlob::Bytes(before)), Some(SourceBlob::Bytes(after))) = (before.get(file), after.get(file)) else {
        return Err(Failure::failed(format!("{file} cannot be read")));
    };
    let path = root.join(file);
    let what = || format!("cannot change {}", path.display());
    let now = fs::read(&path).during(what())?;
    if now[..] != before[..] {
        return Err(Failure::failed(format!("{file} was changed in between")).hint("run the same command again"));
    }
    let place = || -> io::Result<()> {
        let dir = path.parent().unwrap_or(root);
        let mut beside = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut beside, after)?;
        beside.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
        beside.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    place().during(what())
}
