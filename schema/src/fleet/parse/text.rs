//! From bytes to text: UTF-8 without a byte order mark, CRLF, or a character that nobody sees.

use crate::{
    diagnostic::{Diagnostic, Span, codes},
    fleet::doc::problem,
    letter::{hidden, shapes, turns},
};

/// Characters of one file that are told at once.
const AT_ONCE: usize = 20;

/// The text of a file, or a problem. CRLF becomes LF and a leading byte order mark goes, so that neither reaches a digest.
pub(super) fn check(bytes: &[u8], problems: &mut Vec<Diagnostic>) -> Option<String> {
    let (bytes, bom) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => (rest, true),
        None => (bytes, false),
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = place(bytes, error.valid_up_to());
            let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
            problems.push(
                problem(
                    codes::NOT_UTF8,
                    at,
                    format!("the file is not UTF-8: byte 0x{byte:02x} at offset {}", error.valid_up_to()),
                )
                .help("save the file as UTF-8"),
            );
            return None;
        }
    };
    let bad: Vec<(usize, char)> = refused(text).take(AT_ONCE).collect();
    if !bad.is_empty() {
        for (index, letter) in bad {
            let number = u32::from(letter);
            let what = match letter {
                '\0' => "a NUL character".to_owned(),
                '\u{feff}' => "a byte order mark that is not at its beginning".to_owned(),
                '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    format!("U+{number:04X}, which ends a line where few editors and reviews show an end")
                }
                letter if turns(letter) => format!("U+{number:04X}, which changes the direction of what is shown"),
                letter if letter.is_control() => format!("the control character U+{number:04X}"),
                letter if shapes(letter) => format!("U+{number:04X} where it shapes no letter and nobody sees it"),
                _ => format!("U+{number:04X}, which nobody sees"),
            };
            let finding = problem(codes::CONTROL_CHARACTER, place(bytes, index), format!("the file holds {what}"));
            problems.push(finding.help("delete it; it may not be visible in your editor"));
        }
        return None;
    }
    let crlf = text.contains("\r\n");
    if bom || crlf {
        let what = match (bom, crlf) {
            (true, true) => "begins with a byte order mark and ends its lines with CRLF",
            (true, false) => "begins with a byte order mark",
            (false, _) => "ends its lines with CRLF",
        };
        problems.push(problem(codes::BOM_OR_CRLF, Span::START, format!("the file {what}; both mean nothing here")));
    }
    Some(if crlf { text.replace("\r\n", "\n") } else { text.to_owned() })
}

/// What is not seen, with its place. Ends of lines are LF or CRLF, and what shapes letters stands behind one that has several shapes.
fn refused(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut before = '\0';
    text.char_indices().filter(move |(index, letter)| {
        let behind = std::mem::replace(&mut before, *letter);
        match letter {
            ' '..='~' => false,
            '\r' => text.as_bytes().get(index + 1) != Some(&b'\n'),
            letter => hidden(*letter) || (shapes(*letter) && behind.is_ascii()),
        }
    })
}

/// The place of a byte in bytes that may not be text.
fn place(bytes: &[u8], offset: usize) -> Span {
    let before = &bytes[..offset];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
    let column = String::from_utf8_lossy(&before[begin..]).chars().count() + 1;
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Span { line: narrow(line), column: narrow(column), start: narrow(offset), end: narrow(offset + 1) }
}
