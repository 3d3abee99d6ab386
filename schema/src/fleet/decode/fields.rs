//! [`Fields`]: the keys of one object or block.

mod blocks;

use std::{cell::RefCell, fmt::Display, str::FromStr};

use super::{Findings, NAME, value};
use crate::{
    diagnostic::{SourceRef, Span, codes, shown},
    fleet::{
        Located, Share,
        doc::{Arg, Entry, Form, Scalar},
        kind::form,
        reference::{Key, Takes},
        suggest::similar,
    },
    name::Name,
    object::{Kind, ObjectRef},
};

/// The keys of one object or block, being read.
pub(in crate::fleet) struct Fields<'o> {
    /// What the block is, for messages: `profile`, `hardware`.
    what: String,
    /// The object's or block's own place.
    span: Span,
    entries: &'o [Entry],
    known: Vec<&'static str>,
    /// Keys that are not there and have to be, with what to say.
    missing: Vec<(String, String)>,
    /// Whether a value without a key was reported: it may have been meant for any of them.
    stray: bool,
    /// What is asked for, when keys are recorded instead of read.
    sheet: Option<RefCell<Vec<Key>>>,
}

impl<'o> Fields<'o> {
    pub(in crate::fleet) fn new(what: impl Into<String>, span: Span, entries: &'o [Entry]) -> Self {
        Self { what: what.into(), span, entries, known: Vec::new(), missing: Vec::new(), stray: false, sheet: None }
    }

    /// Keys to be recorded: nothing is written, and what is asked for can be taken with [`Fields::asked`].
    pub(in crate::fleet) fn recording(what: &str, probes: &'o [Entry]) -> Self {
        Self { sheet: Some(RefCell::default()), ..Self::new(what, Span::START, probes) }
    }

    /// What was asked for.
    pub(in crate::fleet) fn asked(self) -> Vec<Key> {
        self.sheet.map(RefCell::into_inner).unwrap_or_default()
    }

    fn note(&self, key: &'static str, takes: impl FnOnce() -> Takes) {
        if let Some(sheet) = &self.sheet {
            let mut sheet = sheet.borrow_mut();
            if !sheet.iter().any(|asked| asked.key == key) {
                sheet.push(Key::new(key, takes()));
            }
        }
    }

