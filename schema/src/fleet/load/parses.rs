//! Parses that took long, kept as text: of files for which the plain reader is not enough, and that are right.
//!
//! One line is one file: the digest of its bytes, its syntax, a digest over the line, and its objects as JSON. A line is
//! used only for bytes that have its digest, and only when it is whole; any other is as if it were not there. The first
//! line names the parser, so that what another version wrote is not read.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    diagnostic::codes,
    digest::{Digest, Digester},
    fleet::{
        Blob,
        doc::{Object, Parsed},
        parse::{self, Syntax},
    },
};

/// What the parsers of this version make of a file. It is raised whenever that changes, which a test notices.
pub(super) const PARSER: &str = "better-compute parses 2";
/// Bytes of lines that are kept.
const MAX_BYTES: usize = 64 << 20;

type Key = (Digest, Syntax);

/// What was parsed before.
#[derive(Default)]
pub(super) struct Parses {
    known: HashMap<Key, Arc<str>>,
    bytes: usize,
    /// What was added and not taken yet.
    fresh: Mutex<Vec<(Key, Arc<str>)>>,
}

impl fmt::Debug for Parses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parses({})", self.known.len())
    }
}

impl Clone for Parses {
    fn clone(&self) -> Self {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { known: self.known.clone(), bytes: self.bytes, fresh: Mutex::new(fresh) }
    }
}

impl Parses {
    /// Remembers the lines of a file, unless another version wrote it.
    pub(super) fn restore(&mut self, text: &str) {
        let mut lines = text.lines();
        if lines.next() != Some(PARSER) {
            return;
        }
        for line in lines {
            if let Some(key) = key_of(line) {
                self.keep(key, line.into());
            }
        }
    }

    fn keep(&mut self, key: Key, line: Arc<str>) {
        if self.bytes + line.len() > MAX_BYTES {
            return;
        }
        self.bytes += line.len();
        if let Some(before) = self.known.insert(key, line) {
            self.bytes -= before.len();
        }
    }

    /// The objects of a file that was parsed before.
    pub(super) fn find(&self, bytes: &Blob, syntax: Syntax) -> Option<Parsed> {
        if self.known.is_empty() {
            return None;
        }
        let key = (bytes.digest(), syntax);
        let objects = objects(self.known.get(&key)?, key)?;
        let mut problems = Vec::new();
        let text: Arc<str> = parse::text_of(bytes, &mut problems)?.into();
        let fits = |object: &Object| object.span.end as usize <= text.len();
        objects.iter().all(fits).then_some(Parsed { text, objects, problems, whole: true })
    }

    /// Remembers what a file became, when nothing is wrong with it.
    pub(super) fn add(&self, bytes: &Blob, syntax: Syntax, parsed: &Parsed) {
        let right = parsed.whole && parsed.problems.iter().all(|problem| problem.code == codes::BOM_OR_CRLF);
        let Some(objects) = right.then(|| serde_json::to_string(&parsed.objects).ok()).flatten() else { return };
        let key = (bytes.digest(), syntax);
        let line = format!("{} {} {} {objects}", key.0, word(syntax), sum(key, &objects));
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).push((key, line.into()));
    }

    /// The lines that were added since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Arc<str>> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        let mut lines = Vec::with_capacity(fresh.len());
        for (key, line) in fresh {
            lines.push(Arc::clone(&line));
            self.keep(key, line);
        }
        lines
    }

    /// Every line of files that `used` holds.
    pub(super) fn lines(&mut self, used: impl Fn(&Digest) -> bool) -> Vec<Arc<str>> {
        self.take();
        self.known.retain(|key, _| used(&key.0));
        self.bytes = self.known.values().map(|line| line.len()).sum();
        let mut lines: Vec<Arc<str>> = self.known.values().cloned().collect();
        lines.sort_unstable();
        lines
    }
}

const fn word(syntax: Syntax) -> &'static str {
    match syntax {
        Syntax::Kdl => "kdl",
        Syntax::Yaml => "yaml",
        Syntax::Template => "template",
    }
}

fn key_of(line: &str) -> Option<Key> {
    let mut words = line.split(' ');
    let digest = words.next()?.parse().ok()?;
    let syntax = match words.next()? {
        "kdl" => Syntax::Kdl,
        "yaml" => Syntax::Yaml,
        _ => return None,
    };
    Some((digest, syntax))
}

/// The objects of a line, when it is whole and of what it is asked for.
fn objects(line: &str, key: Key) -> Option<Vec<Object>> {
    let mut words = line.splitn(4, ' ');
    let (digest, syntax, proof, objects) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let same = digest == key.0.to_string() && syntax == word(key.1) && proof == sum(key, objects).to_string();
    same.then(|| serde_json::from_str(objects).ok()).flatten()
}

fn sum(key: Key, objects: &str) -> Digest {
    let mut digester = Digester::new(PARSER);
    digester.part(key.0.as_bytes());
    digester.part(word(key.1).as_bytes());
    digester.part(objects.as_bytes());
    digester.finish()
}

#[cfg(test)]
mod tests;
