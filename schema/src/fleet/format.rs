//! The canonical style of KDL: how `fmt` writes a file. Comments, what is commented out and the spelling of every value
//! stay; only white space changes.
//!
//! - A node a line, indented by two blanks a level; one blank between the parts of a node, none around `=`.
//! - A block that was written on one line stays there while it fits into 100 columns: `{ a 1; b 2 }`. Any other is open,
//!   with `}` on a line of its own. `{}` is empty.
//! - At most one empty line between nodes, none at the beginning or end of a block or file.
//! - A text of several lines stands one level deeper than its node.
//! - A line that was continued with `\` stays continued.

pub(super) mod lex;
mod print;

use super::{
    doc::Scalar,
    edit::{EditError, read, same},
    glob,
    parse::Syntax,
};

/// Why a file is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The file cannot be read.
    #[error("the file has an error in line {line}: {message}")]
    Unreadable {
        /// The line of the first error.
        line: u32,
        /// What is wrong there.
        message: String,
    },
    /// The formatted file would not say the same: a fault of the formatter.
    #[error("the formatted file would not mean the same; this is a fault of the formatter, please report the file")]
    Meaning,
}

/// A KDL file in the canonical style; the same bytes when it is in it already.
///
/// # Errors
/// When the file cannot be read, and when the result would not mean the same.
pub fn format(file: &[u8]) -> Result<Vec<u8>, FormatError> {
    let unreadable = |error| match error {
        EditError::Unreadable { line, message } => FormatError::Unreadable { line, message },
        _ => FormatError::Meaning,
    };
    let before = read(file, Syntax::Kdl).map_err(unreadable)?;
    let text = formatted(&before.text).ok_or(FormatError::Meaning)?;
    let after = read(text.as_bytes(), Syntax::Kdl).map_err(|_| FormatError::Meaning)?;
    if same(&before.objects, &after.objects) { Ok(text.into_bytes()) } else { Err(FormatError::Meaning) }
}

/// What a fleet's root file lists under `ignore`.
#[derive(Debug, Clone, Default)]
pub struct Ignored(Vec<String>);

impl Ignored {
    /// Reads it from the root file; nothing is ignored by a file that cannot be read.
    #[must_use]
    pub fn of(path: &str, file: &[u8]) -> Self {
        let syntax = Syntax::of(path).filter(|syntax| *syntax != Syntax::Template);
        let parsed = syntax.and_then(|syntax| read(file, syntax).ok()).unwrap_or_default();
        let fields = parsed.objects.iter().filter(|object| object.kind.0 == "fleet").flat_map(|object| &object.fields);
        let args = fields.filter(|field| field.key == "ignore").flat_map(|field| &field.args);
        let texts = args.filter_map(|arg| match &arg.value {
            Scalar::Text(pattern) => Some(pattern.clone()),
            Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float => None,
        });
        Self(texts.collect())
    }

    /// Whether a path below the root is left alone.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        self.0.iter().any(|pattern| glob::covers(pattern, path))
    }
}

/// The text in the canonical style; `None` when anything but white space would change.
fn formatted(text: &str) -> Option<String> {
    let pieces = lex::tokens(text);
    let out = print::print(&pieces);
    (print::essence(&pieces) == print::essence(&lex::tokens(&out))).then_some(out)
}

#[cfg(test)]
mod tests;
