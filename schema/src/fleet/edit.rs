//! Editing a fleet file: one value at its place becomes another, and every other byte stays.
//!
//! A value keeps the style it is written in (bare, quoted, raw, block) as long as that style can hold the new value, and
//! takes the next stronger one otherwise. What was written is read back before it is given out: an edit that would change
//! anything else is refused, so a caller need not trust this module's idea of a syntax.

mod insert;
mod kdl;
mod yaml;

use std::{mem::discriminant, ops::Range};

pub use insert::insert;
pub use yaml::yaml_value;

use super::{
    doc::{Arg, Entry, Object, Parsed, Scalar},
    parse::{self, Syntax},
    stack,
};
use crate::diagnostic::Span;

/// What a value becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A boolean.
    Boolean(bool),
}

impl NewValue {
    fn scalar(&self) -> Scalar {
        match self {
            Self::Text(text) => Scalar::Text(text.clone()),
            Self::Integer(number) => Scalar::Int(i128::from(*number)),
            Self::Boolean(flag) => Scalar::Bool(*flag),
        }
    }
}

/// Why a value cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The path's ending names no syntax that has values.
    #[error("{0:?} is neither a KDL nor a YAML file")]
    Syntax(String),
    /// The file cannot be read, so nothing in it has a place.
    #[error("the file has an error in line {line}: {message}")]
    Unreadable {
        /// The line of the first error.
        line: u32,
        /// What is wrong there.
        message: String,
    },
    /// The file is another one than the place is of, or what is there is a key, a list or a flag.
    #[error("there is no single value at line {line}, column {column}")]
    NotHere {
        /// The line.
        line: u32,
        /// The column.
        column: u32,
    },
    /// No style of the syntax can hold the value at this place.
    #[error("the value cannot be written at this place")]
    Unwritable,
}

/// The file with the value at a place replaced. `path` only names the syntax; `file` holds the bytes as they are on disk
/// or in git, and a byte order mark, CRLF and comments in them stay.
///
/// # Errors
/// When the file cannot be read, has no value at that place, or cannot hold the new one there.
pub fn replace(path: &str, file: &[u8], at: Span, value: &NewValue) -> Result<Vec<u8>, EditError> {
    let syntax = Syntax::of(path).filter(|syntax| *syntax != Syntax::Template);
    let syntax = syntax.ok_or_else(|| EditError::Syntax(path.chars().take(200).collect()))?;
    let mut before = read(file, syntax)?;
    let not_here = || EditError::NotHere { line: at.line, column: at.column };
    let (start, end) = (at.start as usize, at.end as usize);
    let text = std::mem::take(&mut before.text);
    text.get(start..end).filter(|written| !written.is_empty()).ok_or_else(not_here)?;
    let arg = arg_at(&mut before.objects, at).ok_or_else(not_here)?;
    arg.value = value.scalar();
    let (range, candidates) = match syntax {
        Syntax::Kdl => kdl::candidates(&text, start..end, value),
        Syntax::Yaml | Syntax::Template => yaml::candidates(&text, start..end, value),
    };
    let mut candidates = candidates.into_iter().map(|new| splice(file, &text, range.clone(), &new));
    candidates.find(|file| means(file, syntax, &before.objects)).ok_or(EditError::Unwritable)
}

/// Reads a file on a stack that is large enough; what is found must be without errors.
pub(super) fn read(file: &[u8], syntax: Syntax) -> Result<Parsed, EditError> {
    let parsed = stack::on(parse::stack(file, syntax).max(8 << 20), || parse::parse(file, syntax));
    let parsed = parsed.unwrap_or_else(|| parse::gave_up(syntax));
    match parsed.problems.iter().find(|problem| problem.is_error()) {
        Some(problem) => Err(EditError::Unreadable { line: problem.span.line, message: problem.message.clone() }),
        None => Ok(parsed),
    }
}

/// Whether a file says what these objects say, wherever it says it.
fn means(file: &[u8], syntax: Syntax, objects: &[Object]) -> bool {
    read(file, syntax).is_ok_and(|parsed| same(&parsed.objects, objects))
}

/// Whether objects say the same, wherever it is written.
pub(super) fn same(one: &[Object], other: &[Object]) -> bool {
    let object = |(one, other): (&Object, &Object)| {
        let name = one.name.as_ref().map(|arg| &arg.value) == other.name.as_ref().map(|arg| &arg.value);
        name && one.kind.0 == other.kind.0 && same_entries(&one.fields, &other.fields)
    };
    one.len() == other.len() && one.iter().zip(other).all(object)
}

fn same_entries(one: &[Entry], other: &[Entry]) -> bool {
    let entry = |(one, other): (&Entry, &Entry)| {
        let args = one.args.iter().map(|arg| &arg.value).eq(other.args.iter().map(|arg| &arg.value));
        one.key == other.key
            && discriminant(&one.form) == discriminant(&other.form)
            && args
            && same_entries(&one.fields, &other.fields)
    };
    one.len() == other.len() && one.iter().zip(other).all(entry)
}

fn arg_at(objects: &mut [Object], at: Span) -> Option<&mut Arg> {
    objects.iter_mut().find_map(|object| {
        let name = object.name.as_mut().filter(|name| name.span == at);
        name.or_else(|| arg_in(&mut object.fields, at))
    })
}

fn arg_in(entries: &mut [Entry], at: Span) -> Option<&mut Arg> {
    entries.iter_mut().find_map(|entry| {
        let own = entry.args.iter_mut().find(|arg| arg.span == at);
        own.or_else(|| arg_in(&mut entry.fields, at))
    })
}

/// The bytes of the file with a range of its text replaced. The text differs from the file in its beginning and its line
/// ends.
fn splice(file: &[u8], text: &str, range: Range<usize>, new: &str) -> Vec<u8> {
    let crlf = file.windows(2).any(|pair| pair == b"\r\n");
    let bom = if file.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let offset = |at: usize| {
        if !crlf {
            return bom + at;
        }
        let mut offset = bom;
        for byte in &text.as_bytes()[..at] {
            offset += if *byte == b'\n' && file[offset] == b'\r' { 2 } else { 1 };
        }
        offset
    };
    let (start, end) = (offset(range.start), offset(range.end));
    let new = if crlf { new.replace('\n', "\r\n") } else { new.to_owned() };
    [&file[..start], new.as_bytes(), &file[end..]].concat()
}

/// The white space that a line begins with, for the line that holds a byte.
fn indentation(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind('\n').map_or(0, |index| index + 1);
    let line = &text[begin..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

#[cfg(test)]
mod tests;
