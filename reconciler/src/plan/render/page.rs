//! The page that every form of a plan shares: sections of lines. Text is made harmless when it is put on a line, so that
//! no form can forget it.

use super::quiet::quiet;

/// The look of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Ink {
    /// As it is.
    Plain,
    /// What comes.
    Good,
    /// What is worth a look.
    Attention,
    /// What goes, or is held.
    Bad,
    /// A heading.
    Bold,
    /// Less important.
    Dim,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::plan) struct Line {
    indent: usize,
    mark: Option<char>,
    spans: Vec<(Ink, String)>,
}

impl Line {
    /// An empty line.
    pub(in crate::plan) const fn new(indent: usize) -> Self {
        Self { indent, mark: None, spans: Vec::new() }
    }

    /// A line with a sign before its words: `+`, `-`, `~` or `!`.
    pub(in crate::plan) const fn marked(indent: usize, mark: char) -> Self {
        Self { indent, mark: Some(mark), spans: Vec::new() }
    }

    /// Adds words.
    pub(in crate::plan) fn with(mut self, ink: Ink, text: &str) -> Self {
        self.spans.push((ink, quiet(text)));
        self
    }

    /// Fills up to a column, or at least two spaces.
    pub(in crate::plan) fn column(mut self, column: usize) -> Self {
        let gap = column.saturating_sub(self.width()).max(2);
        self.spans.push((Ink::Plain, " ".repeat(gap)));
        self
    }

    /// How many columns the words take, without the indent.
    pub(in crate::plan) fn width(&self) -> usize {
        let words: usize = self.spans.iter().map(|(_, text)| text.chars().count()).sum();
        words + if self.mark.is_some() { 2 } else { 0 }
    }

    /// The line on a terminal.
    pub(in crate::plan) fn terminal(&self, colour: bool) -> String {
        let marked = self.mark.map(|mark| (ink_of(mark), format!("{mark} ")));
        let mut out = " ".repeat(self.indent);
        for (ink, text) in marked.iter().chain(&self.spans) {
            out.push_str(&paint(*ink, text, colour));
        }
        out.truncate(out.trim_end().len());
        out
    }

    /// The line in a block of Markdown that is coloured by its first character.
    pub(in crate::plan) fn diff(&self) -> String {
        let first = match self.mark {
            Some('~') => '!',
            Some(mark) => mark,
            None => ' ',
        };
        let words: String = self.spans.iter().map(|(_, text)| text.as_str()).collect();
        format!("{first} {:indent$}{words}", "", indent = self.indent.saturating_sub(2)).trim_end().to_owned()
    }
}

/// Lines under a title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::plan) struct Section {
    /// The title, free of foreign text.
    pub(in crate::plan) title: String,
    /// What stands there.
    pub(in crate::plan) lines: Vec<Line>,
}

/// A sentence in lines that fit, all but the first a step further to the right, every word whole.
pub(in crate::plan) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

const fn ink_of(mark: char) -> Ink {
    match mark {
        '+' => Ink::Good,
        '-' | '!' => Ink::Bad,
        '~' => Ink::Attention,
        _ => Ink::Plain,
    }
}

/// The text in a look, when colours are wanted.
pub(in crate::plan) fn paint(ink: Ink, text: &str, colour: bool) -> String {
    let code = match ink {
        Ink::Plain => return text.to_owned(),
        Ink::Good => 32,
        Ink::Attention => 33,
        Ink::Bad => 31,
        Ink::Bold => 1,
        Ink::Dim => 2,
    };
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}
