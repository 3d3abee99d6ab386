//! KDL as a sequence of tokens that is the text again when it is put together. Only for text that a parser took.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fleet) enum Token {
    /// Blanks within a line.
    Blank,
    /// The end of a line.
    Newline,
    /// A backslash: the line goes on behind the next line end.
    Continuation,
    /// `// …`.
    LineComment,
    /// `/* … */`.
    Comment,
    /// `/-`.
    Slashdash,
    /// A text in quotes on one line, raw or not.
    Quoted,
    /// A text of several lines, raw or not.
    Lines,
    /// A bare word, a number, `#true`.
    Word,
    /// One of `( ) = { } ;`.
    Mark(u8),
}

/// A token and what is written.
pub(in crate::fleet) type Piece<'t> = (Token, &'t str);

/// The tokens of a text.
pub(in crate::fleet) fn tokens(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (token, length) = next(rest);
        let length = length.clamp(1, rest.len());
        let length = (length..=rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
        let (written, after) = rest.split_at(length);
        found.push((token, written));
        rest = after;
    }
    found
}

fn next(rest: &str) -> (Token, usize) {
    let newline = newline(rest);
    if newline > 0 {
        return (Token::Newline, newline);
    }
    if rest.starts_with("//") {
        return (Token::LineComment, line_end(rest));
    }
    if rest.starts_with("/*") {
        return (Token::Comment, comment_end(rest));
    }
    if rest.starts_with("/-") {
        return (Token::Slashdash, 2);
    }
    let first = rest.chars().next().unwrap_or(' ');
    match first {
        '\\' => (Token::Continuation, 1),
        '(' | ')' | '=' | '{' | '}' | ';' => (Token::Mark(first as u8), 1),
        '#' | '"' => text_end(rest).unwrap_or_else(|| (Token::Word, word_end(rest))),
        first if blank(first) => (Token::Blank, rest.find(|letter| !blank(letter)).unwrap_or(rest.len())),
        _ => (Token::Word, word_end(rest)),
    }
}

/// White space that ends no line.
fn blank(letter: char) -> bool {
    letter == '\u{feff}' || (letter.is_whitespace() && !ends_line(letter))
}

pub(super) const fn ends_line(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

fn newline(rest: &str) -> usize {
    match rest.chars().next() {
        Some('\r') if rest.starts_with("\r\n") => 2,
        Some(letter) if ends_line(letter) => letter.len_utf8(),
        _ => 0,
    }
}

fn line_end(rest: &str) -> usize {
    rest.find(ends_line).unwrap_or(rest.len())
}

fn comment_end(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        let pair = rest.as_bytes().get(at..at + 2);
        if pair == Some(b"/*") {
            depth += 1;
            at += 2;
        } else if pair == Some(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn text_end(rest: &str) -> Option<(Token, usize)> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = &rest[hashes..];
    if !body.starts_with('"') {
        return None;
    }
    let several = body.starts_with("\"\"\"") && newline(&body[3..]) > 0;
    let quotes = if several { 3 } else { 1 };
    let end = format!("{}{}", &"\"\"\""[..quotes], "#".repeat(hashes));
    let mut at = quotes;
    while at < body.len() {
        let here = &body[at..];
        if hashes == 0 && here.starts_with('\\') {
            at += 1 + here[1..].chars().next().map_or(0, char::len_utf8);
        } else if here.starts_with(&end) {
            let token = if several { Token::Lines } else { Token::Quoted };
            return Some((token, hashes + at + end.len()));
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

fn word_end(rest: &str) -> usize {
    let ends = |letter: char| {
        letter.is_whitespace()
            || ends_line(letter)
            || matches!(letter, '(' | ')' | '{' | '}' | '=' | ';' | '\\' | '"' | '/')
    };
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    hashes + rest[hashes..].find(ends).unwrap_or(rest.len() - hashes)
}
