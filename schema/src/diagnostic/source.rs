//! Places in fleet files, and the texts that diagnostics quote.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

/// A range of one file: where it begins for people (line and column from 1, columns in characters) and for machines
/// (bytes of the text without its byte order mark).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "[u32; 4]", from = "[u32; 4]")]
pub struct Span {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The very beginning of a file.
    pub const START: Self = Self { line: 1, column: 1, start: 0, end: 0 };
}

impl From<[u32; 4]> for Span {
    fn from([line, column, start, end]: [u32; 4]) -> Self {
        Self { line, column, start, end }
    }
}

impl From<Span> for [u32; 4] {
    fn from(span: Span) -> Self {
        [span.line, span.column, span.start, span.end]
    }
}

/// A place in a fleet repository.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceRef {
    /// The path below the fleet's root.
    pub file: Arc<str>,
    /// Where in the file.
    pub span: Span,
}

impl SourceRef {
    /// A place.
    #[must_use]
    pub fn new(file: impl Into<Arc<str>>, span: Span) -> Self {
        Self { file: file.into(), span }
    }

    /// The beginning of a file.
    #[must_use]
    pub fn start_of(file: impl Into<Arc<str>>) -> Self {
        Self::new(file, Span::START)
    }

    /// The line, from 1.
    #[must_use]
    pub const fn line(&self) -> u32 {
        self.span.line
    }
}

impl Default for SourceRef {
    /// No place: what was read back from a stored document.
    fn default() -> Self {
        Self::start_of("")
    }
}

impl fmt::Display for SourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.span.line, self.span.column)
    }
}

impl fmt::Debug for SourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SourceRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut place = serializer.serialize_struct("SourceRef", 3)?;
        place.serialize_field("file", &*self.file)?;
        place.serialize_field("line", &self.span.line)?;
        place.serialize_field("column", &self.span.column)?;
        place.end()
    }
}

/// The texts of the files that were read, for quoting. A copy shares them.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    texts: Arc<BTreeMap<Arc<str>, Arc<str>>>,
}

impl FromIterator<(Arc<str>, Arc<str>)> for SourceMap {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(files: I) -> Self {
        Self { texts: Arc::new(files.into_iter().collect()) }
    }
}

impl SourceMap {
    /// Remembers a file's text (without its byte order mark).
    pub fn insert(&mut self, file: impl Into<Arc<str>>, text: impl Into<Arc<str>>) {
        Arc::make_mut(&mut self.texts).insert(file.into(), text.into());
    }

    /// A file's text.
    #[must_use]
    pub fn text(&self, file: &str) -> Option<&str> {
        self.texts.get(file).map(|text| &**text)
    }

    /// The line that a place begins on, without its end.
    #[must_use]
    pub fn line(&self, at: &SourceRef) -> Option<&str> {
        let text = self.text(&at.file)?;
        let start = usize::try_from(at.span.start).ok()?;
        let before = text.get(..start)?;
        let begin = before
            .rfind(is_line_end)
            .map_or(0, |index| index + before[index..].chars().next().map_or(1, char::len_utf8));
        let rest = &text[begin..];
        Some(&rest[..rest.find(is_line_end).unwrap_or(rest.len())])
    }
}

/// The characters that end a line in KDL; `\r` is one, so that a quoted line never holds it.
pub(crate) const fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// Where the lines of a text begin: turns byte offsets into lines and columns.
#[derive(Debug)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
    /// The number of characters before each block of [`BLOCK`] bytes, so that a column on a very long line is cheap.
    blocks: Vec<usize>,
}

const BLOCK: usize = 256;

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut starts = vec![0];
        let mut letters = text.char_indices().peekable();
        while let Some((index, letter)) = letters.next() {
            if !is_line_end(letter) || (letter == '\r' && letters.peek().is_some_and(|(_, next)| *next == '\n')) {
                continue;
            }
            starts.push(index + letter.len_utf8());
        }
        let mut blocks = vec![0];
        for block in text.as_bytes().chunks(BLOCK) {
            blocks.push(blocks[blocks.len() - 1] + characters(block));
        }
        Self { text, starts, blocks }
    }

    pub(crate) const fn text(&self) -> &'t str {
        self.text
    }

    /// The span of a byte range; offsets outside the text or inside a character move to the nearest one before.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        let start = floor(self.text, start);
        let end = floor(self.text, end.max(start));
        let line = self.starts.partition_point(|begin| *begin <= start);
        let begin = self.starts[line - 1];
        let column = self.characters_before(start) - self.characters_before(begin) + 1;
        Span { line: narrow(line), column: narrow(column), start: narrow(start), end: narrow(end) }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.blocks[block] + characters(&self.text.as_bytes()[block * BLOCK..offset])
    }
}

fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kdl_line_end_counts() {
        let lines = Lines::new("a\r\nb\u{85}c\u{2028}dé!\n");
        assert_eq!(lines.span(3, 4).line, 2);
        assert_eq!(lines.span(6, 7).line, 3);
        let last = lines.span(13, 14);
        assert_eq!((last.line, last.column), (4, 3));
    }

    #[test]
    fn offsets_outside_the_text_do_no_harm() {
        let lines = Lines::new("é");
        assert_eq!(lines.span(1, 99), Span { line: 1, column: 1, start: 0, end: 2 });
        assert_eq!(Lines::new("").span(7, 3), Span::START);
    }

    #[test]
    fn a_line_is_quoted_without_its_end() {
        let mut map = SourceMap::default();
        map.insert("a", "one\r\ntwo\r\n");
        let at = SourceRef::new("a", Lines::new("one\r\ntwo\r\n").span(6, 7));
        assert_eq!(map.line(&at), Some("two"));
    }
}
