//! Values in YAML, in each of the styles that can hold them.

use std::{fmt::Write as _, ops::Range};

use super::NewValue;
use crate::letter::{self, shapes};

/// How a value is written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Without quotes, on one line or several.
    Plain,
    /// `'…'`.
    Single,
    /// `"…"`.
    Double,
    /// `|` and lines.
    Literal,
    /// `>` and lines.
    Folded,
}

/// What to replace, and with what: the best first.
pub(super) fn candidates(text: &str, at: Range<usize>, value: &NewValue) -> (Range<usize>, Vec<String>) {
    let at = block_header(text, at.start).map_or(at.clone(), |header| header..at.end);
    let style = match text.as_bytes().get(at.start) {
        Some(b'\'') => Style::Single,
        Some(b'"') => Style::Double,
        Some(b'|') => Style::Literal,
        Some(b'>') => Style::Folded,
        _ => Style::Plain,
    };
    let block = matches!(style, Style::Literal | Style::Folded);
    let parent = key_depth(text, at.start);
    let (range, indent) = if block {
        extent(text, at.start, parent)
    } else {
        let end = if style == Style::Plain { at.end } else { quotes_end(text, at.start).unwrap_or(at.end) };
        (at.start..end, parent + 2)
    };
    let new = match value {
        NewValue::Text(new) => new,
        NewValue::Integer(number) => return (range, vec![number.to_string()]),
        NewValue::Boolean(flag) => return (range, vec![flag.to_string()]),
    };
    let mut all = Vec::new();
    if style == Style::Plain && plain(new) {
        all.push(new.clone());
    }
    if style == Style::Folded && !new.is_empty() && !new.trim_end_matches('\n').contains('\n') {
        all.push(lines('>', new, parent, indent));
    }
    if (block && !new.is_empty()) || (new.contains('\n') && matches!(style, Style::Plain | Style::Single)) {
        all.push(lines('|', new, parent, indent));
    }
    if style == Style::Single {
        all.push(format!("'{}'", new.replace('\'', "''")));
    }
    all.push(double(new));
    (range, all)
}

/// A value that is new, of a key at a depth; in braces without one. The best first.
pub(super) fn fresh(value: &NewValue, depth: Option<usize>) -> Vec<String> {
    let text = match value {
        NewValue::Text(text) => text,
        NewValue::Integer(number) => return vec![number.to_string()],
        NewValue::Boolean(flag) => return vec![flag.to_string()],
    };
    let block = depth.filter(|_| text.contains('\n')).map(|depth| lines('|', text, depth, depth + 2));
    let bare = plain(text).then(|| text.clone());
    block.into_iter().chain(bare).chain([double(text)]).collect()
}

/// A key as it is written.
pub(super) fn scalar_text(text: &str) -> String {
    if plain(text) { text.to_owned() } else { double(text) }
}

/// How deep the key stands that a value on the same line belongs to: after the dashes of a list.
fn key_depth(text: &str, at: usize) -> usize {
    let line = &text[text[..at].rfind('\n').map_or(0, |index| index + 1)..at];
    line.len() - line.trim_start_matches(['-', ' ']).len()
}

/// The mark of a block whose first line begins here: the parser gives the place of its content.
fn block_header(text: &str, at: usize) -> Option<usize> {
    let begin = text[..at].rfind('\n').map_or(0, |index| index + 1);
    let (above, lead) = text.split_at(begin);
    if !lead[..at - begin].trim_matches(' ').is_empty() {
        return None;
    }
    let line = above.trim_end_matches([' ', '\n']);
    let offset = line.rfind('\n').map_or(0, |index| index + 1);
    let line = &line[offset..];
    let bare = line.find(" #").map_or(line, |comment| &line[..comment]).trim_end();
    let marks = bare.trim_end_matches(|letter: char| letter.is_ascii_digit() || matches!(letter, '+' | '-'));
    let rest = marks.strip_suffix(['|', '>'])?;
    rest.ends_with(' ').then_some(offset + rest.len())
}

/// The end of a quoted value.
fn quotes_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.get(start)?;
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 1,
            byte if byte == quote => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The whole of a block value, and how deep its lines stand.
