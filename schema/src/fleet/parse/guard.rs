//! What is looked at before the KDL parser runs. Its recursion can overflow a stack, and blocks that are commented out
//! inside each other cost it exponential time; both also happen while it recovers from an error, when it may read the
//! inside of a text as code. So besides a small lexer, which bounds what a valid document can do, everything that could
//! be an opening is counted wherever it stands: those counts bound what an invalid one can do.

use super::MAX_DEPTH;

/// Blocks that may be commented out inside each other.
const MAX_SLASHDASHED: usize = 3;
/// Occurrences of `/-` with which even nesting all of them costs little time.
pub(super) const FEW_SLASHDASHES: usize = 12;
/// Openings in one file.
const MAX_OPENINGS: usize = 20_000;
/// Words, numbers and texts in one file.
pub(super) const MAX_WORDS: usize = 200_000;
/// The same on one line.
pub(super) const MAX_WORDS_OF_LINE: usize = 20_000;

/// Why a text is not given to the parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The byte.
    pub(super) at: usize,
    pub(super) what: What,
}

/// What is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Too much nesting of the named thing.
    Deep(&'static str),
    /// A text or comment that does not end.
    Open(&'static str),
    /// More blocks than one file may have.
    Many,
    /// More words than one file, or one line, may have: how many are too many.
    Words(usize),
    /// A brace that closes nothing.
    Close,
}

/// What the lexer saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The first word that only version 1 has: its range.
    pub(super) v1: Option<(usize, usize)>,
    /// Where things are commented out with `/-`.
    pub(super) slashdashes: Vec<usize>,
    /// The deepest block.
    #[cfg(test)]
    pub(super) depth: usize,
}

/// The stack that the parser may need for a text: so much for each level of nesting, and so much for each error that it
/// could find.
pub(super) fn stack(text: &str) -> usize {
    (2 << 20) + text.len() * 512 + openings(text) * (12 << 10)
}

/// Whether a walk might refuse a text for more than the depth of its blocks.
pub(super) fn may_refuse(text: &str) -> bool {
    text.matches("/-").take(FEW_SLASHDASHES + 1).count() > FEW_SLASHDASHES
        || (text.len() > MAX_OPENINGS && openings(text) > MAX_OPENINGS)
}

fn openings(text: &str) -> usize {
    let pairs = text.as_bytes().windows(2).filter(|pair| matches!(pair, [b'/', b'-' | b'*'])).count();
    pairs + text.bytes().filter(|byte| matches!(byte, b'{' | b'(')).count()
}

/// Walks over a text once.
pub(super) fn scan(text: &str) -> Result<Seen, Refused> {
    if openings(text) > MAX_OPENINGS {
        return Err(Refused { at: 0, what: What::Many });
    }
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        at: 0,
        blocks: Vec::new(),
        pending: 0,
        words: 0,
        begun: 0,
        seen: Seen::default(),
    };
    while lexer.at < lexer.bytes.len() {
        lexer.token()?;
    }
    let hidden = text.matches("/-").count().saturating_sub(lexer.seen.slashdashes.len());
    if hidden > FEW_SLASHDASHES {
        let at = text.find("/-").unwrap_or(0);
        return Err(Refused { at, what: What::Deep("texts and comments that hold /-") });
    }
    Ok(lexer.seen)
}

struct Lexer<'t> {
    bytes: &'t [u8],
    at: usize,
    /// One element per open block: whether it is commented out.
    blocks: Vec<bool>,
    /// How many `/-` wait for what they comment out.
    pending: usize,
    /// Words so far, and how many there were when the line began.
    words: usize,
    begun: usize,
    seen: Seen,
}

