//! YAML 1.2 (core schema) into the document model.
//!
//! Anchors, aliases, merge keys and unknown tags are refused. Keys that are written twice are let through by the parser
//! and reported here, because only here both places are known. What a plain scalar means is decided from its text:
//! `no`, `0644` and `1_000` are texts.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    Location, Spanned,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};

use super::{MAX_DEPTH, kdl::twice, null};
use crate::{
    diagnostic::{Code, Diagnostic, Lines, Span, codes},
    fleet::doc::{Arg, Entry, Form, Object, Parsed, Scalar, problem},
};

/// Anchors, aliases, merge keys and tags of one file that are told at once.
const AT_ONCE: usize = 20;

/// Parses `parsed.text`.
pub(super) fn parse(parsed: &mut Parsed) {
    let lines = Lines::new(&parsed.text);
    let mut reader = Reader { lines: &lines, problems: Vec::new() };
    match documents(lines.text()) {
        Ok(documents) => parsed.objects = documents.iter().filter_map(|document| reader.object(document)).collect(),
        Err(error) => {
            parsed.whole = false;
            reader.refused(error);
        }
    }
    // What has no kind may be anything.
    parsed.whole &= !reader.problems.iter().any(|found| found.code == codes::NO_IDENTITY);
    parsed.problems.append(&mut reader.problems);
}

fn documents(text: &str) -> Result<Vec<Spanned<Raw>>, serde_saphyr::Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        strict_booleans: true,
        no_schema: true,
        reject_unsupported_tags: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        merge_keys: MergeKeyPolicy::Error,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 10_000,
            max_nodes: 200_000,
            max_events: 800_000,
            max_total_scalar_bytes: 2 << 20,
        },
    }
}

/// A node of the parser, before its plain scalars are understood.
#[derive(Debug)]
enum Raw {
    Null,
    Bool(bool),
    Number,
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<Self>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(flag))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Raw::Map(members))
    }
}

