//! Places as editors count them: lines from 0, and UTF-16 units within a line.

use std::path::PathBuf;

use reqwest::Url;
use serde_json::{Value, json};

/// The byte at a position; the end of the line or text when it lies behind them.
pub(super) fn offset(text: &str, position: &Value) -> usize {
    let number = |key: &str| position[key].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
    let (line, mut units) = (number("line"), number("character"));
    let mut begin = 0;
    for _ in 0..line {
        match text[begin..].find('\n') {
            Some(end) => begin += end + 1,
            None => return text.len(),
        }
    }
    let mut at = begin;
    for letter in text[begin..].chars() {
        if units == 0 || matches!(letter, '\n' | '\r') {
            break;
        }
        units = units.saturating_sub(letter.len_utf16());
        at += letter.len_utf8();
    }
    at
}

/// The position of a byte.
pub(super) fn position(text: &str, at: usize) -> Value {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let begin = before.rfind('\n').map_or(0, |index| index + 1);
    json!({ "line": before.matches('\n').count(), "character": before[begin..].encode_utf16().count() })
}

/// The range between two bytes.
pub(super) fn range(text: &str, start: usize, end: usize) -> Value {
    json!({ "start": position(text, start), "end": position(text, end.max(start)) })
}

/// The file that an address names.
pub(super) fn path(uri: &str) -> Option<PathBuf> {
    Url::parse(uri).ok()?.to_file_path().ok()
}

/// The address of a file.
pub(super) fn uri(path: &std::path::Path) -> Option<String> {
    Url::from_file_path(path).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_both_ways() {
        let text = "a\u{1f980}b\r\nsecond\u{e9}x\n";
        for at in [0, 1, 5, 6, 8, 14, 16, 17, text.len()] {
            assert_eq!(offset(text, &position(text, at)), at);
        }
        assert_eq!(position(text, 5), json!({ "line": 0, "character": 3 }));
        assert_eq!(offset(text, &json!({ "line": 0, "character": 99 })), 6);
        assert_eq!(offset(text, &json!({ "line": 99, "character": 0 })), text.len());
        assert_eq!(offset(text, &json!("nonsense")), 0);
    }

    #[test]
    fn files_have_addresses() {
        let file = PathBuf::from("/a b/c%d.kdl");
        let address = uri(&file).unwrap();
        assert_eq!((address.as_str(), path(&address)), ("file:///a%20b/c%25d.kdl", Some(file)));
        assert_eq!(path("untitled:x"), None);
    }
}
