//! What is looked at before the KDL parser runs: its recursion can overflow a stack (which aborts the process), and
//! blocks that are commented out inside each other cost it exponential time. A small lexer counts both. It also notices
//! the words of KDL version 1, for a better message when the parser then refuses the text.

use super::MAX_DEPTH;

/// Blocks that may be commented out inside each other.
const MAX_SLASHDASHED: usize = 3;

/// Why a text is not given to the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooDeep {
    /// The byte at which the bound was passed.
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// What the lexer saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The first word that only version 1 has: its range.
    pub(super) v1: Option<(usize, usize)>,
    /// The deepest block.
    #[cfg(test)]
    pub(super) depth: usize,
}

/// Walks over a text once.
pub(super) fn scan(text: &str) -> Result<Seen, TooDeep> {
    let bytes = text.as_bytes();
    let mut seen = Seen::default();
    // One element per open block: whether it is commented out.
    let mut blocks: Vec<bool> = Vec::new();
    let mut slashdash = false;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            at = comment(bytes, at)?;
        } else if rest.starts_with(b"/-") {
            slashdash = true;
            at += 2;
        } else if let Some(end) = string(bytes, at) {
            at = end;
        } else if word_byte(rest[0]) {
            let length = rest.iter().position(|byte| !word_byte(*byte)).unwrap_or(rest.len());
            let first = at == 0 || matches!(bytes[at - 1], b' ' | b'\t' | b'=' | b'(');
            let raw = rest[..length] == *b"r" && matches!(rest.get(1), Some(b'"' | b'#'));
            if first && (raw || matches!(&rest[..length], b"true" | b"false" | b"null")) && seen.v1.is_none() {
                seen.v1 = Some((at, at + length));
            }
            at += length;
        } else {
            match rest[0] {
                b'{' => {
                    blocks.push(std::mem::take(&mut slashdash));
                    if blocks.len() > MAX_DEPTH {
                        return Err(TooDeep { at, what: "blocks" });
                    }
                    if blocks.iter().filter(|out| **out).count() > MAX_SLASHDASHED {
                        return Err(TooDeep { at, what: "blocks that are commented out with /-" });
                    }
                }
                b'}' => {
                    blocks.pop();
                    slashdash = false;
                }
                b'\n' | b';' => slashdash = false,
                _ => {}
            }
            #[cfg(test)]
            {
                seen.depth = seen.depth.max(blocks.len());
            }
            at += 1;
        }
    }
    Ok(seen)
}

const fn word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') || byte >= 0x80
}

/// The end of a block comment, which may hold others.
fn comment(bytes: &[u8], start: usize) -> Result<usize, TooDeep> {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(TooDeep { at, what: "comments" });
            }
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    Ok(at)
}

/// The end of a string that begins here: quoted, raw (with hashes) or of several lines. A quoted string that is not
/// closed ends with its line, so that a missing quote hides no brace.
fn string(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = &bytes[start..];
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return (hashes > 0).then_some(start + hashes);
    }
    let body = &rest[hashes..];
    let quotes = if body.starts_with(b"\"\"\"\n") || body.starts_with(b"\"\"\"\r") { 3 } else { 1 };
    let mut at = start + hashes + quotes;
    while at < bytes.len() {
        if hashes == 0 && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at..].starts_with(&b"\"\"\""[..quotes])
            && bytes[at + quotes..].iter().take(hashes).filter(|byte| **byte == b'#').count() == hashes
        {
            return Some(at + quotes + hashes);
        } else if quotes == 1 && bytes[at] == b'\n' {
            return Some(at);
        } else {
            at += 1;
        }
    }
    Some(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings_and_comments() {
        for text in
            ["a { b { c } }", "a \"{{{\" { b { } }", "a #\"\"{\"# { b { } } // {{{{", "/* { /* { */ { */ a { b { } }"]
        {
            assert_eq!(scan(text).expect(text).depth, 2, "{text}");
        }
    }

    #[test]
    fn what_would_harm_the_parser_is_refused() {
        for text in ["a {".repeat(33), "/-{".repeat(4), "a /-{ ".repeat(18), "/*".repeat(33), "/- a {\n b\n".repeat(16)]
        {
            assert!(scan(&text).is_err(), "{text}");
        }
        assert!(scan(&"a {".repeat(32)).is_ok());
    }

    #[test]
    fn words_of_version_1_are_noticed() {
        for text in ["a true", "a x=false", "a null r\"x\"", "a r#\"x\"#"] {
            assert!(scan(text).expect(text).v1.is_some(), "{text}");
        }
        for text in ["a #true", "a \"true\"", "true-north 1", "a truest"] {
            assert!(scan(text).expect(text).v1.is_none(), "{text}");
        }
    }
}
