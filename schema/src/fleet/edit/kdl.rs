//! Values in KDL, in each of the styles that can hold them.

use std::{fmt::Write as _, ops::Range};

use super::{NewValue, indentation};
use crate::letter::{self, shapes};

/// How a value is written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// A bare word, a number, `#true`.
    Bare,
    /// `"…"`.
    Quoted,
    /// `#"…"#`.
    Raw,
    /// `"""` and lines.
    Lines,
    /// `#"""` and lines.
    RawLines,
}

/// What to replace, and with what: the best first.
pub(super) fn candidates(text: &str, at: Range<usize>, value: &NewValue) -> (Range<usize>, Vec<String>) {
    let new = match value {
        NewValue::Text(new) => new,
        NewValue::Integer(number) => return (at, vec![number.to_string()]),
        NewValue::Boolean(flag) => return (at, vec![format!("#{flag}")]),
    };
    let written = &text[at.clone()];
    let style = style(written);
    let indent = if matches!(style, Style::Lines | Style::RawLines) {
        indentation(text, at.end).to_owned()
    } else {
        format!("{}  ", indentation(text, at.start))
    };
    // One line with its end stays one line.
    let folds = new.strip_suffix('\n').unwrap_or(new).contains('\n');
    let mut all = Vec::new();
    let word = written.starts_with(|first: char| first.is_alphabetic() || first == '_');
    if style == Style::Bare && word && bare(new) {
        all.push(new.clone());
    }
    match style {
        Style::Raw if !folds => all.push(raw(new)),
        Style::RawLines => all.push(raw_lines(new, &indent)),
        Style::Raw => all.extend([raw_lines(new, &indent), lines(new, &indent)]),
        Style::Lines => all.push(lines(new, &indent)),
        Style::Bare | Style::Quoted if folds => all.push(lines(new, &indent)),
        Style::Bare | Style::Quoted => {}
    }
    all.push(quoted(new));
    (at, all)
}

/// A value that is new: the best first.
pub(super) fn fresh(value: &NewValue, indent: &str) -> Vec<String> {
    match value {
        NewValue::Text(text) if text.trim_end_matches('\n').contains('\n') => vec![lines(text, indent), quoted(text)],
        NewValue::Text(text) => vec![quoted(text)],
        NewValue::Integer(number) => vec![number.to_string()],
        NewValue::Boolean(flag) => vec![format!("#{flag}")],
    }
}

fn style(written: &str) -> Style {
    let hashes = written.len() - written.trim_start_matches('#').len();
    let body = &written[hashes..];
    match (hashes, body.starts_with("\"\"\"\n"), body.starts_with('"')) {
        (0, true, _) => Style::Lines,
        (_, true, _) => Style::RawLines,
        (0, _, true) => Style::Quoted,
        (_, _, true) => Style::Raw,
        _ => Style::Bare,
    }
}

/// Whether a text may stand without quotes and is not taken for anything else.
pub(in crate::fleet) fn bare(text: &str) -> bool {
    let first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':');
    text.starts_with(first)
        && text.chars().all(inner)
        && !matches!(text, "true" | "false" | "null" | "inf" | "nan" | "r")
}

/// `"…"` with everything escaped that needs it.
pub(in crate::fleet) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        escape(letter, &mut out);
    }
    out.push('"');
    out
}

fn escape(letter: char, out: &mut String) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        letter if hidden(letter) => {
            write!(out, "\\u{{{:x}}}", u32::from(letter)).ok();
        }
        letter => out.push(letter),
    }
}

/// What a file may not hold as it is, or what would end a line.
fn hidden(letter: char) -> bool {
    letter.is_control() || letter::hidden(letter) || shapes(letter)
}

/// `"""` and lines, each with the indentation.
fn lines(text: &str, indent: &str) -> String {
    let mut out = String::from("\"\"\"\n");
    for line in text.split('\n') {
        if line.is_empty() {
            out.push('\n');
            continue;
        }
        out.push_str(indent);
        if line.chars().all(char::is_whitespace) {
            // A line of white space alone would be read as an empty one.
            let (blank, last) = line.split_at(line.char_indices().next_back().map_or(0, |(index, _)| index));
            out.push_str(blank);
            match last {
                " " => out.push_str("\\s"),
                "\t" => out.push_str("\\t"),
                other => out.extend(other.chars().map(|letter| format!("\\u{{{:x}}}", u32::from(letter)))),
            }
        } else {
            line_of(line, &mut out);
        }
        out.push('\n');
    }
    out.push_str(indent);
    out.push_str("\"\"\"");
    out
}

fn line_of(line: &str, out: &mut String) {
    let mut quotes = 0;
    for letter in line.chars() {
        quotes = if letter == '"' { quotes + 1 } else { 0 };
        match letter {
            // Two quotes may stand, the third would end the text.
            '"' if quotes < 3 => out.push('"'),
            '"' => {
                out.push_str("\\\"");
                quotes = 0;
            }
            '\t' => out.push('\t'),
            letter => escape(letter, out),
        }
    }
}

/// Hashes enough that the text does not end itself.
fn hashes(text: &str) -> String {
    let longest = text.split('"').skip(1).map(|rest| rest.len() - rest.trim_start_matches('#').len()).max();
    "#".repeat(longest.map_or(1, |longest| longest + 1))
}

fn raw(text: &str) -> String {
    let hashes = hashes(text);
    format!("{hashes}\"{text}\"{hashes}")
}

fn raw_lines(text: &str, indent: &str) -> String {
    let hashes = hashes(text);
    let mut out = format!("{hashes}\"\"\"\n");
    for line in text.split('\n') {
        if !line.is_empty() {
            out.push_str(indent);
            out.push_str(line);
        }
        out.push('\n');
    }
    out + indent + "\"\"\"" + &hashes
}
