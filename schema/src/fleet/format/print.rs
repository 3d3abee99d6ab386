//! Tokens in the canonical style.

use super::lex::{Piece, Token, ends_line};

/// Columns that a line takes before a block on it is opened.
const WIDTH: usize = 100;
const INDENT: usize = 2;

/// What matters of the tokens: blanks are gone, and lines end where they have to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item<'t> {
    /// The line ends.
    End,
    /// The line goes on in the next one, after a comment perhaps.
    Break(Option<&'t str>),
    LineComment(&'t str),
    Comment(&'t str),
    Slashdash,
    /// A word or text on one line.
    Value(&'t str),
    /// A text of several lines.
    Lines(&'t str),
    Mark(u8),
}

/// The text of tokens.
pub(super) fn print(pieces: &[Piece<'_>]) -> String {
    let mut printer = Printer { items: &items(pieces), at: 0, out: String::new(), depth: 0, inline: false };
    printer.nodes();
    printer.out
}

fn items<'t>(pieces: &[Piece<'t>]) -> Vec<Item<'t>> {
    let mut all: Vec<Item<'t>> = Vec::new();
    let mut pieces = pieces.iter();
    while let Some((token, written)) = pieces.next() {
        let item = match token {
            Token::Blank => continue,
            // What `/-` takes out may stand on a later line.
            Token::Newline if awaits(&all) => continue,
            Token::Newline => Item::End,
            Token::Continuation => {
                let mut comment = None;
                for (token, written) in pieces.by_ref() {
                    match token {
                        Token::Comment => all.push(Item::Comment(written)),
                        Token::LineComment => comment = Some(written.trim_end()),
                        Token::Newline => break,
                        _ => {}
                    }
                }
                Item::Break(comment)
            }
            Token::LineComment => Item::LineComment(written.trim_end()),
            Token::Comment => Item::Comment(written),
            Token::Slashdash => Item::Slashdash,
            Token::Quoted | Token::Word => Item::Value(written),
            Token::Lines => Item::Lines(written),
            Token::Mark(mark) => Item::Mark(*mark),
        };
        all.push(item);
    }
    breaks(&all)
}

/// Whether the last thing that was said is `/-`.
fn awaits(items: &[Item<'_>]) -> bool {
    let said =
        items.iter().rev().find(|item| !matches!(item, Item::Comment(_) | Item::LineComment(_) | Item::Break(_)));
    said == Some(&Item::Slashdash)
}

/// Keeps a line that goes on where the next one begins with a value; its comment stays in any case.
fn breaks<'t>(items: &[Item<'t>]) -> Vec<Item<'t>> {
    let mut kept: Vec<Item<'t>> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Item::Break(comment) = item else {
            kept.push(*item);
            continue;
        };
        let (last, next) = (kept.last().copied(), items[index + 1..].iter().find(|item| **item != Item::Break(None)));
        let starts = matches!(last, None | Some(Item::End | Item::Mark(b';' | b'{')));
        let glued = matches!(last, Some(Item::Mark(b'(' | b'=') | Item::Slashdash | Item::Break(_)));
        let ends = matches!(next, None | Some(Item::End | Item::Mark(b'}' | b';')));
        let goes_on = !ends && !matches!(next, Some(Item::Mark(b'{' | b'=' | b')') | Item::Break(_)));
        match comment {
            None if starts || glued || !goes_on => {}
            // Where no node has begun, the comment stands alone.
            Some(comment) if starts => kept.extend([Item::LineComment(comment), Item::End]),
            Some(comment) if ends || last == Some(Item::Slashdash) => kept.push(Item::LineComment(comment)),
            _ => kept.push(*item),
        }
    }
    kept
}

struct Printer<'i, 't> {
    items: &'i [Item<'t>],
    at: usize,
    out: String,
    depth: usize,
    /// Nodes are parted by `;`.
    inline: bool,
}