    /// The keys that a block asks for.
    fn inner<T>(
        &self,
        key: &str,
        findings: &mut Findings<'_>,
        each: impl FnOnce(&mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Vec<Key>> {
        self.sheet.as_ref()?;
        let mut fields = Fields::recording(key, self.entries);
        each(&mut fields, findings);
        Some(fields.asked())
    }

    /// All entries of a key.
    pub(in crate::fleet) fn all(&mut self, key: &'static str) -> impl Iterator<Item = &'o Entry> + use<'o> {
        self.known.push(key);
        self.entries.iter().filter(move |entry| entry.key == key)
    }

    /// The same with a value that has no key, which was reported: what is not there may have been meant by it.
    pub(in crate::fleet) fn stray(mut self, stray: bool) -> Self {
        self.stray = stray;
        self
    }

    /// Whether something else that is reported may have been meant for a key that is not there. Asked after all keys were
    /// read.
    pub(in crate::fleet) fn unclear(&self) -> bool {
        self.stray || self.entries.iter().any(|entry| !self.known.contains(&entry.key.as_str()))
    }

    /// Whether a key is written, whatever its value.
    pub(in crate::fleet) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Whether a key that nobody asked for was probably meant to be this one.
    pub(in crate::fleet) fn misspelt(&self, key: &str) -> bool {
        let unknown = self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        unknown.into_iter().any(|entry| similar(&entry.key, self.known.iter().copied()) == Some(key))
    }

    /// Reports a key that is written and says nothing: who empties a list, or lets a program do so, means neither
    /// nothing nor everything by it. `empty` is what was decoded; a value that was wrong has been reported already.
    pub(in crate::fleet) fn filled(&self, key: &str, empty: bool, findings: &mut Findings<'_>) {
        if !empty || self.sheet.is_some() {
            return;
        }
        let mut written = self.entries.iter().filter(|entry| entry.key == key);
        let Some(first) = written.next() else { return };
        let bare = |entry: &Entry| entry.args.is_empty() && entry.fields.is_empty();
        let silent = bare(first) && written.all(bare);
        if silent || !findings.found.iter().any(crate::diagnostic::Diagnostic::is_error) {
            let diagnostic = findings
                .at(codes::BAD_VALUE, first.span, format!("`{key}` is written, and nothing is in it"))
                .label("empty")
                .help("say what is meant; a key that is not meant is left out");
            findings.push(diagnostic);
        }
    }

    /// The one entry of a key that may be written once.
    pub(in crate::fleet) fn one(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Option<&'o Entry> {
        let mut entries = self.all(key);
        let first = entries.next()?;
        for second in entries {
            let at = findings.place(first.span);
            let diagnostic = findings
                .at(codes::DUPLICATE_KEY, second.span, format!("`{key}` is written twice"))
                .label("the second")
                .also(&at, "the first");
            findings.push(diagnostic);
        }
        Some(first)
    }

    fn scalar(&mut self, key: &'static str, expected: &str, findings: &mut Findings<'_>) -> Option<&'o Arg> {
        let entry = self.one(key, findings)?;
        lone(entry, expected, findings)
    }

    pub(in crate::fleet) fn text(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Option<Located<String>> {
        self.note(key, || Takes::Text);
        self.scalar(key, "a text", findings).and_then(|arg| value::text(arg, findings))
    }

    /// A text on one line.
    pub(in crate::fleet) fn line(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Option<Located<String>> {
        form::keep(self.text(key, findings), "a text on one line", form::line, findings)
    }

    /// A text on one line that has to be there.
    pub(in crate::fleet) fn required_line(
        &mut self,
        key: &'static str,
        findings: &mut Findings<'_>,
    ) -> Option<Located<String>> {
        let line = self.line(key, findings);
        self.require(key, line)
    }

    pub(in crate::fleet) fn name(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Option<Located<Name>> {
        self.note(key, || Takes::Name);
        self.scalar(key, "a name", findings).and_then(|arg| value::name(arg, findings))
    }

    /// The name of another object, which is there.
    pub(in crate::fleet) fn refer(
        &mut self,
        key: &'static str,
        kind: Kind,
        findings: &mut Findings<'_>,
    ) -> Option<Located<Name>> {
        self.note(key, || Takes::Reference(kind));
        let name = self.name(key, findings)?;
        findings.refer(kind, &name);
        Some(name)
    }

    /// The names of others, which are there.
    pub(in crate::fleet) fn refer_all(
        &mut self,
        key: &'static str,
        kind: Kind,
        findings: &mut Findings<'_>,
    ) -> Vec<Located<Name>> {
        self.note(key, || Takes::List(Box::new(Takes::Reference(kind))));
        let names = self.names(key, findings);
        names.iter().for_each(|name| findings.refer(kind, name));
        names
    }

    pub(in crate::fleet) fn parse<T: FromStr>(
        &mut self,
        key: &'static str,
        expected: &str,
        findings: &mut Findings<'_>,
    ) -> Option<Located<T>> {
        self.note(key, || Takes::Form(expected.to_owned()));
        self.scalar(key, expected, findings).and_then(|arg| value::parse(arg, expected, findings))
    }

    pub(in crate::fleet) fn word<T: FromStr + Copy>(
        &mut self,
        key: &'static str,
        words: &[&str],
        findings: &mut Findings<'_>,
    ) -> Option<Located<T>> {
        self.note(key, || Takes::words(words));
        self.scalar(key, "a word", findings).and_then(|arg| value::word(arg, words, findings))
    }

    pub(in crate::fleet) fn boolean(
        &mut self,
        key: &'static str,
        findings: &mut Findings<'_>,
    ) -> Option<Located<bool>> {
        self.note(key, || Takes::Boolean);
        let entry = self.one(key, findings)?;
        // A KDL node without anything after it is a flag: `rollout "x" { immediate }`.
        if entry.form == Form::Node && entry.args.is_empty() && entry.fields.is_empty() {
            return Some(findings.located(true, entry.span));
        }
        lone(entry, "a boolean", findings).and_then(|arg| value::boolean(arg, findings))
    }

    pub(in crate::fleet) fn integer<T>(
        &mut self,
        key: &'static str,
        bounds: (T, T),
        findings: &mut Findings<'_>,
    ) -> Option<Located<T>>
    where
        T: TryFrom<i128> + Into<i128> + Display + Copy,
    {
        self.note(key, || Takes::Integer(bounds.0.into(), bounds.1.into()));
        self.scalar(key, "a whole number", findings).and_then(|arg| value::integer(arg, bounds, findings))
    }

    /// A whole number that is the value of a free key.
    pub(in crate::fleet) fn integer_of<T>(
        entry: &Entry,
        bounds: (T, T),
        findings: &mut Findings<'_>,
    ) -> Option<Located<T>>
    where
        T: TryFrom<i128> + Into<i128> + Display + Copy,
    {
        lone(entry, "a whole number", findings).and_then(|arg| value::integer(arg, bounds, findings))
    }

    /// A share: `5%`, or the number 5 under a key that says percent.
    pub(in crate::fleet) fn share(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Option<Located<Share>> {
        self.note(key, || Takes::Share);
        let arg = self.scalar(key, "a share such as 5%", findings)?;
        if matches!(arg.value, Scalar::Int(_)) {
            let percent = value::integer(arg, (0_u8, 100), findings)?;
            return Share::percent(percent.value).map(|share| findings.located(share, arg.span));
        }
        value::parse(arg, "a share such as 5%", findings)
    }

    /// A whole number or a share, kept as its text.
    pub(in crate::fleet) fn count_or_share(
        &mut self,
        key: &'static str,
        findings: &mut Findings<'_>,
    ) -> Option<Located<String>> {
        self.note(key, || Takes::CountOrShare);
        let arg = self.scalar(key, "a number or a share such as 5%", findings)?;
        if matches!(arg.value, Scalar::Int(_)) {
            return value::integer(arg, (0_u32, u32::MAX), findings)
                .map(|number| number.map(|number| number.to_string()));
        }
        // A stored document holds the number as a text.
        if matches!(&arg.value, Scalar::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u32>().is_ok())
        {
            return value::text(arg, findings);
        }
        value::parse::<Share>(arg, "a number or a share such as 5%", findings)
            .map(|share| share.map(|share| share.to_string()))
    }

    /// One of a few words, kept as its text.
    pub(in crate::fleet) fn choice(
        &mut self,
        key: &'static str,
        words: &[&str],
        findings: &mut Findings<'_>,
    ) -> Option<Located<String>> {
        self.note(key, || Takes::words(words));
        let arg = self.scalar(key, "a word", findings)?;
        value::choice(arg, words, findings)
    }

    /// The block's own place.
    pub(in crate::fleet) fn place(&self, findings: &Findings<'_>) -> SourceRef {
        findings.place(self.span)
    }

    /// The values of a list: arguments of one or several KDL nodes, or one YAML list.
    pub(in crate::fleet) fn args(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Vec<&'o Arg> {
        let mut args = Vec::new();
        for entry in self.all(key) {
            let mapping = matches!(entry.form, Form::Map | Form::Item { .. });
            if let Some(span) = entry.fields.first().map(|field| field.span).or(mapping.then_some(entry.span)) {
                let diagnostic = findings.at(
                    codes::WRONG_TYPE,
                    span,
                    format!("`{key}` is a list of values without keys of their own"),
                );
                findings.push(diagnostic);
            }
            args.extend(&entry.args);
        }
        args
    }

    pub(in crate::fleet) fn texts(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Vec<Located<String>> {
        self.note(key, || Takes::List(Box::new(Takes::Text)));
        self.args(key, findings).into_iter().filter_map(|arg| value::text(arg, findings)).collect()
    }

    /// Texts on one line each.
    pub(in crate::fleet) fn lines(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Vec<Located<String>> {
        let texts = self.texts(key, findings).into_iter();
        texts.filter_map(|text| form::keep(Some(text), "a text on one line", form::line, findings)).collect()
    }

    pub(in crate::fleet) fn names(&mut self, key: &'static str, findings: &mut Findings<'_>) -> Vec<Located<Name>> {
        self.note(key, || Takes::List(Box::new(Takes::Name)));
        self.args(key, findings).into_iter().filter_map(|arg| value::name(arg, findings)).collect()
    }

    /// An object's address, `pool/h100`, of one of some kinds.
    pub(in crate::fleet) fn address(
        &mut self,
        key: &'static str,
        kinds: &[Kind],
        findings: &mut Findings<'_>,
    ) -> Option<Located<ObjectRef>> {
        self.note(key, || Takes::Address(kinds.to_vec()));
        let arg = self.scalar(key, "an address such as pool/h100", findings)?;
        value::address(arg, kinds, findings)
    }

    /// Several addresses.
    pub(in crate::fleet) fn addresses(
        &mut self,
        key: &'static str,
        kinds: &[Kind],
        findings: &mut Findings<'_>,
    ) -> Vec<Located<ObjectRef>> {
        self.note(key, || Takes::List(Box::new(Takes::Address(kinds.to_vec()))));
        self.args(key, findings).into_iter().filter_map(|arg| value::address(arg, kinds, findings)).collect()
    }

    pub(in crate::fleet) fn words<T: FromStr + Copy>(
        &mut self,
        key: &'static str,
        words: &[&str],
        findings: &mut Findings<'_>,
    ) -> Vec<Located<T>> {
        self.note(key, || Takes::List(Box::new(Takes::words(words))));
        self.args(key, findings).into_iter().filter_map(|arg| value::word(arg, words, findings)).collect()
    }

    /// Reports a key that a later version reads.
    pub(in crate::fleet) fn later(&mut self, key: &'static str, why: &str, findings: &mut Findings<'_>) {
        self.note(key, || Takes::Later);
        for entry in self.all(key) {
            let diagnostic =
                findings.at(codes::LATER_KEY, entry.span, format!("this version does not carry `{key}`: {why}"));
            findings.push(diagnostic);
        }
    }

    /// Insists on a key. A value that was wrong has been reported and is not missed a second time.
    pub(in crate::fleet) fn require<T>(&mut self, key: &str, value: Option<T>) -> Option<T> {
        if let Some(sheet) = &self.sheet {
            sheet.borrow_mut().iter_mut().filter(|asked| asked.key == key).for_each(|asked| asked.required = true);
        }
        self.miss(key, &format!("`{key}`"), value.is_none());
        value
    }

    fn miss(&mut self, key: &str, what: &str, missing: bool) {
        if missing && !self.has(key) {
            self.missing.push((key.to_owned(), format!("{} needs {what}", self.what)));
        }
    }

    /// Reports a key that is missing where another could stand for it.
    pub(in crate::fleet) fn require_either<T>(&mut self, key: &str, or: &[&str], value: Option<T>) {
        if let Some(sheet) = &self.sheet {
            let mut sheet = sheet.borrow_mut();
            sheet.iter_mut().filter(|asked| asked.key == key).for_each(|asked| {
                asked.or = or.iter().map(|or| (*or).to_owned()).collect();
            });
            return;
        }
        let all: Vec<String> = std::iter::once(&key).chain(or).map(|key| format!("`{key}`")).collect();
        self.miss(key, &all.join(" or "), value.is_none());
    }

    /// Reports every key that nobody asked for, and those that are not there. A key that was misspelt is not missed as
    /// well.
    pub(in crate::fleet) fn finish(&self, findings: &mut Findings<'_>) {
        for (key, message) in self.missing.iter().filter(|(key, _)| !self.stray && !self.misspelt(key)) {
            let unknown = self.entries.iter().map(|entry| entry.key.as_str());
            let near = similar(key, unknown.filter(|other| !self.known.contains(other)));
            let help = near.map(|near| format!("was `{near}` meant to be `{key}`?"));
            findings.push(findings.at(codes::MISSING_KEY, self.span, message.as_str()).maybe_help(help));
        }
        let mut told = None;
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            if findings.full() {
                return;
            }
            // The mappings of a list are under one key.
            let span = if let Form::Item { key } = entry.form { key } else { entry.span };
            if told.replace(span) == Some(span) {
                continue;
            }
            let shown = shown(&entry.key);
            // `name` is read before the others; when it is not there, what looks like it was meant to be it.
            let near = similar(&entry.key, self.known.iter().copied().chain([NAME]));
            let help = match near {
                Some(near) if entry.key.strip_suffix(':') == Some(near) => {
                    format!("KDL has no colon after a key: {near} \"…\"")
                }
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys are: {}", self.list()),
            };
            let diagnostic = findings
                .at(codes::UNKNOWN_KEY, span, format!("{} has no key `{shown}`", self.what))
                .label("unknown key")
                .help(help);
            findings.push(diagnostic);
        }
    }

    fn list(&self) -> String {
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        known.join(", ")
    }
}

/// The only argument of an entry that takes one value.
pub(in crate::fleet) fn lone<'o>(entry: &'o Entry, expected: &str, findings: &mut Findings<'_>) -> Option<&'o Arg> {
    let found = match (entry.form, entry.args.as_slice(), entry.fields.is_empty()) {
        (Form::Node | Form::Single, [arg], true) => return Some(arg),
        (Form::List, ..) => "a list",
        (_, [], true) => "no value",
        (_, _, false) => "a block with keys",
        (_, [_, second, ..], true) => {
            let diagnostic = findings
                .at(codes::WRONG_TYPE, second.span, format!("`{}` takes one value, {expected}", entry.key))
                .label("a second value");
            findings.push(diagnostic);
            return None;
        }
        (Form::Map | Form::Item { .. }, ..) => "a mapping",
    };
    let diagnostic =
        findings.at(codes::WRONG_TYPE, entry.span, format!("`{}` takes {expected}, and this is {found}", entry.key));
    findings.push(diagnostic);
    None
}
