//! Parsing one file: bytes in, objects of the shared document model out. Nothing here knows a kind or another file.

mod guard;
mod kdl;
mod plain;
mod text;
mod yaml;

use super::doc::{Parsed, problem};
use crate::diagnostic::{Diagnostic, Span, codes};

/// Levels of blocks, lists or comments that a document may nest.
pub(super) const MAX_DEPTH: usize = 32;

/// What is found wrong in a file, and in an object of it, at most: whoever has a thousand mistakes has made one.
pub(super) const MOST_FINDINGS: usize = 1_000;

/// The syntax that a path's ending names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Syntax {
    Kdl,
    Yaml,
    Template,
}

impl Syntax {
    pub(super) fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "kdl" => Some(Self::Kdl),
            "yaml" | "yml" => Some(Self::Yaml),
            "j2" => Some(Self::Template),
            _ => None,
        }
    }
}

/// The stack that parsing a file may need.
pub(super) fn stack(bytes: &[u8], syntax: Syntax) -> usize {
    match (syntax, std::str::from_utf8(bytes)) {
        (Syntax::Kdl, Ok(text)) => guard::stack(text),
        _ => 8 << 20,
    }
}

/// Parses a file. A template is only checked as text.
pub(super) fn parse(bytes: &[u8], syntax: Syntax) -> Parsed {
    plainly(bytes, syntax).unwrap_or_else(|| fully(bytes, syntax))
}

fn fully(bytes: &[u8], syntax: Syntax) -> Parsed {
    let mut parsed = Parsed { whole: true, ..Parsed::default() };
    match text::check(bytes, &mut parsed.problems) {
        Some(text) => parsed.text = text.into(),
        None => {
            parsed.whole = false;
            return parsed;
        }
    }
    match syntax {
        Syntax::Kdl => kdl::parse(&mut parsed),
        Syntax::Yaml => yaml::parse(&mut parsed),
        Syntax::Template => {}
    }
    parsed
}

/// Parses on a thread of which nothing is known.
pub(super) fn parse_anywhere(bytes: &[u8], syntax: Syntax) -> Parsed {
    // What is plain needs next to no stack, and most files are.
    plainly(bytes, syntax).unwrap_or_else(|| parse_within(bytes, syntax, 0))
}

/// Parses what is not plain on a thread that has `room` bytes of stack, or on a larger one where a file may need more.
pub(super) fn parse_within(bytes: &[u8], syntax: Syntax, room: usize) -> Parsed {
    let need = stack(bytes, syntax);
    let parse = || fully(bytes, syntax);
    let parsed = if need <= room { std::panic::catch_unwind(parse).ok() } else { super::stack::on(need, parse) };
    parsed.unwrap_or_else(|| gave_up(syntax))
}

/// A file's text, and what is wrong with it as a text.
pub(super) fn text_of(bytes: &[u8], problems: &mut Vec<Diagnostic>) -> Option<String> {
    text::check(bytes, problems)
}

/// Parses what is plain.
pub(super) fn plainly(bytes: &[u8], syntax: Syntax) -> Option<Parsed> {
    let mut problems = Vec::new();
    let text = text::check(bytes, &mut problems)?;
    let objects = match syntax {
        Syntax::Kdl => plain::read(&text)?,
        Syntax::Yaml => return None,
        Syntax::Template => Vec::new(),
    };
    Some(Parsed { text: text.into(), objects, problems, whole: true })
}

/// A parser that panicked on a file read nothing of it.
pub(super) fn gave_up(syntax: Syntax) -> Parsed {
    let code = if syntax == Syntax::Yaml { codes::YAML_SYNTAX } else { codes::KDL_SYNTAX };
    let finding = problem(code, Span::START, "the parser gave up on this file")
        .help("this is a fault of the parser: please report the file");
    Parsed { problems: vec![finding], ..Parsed::default() }
}

/// A null, in either syntax.
fn null(span: Span) -> Diagnostic {
    problem(codes::NULL, span, "null means nothing here")
        .label("null")
        .help("leave the key out; an empty text is \"\", in YAML an empty list is [] and an empty mapping {}")
}