impl<'t> Printer<'_, 't> {
    fn item(&self) -> Option<Item<'t>> {
        self.items.get(self.at).copied()
    }

    /// Nodes up to the end of their block.
    fn nodes(&mut self) {
        let (mut ends, mut first) = (0, true);
        while let Some(item) = self.item() {
            match item {
                Item::End => {
                    ends += 1;
                    self.at += 1;
                }
                Item::Mark(b';') => self.at += 1,
                Item::Mark(b'}') => return,
                _ => {
                    if self.inline {
                        self.out.push_str(if first { "" } else { "; " });
                    } else {
                        self.out.push_str(if ends > 1 && !first { "\n" } else { "" });
                        self.indent(self.depth);
                    }
                    self.node();
                    if !self.inline {
                        self.out.push('\n');
                    }
                    (ends, first) = (0, false);
                }
            }
        }
    }

    /// A node, or comments that stand alone.
    fn node(&mut self) {
        // Whether a blank belongs before what comes next; whether anything but comments was said; whether `;` was.
        let (mut gap, mut said, mut ended) = (false, false, false);
        while let Some(item) = self.item() {
            match item {
                Item::End | Item::Mark(b'}') => return,
                Item::Mark(b';') => {
                    self.at += 1;
                    ended = said;
                    continue;
                }
                _ if ended && !self.trailing() => return,
                Item::Mark(b'{') => {
                    self.space(gap);
                    self.at += 1;
                    self.block();
                    (gap, said) = (true, true);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
            let glued = matches!(item, Item::Mark(b'=' | b')'));
            self.space(gap && !glued);
            said |= !matches!(item, Item::Comment(_) | Item::LineComment(_));
            gap = !matches!(item, Item::Mark(_) | Item::Break(_));
            match item {
                Item::Break(comment) => {
                    self.out.push_str(if self.out.ends_with(' ') { "\\" } else { " \\" });
                    if let Some(comment) = comment {
                        self.out.push(' ');
                        self.out.push_str(comment);
                    }
                    self.line();
                }
                Item::LineComment(comment) => {
                    self.out.push_str(comment);
                    // A comment ends its line, also where the node goes on.
                    match self.item() {
                        None | Some(Item::End | Item::Mark(b'}')) => {}
                        Some(Item::Mark(b';')) => return self.at += 1,
                        Some(_) => {
                            self.line();
                            gap = false;
                        }
                    }
                }
                Item::Comment(written) | Item::Value(written) => self.out.push_str(written),
                Item::Slashdash => self.out.push_str("/-"),
                Item::Lines(written) => self.out.push_str(&lines(written, INDENT * (self.depth + 1))),
                Item::Mark(mark) => self.out.push(char::from(mark)),
                Item::End => {}
            }
        }
    }

    /// A block whose `{` was read.
    fn block(&mut self) {
        let mut depth = 1_usize;
        let inner = self.items[self.at..].iter().take_while(|item| {
            depth = match item {
                Item::Mark(b'{') => depth + 1,
                Item::Mark(b'}') => depth - 1,
                _ => depth,
            };
            depth > 0
        });
        let inner = &self.items[self.at..self.at + inner.count()];
        if inner.iter().all(|item| matches!(item, Item::End | Item::Mark(b';'))) {
            self.at += inner.len() + 1;
            return self.out.push_str("{}");
        }
        if let Some(line) = self.on_one_line(inner) {
            self.at += inner.len() + 1;
            return self.out.push_str(&line);
        }
        self.out.push('{');
        while self.trailing() {
            if let Some(Item::Comment(comment) | Item::LineComment(comment)) = self.item() {
                self.out.push(' ');
                self.out.push_str(comment);
            }
            self.at += 1;
        }
        self.out.push('\n');
        let inline = std::mem::replace(&mut self.inline, false);
        self.depth += 1;
        self.nodes();
        self.depth -= 1;
        self.inline = inline;
        self.indent(self.depth);
        self.out.push('}');
        self.at += 1;
    }

    /// A block that was written on one line and still fits there.
    fn on_one_line(&self, inner: &[Item<'t>]) -> Option<String> {
        let tall = |item: &Item<'_>| match item {
            Item::End | Item::Break(_) | Item::LineComment(_) | Item::Lines(_) => true,
            Item::Comment(comment) => comment.contains(ends_line),
            Item::Slashdash | Item::Value(_) | Item::Mark(_) => false,
        };
        if inner.iter().any(tall) {
            return None;
        }
        let mut printer = Printer { items: inner, at: 0, out: String::new(), depth: self.depth, inline: true };
        printer.nodes();
        let line = format!("{{ {} }}", printer.out);
        let begin = self.out.rfind('\n').map_or(0, |index| index + 1);
        let columns = self.out[begin..].chars().count() + line.chars().count();
        (self.inline || columns <= WIDTH).then_some(line)
    }

    /// Whether only comments follow on this line, and at least one.
    fn trailing(&self) -> bool {
        let rest = &self.items[self.at..];
        let comments = rest.iter().take_while(|item| matches!(item, Item::Comment(_) | Item::LineComment(_))).count();
        comments > 0 && matches!(rest.get(comments), None | Some(Item::End))
    }

    fn space(&mut self, wanted: bool) {
        if wanted {
            self.out.push(' ');
        }
    }

    fn line(&mut self) {
        self.out.push('\n');
        self.indent(self.depth + 2);
    }

    fn indent(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n(' ', INDENT * depth));
    }
}

/// A text of several lines at another depth. It is kept as it is where its lines are not what they seem.
fn lines(written: &str, indent: usize) -> String {
    moved(written, indent).unwrap_or_else(|| written.to_owned())
}

fn moved(written: &str, indent: usize) -> Option<String> {
    let (open, rest) = written.split_once('\n')?;
    let (body, last) = rest.rsplit_once('\n').map_or(("", rest), |(body, last)| (body, last));
    let none = !rest.contains('\n');
    let old = &last[..last.find('"')?];
    let odd = |letter: char| ends_line(letter) && letter != '\n';
    if written.contains(odd) || !old.trim().is_empty() || (open.starts_with('"') && continues(body)) {
        return None;
    }
    let new = " ".repeat(indent);
    let mut out = format!("{open}\n");
    for line in body.split('\n').filter(|_| !none) {
        if !line.trim().is_empty() {
            out.push_str(&new);
            out.push_str(line.strip_prefix(old)?);
        }
        out.push('\n');
    }
    Some(out + &new + &last[old.len()..])
}

/// Whether a backslash takes out the white space behind it.
fn continues(body: &str) -> bool {
    let mut letters = body.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && letters.next().is_none_or(char::is_whitespace) {
            return true;
        }
    }
    false
}

/// What must be the same before and after: everything but blanks, line ends and the depth of texts.
pub(super) fn essence(pieces: &[Piece<'_>]) -> Vec<String> {
    let kept = pieces.iter().filter_map(|(token, written)| match token {
        Token::Blank | Token::Newline | Token::Continuation | Token::Mark(b';') => None,
        Token::LineComment => Some(written.trim_end().to_owned()),
        Token::Lines => Some(lines(written, 0)),
        Token::Comment | Token::Slashdash | Token::Quoted | Token::Word | Token::Mark(_) => Some((*written).to_owned()),
    });
    kept.collect()
}
