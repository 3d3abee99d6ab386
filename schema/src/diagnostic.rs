//! Diagnostics: what is wrong in a fleet file, said to the person who wrote it.
//!
//! A diagnostic has a stable code with a page ([`codes`]), a place, what was expected and how to mend it. One pass over a
//! tree returns all of them; [`render`] shows them with their source lines, [`json`] gives them to machines. This is not
//! for errors of the program itself: those are small enums beside their operation.

pub mod codes;
pub mod json;
pub mod render;
mod source;

use std::sync::Arc;

use serde::Serialize;

pub use codes::Code;
pub(crate) use source::Lines;
pub use source::{SourceMap, SourceRef, Span};

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The tree yields no fleet.
    Error,
    /// The tree is a fleet, and something in it is probably not meant.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word people read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A second place that explains a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub at: SourceRef,
    /// What is there.
    pub text: String,
}

/// One finding about one place of a fleet repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The stable code, which has a page.
    pub code: Code,
    /// How much it weighs.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The path below the fleet's root.
    pub file: Arc<str>,
    /// The place in the file.
    pub span: Span,
    /// A few words under the caret.
    pub label: Option<String>,
    /// Other places that matter.
    pub labels: Vec<Label>,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A finding with the severity that its code usually has.
    #[must_use]
    pub fn new(code: Code, at: &SourceRef, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: code.severity(),
            message: message.into(),
            file: Arc::clone(&at.file),
            span: at.span,
            label: None,
            labels: Vec::new(),
            help: None,
        }
    }

    /// Adds the words under the caret.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.label = Some(text.into());
        self
    }

    /// Adds a second place.
    #[must_use]
    pub fn also(mut self, at: &SourceRef, text: impl Into<String>) -> Self {
        self.labels.push(Label { at: at.clone(), text: text.into() });
        self
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Adds what to write instead, when something is known.
    #[must_use]
    pub fn maybe_help(mut self, text: Option<String>) -> Self {
        self.help = text.or(self.help);
        self
    }

    /// The place.
    #[must_use]
    pub fn at(&self) -> SourceRef {
        SourceRef { file: Arc::clone(&self.file), span: self.span }
    }

    /// Whether the tree yields no fleet because of this.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// A text of a fleet file as messages quote it: its beginning, when it is long.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Sorts by file, place, code and text, notes after all that has to be mended, and drops exact repetitions: the order
/// people read.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        let note = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Note;
        (note(a), &a.file, a.span, a.code, &a.message).cmp(&(note(b), &b.file, b.span, b.code, &b.message))
    });
    diagnostics.dedup();
}