struct Reader<'t> {
    lines: &'t Lines<'t>,
    problems: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn tell(&mut self, problem: Diagnostic) {
        if self.problems.len() < super::MOST_FINDINGS {
            self.problems.push(problem);
        }
    }

    /// The parser ends at the first thing that it refuses. What stands alone is taken out, and the rest is looked at too.
    fn refused(&mut self, mut error: serde_saphyr::Error) {
        let mut rest = self.lines.text().to_owned();
        for _ in 0..AT_ONCE {
            let diagnostic = self.syntax(&error);
            let (code, span) = (diagnostic.code, diagnostic.at().span);
            let alone = matches!(code, codes::YAML_ANCHOR | codes::YAML_MERGE | codes::TYPE_ANNOTATION);
            if !self.problems.is_empty() && !alone {
                return;
            }
            self.tell(diagnostic);
            let range = span.start as usize..span.end as usize;
            let Some(written) = rest.get(range.clone()).filter(|written| alone && written.len() > 1) else { return };
            let width = written.len();
            let instead = if written.starts_with(['&', '!']) { "" } else { "''" };
            rest.replace_range(range, &format!("{instead:width$}"));
            match documents(&rest) {
                Ok(_) => return,
                Err(next) => error = next,
            }
        }
    }

    fn syntax(&self, error: &serde_saphyr::Error) -> Diagnostic {
        let error = error.without_snippet();
        let place = error.location().unwrap_or(Location::UNKNOWN);
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        // The place is shown anyway.
        let first = first.rsplit_once(" at line ").map_or(first, |(before, _)| before).trim_end_matches('.').to_owned();
        let (code, message, help) = explain(error, &first);
        let span = self.point(place);
        let span = match code {
            codes::YAML_ANCHOR => self.property(span, &['&', '*']),
            codes::TYPE_ANNOTATION => self.property(span, &['!']),
            _ => span,
        };
        let mut diagnostic = problem(code, span, message);
        diagnostic.help = help;
        diagnostic
    }

    /// The anchor or tag of a node: the parser says where the node is, and it stands there or before it.
    fn property(&self, node: Span, marks: &[char]) -> Span {
        let text = self.lines.text();
        let start = node.start as usize;
        let (before, after) = (text.get(..start).unwrap_or(""), text.get(start..).unwrap_or(""));
        let begins = |word: &str| word.starts_with(marks);
        let ends = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '[' | ']' | '{' | '}');
        if begins(after) {
            let length = after.find(ends).unwrap_or(after.len());
            return self.lines.span(start, start + length);
        }
        let mut upto = before;
        for _ in 0..2 {
            upto = upto.trim_end();
            let begin = upto.rfind(ends).map_or(0, |index| index + 1);
            if begins(&upto[begin..]) {
                return self.lines.span(begin, upto.len());
            }
            upto = &upto[..begin];
        }
        node
    }

    fn point(&self, place: Location) -> Span {
        let start = place.span().byte_offset().and_then(|offset| usize::try_from(offset).ok());
        match start {
            Some(start) => {
                let length = place.span().byte_len().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
                self.trim(start, start + length.max(1))
            }
            None => self.by_line(place),
        }
    }

    fn by_line(&self, place: Location) -> Span {
        let line = usize::try_from(place.line()).unwrap_or(1).max(1) - 1;
        let column = usize::try_from(place.column()).unwrap_or(1).max(1) - 1;
        let text = self.lines.text();
        let begin: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let into: usize = text[begin..].chars().take(column).map(char::len_utf8).sum();
        self.lines.span(begin + into, begin + into + 1)
    }

    /// The range without white space and comments at its end.
    fn trim(&self, start: usize, end: usize) -> Span {
        let range = self.lines.text().get(start..end.min(self.lines.text().len())).unwrap_or("");
        self.lines.span(start, start + range.trim_end().len().max(usize::from(!range.is_empty())))
    }

    /// Where a value is, cut to its first line when it has several.
    fn span(&self, node: &Spanned<Raw>) -> Span {
        self.point(node.defined)
    }

    fn object(&mut self, document: &Spanned<Raw>) -> Option<Object> {
        let span = self.span(document);
        let members = match &document.value {
            Raw::Null => return None,
            Raw::Map(members) => members,
            other => {
                let message = format!("an object is a mapping with kind and name, not {}", describe(other));
                let list = matches!(other, Raw::List(_));
                let help = list.then(|| "a file has one object, or several that are parted by ---".to_owned());
                self.tell(problem(codes::NO_IDENTITY, span, message).maybe_help(help));
                return None;
            }
        };
        let mut fields = self.members(members);
        let mut take = |key: &str| {
            let index = fields.iter().position(|field| field.key == key && field.form == Form::Single)?;
            Some(fields.remove(index))
        };
        let (kind, name) = (take("kind"), take("name"));
        let written = members.iter().find(|(key, _)| matches!(&key.value, Raw::Text(key) if key == "name"));
        if let Some((_, value)) = written.filter(|(_, value)| matches!(value.value, Raw::List(_) | Raw::Map(_))) {
            let message = format!("the name of an object is a text, and this is {}", describe(&value.value));
            self.tell(problem(codes::NO_IDENTITY, self.span(value), message));
            return None;
        }
        let name = name.and_then(|entry| entry.args.into_iter().next());
        let Some(kind) = kind else {
            let at = members.first().map_or(span, |(key, _)| self.span(key));
            self.tell(
                problem(codes::NO_IDENTITY, at, "the document has no `kind`")
                    .help("an object in YAML begins with `kind: …` and `name: …`; a file for something else is listed under `ignore` in fleet.kdl"),
            );
            return None;
        };
        let arg = kind.args.into_iter().next()?;
        let Scalar::Text(word) = arg.value else {
            self.tell(problem(codes::NO_IDENTITY, arg.span, "`kind` is a word such as pool"));
            return None;
        };
        Some(Object { kind: (word, arg.span), name, fields, span: arg.span })
    }

    fn members(&mut self, members: &[(Spanned<Raw>, Spanned<Raw>)]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut places: std::collections::HashMap<String, Span> = std::collections::HashMap::new();
        for (key, value) in members {
            let span = self.span(key);
            let Raw::Text(name) = &key.value else {
                let mut diagnostic =
                    problem(codes::KEY_NOT_TEXT, span, format!("a key is a text, not {}", describe(&key.value)));
                if matches!(key.value, Raw::Bool(_) | Raw::Number) {
                    diagnostic = diagnostic.help(format!("quote it: \"{}\"", self.raw(span)));
                }
                self.tell(diagnostic);
                continue;
            };
            if let Some(first) = places.get(name) {
                self.tell(twice(name, *first, span));
                continue;
            }
            places.insert(name.clone(), span);
            self.member(name, span, value, &mut entries);
        }
        entries
    }

    fn member(&mut self, key: &str, span: Span, value: &Spanned<Raw>, entries: &mut Vec<Entry>) {
        let blank = |form| Entry { key: key.to_owned(), span, args: Vec::new(), fields: Vec::new(), form };
        match &value.value {
            Raw::Null => {
                let at = self.span(value);
                let at = if self.raw(at).trim().is_empty() { span } else { at };
                self.tell(null(at));
            }
            Raw::Map(members) => {
                let fields = self.members(members);
                entries.push(Entry { fields, ..blank(Form::Map) });
            }
            Raw::List(items) if items.iter().any(|item| matches!(item.value, Raw::Map(_))) => {
                for item in items {
                    let Raw::Map(members) = &item.value else {
                        let message = format!("every item of this list is a mapping, not {}", describe(&item.value));
                        self.tell(problem(codes::WRONG_TYPE, self.span(item), message));
                        continue;
                    };
                    let fields = self.members(members);
                    let at = self.span(item);
                    entries.push(Entry { fields, span: at, ..blank(Form::Item { key: span }) });
                }
            }
            Raw::List(items) => {
                let args = items.iter().filter_map(|item| self.arg(item)).collect();
                entries.push(Entry { args, ..blank(Form::List) });
            }
            Raw::Bool(_) | Raw::Number | Raw::Text(_) => {
                let args = self.arg(value).into_iter().collect();
                entries.push(Entry { args, ..blank(Form::Single) });
            }
        }
    }

    fn arg(&mut self, node: &Spanned<Raw>) -> Option<Arg> {
        let span = self.span(node);
        let value = match &node.value {
            Raw::Bool(flag) => Scalar::Bool(*flag),
            Raw::Text(text) => Scalar::Text(text.clone()),
            Raw::Number => number(self.raw(span)),
            Raw::Null => {
                self.tell(null(span));
                return None;
            }
            Raw::List(_) | Raw::Map(_) => {
                let message = format!("a list holds values, not {}", describe(&node.value));
                self.tell(problem(codes::WRONG_TYPE, span, message));
                return None;
            }
        };
        Some(Arg { value, span })
    }

    fn raw(&self, span: Span) -> &str {
        self.lines.text().get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// What a plain number is in the core schema.
fn number(raw: &str) -> Scalar {
    let parsed = if let Some(digits) = raw.strip_prefix("0x") {
        i128::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = raw.strip_prefix("0o") {
        i128::from_str_radix(digits, 8).ok()
    } else {
        raw.parse().ok()
    };
    parsed.map_or(Scalar::Float, Scalar::Int)
}

const fn describe(raw: &Raw) -> &'static str {
    match raw {
        Raw::Null => "null",
        Raw::Bool(_) => "a boolean",
        Raw::Number => "a number",
        Raw::Text(_) => "a text",
        Raw::List(_) => "a list",
        Raw::Map(_) => "a mapping",
    }
}

fn explain(error: &serde_saphyr::Error, text: &str) -> (Code, String, Option<String>) {
    use serde_saphyr::{Error, budget::BudgetBreach};
    match error {
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } | BudgetBreach::AliasAnchorRatio { .. } => (
                codes::YAML_ANCHOR,
                "anchors and aliases are not read".to_owned(),
                Some("write the value out, or put what objects share into a profile; a text that begins with & or * is quoted".to_owned()),
            ),
            BudgetBreach::Depth { .. } => {
                (codes::TOO_DEEP, format!("the document is nested too deeply: at most {MAX_DEPTH} levels"), None)
            }
            BudgetBreach::MergeKeys { .. } => merge(),
            _ => (codes::TOO_MANY, format!("the file holds too much: {text}"), None),
        },
        Error::UnknownAnchor { .. } => {
            (codes::YAML_ANCHOR, "anchors and aliases are not read".to_owned(), Some("a text that begins with * is quoted".to_owned()))
        }
        Error::MergeKeyNotAllowed { .. } => merge(),
        _ if text.contains("nesting") || text.contains("recursion") => {
            (codes::TOO_DEEP, format!("the document is nested too deeply: at most {MAX_DEPTH} levels"), None)
        }
        _ if text.contains("tag") => {
            (codes::TYPE_ANNOTATION, format!("not valid here: {text}"), Some("delete the tag; a text that begins with ! is quoted".to_owned()))
        }
        _ => (codes::YAML_SYNTAX, format!("not valid YAML: {text}"), hint(text)),
    }
}

fn merge() -> (Code, String, Option<String>) {
    let help = "write the keys out, or put what objects share into a profile and use `extends`";
    (codes::YAML_MERGE, "the merge key `<<` is not read".to_owned(), Some(help.to_owned()))
}

/// What a mistake of the syntax usually is.
fn hint(text: &str) -> Option<String> {
    let usual = [
        ("tab", "indent with spaces; YAML does not allow tabs there"),
        ("mapping values are not allowed", "a text that has `: ` is quoted; a key begins a line of its own"),
        ("could not find expected ':'", "a key is followed by a colon and a space: key: value"),
        ("did not find expected key", "the keys of one mapping begin in one column"),
        ("did not find expected '-'", "the items of one list begin in one column, each with `- `"),
        ("unexpected end of stream", "a quote, a bracket or a brace is not closed"),
        ("did not find expected ',' or", "a bracket or a brace is not closed, or a comma is missing in it"),
    ];
    usual.iter().find(|(said, _)| text.contains(said)).map(|(_, help)| (*help).to_owned())
}
