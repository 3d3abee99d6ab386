//! Keys that hold keys: tables, blocks, and things with a name each.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Fields, lone};
use crate::{
    diagnostic::{SourceRef, Span, codes},
    fleet::{
        Located,
        decode::{Findings, single, value},
        doc::{Arg, Entry, Form, Scalar},
        reference::Takes,
    },
};

impl<'o> Fields<'o> {
    /// A mapping of free keys to values: `sysctl { vm.swappiness 10 }`.
    pub(in crate::fleet) fn table<T>(
        &mut self,
        key: &'static str,
        findings: &mut Findings<'_>,
        mut each: impl FnMut(&'o Entry, &mut Findings<'_>) -> Option<Located<T>>,
    ) -> BTreeMap<String, Located<T>> {
        if self.sheet.is_some() {
            let takes = self.entries.iter().filter(|probe| each(probe, findings).is_some()).filter_map(Takes::of);
            let takes: BTreeSet<Takes> = takes.collect();
            self.note(key, || Takes::Table(takes.into_iter().collect()));
        }
        let mut table = BTreeMap::new();
        let Some(entry) = self.one(key, findings) else { return table };
        block(entry, findings);
        let mut places: BTreeMap<&str, Span> = BTreeMap::new();
        for field in &entry.fields {
            if let Some(first) = places.insert(&field.key, field.span) {
                let at = findings.place(first);
                let diagnostic = findings
                    .at(codes::DUPLICATE_KEY, field.span, format!("`{}` is written twice", field.key))
                    .label("the second")
                    .also(&at, "the first");
                findings.push(diagnostic);
                continue;
            }
            if let Some(value) = each(field, findings) {
                table.insert(field.key.clone(), value);
            }
        }
        table
    }

