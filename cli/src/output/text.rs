//! Words: what came over the wire made harmless for a terminal, singular and plural, colours.

/// A text on one line without characters that could steer a terminal. What a node or a commit says ends up here.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if schema::letter::hidden(c) || c == '\n' || c == '\t' { ' ' } else { c }).collect()
}

/// The same, keeping the line breaks.
#[must_use]
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|c| if schema::letter::hidden(c) { ' ' } else { c }).collect()
}

/// A sentence in lines of at most `width` characters. A word that is longer is broken.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let pieces = words(text).flat_map(|word| {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(width).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>()
    });
    fill(pieces, width)
}

/// The same, every word left whole: what people copy or compare is theirs in one piece, however narrow the terminal is.
#[must_use]
pub fn wrap_whole(text: &str, width: usize) -> Vec<String> {
    fill(words(text).map(str::to_owned), width)
}

/// Lines as they are, where they fit; the others broken between words, what goes on a step further to the right.
#[must_use]
pub fn fitted(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let line = |line: &str| {
        if line.chars().count() <= width {
            return line.to_owned();
        }
        let indent = " ".repeat(line.chars().take_while(|letter| *letter == ' ').count());
        let lines = wrap_whole(line, width.saturating_sub(indent.len() + 2));
        format!("{indent}{}", lines.join(&format!("\n{indent}  ")))
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// How long the longest word is.
#[must_use]
pub fn longest_word(text: &str) -> usize {
    words(text).map(|word| word.chars().count()).max().unwrap_or(0)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

fn fill(words: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    for word in words {
        let long = word.chars().count();
        match lines.last_mut() {
            Some(line) if used + 1 + long <= width => {
                line.push(' ');
                line.push_str(&word);
                used += 1 + long;
            }
            _ => {
                lines.push(word);
                used = long;
            }
        }
    }
    lines
}

/// `1 node`, `3 nodes`.
#[must_use]
pub fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The look of a word on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// As it is.
    #[default]
    Plain,
    /// A heading.
    Bold,
    /// Less important.
    Dim,
    /// As it should be.
    Good,
    /// On its way, or worth a look.
    Attention,
    /// Wrong.
    Bad,
}

impl Style {
    /// The text in this look, when colours are wanted.
    #[must_use]
    pub fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Attention => "33",
            Self::Bad => "31",
        };
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_cannot_steer_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}c\nd"), "a [2Jb c d");
    }

    #[test]
    fn lines_break_between_words_and_within_one_that_is_too_long() {
        assert_eq!(wrap("one two  three fourfivesix 7", 8), ["one two", "three", "fourfive", "six 7"]);
        assert_eq!(wrap("  ", 8), Vec::<String>::new());
        assert_eq!(wrap_whole("one two  three fourfivesix 7", 8), ["one two", "three", "fourfivesix", "7"]);
    }

    #[test]
    fn a_line_that_fits_stays_as_it_is_and_one_that_does_not_goes_on_below() {
        let text = "a  b\n  one two three four";
        assert_eq!(fitted(text, None), text);
        assert_eq!(fitted(text, Some(14)), "a  b\n  one two\n    three four");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!((count(1, "node"), count(0, "node")), ("1 node".to_owned(), "0 nodes".to_owned()));
    }
}
