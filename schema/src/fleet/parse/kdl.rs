//! KDL version 2 into the document model.

use std::collections::{HashMap, hash_map};

use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};

use super::guard::{self, Refused, What};
use crate::{
    diagnostic::{Diagnostic, Lines, Span, codes, shown},
    fleet::doc::{Arg, Entry, Form, Object, Parsed, Scalar, problem},
    object::Kind,
};

/// Parses `parsed.text`.
pub(super) fn parse(parsed: &mut Parsed) {
    let text = std::sync::Arc::clone(&parsed.text);
    let lines = Lines::new(&text);
    let mut reader = Reader { lines: &lines, problems: Vec::new(), whole: true };
    match guard::scan(lines.text()) {
        Err(refused) => {
            reader.refused(&refused);
            parsed.whole = false;
        }
        Ok(seen) => {
            // What recovers from an error may nest what a valid document does not: first without what is commented out.
            let plain =
                (seen.slashdashes.len() > guard::FEW_SLASHDASHES).then(|| uncommented(lines.text(), &seen.slashdashes));
            let tried = plain.map_or(Ok(()), |plain| KdlDocument::parse_v2(&plain).map(drop));
            match tried.and_then(|()| KdlDocument::parse_v2(lines.text())) {
                Ok(document) => {
                    parsed.objects = document.nodes().iter().filter_map(|node| reader.object(node)).collect();
                }
                Err(error) => reader.syntax(&error, seen.v1),
            }
            parsed.whole = reader.whole;
        }
    }
    parsed.problems.append(&mut reader.problems);
}

/// The text with blanks in place of each `/-`.
fn uncommented(text: &str, slashdashes: &[usize]) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut upto = 0;
    for at in slashdashes {
        plain.push_str(&text[upto..*at]);
        plain.push_str("  ");
        upto = at + 2;
    }
    plain + &text[upto..]
}

struct Reader<'t> {
    lines: &'t Lines<'t>,
    problems: Vec<Diagnostic>,
    whole: bool,
}