    /// A block with keys of its own: `hardware { … }`. An argument stands for the key `positional`.
    pub(in crate::fleet) fn record<T>(
        &mut self,
        key: &'static str,
        positional: Option<&'static str>,
        findings: &mut Findings<'_>,
        each: impl FnOnce(&mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Option<Located<T>> {
        if self.sheet.is_some() {
            let keys = self.inner(key, findings, each).unwrap_or_default();
            self.note(key, || Takes::Block { positional, keys });
            return None;
        }
        let entry = self.one(key, findings)?;
        one_mapping(key, entry, findings);
        record(key, entry, (entry.span, &entry.args), positional, findings, each)
    }

    /// Blocks in order: several KDL nodes, or a YAML list of mappings.
    pub(in crate::fleet) fn records<T>(
        &mut self,
        key: &'static str,
        findings: &mut Findings<'_>,
        mut each: impl FnMut(&mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> Vec<Located<T>> {
        if let Some(keys) = self.inner(key, findings, &mut each) {
            self.note(key, || Takes::Blocks { keys });
        }
        let mut records = Vec::new();
        for entry in self.all(key) {
            records.extend(record(key, entry, (entry.span, &entry.args), None, findings, &mut each));
        }
        records
    }

    /// Things with a name each: `file "/etc/motd" mode="0644"` as often as needed; in YAML a mapping by name, or a list
    /// of mappings that have `id`. A second argument, or a value in place of a mapping, stands for the key `short`.
    pub(in crate::fleet) fn named<T>(
        &mut self,
        key: &'static str,
        (id, short): (&'static str, Option<&'static str>),
        findings: &mut Findings<'_>,
        mut each: impl FnMut(&str, &mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
    ) -> BTreeMap<String, Located<T>> {
        if let Some(keys) = self.inner(key, findings, |fields, findings| each("probe", fields, findings)) {
            self.note(key, || Takes::Named { id, short, keys });
        }
        let mut things: BTreeMap<String, Located<T>> = BTreeMap::new();
        let mut places: BTreeMap<String, SourceRef> = BTreeMap::new();
        let mapped = |entry: &&Entry| {
            !entry.fields.is_empty() && (entry.form == Form::Map || (entry.form == Form::Node && entry.args.is_empty()))
        };
        let keys = if self.all(key).any(|entry| mapped(&entry)) { keys_of(findings, &mut each) } else { Vec::new() };
        let mut add = |name: String, span: Span, (entry, args): (&Entry, &[Arg]), findings: &mut Findings<'_>| {
            let at = findings.place(span);
            if let Some(first) = places.get(&name) {
                let diagnostic = findings
                    .at(codes::DUPLICATE_KEY, span, format!("{key} {name:?} is written twice"))
                    .label("the second")
                    .also(first, "the first");
                findings.push(diagnostic);
                return;
            }
            places.insert(name.clone(), at);
            let value = record(key, entry, (span, args), short, findings, |fields, findings| {
                fields.known.push(id);
                each(&name, fields, findings)
            });
            if let Some(value) = value {
                things.insert(name, value);
            }
        };
        for entry in self.all(key) {
            let own = entry.fields.iter().find(|field| field.key == id);
            if entry.form == Form::Node && !entry.args.is_empty() {
                if let Some(name) = value::text(&entry.args[0], findings) {
                    add(name.value, entry.args[0].span, (entry, &entry.args[1..]), findings);
                }
            } else if let Some(own) = own {
                let name = lone(own, "a text", findings).and_then(|arg| value::text(arg, findings));
                if let Some(name) = name {
                    add(name.value, name.at.span, (entry, &[]), findings);
                }
            } else if mapped(&entry)
                // A thing without a name is no thing of the name `cidr`.
                && !entry.fields.iter().any(|field| keys.contains(&field.key.as_str()))
            {
                for field in &entry.fields {
                    one_mapping(&field.key, field, findings);
                    add(field.key.clone(), field.span, (field, &field.args), findings);
                }
            } else {
                let name = entry.args.first().and_then(|arg| match &arg.value {
                    Scalar::Text(text) if text.len() < 60 => Some(text.as_str()),
                    _ => None,
                });
                let name = name.unwrap_or("NAME");
                let diagnostic = findings.at(codes::WRONG_TYPE, entry.span, format!("every {key} has a name")).help(
                    format!("in KDL: {key} {name:?} {{ … }}; in YAML: {key}: {{{name}: {{…}}}}, or a list of mappings that have `{id}`"),
                );
                findings.push(diagnostic);
            }
        }
        things
    }
}

/// The keys that a block has, learnt by reading an empty one.
fn keys_of<T>(
    findings: &Findings<'_>,
    each: &mut impl FnMut(&str, &mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
) -> Vec<&'static str> {
    let mut unheard = Vec::new();
    let mut fields = Fields::new("", Span::START, &[]);
    each("", &mut fields, &mut Findings::new(Arc::clone(&findings.file), findings.text, &mut unheard));
    fields.known
}

fn block(entry: &Entry, findings: &mut Findings<'_>) {
    one_mapping(&entry.key, entry, findings);
    no_list(&entry.key, entry, findings);
    if let Some(arg) = entry.args.first() {
        let diagnostic = findings
            .at(codes::WRONG_TYPE, arg.span, format!("`{}` takes keys with values, and this is a value", entry.key))
            .help(format!("in KDL: {} {{ key value }}; in YAML: {}: {{key: value}}", entry.key, entry.key));
        findings.push(diagnostic);
    }
}

/// Reports a YAML list of mappings where one belongs.
fn one_mapping(key: &str, entry: &Entry, findings: &mut Findings<'_>) {
    if matches!(entry.form, Form::Item { .. }) {
        let diagnostic = findings.at(codes::WRONG_TYPE, entry.span, format!("`{key}` is one mapping, not a list"));
        findings.push(diagnostic);
    }
}

/// Reports a YAML list of values where keys with values belong.
fn no_list(what: &str, entry: &Entry, findings: &mut Findings<'_>) {
    if entry.form == Form::List {
        let message = format!("`{what}` takes keys with values, and this is a list");
        let diagnostic = findings.at(codes::WRONG_TYPE, entry.span, message);
        findings.push(diagnostic);
    }
}

fn record<T>(
    what: &'static str,
    entry: &Entry,
    (span, args): (Span, &[Arg]),
    positional: Option<&'static str>,
    findings: &mut Findings<'_>,
    each: impl FnOnce(&mut Fields<'_>, &mut Findings<'_>) -> Option<T>,
) -> Option<Located<T>> {
    no_list(what, entry, findings);
    let mut own = Vec::new();
    let rest = match (positional, args) {
        (Some(key), [arg, rest @ ..]) => {
            own.push(single(key, arg));
            rest
        }
        _ => args,
    };
    if let Some(extra) = rest.first() {
        let diagnostic = findings
            .at(
                codes::WRONG_TYPE,
                extra.span,
                format!("`{what}` takes keys with values, and this is a value without a key"),
            )
            .help("write key=value, or put keys in a block: { key \"value\" }");
        findings.push(diagnostic);
    }
    own.extend(entry.fields.iter().cloned());
    let mut fields = Fields::new(what, span, &own).stray(!rest.is_empty());
    let value = each(&mut fields, findings);
    fields.finish(findings);
    value.map(|value| findings.located(value, span))
}
