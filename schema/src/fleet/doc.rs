//! One document model for both syntaxes: what a decoder sees does not tell KDL from YAML, so the two cannot drift.
//!
//! An entry has a key, arguments and fields. `site "fra1"` and `site: fra1` are the same entry with one argument;
//! `hardware { memory "2TiB" }` and `hardware: {memory: 2TiB}` the same entry with one field. A YAML list of mappings
//! is as many entries with the same key, as it is in KDL.

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Code, Diagnostic, SourceRef, Span};

/// A value without parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Scalar {
    Bool(bool),
    Int(i128),
    /// A number with a fraction, an exponent, or none at all: no key takes one.
    Float,
    Text(String),
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Arg {
    pub(super) value: Scalar,
    pub(super) span: Span,
}

/// How an entry was written, where that changes what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Form {
    /// A KDL node: arguments and fields.
    Node,
    /// `key=value` or `key: value`.
    Single,
    /// A YAML list of values.
    List,
    /// A YAML mapping.
    Map,
    /// One mapping of a YAML list, whose key is written there.
    Item { key: Span },
}

/// A key with what is said about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) span: Span,
    pub(super) args: Vec<Arg>,
    pub(super) fields: Vec<Self>,
    pub(super) form: Form,
}

/// One top-level object of a file, before its kind is looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Object {
    /// The kind and where it is written.
    pub(super) kind: (String, Span),
    /// The name as it is written.
    pub(super) name: Option<Arg>,
    /// The rest.
    pub(super) fields: Vec<Entry>,
    pub(super) span: Span,
}

/// What one file holds: a pure function of its bytes, so it can be kept by blob id. Places in it name no file until
/// [`Parsed::attach`].
#[derive(Debug, Clone, Default)]
pub(super) struct Parsed {
    pub(super) text: std::sync::Arc<str>,
    pub(super) objects: Vec<Object>,
    pub(super) problems: Vec<Diagnostic>,
    /// Whether the file was read to its end; if not, there may be objects that nobody saw.
    pub(super) whole: bool,
}

/// A finding in a file that has no name yet.
pub(super) fn problem(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(code, &SourceRef::new("", span), message)
}

impl Parsed {
    /// The problems, placed in the file.
    pub(super) fn attach<'p>(&'p self, file: &'p std::sync::Arc<str>) -> impl Iterator<Item = Diagnostic> + 'p {
        self.problems.iter().map(|problem| {
            let mut problem = problem.clone();
            problem.file = std::sync::Arc::clone(file);
            for label in &mut problem.labels {
                label.at.file = std::sync::Arc::clone(file);
            }
            problem
        })
    }
}
