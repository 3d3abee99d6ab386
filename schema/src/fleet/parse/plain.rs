//! The KDL that people mostly write, read in one pass over its bytes.
//!
//! The `kdl` crate keeps every space and comment of a document so that it can be edited, and costs a quarter of a
//! millisecond for a machine's file. This reader knows a part of the language only: words, quoted texts on one line,
//! whole numbers, `#true`, `#false`, `key=value`, blocks and `//` comments. It either returns exactly what the crate's
//! document would become, without a finding, or `None`; then the crate reads the file, and every finding is its own.
//! So nothing here reports an error, and nothing here decides what is valid: when in doubt, `None`.

use std::collections::HashSet;

use super::{MAX_DEPTH, guard};
use crate::{
    diagnostic::Span,
    fleet::doc::{Arg, Entry, Form, Object, Scalar},
};

/// The objects of a text that holds nothing unusual.
pub(super) fn read(text: &str) -> Option<Vec<Object>> {
    if guard::may_refuse(text) {
        return None;
    }
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, line: 1, begin: 0, wide: 0, words: 0 };
    let entries = reader.nodes(0)?;
    entries.into_iter().map(object).collect()
}

/// Whether no key of a node is written twice.
fn distinct(fields: &[Entry]) -> bool {
    const FEW: usize = 8;
    if fields.len() <= FEW {
        return fields
            .iter()
            .enumerate()
            .all(|(index, field)| fields[..index].iter().all(|other| other.key != field.key));
    }
    let mut keys = HashSet::with_capacity(fields.len());
    fields.iter().all(|field| keys.insert(field.key.as_str()))
}