impl Lexer<'_> {
    fn token(&mut self) -> Result<(), Refused> {
        let rest = &self.bytes[self.at..];
        let newline = newline(rest);
        if newline > 0 {
            self.pending = 0;
            self.begun = self.words;
            self.at += newline;
        } else if rest.starts_with(b"//") {
            self.line_comment();
        } else if rest.starts_with(b"/*") {
            self.comment()?;
        } else if rest.starts_with(b"/-") {
            self.pending += 1;
            if self.pending > MAX_SLASHDASHED {
                return Err(self.deep("/- in front of /-"));
            }
            self.seen.slashdashes.push(self.at);
            self.at += 2;
        } else if matches!(rest[0], b'#' | b'"') {
            self.counted()?;
            self.text()?;
        } else if word_byte(rest[0]) {
            self.counted()?;
            self.word();
        } else {
            self.mark(rest[0])?;
            self.at += 1;
        }
        Ok(())
    }

    fn mark(&mut self, byte: u8) -> Result<(), Refused> {
        match byte {
            b'{' => {
                self.blocks.push(self.pending > 0);
                self.pending = 0;
                if self.blocks.len() > MAX_DEPTH {
                    return Err(self.deep("blocks"));
                }
                if self.blocks.iter().filter(|out| **out).count() > MAX_SLASHDASHED {
                    return Err(self.deep("blocks that are commented out with /-"));
                }
            }
            b'}' => {
                self.pending = 0;
                if self.blocks.pop().is_none() {
                    return Err(Refused { at: self.at, what: What::Close });
                }
            }
            b';' => self.pending = 0,
            _ => {}
        }
        #[cfg(test)]
        {
            self.seen.depth = self.seen.depth.max(self.blocks.len());
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<(), Refused> {
        self.words += 1;
        let most = if self.words > MAX_WORDS {
            MAX_WORDS
        } else if self.words - self.begun > MAX_WORDS_OF_LINE {
            MAX_WORDS_OF_LINE
        } else {
            return Ok(());
        };
        Err(Refused { at: self.at, what: What::Words(most) })
    }

    fn deep(&self, what: &'static str) -> Refused {
        Refused { at: self.at, what: What::Deep(what) }
    }

    fn word(&mut self) {
        let rest = &self.bytes[self.at..];
        let mut length = 0;
        while length < rest.len() && word_byte(rest[length]) && newline(&rest[length..]) == 0 {
            length += 1;
        }
        let first = self.at == 0 || matches!(self.bytes[self.at - 1], b' ' | b'\t' | b'=' | b'(');
        let raw = rest[..length] == *b"r" && matches!(rest.get(1), Some(b'"' | b'#'));
        let old = raw || matches!(&rest[..length], b"true" | b"false" | b"null");
        if first && old && self.seen.v1.is_none() {
            self.seen.v1 = Some((self.at, self.at + length));
        }
        self.at += length;
    }

    fn line_comment(&mut self) {
        while self.at < self.bytes.len() && newline(&self.bytes[self.at..]) == 0 {
            self.at += 1;
        }
    }

    /// A block comment, which may hold others.
    fn comment(&mut self) -> Result<(), Refused> {
        let (start, mut depth) = (self.at, 0_usize);
        while self.at < self.bytes.len() {
            if self.bytes[self.at..].starts_with(b"/*") {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(self.deep("comments"));
                }
                self.at += 2;
            } else if self.bytes[self.at..].starts_with(b"*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return Ok(());
                }
            } else {
                self.at += 1;
            }
        }
        Err(Refused { at: start, what: What::Open("comment") })
    }

    /// A text: quoted, raw (with hashes) or of several lines; or a word such as `#true`.
    fn text(&mut self) -> Result<(), Refused> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        if rest.get(hashes) != Some(&b'"') {
            self.at += hashes;
            return Ok(());
        }
        let body = &rest[hashes..];
        let quotes = if body.starts_with(b"\"\"\"") && newline(&body[3..]) > 0 { 3 } else { 1 };
        self.at += hashes + quotes;
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if hashes == 0 && rest[0] == b'\\' {
                self.escape();
            } else if self.closes(quotes, hashes) {
                self.at += quotes + hashes;
                return Ok(());
            } else if quotes == 1 && newline(rest) > 0 {
                break;
            } else {
                self.at += 1;
            }
        }
        Err(Refused { at: start, what: What::Open("text") })
    }

    fn closes(&self, quotes: usize, hashes: usize) -> bool {
        let rest = &self.bytes[self.at..];
        rest.starts_with(&b"\"\"\""[..quotes])
            && rest.get(quotes..quotes + hashes).is_some_and(|rest| rest.iter().all(|byte| *byte == b'#'))
    }

    /// An escape; one of white space covers all that follows, line ends too.
    fn escape(&mut self) {
        self.at += 1;
        let start = self.at;
        while self.at < self.bytes.len() {
            let blank = newline(&self.bytes[self.at..]).max(usize::from(matches!(self.bytes[self.at], b' ' | b'\t')));
            if blank == 0 {
                break;
            }
            self.at += blank;
        }
        if self.at == start {
            self.at += 1;
        }
    }
}

/// The length of the line end that begins a text; 0 when none does.
fn newline(bytes: &[u8]) -> usize {
    match bytes {
        [b'\r', b'\n', ..] | [0xc2, 0x85, ..] => 2,
        [b'\n' | b'\r' | 0x0b | 0x0c, ..] => 1,
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
        _ => 0,
    }
}

const fn word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_texts_and_comments() {
        for text in [
            "a { b { c } }",
            "a \"{{{\" { b { } }",
            "a #\"\"{\"# { b { } } // {{{{",
            "/* { /* { */ { */ a { b { } }",
            "//\u{85}a { b { } }",
            "a \"x\\\n  {\" { b { } }",
            "a \"\"\"\u{2028} { /* \" \n \"\"\" { b { } }",
        ] {
            assert_eq!(scan(text).expect(text).depth, 2, "{text}");
        }
    }

    #[test]
    fn what_would_harm_the_parser_is_refused() {
        for text in [
            "a {".repeat(33),
            "/-{".repeat(4),
            "/- ".repeat(4),
            "a /-{ ".repeat(18),
            "/*".repeat(33),
            "/- a {\n b\n".repeat(16),
            "//\ra {\n".repeat(200),
            format!("a \"{}", "b { ".repeat(100)),
            format!("a \"\"\"\n{}", "b {\n".repeat(100)),
            format!("a \"{}\"", "b /-{ ".repeat(100)),
            "a { } ".repeat(20_001),
            "a ".repeat(20_001),
            "a 1\n".repeat(100_001),
            "}".to_owned(),
        ] {
            assert!(scan(&text).is_err(), "{}", &text[..text.len().min(40)]);
        }
        assert!(scan(&format!("{}{}", "a {".repeat(32), "}".repeat(32))).is_ok());
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