fn extent(text: &str, start: usize, parent: usize) -> (Range<usize>, usize) {
    let header = text[start..].find('\n').map_or(text.len(), |index| start + index);
    let marks = text[start..header].split('#').next().unwrap_or("");
    let keeps = marks.contains('+');
    let depth = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let (mut end, mut at) = (header, header + 1);
    let said = marks.chars().find_map(|letter| letter.to_digit(10)).and_then(|digit| usize::try_from(digit).ok());
    let mut indent = said.map(|said| parent + said);
    while at < text.len() {
        let line = text[at..].split('\n').next().unwrap_or("");
        let blank = line.trim_matches(' ').is_empty();
        if !blank && depth(line) < indent.unwrap_or(parent + 1) {
            break;
        }
        if !blank && indent.is_none() {
            indent = Some(depth(line));
        }
        at += line.len() + 1;
        if !blank || keeps {
            end = at.min(text.len()) - usize::from(text.as_bytes().get(at.min(text.len()) - 1) == Some(&b'\n'));
        }
    }
    (start..end, indent.unwrap_or(parent + 2))
}

/// Whether a text may stand without quotes and no reader of YAML takes it for anything else.
fn plain(text: &str) -> bool {
    let first = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '/' | '_');
    let inner = |letter: char| {
        letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/' | ':' | '=' | '+' | '@' | ' ' | '*')
    };
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    text.starts_with(first) && text.chars().all(inner) && !text.ends_with([' ', ':']) && !text.contains(": ") && !word
}

fn double(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if hidden(letter) && u32::from(letter) <= 0xff => {
                write!(out, "\\x{:02x}", u32::from(letter)).ok();
            }
            letter if hidden(letter) && u32::from(letter) > 0xffff => {
                write!(out, "\\U{:08x}", u32::from(letter)).ok();
            }
            letter if hidden(letter) => {
                write!(out, "\\u{:04x}", u32::from(letter)).ok();
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// What a file may not hold as it is, or what would end a line.
fn hidden(letter: char) -> bool {
    letter.is_control() || letter == '\u{a0}' || letter::hidden(letter) || shapes(letter)
}

/// A block: its header, and its lines at a depth.
fn lines(mark: char, text: &str, parent: usize, indent: usize) -> String {
    let body = text.trim_end_matches('\n');
    let chomp = match text.len() - body.len() {
        0 => "-",
        1 => "",
        _ => "+",
    };
    // What begins with a blank says its depth itself.
    let lead = if body.starts_with([' ', '\n', '\t']) { (indent - parent).to_string() } else { String::new() };
    let mut out = format!("{mark}{lead}{chomp}");
    let ends = text.strip_suffix('\n').unwrap_or(text);
    for line in ends.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(line);
        }
    }
    out
}

/// A key and its value as a block, the lines of which stand at a depth.
pub fn yaml_value(key: &str, value: &serde_json::Value, depth: usize, out: &mut String) {
    use serde_json::Value;
    let lead = " ".repeat(depth);
    let key = if plain(key) { key.to_owned() } else { double(key) };
    match value {
        Value::Object(members) if members.is_empty() => {
            writeln!(out, "{lead}{key}: {{}}").ok();
        }
        Value::Object(members) => {
            writeln!(out, "{lead}{key}:").ok();
            members.iter().for_each(|(key, value)| yaml_value(key, value, depth + 2, out));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            writeln!(out, "{lead}{key}:").ok();
            for item in items.iter().filter_map(Value::as_object) {
                let mut block = String::new();
                item.iter().for_each(|(key, value)| yaml_value(key, value, depth + 4, &mut block));
                write!(out, "{lead}  - {}", block.trim_start()).ok();
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            writeln!(out, "{lead}{key}: [{}]", items.join(", ")).ok();
        }
        Value::String(text) if text.contains('\n') => {
            writeln!(out, "{lead}{key}: {}", lines('|', text, depth, depth + 2)).ok();
        }
        other => {
            writeln!(out, "{lead}{key}: {}", scalar(other)).ok();
        }
    }
}

fn scalar(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) if plain(text) && !text.contains(", ") => text.clone(),
        serde_json::Value::String(text) => double(text),
        other => other.to_string(),
    }
}
