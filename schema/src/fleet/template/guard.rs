//! Refuses what the template parser would recurse on, and operators that repeat what is not accounted for.

use super::RenderError;
use crate::diagnostic::codes;

/// Bytes of one tag.
const TAG: usize = 4096;
/// Branches that the `if`s of a template may have besides the first.
const BRANCHES: usize = 100;

/// Refuses what the template parser would recurse on: its stack grows with the operators of one tag and with the
/// branches of one `if`.
pub(super) fn check(name: &str, text: &str) -> Result<(), RenderError> {
    let refuse = |at: usize, what: &str| RenderError {
        code: codes::TEMPLATE_LIMIT,
        template: name.to_owned(),
        line: text[..at].matches('\n').count() + 1,
        range: Some(at..at + 2),
        message: what.to_owned(),
    };
    let bytes = text.as_bytes();
    let (mut at, mut branches) = (0, 0);
    while at + 1 < bytes.len() {
        let start = at;
        let end: &[u8] = match &bytes[at..at + 2] {
            b"{{" => b"}}",
            b"{%" => b"%}",
            b"{#" => b"#}",
            _ => {
                at += 1;
                continue;
            }
        };
        at = tag_end(bytes, at + 2, end);
        if end == b"#}" {
            continue;
        }
        if at - start > TAG {
            return Err(refuse(start, "this tag is longer than 4096 bytes"));
        }
        if let Some(times) = operator(&bytes[start..at], b'*') {
            let instead = "templates do not multiply with `*`, which repeats lists too; write VALUE|times(2), which takes numbers";
            return Err(refuse(start + times, instead));
        }
        if let Some(plus) = sum(&bytes[start..at]) {
            let instead = "`+` adds a whole number that is written beside it; write VALUE|plus(OTHER) for other numbers, and A ~ B for texts";
            return Err(refuse(start + plus, instead));
        }
        let inside = text.get(start + 2..at).unwrap_or("").trim_start_matches(['-', '+']).trim_start();
        branches += usize::from(inside.starts_with("elif"));
        if branches > BRANCHES {
            return Err(refuse(start, "the template has more than 100 elif"));
        }
        if end == b"%}" && inside.trim_end_matches(['%', '}', '-', '+']).trim_end() == "raw" {
            let raw = text[at..].match_indices("{%").find(|(index, _)| {
                text[at + index + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw")
            });
            at = raw.map_or(bytes.len(), |(index, _)| at + index);
        }
    }
    Ok(())
}

/// The byte after the end of a tag whose inside begins at `at`; texts inside it hide an end.
fn tag_end(bytes: &[u8], mut at: usize, end: &[u8]) -> usize {
    let mut quote = None;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'"' | b'\'')) if end != b"#}" => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(end) => return at + 2,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Where an operator stands in a tag, outside of its texts.
fn operator(tag: &[u8], operator: u8) -> Option<usize> {
    let mut quote = None;
    let mut at = 0;
    while at < tag.len() {
        match (quote, tag[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if open == byte => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, byte) if byte == operator => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a tag adds what need not be numbers: lists that are put together are not accounted for. One of the two is a whole
/// number that is written there and of which nothing more is asked.
fn sum(tag: &[u8]) -> Option<usize> {
    let inner = tag.get(2..tag.len().saturating_sub(2))?;
    let mut from = 0;
    while let Some(index) = operator(&inner[from..], b'+') {
        let at = from + index;
        let (before, after) = (inner[..at].trim_ascii_end(), inner[at + 1..].trim_ascii_start());
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        let left = &before[before.iter().rposition(|byte| !word(byte)).map_or(0, |end| end + 1)..];
        let right = &after[..after.iter().position(|byte| !word(byte)).unwrap_or(after.len())];
        let rest = after[right.len()..].trim_ascii_start();
        let number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        let asked = matches!(rest.first(), Some(b'|' | b'[' | b'('));
        // A mark at the edge of a tag says what becomes of the white space around it.
        let edge = before.is_empty() || after.is_empty();
        if !edge && !number(left) && (!number(right) || asked) {
            return Some(2 + at);
        }
        from = at + 1;
    }
    None
}
