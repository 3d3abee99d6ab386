//! [`load`]: from blobs to a fleet, or to everything that is wrong with them.

mod decoded;
mod files;
mod objects;
mod parses;
mod tree;

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{Fleet, Sources, Stop, Stopped, check, suggest::similar};
use crate::{
    diagnostic::{self, Diagnostic, SourceMap, SourceRef, codes, shown},
    digest::Digest,
};

pub(super) use files::ParsedFile;
pub(super) use objects::{Objects, Parts};

/// What a tree turned out to be.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The fleet; `None` when any diagnostic is an error.
    pub fleet: Option<Fleet>,
    /// Everything that was found, sorted by file and line.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts, for quoting.
    pub sources: SourceMap,
    /// The trust domain that the fleet file names, whatever is wrong elsewhere.
    pub trust_domain: Option<String>,
}

impl Loaded {
    /// How many errors there are.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }
}

/// Bounds on a tree, looked at before anything is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fleet files and templates at most.
    pub files: usize,
    /// Bytes of them together at most.
    pub bytes: u64,
    /// Objects at most.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 150_000, bytes: 256 << 20, objects: 150_000 }
    }
}

/// Findings of one file that are shown; a file in another format would drown the rest.
const SHOWN_PER_FILE: usize = 100;

/// Reads a tree.
#[must_use]
pub fn load(sources: &Sources) -> Loaded {
    Cache::default().load(sources)
}

/// Reads a tree within bounds.
#[must_use]
pub fn load_with(sources: &Sources, limits: Limits) -> Loaded {
    Cache::default().load_with(sources, limits)
}

/// What was read of the last tree: files that are the same in the next one are not parsed, decoded, written as JSON or
/// rendered again. What [`Cache::load`] returns is the same, byte for byte, whatever was read before.
///
/// A copy is cheap and shares what it holds.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    files: Vec<ParsedFile>,
    clean: check::Clean,
    parses: parses::Parses,
    last: Option<(Digest, Limits, Loaded)>,
}

impl Cache {
    /// Remembers what [`Cache::kept`] or [`Cache::fresh`] gave. What is damaged, or of another version, is passed over.
    pub fn restore(&mut self, kept: &str) {
        self.parses.restore(kept);
    }

    /// Whether a text begins as one that this version kept.
    #[must_use]
    pub fn knows(kept: &str) -> bool {
        kept.lines().next() == Some(parses::PARSER)
    }

    /// What took long to parse of the last tree, for [`Cache::restore`] in another process.
    #[must_use]
    pub fn kept(&mut self) -> String {
        let used: HashSet<_> = self.files.iter().map(ParsedFile::digest).collect();
        let lines = self.parses.lines(|digest| used.contains(digest));
        lines.iter().fold(format!("{}\n", parses::PARSER), |kept, line| kept + line + "\n")
    }

    /// What took long to parse since this was last asked: lines to put at the end of what [`Cache::kept`] gave.
    #[must_use]
    pub fn fresh(&mut self) -> String {
        self.parses.take().iter().fold(String::new(), |fresh, line| fresh + line + "\n")
    }

    /// Reads a tree.
    pub fn load(&mut self, sources: &Sources) -> Loaded {
        self.load_with(sources, Limits::default())
    }

    /// Reads a tree within bounds.
    pub fn load_with(&mut self, sources: &Sources, limits: Limits) -> Loaded {
        self.load_until(sources, limits, &Stop::never()).expect("nobody stops it")
    }

    /// Reads a tree within bounds, unless it is stopped: then nothing is known of the tree, and what was remembered of the
    /// one before is remembered still.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn load_until(&mut self, sources: &Sources, limits: Limits, stop: &Stop<'_>) -> Result<Loaded, Stopped> {
        if let Some((tree, within, loaded)) = &self.last
            && *within == limits
            && *tree == sources.digest()
        {
            return Ok(loaded.clone());
        }
        let loaded = self.read(sources, limits, stop)?;
        self.last = Some((sources.digest(), limits, loaded.clone()));
        Ok(loaded)
    }

    fn read(&mut self, sources: &Sources, limits: Limits, stop: &Stop<'_>) -> Result<Loaded, Stopped> {
        let mut found = Vec::new();
        let files = tree::files(sources, limits, &self.files, &self.parses, stop, &mut found);
        if stop.is_said() {
            return Err(Stopped);
        }
        for file in &files {
            found.extend(file.parsed.attach(&file.path));
        }
        let map = files.iter().map(|file| (Arc::clone(&file.path), Arc::clone(&file.parsed.text))).collect();
        let (mut fleet, mut trust_domain) = (None, None);
        if !files.is_empty() {
            let objects = Objects::of(&files, limits.objects, &mut found);
            trust_domain = objects.fleet.as_ref().map(|fleet| fleet.trust_domain.value.clone());
            fleet = check::check(objects, &files, sources, &mut self.clean, stop, &mut found);
            if stop.is_said() {
                return Err(Stopped);
            }
            self.files = files;
        }
        diagnostic::sort(&mut found);
        let errors = found.iter().any(Diagnostic::is_error);
        shorten(&mut found);
        let mut fleet = fleet.filter(|_| !errors);
        if let Some(fleet) = &mut fleet {
            fleet.notes.clone_from(&found);
        }
        Ok(Loaded { fleet, diagnostics: found, sources: map, trust_domain })
    }
}

/// Keeps the first findings of each weight in each file.
fn shorten(found: &mut Vec<Diagnostic>) {
    let key = |diagnostic: &Diagnostic| (Arc::clone(&diagnostic.file), diagnostic.severity);
    let mut totals: BTreeMap<_, usize> = BTreeMap::new();
    for diagnostic in found.iter() {
        *totals.entry(key(diagnostic)).or_default() += 1;
    }
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    found.retain_mut(|diagnostic| {
        let key = key(diagnostic);
        let more = totals[&key].saturating_sub(SHOWN_PER_FILE);
        let seen = seen.entry(key).or_default();
        *seen += 1;
        if more > 0 && *seen == SHOWN_PER_FILE {
            let at = SourceRef::start_of(Arc::clone(&diagnostic.file));
            diagnostic
                .labels
                .push(diagnostic::Label { at, text: format!("{more} more findings in this file are not shown") });
        }
        *seen <= SHOWN_PER_FILE
    });
}

/// A finding about a whole file.
fn about(path: &Arc<str>, code: diagnostic::Code, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(code, &SourceRef::start_of(Arc::clone(path)), message)
}

/// The tree has no fleet file at its root.
fn no_root(sources: &Sources) -> Diagnostic {
    let endings = [".kdl", ".yaml", ".yml"];
    let beside = || sources.iter().map(|(path, _)| &**path).filter(|path| !path.contains('/'));
    let near = similar("fleet.kdl", beside().filter(|path| endings.iter().any(|ending| path.ends_with(ending))));
    let help = match near {
        Some(near) => format!("is {} meant to be it? it has to be called fleet.kdl or fleet.yaml", shown(near)),
        None => "write fleet.kdl, or name the folder that has it: --fleet URL#branch:path".to_owned(),
    };
    about(
        &Arc::from("fleet.kdl"),
        codes::NO_ROOT,
        "there is no fleet.kdl (or fleet.yaml) at the root, so this is not a fleet",
    )
    .help(help)
}
