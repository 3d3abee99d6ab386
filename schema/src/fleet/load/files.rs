//! Files of a tree, parsed and decoded: side by side on threads whose stack is known, and only those that were not
//! read before.

use std::{
    num::NonZero,
    ops::Deref,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    decoded::{Decoded, decode},
    parses::Parses,
};
use crate::{
    diagnostic::{SourceRef, Span},
    digest::Digest,
    fleet::{
        Blob, Located, Stop,
        doc::{Object, Parsed, Scalar},
        parse::{self, Syntax},
        places::Keys,
    },
    object::ObjectRef,
};

/// Stack of a parsing thread. A file that may need more than half of it has a thread of its own.
const STACK: usize = 32 << 20;
/// Files that a thread takes at once.
const TAKEN: usize = 32;

/// A file to parse.
pub(super) struct Unparsed {
    pub(super) path: Arc<str>,
    pub(super) syntax: Syntax,
    pub(super) bytes: Blob,
    /// Whether it is the fleet file.
    pub(super) root: bool,
}

/// A file that was parsed, with its objects decoded: a pure function of its path and bytes, and shared.
#[derive(Debug, Clone)]
pub(in crate::fleet) struct ParsedFile(Arc<Content>);

#[derive(Debug)]
pub(in crate::fleet) struct Content {
    pub(in crate::fleet) path: Arc<str>,
    pub(in crate::fleet) syntax: Syntax,
    /// What was parsed, without the objects.
    pub(in crate::fleet) parsed: Parsed,
    /// The objects.
    pub(super) objects: Vec<Decoded>,
    /// Where each begins.
    spans: Vec<Span>,
    /// What a fleet file lists under `ignore`.
    pub(super) ignore: Vec<String>,
    bytes: Blob,
}

impl Deref for ParsedFile {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.0
    }
}

impl ParsedFile {
    fn new(file: &Unparsed, mut parsed: Parsed) -> Self {
        let objects = std::mem::take(&mut parsed.objects);
        let keys = |index| Keys::new(Arc::clone(&file.path), Arc::clone(&parsed.text), file.syntax, index);
        let content = Content {
            path: Arc::clone(&file.path),
            syntax: file.syntax,
            objects: objects.iter().enumerate().map(|(index, object)| decode(object, file.root, keys(index))).collect(),
            spans: objects.iter().map(|object| object.span).collect(),
            ignore: if file.root { ignore(&objects) } else { Vec::new() },
            bytes: file.bytes.clone(),
            parsed,
        };
        Self(Arc::new(content))
    }

    /// Whether it is what these bytes become at its path.
    pub(super) fn is_of(&self, bytes: &Blob) -> bool {
        self.bytes.same(bytes) || self.bytes.digest() == bytes.digest()
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The objects that it names.
    pub(in crate::fleet) fn refers(&self) -> impl Iterator<Item = &Located<ObjectRef>> {
        self.objects.iter().flat_map(|object| &object.refers)
    }

    /// The digest of its bytes.
    pub(super) fn digest(&self) -> Digest {
        self.bytes.digest()
    }

    /// Where an object begins.
    pub(super) fn place_of(&self, index: usize) -> SourceRef {
        SourceRef::new(Arc::clone(&self.path), self.spans[index])
    }

    /// An object as it was before it was decoded.
    pub(super) fn read_again(&self, index: usize) -> Option<(Object, Keys)> {
        let mut parsed = parse::parse_anywhere(&self.bytes, self.syntax);
        let keys = Keys::new(Arc::clone(&self.path), Arc::clone(&self.parsed.text), self.syntax, index);
        (index < parsed.objects.len()).then(|| (parsed.objects.swap_remove(index), keys))
    }
}

/// Parses and decodes files, in their order. What is stopped gives files that were not read.
pub(super) fn parse_all(files: &[Unparsed], parses: &Parses, stop: &Stop<'_>) -> Vec<ParsedFile> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(8).min(files.len().div_ceil(16)).max(1);
    let next = AtomicUsize::new(0);
    let mut parsed: Vec<Option<ParsedFile>> = Vec::new();
    parsed.resize_with(files.len(), || None);
    thread::scope(|scope| {
        let work = || work(files, &next, parses, stop);
        let spawn = |_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok();
        let running: Vec<_> = (0..workers).filter_map(spawn).collect();
        for (index, file) in running.into_iter().filter_map(|thread| thread.join().ok()).flatten() {
            parsed[index] = Some(file);
        }
    });
    // A file that cannot be parsed for want of a thread is an error: it must never look like a file without objects.
    let lost = |file: &Unparsed| ParsedFile::new(file, parse::gave_up(file.syntax));
    parsed.into_iter().zip(files).map(|(parsed, file)| parsed.unwrap_or_else(|| lost(file))).collect()
}

/// Takes files until none is left.
fn work(files: &[Unparsed], next: &AtomicUsize, parses: &Parses, stop: &Stop<'_>) -> Vec<(usize, ParsedFile)> {
    let mut done = Vec::with_capacity(files.len() / 2 + 1);
    loop {
        let start = next.fetch_add(TAKEN, Ordering::Relaxed);
        if start >= files.len() || stop.is_said() {
            return done;
        }
        let taken = files.iter().enumerate().skip(start).take(TAKEN).take_while(|_| !stop.is_said());
        done.extend(taken.map(|(index, file)| (index, one(file, parses))));
    }
}

fn one(file: &Unparsed, parses: &Parses) -> ParsedFile {
    let read = || {
        // Whoever asks for it later finds it made.
        let _made = file.bytes.digest();
        let parsed = parse::plainly(&file.bytes, file.syntax).or_else(|| parses.find(&file.bytes, file.syntax));
        let parsed = parsed.unwrap_or_else(|| {
            let parsed = parse::parse_within(&file.bytes, file.syntax, STACK / 2);
            parses.add(&file.bytes, file.syntax, &parsed);
            parsed
        });
        ParsedFile::new(file, parsed)
    };
    panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| ParsedFile::new(file, parse::gave_up(file.syntax)))
}

/// What a root file lists under `ignore`, read before it is decoded.
fn ignore(objects: &[Object]) -> Vec<String> {
    let fields = objects.iter().filter(|object| object.kind.0 == "fleet").flat_map(|object| &object.fields);
    let args = fields.filter(|field| field.key == "ignore").flat_map(|field| &field.args);
    args.filter_map(|arg| match &arg.value {
        Scalar::Text(pattern) => Some(pattern.clone()),
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float => None,
    })
    .collect()
}