impl Reader<'_> {
    fn tell(&mut self, problem: Diagnostic) {
        if self.problems.len() < super::MOST_FINDINGS {
            self.problems.push(problem);
        }
    }

    fn refused(&mut self, refused: &Refused) {
        let span = self.lines.span(refused.at, refused.at + 1);
        let diagnostic = match refused.what {
            What::Deep(what) => {
                let message = format!(
                    "{what} are nested too deeply: at most {} levels of blocks, and few of /-",
                    super::MAX_DEPTH
                );
                problem(codes::TOO_DEEP, span, message).label("the limit is passed here")
            }
            What::Open(what) => {
                let help = if what == "text" {
                    "close it with the quotes that opened it; a text of several lines begins with \"\"\""
                } else {
                    "close it with */"
                };
                problem(codes::KDL_SYNTAX, span, format!("not valid KDL: a {what} is not closed"))
                    .label("opened here")
                    .help(help)
            }
            What::Many => problem(codes::TOO_MANY, span, "the file has more than 20000 blocks")
                .help("spread the objects over several files"),
            What::Words(most) => {
                let of = if most == guard::MAX_WORDS { "file" } else { "line" };
                problem(codes::TOO_MANY, span, format!("the {of} has more than {most} words and values"))
                    .label("this is one more")
                    .help("spread the objects over several files")
            }
            What::Close => {
                problem(codes::KDL_SYNTAX, span, "not valid KDL: this } closes nothing").label("no block is open here")
            }
        };
        self.tell(diagnostic);
    }

    fn syntax(&mut self, error: &kdl::KdlError, v1: Option<(usize, usize)>) {
        self.whole = false;
        if let Some((start, end)) = v1 {
            let word = &self.lines.text()[start..end];
            let (message, help) = if word == "r" {
                (
                    "raw strings of KDL version 1 are not read".to_owned(),
                    "version 2 writes a raw string as #\"…\"#".to_owned(),
                )
            } else {
                (
                    format!("a bare `{word}` belongs to KDL version 1"),
                    format!("version 2 writes #{word}; a text is quoted: \"{word}\""),
                )
            };
            self.tell(
                problem(codes::KDL_V1, self.lines.span(start, end), message)
                    .label("written in KDL version 1")
                    .help(help),
            );
            return;
        }
        if self.misplaced(error) {
            return;
        }
        // A block that is left open yields several findings; the innermost one says it.
        let open = error
            .diagnostics
            .iter()
            .filter(|found| found.message.as_deref().is_some_and(|text| text.starts_with("No closing '}'")));
        if let Some(found) = open.max_by_key(|found| found.span.offset()) {
            let span = self.lines.span(found.span.offset(), found.span.offset() + 1);
            self.tell(
                problem(codes::KDL_SYNTAX, span, "not valid KDL: a block is not closed")
                    .label("opened here")
                    .help("write the missing }"),
            );
            return;
        }
        for found in error.diagnostics.iter().take(super::MOST_FINDINGS) {
            let span = self.trim(found.span.offset(), found.span.offset() + found.span.len());
            let message = match found.message.as_deref().map(|text| text.trim_end_matches('.')) {
                Some(text) if !text.is_empty() => format!("not valid KDL: {}", lower(text)),
                Some(_) | None => "not valid KDL".to_owned(),
            };
            let mut diagnostic = problem(codes::KDL_SYNTAX, span, message);
            diagnostic.label = found.label.clone();
            diagnostic.help = found.help.clone();
            let written = self.lines.text().get(span.start as usize..span.end as usize).unwrap_or("");
            let first = written.chars().next();
            match found.message.as_deref().unwrap_or_default() {
                _ if first.is_some_and(|first| first.is_ascii_digit()) => {
                    diagnostic.message = format!("not valid KDL: `{}` is not a number", shown(written));
                    diagnostic.label = None;
                    diagnostic.help = Some(format!("a word that begins with a digit is quoted: \"{written}\""));
                }
                // All that follows is read as something that it is not.
                text if text.starts_with("matching multiline") => {
                    diagnostic.message = "not valid KDL: a line of this text is indented less than its end".to_owned();
                    diagnostic.label = Some("opened here".to_owned());
                    diagnostic.help = Some(
                        "every line begins with the white space that the closing \"\"\" has in front of it".to_owned(),
                    );
                    self.tell(diagnostic);
                    return;
                }
                text if text.starts_with("Found invalid node name") => {
                    diagnostic.message =
                        format!("not valid KDL: a key is expected here, and not `{}`", first.unwrap_or(' '));
                    diagnostic.label = Some("not a key".to_owned());
                    diagnostic.help = None;
                }
                text if text.starts_with("Expected property value") => {
                    diagnostic.message = "not valid KDL: a value is expected after `=`".to_owned();
                    diagnostic.label = None;
                    diagnostic.help = Some("write key=\"value\"; several values are: key \"one\" \"two\"".to_owned());
                }
                text if text.starts_with("Expected quoted string") && first == Some('"') => {
                    let comma = written.ends_with(',');
                    diagnostic.message = "not valid KDL: something stands at the end of this text".to_owned();
                    diagnostic.label = None;
                    diagnostic.help = Some(
                        if comma { "KDL has no commas: delete it" } else { "put a space behind the text" }.to_owned(),
                    );
                }
                text if text.starts_with("invalid contents inside type annotation") => {
                    diagnostic.message = "not valid KDL: `(` begins a type annotation, which nothing takes".to_owned();
                    diagnostic.label = None;
                    diagnostic.help = Some("quote a text that has parentheses".to_owned());
                }
                _ => {}
            }
            if let Some(escape) = unknown_escape(written) {
                diagnostic.message = format!("not valid KDL: {escape} is no escape");
                diagnostic.label = None;
                diagnostic.help = Some("a backslash is written \\\\; in a raw text, #\"…\"#, it is itself".to_owned());
            }
            self.tell(diagnostic);
        }
        if error.diagnostics.is_empty() {
            self.tell(problem(codes::KDL_SYNTAX, Span::START, "not valid KDL"));
        }
    }

    /// Something that stands where nothing can. What is around it is read as open blocks and ends of documents.
    fn misplaced(&mut self, error: &kdl::KdlError) -> bool {
        let places = error
            .diagnostics
            .iter()
            .filter(|found| found.message.as_deref().is_some_and(|text| text.starts_with("Expected end of document")));
        let Some(at) = places.map(|found| found.span.offset()).min() else { return false };
        let span = self.trim(at, at + 1);
        let Some(letter) = self.lines.text().get(at..).and_then(|rest| rest.chars().next()) else { return false };
        let span = if letter.is_whitespace() { span } else { self.lines.span(at, at + letter.len_utf8()) };
        let diagnostic = problem(codes::KDL_SYNTAX, span, format!("not valid KDL: `{letter}` cannot stand here"));
        self.tell(match letter {
            '=' => diagnostic.help("a key that begins a line has its value after a space: key \"value\""),
            _ => diagnostic,
        });
        true
    }

    /// The range without white space at its ends.
    fn trim(&self, start: usize, end: usize) -> Span {
        let text = self.lines.text();
        let end = end.min(text.len());
        match text.get(start..end) {
            Some(range) if !range.trim().is_empty() => {
                let lead = range.len() - range.trim_start().len();
                self.lines.span(start + lead, start + lead + range.trim().len())
            }
            _ => self.lines.span(start, end),
        }
    }

    fn annotation(&mut self, present: bool, span: Span) {
        if present {
            let message = "type annotations have no meaning in a fleet file";
            self.tell(problem(codes::TYPE_ANNOTATION, span, message).help("delete the part in parentheses"));
        }
    }

    fn object(&mut self, node: &KdlNode) -> Option<Object> {
        let entry = self.node(node)?;
        let mut args = entry.args.into_iter();
        let name = args.next();
        // What is said of a first value of `moved` is said of all.
        if let Some(extra) = args.next().filter(|_| entry.key != Kind::Moved.as_str()) {
            let message = "an object has one name, then its keys";
            self.tell(
                problem(codes::WRONG_TYPE, extra.span, message)
                    .label("a second value")
                    .help("write key=value, or put keys in a block: { key \"value\" }"),
            );
        }
        Some(Object { kind: (entry.key, entry.span), name, fields: entry.fields, span: entry.span })
    }

    fn node(&mut self, node: &KdlNode) -> Option<Entry> {
        let name = node.name();
        let span = self.trim(name.span().offset(), name.span().offset() + name.span().len());
        self.annotation(node.ty().is_some(), span);
        let mut entry =
            Entry { key: name.value().to_owned(), span, args: Vec::new(), fields: Vec::new(), form: Form::Node };
        let mut places: HashMap<&str, Span> = HashMap::new();
        for item in node.entries() {
            let Some(arg) = self.arg(item) else { continue };
            let Some(key) = item.name() else {
                entry.args.push(arg);
                continue;
            };
            let span = self.trim(key.span().offset(), key.span().offset() + key.span().len());
            let field =
                Entry { key: key.value().to_owned(), span, args: vec![arg], fields: Vec::new(), form: Form::Single };
            match places.entry(key.value()) {
                hash_map::Entry::Occupied(first) => self.tell(twice(&field.key, *first.get(), span)),
                hash_map::Entry::Vacant(place) => {
                    place.insert(span);
                    entry.fields.push(field);
                }
            }
        }
        if let Some(children) = node.children() {
            entry.fields.extend(children.nodes().iter().filter_map(|child| self.node(child)));
        }
        Some(entry)
    }

    fn arg(&mut self, entry: &KdlEntry) -> Option<Arg> {
        let (start, length) = (entry.span().offset(), entry.span().len());
        let whole = self.trim(start, start + length);
        let text = self.lines.text().get(whole.start as usize..whole.end as usize).unwrap_or("");
        let repr = entry.format().map_or("", |format| format.value_repr.as_str());
        // The span of a property covers its key; the value's text is its end.
        let span = match text.rfind(repr) {
            Some(index) if !repr.is_empty() => {
                let start = whole.start as usize + index;
                self.lines.span(start, start + repr.len())
            }
            _ => whole,
        };
        self.annotation(entry.ty().is_some(), span);
        let value = match entry.value() {
            KdlValue::String(text) if repr == text && (text.starts_with(',') || text.ends_with(',')) => {
                let help = "KDL has no commas: delete it, or quote a text that has one";
                self.tell(
                    problem(codes::KDL_SYNTAX, span, "a comma belongs to this value").label("a comma").help(help),
                );
                let meant = text.trim_matches(',');
                meant.parse().map_or_else(|_| Scalar::Text(meant.to_owned()), Scalar::Int)
            }
            KdlValue::String(text) => Scalar::Text(text.clone()),
            KdlValue::Integer(number) => Scalar::Int(*number),
            KdlValue::Float(_) => Scalar::Float,
            KdlValue::Bool(flag) => Scalar::Bool(*flag),
            KdlValue::Null => {
                self.tell(super::null(span));
                return None;
            }
        };
        Some(Arg { value, span })
    }
}

/// A backslash of a quoted text with a letter that it does not go with.
fn unknown_escape(written: &str) -> Option<String> {
    let mut letters = written.starts_with('"').then(|| written.chars())?;
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            continue;
        }
        let next = letters.next()?;
        if !matches!(next, 'n' | 'r' | 't' | '\\' | '"' | 'b' | 'f' | 's' | 'u') && !next.is_whitespace() {
            return Some(format!("\\{next}"));
        }
    }
    None
}

pub(super) fn twice(key: &str, first: Span, second: Span) -> Diagnostic {
    let mut diagnostic = problem(codes::DUPLICATE_KEY, second, format!("`{key}` is written twice")).label("the second");
    let mut at = diagnostic.at();
    at.span = first;
    diagnostic = diagnostic.also(&at, "the first");
    diagnostic
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
