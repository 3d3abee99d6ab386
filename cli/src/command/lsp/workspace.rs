//! The fleets that are being edited: files on disk, open texts over them, and what is wrong in the whole.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use schema::{
    diagnostic::{Diagnostic, Severity, SourceRef},
    fleet::{Blob, Cache, Loaded, Outlined, SourceBlob, Sources, outline},
};
use serde_json::{Value, json};

use super::text;
use crate::tree;

/// The objects of files, each with the bytes they were seen in.
type Outlines = HashMap<Arc<str>, (Blob, Vec<Outlined>)>;

/// Everything that is known.
#[derive(Default)]
pub(super) struct Workspace {
    /// Open texts by file.
    open: BTreeMap<PathBuf, String>,
    fleets: BTreeMap<PathBuf, Fleet>,
}

/// One fleet, by the folder of its root file.
#[derive(Default)]
struct Fleet {
    disk: Sources,
    /// The files on disk with the open texts over them.
    sources: Sources,
    cache: Cache,
    /// The objects of every file that was looked into.
    outlines: RefCell<Outlines>,
    /// Whether something changed since findings were published, and whether on disk.
    stale: bool,
    unread: bool,
    /// Files that have findings in the editor.
    shown: BTreeSet<PathBuf>,
}

/// A file of a fleet.
pub(super) struct File<'w> {
    pub(super) root: &'w Path,
    /// Its path below the root.
    pub(super) path: String,
    pub(super) text: String,
}

impl Workspace {
    /// Takes in what an editor says.
    pub(super) fn hear(&mut self, method: &str, params: &Value) {
        let document = &params["textDocument"];
        let Some(file) = document["uri"].as_str().and_then(text::path) else {
            if method == "workspace/didChangeWatchedFiles" {
                self.fleets.values_mut().for_each(|fleet| (fleet.stale, fleet.unread) = (true, true));
            }
            return;
        };
        let saved = match method {
            "textDocument/didOpen" => {
                self.open.insert(file.clone(), document["text"].as_str().unwrap_or_default().to_owned());
                true
            }
            "textDocument/didChange" => {
                let whole = params["contentChanges"].as_array().and_then(|changes| changes.last());
                if let Some(whole) = whole.and_then(|change| change["text"].as_str()) {
                    self.open.insert(file.clone(), whole.to_owned());
                }
                false
            }
            "textDocument/didClose" => {
                self.open.remove(&file);
                true
            }
            "textDocument/didSave" => true,
            _ => return,
        };
        let Some(root) = root_of(&file) else { return };
        let known = self.fleets.contains_key(&root);
        let fleet = self.fleets.entry(root).or_default();
        fleet.stale = true;
        fleet.unread |= saved || !known;
    }

    /// The findings of every fleet that changed, by address of the file; files that have none any more are named too.
    pub(super) fn findings(&mut self) -> Vec<(String, Vec<Value>)> {
        let mut all = Vec::new();
        for (root, fleet) in self.fleets.iter_mut().filter(|(_, fleet)| fleet.stale) {
            fleet.stale = false;
            if std::mem::take(&mut fleet.unread) {
                fleet.disk = tree::read(root).unwrap_or_default();
            }
            fleet.sources = fleet.disk.clone();
            for (file, text) in &self.open {
                if let Some(path) = below(root, file).filter(|path| Sources::wants(path)) {
                    fleet.sources.insert_file(path, text.as_bytes());
                }
            }
            let loaded = fleet.cache.load(&fleet.sources);
            let mut found: BTreeMap<PathBuf, Vec<Value>> = BTreeMap::new();
            for finding in &loaded.diagnostics {
                found.entry(root.join(&*finding.file)).or_default().push(one(root, finding, &loaded));
            }
            for gone in fleet.shown.iter().filter(|file| !found.contains_key(*file)) {
                all.extend(text::uri(gone).map(|uri| (uri, Vec::new())));
            }
            fleet.shown = found.keys().cloned().collect();
            all.extend(found.into_iter().filter_map(|(file, found)| Some((text::uri(&file)?, found))));
        }
        all
    }

    /// The file that a request is about.
    pub(super) fn file(&self, params: &Value) -> Option<File<'_>> {
        let file = text::path(params["textDocument"]["uri"].as_str()?)?;
        let root = root_of(&file)?;
        let (root, _) = self.fleets.get_key_value(&root)?;
        let path = below(root, &file)?;
        Some(File { root, path, text: self.open.get(&file)?.clone() })
    }

    /// Every object of a fleet and the file that it stands in, by its path below the root.
    pub(super) fn objects(&self, root: &Path) -> Vec<(Arc<str>, Outlined)> {
        let Some(fleet) = self.fleets.get(root) else { return Vec::new() };
        let mut known = fleet.outlines.take();
        let mut now = Outlines::new();
        for (path, blob) in fleet.sources.iter() {
            let SourceBlob::Bytes(blob) = blob else { continue };
            let seen = known.remove(path).filter(|(seen, _)| seen.same(blob));
            now.insert(Arc::clone(path), seen.unwrap_or_else(|| (blob.clone(), outline(path, blob))));
        }
        let objects =
            now.iter().flat_map(|(path, (_, objects))| objects.iter().map(|one| (Arc::clone(path), one.clone())));
        let mut objects: Vec<(Arc<str>, Outlined)> = objects.collect();
        objects.sort_by(|a, b| (&a.0, a.1.at).cmp(&(&b.0, b.1.at)));
        fleet.outlines.replace(now);
        objects
    }

    /// The text of a file of a fleet, as places in it are counted.
    pub(super) fn text(&self, root: &Path, path: &str) -> Option<String> {
        let SourceBlob::Bytes(blob) = self.fleets.get(root)?.sources.get(path)? else { return None };
        let text = std::str::from_utf8(blob).ok()?;
        Some(text.trim_start_matches('\u{feff}').replace("\r\n", "\n"))
    }

    /// Whether a fleet has a file at a path below its root.
    pub(super) fn has(&self, root: &Path, path: &str) -> bool {
        self.fleets.get(root).is_some_and(|fleet| fleet.sources.get(path).is_some())
    }
}

/// The folder of the fleet that a file belongs to.
fn root_of(file: &Path) -> Option<PathBuf> {
    file.ancestors().skip(1).find(|dir| tree::root_file(dir).is_some()).map(Path::to_owned)
}

fn below(root: &Path, file: &Path) -> Option<String> {
    file.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

fn one(root: &Path, finding: &Diagnostic, loaded: &Loaded) -> Value {
    let severity = match finding.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    let mut message = finding.message.clone();
    if let Some(help) = &finding.help {
        message.push_str("\nhelp: ");
        message.push_str(help);
    }
    let related = finding.labels.iter().filter_map(|label| {
        let uri = text::uri(&root.join(&*label.at.file))?;
        Some(json!({ "location": { "uri": uri, "range": range(&label.at, loaded) }, "message": label.text }))
    });
    json!({
        "range": range(&finding.at(), loaded),
        "severity": severity,
        "code": finding.code,
        "source": "better-compute",
        "message": message,
        "relatedInformation": related.collect::<Vec<_>>(),
    })
}

fn range(at: &SourceRef, loaded: &Loaded) -> Value {
    let text = loaded.sources.text(&at.file).unwrap_or_default();
    text::range(text, at.span.start as usize, at.span.end as usize)
}
