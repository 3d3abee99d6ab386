//! [`load`]: from blobs to a fleet, or to everything that is wrong with them.

mod objects;
mod tree;

use std::{collections::BTreeMap, num::NonZero, panic, sync::Arc, thread};

use super::{
    Blob, Fleet, Sources, check,
    doc::Parsed,
    parse::{self, Syntax},
    stack,
};
use crate::diagnostic::{self, Diagnostic, SourceMap, SourceRef, codes};

pub(super) use objects::Objects;

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
#[derive(Debug, Clone, Copy)]
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
        Self { files: 50_000, bytes: 256 << 20, objects: 50_000 }
    }
}

/// Stack of a parsing thread. A file that may need more than half of it has a thread of its own.
const STACK: usize = 32 << 20;

/// Findings of one file that are shown; a file in another format would drown the rest.
const SHOWN_PER_FILE: usize = 100;

/// A file to parse.
pub(super) struct Unparsed {
    path: Arc<str>,
    syntax: Syntax,
    bytes: Blob,
}

impl Unparsed {
    fn parsed(&self, parsed: Parsed) -> ParsedFile {
        ParsedFile { path: Arc::clone(&self.path), syntax: self.syntax, parsed }
    }
}

/// A file that was parsed.
pub(super) struct ParsedFile {
    pub(super) path: Arc<str>,
    pub(super) syntax: Syntax,
    pub(super) parsed: Parsed,
}

/// Reads a tree.
#[must_use]
pub fn load(sources: &Sources) -> Loaded {
    load_with(sources, Limits::default())
}

/// Reads a tree within bounds.
#[must_use]
pub fn load_with(sources: &Sources, limits: Limits) -> Loaded {
    let mut found = Vec::new();
    let mut map = SourceMap::default();
    let files = tree::files(sources, limits, &mut found);
    for file in &files {
        found.extend(file.parsed.attach(&file.path));
        map.insert(Arc::clone(&file.path), file.parsed.text.as_str());
    }
    let (mut fleet, mut trust_domain) = (None, None);
    if !files.is_empty() {
        let objects = Objects::decode(&files, limits.objects, &mut found);
        trust_domain = objects.fleet.as_ref().map(|fleet| fleet.trust_domain.value.clone());
        fleet = check::check(objects, &files, sources, &mut found);
    }
    diagnostic::sort(&mut found);
    let errors = found.iter().any(Diagnostic::is_error);
    shorten(&mut found);
    Loaded { fleet: fleet.filter(|_| !errors), diagnostics: found, sources: map, trust_domain }
}

/// Parses files side by side on threads whose stack is known.
fn parse_all(files: &[Unparsed]) -> Vec<ParsedFile> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(8).min(files.len().div_ceil(16)).max(1);
    let share = files.len().div_ceil(workers).max(1);
    // A file that cannot be parsed for want of a thread is an error: it must never look like a file without objects.
    let lost =
        |files: &[Unparsed]| files.iter().map(|file| file.parsed(parse::gave_up(file.syntax))).collect::<Vec<_>>();
    thread::scope(|scope| {
        let spawn = |files| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || parse_some(files));
        let running: Vec<_> = files.chunks(share).map(|files| (files, spawn(files).ok())).collect();
        let join = |(files, thread): (_, Option<thread::ScopedJoinHandle<'_, _>>)| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| lost(files))
        };
        running.into_iter().flat_map(join).collect()
    })
}

fn parse_some(files: &[Unparsed]) -> Vec<ParsedFile> {
    let one = |file: &Unparsed| {
        let parse = || parse::parse(&file.bytes, file.syntax);
        // The thread's own stack is enough for most files.
        let need = parse::stack(&file.bytes, file.syntax);
        let parsed = if need <= STACK / 2 { panic::catch_unwind(parse).ok() } else { stack::on(need, parse) };
        file.parsed(parsed.unwrap_or_else(|| parse::gave_up(file.syntax)))
    };
    files.iter().map(one).collect()
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
fn no_root() -> Diagnostic {
    about(
        &Arc::from("fleet.kdl"),
        codes::NO_ROOT,
        "there is no fleet.kdl (or fleet.yaml) at the root, so this is not a fleet",
    )
    .help("write fleet.kdl, or name the folder that has it: --fleet URL#branch:path")
}
