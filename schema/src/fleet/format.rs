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
    edit::{EditError, read, same},
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

/// The text in the canonical style; `None` when anything but white space would change.
fn formatted(text: &str) -> Option<String> {
    let pieces = lex::tokens(text);
    let out = print::print(&pieces);
    (print::essence(&pieces) == print::essence(&lex::tokens(&out))).then_some(out)
}

#[cfg(test)]
mod tests;
