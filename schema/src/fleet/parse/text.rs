//! From bytes to text: UTF-8 without a byte order mark, control characters or CRLF.

use crate::{
    diagnostic::{Diagnostic, Span, codes},
    fleet::doc::problem,
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
    let bad: Vec<(usize, char)> = text.char_indices().filter(|(_, letter)| refused(*letter)).take(AT_ONCE).collect();
    if !bad.is_empty() {
        for (index, letter) in bad {
            let what = match letter {
                '\0' => "a NUL character".to_owned(),
                '\u{feff}' => "a byte order mark that is not at its beginning".to_owned(),
                letter if turns(letter) => {
                    format!("U+{:04X}, which changes the direction of what is shown", u32::from(letter))
                }
                letter => format!("the control character U+{:04X}", u32::from(letter)),
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

fn refused(letter: char) -> bool {
    let spaces = matches!(letter, '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}');
    (letter.is_control() && !spaces) || letter == '\u{feff}' || turns(letter)
}

/// Whether a letter changes the direction of what follows, so that a text is not what it looks like.
pub(in crate::fleet) const fn turns(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