/// A top-level node as an object; more than a name is a finding.
fn object(entry: Entry) -> Option<Object> {
    let mut args = entry.args.into_iter();
    let name = args.next();
    let alone = args.next().is_none();
    alone.then_some(Object { kind: (entry.key, entry.span), name, fields: entry.fields, span: entry.span })
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    line: u32,
    /// Where the line begins.
    begin: usize,
    /// Bytes of the line so far that begin no character.
    wide: usize,
    /// Words and values so far.
    words: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Nodes up to the end of the text or of the block.
    fn nodes(&mut self, depth: usize) -> Option<Vec<Entry>> {
        let mut nodes = Vec::new();
        loop {
            self.space();
            match self.peek() {
                None => return (depth == 0).then_some(nodes),
                Some(b'}') => {
                    self.at += 1;
                    return (depth > 0).then_some(nodes);
                }
                Some(b'\n') => self.newline(),
                Some(b'/') => self.comment()?,
                Some(_) => nodes.push(self.node(depth)?),
            }
        }
    }

    fn node(&mut self, depth: usize) -> Option<Entry> {
        let (key, span) = self.word()?;
        let mut node = Entry { key, span, args: Vec::new(), fields: Vec::new(), form: Form::Node };
        let block = self.entries(&mut node)?;
        if !distinct(&node.fields) {
            return None;
        }
        if block {
            if depth == MAX_DEPTH {
                return None;
            }
            let mut children = self.nodes(depth + 1)?;
            node.fields.append(&mut children);
            self.end()?;
        }
        Some(node)
    }

    /// The arguments and properties of a node, up to its end or into its block; whether it has one.
    fn entries(&mut self, node: &mut Entry) -> Option<bool> {
        loop {
            if self.words > guard::MAX_WORDS || node.args.len() + node.fields.len() > guard::MAX_WORDS_OF_LINE {
                return None;
            }
            let spaced = self.space();
            match self.peek() {
                None => return Some(false),
                Some(b'\n') => {
                    self.newline();
                    return Some(false);
                }
                Some(b';') => {
                    self.at += 1;
                    return Some(false);
                }
                _ if !spaced => return None,
                Some(b'/') => {
                    self.comment()?;
                    return Some(false);
                }
                // The block that holds this node ends.
                Some(b'}') => return Some(false),
                Some(b'{') => {
                    self.at += 1;
                    return Some(true);
                }
                Some(_) => self.entry(node)?,
            }
        }
    }

    /// What ends a node after its block.
    fn end(&mut self) -> Option<()> {
        let spaced = self.space();
        match self.peek() {
            None => {}
            Some(b'\n') => self.newline(),
            Some(b';') => self.at += 1,
            Some(b'/') if spaced => self.comment()?,
            Some(b'}') if spaced => {}
            Some(_) => return None,
        }
        Some(())
    }

    fn entry(&mut self, node: &mut Entry) -> Option<()> {
        let first = self.peek()?;
        if first != b'"' && !begins_word(first) {
            let value = self.other()?;
            node.args.push(value);
            return Some(());
        }
        let (word, span) = self.word()?;
        if self.peek() != Some(b'=') {
            node.args.push(Arg { value: Scalar::Text(word), span });
            return Some(());
        }
        self.at += 1;
        let next = self.peek()?;
        let value = if next == b'"' || begins_word(next) {
            let (text, span) = self.word()?;
            Arg { value: Scalar::Text(text), span }
        } else {
            self.other()?
        };
        node.fields.push(Entry { key: word, span, args: vec![value], fields: Vec::new(), form: Form::Single });
        Some(())
    }

    /// A bare word or a quoted text.
    fn word(&mut self) -> Option<(String, Span)> {
        let (start, begin) = (self.at, self.here());
        let first = self.peek()?;
        self.words += 1;
        if first == b'"' {
            return self.quoted();
        }
        if !begins_word(first) {
            return None;
        }
        let rest = &self.bytes[start..];
        let length = rest.iter().position(|byte| !in_word(*byte)).unwrap_or(rest.len());
        self.at += length;
        let word = &self.text[start..self.at];
        if matches!(word, "true" | "false" | "null" | "inf" | "nan") {
            return None;
        }
        Some((word.to_owned(), self.upto(begin)))
    }

    fn quoted(&mut self) -> Option<(String, Span)> {
        let (start, begin) = (self.at, self.here());
        let mut from = start + 1;
        let mut text = String::new();
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    text.push_str(&self.text[from..self.at]);
                    text.push(escaped(*self.bytes.get(self.at + 1)?)?);
                    self.at += 2;
                    from = self.at;
                }
                byte => self.letter(byte)?,
            }
        }
        text.push_str(&self.text[from..self.at]);
        self.at += 1;
        // A text of several lines.
        if self.at == start + 2 && self.peek() == Some(b'"') {
            return None;
        }
        Some((text, self.upto(begin)))
    }

    /// Steps over one byte of a text or comment that is no line end.
    fn letter(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'\n' | b'\r' | 0x0b | 0x0c => return None,
            // U+0085, U+2028 and U+2029 end lines.
            0xc2 if self.bytes.get(self.at + 1) == Some(&0x85) => return None,
            0xe2 if matches!(self.bytes.get(self.at + 1..self.at + 3), Some([0x80, 0xa8 | 0xa9])) => return None,
            0x80..=0xbf => self.wide += 1,
            _ => {}
        }
        self.at += 1;
        Some(())
    }

    /// A whole number or one of two keywords.
    fn other(&mut self) -> Option<Arg> {
        let (start, begin) = (self.at, self.here());
        let rest = &self.bytes[start..];
        let value = if rest.starts_with(b"#true") {
            self.at += 5;
            Scalar::Bool(true)
        } else if rest.starts_with(b"#false") {
            self.at += 6;
            Scalar::Bool(false)
        } else {
            let sign = usize::from(rest[0] == b'-');
            let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let zeros = digits > 1 && rest[sign] == b'0';
            if digits == 0 || digits > 18 || zeros {
                return None;
            }
            self.at += sign + digits;
            Scalar::Int(self.text[start..self.at].parse().ok()?)
        };
        // What goes on is another word: 10m, 0x1f, #truest.
        match self.peek() {
            None | Some(b' ' | b'\t' | b'\n' | b';') => Some(Arg { value, span: self.upto(begin) }),
            Some(_) => None,
        }
    }

    /// Skips blanks; whether there were any.
    fn space(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.at > start
    }

    /// Skips `//` up to the end of its line.
    fn comment(&mut self) -> Option<()> {
        if self.bytes.get(self.at + 1) != Some(&b'/') {
            return None;
        }
        loop {
            match self.peek() {
                None => return Some(()),
                Some(b'\n') => {
                    self.newline();
                    return Some(());
                }
                Some(byte) => self.letter(byte)?,
            }
        }
    }

    fn newline(&mut self) {
        self.at += 1;
        self.line += 1;
        self.begin = self.at;
        self.wide = 0;
    }

    /// Where a token begins that is about to be read.
    fn here(&self) -> Span {
        let at = narrow(self.at);
        Span { line: self.line, column: narrow(self.at - self.begin - self.wide + 1), start: at, end: at }
    }

    /// The token up to here.
    fn upto(&self, begin: Span) -> Span {
        Span { end: narrow(self.at), ..begin }
    }
}

const fn begins_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

const fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

const fn escaped(letter: u8) -> Option<char> {
    match letter {
        b'"' => Some('"'),
        b'\\' => Some('\\'),
        b'n' => Some('\n'),
        b't' => Some('\t'),
        b'r' => Some('\r'),
        b's' => Some(' '),
        _ => None,
    }
}

/// A file has at most a mebibyte.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
