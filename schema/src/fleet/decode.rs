//! Decoding: entries of the document model into typed values, with everything that is wrong reported in one pass.
//!
//! [`Fields`] is how every kind reads its keys. It remembers which keys were asked for, so that what is left at the end
//! is unknown and the known ones can be suggested. A getter returns `None` both when a key is absent and when its value
//! is wrong; the latter was reported.

mod fields;
mod value;

use std::sync::Arc;

pub(super) use fields::{Fields, lone};
pub(super) use value::{mended_name, one_of, text};

use super::{
    Located,
    doc::{Arg, Entry, Object},
    suggest,
};
use crate::{
    diagnostic::{Code, Diagnostic, SourceRef, Span},
    fleet::parse::MOST_FINDINGS,
    name::Name,
    object::{Kind, ObjectRef},
};

/// The key under which YAML has the name of an object.
const NAME: &str = "name";

/// What is found in one file: what is wrong, and which other objects it names.
#[derive(Debug)]
pub(super) struct Findings<'f> {
    pub(super) file: Arc<str>,
    pub(super) text: &'f str,
    pub(super) found: &'f mut Vec<Diagnostic>,
    /// References, in objects that are wrong elsewhere too.
    pub(super) refers: Vec<Located<ObjectRef>>,
}

impl<'f> Findings<'f> {
    pub(super) fn new(file: Arc<str>, text: &'f str, found: &'f mut Vec<Diagnostic>) -> Self {
        Self { file, text, found, refers: Vec::new() }
    }

    /// Remembers that an object names another.
    pub(super) fn refer(&mut self, kind: Kind, name: &Located<Name>) {
        self.refers.push(Located::new(ObjectRef::new(kind, name.value.clone()), name.at.clone()));
    }

    pub(super) fn place(&self, span: Span) -> SourceRef {
        SourceRef::new(Arc::clone(&self.file), span)
    }

    /// A finding to complete and to [`Findings::push`].
    pub(super) fn at(&self, code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, &self.place(span), message)
    }

    /// Keeps a finding, up to [`MOST_FINDINGS`] of them; the first error is always kept.
    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        if !self.full() || (diagnostic.is_error() && !self.found.iter().any(Diagnostic::is_error)) {
            self.found.push(diagnostic);
        }
    }

    /// Whether so much is wrong that no more is looked for.
    pub(super) fn full(&self) -> bool {
        self.found.len() >= MOST_FINDINGS
    }

    /// What is written at a place.
    pub(super) fn written(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    pub(super) fn located<T>(&self, value: T, span: Span) -> Located<T> {
        Located::new(value, self.place(span))
    }

    /// The errors so far.
    pub(super) fn errors(&self) -> usize {
        self.found.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }
}

/// An object whose kind is known and whose keys are about to be read.
pub(super) struct Subject<'o> {
    pub(super) name: Name,
    pub(super) at: SourceRef,
    pub(super) fields: Fields<'o>,
}

/// The name of an object, checked.
pub(super) fn name_of(object: &Object, findings: &mut Findings<'_>) -> Option<Name> {
    let kind = &object.kind.0;
    let Some(arg) = &object.name else {
        // A key that was meant to be the name is told as what it is.
        if object.fields.iter().any(|entry| suggest::similar(&entry.key, [NAME]).is_some()) {
            return None;
        }
        let diagnostic = findings
            .at(crate::diagnostic::codes::NO_IDENTITY, object.span, format!("this {kind} has no name"))
            .help(format!("in KDL: {kind} \"name\" {{ … }}; in YAML: kind: {kind}, name: …"));
        findings.push(diagnostic);
        return None;
    };
    value::name(arg, findings).map(|name| name.value)
}

/// An entry that stands for one of its own arguments or fields.
fn single(key: &str, arg: &Arg) -> Entry {
    Entry {
        key: key.to_owned(),
        span: arg.span,
        args: vec![arg.clone()],
        fields: Vec::new(),
        form: super::doc::Form::Single,
    }
}
